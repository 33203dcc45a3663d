"""Movers that stand still, that looked long ago, that die, and that meet: a slot has one owner, and no run is lost."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds.test_cells_moves import MOVER, ROOT, family

import holdfast
from holdfast.backends.cells import inventory, moves
from holdfast.backends.cells.settlement import settle

pytestmark = pytest.mark.slow
SLOT = 7  # of cell a at first
# A mover that stands still inside a transaction: while it names the rows of the slot for the n-th time.
STANDS = """
import asyncio, os, signal, sys
from holdfast.backends.cells import inventory, moves
where = sys.modules[moves.copied.__module__] if hasattr(moves, "copied") else moves
named, times = where.name_rows, int(sys.argv[4])

async def stands(db, cells, slot):
    global times
    await named(db, cells, slot)
    times -= 1
    if times == 0:
        os.kill(os.getpid(), signal.SIGSTOP)

where.name_rows = stands

async def main(url, slot, to, _):
    async with inventory.opened(url) as store:
        await moves.move(store, int(slot), to, grace_s=20.0)

asyncio.run(main(*sys.argv[1:]))
"""
# A mover that stands still behind a step.
PAUSES = MOVER.replace("SIGKILL", "SIGSTOP")


@holdfast.agent
async def waits() -> str:
    return await holdfast.receive("m", str)


def process(script, *words):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)], env=env, stderr=subprocess.PIPE, text=True
    )


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@asynccontextmanager
async def stopped(script, *words):
    """A process of a mover that has stopped itself; it goes on when the block is left, and is waited for."""
    mover = process(script, *words)
    try:
        while state_of(mover.pid) != "T":
            assert mover.poll() is None, mover.stderr.read()
            await asyncio.sleep(0.02)
        yield mover
    finally:
        if mover.poll() is None:
            mover.send_signal(signal.SIGCONT)
            await asyncio.to_thread(mover.communicate)


async def killed(url, slot, to, step):
    mover = process(MOVER, url, slot, to, step)
    _, said = await asyncio.to_thread(mover.communicate)
    assert mover.returncode == -signal.SIGKILL, said


async def waiting(hf, *names):
    for name in names:
        await (await hf.start(waits, id=name)).wait("waiting", timeout="60s")


async def holdings(store, slot=SLOT):
    return {cell.cell: await cell.holding(slot) for cell in store.up}


async def all_is_well(url, *names):
    """Each run is there once, goes on, and each slot has one owner."""
    async with inventory.opened(url) as store:
        found = await inventory.check(store)
        assert found.wrong == []
        owners = [held for held in (await holdings(store)).values() if held is not None and held.state != "gone"]
        assert len(owners) == 1
    async with holdfast.open(url, agents=[waits]) as hf:
        assert sorted(info.id for info in await hf.runs(limit=100)) == sorted(names)
        assert await hf.count_runs() == ({"waits": {"waiting": len(names)}} if names else {})
        for name in names:
            await hf.get(name).send("m", "hello")
            assert await hf.get(name).result(timeout="60s") == "hello"


# Movers that stand still


@pytest.mark.by_day("1")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_mover_that_stands_still_in_a_transaction_deletes_nothing_that_came_back(times, cells_url):  # noqa: F811
    names = family(SLOT, 2)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, *names)
    async with stopped(STANDS, cells_url, SLOT, "b", times), inventory.opened(cells_url) as store:
        for to in ("a", "b", "a"):
            with contextlib.suppress(holdfast.RunActive, holdfast.BadArguments):
                await moves.move(store, SLOT, to, grace_s=1.0)
    await all_is_well(cells_url, *names)


@pytest.mark.by_day("decided")
@pytest.mark.parametrize("step", moves.STEPS)
async def test_a_mover_that_stands_still_keeps_others_out(step, cells_url):  # noqa: F811
    names = family(SLOT, 2)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, *names)
        async with stopped(PAUSES, cells_url, SLOT, "b", step):
            there = hf.store.cells
            await there.look()
            to = "b" if there.owners[SLOT] == "a" else "a"
            with pytest.raises(holdfast.RunActive, match="is being moved by another process"):
                await moves.move(there, SLOT, to, grace_s=1.0)
        await there.look()
        assert there.owners[SLOT] == "b"
    await all_is_well(cells_url, *names)


@pytest.mark.by_day("copied")
@pytest.mark.parametrize("step", moves.STEPS[1:-1])
async def test_a_mover_that_lost_its_sessions_while_it_stood_still_writes_nothing(step, cells_url):  # noqa: F811
    """Others called its move off, or finished it, and the slot went on; what it decided upon is not so any more."""
    names = family(SLOT, 2)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, *names)
    async with stopped(PAUSES, cells_url, SLOT, "b", step), inventory.opened(cells_url) as store:
        origin = store.made["a"]  # its session there is lost, and that at the destination lives on
        ended = await origin.ask(
            lambda db: db.fetchval(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                " AND ((classid::bigint << 32) | objid::bigint) = hashtextextended($1, 0)",
                f"holdfast-move:{origin.schema}:{SLOT}",
            )
        )
        assert ended == 1
        await moves.mend(store)
        assert (await holdings(store))["a"].state in ("owned", "gone")
    await all_is_well(cells_url, *names)


# Movers that looked long ago


async def test_a_mover_that_looked_long_ago_is_refused(cells_url):  # noqa: F811
    names = family(SLOT, 1)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, *names)
    async with inventory.opened(cells_url) as late, inventory.opened(cells_url) as first:
        before = (await moves.move(first, SLOT, "b")).runs
        with pytest.raises(holdfast.BadArguments, match="slot 7 is in cell 'b' already"):
            await moves.move(late, SLOT, "b")
        assert (before, {cell: held.state for cell, held in (await holdings(first)).items()}) == (
            1,
            {"a": "gone", "b": "owned"},
        )
    await all_is_well(cells_url, *names)


async def test_movers_that_meet_make_one_owner(cells_url):  # noqa: F811
    """Six at once, in both directions."""
    names = family(SLOT, 2)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, *names)

        async def one(to):
            async with inventory.opened(cells_url) as store:
                try:
                    return await moves.move(store, SLOT, to, grace_s=5.0)
                except (holdfast.RunActive, holdfast.BadArguments) as refused:
                    return str(refused)

        told = await asyncio.gather(*map(one, "bababa"))
        assert any(isinstance(each, moves.Moved) for each in told), told
    await all_is_well(cells_url, *names)


# Two owners, and none


async def _say(cell, slot, state, epoch):
    """What a database says that was restored from an older copy."""
    await cell.ask(
        lambda db: db.execute(
            f'UPDATE "{cell.schema}_cells".slots SET state = $2, epoch = $3 WHERE slot = $1', slot, state, epoch
        )
    )


@pytest.mark.by_day("owned")
@pytest.mark.parametrize("state", ["owned", "leaving"])
async def test_two_owners_are_told_and_settled(state, cells_url):  # noqa: F811
    names = family(SLOT, 1)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, *names)
    async with inventory.opened(cells_url) as store:
        await moves.move(store, SLOT, "b")
        await _say(store.made["a"], SLOT, state, 2)
        found = await inventory.check(store)
        quarrel = next(each for each in found.wrong if "is owned by" in each)
        assert "cell 'a' (epoch 2, 0 runs) and by cell 'b' (epoch 2, 1 runs)" in quarrel
        assert f"holdfast cells settle {SLOT} --to NAME --db {cells_url}" in quarrel
        assert found.mended == []  # it makes no second owner
        assert (await holdings(store))["a"].state == state
        with pytest.raises((holdfast.RunActive, holdfast.BadArguments)):
            await moves.move(store, SLOT, "a")
        assert await settle(store, SLOT, "b") == {"a": 0}
        with pytest.raises(holdfast.BadArguments, match="nothing is to be settled"):
            await settle(store, SLOT, "a")
        assert await settle(store, SLOT, "b") == {}
    await all_is_well(cells_url, *names)


async def test_a_slot_without_an_owner_is_told_and_settled(cells_url):  # noqa: F811
    async with inventory.opened(cells_url) as store:
        await _say(store.made["a"], SLOT, "gone", 5)
        (wrong,) = (await inventory.check(store)).wrong
        assert "slots 7 are owned by no cell" in wrong
        assert "holdfast cells settle 7 --to NAME" in wrong
        await settle(store, SLOT, "b")
        assert store.owners[SLOT] == "b"
    await all_is_well(cells_url)


# What others see meanwhile


@pytest.mark.by_day("copied")
@pytest.mark.parametrize("step", moves.STEPS)
async def test_no_run_is_counted_twice_wherever_a_mover_died(step, cells_url):  # noqa: F811
    names = family(SLOT, 6)
    async with holdfast.open(cells_url) as hf:
        for name in names:
            await hf.start(waits, id=name)
        await killed(cells_url, SLOT, "b", step)
        await hf.store.cells.look()
        counted = await hf.count_runs()
        assert sum(counted.get("waits", {}).values()) <= 6, counted
        assert len(await hf.audit(limit=100)) <= 6
        async with inventory.opened(cells_url) as store:
            await moves.mend(store)
        await hf.store.cells.look()
        assert await hf.count_runs() == {"waits": {"ready": 6}}
        assert len(await hf.audit(limit=100)) == 6


@pytest.mark.by_day("1.0")
@pytest.mark.parametrize("grace_s", [0.0, 1.0])  # the worker has heard that it is to give the run back, or has not
async def test_a_run_whose_move_was_called_off_goes_on_at_once(cells_url, grace_s):  # noqa: F811
    """Its body was interrupted when the slot was frozen by force; then the mover died."""
    begun = []

    @holdfast.step(in_doubt="retry")
    async def long() -> int:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.sleep(3600)
        return len(begun)

    @holdfast.agent
    async def body() -> int:
        return await long()

    (name,) = family(SLOT, 1)
    settings = holdfast.Settings(lease_ttl_s=2.0, stop_grace_s=3600.0)
    script = MOVER.replace("grace_s=20.0", f"grace_s={grace_s}")
    async with holdfast.open(cells_url, agents=[body], settings=settings) as hf:
        run = await hf.start(body, id=name)
        while not begun:
            await asyncio.sleep(0.02)
        mover = process(script, cells_url, SLOT, "b", "frozen")
        await asyncio.to_thread(mover.communicate)
        assert mover.returncode == -signal.SIGKILL
        assert await run.result(timeout="60s") == 2


async def test_nobody_is_told_what_a_slot_said_while_it_stood_still(cells_url):  # noqa: F811
    """A read that began in a slot that was frozen, and ended when its move was called off, is made again."""
    (name,) = family(SLOT, 1)
    async with holdfast.open(cells_url, agents=[waits]) as hf:
        await waiting(hf, name)
        worker, hf.store._worker = hf.store._worker, None  # it looks for dead movers, and this test does
        await killed(cells_url, SLOT, "b", "frozen")
        seen = []

        async def read(cell):
            row = await cell.run(name)
            seen.append(row.status)
            async with inventory.opened(cells_url) as store:
                await moves.mend(store)
            return row

        assert (await hf.store._routed(SLOT, read)).status == "waiting"
        assert seen == ["moved", "waiting"]
        hf.store._worker = worker
