"""The tree that is made of events, without a store or a terminal."""

from holdfast.cli.view.console import ASCII
from holdfast.cli.view.draw import Scene, lines, rows
from holdfast.cli.view.tree import History, in_order
from holdfast.words.calls import OpenBody
from holdfast.words.durations import when
from holdfast.words.model import Event


def events(*made):
    return [Event(seq, kind, key, {"name": (key or "").rpartition("/")[2].partition("#")[0], **data}, at=1000 * seq)
            for seq, (kind, key, data) in enumerate(made)]  # fmt: skip


def drawn(history, status="completed", width=100):
    scene = Scene(ASCII, width, {}, {"r": status}, now=60_000)
    return [line.plain.rstrip() for line in lines(rows(scene, "r", history), width, ASCII)]


def test_what_is_above_an_interruption_was_recorded_before_it():
    """A step that began before and ended after an interruption stands below it, with what happened to it."""
    made = History(events(
        ("step.completed", "a#0", {"began": 1}),
        ("step.started", "pay#0", {"attempt": 1}),
        ("run.interrupted", None, {}),
        ("step.completed", "pay#0", {"began": 0, "attempts": 1}),
    ))  # fmt: skip
    step, mark, paid, remark = drawn(made)
    assert "+ a()" in step
    assert "-- interrupted" in mark
    assert "+ pay()" in paid
    assert "its probe found it done" in remark


def test_a_branch_that_was_interrupted_shows_where():
    """The mark stands at the top and again between the steps of a branch that went on after it."""
    made = History(events(
        ("step.completed", "one#0/a#0", {"began": 1}),
        ("step.completed", "two#0/a#0", {"began": 1}),
        ("run.interrupted", None, {}),
        ("step.completed", "two#0/b#0", {"began": 1}),
    ))  # fmt: skip
    assert sum("interrupted" in line for line in drawn(made)) == 2
    assert [node.name.partition(":")[0] for node in in_order(made.items)] == ["one#0", "interrupted", "two#0"]


def test_keys_of_later_eras_do_not_mix_with_earlier_ones():
    """After a checkpoint the same path names another branch."""
    made = History(events(
        ("step.completed", "one#0/a#0", {"began": 1}),
        ("checkpoint", ":checkpoint#0", {"era": 1}),
        ("step.completed", "@1/one#0/a#0", {"began": 1}),
    ))  # fmt: skip
    assert [node.sort for node in in_order(made.items)] == ["branch", "checkpoint", "branch"]


def test_open_calls_come_and_go():
    """What runs now is shown until it is recorded or no longer runs."""
    made = History(events(("step.completed", "a#0", {"began": 1})))
    made.show_open([OpenBody("one#0/b#0", "b", "x=1", 1, 50_000)])
    assert any(line.endswith("10.0 s") and "* b(x=1)" in line for line in drawn(made, "running"))
    made.show_open([])
    assert not any("b(x=1)" in line for line in drawn(made, "running"))


def test_users_text_cannot_steer_the_terminal():
    """Control characters of a note, an argument or an error come out escaped, on one line."""
    bad = "\x1b[2Jgone\nand more"
    failed = {"input": bad, "error": {"type": "E", "message": bad}}
    told = drawn(History(events(("note", ":note#0", {"text": bad}), ("step.failed", "a#0", failed))))
    assert len(told) == 3
    assert not any("\x1b" in line for line in told)
    assert "\\x1b[2Jgone and more" in told[0]


def test_lines_fit_the_width():
    """No line is wider than the console, whatever the arguments."""
    made = History(events(("step.completed", "one#0/two#0/a#0", {"input": "x" * 500, "began": 1})))
    for width in (40, 80, 120):
        assert max(len(line) for line in drawn(made, width=width)) <= width


def test_a_rate_that_is_paused_is_named():
    """Who was refused says that all are put off; who waits says for which rate, and why."""
    made = History(events(
        ("step.retrying", "a#0", {"attempt": 1, "wait_ms": 30_000, "pauses": "openai", "error": {}}),
        ("step.held", "b#0", {"at": 91_000, "rate": "openai", "paused": True}),
        ("step.held", "c#0", {"at": 63_000}),
    ))  # fmt: skip
    shown = "\n".join(drawn(made, "waiting"))
    assert "again after 30.0 s, and openai is paused for everybody" in shown
    assert f"waits for its turn of openai, which is paused, until {when(91_000)}" in shown
    assert f"waits for its turn, until {when(63_000)}" in shown
    assert "waited" not in shown


def test_how_long_a_step_waited_for_its_turn_is_said_when_that_is_over():
    """By the next record of the step, which may come before the turn, or by the clock; before, only when the turn is."""
    held, at = ("step.held", "a#0", {"at": 61_000}), f"waits for its turn, until {when(61_000)}"
    assert at in "\n".join(drawn(History(events(held)), "waiting"))
    over = "\n".join(drawn(History(events(held, ("step.cancelled", "a#0", {}))), "waiting"))
    assert ("waited 1.0 s for its turn" in over, at in over) == (True, False)
    assert "waited 30.0 s for its turn" in "\n".join(
        drawn(History(events(("step.held", "a#0", {"at": 30_000}))), "waiting")
    )


def test_an_interruption_does_not_guess_its_length():
    """When the process ended is not recorded, and its last record may be much older: no time is told from that."""
    told = drawn(History(events(("step.completed", "a#0", {"began": 1}), ("run.interrupted", None, {}))))
    assert told[1].strip(" -").endswith("interrupted: its process was gone; another went on")
