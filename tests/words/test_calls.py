"""The fold of events into calls: which event belongs to which call, how each stands, and what it waits for."""

from holdfast.words.calls import Calls
from holdfast.words.model import Event


def events(*rows):
    """Events in order, each `(kind, key, data)` or with the retry that dropped it; a second apart, all of epoch 1."""
    return [
        Event(seq, kind, key, data, at=1000 * seq, epoch=1, dropped=more[0] if more else None)
        for seq, (kind, key, data, *more) in enumerate(rows)
    ]


def fold(*rows):
    return Calls(events(*rows))


STEP = {"name": "fetch", "digest": "d", "input": "url='a'", "asked": 3}


def test_a_plain_step_is_one_event_and_says_all_of_its_call():
    (call,) = fold(("step.completed", "fetch#0", STEP | {"attempts": 1, "began": 500, "spent": {"usd": 0.5}}))
    assert (call.key, call.sort, call.name, call.input, call.digest, call.asked) == (
        "fetch#0", "step", "fetch", "url='a'", "d", 3,
    )  # fmt: skip
    assert (call.state, call.attempts, call.began, call.ended, call.spent.usd) == ("completed", 1, 500, 0, 0.5)
    assert call.pending is None


def test_attempts_errors_and_spending_are_those_of_all_events_of_the_call():
    retrying = STEP | {"attempt": 1, "failures": 1, "wait_ms": 200, "error": {"type": "E"}, "spent": {"usd": 1.0}}
    (call,) = fold(
        ("step.started", "fetch#0", STEP | {"attempt": 1}),
        ("step.retrying", "fetch#0", retrying),
        ("step.started", "fetch#0", STEP | {"attempt": 2}),
        ("step.failed", "fetch#0", STEP | {"attempts": 2, "error": {"type": "F"}, "spent": {"usd": 2.0}}),
    )
    assert (call.state, call.attempts, call.error, call.spent.usd, call.seq) == ("failed", 2, {"type": "F"}, 3.0, 0)
    assert [event.data["error"]["type"] for event in call.failures] == ["E"]


def test_open_calls_say_what_they_wait_for():
    waits = {
        "step": ("step.started", STEP | {"attempt": 1}),
        "rate": ("step.held", STEP | {"at": 99, "rate": "api"}),
        "retry": ("step.retrying", STEP | {"attempt": 1, "wait_ms": 200}),
        "timer": ("timer.set", {"name": ":sleep", "ms": 5000, "until": None}),
        "child": ("child.started", {"name": "deepen", "child": "r.deepen-1"}),
        "question": ("approval.asked", {"name": ":approve", "approval": "q-1", "kind": "approve"}),
        "conversation": ("conversation.asked", {"name": ":conversation", "conversation": "user-1", "request": "c-1"}),
    }
    found = fold(*[(kind, f"{sort}#0", data) for sort, (kind, data) in waits.items()])
    assert [call.pending.sort for call in found] == list(waits)
    pending = {call.key: call.pending for call in found}
    assert pending["timer#0"].until == 3000 + 5000
    assert (pending["rate#0"].what, pending["rate#0"].until) == ("api", 99)
    assert pending["retry#0"].until == 2000 + 200
    assert [pending[f"{sort}#0"].what for sort in ("child", "question", "conversation")] == [
        "r.deepen-1",
        "q-1",
        "user-1",
    ]
    assert next(call.state for call in found) == "running"
    assert {call.state for call in list(found)[1:]} == {"waiting"}


def test_arrivals_end_the_calls_that_they_name():
    found = fold(
        ("child.started", "deepen#0", {"name": "deepen", "child": "c-1"}),
        ("approval.asked", ":approve#0", {"name": ":approve", "approval": "q-1", "kind": "approve"}),
        ("conversation.asked", ":conversation#0", {"name": ":conversation", "conversation": "u", "request": "c"}),
        ("message.received", None, {"topic": "orders"}),
        ("child.ended", None, {"child": "c-1", "status": "failed", "error": {"type": "E"}}),
        ("approval.decided", None, {"key": ":approve#0", "approval": "q-1", "decision": "denied"}),
        ("conversation.refused", None, {"key": ":conversation#0", "by": "r-2"}),
    )
    assert [(call.key, call.state) for call in found] == [
        ("deepen#0", "failed"), (":approve#0", "completed"), (":conversation#0", "failed"),
    ]  # fmt: skip
    assert found.find("deepen#0").error == {"type": "E"}


def test_a_spawned_child_is_started_and_its_end_belongs_to_no_call():
    found = fold(
        ("child.spawned", ":spawn.deepen#0", {"name": "deepen", "child": "c-1"}),
        ("child.ended", None, {"child": "c-1", "status": "failed"}),
    )
    assert [(call.sort, call.state, call.child) for call in found] == [("child", "completed", "c-1")]


def test_a_question_about_a_step_belongs_to_the_step():
    (call,) = fold(
        ("step.started", "pay#0", STEP | {"attempt": 1}),
        ("approval.asked", "pay#0", STEP | {"kind": "in_doubt", "approval": "q-1"}),
    )
    assert (call.sort, call.pending.sort, call.pending.what) == ("step", "question", "q-1")
    (looped,) = fold(("approval.asked", "pay#0", STEP | {"of": "step", "kind": "loop", "approval": "q-2"}))
    assert (looped.sort, looped.pending.what) == ("step", "q-2")


def test_an_answer_about_a_step_is_not_its_outcome():
    asked = events(
        ("step.started", "pay#0", STEP | {"attempt": 1}),
        ("approval.asked", "pay#0", STEP | {"kind": "in_doubt", "approval": "q-1"}),
        ("approval.decided", None, {"key": "pay#0", "approval": "q-1", "decision": "answered"}),
    )
    (call,) = Calls(asked)
    assert call.outcome is None


def test_what_a_retry_took_out_is_a_call_of_its_own():
    found = fold(
        ("step.failed", "fetch#0", STEP | {"attempts": 1, "error": {"type": "E"}}, 1),
        ("run.retried", None, {"by": "ana"}),
        ("step.completed", "fetch#0", STEP | {"attempts": 1}),
    )
    assert [(call.state, call.dropped) for call in found] == [("failed", 1), ("completed", None)]


def test_the_worker_of_an_epoch_is_told_by_one_of_its_events():
    found = Calls()
    found.add(Event(0, "run.interrupted", None, {}, epoch=2))
    found.add(Event(1, "step.completed", "a#0", STEP | {"worker": "w-2"}, epoch=2))
    found.add(Event(2, "step.completed", "b#0", STEP, epoch=2))
    assert found.workers == {2: "w-2"}
    assert [call.worker for call in found] == ["w-2", "w-2"]
    found.add(Event(3, "step.completed", "c#0", STEP, epoch=3))
    found.add(Event(4, "step.completed", "d#0", STEP | {"worker": "w-9"}, epoch=2))
    assert [call.worker for call in found] == ["w-2", "w-2", None, "w-9"]


def test_calls_that_ended_can_be_forgotten_and_open_ones_go_on():
    rows = events(
        ("timer.set", ":sleep#0", {"name": ":sleep", "ms": 5, "until": None}),
        ("step.completed", "fetch#0", STEP),
        ("timer.fired", ":sleep#0", {"name": ":sleep"}),
    )
    found = Calls(rows[:2])
    found.forget([call for call in found if call.outcome is not None])
    assert [call.key for call in found] == [":sleep#0"]
    assert found.add(rows[2]) is found.made[0]
    assert found.made[0].state == "completed"
