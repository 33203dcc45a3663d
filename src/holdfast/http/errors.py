"""Answers to requests that cannot be served: `{"error": {"code", "message", "hint", "details"}}`.

`details` are for programs, where there are any: the person who decided, which part of a document does not fit.

A decision about what is no longer there has beside it what is: `"approval"`.

The status of one of our exceptions is in `STATUSES`, its code is the name of its class. What only a server can refuse is in
`REFUSALS`. Anything else is a fault of ours: it is logged, and nothing of it is told.

Where the store is, is told to nobody. Messages name it, because in Python their reader has opened it; so does what a driver says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response

from holdfast import errors
from holdfast.client.documents import json_bytes
from holdfast.errors import HoldfastError
from holdfast.values.text import cut
from holdfast.words.harmless import logger
from holdfast.words.statuses import STATUSES
from holdfast.words.statuses import code_of as code

_MOST_SAID: Final = 4_000  # characters: a message names what was sent
_MOST_OF_ONE: Final = 200  # characters of a text among the details
_MOST_PARTS: Final = 100  # of a list among the details
# What a message advises in a terminal.
_COMMAND: Final = re.compile(r"[.;] `holdfast (\w+)[^`]*` (?:has|lists)\b[^`]*\Z")
_log = logger("holdfast.http")

HINTS: Final[dict[type[HoldfastError], str]] = {
    errors.AlreadyDecided: "GET /api/approvals/{id} shows how it stands now.",
    errors.BadArguments: "/openapi.json says what each path takes.",
    errors.BudgetExceeded: "POST /api/runs/{id}/retry with a larger budget lets it go on.",
    errors.Changed: "Look at the list again; then send the number that fit now as `expect`.",
    errors.ConversationBusy: "Try again when the run that has it has left it.",
    errors.Expired: "Nothing is to be done: the run went on with its default.",
    errors.NewerJournal: "Upgrade this server.",
    errors.NondeterminismError: "Bring back the code it ran with or mend it, then POST /api/runs/{id}/resume.",
    errors.NotAllowed: "One of those it is for can decide it, or pass it on.",
    errors.RunActive: "Wait for its end, or POST /api/runs/{id}/cancel.",
    errors.RunExists: "Use another id, or the same agent and arguments to get the run that is there.",
    errors.RunFailed: "Mend the cause, then POST /api/runs/{id}/retry: it goes on from the failure.",
    errors.RunPaused: "POST /api/runs/{id}/resume lets it go on.",
    errors.Stale: "`approval` is what is to be decided now; look at it, then decide with its digest.",
    errors.StoreUnavailable: "Try again in a moment; /readyz says when it is there.",
    errors.Unconfirmed: "Look whether it happened. A start with an id and a message with a key may be repeated.",
    errors.UnknownAgent: "GET /api/agents lists those there are.",
    errors.UnknownApproval: "GET /api/approvals lists those that are open.",
    errors.UnknownRun: "GET /api/runs lists those there are.",
    errors.UnknownNotification: "GET /api/notifications lists those there are.",
    errors.UnknownSchedule: "GET /api/schedules lists those there are.",
    errors.UnknownTrigger: "GET /api/triggers lists those there are.",
}

# The same advice at this door, where that of the class would be another.
INSTEAD: Final = {"steps": "GET /api/runs/{id}/steps lists its calls with their keys."}

# Code -> status and hint.
REFUSALS: Final[dict[str, tuple[int, str]]] = {
    "bad_request": (400, "Send a request of HTTP/1.1 that says once where it ends."),
    "bad_json": (400, "Send one JSON document, as UTF-8."),
    "unauthorized": (401, "Send `Authorization: Bearer TOKEN`; `holdfast token NAME` makes one."),
    "unverified": (
        401,
        "`holdfast triggers NAME` shows how the sender must sign. Compare secrets, those of `holdfast serve` too, and clocks.",
    ),
    "forbidden": (403, "Use a token that may do this; `holdfast token NAME` makes one."),
    "foreign_request": (
        403,
        "Ask 127.0.0.1 or localhost directly, or the address of `holdfast serve --url`. Other pages and computers need a token.",
    ),
    "unknown_conversation": (404, "GET /api/conversations lists those there are."),
    "unknown_path": (404, "/openapi.json lists the paths there are."),
    "wrong_method": (405, "/openapi.json says how each path is asked."),
    "too_slow": (408, "Send it again, or send less."),
    "too_large": (413, "Send less, or put the value somewhere else and send its address."),
    "not_json": (415, "Send `Content-Type: application/json`; with curl: --json '{}'."),
    "too_many_requests": (
        429,
        "Send fewer at a time: wait for answers, and for `Retry-After` before this one is sent again.",
    ),
    "too_many_tries": (429, "Wait a minute, then send a token that is good; `holdfast token NAME` makes one."),
    "internal": (500, "The server's log says more. Nothing is known to be lost; ask again."),
    "cannot_sign": (503, "On the server's computer, `holdfast key new NAME` makes a key that signs bundles."),
    "cannot_verify": (503, "The server's log says what it lacks. Send it again when that is mended."),
    "too_busy": (503, "Try again in a few seconds, or ask another server."),
}


@dataclass
class Refused(Exception):
    """A request that is not served, and why."""

    code: str
    message: str
    headers: Mapping[str, str] | None = None
    about: Mapping[str, str] = field(default_factory=dict)  # what the audit says of the refused caller
    details: Mapping[str, Any] | None = None


def code_of(kind: type[HoldfastError]) -> str:
    """`RunExists` is run_exists."""
    return code(kind.__name__)


def problem(error: Exception, store: str = "") -> tuple[int, dict[str, Any], Mapping[str, str] | None]:
    """Choose the status, the document and the headers that tell of an error; `store` is the address that is not told."""
    if isinstance(error, Refused):
        status, hint = REFUSALS[error.code]
        return status, _document(error.code, error.message, hint, error.details), error.headers
    if isinstance(error, HoldfastError):
        kind, status = type(error), error.http_status
        hint = next((HINTS[each] for each in kind.__mro__ if each in HINTS), "")
        retry = {"Retry-After": "1"} if status == 503 else None
        if getattr(error, "lasting", False):
            hint, retry = "Ask a server that may write; this one can only read.", None
        message = _message(error, store)
        if hint and (command := _COMMAND.search(message)):  # who asks here may have no terminal
            message, hint = message[: command.start()], INSTEAD.get(command[1], hint)
        document = _document(code_of(kind), message, hint, error.details)
        if isinstance(error, errors.Stale) and error.approval is not None:
            document["approval"] = error.approval
        return status, document, retry
    _log.error("a request failed by a fault of the server", exc_info=error)
    return problem(Refused("internal", "something went wrong in the server"))


def answer(error: Exception, store: str = "") -> Response:
    """Make the response that tells of an error; `store` is the address that is not told."""
    status, document, headers = problem(error, store)
    return Response(json_bytes(document), status, headers, "application/json")


def _message(error: HoldfastError, store: str) -> str:
    """Say what an error says, without where the store is; what only the log may say is there."""
    if isinstance(error, errors.StoreUnavailable):
        _log.warning("a request needed the store in vain: %s", error)
        if error.told:
            return error.told
        if isinstance(error, errors.Unconfirmed):
            return "the store did not confirm a write in time: it may have happened, or happen yet"
        return "this server can only read its store" if error.lasting else "the store is closed or cannot be reached"
    return placeless(str(error), store)


def placeless(text: str, store: str) -> str:
    """Leave the address of the store out of a text."""
    return text.replace(repr(store), "the store").replace(store, "the store") if store else text


def _document(code: str, message: str, hint: str, details: Mapping[str, Any] | None) -> dict[str, Any]:
    told = None if details is None else {name: _bounded(value) for name, value in details.items()}
    return {"error": {"code": code, "message": cut(message, _MOST_SAID), "hint": hint, "details": told}}


def _bounded(value: Any) -> Any:
    """Cut what is told beside an error: parts of it are what somebody sent."""
    if isinstance(value, list | tuple):
        return [_bounded(each) for each in value[:_MOST_PARTS]]
    return cut(value, _MOST_OF_ONE) if isinstance(value, str) else value


def codes() -> dict[str, int]:
    """Map every code that an error can have to its status: our exceptions, and what only a server refuses."""
    found = {code(name): status for name, status in STATUSES.items()}
    return found | {code: status for code, (status, _) in REFUSALS.items()}
