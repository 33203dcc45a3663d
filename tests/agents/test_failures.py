"""Failing: what an agent catches when a step or a child fails, live and resumed alike, and what result() raises."""

from __future__ import annotations

import asyncio
import enum
import json
import sys

import pytest
from tests.agents.runs import fail, finish

import holdfast
import holdfast.testing
from holdfast import StepFailed, StepTimeout


class Declined(Exception):
    def __init__(self, code: int, *, connection: object = None) -> None:
        super().__init__(f"declined with {code}")
        self.code, self.connection = code, connection


class CardDeclined(Declined):
    pass


class Undeclared(Exception):
    @property
    def data(self) -> dict[str, int]:
        return {"status": 402}


class Colour(enum.Enum):
    RED = 1


class HardStop(BaseException):
    pass


ERRORS = {
    "value": lambda: ValueError("bad", 7),
    "key": lambda: KeyError(("a", 1)),
    "file": lambda: FileNotFoundError(2, "No such file", "a.txt"),
    "timeout": lambda: TimeoutError("the body's own"),
    "connection": lambda: ConnectionResetError(104, "reset"),
    "declined": lambda: Declined(402),
    "card": lambda: CardDeclined(403, connection=sys.stdout),
    "undeclared": lambda: Undeclared("no money"),
    "json": lambda: json.JSONDecodeError("bad", "{", 1),
    "group": lambda: ExceptionGroup("several", [ValueError("a"), Declined(1)]),
    "unstorable": lambda: ValueError(sys.stdout),
    "enum key": lambda: KeyError(Colour.RED),
    "cancelled": lambda: asyncio.CancelledError("inside"),
    "exit": lambda: SystemExit(3),
    "base": lambda: HardStop("x"),
    "stop": lambda: StopIteration("x"),
}


def _made(how: str) -> BaseException:
    return ERRORS[how]()


@holdfast.step(raises=(Declined,))
async def breaks(how: str) -> str:
    raise _made(how)


@holdfast.step(raises=(Declined,))
def breaks_in_thread(how: str) -> str:
    raise _made(how)


def _told(error: Exception) -> dict[str, object]:
    """All that an agent can see of a failure, as storable data."""
    shown = {name: getattr(error, name, None) for name in ("code", "filename", "errno", "type", "message", "attempts")}
    bases = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ != "holdfast.errors"][:-2]
    data = getattr(error, "data", None)
    return {
        "is": type(error).__name__,
        "bases": bases,
        "str": str(error),
        "args": repr(error.args),
        "data": data,
    } | shown


@holdfast.agent
async def catches(how: str, threaded: bool = False) -> list[dict[str, object]]:
    """The failure as it is seen when it happens and, after a park, when it is replayed."""
    try:
        await (breaks_in_thread if threaded else breaks)(how)
    except Exception as error:
        seen = _told(error)
    else:
        raise AssertionError("it did not fail")
    first = await remember(seen)
    await holdfast.sleep("1h")  # leaves memory: what follows is told by a replay
    return [first, seen]


@holdfast.step
async def remember(seen: dict[str, object]) -> dict[str, object]:
    return seen


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("how", [how for how in ERRORS if how != "stop"])
def test_a_failure_is_the_same_live_and_resumed(how, threaded):
    """What the agent catches at first and what it catches in a replay cannot be told apart."""
    live, resumed = finish(catches, how, threaded)
    assert live == resumed


@pytest.mark.parametrize(
    ("how", "kind", "expected"),
    [
        ("value", "ValueError", {"args": "('bad', 7)"}),
        ("key", "KeyError", {"args": "(('a', 1),)"}),
        ("file", "FileNotFoundError", {"filename": "a.txt", "errno": 2}),
        ("timeout", "TimeoutError", {"str": "the body's own"}),
        ("connection", "ConnectionResetError", {"errno": 104}),
        ("declined", "Declined", {"code": 402, "str": "declined with 402"}),
        ("card", "CardDeclined", {"code": 403, "bases": ["CardDeclined", "Declined", "Exception"]}),
        ("unstorable", "ValueError", {}),
        ("enum key", "KeyError", {}),
    ],
)
def test_builtin_and_declared_exceptions_come_back_as_themselves(how, kind, expected):
    """Builtin ones and those of `raises=`, subclasses too, with their attributes as far as those can be stored."""
    seen, _ = finish(catches, how)
    assert seen["is"] == kind
    assert {name: seen[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("how", "type", "message"),
    [
        ("undeclared", "Undeclared", "no money"),
        ("json", "JSONDecodeError", "bad: line 1 column 2 (char 1)"),
        ("group", "ExceptionGroup", "several (2 sub-exceptions)"),
    ],
)
def test_every_other_exception_becomes_step_failed(how, type, message):
    """`StepFailed` has the type, message, attempts and data of what the body raised."""
    seen, _ = finish(catches, how)
    assert (seen["is"], seen["message"], seen["attempts"]) == ("StepFailed", message, 1)
    assert str(seen["type"]).endswith(type)
    assert seen["data"] == ({"status": 402} if how == "undeclared" else None)
    assert seen["str"] == f"step 'breaks' failed at its only attempt: {seen['type']}: {message}"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("cancelled", "cancelled from inside"),
        ("exit", "raised SystemExit: 3"),
        ("base", "raised HardStop: x"),
    ],
)
@pytest.mark.parametrize("threaded", [False, True])
def test_a_body_cannot_take_its_worker_with_it(how, says, threaded):
    """A cancellation, sys.exit() or any BaseException in a body is a failure of the step and of nothing else."""
    seen, _ = finish(catches, how, threaded)
    assert seen["is"] == "RuntimeError"
    assert says in str(seen["str"])


