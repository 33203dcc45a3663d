"""Holdfast makes long-running agents resumable: killed anywhere, they go on from the exact step."""

from holdfast.agent import NOT_DONE, Agent, NotDone, Step, agent, step
from holdfast.client import Client, open  # noqa: A004 - `holdfast.open` is what users write
from holdfast.durations import Duration
from holdfast.errors import (
    AlreadyDecided,
    BadArguments,
    BadBundle,
    Expired,
    HoldfastError,
    InDoubt,
    LeafError,
    NewerJournal,
    NondeterminismError,
    NotAllowed,
    NotInRun,
    NotStorable,
    Permanent,
    RetryAfter,
    RunActive,
    RunCancelled,
    RunExists,
    RunFailed,
    RunFinished,
    RunPaused,
    StepFailed,
    StepTimeout,
    StoreUnavailable,
    UnknownAgent,
    UnknownApproval,
    UnknownRun,
)
from holdfast.logs import LogFilter
from holdfast.resources import Resource, resource
from holdfast.retry import Retry
from holdfast.run import Run, RunEvent, RunInfo
from holdfast.signature import Local
from holdfast.verbs.children import Child, spawn
from holdfast.verbs.facts import idempotency_key, note, now, patched, rng, scope, this_run, this_step, uuid4
from holdfast.verbs.messages import receive, receive_nowait
from holdfast.verbs.state import checkpoint, restore
from holdfast.verbs.waiting import sleep, timeout
from holdfast.worker.worker import Settings

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AlreadyDecided",
    "BadArguments",
    "BadBundle",
    "Child",
    "Client",
    "Duration",
    "Expired",
    "HoldfastError",
    "InDoubt",
    "LeafError",
    "Local",
    "LogFilter",
    "NOT_DONE",
    "NewerJournal",
    "NondeterminismError",
    "NotAllowed",
    "NotDone",
    "NotInRun",
    "NotStorable",
    "Permanent",
    "Resource",
    "Retry",
    "RetryAfter",
    "Run",
    "RunActive",
    "RunCancelled",
    "RunEvent",
    "RunExists",
    "RunFailed",
    "RunFinished",
    "RunInfo",
    "RunPaused",
    "Settings",
    "Step",
    "StepFailed",
    "StepTimeout",
    "StoreUnavailable",
    "UnknownAgent",
    "UnknownApproval",
    "UnknownRun",
    "agent",
    "checkpoint",
    "idempotency_key",
    "note",
    "now",
    "open",
    "patched",
    "receive",
    "receive_nowait",
    "resource",
    "restore",
    "rng",
    "scope",
    "sleep",
    "spawn",
    "step",
    "this_run",
    "this_step",
    "timeout",
    "uuid4",
]
