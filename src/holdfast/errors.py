"""Every exception Holdfast raises. The first paragraph of a class's docstring is its message when none is given.

`HoldfastError` is the base of what callers may catch. `Suspended` and `LeaseLost` are private `BaseException`s: they
carry control through agent code, and `except Exception` must not be able to eat them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.words.salvage import Salvaged
from holdfast.words.salvage import partial as _partial
from holdfast.words.spent import NOTHING, Spent
from holdfast.words.statuses import status_of


class _Budget(Protocol):
    """A `Budget`, whose module imports this one."""

    @property
    def tokens(self) -> int | None: ...
    @property
    def usd(self) -> float | None: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def model_calls(self) -> int | None: ...
    def limits(self) -> dict[str, float]: ...
    def published(self) -> dict[str, Any]: ...


class _HttpStatus:
    """Looks the status of a class up in the table of them, for callers that ask an error for it."""

    def __get__(self, error: HoldfastError | None, kind: type[HoldfastError]) -> int:
        return status_of(kind)


class HoldfastError(Exception):
    """Something went wrong in Holdfast.

    The base of what callers may catch.

    Example:
        ```python
        try:
            await hf.get("nobody").info()
        except holdfast.HoldfastError as error:
            print(error)
        ```
    """

    http_status = _HttpStatus()
    details: Mapping[str, Any] | None = None  # what programs read where people read the message

    def __init__(self, message: str | None = None, *, details: Mapping[str, Any] | None = None) -> None:
        if details is not None:
            self.details = details
        super().__init__(message or " ".join((type(self).__doc__ or "").partition("\n\n")[0].split()))


class StepFailed(HoldfastError):
    """A step failed. `type` and `message` are those of the exception its body raised last.

    `attempts` counts its attempts, `data` is the plain data of a result that could not be stored, and `traceback` is that
    of the body.

    Example:
        ```python
        try:
            await flaky()
        except holdfast.StepFailed as failed:
            print(failed.type, failed.attempts)
        ```
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        step: str = "",
        type: str = "",
        attempts: int = 1,
        data: Any = None,
        traceback: str = "",
    ) -> None:
        tries = f"after {attempts} attempts" if attempts > 1 else "at its only attempt"
        super().__init__(f"step {step!r} failed {tries}: {type}: {message}" if step else message)
        self.step, self.type, self.message = step, type, message or ""
        self.attempts, self.data, self.traceback = attempts, data, traceback

    @property
    def partial(self) -> dict[str, Salvaged]:
        """Tell what the step had written to streams before it failed, by their names."""
        return _partial(self)


class StepTimeout(StepFailed, TimeoutError):
    """A step did not end within its timeout; whether its effect happened is not known.

    It is a `StepFailed` and a `TimeoutError`.

    Example:
        ```python
        try:
            await slow()
        except TimeoutError:
            print("it took too long")
        ```
    """


