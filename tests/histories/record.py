"""Records histories with the version that is checked out: `python -m tests.histories.record NAME`, for both stores.

NAME is the version, or the day where a version was recorded before: `0.1` has the first scenes, `2026-11-16` is the same 0.1.0
later on, with more scenes and with values as they are stored since. A recording is never made anew and never edited.

A worker carries every scene until nothing goes on any more, and is killed with -9; a second one takes over, comes to the same
places, and is killed too. What the store holds then is the history. The version that recorded it goes on with a copy: how its
runs end, and which bodies ran under which idempotency keys, is what every later version must come to as well.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pydantic_ai
from tests.chaos.server import Server
from tests.histories import agents
from tests.histories.scenes import ALL, SCENES, start

import holdfast
from holdfast.store.postgres.connection import parse_url
from holdfast.store.postgres.dialect import migrations, schema_text

HERE = Path(__file__).parent
QUIET_S = 4.0
PLACES = {  # tracebacks have the folders that code lies in: those of no computer in particular are kept
    str(Path(pydantic_ai.__file__).parents[1]): "/site-packages",
    str(Path(asyncio.__file__).parents[1]): "/python",
    str(HERE.parents[1]): "/app",
}


# --- what a store holds, in a file ---


def keep_sqlite(url: str, file: Path) -> None:
    """The store's file, made whole and compressed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "store.db"
        apsw.Connection(url.partition(":")[2].partition("?")[0]).execute("VACUUM INTO ?", (str(copy),))
        db = apsw.Connection(str(copy))
        columns = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE c.type = 'TEXT'"
        for table, column in db.execute(columns).fetchall():
            for here, anywhere in PLACES.items():
                text = f"UPDATE {table} SET {column} = replace({column}, ?1, ?2) WHERE instr({column}, ?1)"
                db.execute(text, (here, anywhere))
        db.execute("VACUUM")
        db.close()
        file.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))


def bring_back_sqlite(file: Path, url: str) -> None:
    Path(url.partition(":")[2].partition("?")[0]).write_bytes(gzip.decompress(file.read_bytes()))


async def _connected(url: str) -> tuple[Any, str]:
    options = parse_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": f'"{options.schema}"'})
    return connection, options.schema


async def keep_postgres(url: str, file: Path) -> None:
    """Every row of every table, as JSON."""
    connection, schema = await _connected(url)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", schema)
    rows = {
        name: [text for (text,) in await connection.fetch(f'SELECT row_to_json(t)::text FROM "{name}" t')]
        for (name,) in tables
    }
    await connection.close()
    kept = functools.reduce(lambda text, place: text.replace(*place), PLACES.items(), json.dumps(rows))
    file.write_bytes(gzip.compress(kept.encode(), mtime=0))


async def bring_back_postgres(file: Path, url: str) -> None:
    """The tables as they were made then, with their rows."""
    tables = json.loads(gzip.decompress(file.read_bytes()))
    connection, schema = await _connected(url)
    await connection.execute(f'CREATE SCHEMA "{schema}"')
    await connection.execute(
        "CREATE TABLE migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,"
        " applied_at BIGINT NOT NULL)"
    )
    applied = {json.loads(row)["number"] for row in tables["migrations"]}
    for migration in migrations():
        if migration.number in applied:
            await connection.execute(schema_text(migration))
    await connection.execute("DELETE FROM positions")
    await connection.execute("SET session_replication_role = replica")  # in whatever order: rows refer to each other
    for name, rows in tables.items():
        await connection.executemany(
            f'INSERT INTO "{name}" SELECT * FROM json_populate_record(NULL::"{name}", $1::json)',
            [(row,) for row in rows],
        )
    # Tables of the agents' own are beside ours, in the schema of all: two histories may be gone on with at once.
    await connection.execute("SELECT pg_advisory_lock(1)")
    await connection.execute("CREATE TABLE IF NOT EXISTS public.words (word TEXT)")
    await connection.execute("CREATE TABLE IF NOT EXISTS public.late (word TEXT)")
    await connection.execute("SELECT pg_advisory_unlock(1)")
    for name, column in (("audit", "id"), ("announcements", "position")):
        if name in tables:
            await connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{name}', '{column}'), (SELECT max({column}) FROM {name}))"
            )
    await connection.close()


async def bring_back(file: Path, url: str) -> None:
    """Make a store of what was kept of one."""
    if url.startswith("sqlite:"):
        bring_back_sqlite(file, url)
    else:
        await bring_back_postgres(file, url)


# --- going on ---


