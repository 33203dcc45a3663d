"""The fleet: what workers say of themselves, who was lost and how, and what is lacking; on both stores, with real kills."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.agents.runs import Gate

import holdfast
from holdfast import Fleet, Rate, Retry

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_a_killed_worker_is_told_with_what_became_of_its_runs"}

gate = Gate()
QUICK = holdfast.Settings(name="heron-1", version="v7", lease_ttl_s=0.9, park_grace_s=0, concurrency=7)


class Busy(Exception):
    """As providers' errors have it."""

    status_code, headers = 429, {"retry-after": "600"}


@pytest.fixture(autouse=True)
def shut():
    gate.__init__()  # in the loop of this test


@holdfast.step
async def quick(number: int) -> int:
    return number


@holdfast.step
async def holds() -> None:
    await gate()


@holdfast.step(rate=Rate(10, every="1s", name="openai"), retry=Retry(3, first="1h", max="1h"))
async def asks() -> None:
    raise Busy("429, come again later")


@holdfast.agent
async def works(many: int) -> None:
    for number in range(many):
        await quick(number)
    await holds()


@holdfast.agent
async def breaks() -> None:
    await quick(1)
    raise ValueError("broken")


@holdfast.agent
async def calls() -> None:
    await asks()


@holdfast.agent(version="9", queue="mail")
async def newer() -> None: ...


AGENTS = [works, breaks, calls]


async def until(hf: holdfast.Client, holds) -> Fleet:
    async with asyncio.timeout(30):
        while not holds(fleet := await hf.fleet()):
            await asyncio.sleep(0.05)
        return fleet


async def test_a_worker_tells_how_much_it_does(store_url: str) -> None:
    """With its heartbeat, to any process: runs in memory of how many, steps of a minute; and that it drains."""
    async with holdfast.open(store_url) as hf:
        assert (await hf.fleet()).workers == ()
        async with holdfast.open(store_url, agents=AGENTS, settings=QUICK) as serving:
            await serving.start(works, 20, id="w")
            await gate.reached.wait()
            fleet = await until(hf, lambda fleet: any((each.steps_1m or 0) >= 20 for each in fleet.workers))
            (worker,) = fleet.workers
            assert worker.id.startswith("heron-1-")
            assert (worker.version, worker.queues, worker.state) == ("v7", None, "alive")
            assert (worker.running, worker.limit, worker.steps_1m) == (1, 7, 20)
            assert set(worker.agents) == {"works", "breaks", "calls"}
            assert worker.started_at <= worker.seen_at
            assert [(each.queue, each.running, each.due) for each in fleet.queues] == [("default", 1, 0)]
            leaving = asyncio.create_task(serving._close(30.0))
            await until(hf, lambda fleet: any(each.state == "draining" for each in fleet.workers))
            gate.open.set()
            await leaving
        fleet = await hf.fleet()
        assert fleet.workers == ()
        (lost,) = fleet.lost
        assert (lost.id, lost.version, lost.how, lost.after_ms) == (worker.id, "v7", "drained", None)
        assert sum(minute.steps for minute in fleet.minutes) == 21


async def test_a_killed_worker_is_told_with_what_became_of_its_runs(store_url: str, tmp_path: Path) -> None:
    """As dead, with how many runs went on elsewhere and after how long at most."""
    script = tmp_path / "serves.py"
    script.write_text(
        "import asyncio, sys, holdfast\n"
        "from tests.client import test_fleet as t\n"
        "async def main():\n"
        "    async with holdfast.open(sys.argv[1], agents=t.AGENTS, settings=t.QUICK) as hf:\n"
        "        for number in range(3):\n"
        "            await hf.start(t.works, 1, id=f'w{number}')\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), store_url, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        async with holdfast.open(store_url) as hf:
            await until(hf, lambda fleet: any(each.running == 3 for each in fleet.workers))
            process.send_signal(signal.SIGKILL)
            await process.wait()
            fleet = await until(hf, lambda fleet: fleet.lost)
            assert [(each.how, each.moved, each.after_ms) for each in fleet.lost] == [("dead", 0, None)]
            assert [(each.agent, each.version, each.runs) for each in fleet.versions] == [("works", None, 3)]
            async with holdfast.open(store_url, agents=AGENTS, settings=QUICK) as serving:
                fleet = await until(serving, lambda fleet: fleet.lost[0].moved == 3)
                (lost,) = fleet.lost
                assert lost.how == "dead"
                assert lost.after_ms is not None
                torn = [ms for info in await hf.runs() for kind, ms in info.life if kind == "torn"]
                assert lost.after_ms == max(torn)
                gate.open.set()
    finally:
        if process.returncode is None:
            process.kill()


async def test_what_is_lacking_and_what_is_paused_is_told(store_url: str) -> None:
    """Versions that no worker has, queues with what is due, and who said that a rate is paused."""
    async with holdfast.open(store_url, agents=AGENTS, settings=QUICK) as hf:
        await hf.start(newer, id="n1")
        await hf.start(newer, id="n2")
        await hf.start(calls, id="c")
        with pytest.raises(holdfast.RunFailed):
            await hf.run(breaks, id="b")
        fleet = await until(hf, lambda fleet: fleet.rates)
        assert [(each.agent, each.version, each.runs) for each in fleet.versions] == [("newer", "9", 2)]
        (mail,) = [each for each in fleet.queues if each.queue == "mail"]
        assert (mail.ready, mail.due) == (2, 2)
        assert mail.oldest_due_at is not None
        (rate,) = fleet.rates
        assert (rate.key, rate.waits, rate.because) == ("openai", 0, "asks: 429, come again later")
        assert rate.paused_until is not None
        assert rate.paused_until > fleet.now
        kind = "sqlite" if store_url.startswith("sqlite:") else "postgresql"
        assert (fleet.store.kind, fleet.store.runs) == (kind, 4)
        assert fleet.store.bytes > 0
        assert fleet.store.events >= 3


async def test_the_store_is_named_once_without_its_folder(tmp_path, monkeypatch):
    """Also where its URL has no folder."""
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:hold.db", f"sqlite:{tmp_path}/hold.db"):
        async with holdfast.open(url) as hf:
            assert (await hf.fleet()).store.where == "sqlite:hold.db"
