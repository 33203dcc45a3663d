"""Reading: functions on a connection that sees the last commit. They run in reader threads, never in the writer's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from holdfast.errors import StoreUnavailable, UnknownRun
from holdfast.model import ApprovalRow, Event, RunRow, Signal
from holdfast.store.queries import QUERIES
from holdfast.store.transaction import listed, to_json

_ALL = (1 << 63) - 1
_PRAGMAS = ("journal_mode", "synchronous", "page_size", "page_count", "freelist_count", "wal_autocheckpoint",
            "foreign_keys", "mmap_size")  # fmt: skip


def rows(db: apsw.Connection, /, query: str, **parameters: Any) -> list[Any]:
    """The rows of a named query."""
    return db.execute(QUERIES[query], parameters).fetchall()


def run(db: apsw.Connection, run: str) -> RunRow | None:
    """One run."""
    found = rows(db, "run", run=run)
    return RunRow(*found[0]) if found else None


def runs(db: apsw.Connection, statuses: Iterable[str] | None, agent: str | None, labels: dict[str, str] | None,
         parent: str | None, root: str | None, limit: int, after: str | None) -> list[RunRow]:  # fmt: skip
    """Runs that fit, newest first."""
    created_at = None
    if after is not None:
        found = rows(db, "created_at", run=after)
        if not found:
            raise UnknownRun(f"run {after!r}, after which the next page begins, is not there any more; begin again")
        created_at = found[0][0]
    narrowed: dict[str, Any] = {} if parent is None and root is None else {"parent": parent, "root": root}
    found = rows(db, "relatives" if narrowed else "runs", statuses=listed(statuses), agent=agent,
                 labels=to_json(labels) if labels else None, limit=limit, after=after, created_at=created_at,
                 **narrowed)  # fmt: skip
    return [RunRow(*row) for row in found]


def journal(db: apsw.Connection, run: str, from_seq: int, limit: int | None, dropped: bool) -> list[Event]:
    """A run's events in order."""
    found = rows(db, "journal", run=run, from_seq=from_seq, limit=_ALL if limit is None else limit,
                 dropped=int(dropped))  # fmt: skip
    return [
        Event(seq, kind, key, data, value, blob, at, epoch, run, position, dropped_by)
        for data, (seq, kind, key, _, value, blob, at, epoch, position, dropped_by) in zip(
            _data(found), found, strict=True
        )
    ]


def feed(db: apsw.Connection, after: int, kinds: Iterable[str] | None, limit: int) -> list[Event]:
    """The events of all runs in the order of their commits."""
    found = rows(db, "feed", after=after, kinds=listed(kinds), limit=limit)
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


def inbox(db: apsw.Connection, run: str, after: int, limit: int) -> list[Signal]:
    """What came to a run."""
    found = rows(db, "inbox", run=run, after=after, limit=limit)
    return [
        Signal(position, kind, topic, value, json.loads(data) if data else {}, sent_at)
        for position, kind, topic, value, data, sent_at in found
    ]


def blob(db: apsw.Connection, digest: str) -> bytes:
    """One large value."""
    found = rows(db, "blob", digest=digest)
    if not found:
        raise StoreUnavailable(f"the large value {digest!r} is not in the store; was its run deleted meanwhile?")
    content: bytes = found[0][0]
    return content


def approvals(db: apsw.Connection, run: str | None, approval: str | None, statuses: Iterable[str],
              limit: int) -> list[ApprovalRow]:  # fmt: skip
    """Questions that fit, in the order asked."""
    wanted = list(statuses)
    if approval is not None:
        found = rows(db, "approval", approval=approval)
    elif wanted == ["open"]:
        found = rows(db, "open_approvals", run=run, limit=limit)
    else:
        found = rows(db, "approvals", statuses=to_json(wanted), run=run, limit=limit)
    return [asked for asked in (ApprovalRow(*row) for row in found)
            if asked.status in wanted and run in (None, asked.run_id)]  # fmt: skip


def audit(db: apsw.Connection, run: str | None, limit: int) -> list[dict[str, Any]]:
    """What people did, newest first."""
    names = ("id", "at", "run", "actor", "action")
    found = rows(db, "audit", run=run, limit=limit)
    return [dict(zip(names, row[:5], strict=True)) | {"data": json.loads(row[5]) if row[5] else {}} for row in found]


def facts(db: apsw.Connection, path: str) -> dict[str, Any]:
    """Everything about the file that a person looking for trouble wants to know. Reads all of it."""
    sizes = {}
    for name, suffix in (("file", ""), ("log", "-wal")):
        with contextlib.suppress(OSError):
            sizes[f"{name}_bytes"] = Path(path + suffix).stat().st_size
    events, signals, blobs, questions, workers = rows(db, "count_rows")[0]
    return {
        "store": "sqlite",
        "path": path,
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "schema": db.execute("SELECT max(number) FROM migrations").get,
        **sizes,
        "pragmas": {name: db.pragma(name) for name in _PRAGMAS},
        "runs": dict(rows(db, "count_runs")),
        "events": events,
        "signals": signals,
        "blobs": blobs,
        "open_approvals": questions,
        "workers": workers,
        "integrity": db.pragma("integrity_check"),
    }
