"""Events: histories of runs and the feed of all, page by page or followed as they grow; and the values that events hold."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field
from starlette.responses import Response

from holdfast.client.edge import Edge
from holdfast.client.history import CheckpointInfo
from holdfast.client.info import RunEvent
from holdfast.client.run import Run
from holdfast.errors import BadArguments
from holdfast.http.follow import Source
from holdfast.http.routes import Call, Input, Nothing
from holdfast.words.model import FINISHED, checked_kinds, checked_run_id, plain_id

Page = Callable[[list[Any], int], Any]  # a page of items, and where to go on
PAGE: Any = Field(100, ge=1, le=1000, description="At most so many.")
_INLINE_BYTES: Final = 1024 * 1024  # of a value that stands beside its event
_KINDS: Any = Field(
    [],
    max_length=100,
    description="Only events of this kind, or of this family ('approval'); may be given several times.",
)
_LARGEST: Final = 2**63 - 1


# What is taken


class Behind(Input):
    """A place to go on from."""

    after: int = Field(
        0, ge=0, le=_LARGEST, description="The `next` of the page before, or the id of the last message seen."
    )
    limit: int = PAGE


class Which(Behind):
    """A choice of events of one run."""

    before: int | None = Field(
        None, ge=0, le=_LARGEST, description="The last `limit` events before this one, in order; not as a stream."
    )
    kinds: list[str] = _KINDS
    key: str | None = Field(None, max_length=10_000, description="Only events of this call.")
    q: str | None = Field(
        None,
        max_length=1_000,
        description="Only events with this text in their kind, key or data, or where their value begins.",
    )
    dropped: bool = Field(False, description="Also events that a retry took out of the history.")


class OfAll(Behind):
    """A choice of events of all runs."""

    after: int = Field(
        0, ge=0, le=_LARGEST, description="The position of the last event seen; `position` of GET /api/runs is the end."
    )
    kinds: list[str] = _KINDS
    run: str | None = Field(None, description="Only events of this run.")


# What is answered


@dataclass(frozen=True, slots=True)
class Events:
    """A page of events."""

    events: list[RunEvent]
    next: int


@dataclass(frozen=True, slots=True)
class OneEvent:
    """An event with its value."""

    event: RunEvent
    value: Any
    cut: bool


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a run."""

    checkpoints: list[CheckpointInfo]


# What is done


async def listed(call: Call[Which, None]) -> Any:
    """Read the history of a run."""
    run, query = call.hf.get(call["id"]), call.query
    which: dict[str, Any] = {
        "kinds": checked_kinds(query.kinds) if query.kinds else None,
        "key": query.key,
        "search": query.q or None,
        "dropped": query.dropped,
    }

    async def read(after: int, follow: bool) -> AsyncGenerator[tuple[int, RunEvent], None]:
        async for event in run.events(after=after, follow=follow, **which):
            yield event.seq + 1, event

    if query.before is not None:
        if _wants_stream(call):
            raise BadArguments("before: what comes as text/event-stream is behind a place, not before one; give after=")
        found = run.events(after=query.after, before=query.before, limit=query.limit, follow=False, **which)
        events = [event async for event in found]
        return Events(events, events[-1].seq + 1 if events else query.after)
    key = (run.id, tuple(query.kinds), query.key, query.q, query.dropped)
    source = Source(("events", *key), read, beside=("open", lambda: Edge(call.hf).open_calls_of(run.id)))
    return await read_or_follow(call, Events, run, source, query.after)


async def of_all(call: Call[OfAll, None]) -> Any:
    """Read the events of all runs."""
    hf, query = call.hf, call.query
    kinds = checked_kinds(query.kinds) if query.kinds else None
    run, edge = None if query.run is None else checked_run_id(query.run), Edge(hf)

    async def read(after: int, follow: bool) -> AsyncGenerator[tuple[int, RunEvent], None]:
        if follow:
            async for event in hf.events(after=after, kinds=kinds, run=run):
                yield event.position, event
        while page := await edge.feed(after, kinds, run):
            for event in page:
                after = event.position
                yield event.position, event

    seen = None if call.caller is None else call.caller.who.only
    whose = None if seen is None else tuple(sorted(seen.items()))  # tails are shared by callers that see the same
    source = Source(("feed", tuple(query.kinds), run, whose), read, edge.feed_alike)
    return await read_or_follow(call, Events, None, source, query.after)


async def shown(call: Call[Nothing, None]) -> OneEvent:
    """Read one event with the value that it holds, unless that is large."""
    run, seq = call.hf.get(call["id"]), _seq(call)
    event = await run.event(seq)
    if (event.size or 0) > _INLINE_BYTES:
        return OneEvent(event, None, cut=True)
    return OneEvent(event, None if event.size is None else await run.value(seq), cut=False)


async def value(call: Call[Nothing, None]) -> Response:
    """Send the value that an event holds as a file, exactly as it is stored: JSON, in the words of `holdfast.values.tagged`."""
    run, seq = call.hf.get(call["id"]), _seq(call)
    await run.event(seq)
    text = await Edge(call.hf).value_text(run.id, seq)
    return attachment("null" if text is None else text, f"{plain_id(run.id)}-{seq}.json")


def attachment(content: str | bytes, name: str) -> Response:
    """Make the response that a browser keeps as a file and never shows. That none guesses its type, the server says of all."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type="application/octet-stream")


async def checkpoints(call: Call[Nothing, None]) -> Checkpoints:
    """List the checkpoints of a run."""
    return Checkpoints(await call.hf.get(call["id"]).checkpoints())


def _seq(call: Call[Any, Any]) -> int:
    return _number(call["seq"], f"events/{call['seq'][:40]}: it is not the number of an event")


# Reading what may grow


async def read_or_follow(call: Call[Any, None], page: Page, run: Run[Any] | None, source: Source, after: int) -> Any:
    """Give a page, or, to a caller that asks for a stream of events, all that come. Without a run it has no end."""
    seen = call.request.headers.get("last-event-id")
    if seen is not None:
        after = _number(
            seen, f"Last-Event-ID: {seen[:40]!r} is not the id of a message; send that of the last one seen"
        )
    status = "" if run is None else (await run.info()).status
    if not _wants_stream(call):
        return await _page(page, source, after, call.query.limit)
    if run is not None:
        seen_all = after > 0 and await _is_over(
            source, after
        )  # also finds a place that is none, before anything is sent
        if seen is not None and seen_all and status in FINISHED:
            return Response(status_code=204)  # a reader that has seen the end is told not to come back
    return call.follow(source, after)


def _wants_stream(call: Call[Any, Any]) -> bool:
    return call.request.method != "HEAD" and "text/event-stream" in call.request.headers.get("accept", "")


async def _is_over(source: Source, after: int) -> bool:
    async for _ in source.read(after, False):
        return False
    return True


def _number(text: str, wrong: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadArguments(wrong)
    return int(text)


async def _page(page: Page, source: Source, after: int, limit: int) -> Any:
    found: list[Any] = []
    async for place, item in source.read(after, False):
        found.append(item)
        after = place
        if len(found) == limit:
            break
    return page(found, after)
