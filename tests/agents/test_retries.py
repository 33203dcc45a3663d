"""Retrying: attempts in all, durable waits between them, who may say when, and what is never tried again."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.runs import finish, history, kinds, nothing_in_memory, with_client

import holdfast
import holdfast.testing
from holdfast import BadArguments, Permanent, Retry, RetryAfter, StepFailed
from holdfast.words.retry import asked_wait_s

TRIES: list[int] = []
PLAN: list[Exception] = []


async def _act() -> str:
    """Fail as planned, then succeed."""
    TRIES.append(holdfast.this_step().attempt)
    if PLAN:
        raise PLAN.pop(0)
    return "done"


@holdfast.step(retry=3)
async def three() -> str:
    return await _act()


@holdfast.step
async def once() -> str:
    return await _act()


@holdfast.step(retry=Retry(4, first="2h", factor=3, max="10h"))
async def patient() -> str:
    return await _act()


@holdfast.step(retry=Retry(5, first="1ms", on=(ConnectionError, TimeoutError)))
async def picky() -> str:
    return await _act()


@holdfast.step(retry=Retry(5, first="1ms", on=lambda error: "again" in str(error)))
async def asks_a_function() -> str:
    return await _act()


STEPS = {step.name: step for step in (three, once, patient, picky, asks_a_function)}


@holdfast.agent
async def tries(name: str) -> str:
    try:
        return await STEPS[name]()
    except StepFailed as failure:
        return f"{failure.type} after {failure.attempts}"
    except Exception as error:
        return f"{type(error).__name__}: {error} {' '.join(error.__notes__).split(chr(10))[0]}"


@pytest.fixture(autouse=True)
def fresh():
    TRIES.clear()
    PLAN.clear()


def test_retry_counts_all_attempts():
    """`retry=3` is three attempts in all; the default is one; the failure says how many there were."""
    PLAN[:] = [ValueError("1"), ValueError("2")]
    assert finish(tries, "three") == "done"
    assert TRIES == [1, 2, 3]
    PLAN[:] = [ValueError(str(n)) for n in range(9)]
    assert finish(tries, "three").startswith("ValueError: 2 Step 'three' failed after 3 attempts")
    assert len(PLAN) == 6
    assert finish(tries, "once").startswith("ValueError: 3 Step 'once' failed at its only attempt")


async def test_a_long_wait_holds_no_worker():
    """Between attempts the run is parked: `waiting` for `retry`, with the time of the next; no body runs early."""
    PLAN[:] = [ValueError("1"), ValueError("2")]

    async with holdfast.testing.open(agents=[tries]) as hf:
        run = await hf.start(tries, "patient", id="r")
        begun = hf.clock.now()
        info = await run.wait("waiting")
        assert (info.waits_for, TRIES) == ("retry", [1])
        assert 1.5 * 3600 <= info.due_at.timestamp() - begun / 1000 <= 2 * 3600 + 1
        await nothing_in_memory(hf)
        await hf.advance("1h")
        assert TRIES == [1]
        await hf.advance("1h")
        assert TRIES == [1, 2]
        info = await run.wait("waiting")
        assert info.waits_for == "retry"
        assert await run.result() == "done"
        assert TRIES == [1, 2, 3]
        waits = [event.data["wait_ms"] / 3_600_000 for event in await history(hf, "r") if event.kind == "step.retrying"]
        assert 1.5 <= waits[0] <= 2
        assert 4.5 <= waits[1] <= 6


async def test_attempts_and_waits_survive_crashes():
    """A crash before, during or after a wait loses neither the count nor the wait that has passed."""
    PLAN[:] = [ValueError("1"), ValueError("2"), ValueError("3"), ValueError("4")]

    async with holdfast.testing.open(agents=[tries]) as hf:
        run = await hf.start(tries, "patient", id="r")
        dues = []
        for passed in range(3):
            info = await run.wait("waiting")
            assert len(TRIES) == passed + 1
            dues.append(info.due_at)
            await hf.crash()
            await hf.advance("20m")
            await hf.crash()
            info = await run.info()
            assert (info.due_at, len(TRIES)) == (dues[-1], passed + 1)
            await hf.advance("12h")
        assert (await run.result()).startswith("ValueError: 4 Step 'patient' failed after 4 attempts")
        assert TRIES == [1, 2, 3, 4]


@pytest.mark.slow
async def test_a_crash_at_any_commit_loses_no_attempt():
    """Wherever the crash comes, the body runs as often as it should, once more at most, and the count is right."""
    async for hf in holdfast.testing.crash_everywhere(agents=[tries]):
        TRIES.clear()
        PLAN[:] = [ValueError("x")] * 9
        assert (await hf.run(tries, "three", id="r")).startswith("ValueError: x Step 'three' failed after 3 attempts")
        retrying = [event.data for event in await history(hf, "r") if event.kind == "step.retrying"]
        assert [(data["attempt"], data["failures"]) for data in retrying] == [(1, 1), (2, 2)]
        assert sorted(set(TRIES)) == [1, 2, 3]
        assert len(TRIES) <= 4


def test_permanent_stops_at_once():
    """`raise Permanent` is final; it comes back as StepFailed with its message."""
    PLAN[:] = [ValueError("1"), Permanent("no such account")]
    assert finish(tries, "three") == "Permanent after 2"
    assert TRIES == [1, 2]


def test_retry_after_says_when():
    """The wait is what the body asked for, longer or shorter than the policy's; attempts stay limited."""
    PLAN[:] = [RetryAfter("3 days"), RetryAfter("5s", "busy")]

    async def main(hf):
        run = await hf.start(tries, "three", id="r")
        await run.wait("waiting")
        await hf.advance("71h")
        assert TRIES == [1]
        assert await run.result() == "done"
        waits = [event.data["wait_ms"] for event in await history(hf, "r") if event.kind == "step.retrying"]
        assert waits == [3 * 86_400_000, 5_000]

    with_client(main, agents=[tries])
    PLAN[:] = [RetryAfter("1s")] * 3
    assert finish(tries, "three") == "RetryAfter after 3"
    PLAN[:] = [RetryAfter("1s")]
    assert finish(tries, "once") == "RetryAfter after 1"


