"""Leaving memory: whatever the agent does meanwhile, nothing happens, nothing is written, and nothing spins."""

import asyncio
import gc
import time

import apsw
import pytest
from tests.engine import hostile, schedules
from tests.engine.lives import counted, history

import holdfast
import holdfast.testing
from holdfast.engine import attempt as engine
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.testing.clock import JumpClock

OURS = ("run.interrupted", "message.received")  # written by the store, or by the sender's doing


async def written(run):
    return [event.seq for event in await history(run) if event.kind not in OURS]


async def quiet(noise):
    """The process is idle, and nobody complains."""
    gc.collect()  # what earlier tests left takes time too
    worked = time.process_time()
    for _ in range(60):
        await asyncio.sleep(0.005)
    assert time.process_time() - worked < 0.27, "something spins"
    await asyncio.sleep(0)
    assert noise == []


async def settled_waiting(hf, run):
    """Until the run waits for its message, in memory or parked."""
    while not await counted(run, "step.completed"):
        await asyncio.sleep(0.001)
    while (carried := hf._worker.attempts.get("r")) is not None and not waits(carried.attempt):
        await asyncio.sleep(0.001)


def waits(attempt):
    """Does all of it wait, with no body that runs and nothing on its way to the store?"""
    return attempt.tasks.settled and not attempt.bodies.drivers and not attempt.pen.unacked


async def lose_lease(hf, run):
    """Another worker takes the run: its clock is ahead, so that the lease looks over."""
    clock = JumpClock()
    clock._ahead_ms = hf.clock._ahead_ms + 3_600_000
    other = SQLiteStore(hf.path, durability="none", clock=clock)
    await other.open()
    try:
        (row,) = await other.claim(["agent", *hostile.ALL], 10, 60_000)
        assert row.id == run.id
        attempt = hf._worker.attempts[run.id].attempt
        await hf._worker.trust()
        assert attempt.life.closing == "lost"
        await attempt.unwound()
    finally:
        await other.close()


def noisy(noise):
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))


@pytest.mark.by_day(
    "shutdown-swallows_everything",
    "shutdown-has_tasks_that_ignore_cancellation",
    "park-*",
    "crash-swallows_everything",
    "crash-has_tasks_that_ignore_cancellation",
    "lost-swallows_around_every_verb",
    "lost-spins_when_interrupted",
)
@pytest.mark.parametrize("name", hostile.ALL)
@pytest.mark.parametrize("way", ["park", "crash", "lost", "shutdown"])
def test_a_hostile_agent_leaves(tmp_path, monkeypatch, name, way):
    """Parked, crashed, taken over or shut down, a hostile agent has no effect and ends right in its next life."""
    monkeypatch.setattr(engine, "_UNWIND_S", 0.2)  # nothing here needs longer, and some never end
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
async def test_every_schedule_parks_at_every_wait(monkeypatch, name):
    """The canonical schedules end right when every step of theirs is a wait at which the run leaves memory."""
    noise = []

    async def act(what: str) -> str:
        await holdfast.sleep(holdfast.rng().uniform(1, 3))  # two at the same moment would be one wait
        return what

    async def search(q: str) -> str:
        return await act(f"found {q}")

    async def summarise(text: str) -> str:
        return await act(f"short {text}")

    async def save(text: str) -> str:
        return await act(f"saved {text}")

    for old, new in (("work", act), ("search", search), ("summarise", summarise), ("save", save)):
        monkeypatch.setattr(schedules, old, new)
    schedules.lives.clear()

    noisy(noise)
    async with holdfast.testing.open(agents=[schedules.ALL[name]]) as hf:
        run = await hf.start(schedules.ALL[name], id="r")
        if name == "mailing":
            for n in range(6):
                await run.wait("waiting")
                await run.send("mail", f"m{n}")
        result = await run.result(timeout=40)
        assert not await history(run, "foreign")
        await quiet(noise)
        returned = result
    assert schedules.CHECKS[name](returned)
    *lives, last = schedules.lives["r"]
    assert len(lives) > 1
    for life in lives:
        assert life == last[: len(life)]