class Unanswered(StepFailed):
    """No model gave an answer that can be used. `problems` says what each of them did.

    Example:
        ```python
        try:
            await holdfast.fallback(ask, ["large", "small"], check=int)("How many otters?")
        except holdfast.Unanswered as error:
            print(error.problems["large"])
        ```
    """

    def __init__(self, message: str | None = None, *, problems: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.type, self.problems = "Unanswered", problems or {}
        self.exceptions: tuple[Exception, ...] = ()


class BudgetExceeded(HoldfastError):
    """A budget is spent. `run` is the one it belongs to, `limit` what was reached, `spent` all that was spent of it.

    It is raised in the agent, before the body of a step would begin.

    Example:
        ```python
        @holdfast.agent(budget=holdfast.Budget(steps=1, at_limit="fail"))
        async def frugal() -> str:
            try:
                await search("otters")
                await search("urchins")
            except holdfast.BudgetExceeded as error:
                return f"stopped after {error.spent.steps} step"
            return "done"
        ```
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        spent: Spent = NOTHING,
        run: str = "",
        budget: _Budget | None = None,
        limit: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(message)
        self.run, self.budget, self.spent, self.limit = run, budget, spent, dict(limit or {})

    @property
    def data(self) -> dict[str, Any]:
        """Give what it says as plain data."""
        budget = self.budget and self.budget.published()
        return {"run": self.run, "budget": budget, "spent": self.spent.noted(), "limit": self.limit}


class LoopDetected(HoldfastError):
    """A run goes round in circles, and a person has stopped it. `calls` are those that repeat, `times` how often.

    Example:
        ```python
        try:
            found = await search("otters")
        except holdfast.LoopDetected as error:
            found = [f"gave up after {error.times} rounds"]
        ```
    """

    def __init__(self, message: str | None = None, *, calls: Sequence[str] = (), times: int = 0) -> None:
        super().__init__(message)
        self.calls, self.times = tuple(calls), times

    @property
    def data(self) -> dict[str, Any]:
        """Give what it says as plain data."""
        return {"calls": list(self.calls), "times": self.times}


class RunFailed(HoldfastError):
    """The run failed. `type`, `message` and `traceback` are those of the exception its agent raised.

    Example:
        ```python
        try:
            await hf.run(broken)
        except holdfast.RunFailed as failed:
            assert (failed.type, failed.message) == ("ValueError", "no such card")
        ```
    """

    def __init__(self, message: str | None = None, *, run: str = "", type: str = "", traceback: str = "") -> None:
        super().__init__(f"run {run!r} failed: {type}: {message}" if run else message)
        self.run, self.type, self.message, self.traceback = run, type, message or "", traceback


class RunCancelled(HoldfastError):
    """The run was cancelled.

    Example:
        ```python
        await run.cancel(by="ben", reason="too late")
        try:
            await run.result()
        except holdfast.RunCancelled as error:
            print(error)
        ```
    """


class NondeterminismError(HoldfastError):
    """The agent's code no longer does what its journal says it did; the run is paused and nothing was changed.

    Example:
        ```python
        async def tell(run: holdfast.Run[str]) -> str:
            try:
                return await run.result()
            except holdfast.NondeterminismError as error:
                return f"bring the old code back, or guard the change with patched(): {error}"
        ```
    """


class RunPaused(HoldfastError):
    """The run is paused and will not go on by itself.

    Example:
        ```python
        await run.pause(by="ana")
        try:
            await run.result()
        except holdfast.RunPaused:
            await run.resume(by="ana")
        ```
    """


class NotStorable(HoldfastError, TypeError):
    """A value cannot be stored; return plain data, a dataclass or a pydantic type.

    `data` is what can be kept of a step's result all the same, as plain data.

    Example:
        ```python
        try:
            await run.send("orders", object())
        except holdfast.NotStorable as error:
            print(error)
        ```
    """

    data: Any = None  # what can be kept of a step's result all the same, as plain data


class UnknownAgent(HoldfastError):
    """No worker ever published an agent of this name.

    Example:
        ```python
        try:
            await hf.start("nothing")
        except holdfast.UnknownAgent as error:
            print(error)
        ```
    """


class UnknownNotification(HoldfastError):
    """There is no notification with this name.

    Example:
        ```python
        try:
            await hf.get_notification("nobody").info()
        except holdfast.UnknownNotification:
            print("not made yet")
        ```
    """


class UnknownSchedule(HoldfastError):
    """There is no schedule with this name.

    Example:
        ```python
        try:
            await hf.get_schedule("nobody").info()
        except holdfast.UnknownSchedule:
            print("not made yet")
        ```
    """


class UnknownTrigger(HoldfastError):
    """There is no trigger with this name, or no delivery of it with this id.

    Example:
        ```python
        try:
            await hf.delivery("github", "72d3162e")
        except holdfast.UnknownTrigger:
            print("never came")
        ```
    """


class UnknownRun(HoldfastError):
    """There is no run with this id.

    Example:
        ```python
        try:
            await hf.get("nobody").info()
        except holdfast.UnknownRun:
            print("not started yet")
        ```
    """


class UnknownApproval(HoldfastError):
    """There is no such question, or the run has not exactly one open.

    Example:
        ```python
        try:
            await hf.approve("nobody", by="ana")
        except holdfast.UnknownApproval as error:
            print(error)
        ```
    """


class BadArguments(HoldfastError, ValueError):
    """The arguments do not fit.

    It is a `ValueError` too.

    Example:
        ```python
        try:
            await hf.start(research, "otters", id="no spaces, please")
        except holdfast.BadArguments as error:
            print(error)
        ```
    """


class RunExists(HoldfastError):
    """A run with this id exists, with another agent or other arguments, or a fork that was made otherwise.

    Example:
        ```python
        await hf.start(research, "otters", id="a")
        try:
            await hf.start(research, "urchins", id="a")
        except holdfast.RunExists as error:
            print(error)
        ```
    """


class Changed(HoldfastError):
    """More runs fit by now than was expected. Nothing was done.

    Example:
        ```python
        try:
            await hf.bulk("cancel", agent="report", expect=0)
        except holdfast.Changed as error:
            print(error)
        ```
    """


class AlreadyDecided(HoldfastError):
    """This question was decided before.

    The text says who decided what and when.

    Example:
        ```python
        await hf.approve(question, by="ana")
        try:
            await hf.deny(question, by="bob")
        except holdfast.AlreadyDecided as error:
            print(error)
        ```
    """


class Stale(HoldfastError):
    """This is no longer what the person was shown. `approval` is the question now, `shown` its value, `digest` of that.

    Nothing was decided.

    Example:
        ```python
        try:
            await hf.approve("r-1", by="ana", digest="of what was shown before")
        except holdfast.Stale as error:
            await hf.approve(error.approval, by="ana")
        ```
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        digest: str = "",
        approval: Any = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, details=details)
        self.digest, self.approval = digest, approval

    @property
    def shown(self) -> Any:
        """Give the value that is to be decided now."""
        return None if self.approval is None else self.approval.data


class NotAllowed(HoldfastError):
    """This person may not decide this; or this caller may not name that variable of the workers.

    Example:
        ```python
        asked = await hf.start(desk)
        try:
            await hf.answer(await asked.wait_for_question(), "anywhere", by="eve")
        except holdfast.NotAllowed as error:
            print(error)
        ```
    """