async def go_on(url: str, patience_s: float = 45) -> dict[str, Any]:
    """Let every run of a recorded store end; returns how they ended, or what keeps them, and which bodies ran."""
    agents.going = True
    agents.ledger.clear()
    until = time.monotonic() + patience_s
    try:
        async with holdfast.open(url, agents=ALL) as hf, asyncio.TaskGroup() as group:
            infos = await hf.runs(limit=1000)
            scenes = [(SCENES[info.id], info.id) for info in infos if info.id in SCENES]
            acts = [group.create_task(scene.go_on(hf, hf.get(id, scene.agent))) for scene, id in scenes if scene.go_on]
            ended = {}
            for info in infos:
                known = [agent for agent in ALL if agent.name == info.agent]  # not those that Holdfast itself starts
                run = hf.get(info.id, known[0]) if known else hf.get(info.id)
                ended[info.id] = await _ended(run, until, retried=info.id == "failed")
            for act in acts:
                act.cancel()
    finally:
        agents.going = False
    return {"runs": dict(sorted(ended.items())), "bodies": sorted(agents.ledger)}


async def _ended(run: holdfast.Run[Any], until: float, *, retried: bool) -> list[str]:
    ends = {"completed", "cancelled"} if retried else {"completed", "failed", "cancelled"}
    try:
        done = await run.wait(*ends, timeout=max(until - time.monotonic(), 0.1))
    except TimeoutError:
        info = await run.info()
        return [info.status, info.reason or f"waits for {info.waits_for}"]
    return [done.status, await _outcome(run)]


async def _outcome(run: holdfast.Run[Any]) -> str:
    try:
        return repr(await run.result())
    except holdfast.HoldfastError as error:
        return f"{type(error).__name__}: {error}"


# --- recording ---


async def _carry(url: str, second: bool) -> None:
    agents.mended = second
    async with holdfast.open(url, agents=ALL):
        await asyncio.Event().wait()


@asynccontextmanager
async def _worker(url: str, second: bool) -> AsyncIterator[None]:
    """A worker in a process of its own, which ends by kill -9."""
    arguments = ["-m", "tests.histories.record", "--carry", url, *(["--second"] if second else [])]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def _quiet(hf: holdfast.Client) -> None:
    """Until nothing was written for some seconds."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        newest = max([event.position async for event in hf.events(follow=False)], default=0)
        if newest != last:
            last, since = newest, time.monotonic()
        await asyncio.sleep(0.3)


async def _record(url: str) -> str:
    """Make a store with every scene in it; returns the secret of a token that is good there for ever."""
    async with holdfast.open(url) as hf:
        _, secret = await hf.create_token("ana", groups=["it"], scopes=["read", "decide"], expires=None)
        revoked, _ = await hf.create_token("bo")
        await hf.revoke_token(revoked.id)
        async with _worker(url, second=False), asyncio.TaskGroup() as group:
            while len(await hf.agents()) < len(ALL):
                await asyncio.sleep(0.1)
            for name, scene in SCENES.items():
                run = await start(hf, name)
                if name == "talk-1":
                    await _until_talking(run)
                if scene.acts is not None:
                    group.create_task(scene.acts(hf, run))
            await asyncio.sleep(5)
            await _quiet(hf)
        async with _worker(url, second=True):
            for name, scene in SCENES.items():
                if scene.again is not None:
                    await scene.again(hf, hf.get(name))
            await asyncio.sleep(5)
            await _quiet(hf)
    return secret


async def _until_talking(run: holdfast.Run[Any]) -> None:
    async for event in run.events():
        if event.kind == "conversation.added":
            return


async def _record_both(name: str) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-histories-")))
        server = Server(folder / "cluster")
        server.create()
        server.start()
        stack.callback(server.stop)
        for kind, url, copy in (
            ("sqlite", f"sqlite:{folder}/store.db", f"sqlite:{folder}/copy.db"),
            ("postgres", f"{server.url}?schema=recorded", f"{server.url}?schema=copied"),
        ):
            file = HERE / name / f"{kind}.{'db' if kind == 'sqlite' else 'json'}.gz"
            file.parent.mkdir(exist_ok=True)
            secret = await _record(url)
            if kind == "sqlite":
                keep_sqlite(url, file)
            else:
                await keep_postgres(url, file)
            await bring_back(file, copy)
            ended = await go_on(copy, patience_s=150) | {"token": secret}
            (HERE / name / f"{kind}.ended.json").write_text(json.dumps(ended, indent=1) + "\n")
            print(kind, len(ended["runs"]), "runs", len(ended["bodies"]), "bodies", file.stat().st_size, "bytes")  # noqa: T201


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[1] == "--carry":
        asyncio.run(_carry(sys.argv[2], "--second" in sys.argv))
    else:
        asyncio.run(_record_both(sys.argv[1]))
