"""Holdfast makes long-running agents resumable: killed anywhere, they go on from the exact step.

Names are imported from their modules when they are first used, so that `import holdfast` and the command line start at
once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.budget import Budget, Remaining
    from holdfast.client import Client, open, restore_backup
    from holdfast.conversations import ConversationInfo, Message, Transcript
    from holdfast.declaring import NOT_DONE, Agent, NotDone, Step, agent, step
    from holdfast.durations import Duration
    from holdfast.errors import (
        AlreadyDecided,
        BadArguments,
        BadBundle,
        BudgetExceeded,
        ConversationBusy,
        Expired,
        HoldfastError,
        InDoubt,
        LeafError,
        LoopDetected,
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
        Stale,
        StepFailed,
        StepTimeout,
        StoreUnavailable,
        Unanswered,
        Unconfirmed,
        UnknownAgent,
        UnknownApproval,
        UnknownRun,
    )
    from holdfast.flow import Limit, Rate
    from holdfast.logs import LogFilter
    from holdfast.loops import Loops
    from holdfast.people import Actor
    from holdfast.questions import Approval
    from holdfast.resources import Resource, resource
    from holdfast.retry import Retry
    from holdfast.run import AgentInfo, Deed, Progress, Receipt, Run, RunEvent, RunInfo
    from holdfast.salvage import Reason, Salvaged, partial
    from holdfast.signature import Local
    from holdfast.spent import Spent
    from holdfast.streams import Chunk, StreamInfo
    from holdfast.tokens import Token
    from holdfast.verbs.asking import Decision, Vote, approve, ask
    from holdfast.verbs.children import Child, spawn
    from holdfast.verbs.conversations import Conversation, conversation
    from holdfast.verbs.facts import (
        connection,
        idempotency_key,
        note,
        now,
        patched,
        place,
        rng,
        scope,
        this_run,
        this_step,
        uuid4,
    )
    from holdfast.verbs.fallback import Fallback, fallback
    from holdfast.verbs.lively import lively
    from holdfast.verbs.looping import watch_loops
    from holdfast.verbs.messages import receive, receive_nowait
    from holdfast.verbs.progress import Plan, plan, progress
    from holdfast.verbs.spending import remaining, spend
    from holdfast.verbs.state import checkpoint, restore
    from holdfast.verbs.streams import Stream, stream, unfinished
    from holdfast.verbs.waiting import sleep, timeout
    from holdfast.worker.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "NOT_DONE",
    "Actor",
    "Agent",
    "AgentInfo",
    "AlreadyDecided",
    "Approval",
    "BadArguments",
    "BadBundle",
    "Budget",
    "BudgetExceeded",
    "Child",
    "Chunk",
    "Client",
    "Conversation",
    "ConversationBusy",
    "ConversationInfo",
    "Decision",
    "Deed",
    "Duration",
    "Expired",
    "Fallback",
    "HoldfastError",
    "InDoubt",
    "LeafError",
    "Limit",
    "Local",
    "LogFilter",
    "LoopDetected",
    "Loops",
    "Message",
    "NewerJournal",
    "NondeterminismError",
    "NotAllowed",
    "NotDone",
    "NotInRun",
    "NotStorable",
    "Permanent",
    "Plan",
    "Progress",
    "Rate",
    "Reason",
    "Receipt",
    "Remaining",
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
    "Salvaged",
    "Settings",
    "Spent",
    "Stale",
    "Step",
    "StepFailed",
    "StepTimeout",
    "StoreUnavailable",
    "Stream",
    "StreamInfo",
    "Token",
    "Transcript",
    "Unanswered",
    "Unconfirmed",
    "UnknownAgent",
    "UnknownApproval",
    "UnknownRun",
    "Vote",
    "agent",
    "approve",
    "ask",
    "checkpoint",
    "connection",
    "conversation",
    "fallback",
    "idempotency_key",
    "lively",
    "note",
    "now",
    "open",
    "partial",
    "patched",
    "place",
    "plan",
    "progress",
    "receive",
    "receive_nowait",
    "remaining",
    "resource",
    "restore",
    "restore_backup",
    "rng",
    "scope",
    "sleep",
    "spawn",
    "spend",
    "step",
    "stream",
    "this_run",
    "this_step",
    "timeout",
    "unfinished",
    "uuid4",
    "watch_loops",
]

_HOMES = {
    "holdfast.budget": "Budget Remaining",
    "holdfast.client": "Client open restore_backup",
    "holdfast.conversations": "ConversationInfo Message Transcript",
    "holdfast.declaring": "Agent NOT_DONE NotDone Step agent step",
    "holdfast.durations": "Duration",
    "holdfast.errors": (
        "AlreadyDecided BadArguments BadBundle BudgetExceeded ConversationBusy Expired HoldfastError InDoubt LeafError "
        "LoopDetected NewerJournal "
        "NondeterminismError NotAllowed NotInRun NotStorable Permanent RetryAfter RunActive RunCancelled "
        "RunExists RunFailed RunFinished RunPaused Stale StepFailed StepTimeout StoreUnavailable Unanswered Unconfirmed "
        "UnknownAgent "
        "UnknownApproval UnknownRun "
    ),
    "holdfast.flow": "Limit Rate",
    "holdfast.logs": "LogFilter",
    "holdfast.loops": "Loops",
    "holdfast.people": "Actor",
    "holdfast.questions": "Approval",
    "holdfast.resources": "Resource resource",
    "holdfast.retry": "Retry",
    "holdfast.run": "AgentInfo Deed Progress Receipt Run RunEvent RunInfo",
    "holdfast.salvage": "Reason Salvaged partial",
    "holdfast.signature": "Local",
    "holdfast.spent": "Spent",
    "holdfast.streams": "Chunk StreamInfo",
    "holdfast.tokens": "Token",
    "holdfast.verbs.asking": "Decision Vote approve ask",
    "holdfast.verbs.children": "Child spawn",
    "holdfast.verbs.conversations": "Conversation conversation",
    "holdfast.verbs.facts": "connection idempotency_key note now patched place rng scope this_run this_step uuid4",
    "holdfast.verbs.fallback": "Fallback fallback",
    "holdfast.verbs.lively": "lively",
    "holdfast.verbs.looping": "watch_loops",
    "holdfast.verbs.messages": "receive receive_nowait",
    "holdfast.verbs.progress": "Plan plan progress",
    "holdfast.verbs.spending": "remaining spend",
    "holdfast.verbs.state": "checkpoint restore",
    "holdfast.verbs.streams": "Stream stream unfinished",
    "holdfast.verbs.waiting": "sleep timeout",
    "holdfast.worker.settings": "Settings",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("testing", "sync"):
        return import_module(f"holdfast.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
