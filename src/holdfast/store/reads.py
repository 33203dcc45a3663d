"""Reading: what is asked, and what is made of the rows. Each function is one piece of work that changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import StoreUnavailable, UnknownRun
from holdfast.store import backup
from holdfast.store.contract import Piece
from holdfast.store.transaction import Asking, Rows, listed, to_json
from holdfast.words.model import ApprovalRow, Event, RunRow, Signal

_ALL = (1 << 63) - 1


def rows(query: str, /, **parameters: Any) -> Asking[list[Any]]:
    """The rows of a named query."""
    found: list[Any] = yield Rows(query, parameters)
    return found


def run(run: str) -> Asking[RunRow | None]:
    """One run."""
    found = yield from rows("run", run=run)
    return RunRow(*found[0]) if found else None


@dataclass(frozen=True, slots=True)
class Fits:
    """Which runs: all that fit each of these. `since` and `until` are times of their start; `search` is in any text of theirs."""

    statuses: Iterable[str] | None = None
    agent: str | None = None
    labels: dict[str, str] | None = None
    since: int | None = None
    until: int | None = None
    search: str | None = None

    def parameters(self) -> dict[str, Any]:
        """As the queries take them."""
        return {
            "statuses": listed(self.statuses), "agent": self.agent, "labels": to_json(self.labels) if self.labels else None,
            "since": self.since, "created_at": self.until, "search": None if self.search is None else self.search.lower(),
        }  # fmt: skip


def runs(fits: Fits, parent: str | None, root: str | None, limit: int, after: str | None) -> Asking[list[RunRow]]:
    """Runs that fit, newest first."""
    wanted = fits.parameters()
    if after is not None:
        found = yield from rows("created_at", run=after)
        if not found:
            raise UnknownRun(f"run {after!r}, after which the next page begins, is not there any more; begin again")
        wanted["created_at"] = found[0][0]  # and not later than `until`, as that run itself is
    if parent is None and root is None:
        found = yield from rows("runs", limit=limit, after=after, **wanted)
    else:
        del wanted["since"], wanted["search"]
        found = yield from rows("relatives", limit=limit, after=after, parent=parent, root=root, **wanted)
    return [RunRow(*row) for row in found]


def would_prune(fits: dict[str, Any]) -> Asking[list[Any]]:
    """What pruning would delete."""
    return (yield from rows("would_prune", **fits))


def count_runs(fits: Fits) -> Asking[dict[str, dict[str, int]]]:
    """How many runs fit: of each agent, in each state."""
    counts: dict[str, dict[str, int]] = {}
    for agent, status, count in (yield from rows("counted_runs", **fits.parameters())):
        counts.setdefault(agent, {})[status] = count
    return counts


def journal(run: str, from_seq: int, limit: int | None, dropped: bool) -> Asking[list[Event]]:
    """A run's events in order."""
    found = yield from rows("journal", run=run, from_seq=from_seq, limit=_ALL if limit is None else limit,
                 with_dropped=int(dropped))  # fmt: skip
    return [
        Event(seq, kind, key, data, value, blob, at, epoch, run, position, dropped_by)
        for data, (seq, kind, key, _, value, blob, at, epoch, position, dropped_by) in zip(
            _data(found), found, strict=True
        )
    ]


def feed(after: int, kinds: Iterable[str] | None, limit: int) -> Asking[list[Event]]:
    """The events of all runs in the order of their commits."""
    found = yield from rows("feed", position=after, kinds=listed(kinds), limit=limit)
    return [
        Event(seq, kind, key, data, value, blob, at, epoch, run, position, dropped)
        for data, (seq, kind, key, _, value, blob, at, epoch, position, dropped, run) in zip(
            _data(found), found, strict=True
        )
    ]


def _data(found: list[Any]) -> list[dict[str, Any]]:
    """The decoded data of these events: parsed as one text, which takes half the time of many small ones."""
    data: list[dict[str, Any]] = json.loads("[" + ",".join([row[3] or "{}" for row in found]) + "]")
    return data


def inbox(run: str, after: int, limit: int) -> Asking[list[Signal]]:
    """What came to a run."""
    found = yield from rows("inbox", run=run, position=after, limit=limit)
    return [
        Signal(position, kind, topic, value, json.loads(data) if data else {}, sent_at)
        for position, kind, topic, value, data, sent_at in found
    ]


def queues() -> Asking[frozenset[str] | None]:
    """Which queues workers take; None: all."""
    found = [row[0] for row in (yield from rows("queues"))]
    return None if None in found else frozenset(queue for each in found for queue in json.loads(each))


def blob(digest: str) -> Asking[bytes]:
    """One large value."""
    found = yield from rows("blob", digest=digest)
    if not found:
        raise StoreUnavailable(f"the large value {digest!r} is not in the store; was its run deleted meanwhile?")
    content: bytes = found[0][0]
    return content


def pieces(run: str, stream: str, after: int, limit: int) -> Asking[list[Piece]]:
    """A stream behind a position."""
    found = yield from rows("chunks", run=run, stream=stream, position=after, limit=limit)
    made = [Piece(*row) for _, *row in found]
    for piece, row in zip(made, found, strict=True):
        if row[0]:
            piece.parts.append(row[0].decode("utf-8", "surrogatepass"))
    return made


def streams(run: str) -> Asking[list[Piece]]:
    """Where each stream of a run stands."""
    return [Piece(*row) for row in (yield from rows("streams", run=run))]


def approvals(run: str | None, approval: str | None, statuses: Iterable[str],
              limit: int) -> Asking[list[ApprovalRow]]:  # fmt: skip
    """Questions that fit, in the order asked; those of a run are also those of the runs below it.

    If there are more than the limit: of open ones those that wait longest, otherwise the newest.
    """
    wanted = list(statuses)
    if approval is not None:
        found = yield from rows("approval", approval=approval)
    elif run is None and wanted == ["open"]:
        found = yield from rows("open_approvals", limit=limit)
    else:
        narrowed: dict[str, Any] = {} if run is None else {"run": run}
        query = "approvals" if run is None else "approvals_below"
        found = yield from rows(query, statuses=to_json(wanted), limit=limit, **narrowed)
        found = found[::-1]
    return [asked for asked in (ApprovalRow(*row) for row in found) if asked.status in wanted]


def facts() -> Asking[dict[str, Any]]:
    """What every store can tell to a person looking for trouble."""
    counted = yield from rows("count_runs")
    ((events, signals, blobs, questions, workers),) = yield from rows("count_rows")
    ((schema,),) = yield from rows("newest_migration")
    versions = yield from rows("code_versions")
    (itself,) = yield from rows("identity")
    return {
        "schema": schema,
        "identity": backup.identity(itself),
        "runs": dict(counted),
        "events": events,
        "signals": signals,
        "blobs": blobs,
        "open_approvals": questions,
        "workers": workers,
        "code_versions": dict(versions),
    }