class Expired(HoldfastError):
    """This question expired before the decision came.

    Example:
        ```python
        try:
            seat = await holdfast.ask("Where to sit?", str, to="nobody", expires="1 day")
        except holdfast.Expired:
            seat = "anywhere"
        ```
    """


class RunFinished(HoldfastError):
    """The run has ended, so this can no longer be done to it.

    Example:
        ```python
        done = await hf.start(research, "otters")
        await done.wait()
        try:
            await done.send("orders", "come back")
        except holdfast.RunFinished as error:
            print(error)
        ```
    """


class RunActive(HoldfastError):
    """The run has not ended, so this cannot be done to it yet.

    Example:
        ```python
        try:
            await run.delete()
        except holdfast.RunActive:
            await run.cancel()
        ```
    """


class ConversationBusy(HoldfastError):
    """Another run has this conversation.

    `run` is the one that has it.

    Example:
        ```python
        try:
            async with holdfast.conversation("user-42", str, busy="refuse") as talk:
                await talk.add("hello")
        except holdfast.ConversationBusy as error:
            print(error.run)
        ```
    """

    def __init__(self, message: str | None = None, *, conversation: str = "", run: str = "") -> None:
        super().__init__(message)
        self.conversation, self.run = conversation, run  # who has it


class BadBundle(HoldfastError):
    """This is not a run bundle, or it was changed after it was made.

    The text says what is wrong. Nothing was imported.

    Example:
        ```python
        holdfast.Keys("keys").new("ana")
        await run.export("r-1.bundle", keys="keys")
        try:
            await hf.import_run("r-1.bundle", keys="others")  # where nobody trusts the key
        except holdfast.BadBundle as error:
            print(error)
        ```
    """


class NewerJournal(HoldfastError):
    """The store was written by a newer Holdfast; upgrade this one.

    Example:
        ```python
        async def look(url: str) -> list[str]:
            try:
                async with holdfast.open(url) as hf:
                    return [info.id for info in await hf.runs()]
            except holdfast.NewerJournal:
                return ["upgrade Holdfast here first"]
        ```
    """


class Unsupported(HoldfastError):
    """The ground that runs stand on does not have this: a Temporal cluster lacks what only a database of ours has.

    Example:
        ```python
        try:
            await hf.events().__anext__()
        except holdfast.Unsupported as error:
            print(error)
        ```
    """


class NotInRun(HoldfastError, RuntimeError):
    """This works only inside a running agent.

    Example:
        ```python
        try:
            holdfast.now()
        except holdfast.NotInRun as error:
            print(error)
        ```
    """


class LeafError(NotInRun):
    """A step's body is a leaf: durable calls belong in the agent.

    Example:
        ```python
        try:
            await holdfast.sleep("1s")
        except holdfast.LeafError as error:
            print(error)
        ```
    """


class StoreUnavailable(HoldfastError):
    """The store is closed or cannot be reached. `lasting`: to try again does not help, as where it can only be read.

    Nothing was done, and nothing will be. `told` is the message without where the store is, if it has one that says so.

    Example:
        ```python
        try:
            with hf.deadline("5s"):
                await hf.start(research, "otters", id="otters")
        except holdfast.StoreUnavailable:
            print("not started, and will not be")
        ```
    """

    def __init__(self, message: str | None = None, *, lasting: bool = False, told: str = "") -> None:
        super().__init__(message)
        self.lasting, self.told = lasting, told


class Unconfirmed(StoreUnavailable):
    """The store did not confirm a write in time: it may have happened, or happen yet. Look before you do it again.

    Example:
        ```python
        try:
            await hf.start(research, "otters", id="otters")
        except holdfast.Unconfirmed:
            await hf.start(research, "otters", id="otters")  # the same id is the same run
        ```
    """


class Permanent(Exception):
    """Raised by a step's body: this failure is final, do not retry.

    Example:
        ```python
        @holdfast.step(retry=5)
        async def charge(card: str) -> str:
            if not card:
                raise holdfast.Permanent("no such card")
            return "charged"
        ```
    """


class RetryAfter(Exception):
    """Raised by a step's body: try again, but not before this long.

    Example:
        ```python
        @holdfast.step(retry=5)
        async def fetch(url: str) -> str:
            if holdfast.this_step().attempt == 1:
                raise holdfast.RetryAfter("30s")
            return f"page {url}"
        ```
    """

    def __init__(self, after: Any, message: str = "") -> None:
        super().__init__(message or f"retry after {after}")
        self.after = after


class InDoubt(Exception):
    """Raised by a step's body: whether the effect happened is not known.

    `in_doubt=` of the step decides, as after a crash.

    Example:
        ```python
        @holdfast.step(in_doubt="ask")
        async def wire(amount: int) -> str:
            try:
                return f"wired {amount}"
            except ConnectionResetError as error:
                raise holdfast.InDoubt from error
        ```
    """


class Suspended(BaseException):
    """The run is leaving memory; every task of it is unwound and nothing it does now is recorded."""


class LeaseLost(BaseException):
    """Another worker owns this run now; nothing of ours is recorded any more."""
