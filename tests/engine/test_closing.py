"""Leaving memory: whatever the agent does meanwhile, nothing happens, nothing is written, and nothing spins."""

import asyncio
import gc
import time

import pytest
from tests.engine import hostile, schedules
from tests.engine.lives import counted, history

import holdfast
import holdfast.testing
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.clock import JumpClock

OURS = ("run.interrupted", "message.received")  # written by the store, or by the sender's doing


async def written(run):
    return [event.seq for event in await history(run) if event.kind not in OURS]


async def quiet(noise):
    """The loop is responsive, the process idle, and nobody complains."""
    cpu, slowest = time.process_time(), 0.0
    for _ in range(20):
        began = time.monotonic()
        await asyncio.sleep(0.005)
        slowest = max(slowest, time.monotonic() - began)
    assert time.process_time() - cpu < 0.09, "something spins"
    gc.collect()
    await asyncio.sleep(0)
    assert noise == []


async def settled_waiting(hf, run):
    """Until the run waits for its message, in memory or parked."""
    while not await counted(run, "step.completed"):
        await asyncio.sleep(0.001)
    while (execution := hf._worker.executions.get("r")) is not None and not execution.settled:
        await asyncio.sleep(0.001)


async def lose_lease(hf, run):
    """Another worker takes the run: its clock is ahead, so that the lease looks over."""
    clock = JumpClock()
    clock._ahead_ms = hf.clock._ahead_ms + 3_600_000
    other = SQLiteStore(hf.path, durability="none", clock=clock)
    await other.open()
    try:
        (row,) = await other.claim(["agent", *hostile.ALL], 10, 60_000)
        assert row.id == run.id
        execution = hf._worker.executions[run.id]
        await hf._worker._renew()
        assert execution.closing == "lost"
        await execution.unwound()
    finally:
        await other.close()


def noisy(noise):
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))


@pytest.mark.parametrize("name", hostile.ALL)
@pytest.mark.parametrize("way", ["park", "crash", "lost", "shutdown"])
def test_a_hostile_agent_leaves(tmp_path, name, way):
    """Parked, crashed, taken over or shut down, a hostile agent has no effect and ends right in its next life."""
    agent, noise = hostile.ALL[name], []
    path = tmp_path / "a.db"
    hostile.cleaned.clear()

    async def first():
        noisy(noise)
        async with holdfast.testing.open(agents=[agent], path=path, park=way == "park") as hf:
            run = await hf.start(agent, id="r")
            await settled_waiting(hf, run)
            before = await written(run)
            if way == "park":
                await run.wait("waiting")
            if way == "crash":
                await hf.crash()
            if way == "lost":
                await lose_lease(hf, run)
            if way != "shutdown":
                await quiet(noise)
                assert await written(run) == before
            assert hf.bodies[hostile.effect] == 0
        await quiet(noise)
        assert hf.bodies[hostile.effect] == 0
        return before

    async def second(before):
        noisy(noise)
        async with holdfast.testing.open(agents=[agent], path=path) as hf:
            run = hf.get("r", agent)
            assert await written(run) == before
            await run.send("go", "end")
            assert await run.result(timeout=10) == "end"
            assert hf.bodies[hostile.effect] == 1
            assert hf.bodies[hostile.prepare] == 0
        await quiet(noise)

    before = asyncio.run(first())
    if "clean" in name:
        assert "local" in hostile.cleaned
    if "generators" in name:
        assert {"generator", "manager"} <= set(hostile.cleaned)
    asyncio.run(second(before))
    assert noise == []


@pytest.mark.parametrize("name", schedules.ALL)
def test_every_schedule_parks_at_every_wait(monkeypatch, name):
    """The canonical schedules end right when every step of theirs is a wait at which the run leaves memory."""
    noise = []

    async def act(what: str) -> str:
        await holdfast.sleep(holdfast.rng().choice([1, 2, 3]))
        return what

    async def search(q: str) -> str:
        return await act(f"found {q}")

    async def summarise(text: str) -> str:
        return await act(f"short {text}")

    async def save(text: str) -> str:
        return await act(f"saved {text}")

    for old, new in (("work", act), ("search", search), ("summarise", summarise), ("save", save)):
        monkeypatch.setattr(schedules, old, new)

    async def main():
        noisy(noise)
        async with holdfast.testing.open(agents=[schedules.ALL[name]]) as hf:
            schedules.noise.seed(1)
            run = await hf.start(schedules.ALL[name], id="r")
            for n in range(6 if name == "mailing" else 0):
                await run.send("mail", f"m{n}", key=str(n))
            result = await run.result(timeout=40)
            assert await history(run, "timer.set")
            return result

    result = asyncio.run(main())
    assert schedules.CHECKS.get(name, bool)(result)
    assert noise == []