def test_a_nonsense_retry_after_fails_clearly():
    """A duration that is none fails the step with the reason instead of waiting for ever or being tried again."""
    PLAN[:] = [RetryAfter("soon")]
    assert finish(tries, "three") == "BadArguments after 1"


@dataclass
class Response:
    headers: dict[str, str]


EARLIER, LATER = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:29:30 GMT"


class HttpError(Exception):
    def __init__(self, **attributes: object) -> None:
        super().__init__("429")
        vars(self).update(attributes)


@pytest.mark.parametrize(
    ("error", "wait_s"),
    [
        (HttpError(response=Response({"retry-after": "7200"})), 7200),
        (HttpError(response=Response({"Retry-After": "1.5"})), 1.5),
        (HttpError(headers={"Retry-After": "30"}), 30),
        (HttpError(retry_after=12), 12),
        (HttpError(response=Response({"retry-after-ms": "2500", "retry-after": "3"})), 2.5),
        (HttpError(response=Response({"Retry-After-Ms": "soon", "Retry-After": "3"})), 3),
        (HttpError(response=None, headers={"retry-after": "9"}), 9),
        (HttpError(response=Response({"retry-after": LATER, "date": EARLIER})), 90),
        (HttpError(response=Response({"Retry-After": EARLIER, "Date": LATER})), 0),
        (HttpError(response=Response({"retry-after": EARLIER})), 0),
        (HttpError(response=Response({"retry-after": "tomorrow"})), None),
        (HttpError(response=Response({"retry-after": LATER, "date": "today"})), None),
        (HttpError(response=Response({"retry-after": "-1"})), None),
        (HttpError(response=Response({"retry-after": "nan"})), None),
        (HttpError(response=Response({})), None),
        (HttpError(response=None), None),
        (HttpError(headers="text"), None),
        (ValueError("plain"), None),
    ],
)
def test_a_retry_after_header_is_honoured(error, wait_s):
    """The errors of HTTP clients carry the server's wish: seconds, milliseconds, or a date by the server's clock."""
    assert asked_wait_s(error) == wait_s
    wait = Retry.model.delay_s(1, error)
    assert wait == wait_s if wait_s and wait_s > 2 else 1.5 <= wait <= 2


def test_only_the_failures_named_are_retried():
    """`on=` takes classes, one class, or a function of the exception; everything else fails at once."""
    PLAN[:] = [ConnectionResetError("x"), TimeoutError("y"), ValueError("not named")]
    assert finish(tries, "picky").startswith("ValueError: not named Step 'picky' failed after 3 attempts")
    PLAN[:] = [ValueError("again 1"), KeyError("again 2"), ValueError("no")]
    assert finish(tries, "asks_a_function").startswith("ValueError: no Step")
    alone = Retry(2, on=ConnectionError)
    assert alone.wants(ConnectionResetError())
    assert not alone.wants(ValueError())


@holdfast.step(retry=Retry(5, on=lambda error: error.status == 429))
async def broken_predicate() -> None:
    raise ValueError("the failure itself")


