"""Reading: functions on a connection that sees the last commit. They run in reader threads, never in the writer's."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any

import apsw

from holdfast.errors import StoreUnavailable, UnknownRun
from holdfast.model import ApprovalRow, Event, RunRow, Signal
from holdfast.store.queries import QUERIES
from holdfast.store.transaction import to_json

_ALL = (1 << 63) - 1
_PRAGMAS = ("journal_mode", "synchronous", "page_size", "page_count", "freelist_count", "wal_autocheckpoint",
            "foreign_keys", "mmap_size")  # fmt: skip


def rows(db: apsw.Connection, /, query: str, **parameters: Any) -> list[Any]:
    return db.execute(QUERIES[query], parameters).fetchall()


def _list(values: Iterable[str] | None) -> str | None:
    return None if values is None else to_json(list(values))


def run(db: apsw.Connection, run: str) -> RunRow | None:
    found = rows(db, "run", run=run)
    return RunRow(*found[0]) if found else None


def runs(db: apsw.Connection, statuses: Iterable[str] | None, agent: str | None, labels: dict[str, str] | None,
         parent: str | None, root: str | None, limit: int, after: str | None) -> list[RunRow]:  # fmt: skip
    created_at = None
    if after is not None:
        found = rows(db, "created_at", run=after)
        if not found:
            raise UnknownRun(f"run {after!r}, after which the next page begins, is not there any more; begin again")
        created_at = found[0][0]
    narrowed: dict[str, Any] = {} if parent is None and root is None else {"parent": parent, "root": root}
    found = rows(db, "relatives" if narrowed else "runs", statuses=_list(statuses), agent=agent,
                 labels=to_json(labels) if labels else None, limit=limit, after=after, created_at=created_at,
                 **narrowed)  # fmt: skip
    return [RunRow(*row) for row in found]


def _events(found: Iterable[Any]) -> list[Event]:
    loads = json.loads
    return [Event(seq, kind, key, loads(data) if data else {}, value, blob, at, epoch, run, position, dropped)
            for seq, kind, key, data, value, blob, at, epoch, run, position, dropped in found]  # fmt: skip


def journal(db: apsw.Connection, run: str, from_seq: int, limit: int | None, dropped: bool) -> list[Event]:
    return _events(rows(db, "journal", run=run, from_seq=from_seq, limit=_ALL if limit is None else limit,
                        dropped=int(dropped)))  # fmt: skip


def feed(db: apsw.Connection, after: int, kinds: Iterable[str] | None, limit: int) -> list[Event]:
    return _events(rows(db, "feed", after=after, kinds=_list(kinds), limit=limit))


def inbox(db: apsw.Connection, run: str, after: int, limit: int) -> list[Signal]:
    return [Signal(position, kind, topic, value, json.loads(data) if data else {}, sent_at)
            for position, kind, topic, value, data, sent_at in rows(db, "inbox", run=run, after=after, limit=limit)]  # fmt: skip


def blob(db: apsw.Connection, digest: str) -> bytes:
    found = rows(db, "blob", digest=digest)
    if not found:
        raise StoreUnavailable(f"the large value {digest!r} is not in the store; its run was deleted, or the file is damaged")
    content: bytes = found[0][0]
    return content


def approvals(db: apsw.Connection, run: str | None, approval: str | None, statuses: Iterable[str],
              limit: int) -> list[ApprovalRow]:  # fmt: skip
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
    return [{"id": number, "at": at, "run": of, "actor": actor, "action": action, "data": json.loads(data) if data else {}}
            for number, at, of, actor, action, data in rows(db, "audit", run=run, limit=limit)]  # fmt: skip


def facts(db: apsw.Connection, path: str) -> dict[str, Any]:
    """Everything about the file that a person looking for trouble wants to know. Reads all of it."""
    sizes = {}
    for name, suffix in (("file", ""), ("log", "-wal")):
        with contextlib.suppress(OSError):
            sizes[f"{name}_bytes"] = os.stat(path + suffix).st_size
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
