"""`make chaos`: a fleet on PostgreSQL, broken at random for a minute or as long as you like.

Eight worker processes carry out some hundred runs with parallel steps, races, timers, children and messages, while workers
are killed, stopped beyond their lease and replaced, connections are cut, and the database is killed and started again. At
the end every run must have completed, and an external ledger must agree with the journal. A failure prints the seed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from click import echo
from tests.chaos.monkey import Fleet, faults
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server
from tests.chaos.verdict import check_results, judge

import holdfast

LEASE_S = 2.0
LONGEST_END_S = 180.0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Break a fleet of workers for a while and look whether it minds.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--sqlite", action="store_true", help="one SQLite file instead of PostgreSQL")
    return parser.parse_args()


def said(text: str) -> None:
    echo(f"{time.monotonic() - BEGAN:7.1f} s  {text}")


BEGAN = time.monotonic()


async def persist(call: object, *arguments: object, **named: object) -> object:
    """A client that does not give up: every call may be repeated, as it has an id or a key."""
    while True:
        try:
            return await call(*arguments, **named)  # type: ignore[operator]
        except holdfast.StoreUnavailable:
            await asyncio.sleep(0.2)


async def customers(hf: holdfast.Client, options: argparse.Namespace, rng: random.Random, runs: list[str]) -> None:
    """Start runs over the whole time and send each its three messages, each once whatever happens to the connection."""
    order = "order"

    async def one(number: int) -> None:
        await asyncio.sleep(rng.uniform(0, options.seconds * 0.8))
        name = f"order-{number}"
        await persist(hf.start, order, number, id=name)
        runs.append(name)
        for message in range(3):
            await asyncio.sleep(rng.uniform(0, 3))
            await persist(hf.get(name).send, "news", message, key=f"m{message}")

    await asyncio.gather(*[one(number) for number in range(options.runs)])


async def completed(hf: holdfast.Client, runs: list[str]) -> bool:
    until = time.monotonic() + LONGEST_END_S
    last = -1
    while time.monotonic() < until:
        try:
            rows = [await hf.store.run(run) for run in runs]
        except holdfast.StoreUnavailable:
            await asyncio.sleep(0.5)
            continue
        states = Counter(row.status if row else "missing" for row in rows)
        if states["completed"] != last:
            last = states["completed"]
            said(f"{last} of {len(runs)} runs completed; {dict(states)}")
        if last == len(runs) or states["failed"] or states["paused"]:
            return True
        await asyncio.sleep(0.5)
    return False


async def chaos(options: argparse.Namespace, seed: int, folder: Path) -> int:
    rng = random.Random(seed)
    server = None if options.sqlite else Server(folder / "postgres")
    proxy = None
    url = f"sqlite:{folder / 'chaos.db'}"
    if server is not None:
        server.create()
        server.start()
        proxy = Proxy(server.port, rng)
        url = f"postgresql://postgres@127.0.0.1:{await proxy.start()}/postgres"
    fleet = Fleet(url, options.workers, folder, LEASE_S)
    runs: list[str] = []
    try:
        fleet.fill()
        async with holdfast.open(url) as hf:
            while "order" not in await hf.store.agents():
                await asyncio.sleep(0.1)
            said(f"{options.workers} workers serve; seed {seed}")
            starting = asyncio.create_task(customers(hf, options, rng, runs))
            done = await faults(fleet, server, proxy, rng, options.seconds, said)
            said("no more faults")
            await starting
            if not await completed(hf, runs):
                fleet.explain()
            wrong, counts = await judge(hf.store, runs, folder / "ledger")
            if not wrong:
                wrong = await check_results(hf, runs)
    finally:
        fleet.end()
        if proxy is not None:
            await proxy.stop()
        if server is not None:
            server.stop()
    echo(f"\nseed {seed}\nfaults: {dict(done)}; connections cut: {proxy.cut if proxy else 0}; "
          f"workers started: {fleet.started}\nseen: {counts}")  # fmt: skip
    for problem in wrong[:40]:
        echo(f"WRONG: {problem}")
    echo("All is well." if not wrong else f"{len(wrong)} things are wrong; files are in {folder}")
    return 1 if wrong else 0


def main() -> int:
    options = parsed()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    return asyncio.run(chaos(options, seed, folder))


if __name__ == "__main__":
    sys.exit(main())
