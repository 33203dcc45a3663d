"""The journal of one run in memory: how events are sorted, what is next, and what does not fit the code."""

import pytest

from holdfast.engine.journal import Journal, arrives, first_of
from holdfast.words.model import Event


def journal_of(*events):
    """A journal of events that are given as kind, key and data; numbered in order."""
    return Journal.of([event(seq, *each) for seq, each in enumerate(events)], created_at=1000)


def event(seq, kind, key=None, data=None, epoch=1):
    return Event(seq, kind, key, data or {}, at=1000 + seq, epoch=epoch)


def step(key, name="work", digest="d", kind="step.completed", **more):
    return kind, key, {"name": name, "digest": digest, "input": "x", **more}


# Sorting

SORTED = {
    "an outcome closes its key": ([step("a")], {"closed": ["a"], "unasked": ["a"]}),
    "a start is begun and not closed": ([step("a", kind="step.started")], {"begun": ["a"], "unclaimed": ["a"]}),
    "both are kept": (
        [step("a", kind="step.started"), step("a")],
        {"begun": ["a"], "unclaimed": ["a"], "closed": ["a"], "unasked": ["a"]},
    ),
    "an arrival closes nothing": ([("message.received", None, {"topic": "t"})], {}),
    "a patch waits to be claimed": ([("patched", None, {"patch": "p"})], {"patched": ["p"], "unclaimed": ["patched:p"]}),
    "raw I/O is remembered by its line": ([("foreign", None, {"task": "t", "line": "f:1"})], {"foreign": ["t f:1"]}),
    "an effect is remembered apart": (
        [("foreign", None, {"task": "t", "line": "f:1", "effect": True})],
        {"effects": ["t f:1"]},
    ),
    "a crash is of the epoch before": ([("run.interrupted", None, {}, 3)], {"crashed": [2]}),
    "a checkpoint makes all before it history": (
        [step("a"), step("b", kind="step.started"), ("patched", None, {"patch": "p"}), ("checkpoint", "c", {"delivered": 1})],
        {},
    ),
    "what comes after a checkpoint counts": (
        [step("a"), ("checkpoint", "c", {"delivered": 1}), step("b")],
        {"closed": ["b"], "unasked": ["b"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SORTED)
def test_events_are_sorted_by_what_replay_needs(case):
    events, wanted = SORTED[case]
    journal = journal_of(*events)
    names = ("closed", "unasked", "begun", "unclaimed", "patched", "foreign", "effects", "crashed")
    assert {name: list(getattr(journal, name)) for name in names if getattr(journal, name)} == wanted


PAUSES = {
    "asked for": (["run.pausing"], True),
    "carried out": (["run.pausing", "run.paused"], False),
    "called off": (["run.pausing", "run.resumed"], False),
    "asked for again": (["run.pausing", "run.resumed", "run.pausing"], True),
    "overtaken by a request to stop": (["run.pausing", "run.cancelling"], False),
    "asked for, and a step ended since": (["run.pausing", "step.completed"], True),
    "retried": (["run.pausing", "run.retried"], False),
}


@pytest.mark.parametrize("case", PAUSES)
def test_a_request_to_pause_stays_open_until_it_is_answered(case):
    kinds, still = PAUSES[case]
    assert (journal_of(*((kind, None) for kind in kinds)).pausing is not None) is still


def test_a_pause_that_stops_bodies_is_known_by_epoch_and_a_retry_by_its_place():
    journal = journal_of(
        ("run.pausing", None, {"now": True}, 2), ("run.pausing", None, {}, 3), ("run.retried", None), ("run.retried", None)
    )  # fmt: skip
    assert (journal.stopped, journal.retried) == ({2: 0}, 3)


# Delivering


def test_recorded_outcomes_come_first_then_those_that_land():
    journal = journal_of(step("a"), step("b", kind="step.started"), ("message.received", None, {"topic": "t"}))
    landed = [event(3, "step.completed", "b"), event(4, "note", "c")]
    for each in landed:
        journal.land(each)
    seen = []
    while (found := journal.next()) is not None:
        assert journal.next() is found  # to look changes nothing
        assert journal.exhausted == (found.seq >= 3)
        seen.append(found.seq)
        journal.move_on()
    assert seen == [0, 2, 3, 4]
    assert journal.exhausted
    assert not journal.ready


def test_time_goes_on_with_outcomes_and_never_back():
    journal = journal_of(step("a"))
    assert (journal.delivered, journal.time) == (0, 1000)
    journal.saw(event(5, "note", "n"))
    journal.saw(event(2, "note", "m"))  # by another owner, whose clock was behind
    assert (journal.delivered, journal.time) == (2, 1005)


def test_a_new_era_keeps_what_waits_for_its_turn_and_the_counts():
    journal = journal_of(step("a"), step("b", kind="step.started"), ("patched", None, {"patch": "p"}))
    journal.move_on()
    journal.saw(journal.outcomes[0])
    waiting, checkpoint = event(4, "message.received"), event(3, "checkpoint", "c", {"delivered": 2})
    journal.land(checkpoint)
    journal.move_on()
    journal.saw(checkpoint)
    journal.land(waiting)
    journal.begin_era(checkpoint)
    assert journal.next() is waiting
    assert (journal.delivered, journal.time, journal.numbered) == (2, 1003, 2)
    assert not (journal.closed or journal.begun or journal.patched or journal.unclaimed or journal.unasked)
    assert journal.left_over() is None
    assert not journal.awaits_restore


def test_a_checkpoint_awaits_restore_and_gives_its_counts():
    journal = journal_of(step("a"), ("checkpoint", "c", {"delivered": 7}), step("b"))
    assert journal.awaits_restore
    assert journal.left_over().kind == "checkpoint"
    assert journal.numbered == 8
    assert journal.restore().seq == 1
    assert (journal.delivered, journal.time, journal.awaits_restore) == (7, 1001, False)


# Claiming

CLAIMS = {
    "nothing is recorded": ([], True),
    "its outcome is": ([step("a")], True),
    "its start is": ([step("a", kind="step.started")], True),
    "the record says neither name nor input": ([("tick", "a", {})], False),  # of another family all the same
    "another name is recorded": ([step("a", name="other")], False),
    "another input is recorded": ([step("a", digest="other")], False),
    "another kind of call is recorded": ([("timer.fired", "a", {"name": "work", "digest": "d"})], False),
    "a question of the step is recorded": (
        [("approval.asked", "a", {"of": "step", "name": "work", "digest": "d"})],
        True,
    ),
    "a question of its own is recorded": ([("approval.asked", "a", {"name": "work", "digest": "d"})], False),
    "the outcome counts before the start": ([step("a", digest="other", kind="step.started"), step("a")], True),
    "another key is recorded": ([step("b", name="other")], True),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_call_fits_a_record_of_its_kind_name_and_input(case):
    events, fits = CLAIMS[case]
    journal = journal_of(*events)
    divergence = journal.claim("a", "work", "d", "step")
    assert (divergence is None) is fits
    assert "a" not in journal.unclaimed
    assert "a" not in journal.unasked
    if divergence is not None:
        assert divergence.key == "a"
        assert "'a'" in divergence.told("r", divergence.found("work", "x", "step"))


def test_a_patch_is_claimed_once_and_known_for_ever():
    journal = journal_of(("patched", None, {"patch": "p"}))
    assert journal.left_over().told("r", "…").count("patched of p()") == 1
    assert journal.claim_patch("p")
    assert journal.left_over() is None
    assert journal.claim_patch("p")
    assert not journal.claim_patch("q")


LEFT_OVER = {
    "nothing": ([], None),
    "an outcome": ([step("a")], "a"),
    "an arrival is nobody's": ([("message.received", None, {"topic": "t"})], None),
    "an outcome behind an arrival": ([("child.ended", None, {"child": "c"}), step("a")], "a"),
    "what was begun": ([step("a", kind="step.started")], "a"),
    "an outcome before what was begun": ([step("a", kind="step.started"), step("b")], "b"),
    "of what was begun the first by name": ([step("b", kind="step.started"), step("a", kind="step.started")], "a"),
    "a patch": ([("patched", None, {"patch": "p"})], "patched:p"),
}


@pytest.mark.parametrize("case", LEFT_OVER)
def test_what_the_code_has_not_asked_for_is_left_over(case):
    events, key = LEFT_OVER[case]
    found = journal_of(*events).left_over()
    assert (None if found is None else found.key) == key


def test_what_was_delivered_claimed_or_passed_is_not_left_over():
    journal = journal_of(step("a"), step("b"), step("c", kind="step.started"))
    journal.claim("a", "work", "d", "step")
    assert journal.left_over().key == "a"  # it was asked for, and waits for its turn
    journal.move_on()
    journal.passes("b")
    journal.move_on()
    assert journal.left_over().key == "c"
    journal.claim("c", "work", "d", "step")
    assert journal.left_over() is None


# In doubt

BEGUN = {  # epochs of the recorded outcomes, how many were seen when it was asked, the epoch now: may it have begun?
    "the first owner of a new run": ([], 0, 1, False),
    "the second owner of a run without outcomes": ([], 0, 2, True),
    "an earlier owner recorded the last outcome seen": ([1], 1, 2, True),
    "this owner recorded it": ([1, 2], 2, 2, False),
    "asked before what this owner recorded": ([1, 2], 1, 2, True),
    "asked for first, and this owner recorded something": ([2], 0, 2, True),
    "more were seen than the journal had": ([1], 5, 2, True),
    "the first owner, in the middle": ([1, 1], 1, 1, False),
}


@pytest.mark.parametrize("case", BEGUN)
def test_a_body_may_have_begun_if_an_earlier_owner_could_have_come_so_far(case):
    epochs, asked, epoch, may = BEGUN[case]
    assert (
        journal_of(*(("note", f"n{n}", {}, each) for n, each in enumerate(epochs))).may_have_begun(asked, epoch) is may
    )


@pytest.mark.parametrize(("taken_by", "asked", "may"), [(1, 4, True), (2, 4, False), (2, 5, True), (1, 5, True)])
def test_behind_a_checkpoint_its_owner_counts(taken_by, asked, may):
    journal = journal_of(("checkpoint", "c", {"delivered": 4}, taken_by), ("note", "n", {}, 1))
    assert journal.may_have_begun(asked, 2) is may


# Words

ARRIVES = {"message.received": True, "run.cancelling": True, "run.unwinding": False, "step.completed": False}


@pytest.mark.parametrize("kind", ARRIVES)
def test_what_comes_by_itself_is_known_by_its_kind(kind):
    assert arrives(event(0, kind)) is ARRIVES[kind]


def test_the_first_of_a_kind_is_found_or_none_is():
    events = [event(0, "step.started", "a"), event(1, "step.retrying", "a"), event(2, "step.started", "a")]
    assert first_of(events, "step.started").seq == 0
    assert first_of(events, "step.held") is None
    assert first_of(None, "step.held") is None


FOUND = {
    "another call": (("other", "x", "step"), "now calls other(x) there"),
    "another kind of call": (("work", "x", "child"), "now calls a child of that name there"),
    "the same to the eye": (("work", "x", "step"), "with another input, though it reads the same"),
}


@pytest.mark.parametrize("case", FOUND)
def test_a_divergence_says_what_the_code_calls_now(case):
    (name, preview, family), words = FOUND[case]
    divergence = journal_of(step("a")).left_over()
    assert words in divergence.found(name, preview, family)