def test_a_stop_iteration_in_a_body_is_a_failure():
    """No future can carry it: it becomes a RuntimeError, as Python does it in a coroutine, in a run and outside."""
    for threaded in (False, True):
        seen, resumed = finish(catches, "stop", threaded)
        assert seen == resumed
        assert seen["is"] == "RuntimeError"
        assert "StopIteration" in str(seen["str"])

    async def outside():
        await breaks_in_thread("stop")

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(outside())


@holdfast.step(timeout=0.01)
async def hangs() -> None:
    await asyncio.Event().wait()


@holdfast.step(timeout=0.01)
async def hangs_and_complains() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise ValueError("while being stopped")


@holdfast.agent
async def waits_in_vain(complains: bool) -> list[str]:
    out = []
    for kind in (StepTimeout, StepFailed, TimeoutError):
        with pytest.raises(kind) as caught:
            await (hangs_and_complains if complains else hangs)()
        out.append(
            f"{type(caught.value).__name__} {caught.value.step} {caught.value.attempts} {caught.value.traceback}"
        )
        await holdfast.sleep(1)
    return out


@pytest.mark.parametrize("complains", [False, True])
def test_a_timeout_is_a_step_failed_and_a_timeout_error(complains):
    """`except TimeoutError` and `except StepFailed` both catch it, whatever the body raised when it was stopped."""
    for line in finish(waits_in_vain, complains):
        assert line.startswith("StepTimeout hangs")
        assert " 1 " in line
        assert "asyncio.Event().wait()" in line or "while being stopped" in line


@holdfast.agent
async def fails_itself(chained: bool) -> None:
    try:
        await breaks("declined")
    except Declined:
        if chained:
            raise
    raise LookupError("nothing there")


def test_a_failed_run_tells_what_its_agent_raised():
    """`result()` raises RunFailed with run, type, message and a traceback of the agent's own lines."""
    failure = fail(fails_itself, False)
    assert (failure.type, failure.message) == ("LookupError", "nothing there")
    assert "raise LookupError" in failure.traceback
    assert "holdfast/engine" not in failure.traceback
    assert str(failure) == f"run '{failure.run}' failed: LookupError: nothing there"
    failure = fail(fails_itself, True)
    assert failure.type.endswith("Declined")
    assert failure.message == "declined with 402"
    assert "raise _made(how)" in failure.traceback  # from the body itself, as the note of the exception


@holdfast.agent
async def returns_nonsense() -> int:
    return "text"  # type: ignore[return-value]


@holdfast.agent
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@holdfast.agent
async def raises_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(breaks("value"))
        group.create_task(breaks("declined"))


def test_other_ends_of_an_agent():
    """A result that does not fit, a cancellation from inside and a group each fail the run and say so."""
    assert "result: returned str 'text' where int is annotated" in fail(returns_nonsense).message
    assert fail(cancels_itself).type.endswith("CancelledError")
    failure = fail(raises_group)
    assert failure.type == "ExceptionGroup"
    assert "ValueError: ('bad', 7)" in failure.traceback


@holdfast.agent
async def parent(spawned: bool) -> dict[str, str]:
    child = await holdfast.spawn(fails_itself, False) if spawned else fails_itself(False)
    with pytest.raises(holdfast.RunFailed) as caught:
        await child
    error = caught.value
    seen = {"run": error.run, "type": error.type, "message": error.message, "traceback": error.traceback}
    first = await remember(dict(seen))
    await holdfast.sleep(1)
    assert first == seen
    return seen


@pytest.mark.parametrize("spawned", [False, True])
async def test_a_failed_child_raises_run_failed_in_its_parent(spawned):
    """With the child's id and the type, message and traceback of what it raised, live and resumed alike."""
    async with holdfast.testing.open(agents=[parent, fails_itself]) as hf:
        seen = await hf.run(parent, spawned, id="p")
        assert (seen["type"], seen["message"]) == ("LookupError", "nothing there")
        assert "raise LookupError" in seen["traceback"]
        info = await hf.get(seen["run"]).info()
        assert (info.status, info.parent, info.error) == ("failed", "p", "LookupError: nothing there")


@holdfast.step
async def unstorable() -> object:
    return {"items": [1, {"conn": object()}]}


@holdfast.agent
async def gets_unstorable() -> str:
    with pytest.raises(StepFailed) as caught:
        await unstorable()
    return f"{caught.value.type}: {caught.value.message}"


def test_a_result_that_cannot_be_stored_fails_the_step_with_its_path():
    """At once, with the place in the result, what is there, and what to return instead."""
    message = finish(gets_unstorable)
    assert "NotStorable: result.items[1].conn: object cannot be stored; return plain data" in message


def test_every_error_has_an_http_status_and_a_message_of_its_own():
    """Each class says by itself what happened, for whoever raises it without words, and has an HTTP status."""
    names = [getattr(holdfast, name) for name in holdfast.__all__]
    errors = [value for value in names if isinstance(value, type) and issubclass(value, Exception)]
    ours = [kind for kind in errors if issubclass(kind, holdfast.HoldfastError)]
    assert len(ours) >= 20
    for kind in ours:
        assert 400 <= kind.http_status < 600
        assert str(kind()) == " ".join((kind.__doc__ or "").partition("\n\n")[0].split()) != ""
    for name in ("Permanent", "RetryAfter", "InDoubt"):
        assert not issubclass(getattr(holdfast, name), holdfast.HoldfastError)
