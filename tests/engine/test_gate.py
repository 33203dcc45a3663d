"""The gate lets an outcome go all its way before the next one comes, and on an idle loop it does not wait longer."""

import asyncio
import contextvars
import random
from functools import partial

import apsw
import pytest
from tests.engine.lives import history

import holdfast
import holdfast.testing
from holdfast.engine.gate import QUIET_TURNS, Gate
from holdfast.engine.loop import _steps_a_task


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.agent(name="gate-relay")
async def relay(depth: int) -> list[str]:
    seen = []

    async def far() -> None:
        carried = asyncio.ensure_future(work("far"))
        for _ in range(depth):  # each is a callback on the way, and none of them a task
            carried = asyncio.gather(carried)
        await carried
        seen.append("far")

    async def near() -> None:
        await work("before")  # so that the other call is answered before the next one
        await work("near")
        seen.append("near")

    await asyncio.gather(far(), near())
    return seen


async def test_a_result_on_its_way_is_not_overtaken():
    """One that goes through a chain of callbacks arrives before the next outcome is delivered, live and after a crash."""
    async for hf in holdfast.testing.crash_everywhere(agents=[relay]):
        run = await hf.start(relay, QUIET_TURNS - 4, id="r")
        assert await run.result(timeout=20) == ["far", "near"]


def hops(carried: asyncio.Future, depth: int, context: contextvars.Context | None) -> asyncio.Future:
    """The same result, after so many callbacks of the loop."""
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def hop(left: int) -> None:
        if left:
            loop.call_soon(hop, left - 1)
        else:
            hand_on(arrived, carried)

    carried.add_done_callback(lambda _: loop.call_soon(hop, depth, context=context))
    return arrived


def hand_on(further: asyncio.Future, done: asyncio.Future) -> None:
    if not done.cancelled() and not further.done():
        further.set_result(done.result())


def copies(carried: asyncio.Future, depth: int, context: contextvars.Context | None) -> asyncio.Future:
    """The same result, handed from future to future."""
    for _ in range(depth):
        further = asyncio.get_running_loop().create_future()
        carried.add_done_callback(partial(hand_on, further), context=context)
        carried = further
    return carried


def shields(carried: asyncio.Future, depth: int, context: contextvars.Context | None) -> asyncio.Future:
    for _ in range(depth):
        carried = asyncio.shield(carried)
    return carried


def gathers(carried: asyncio.Future, depth: int, context: contextvars.Context | None) -> asyncio.Future:
    for _ in range(depth):
        carried = asyncio.gather(carried)
    return carried


WAYS = (hops, copies, shields, gathers)


@holdfast.agent(name="gate-ways")
async def ways(seed: int) -> list[str]:
    dice, seen = random.Random(seed), []

    async def carry(name: str) -> None:
        for n in range(dice_of[name].randint(1, 3)):
            carried = asyncio.ensure_future(work(f"{name}{n}"))
            for _ in range(dice_of[name].randint(0, 2)):
                way, depth = dice_of[name].choice(WAYS), dice_of[name].choice((1, 5, 31, 32, 33, 34, 40, 70, 200))
                context = contextvars.Context() if dice_of[name].random() < 0.3 else None
                carried = way(carried, depth, context)
            await carried
            seen.append(f"{name}{n}")

    names = [f"task{n}" for n in range(dice.randint(2, 4))]
    dice_of = {name: random.Random(f"{seed} {name}") for name in names}
    await asyncio.gather(*(carry(name) for name in names))
    await holdfast.note(" ".join(seen))
    await work(" ".join(seen))
    return seen


@pytest.mark.slow
@pytest.mark.by_day("1", "33", "34")
@pytest.mark.parametrize("depth", [1, 20, 33, 34, 64, 200])
async def test_a_chain_of_any_length_is_not_overtaken(depth):
    """However many callbacks carry a result to its task, no outcome is delivered before it is there."""
    async for hf in holdfast.testing.crash_everywhere(agents=[relay]):
        run = await hf.start(relay, depth, id="r")
        assert await run.result(timeout=20) == ["far", "near"]


@pytest.mark.slow
@pytest.mark.by_day("0", "2")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(12))
async def test_results_on_their_ways_arrive_in_one_order(seed):
    """Results that come through chains of callbacks of all kinds arrive in the same order live and after every crash."""
    async for hf in holdfast.testing.crash_everywhere(agents=[ways]):
        run = await hf.start(ways, seed, id="r")
        result = await run.result(timeout=20)
        assert [event.data["text"] for event in await history(run, "note")] == [" ".join(result)]
        assert not await history(run, "foreign")
        await hf.crash()


