"""Small parts of the engine that need no run: identity, life, the mailbox, and what is known of a step's past."""

import asyncio
import contextvars

import pytest

from holdfast.engine.identity import Identity
from holdfast.engine.inbox import Mailbox
from holdfast.engine.life import Life
from holdfast.engine.steps import Past
from holdfast.errors import HoldfastError
from holdfast.store.appends import Transition
from holdfast.words.model import Event, RunRow

RUN = RunRow("r", "0123456789abcdef" * 2, "agent", "running", "{}")


# Identity

KEYS = {  # places that ask for keys, in order, and the keys they get
    "one place counts": ([("", "work"), ("", "work")], ["work#0", "work#1"]),
    "labels count apart": ([("", "work"), ("", "rest"), ("", "work")], ["work#0", "rest#0", "work#1"]),
    "paths count apart": (
        [("a#0", "work"), ("a#1", "work"), ("a#0", "work")],
        ["a#0/work#0", "a#1/work#0", "a#0/work#1"],
    ),
    "a path is one with a label that looks like it": ([("a", "work"), ("", "a/work")], ["a/work#0", "a/work#1"]),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_key_is_a_path_a_label_and_how_often_it_came_before(case):
    asked, keys = KEYS[case]
    identity = Identity(RUN)
    assert [identity.key(*place) for place in asked] == keys


def test_a_place_and_a_key_share_their_count():
    identity = Identity(RUN)
    assert [identity.nth("a"), identity.nth("a"), identity.nth("b")] == [0, 1, 0]
    assert identity.key("", "a") == "a#2"


def test_an_era_starts_keys_and_numbers_again_under_a_name_of_its_own():
    identity = Identity(RUN)
    first = [identity.key("", "work"), identity.next_task(), identity.next_call()]
    assert (first[0], identity.prefix) == ("work#0", "")
    identity.enter_era(2)
    assert (identity.key("", "work"), identity.prefix) == ("@2/work#0", "@2/")
    assert identity.next_task() == first[1] + 1  # the root has its number already
    assert identity.next_call() == first[2]


def test_numbers_count_up_and_differ_between_runs():
    one, other = Identity(RUN), Identity(RunRow("s", "f" * 32, "agent", "running", "{}"))
    numbers = [one.next_task() for _ in range(3)]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert other.next_task() not in numbers
    assert Identity(RUN).next_task() == numbers[0]


def test_what_is_derived_depends_on_the_run_the_label_and_the_input():
    one, other = Identity(RUN), Identity(RunRow("r", "f" * 32, "agent", "running", "{}"))
    assert one.derived("x") == Identity(RUN).derived("x")
    assert len({one.derived("x"), one.derived("y"), other.derived("x")}) == 3
    assert len(one.derived("\udc80")) == 32  # a name may hold what is no text
    keys = {one.idempotency_key("a#0", "d"), one.idempotency_key("a#0", "e"), one.idempotency_key("a#1", "d")}
    assert len(keys) == 3
    assert all(key.startswith("hf_") for key in keys)


def test_a_scope_is_open_once():
    identity = Identity(RUN)
    identity.open("tool")
    with pytest.raises(HoldfastError, match="scope 'tool' is open already"):
        identity.open("tool")
    identity.close("tool")
    identity.open("tool")


COUNTED = {  # keys that are passed over, and the next key of each place
    "one": (["work#0"], {"work": "work#1"}),
    "the last counts": (["work#4", "work#2"], {"work": "work#5"}),
    "by path": (["a#0/work#0", "work#1"], {"work": "work#2", "a#0/work": "a#0/work#1"}),
}


@pytest.mark.parametrize("era", [0, 3])
@pytest.mark.parametrize("case", COUNTED)
def test_counters_move_on_as_if_the_calls_had_been_made(case, era):
    keys, following = COUNTED[case]
    identity = Identity(RUN)
    identity.enter_era(era)
    identity.count(identity.prefix + key for key in keys)
    assert {place: identity.key("", place) for place in following} == {
        place: identity.prefix + key for place, key in following.items()
    }


def test_a_renamed_task_takes_its_counters_along():
    identity = Identity(RUN)
    identity.nth("loop")
    for _ in range(2):
        identity.key("loop#0", "work")
    identity.key("loop#00", "work")  # of another task, whose name begins alike
    identity.rename("loop#0", "loop#3")
    assert identity.key("loop#3", "work") == "loop#3/work#2"
    assert identity.key("loop#0", "work") == "loop#0/work#0"
    assert identity.key("loop#00", "work") == "loop#00/work#1"
    assert identity.nth("loop") == 4


# Life


class Owner:
    """An owner of a life that notes what it is told, and tries to close it again."""

    def __init__(self):
        self.followed = []

    def went_live(self):
        self.followed.append(("live", self.life.live))

    def let_go(self):
        self.followed.append(self.life.closing)
        self.life.close("lost")
        self.followed.append("last")


@pytest.fixture
def owner():
    return Owner()


@pytest.fixture
def life(owner):
    loop = asyncio.new_event_loop()
    owner.life = Life(RUN, loop, contextvars.copy_context(), owner)
    yield owner.life
    loop.close()


def test_what_follows_the_edge_follows_when_the_run_is_live(life, owner):
    assert not life.live
    life.go_live()
    assert owner.followed == [("live", True)]


@pytest.mark.parametrize("outcome", ["ended", "parked", "released", "paused", "unfit", "lost"])
def test_a_run_leaves_memory_once(life, owner, outcome):
    life.close(outcome)
    life.close("lost")
    assert owner.followed == [outcome, "last"]
    assert (life.closing, life.ended.result()) == (outcome, outcome)


def test_a_run_that_leaves_although_nobody_waits_any_more_leaves_all_the_same(life):
    life.ended.cancel()
    life.close("lost")
    assert life.closing == "lost"


def test_a_record_that_does_not_fit_says_why_unless_the_run_leaves_already(life):
    life.does_not_fit("first")
    life.does_not_fit("second")
    assert (life.closing, life.unfit) == ("unfit", "first")


def test_a_run_that_is_lost_is_not_unfit(life):
    life.close("lost")
    life.does_not_fit("late")
    assert (life.closing, life.unfit) == ("lost", "")


def test_how_a_run_leaves_is_remembered_and_only_an_end_finishes_it(life):
    paused = Transition("paused")
    assert life.leaves(paused) is paused
    assert (life.left, life.finishing) == (paused, False)
    ended = Transition("completed")
    assert life.finish(ended) is ended
    assert (life.left, life.finishing) == (ended, True)


# The mailbox


def letter(seq, topic="news"):
    return Event(seq, "message.received", data={"topic": topic})


def ended(seq, child="c"):
    return Event(seq, "child.ended", data={"child": child})


def decided(seq, approval="q", kind="approval.decided"):
    return Event(seq, kind, data={"approval": approval})


@pytest.fixture
def future():
    """Makes futures without a running loop."""
    loop = asyncio.new_event_loop()
    yield loop.create_future
    loop.close()


def test_letters_wait_by_topic_in_order():
    mailbox = Mailbox()
    for each in (letter(1), letter(2, "other"), letter(3)):
        mailbox.message(each)
    assert [each.seq for each in mailbox.unread()] == [1, 2, 3]
    assert mailbox.take("news").seq == 1
    assert [each.seq for each in mailbox.take_all("news")] == [3]
    assert mailbox.take("news") is None
    assert mailbox.take_all("news") == []
    assert [each.seq for each in mailbox.unread()] == [2]


def test_a_letter_goes_to_the_first_that_waits_for_its_topic(future):
    mailbox, gone, first, second, other = Mailbox(), future(), future(), future(), future()
    for waiter in (gone, first, second):
        mailbox.wait("message", "news", waiter)
    mailbox.wait("message", "other", other)
    gone.cancel()
    mailbox.message(letter(1))
    assert first.result().seq == 1
    assert not (second.done() or other.done())
    assert mailbox.unread() == []


def test_letters_that_are_put_back_are_the_next_again():
    mailbox = Mailbox()
    for seq in (1, 2, 3):
        mailbox.message(letter(seq))
    taken = [mailbox.take("news"), mailbox.take("news")]
    mailbox.put_back("news", taken)
    assert [each.seq for each in mailbox.take_all("news")] == [1, 2, 3]


FORGOTTEN = {  # what became of the waiter before it is forgotten, and what the box holds then
    "it got a letter and never saw it": (lambda waiter: waiter.set_result(letter(1)), [1, 2]),
    "it was cancelled": (lambda waiter: waiter.cancel(), [2]),
    "it failed": (lambda waiter: waiter.set_exception(TimeoutError()), [2]),
    "it still waits": (lambda _: None, [2]),
}


@pytest.mark.parametrize("case", FORGOTTEN)
def test_a_letter_that_its_waiter_never_saw_is_the_next_again(future, case):
    happen, kept = FORGOTTEN[case]
    mailbox, waiter = Mailbox(), future()
    mailbox.wait("message", "other", waiter)  # one of another topic is not woken by the letter below
    mailbox.message(letter(2))
    happen(waiter)
    mailbox.forget("message", "news", waiter)
    assert [each.seq for each in mailbox.take_all("news")] == kept
    waiter.cancel()


def test_a_waiter_that_is_forgotten_gets_nothing(future):
    mailbox, waiter = Mailbox(), future()
    mailbox.wait("message", "news", waiter)
    mailbox.forget("message", "news", waiter)
    mailbox.message(letter(1))
    assert not waiter.done()
    assert mailbox.take("news").seq == 1


SHARED = {
    "the end of a child": ("child", "c", Mailbox.child_ended, ended, "ended"),
    "a decision": ("approval", "q", Mailbox.decision, decided, "decided"),
}


@pytest.mark.parametrize("case", SHARED)
def test_an_end_or_a_decision_is_for_all_that_wait_and_stays(future, case):
    kind, name, arrive, make, kept = SHARED[case]
    mailbox, waiters, other = Mailbox(), [future(), future()], future()
    for waiter in waiters:
        mailbox.wait(kind, name, waiter)
    mailbox.wait(kind, "another", other)
    arrive(mailbox, make(1))
    assert [waiter.result().seq for waiter in waiters] == [1, 1]
    assert not other.done()
    assert getattr(mailbox, kept)[name].seq == 1
    mailbox.forget(kind, name, waiters[0])  # nothing goes back
    assert [event.seq for event in mailbox.kept()] == [1]


def test_what_people_say_is_kept_by_question_and_heard():
    mailbox, heard = Mailbox(), []
    mailbox.said(decided(1, kind="approval.voted"))
    mailbox.hearers["q"] = lambda: heard.append(len(mailbox.votes("q")))
    mailbox.said(decided(2, kind="approval.voted"))
    mailbox.said(decided(3, "other", kind="approval.delegated"))
    assert heard == [2]
    assert [event.seq for event in mailbox.votes("q")] == [1, 2]
    assert mailbox.votes("nobody") == []


def test_forsaken_questions_are_told_once_and_only_if_undecided():
    mailbox = Mailbox()
    mailbox.forsake("q", "key#0")
    mailbox.forsake("p", "key#1")
    mailbox.decision(decided(1))
    assert mailbox.forsaken() == [("p", "key#1")]
    assert mailbox.forsaken() == []


def test_all_that_may_still_be_asked_for_is_kept():
    mailbox = Mailbox()
    mailbox.message(letter(3))
    mailbox.child_ended(ended(1))
    mailbox.decision(decided(2))
    assert [event.seq for event in mailbox.kept()] == [3, 1, 2]


# The past of a step

STARTED, RETRYING = ("step.started", {"attempt": 1}), ("step.retrying", {"attempt": 1, "failures": 1, "wait_ms": 50})
PASTS = {  # events in order, and what is known then that is not so at first
    "nothing": ([], {}),
    "a body began": ([STARTED], {"attempt": 1, "in_doubt": True, "started": 0}),
    "it failed, and is tried again later": (
        [STARTED, RETRYING],
        {"attempt": 1, "failures": 1, "due": 1051, "started": 0},
    ),
    "it began again": (
        [STARTED, RETRYING, ("step.started", {"attempt": 2})],
        {"attempt": 2, "failures": 1, "in_doubt": True, "started": 2},
    ),
    "a probe failed": (
        [STARTED, ("step.retrying", {"attempt": 1, "failures": 0, "wait_ms": 5, "probes": 2})],
        {"attempt": 1, "due": 1006, "in_doubt": True, "started": 0, "probes": 2},
    ),
    "the database undid it": (
        [("step.retrying", {"attempt": 1, "failures": 0, "wait_ms": 5, "undone": 3})],
        {"attempt": 1, "due": 1005, "undone": 3},
    ),
    "it has a turn": ([("step.held", {"at": 7, "place": 7123})], {"turn": 7123}),
    "it has a turn of an older version": ([("step.held", {"at": 7})], {"turn": 7000}),
    "its turn was used": ([("step.held", {"at": 7}), STARTED], {"attempt": 1, "in_doubt": True, "started": 1}),
    "its turn is over, it failed": ([("step.held", {"at": 7}), RETRYING], {"attempt": 1, "failures": 1, "due": 1051}),
    "a person is asked": (
        [STARTED, ("approval.asked", {"approval": "q", "kind": "in_doubt"})],
        {"attempt": 1, "in_doubt": True, "started": 0, "question": "q"},
    ),
    "a person is asked about a loop": (
        [("approval.asked", {"approval": "q", "kind": "loop"})],
        {"question": "q", "loop": True},
    ),
    "the question was withdrawn": (
        [("approval.asked", {"approval": "q", "kind": "loop"}), ("approval.withdrawn", {"approval": "q"})],
        {},
    ),
    "the question was answered, and a body began": (
        [("approval.asked", {"approval": "q", "kind": "loop"}), STARTED],
        {"attempt": 1, "in_doubt": True, "started": 1},
    ),
    "how far it came changes nothing": ([("step.progress", {})], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", PASTS)
def test_the_past_of_a_step_is_what_its_events_leave(case):
    given, wanted = PASTS[case]
    events = [Event(seq, kind, "a", data, at=1000 + seq) for seq, (kind, data) in enumerate(given)]
    past, first = Past.of(events), Past()
    found = {name: getattr(past, name) for name in Past.__slots__ if getattr(past, name) != getattr(first, name)}
    if "started" in found:
        found["started"] = found["started"].seq
    assert found == wanted


GIVEN = {  # events, and which of them has the arguments
    "none has": ([("step.started", {}, None)], None),
    "a start has": ([("step.started", {}, "[]")], 0),
    "the first that has": ([("step.started", {}, None), ("step.retrying", RETRYING[1], "[]"), ("step.held", {"at": 1}, "[]")], 1),
    "a question has a value of its own": ([("approval.asked", {"approval": "q", "kind": "in_doubt"}, "[]")], None),
    "a question that has them says so": ([("approval.asked", {"approval": "q", "kind": "loop", "given": 1}, "[]")], 0),
}  # fmt: skip


@pytest.mark.parametrize("case", GIVEN)
@pytest.mark.parametrize("large", [False, True])
def test_the_arguments_of_a_step_are_in_the_first_event_that_has_them(case, large):
    given, nth = GIVEN[case]
    events = []
    for seq, (kind, data, text) in enumerate(given):
        data = {"attempt": 1, **data}
        events.append(Event(seq, kind, "a", data, None if large else text, "digest" if large and text else None))
    found = Past.of(events).given
    assert (None if found is None else found.seq) == nth
