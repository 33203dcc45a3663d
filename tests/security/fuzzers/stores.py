"""The store that is attacked: runs in every state, tokens of every kind, and what its tables have before and afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
from tests.chaos.server import Server
from tests.postgres import NEVER_FLUSH
from tests.security.fuzzers.agents import AGENTS, HOOKS, MARK, OTHERS

import holdfast

SCOPES = {
    "reader": ("read",), "writer": ("write",), "decider": ("decide",), "operator": ("read", "write", "decide"),
    "limited": ("read", "write", "decide"), "session": ("read", "write", "decide"),
}  # fmt: skip
MOVING = {"workers", "audit", "sqlite_sequence", "sessions"}  # tables that are about who was here, and who was refused
# What outlives the runs: what the store is, what its code declares, and what workers and servers delete after a time of its own.
KEPT = {
    "identity", "migrations", "tokens", "agents", "triggers", "schedules_declared", "schedules_seen", "announcements", "archived",
    "conversations", "conversation_messages", "deliveries", "links", "lost_workers", "worker_minutes",
    "positions",
}  # fmt: skip
WAITING = {
    "waits": "listen", "asks": "approved", "asked": "asked", "tells": "tell", "failed": "fail", "held": "listen",
    "talks": "talk",
}  # fmt: skip
RUNS = [*WAITING, "done", "secret", "stopped", "none"]
BAD = "holdfast_0123456789ab_" + "x" * 43


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server of our own."""
    server = Server(folder / "cluster")
    server.create()
    server.start(NEVER_FLUSH)
    try:
        yield f"{server.url}?schema=fuzzed"
    finally:
        server.stop()


async def prepared(url: str) -> dict[str, str]:
    """Fill a store; returns the secrets of tokens by their names, and that of a link."""
    async with holdfast.open(url, agents=[*AGENTS, *HOOKS.values()]) as hf:
        await hf.run("keep", {"value": MARK, "a": [1, 2**70, None]}, id="done", labels={"of": "fuzz"})
        await hf.run("keep", OTHERS, id="secret")
        for id, agent in WAITING.items():
            await hf.start(agent, id=id, labels={"of": "fuzz"})
        await hf.start("approved", "for one", id="linked")
        for id in (*WAITING, "linked"):
            await hf.get(id).wait("failed" if id == "failed" else "waiting", timeout="30s")
        await hf.get("held").pause(reason="for later")
        await hf.start("listen", id="stopped")
        await hf.get("stopped").cancel()
        await hf.schedule("daily", "keep", holdfast.Schedule("0 7 * * *"))
        await hf.notify("https://hooks.invalid/x", ["run.failed"], name="told", secret="env:HOLDFAST_NOTIFY_SECRET_X")
        (asked,) = await hf.approvals(run="linked")
        link = (await hf.approval_link(asked, by="lea")).rpartition("#link=")[2]
        made = {
            name: (await hf.create_token(name, scopes=scopes, only={"of": "fuzz"} if name == "limited" else None))[1]
            for name, scopes in SCOPES.items()
        }
        token, made["revoked"] = await hf.create_token("revoked")
        await hf.revoke_token(token.id)
    return made | {"stranger": BAD, "link": link}


def rows(url: str, *, counted: bool = False) -> dict[str, Any]:
    """A digest of each table, without what moves whenever somebody asks; or how many rows each has."""
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:").partition("?")[0])) as db:
            db.row_factory = sqlite3.Row
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found = {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names if name not in MOVING}
    else:
        found = asyncio.run(_postgres_rows(url))
    return {name: len(each) if counted else _digest(each) for name, each in found.items()}


async def _postgres_rows(url: str) -> dict[str, list[Any]]:
    parts = urlsplit(url)
    schema = parse_qs(parts.query)["schema"][0]
    db = await asyncpg.connect(parts._replace(query="").geturl())
    try:
        found = await db.fetch("SELECT table_name FROM information_schema.tables WHERE table_schema = $1", schema)
        names = [each[0] for each in found if each[0] not in MOVING]
        return {name: await db.fetch(f'SELECT * FROM "{schema}"."{name}"') for name in names}
    finally:
        await db.close()


def _digest(found: list[Any]) -> str:
    lines = sorted(repr([(name, row[name]) for name in row.keys() if name != "used_at"]) for row in found)  # noqa: SIM118 - of rows
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def left(url: str) -> dict[str, int]:
    """End and delete all that there is, as its owner can, while a worker is there; which tables still have rows of it?"""
    asyncio.run(_deleted(url))
    found = rows(url, counted=True)
    found["events"] -= 1  # which says how far there were any
    return {name: count for name, count in found.items() if count > 0 and name not in KEPT}


async def _deleted(url: str) -> None:
    async with holdfast.open(url) as hf, asyncio.timeout(300):
        for schedule in await hf.schedules():
            await hf.get_schedule(schedule.name).delete()
        for notification in await hf.notifications():
            await hf.get_notification(notification.name).delete()
        unfinished = ["ready", "running", "waiting", "paused"]
        while True:
            await hf.prune(0, status=["completed", "failed", "cancelled"])
            if not await hf.runs(limit=1):
                return
            for run in await hf.runs(status=unfinished, limit=1000):
                with contextlib.suppress(holdfast.HoldfastError):  # it has ended meanwhile
                    await hf.get(run.id).cancel(grace="1s")
            await asyncio.sleep(0.2)