@holdfast.agent(name="gate-alone")
async def alone(depth: int, where: str) -> list[str]:
    loop, seen = asyncio.get_running_loop(), []

    def soon(left: int) -> None:
        if where == "inside an empty context":
            contextvars.Context().run(loop.call_soon, hop, left)
        else:
            loop.call_soon(hop, left, context=contextvars.Context() if where == "in an empty context" else None)

    def hop(left: int) -> None:
        soon(left - 1) if left else seen.append("hopped")

    soon(depth)
    await work("first")
    seen.append("worked")
    await work(" ".join(seen))
    await holdfast.sleep(0.001)
    return seen


@pytest.mark.slow
@pytest.mark.by_day("3-*", "40-in an empty context")
@pytest.mark.parametrize("where", ["in its own", "in an empty context", "inside an empty context"])
@pytest.mark.parametrize("depth", [0, 3, 40])
async def test_the_callbacks_of_the_only_task_are_not_overtaken_either(depth, where):
    """A run with one task waits for the callbacks it has set off, too, whatever context they run in, or come from."""
    async for hf in holdfast.testing.crash_everywhere(agents=[alone]):
        run = await hf.start(alone, depth, where, id="r")
        assert await run.result(timeout=20) == ["hopped", "worked"]


async def test_timers_in_empty_contexts_are_recorded():
    """A timer that is set in an empty context is one of the run, and so is what it has the loop call."""

    @holdfast.agent
    async def agent() -> str:
        loop, arrived = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def later(left: int) -> None:
            contextvars.Context().run(loop.call_later, 0, contextvars.Context().run, loop.call_soon, hop, left)

        def hop(left: int) -> None:
            later(left - 1) if left else arrived.set_result("arrived")

        later(2)
        return await arrived

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=20) == "arrived"
        assert len(await history(run, "tick")) == 3
        assert not await history(run, "foreign")


@holdfast.agent(name="gate-older")
async def older(depth: int) -> list[str]:
    seen = await relay.fn(depth)
    await holdfast.receive("go")
    return seen


@pytest.mark.parametrize("depth", [20, 64])
def test_a_run_of_an_older_version_is_paused_where_its_order_is_not_known(depth, tmp_path):
    """Older versions delivered after 32 turns: which came first at a longer chain is not recorded, so nothing is guessed."""

    async def first():
        async with holdfast.testing.open(agents=[older], path=tmp_path / "x.db") as hf:
            run = await hf.start(older, depth, id="r")
            await run.wait("waiting", timeout=20)

    async def then():
        async with holdfast.testing.open(agents=[older], path=tmp_path / "x.db") as hf:
            run = hf.get("r", older)
            await run.send("go", "on")
            if depth <= QUIET_TURNS:
                assert await run.result(timeout=20) == ["far", "near"]
            else:
                with pytest.raises(holdfast.NondeterminismError, match="32 turns"):
                    await run.result(timeout=20)

    asyncio.run(first())
    db = apsw.Connection(str(tmp_path / "x.db"))
    db.execute("UPDATE runs SET identity = NULL")  # as a run that was begun before this rule
    db.close()
    asyncio.run(then())


def settled_after(beside) -> int:
    """How many turns of the loop a gate takes for a run that does not move, with this going on beside it."""

    async def main():
        loop, turns, settled = asyncio.get_running_loop(), 0, asyncio.Event()

        class Still:
            activity = hops = 0

            def advance(self):
                settled.set()
                return False

            restless = settled.set

        gates = [Gate(loop, contextvars.copy_context(), Still(), Still()) for _ in range(3)]

        ready = loop._selector.select

        def select(timeout):
            nonlocal turns
            turns += not settled.is_set()
            return ready(timeout)

        loop._selector.select = select
        task = loop.create_task(beside())
        for gate in gates:
            gate.kick()
        await settled.wait()
        task.cancel()
        return turns

    return asyncio.run(main())


async def nothing():
    await asyncio.Event().wait()


async def spinning():
    while True:
        await asyncio.sleep(0)


def test_an_idle_loop_needs_no_counting():
    """Where gates are all that turns a run has settled at once; where anything else does, after so many turns."""
    assert settled_after(nothing) <= 6
    assert settled_after(spinning) >= QUIET_TURNS


async def test_what_steps_a_task_is_told_from_other_callbacks():
    """A task's own steps and wake-ups are no callbacks to wait for, on this version of Python; all else is."""
    told = []

    loop = asyncio.get_running_loop()
    schedule = loop.call_soon

    def listening(callback, *args, context=None):
        told.append((_steps_a_task(callback), callback))
        return schedule(callback, *args, context=context)

    loop.call_soon = listening
    ended = loop.create_future()

    async def waits():
        await asyncio.sleep(0)
        await ended

    task = loop.create_task(waits())
    loop.call_later(0.001, ended.set_result, None)
    await task
    assert [steps for steps, _ in told] == [True] * len(told), told
    assert len(told) >= 3
    told.clear()
    loop.call_soon(task.cancel)
    loop.call_soon(list)
    assert [steps for steps, _ in told] == [False, False]
