"""The HTTP status of each exception. It needs none of the libraries of a server, so any caller may ask for one."""

from __future__ import annotations

from typing import Final

from holdfast import errors
from holdfast.errors import HoldfastError

STATUSES: Final[dict[type[HoldfastError], int]] = {
    HoldfastError: 500,
    errors.AlreadyDecided: 409,
    errors.BadArguments: 422,
    errors.BadBundle: 422,
    errors.BudgetExceeded: 402,
    errors.ConversationBusy: 409,
    errors.Expired: 410,
    errors.LeafError: 500,
    errors.LoopDetected: 409,
    errors.NewerJournal: 409,
    errors.NondeterminismError: 409,
    errors.NotAllowed: 403,
    errors.NotInRun: 500,
    errors.NotStorable: 422,
    errors.RunActive: 409,
    errors.RunCancelled: 409,
    errors.RunExists: 409,
    errors.RunFailed: 409,
    errors.RunFinished: 409,
    errors.RunPaused: 409,
    errors.Stale: 409,
    errors.StepFailed: 502,
    errors.StepTimeout: 504,
    errors.StoreUnavailable: 503,
    errors.Unanswered: 502,
    errors.Unconfirmed: 504,
    errors.UnknownAgent: 404,
    errors.UnknownApproval: 404,
    errors.UnknownRun: 404,
}


def status_of(kind: type[HoldfastError]) -> int:
    """Find the status of a class; one that is not in the table has that of its nearest base."""
    return next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)
