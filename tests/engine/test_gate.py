"""The gate lets an outcome go all its way before the next one comes, and on an idle loop it does not wait longer."""

import asyncio
import contextvars

import holdfast
import holdfast.testing
from holdfast.engine.gate import QUIET_TURNS, Gate


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


def test_a_result_on_its_way_is_not_overtaken():
    """One that goes through a chain of callbacks arrives before the next outcome is delivered, live and after a crash."""

    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[relay]):
            run = await hf.start(relay, QUIET_TURNS - 4, id="r")
            assert await run.result(timeout=20) == ["far", "near"]

    asyncio.run(main())


def settled_after(beside) -> int:
    """How many turns of the loop a gate takes for a run that does not move, with this going on beside it."""

    async def main():
        loop, turns, settled = asyncio.get_running_loop(), 0, asyncio.Event()

        class Still:
            def advance(self):
                settled.set()
                return False

            restless = settled.set

        gates = [Gate(loop, contextvars.copy_context(), Still()) for _ in range(3)]

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