@holdfast.agent
async def meets_broken_predicate() -> str:
    with pytest.raises(AttributeError) as caught:
        await broken_predicate()
    return " ".join(caught.value.__notes__)


def test_a_predicate_that_raises_does_not_hide_the_failure():
    """The step fails at once with the predicate's error, and its traceback shows what it was asked about."""
    told = finish(meets_broken_predicate)
    assert "ValueError: the failure itself" in told
    assert "no attribute 'status'" in told


@pytest.mark.parametrize(
    "error",
    [Permanent("x"), holdfast.NotStorable("x"), holdfast.LeafError("x"), BadArguments("x")],
    ids=lambda error: type(error).__name__,
)
def test_what_can_never_succeed_is_not_retried(error):
    """Whatever `on=` says."""
    assert Retry(5).delay_s(1, error) is None
    PLAN[:] = [error]
    assert finish(tries, "three") == f"{type(error).__name__} after 1"


@holdfast.step(retry=5)
async def returns_a_lock() -> object:
    TRIES.append(1)
    return threading.Lock()


@holdfast.agent
async def gets_a_lock() -> int:
    with pytest.raises(StepFailed) as caught:
        await returns_a_lock()
    return caught.value.attempts


def test_a_result_that_cannot_be_stored_is_not_tried_again():
    """The effect happened and would happen again: the step fails at once."""
    assert finish(gets_a_lock) == 1
    assert TRIES == [1]


RELEASE = threading.Event()


@holdfast.step(retry=Retry(3, first="1ms"), timeout="1s")
async def slow() -> str:
    TRIES.append(holdfast.this_step().attempt)
    if len(TRIES) < 3:
        await asyncio.Event().wait()
    return "quick at last"


@holdfast.step(retry=Retry(3, first="1ms"), timeout="1s")
def slow_thread() -> str:
    TRIES.append(holdfast.this_step().attempt)
    if len(TRIES) < 3:
        RELEASE.wait(10)
    return "quick at last"


@holdfast.agent
async def hurries(threaded: bool) -> str:
    return await (slow_thread() if threaded else slow())


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_timeout_is_per_attempt(threaded):
    """Each attempt has its own; a thread that cannot be stopped is left behind, and its late end changes nothing."""
    RELEASE.clear()

    async with holdfast.testing.open(agents=[hurries]) as hf:
        assert await hf.run(hurries, threaded, id="r") == "quick at last"
        assert TRIES == [1, 2, 3]
        RELEASE.set()
        assert await kinds(hf, "r") == ["step.retrying", "step.retrying", "step.completed", "run.completed"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0}, {"attempts": -1}, {"attempts": True}, {"attempts": 2.0}, {"attempts": "3"}, {"first": "soon"},
        {"first": -1}, {"max": float("inf")}, {"factor": 0.5}, {"factor": "2"}, {"factor": float("nan")}, {"on": ()},
        {"on": (ValueError, "x")}, {"on": "ValueError"}, {"on": KeyboardInterrupt}, {"on": None},
        {"first": "2m"}, {"first": "5s", "max": "1s"},
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(wrong):
    """Each wrong option is named where it is written."""
    with pytest.raises(BadArguments):
        Retry(**wrong)


def test_the_presets():
    """`Retry.model` is patient, `Retry.tool` is quick; both stop in the end."""
    assert (Retry.model.attempts, Retry.tool.attempts) == (8, 3)
    model = [Retry.model.delay_s(n, ValueError()) for n in range(1, 8)]
    tool = [Retry.tool.delay_s(n, ValueError()) for n in range(1, 3)]
    assert sum(model) > 180
    assert sum(tool) < 1
    assert Retry.model.delay_s(8, ValueError()) is None
    assert Retry.tool.delay_s(3, ValueError()) is None
    assert repr(Retry(5)) == "Retry(5, first=1.0, factor=2, max=60.0)"


@given(st.integers(1, 10_000), st.floats(1, 100), st.floats(0, 1e6), st.floats(0, 1e6), st.text())
def test_a_wait_is_bounded_and_always_the_same(failures, factor, first, longest, seed):
    """Three quarters to all of the smaller of growth and maximum; equal for equal seeds."""
    first, longest = min(first, longest), max(first, longest)
    retry = Retry(10_001, first=first, factor=factor, max=longest)
    wait = retry.delay_s(failures, None, seed)
    assert wait == retry.delay_s(failures, None, seed)
    whole = min(first * factor ** min(failures - 1, 64), longest)
    assert 0.75 * whole <= wait <= whole
