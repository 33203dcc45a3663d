"""Processes that run transactional steps, and die between any two statements."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import apsw
import asyncpg

import holdfast
from holdfast.store.postgres import connection

place = Path()  # of this process; set anew in every child
parent = None


class Fate:
    """Counts the statements of transactions in this process, and dies at one of them."""

    def __init__(self, at=None):
        self.at, self.statements = at, 0

    def watch(self, db):
        """Statements from here on are counted: those of the body, those of our append, and COMMIT."""
        if isinstance(db, apsw.Connection):
            db.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, self.passed)  # before each, and after
        else:
            db.add_query_logger(self.passed)  # after each

    def passed(self, _statement):
        self.statements += 1
        if self.statements == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


fate = Fate()


async def say(db, statement):
    """Ask either kind of database."""
    if isinstance(db, apsw.Connection):
        db.execute(statement).fetchall()
    else:
        await db.execute(statement)


@holdfast.step(transaction=True)
async def enter(n: int) -> int:
    db = holdfast.connection()
    fate.watch(db)
    step = holdfast.this_step()
    await say(db, f"INSERT INTO entries VALUES ('{step.run.id}', '{step.key}', {n})")
    await say(db, f"UPDATE total SET n = n + {n}")
    return n


@holdfast.step(transaction="serializable")
async def enter_strictly(n: int) -> int:
    return await enter.fn(n)


@holdfast.step(transaction=True, retry=holdfast.Retry(2, first="5ms"))
async def enter_at_last(n: int) -> int:
    await enter.fn(n)
    if holdfast.this_step().attempt == 1:
        raise ConnectionError("not yet")
    return n


@holdfast.step
async def plain(n: int) -> int:
    await asyncio.sleep(0.001)
    return n


@holdfast.agent
async def booking() -> list[int]:
    first = [await enter(1), await plain(0), await enter_at_last(2)]
    return [*first, *await asyncio.gather(enter(3), plain(0), enter_strictly(4), plain(0)), await enter(5)]


@holdfast.step(transaction=True)
async def held() -> str:
    """Writes, says so, and ends when the test allows it."""
    db = holdfast.connection()
    await say(db, f"INSERT INTO entries VALUES ('{holdfast.this_run().id}', '{os.getpid()}', 1)")
    await say(db, "UPDATE total SET n = n + 1")
    parent.say(body=os.getpid())
    while not (place / "go").exists():
        await asyncio.sleep(0.003)
    return f"{os.getpid()}"


@holdfast.agent
async def holding() -> str:
    return await held()


@holdfast.step(transaction=True)
async def enter_slowly(n: int) -> int:
    db = holdfast.connection()
    await say(db, f"INSERT INTO entries VALUES ('{holdfast.this_run().id}', '{os.getpid()}', {n})")
    await say(db, f"UPDATE total SET n = n + {n}")
    await asyncio.sleep(0.3)
    return n


@holdfast.agent
async def slow(n: int) -> int:
    return await enter_slowly(n)


@holdfast.step
async def waits() -> str:
    while not (place / "go").exists():
        await asyncio.sleep(0.003)
    return "waited"


@holdfast.agent
async def waiting() -> str:
    return await waits()


def warm_up():
    """In the fork server: what every process would do first, done once."""
    for agent in (booking, holding, slow, waiting):
        agent.spec.signature.schema()


def _begin(mine, folder):
    global place, parent
    parent, place = mine, Path(folder)


def carry(mine, folder, url, run, at=None):
    """Carry this run, and no other, to its result; die at one statement, if one is named."""
    _begin(mine, folder)
    fate.at = at

    async def main():
        async with holdfast.open(url, agents=[booking], settings=holdfast.Settings(root=run)) as hf:
            result = await (await hf.start(booking, id=run)).result(timeout=20)
        mine.say(result=result, statements=fate.statements)

    asyncio.run(main())


def carry_all(mine, folder, url, runs):
    """Go on with all of these."""
    _begin(mine, folder)

    async def main():
        async with holdfast.open(url, agents=[booking]) as hf:
            mine.say(results=await asyncio.gather(*[hf.get(run).result(timeout=60) for run in runs]))

    asyncio.run(main())


def serve(mine, folder, url, ttl_s, waits=False):
    """A worker that ends when the test says so. `waits`: its transaction begins when the test allows it."""
    _begin(mine, folder)
    connection.IDLE_MS = 1_500

    async def main():
        settings = holdfast.Settings(lease_ttl_s=ttl_s)
        async with holdfast.open(url, agents=[holding, slow, waiting], settings=settings) as hf:
            if waits:
                _wait_before_transactions(hf._store)
            mine.say(ready=True)
            await mine.told(asyncio.get_running_loop())

    asyncio.run(main())


def _wait_before_transactions(store):
    """Stand before the first transaction until a file is there."""
    connect = store._loans.connect

    def slowly(**options):
        parent.say(before=os.getpid())
        while not (place / "begin").exists():
            time.sleep(0.003)
        return connect(**options)

    store._loans.connect = slowly


async def look(url, *statements):
    """What anybody sees in the database: the rows of each statement. `our.` is where our own tables are."""
    if url.startswith("sqlite:"):
        db = apsw.Connection(url.partition(":")[2].partition("?")[0])
        try:
            db.set_busy_timeout(10_000)
            return [db.execute(statement.replace("our.", "")).fetchall() for statement in statements]
        finally:
            db.close()
    options = connection.parse_url(url)
    db = await asyncpg.connect(options.dsn)
    try:
        found = [await db.fetch(statement.replace("our.", f"{options.schema}.")) for statement in statements]
    finally:
        await db.close()
    return [[tuple(row) for row in rows] for rows in found]
