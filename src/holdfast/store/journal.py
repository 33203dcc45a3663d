"""Journals as they are read: the events of one run, the last words of some, and the feed of all. Appends write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from holdfast.store.blobs import NAMED_BLOB
from holdfast.store.work import ALL, Asking, Feature, listed, only_of, rows, to_json
from holdfast.words.model import Event


@dataclass(slots=True)
class Line(Event):
    """An event as lists show it: `value` is at most the first 1,000 characters of its value, `size` the bytes of all of it."""

    size: int | None = None


class Sought(TypedDict, total=False):
    """A choice of events, which must fit each of these fields. A field that is None or missing fits any."""

    kinds: Iterable[str] | None
    key: str | None  # of a call
    search: str | None  # is in its kind, key, data, or the beginning of its value


class Journals(Feature):
    """Events, read."""

    async def journal(
        self, run: str, from_seq: int = 0, limit: int | None = None, dropped: bool = False
    ) -> list[Event]:
        """Read the run's events from a seq on, in order; dropped ones only if asked for."""
        return await self._read(journal, run, from_seq, limit, dropped)

    async def outline(self, run: str, from_seq: int, limit: int, dropped: bool = False) -> list[Event]:
        """Read events as `journal` does, without their values."""
        return await self._read(_in_order, "outline", run, from_seq, limit, dropped)

    async def lines(
        self,
        run: str,
        from_seq: int,
        limit: int,
        before: int | None = None,
        dropped: bool = False,
        **sought: Unpack[Sought],
    ) -> list[Line]:
        """Read the first events from a place on that fit, in order; with `before`, the last events that stand before it."""
        return await self._read(_lines, run, from_seq, limit, before, dropped, sought)

    async def lines_at(self, run: str, seqs: Iterable[int]) -> list[Line]:
        """Read the events at these places, with the beginnings of their values; events that a retry took out too."""
        return await self._read(_lines_at, run, sorted(seqs))

    async def outline_of(
        self, run: str, keys: Iterable[str], kinds: Iterable[str] = (), *, from_seq: int = 0, dropped: bool = False
    ) -> list[Event]:
        """Read, without their values, the events of these calls and kinds from a place on. Looks at all events from there on."""
        which = {"keys": to_json(list(keys)), "kinds": to_json(list(kinds)), "from_seq": from_seq}
        return await self._read(_outline, "outline_of", run, **which, with_dropped=int(dropped))

    async def begun_before(
        self, run: str, end: int, keys: Iterable[str], kinds: Iterable[str]
    ) -> set[tuple[str, int | None]]:
        """List which of these calls the run had begun before a place, by events of these kinds; each with its retry."""
        found = await self._read(
            rows, "begun_before", run=run, end=end, keys=to_json(list(keys)), kinds=to_json(list(kinds))
        )
        return {(key, dropped) for key, dropped in found}

    async def worker_at(self, run: str, seq: int, epoch: int) -> str | None:
        """Find the worker that wrote an event, by its place and epoch; None if it did not say."""
        found = await self._read(rows, "worker_at", run=run, seq=seq, epoch=epoch)
        found = found or await self._read(rows, "shared_worker_at", run=run, seq=seq, epoch=epoch)
        said = json.loads(found[0][0]).get("worker") if found else None
        return None if said is None else str(said)

    async def events_at(self, run: str, seqs: Iterable[int]) -> list[Event]:
        """Read the events at these places with their values; events that a retry took out too."""
        return await self._read(_outline, "events_at", run, ids=to_json(sorted(seqs)))

    async def inputs_between(self, run: str, first: int, end: int) -> list[Event]:
        """Read the events of a stretch that have a whole input, without values; also events that a retry took out."""
        return await self._read(_outline, "inputs_between", run, first=first, end=end)

    async def last_of_kind(self, run: str, kind: str, until: int) -> int | None:
        """Find the last event of a kind up to a place; looks at all events of the run."""
        ((seq,),) = await self._read(rows, "last_of_kind", run=run, kind=kind, end=until)
        return None if seq is None else int(seq)

    async def last_request(self, run: str) -> int | None:
        """Find the event of the last request to a model that was answered."""
        found = await self._read(rows, "last_request", run=run)
        return int(found[0][0]) if found else None

    async def progress(self, runs: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """Read how far these runs say they have come: the data of the last 'progress' and of the last 'plan' of each.

        A 'step.progress' among the last hundred events of a run counts as its 'progress' if it is newer.
        """
        said: dict[str, dict[str, dict[str, Any]]] = {}
        for run, kind, data, _ in await self._glance(rows, "progress", ids=to_json(list(runs))):
            said.setdefault(run, {})["plan" if kind == "plan" else "progress"] = json.loads(data)
        return said

    async def feed(self, after: int, kinds: Iterable[str] | None, limit: int = 500) -> list[Event]:
        """Read events of all runs after a position, in the order in which they became visible."""
        return await self._read(feed, after, kinds, limit)

    async def feed_lines(
        self, after: int, kinds: Iterable[str] | None, run: str | None = None, limit: int = 500,
        only: Mapping[str, str] | None = None,
    ) -> list[Line]:  # fmt: skip
        """Read events as `feed` does, of all runs or of one, with the beginnings of their values."""
        return await self._read(_feed_lines, after, kinds, run, limit, only)

    async def feed_page(
        self, after: int, sure: int, kinds: Iterable[str] | None, run: str | None = None,
        only: Mapping[str, str] | None = None,
    ) -> tuple[list[Line], int]:  # fmt: skip
        """Read events as `feed_lines` does, and tell where to go on. If none fits, nothing before `sure` is looked at again."""
        lines = await self.feed_lines(after, kinds, run, only=only)
        return lines, lines[-1].position if lines else max(after, sure - 1)

    async def feed_reach(self) -> tuple[int, int]:
        """Tell before which position `feed` gives all there will ever be, and before which all that is committed now."""
        ((sure, all_now),) = await self._read(rows, "feed_reach")
        return sure, all_now


def _outline(query: str, run: str, **which: Any) -> Asking[list[Event]]:
    return events_of(run, (yield from rows(query, run=run, **which)))


def journal(run: str, from_seq: int, limit: int | None, dropped: bool) -> Asking[list[Event]]:
    """Read a run's events in order."""
    return (yield from _in_order("journal", run, from_seq, ALL if limit is None else limit, dropped))


def _in_order(query: str, run: str, from_seq: int, limit: int, dropped: bool) -> Asking[list[Event]]:
    found = yield from rows(query, run=run, from_seq=from_seq, limit=limit, with_dropped=int(dropped))
    if not found or found[0][0] > from_seq:  # perhaps the run is a fork, and has the first of it from another one
        shared = yield from rows(f"shared_{query}", run=run, from_seq=from_seq, limit=limit, with_dropped=int(dropped))
        found = [*shared, *found][:limit] if shared else found
    return events_of(run, found)


def events_of(run: str, found: list[Any]) -> list[Event]:
    """Make events of rows."""
    return [
        Event(seq, kind, key, data, value, blob, at, epoch, run, position, dropped_by)
        for data, (seq, kind, key, _, value, blob, at, epoch, position, dropped_by) in zip(
            _data(found), found, strict=True
        )
    ]


def feed(after: int, kinds: Iterable[str] | None, limit: int) -> Asking[list[Event]]:
    """Read events of all runs after a position, in the order in which they became visible."""
    found = yield from rows("feed", position=after, kinds=listed(kinds), limit=limit)
    return [
        Event(seq, kind, key, data, value, blob, at, epoch, run, position, dropped)
        for data, (seq, kind, key, _, value, blob, at, epoch, position, dropped, run) in zip(
            _data(found), found, strict=True
        )
    ]


def _lines(
    run: str, from_seq: int, limit: int, before: int | None, dropped: bool, sought: Sought
) -> Asking[list[Line]]:
    """Read lines; what a fork shares with others stands before all that is its own."""
    key, text = sought.get("key"), sought.get("search")
    wanted: dict[str, Any] = {
        "run": run, "from_seq": from_seq, "with_dropped": int(dropped), "kinds": listed(sought.get("kinds")), "key": key,
        "mark": None if key is None else f'"key":{to_json(key)}', "search": None if text is None else text.lower(),
    }  # fmt: skip
    if before is None:
        found = yield from rows("event_lines", limit=limit, **wanted)
        if not found or found[0][0] > from_seq:
            shared = yield from rows("shared_event_lines", limit=limit, **wanted)
            found = [*shared, *found][:limit] if shared else found
    else:
        found = yield from rows("event_lines_before", limit=limit, before=before, **wanted)
        if len(found) < limit:
            shared = yield from rows("shared_event_lines_before", limit=limit - len(found), before=before, **wanted)
            found = [*found, *shared]
        found = found[::-1]
    return (yield from _with_beginnings([(*row, run) for row in found]))


def _lines_at(run: str, seqs: list[int]) -> Asking[list[Line]]:
    found = yield from rows("event_lines_at", run=run, ids=to_json(seqs))
    return (yield from _with_beginnings([(*row, run) for row in found]))


def _feed_lines(
    after: int, kinds: Iterable[str] | None, run: str | None, limit: int, only: Mapping[str, str] | None
) -> Asking[list[Line]]:
    wanted: dict[str, Any] = {"position": after, "kinds": listed(kinds), "limit": limit, "only": only_of(only)}
    if run is None:
        found = yield from rows("feed_lines", **wanted)
    else:
        found = yield from rows("feed_lines_of", run=run, **wanted)
    return (yield from _with_beginnings(found))


def _with_beginnings(found: list[Any]) -> Asking[list[Line]]:
    """Make lines of rows; the beginnings of large values are read with one more query, if there are any."""
    made = [
        Line(seq, kind, key, data, value, blob, at, epoch, run, position, dropped, size)
        for data, (seq, kind, key, _, value, blob, at, epoch, position, dropped, size, run) in zip(
            _data(found), found, strict=True
        )
    ]
    large: dict[str, list[Line]] = {}
    for line in made:
        named = None if line.value is None else NAMED_BLOB.match(line.value, 1)
        digest = line.blob or (named[1] if named is not None else None)
        if digest is not None:
            large.setdefault(digest, []).append(line)
    if large:
        for digest, beginning, size in (yield from rows("blob_heads", ids=to_json(list(large)))):
            for line in large[digest]:
                line.value, line.size = bytes(beginning).decode(errors="replace"), size
    return made


def _data(found: list[Any]) -> list[dict[str, Any]]:
    """Decode the data of these events: parsed as one text, which takes half the time of many small ones."""
    data: list[dict[str, Any]] = json.loads("[" + ",".join([row[3] or "{}" for row in found]) + "]")
    return data
