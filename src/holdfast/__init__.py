"""Holdfast makes long-running agents resumable: killed anywhere, they go on from the exact step.

Names are imported from their modules when they are first used, so that `import holdfast` and the command line start at
once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.announcements import Published
    from holdfast.client.approvals import Approval, Change
    from holdfast.client.bundles import Bundle, Imported, MoveReceipt
    from holdfast.client.calls import OpenCall
    from holdfast.client.client import Client, open, restore_backup
    from holdfast.client.comparison import ComparedCall, ComparedRow, Comparison, Parting
    from holdfast.client.control import Bulk, Refusal
    from holdfast.client.conversations import ConversationInfo, Message, Transcript
    from holdfast.client.fleet import (
        Fleet,
        LostWorker,
        MinuteInfo,
        MissingVersion,
        QueueInfo,
        RateInfo,
        StoreInfo,
        WorkerInfo,
    )
    from holdfast.client.forks import ForkInfo
    from holdfast.client.history import CheckpointInfo, MessageInfo, Pending, Snapshot, State, StepInfo
    from holdfast.client.info import AgentInfo, Deed, FailureInfo, PlanItem, RunCounts, RunEvent, RunInfo
    from holdfast.client.keys import Key, Keys
    from holdfast.client.needs import Need, Needs
    from holdfast.client.notifications import NotificationHandle, NotificationInfo
    from holdfast.client.outline import CallGroup, CallSample, Outline
    from holdfast.client.present import Doing, Forked
    from holdfast.client.rehearsal import Checked
    from holdfast.client.run import Receipt, Run
    from holdfast.client.schedules import ScheduleHandle, ScheduleInfo
    from holdfast.client.search import Found, FoundQuestion, FoundRun
    from holdfast.client.streams import Chunk, StreamInfo
    from holdfast.client.tokens import Token
    from holdfast.client.triggers import DeliveryInfo, TriggerInfo
    from holdfast.declare import NOT_DONE, Agent, NotDone, Step, agent, step
    from holdfast.errors import (
        AlreadyDecided,
        BadArguments,
        BadBundle,
        BudgetExceeded,
        Changed,
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
        UnknownNotification,
        UnknownRun,
        UnknownSchedule,
        UnknownTrigger,
        Unsupported,
    )
    from holdfast.logs import LogFilter
    from holdfast.rehearsal.difference import Difference, Made, Pair, Side
    from holdfast.rehearsal.frames import Frame
    from holdfast.rehearsal.replay import Replay
    from holdfast.resources import Resource, resource
    from holdfast.values.signature import Local
    from holdfast.verbs.announcements import next_event, publish
    from holdfast.verbs.approvals import Decision, Vote, approve, ask
    from holdfast.verbs.budgets import remaining, spend
    from holdfast.verbs.checkpoints import checkpoint, restore
    from holdfast.verbs.children import Child, spawn
    from holdfast.verbs.conversations import Conversation, conversation
    from holdfast.verbs.messages import receive, receive_nowait
    from holdfast.verbs.models import Fallback, fallback, lively
    from holdfast.verbs.plans import Plan, plan, progress
    from holdfast.verbs.reducers import After, Ask, Command, Do, Done, Outcome, Reducer, Spawn, reducer
    from holdfast.verbs.replay import (
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
        watch_loops,
    )
    from holdfast.verbs.streams import Stream, stream, unfinished
    from holdfast.verbs.timers import sleep, timeout
    from holdfast.verbs.triggers import Trigger, on
    from holdfast.words.announcements import Announcement, Batch, On
    from holdfast.words.budget import Budget, Remaining
    from holdfast.words.durations import Duration
    from holdfast.words.limits import Limit, Rate
    from holdfast.words.loops import Loops
    from holdfast.words.notices import Notice
    from holdfast.words.people import Actor
    from holdfast.words.progress import Progress
    from holdfast.words.retry import Retry
    from holdfast.words.salvage import Reason, Salvaged, partial
    from holdfast.words.schedules import Schedule
    from holdfast.words.spent import Spent
    from holdfast.words.triggers import Decide, Delivery, Send, Start
    from holdfast.words.webhooks import Verify
    from holdfast.worker.settings import Settings

__version__ = "0.2.0"  # here and nowhere else

__all__ = [
    "NOT_DONE",
    "Actor",
    "After",
    "Agent",
    "AgentInfo",
    "AlreadyDecided",
    "Announcement",
    "Approval",
    "Ask",
    "BadArguments",
    "BadBundle",
    "Batch",
    "Budget",
    "BudgetExceeded",
    "Bulk",
    "Bundle",
    "CallGroup",
    "CallSample",
    "Change",
    "Changed",
    "Checked",
    "CheckpointInfo",
    "Child",
    "Chunk",
    "Client",
    "Command",
    "ComparedCall",
    "ComparedRow",
    "Comparison",
    "Conversation",
    "ConversationBusy",
    "ConversationInfo",
    "Decide",
    "Decision",
    "Deed",
    "Delivery",
    "DeliveryInfo",
    "Difference",
    "Do",
    "Doing",
    "Done",
    "Duration",
    "Expired",
    "FailureInfo",
    "Fallback",
    "Fleet",
    "ForkInfo",
    "Forked",
    "Found",
    "FoundQuestion",
    "FoundRun",
    "Frame",
    "HoldfastError",
    "Imported",
    "InDoubt",
    "Key",
    "Keys",
    "LeafError",
    "Limit",
    "Local",
    "LogFilter",
    "LoopDetected",
    "Loops",
    "LostWorker",
    "Made",
    "Message",
    "MessageInfo",
    "MinuteInfo",
    "MissingVersion",
    "MoveReceipt",
    "Need",
    "Needs",
    "NewerJournal",
    "NondeterminismError",
    "NotAllowed",
    "NotDone",
    "NotInRun",
    "NotStorable",
    "Notice",
    "NotificationHandle",
    "NotificationInfo",
    "On",
    "OpenCall",
    "Outcome",
    "Outline",
    "Pair",
    "Parting",
    "Pending",
    "Permanent",
    "Plan",
    "PlanItem",
    "Progress",
    "Published",
    "QueueInfo",
    "Rate",
    "RateInfo",
    "Reason",
    "Receipt",
    "Reducer",
    "Refusal",
    "Remaining",
    "Replay",
    "Resource",
    "Retry",
    "RetryAfter",
    "Run",
    "RunActive",
    "RunCancelled",
    "RunCounts",
    "RunEvent",
    "RunExists",
    "RunFailed",
    "RunFinished",
    "RunInfo",
    "RunPaused",
    "Salvaged",
    "Schedule",
    "ScheduleHandle",
    "ScheduleInfo",
    "Send",
    "Settings",
    "Side",
    "Snapshot",
    "Spawn",
    "Spent",
    "Stale",
    "Start",
    "State",
    "Step",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "StoreInfo",
    "StoreUnavailable",
    "Stream",
    "StreamInfo",
    "Token",
    "Transcript",
    "Trigger",
    "TriggerInfo",
    "Unanswered",
    "Unconfirmed",
    "UnknownAgent",
    "UnknownApproval",
    "UnknownNotification",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownTrigger",
    "Unsupported",
    "Verify",
    "Vote",
    "WorkerInfo",
    "agent",
    "approve",
    "ask",
    "checkpoint",
    "connection",
    "conversation",
    "fallback",
    "idempotency_key",
    "lively",
    "next_event",
    "note",
    "now",
    "on",
    "open",
    "partial",
    "patched",
    "place",
    "plan",
    "progress",
    "publish",
    "receive",
    "receive_nowait",
    "reducer",
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
    "holdfast.words.announcements": "Announcement Batch On",
    "holdfast.verbs.announcements": "next_event publish",
    "holdfast.words.budget": "Budget Remaining",
    "holdfast.client.outline": "CallGroup CallSample Outline",
    "holdfast.client.control": "Bulk Refusal",
    "holdfast.client.search": "Found FoundQuestion FoundRun",
    "holdfast.client.comparison": "ComparedCall ComparedRow Comparison Parting",
    "holdfast.client.client": "Client open restore_backup",
    "holdfast.client.conversations": "ConversationInfo Message Transcript",
    "holdfast.declare": "Agent NOT_DONE NotDone Step agent step",
    "holdfast.words.durations": "Duration",
    "holdfast.errors": (
        "AlreadyDecided BadArguments BadBundle BudgetExceeded ConversationBusy Expired HoldfastError InDoubt LeafError "
        "LoopDetected NewerJournal "
        "NondeterminismError NotAllowed NotInRun NotStorable Permanent RetryAfter RunActive RunCancelled "
        "Changed RunExists RunFailed RunFinished RunPaused Stale StepFailed StepTimeout StoreUnavailable Unanswered Unconfirmed "
        "UnknownAgent "
        "UnknownApproval UnknownNotification UnknownRun UnknownSchedule UnknownTrigger Unsupported "
    ),
    "holdfast.words.limits": "Limit Rate",
    "holdfast.logs": "LogFilter",
    "holdfast.words.loops": "Loops",
    "holdfast.words.people": "Actor",
    "holdfast.words.progress": "Progress",
    "holdfast.client.announcements": "Published",
    "holdfast.client.approvals": "Approval Change",
    "holdfast.client.bundles": "Bundle Imported MoveReceipt",
    "holdfast.client.keys": "Key Keys",
    "holdfast.resources": "Resource resource",
    "holdfast.words.retry": "Retry",
    "holdfast.client.forks": "ForkInfo",
    "holdfast.client.history": "CheckpointInfo MessageInfo Pending Snapshot State StepInfo",
    "holdfast.client.calls": "OpenCall",
    "holdfast.client.info": "AgentInfo Deed FailureInfo PlanItem RunCounts RunEvent RunInfo",
    "holdfast.client.fleet": "Fleet LostWorker MinuteInfo MissingVersion QueueInfo RateInfo StoreInfo WorkerInfo",
    "holdfast.client.needs": "Need Needs",
    "holdfast.client.present": "Doing Forked",
    "holdfast.client.run": "Receipt Run",
    "holdfast.words.salvage": "Reason Salvaged partial",
    "holdfast.values.signature": "Local",
    "holdfast.words.spent": "Spent",
    "holdfast.client.rehearsal": "Checked",
    "holdfast.rehearsal.difference": "Difference Made Pair Side",
    "holdfast.rehearsal.frames": "Frame",
    "holdfast.rehearsal.replay": "Replay",
    "holdfast.words.notices": "Notice",
    "holdfast.client.notifications": "NotificationHandle NotificationInfo",
    "holdfast.client.schedules": "ScheduleHandle ScheduleInfo",
    "holdfast.words.schedules": "Schedule",
    "holdfast.client.streams": "Chunk StreamInfo",
    "holdfast.client.tokens": "Token",
    "holdfast.client.triggers": "DeliveryInfo TriggerInfo",
    "holdfast.verbs.triggers": "Trigger on",
    "holdfast.words.triggers": "Decide Delivery Send Start",
    "holdfast.words.webhooks": "Verify",
    "holdfast.verbs.approvals": "Decision Vote approve ask",
    "holdfast.verbs.children": "Child spawn",
    "holdfast.verbs.conversations": "Conversation conversation",
    "holdfast.verbs.replay": "connection idempotency_key note now patched place rng scope this_run this_step uuid4 watch_loops",
    "holdfast.verbs.models": "Fallback fallback lively",
    "holdfast.verbs.messages": "receive receive_nowait",
    "holdfast.verbs.plans": "Plan plan progress",
    "holdfast.verbs.budgets": "remaining spend",
    "holdfast.verbs.checkpoints": "checkpoint restore",
    "holdfast.verbs.reducers": "After Ask Command Do Done Outcome Reducer Spawn reducer",
    "holdfast.verbs.streams": "Stream stream unfinished",
    "holdfast.verbs.timers": "sleep timeout",
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
