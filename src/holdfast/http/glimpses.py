"""Glimpses: what a caller that may not read is told of the documents that answer its writes and decisions.

Look here when a document gets a field, or a path that needs no `read` gets a document. Both tables list what is told. All else is
hidden: a field that is not listed is empty, and of a document that is not listed nothing is sent.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from types import NoneType
from typing import Any, Final

from holdfast.client.approvals import Approval
from holdfast.client.control import Bulk, Refusal
from holdfast.client.info import RunInfo
from holdfast.client.notifications import NotificationInfo
from holdfast.client.schedules import ScheduleInfo
from holdfast.client.triggers import DeliveryInfo
from holdfast.errors import (
    BadArguments,
    HoldfastError,
    NotAllowed,
    NotStorable,
    Stale,
    StoreUnavailable,
    Unconfirmed,
    UnknownAgent,
    UnknownApproval,
    UnknownNotification,
    UnknownRun,
    UnknownSchedule,
    UnknownTrigger,
)
from holdfast.http.announcements import Published
from holdfast.http.approvals import OneApproval
from holdfast.http.callers import Me
from holdfast.http.errors import code_of
from holdfast.http.notifications import OneMessage, OneNotification, Tested, Untold
from holdfast.http.runs import Deleted, OneRun, Sent
from holdfast.http.schedules import Begun, Gone, OneSchedule
from holdfast.http.triggers import Dismissed, Forgotten, Replayed

# The fields that are told. A document in a field that is told has a row of its own.
TOLD: Final[Mapping[type, frozenset[str]]] = {
    kind: frozenset(names.split())
    for kind, names in {
        OneRun: "run",
        RunInfo: "id agent status waits_for stopping due_at created_at started_at finished_at updated_at",
        Deleted: "deleted",
        Sent: "run topic position",
        Bulk: "done refused left",
        Refusal: "id code message",  # the message is cut below, as that of an error is
        OneApproval: "approval",
        Approval: "id kind status decision asked_at expires_at decided_at",
        OneSchedule: "schedule",
        ScheduleInfo: "name agent state declared next due_at last_at",
        Begun: "runs",
        Gone: "deleted",
        Published: "id name created before",
        OneNotification: "notification",
        NotificationInfo: "name state last_at",
        OneMessage: "delivery",
        DeliveryInfo: "trigger id status attempts received_at due_at",
        Tested: "message",
        Untold: "deleted",
        Forgotten: "deleted",
        Replayed: "replayed",
        Dismissed: "dismissed",
        Me: "name groups scopes only question shown via version store now ends_at lacks",  # the caller itself
    }.items()
}

# Errors that say nothing of a run but that it is there or not, and else what was wrong with the request.
_OF_THE_CALLER: Final = (
    BadArguments, NotAllowed, NotStorable, StoreUnavailable, Unconfirmed, UnknownApproval, UnknownNotification, UnknownRun,
    UnknownSchedule, UnknownTrigger,
)  # fmt: skip
_CODES: Final = frozenset(map(code_of, (StoreUnavailable, Unconfirmed, UnknownRun)))  # the same, of one run among many
_NO_MORE: Final = "it was refused for how the run or question is; this token may not read, so no more is told"
_NO_FIT: Final = "what was given does not fit the run or question; this token may not read, so no more is told"
_NO_AGENT: Final = (
    "no worker has published an agent of this name in this store so far; this token may not read, so it is not told which there "
    "are. Check the name, or start a worker that has it with `holdfast worker FILE.py`"
)
_EMPTY: Final[tuple[type, ...]] = (str, int, float, bool, tuple, list, dict)


def glimpse(document: Any) -> Any:
    """Leave of a document what a caller that may not read is told: that something is there, its state and its times."""
    kind = type(document)
    if isinstance(document, list | tuple):
        return kind(map(glimpse, document))
    if kind.__module__.partition(".")[0] != "holdfast" or not dataclasses.is_dataclass(kind):
        return document  # a text, a number or a time in a field that is told
    if kind not in TOLD:
        return {}
    if isinstance(document, Refusal) and document.code not in _CODES:
        document = dataclasses.replace(document, message=_NO_MORE)
    told = {name: glimpse(getattr(document, name)) for name in TOLD[kind]}
    return kind(**{name: empty for name, empty in _empties(kind).items() if name not in told}, **told)


@functools.cache
def _empties(kind: type) -> dict[str, Any]:
    """Give each field of a document the value that tells nothing."""
    hints = typing.get_type_hints(kind)
    return {each.name: _empty(each, hints[each.name]) for each in dataclasses.fields(kind)}


def _empty(field: dataclasses.Field[Any], hint: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if hint is Any or NoneType in typing.get_args(hint):
        return None
    kind = typing.get_origin(hint) or hint
    return kind() if kind in _EMPTY else None


def tell_no_more(error: HoldfastError, about: str) -> None:
    """Leave out of an error what only a caller that may read is told.

    A misfit to a run or question says what is in it, a person who may not decide it hears who may, and a start of an
    agent that nobody knows which agents there are.
    """
    if isinstance(error, Stale):
        error.approval = None
    of_one = isinstance(error, BadArguments | NotAllowed) and about in ("run", "question")
    if of_one or not isinstance(error, _OF_THE_CALLER):
        error.details = None
        told = {BadArguments: _NO_FIT, UnknownAgent: _NO_AGENT}
        error.args = (next((text for kind, text in told.items() if isinstance(error, kind)), _NO_MORE),)
