"""HTTP statuses of exceptions, by the names of their classes. Look here when an error is new.

A table by name, because exceptions themselves answer with it (`error.http_status`) and so stand above it.
"""

from __future__ import annotations

import re
from typing import Final

STATUSES: Final[dict[str, int]] = {
    "HoldfastError": 500,
    "AlreadyDecided": 409,
    "BadArguments": 422,
    "BadBundle": 422,
    "BudgetExceeded": 402,
    "Changed": 409,
    "ConversationBusy": 409,
    "Expired": 410,
    "LeafError": 500,
    "LoopDetected": 409,
    "NewerJournal": 409,
    "NondeterminismError": 409,
    "NotAllowed": 403,
    "NotInRun": 500,
    "NotStorable": 422,
    "RunActive": 409,
    "RunCancelled": 409,
    "RunExists": 409,
    "RunFailed": 409,
    "RunFinished": 409,
    "RunPaused": 409,
    "Stale": 409,
    "StepFailed": 502,
    "StepTimeout": 504,
    "StoreUnavailable": 503,
    "Unanswered": 502,
    "Unconfirmed": 504,
    "UnknownAgent": 404,
    "UnknownApproval": 404,
    "UnknownRun": 404,
    "UnknownNotification": 404,
    "UnknownSchedule": 404,
    "UnknownTrigger": 404,
    "Unsupported": 501,
}


def status_of(kind: type) -> int:
    """Find the status of a class; one that is not in the table has that of its nearest base."""
    return next(STATUSES[base.__name__] for base in kind.__mro__ if base.__name__ in STATUSES)


def code_of(name: str) -> str:
    """Write the name of a class as programs read it: `RunExists` is run_exists."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
