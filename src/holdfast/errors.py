"""Every exception Holdfast raises. A class's docstring is its message when none is given.

`HoldfastError` is the base of what callers may catch. `Suspended` and `LeaseLost` are private `BaseException`s: they
carry control through agent code, and `except Exception` must not be able to eat them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.words.spent import NOTHING, Spent

if TYPE_CHECKING:
    from holdfast.words.budget import Budget

from holdfast.words.salvage import Salvaged
from holdfast.words.salvage import partial as _partial


class _HttpStatus:
    """Looks the status of a class up in the server's table, for callers that ask an error for it."""

    def __get__(self, error: HoldfastError | None, kind: type[HoldfastError]) -> int:
        from holdfast.http.statuses import status_of  # noqa: PLC0415 - of the edge, and seldom asked for

        return status_of(kind)


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    http_status = _HttpStatus()

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class StepFailed(HoldfastError):
    """A step failed. `type` and `message` are those of the exception its body raised last."""

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
        """What the step had written to streams before it failed, by their names."""
        return _partial(self)


class StepTimeout(StepFailed, TimeoutError):
    """A step did not end within its timeout; whether its effect happened is not known."""


class Unanswered(StepFailed):
    """No model gave an answer that can be used. `problems` says what each of them did."""

    def __init__(self, message: str | None = None, *, problems: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.type, self.problems = "Unanswered", problems or {}
        self.exceptions: tuple[Exception, ...] = ()


class BudgetExceeded(HoldfastError):
    """A budget is spent. `run` is the one it belongs to, `limit` what was reached, `spent` all that was spent of it."""

    def __init__(
        self,
        message: str | None = None,
        *,
        spent: Spent = NOTHING,
        run: str = "",
        budget: Budget | None = None,
        limit: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(message)
        self.run, self.budget, self.spent, self.limit = run, budget, spent, dict(limit or {})

    @property
    def data(self) -> dict[str, Any]:
        """As plain data."""
        budget = self.budget and self.budget.published()
        return {"run": self.run, "budget": budget, "spent": self.spent.noted(), "limit": self.limit}


class LoopDetected(HoldfastError):
    """A run goes round in circles, and a person has stopped it. `calls` are those that repeat, `times` how often."""

    def __init__(self, message: str | None = None, *, calls: Sequence[str] = (), times: int = 0) -> None:
        super().__init__(message)
        self.calls, self.times = tuple(calls), times

    @property
    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {"calls": list(self.calls), "times": self.times}


class RunFailed(HoldfastError):
    """The run failed. `type`, `message` and `traceback` are those of the exception its agent raised."""

    def __init__(self, message: str | None = None, *, run: str = "", type: str = "", traceback: str = "") -> None:
        super().__init__(f"run {run!r} failed: {type}: {message}" if run else message)
        self.run, self.type, self.message, self.traceback = run, type, message or "", traceback


class RunCancelled(HoldfastError):
    """The run was cancelled."""


class NondeterminismError(HoldfastError):
    """The agent's code no longer does what its journal says it did; the run is paused and nothing was changed."""


class RunPaused(HoldfastError):
    """The run is paused and will not go on by itself."""


class NotStorable(HoldfastError, TypeError):
    """A value cannot be stored; return plain data, a dataclass or a pydantic type."""

    data: Any = None  # what can be kept of a step's result all the same, as plain data


class UnknownAgent(HoldfastError):
    """No worker ever published an agent of this name."""


class UnknownRun(HoldfastError):
    """There is no run with this id."""


class UnknownApproval(HoldfastError):
    """There is no such question, or the run has not exactly one open."""


class BadArguments(HoldfastError, ValueError):
    """The arguments do not fit."""


class RunExists(HoldfastError):
    """A run with this id exists, with another agent or other arguments."""


class AlreadyDecided(HoldfastError):
    """This question was decided before."""


class Stale(HoldfastError):
    """This is no longer what the person was shown. `approval` is the question now, `shown` its value, `digest` of that."""

    def __init__(self, message: str | None = None, *, digest: str = "", approval: Any = None) -> None:
        super().__init__(message)
        self.digest, self.approval = digest, approval

    @property
    def shown(self) -> Any:
        """What is to be decided now."""
        return None if self.approval is None else self.approval.data


class NotAllowed(HoldfastError):
    """This person may not decide this."""


class Expired(HoldfastError):
    """This question expired before the decision came."""


class RunFinished(HoldfastError):
    """The run has ended, so this can no longer be done to it."""


class RunActive(HoldfastError):
    """The run has not ended, so this cannot be done to it yet."""


class ConversationBusy(HoldfastError):
    """Another run has this conversation."""

    def __init__(self, message: str | None = None, *, conversation: str = "", run: str = "") -> None:
        super().__init__(message)
        self.conversation, self.run = conversation, run  # who has it


class BadBundle(HoldfastError):
    """This is not a run bundle, or it was changed after it was made."""


class NewerJournal(HoldfastError):
    """The store was written by a newer Holdfast; upgrade this one."""


class NotInRun(HoldfastError, RuntimeError):
    """This works only inside a running agent."""


class LeafError(NotInRun):
    """A step's body is a leaf: durable calls belong in the agent."""


class StoreUnavailable(HoldfastError):
    """The store is closed or cannot be reached. `lasting`: to try again does not help, as where it can only be read."""

    def __init__(self, message: str | None = None, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class Unconfirmed(StoreUnavailable):
    """The store did not confirm a write in time: it may have happened, or happen yet. Look before you do it again."""


class Permanent(Exception):
    """Raised by a step's body: this failure is final, do not retry."""


class RetryAfter(Exception):
    """Raised by a step's body: try again, but not before this long."""

    def __init__(self, after: Any, message: str = "") -> None:
        super().__init__(message or f"retry after {after}")
        self.after = after


class InDoubt(Exception):
    """Raised by a step's body: whether the effect happened is not known."""


class Suspended(BaseException):
    """The run is leaving memory; every task of it is unwound and nothing it does now is recorded."""


class LeaseLost(BaseException):
    """Another worker owns this run now; nothing of ours is recorded any more."""