@pytest.mark.slow
async def test_a_generator_left_in_a_live_run_is_closed_by_it():
    """The `finally` of a generator that a loop was broken out of runs in its own run: its step is recorded, once."""

    async def numbers():
        try:
            for n in range(5):
                yield n
        finally:
            await hostile.effect("closed")

    @holdfast.agent
    async def agent() -> str:
        async for n in numbers():
            if n == 1:
                break
        await holdfast.sleep("1h")
        return await hostile.prepare()

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=10) == "prepared"
        assert [event.key for event in await history(run, "step.completed")] == ["task#0/effect#0", "prepare#0"]


async def test_a_generator_of_one_run_is_not_closed_in_another():
    """A generator that is collected while another run's code runs is closed in its own run, or not at all."""
    cycles, closed = [], []

    @holdfast.agent
    async def leaver() -> None:
        async def numbers():
            try:
                yield 1
            finally:
                closed.append(holdfast.this_run().id)
                await hostile.effect("never")

        stream = numbers()
        await stream.__anext__()
        cycle = [stream]
        cycle.append(cycle)  # only the garbage collector can find it
        await holdfast.receive("never")

    @holdfast.agent
    async def collector() -> str:
        await hostile.prepare()
        gc.collect()
        cycles.append(1)
        return await hostile.prepare()

    gc.disable()
    try:
        async with holdfast.testing.open(agents=[leaver, collector]) as hf:
            await (await hf.start(leaver, id="leaver")).wait("waiting")
            run = await hf.start(collector, id="collector")
            assert await run.result(timeout=10) == "prepared"
            await asyncio.sleep(0.01)
            assert closed == ["leaver"]
            assert hf.bodies[hostile.effect] == 0
            assert len(await history(run)) == 3
    finally:
        gc.enable()
    assert cycles == [1]


async def test_an_agent_that_calls_exit_ends_its_run_only():
    """sys.exit() in agent code fails the run with a word about it; the worker and its other runs go on."""

    @holdfast.agent
    async def exits() -> None:
        await hostile.prepare()
        raise SystemExit(3)

    @holdfast.agent
    async def goes_on() -> str:
        return await holdfast.receive("go", str)

    async with holdfast.testing.open(agents=[exits, goes_on], park=False) as hf:
        other = await hf.start(goes_on, id="other")
        with pytest.raises(holdfast.RunFailed, match="SystemExit: 3"):
            await (await hf.start(exits, id="r")).result(timeout=10)
        await other.send("go", "still here")
        assert await other.result(timeout=10) == "still here"


def lingering():
    """An agent whose body only ends when it is stopped, the body, and the keys of those that were."""
    stopped = []

    @holdfast.step
    async def long() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(holdfast.this_step().key)
        return "too late"

    @holdfast.agent(name="agent")
    async def agent() -> str:
        return await long()

    return agent, long, stopped


@pytest.mark.parametrize("drains", [False, True])
async def test_a_body_that_runs_while_the_lease_is_lost_is_stopped(drains):
    """A body is cancelled when its run is taken over, and what it returns is not recorded; also by a worker that stops."""
    agent, long, stopped = lingering()
    async with holdfast.testing.open(agents=[agent], park=False) as hf:
        run = await hf.start(agent, id="r")
        while not hf.bodies[long]:
            await asyncio.sleep(0.001)
        releasing = asyncio.create_task(hf._worker.attempts["r"].release(3600.0)) if drains else None
        await asyncio.sleep(0)
        await lose_lease(hf, run)
        assert stopped == ["long#0"]
        assert not await history(run, "step.completed", "step.cancelled", "step.failed")
        if releasing is not None:
            await releasing


async def test_a_worker_that_claims_a_run_which_it_still_carries_stops_its_former_attempt():
    """Its lease was taken away in the store, and the worker claimed the run again before a heartbeat told it."""
    agent, long, stopped = lingering()
    async with holdfast.testing.open(agents=[agent], park=False) as hf:
        await hf.start(agent, id="r")
        while not hf.bodies[long]:
            await asyncio.sleep(0.001)
        former = hf._worker.attempts["r"].attempt
        with apsw.Connection(str(hf.path)) as db:
            db.execute(
                "UPDATE runs SET lease_owner = 'moved', lease_epoch = lease_epoch + 1, due_at = 0 WHERE id = 'r'"
            )
        hf._worker.scheduler.wake()
        while hf.bodies[long] < 2:
            await asyncio.sleep(0.001)
        assert former.life.closing == "lost" and stopped == ["long#0"]
