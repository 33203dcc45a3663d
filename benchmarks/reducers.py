"""20. A reducer of very many events: until it goes on after a crash, what it takes in the store; and what thousands of them cost.

As a script it is one of three processes: `python reducers.py fold|resume|park URL EVENTS`. The first kills itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import string
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from journal_size import size_in, size_of
from measuring import Bench, Row, told_by
from postgres_here import postgres

import holdfast

RESUMED_S, SIZE = 1.0, 1.5
PAYLOAD = 1_000  # bytes of an event
ACCOUNTS = 2_000
AT_ONCE = 500
PARKED_MB = 200.0


@dataclass(frozen=True)
class Booked:
    account: int
    cents: int
    note: str


@dataclass(frozen=True)
class Asked:
    pass


@dataclass(frozen=True)
class Books:
    accounts: dict[str, int] = field(default_factory=dict)
    count: int = 0
    total: int = 0


@holdfast.reducer(Books)
def books(state: Books, event: Booked | Asked) -> Books | tuple[Books, list[holdfast.Command]]:
    if isinstance(event, Asked):
        return state, [holdfast.Done()]
    account = f"account-{event.account}"
    accounts = state.accounts | {account: state.accounts.get(account, 0) + event.cents}
    return Books(accounts, state.count + 1, state.total + event.cents)


def booked(number: int) -> Booked:
    """An event of a fixed length that no compression would make small."""
    dice = random.Random(number)
    note = "".join(dice.choices(string.ascii_letters + string.digits, k=PAYLOAD - 50))
    return Booked(dice.randrange(ACCOUNTS), number, note)


def measure(bench: Bench) -> list[Row]:
    events, parked = bench.size(100_000, 500), bench.size(5_000, 50)
    rows: list[Row] = []
    with bench.place() as folder, postgres(bench) as server:
        for name, url in (
            ("SQLite", f"sqlite:{folder / 'bench.db'}?durability=process"),
            ("PostgreSQL", f"{server.url}?schema=reducers"),
        ):
            told_by("reducers.py", "fold", url, events, killed=True)
            resumed = told_by("reducers.py", "resume", url, events)
            size = size_of(folder) if name == "SQLite" else asyncio.run(size_in(url))
            share = size / (events * PAYLOAD)
            tables = {} if name == "SQLite" else asyncio.run(tables_in(url))
            parts = ", ".join(f"{table} {each / 1e6:,.0f}" for table, each in tables.items() if each > 1e6)
            rows += [
                Row(20, f"{name}: a reducer of {events:,} events goes on after kill -9: claimed, folded, ended",
                    f"{resumed['seconds'] * 1000:,.0f} ms, {resumed['again']:,} events folded again", "",
                    f"< {RESUMED_S:g} s", resumed["seconds"] < RESUMED_S),
                Row(20, f"{name}: its store, against the {PAYLOAD:,} bytes of each event",
                    f"{size / 1e6:,.0f} MB" + (f" ({parts})" if parts else ""),
                    f"{share:.2f} x payload", f"<= {SIZE:g} x", share <= SIZE),
            ]  # fmt: skip
            if tables:  # what was sent lies in the inbox too until it is folded, and dead rows until a vacuum
                live = asyncio.run(vacuumed(url)) / (events * PAYLOAD)
                rows.append(
                    Row(20, f"{name}: its store without dead rows, after VACUUM FULL", f"{live * events * PAYLOAD / 1e6:,.0f} MB",
                        f"{live:.2f} x payload")
                )  # fmt: skip
        file = folder / "parked.db"
        held = told_by("reducers.py", "park", f"sqlite:{file}?durability=process", parked)
        rows.append(
            Row(20, f"{parked:,} reducers that wait, with three events each: memory of the process that serves them",
                f"{held['rss_mb']:.0f} MB ({held['empty_mb']:.0f} MB before), {file.stat().st_size / parked:,.0f} bytes of file "
                f"each, {held['due']} of them due", "", f"< {PARKED_MB:g} MB", held["rss_mb"] < PARKED_MB)
        )  # fmt: skip
    return rows


async def tables_in(url: str) -> dict[str, int]:
    """The size of each table with its indexes, the largest first."""
    db = await asyncpg.connect(url.partition("?")[0])
    try:
        found = await db.fetch(
            "SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class"
            " WHERE relnamespace = $1::regnamespace AND relkind = 'r' ORDER BY size DESC", url.rpartition("=")[2],
        )  # fmt: skip
    finally:
        await db.close()
    return {row["relname"]: row["size"] for row in found}


async def vacuumed(url: str) -> int:
    """The size of all when nothing of it is dead."""
    db = await asyncpg.connect(url.partition("?")[0])
    try:
        await db.execute("VACUUM FULL")
    finally:
        await db.close()
    return await size_in(url)


async def fold(url: str, events: int) -> None:
    """Send them as fast as they are taken, wait until all are folded, and die without a word."""
    async with holdfast.open(url, agents=[books]) as hf:
        run = await hf.start(books, id="r")
        for first in range(0, events, AT_ONCE):
            await asyncio.gather(*[run.send(booked(number)) for number in range(first, min(first + AT_ONCE, events))])
        while (await run.info()).status != "waiting":  # noqa: ASYNC110 - nobody tells when the last is folded
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


async def resume(url: str, events: int) -> dict[str, float]:
    """From the open store to the end of the run, which has all that came before."""
    async with holdfast.open(url) as hf:
        stored = await hf.get("r").state()
        await hf.get("r").send("event", {"Asked": {}})
    began = time.perf_counter()
    async with holdfast.open(url, agents=[books]) as hf:
        end = await hf.get("r").result()
        seconds = time.perf_counter() - began
    assert (end.count, end.total) == (events, sum(range(events)))
    return {"seconds": seconds, "again": events - (0 if stored is None else stored.folded or 0)}


async def park(url: str, many: int) -> dict[str, float]:
    """Start many, send each a few events, and see what the process holds when all wait."""
    empty = _rss_mb()
    settings = holdfast.Settings(park_grace_s=0.0)
    async with holdfast.open(url, agents=[books], settings=settings) as hf:
        for first in range(0, many, AT_ONCE):
            runs = [f"r-{number}" for number in range(first, min(first + AT_ONCE, many))]
            await asyncio.gather(*[hf.start(books, id=run) for run in runs])
            for number in range(3):
                await asyncio.gather(*[hf.get(run).send(Booked(1, number, "")) for run in runs])
        while await hf.runs(status=["ready", "running"], limit=1):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        due = len(await hf.runs(status=["ready", "running"], limit=10))
        return {"rss_mb": _rss_mb(), "empty_mb": empty, "due": due}


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if sys.platform == "linux" else ():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    what, url, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    print(json.dumps(asyncio.run({"fold": fold, "resume": resume, "park": park}[what](url, size))))
