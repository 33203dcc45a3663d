"""Plain asyncio timers in agent code: recorded when they fire, replayed in order and at once, begun afresh otherwise."""

import asyncio
import time

import pytest
from tests.engine.lives import counted, history

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.step
async def hang() -> None:
    await asyncio.Event().wait()


def crash_everywhere(agent, expected, **options):
    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[agent], **options):
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == expected
            assert not await history(run, "foreign")

    asyncio.run(main())


def resumed_after(agent, expected, *, ticks):
    """Run the agent until it waits for a message, drop it, and let it end: what it returns, and how long replay took."""

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            while (await run.wait("waiting")).waits_for != "message":
                await asyncio.sleep(0.001)
            assert await counted(run, "tick") == ticks
            began = time.monotonic()
            await hf.crash()
            await run.send("go")
            assert await run.result(timeout=20) == expected
            assert await counted(run, "tick") == ticks
            return time.monotonic() - began

    return asyncio.run(main())


def test_asyncio_sleep_replays_at_once():
    """Recorded sleeps of minutes are replayed without waiting, and none is waited for again."""

    @holdfast.agent
    async def agent() -> int:
        for _ in range(20):
            await asyncio.sleep(60)
        await holdfast.receive("go")
        return 20

    assert resumed_after(agent, 20, ticks=20) < 2


async def test_asyncio_sleep_begins_afresh_when_it_had_not_fired():
    """A plain sleep that a crash interrupted is waited for in full again."""

    @holdfast.agent
    async def agent() -> None:
        await work("before")
        await asyncio.sleep(3600)

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        while not await counted(run, "step.completed"):
            await asyncio.sleep(0.001)
        await hf.advance("50m")
        assert not await counted(run, "tick")
        await hf.crash()
        await hf.advance("50m")
        assert (await run.info()).status == "running"
        await hf.advance("11m")
        await run.result(timeout=20)
        assert await counted(run, "tick") == 1


@pytest.mark.parametrize("way", ["timeout", "timeout_at", "wait_for"])
async def test_a_plain_timeout_replays_exactly(way):
    """asyncio.timeout, timeout_at and wait_for end the same way in every life, late or in time."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        for body in (hang, lambda: work("quick")):
            try:
                if way == "wait_for":
                    out.append(str(await asyncio.wait_for(body(), 30)))
                else:
                    at = asyncio.get_running_loop().time() + 30
                    async with asyncio.timeout(30) if way == "timeout" else asyncio.timeout_at(at):
                        out.append(str(await body()))
            except TimeoutError:
                out.append("late")
            out.append(await work("after"))
        await holdfast.receive("go")
        return out

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        while not hf.bodies[hang]:
            await asyncio.sleep(0.001)
        await hf.advance("31s")
        await run.wait("waiting")
        for _ in range(2):
            await hf.crash()
        await run.send("go")
        assert await run.result(timeout=20) == ["late", "after", "quick", "after"]
        assert await counted(run, "tick") == 1
        assert await counted(run, "step.cancelled") == 1


@pytest.mark.slow
def test_a_deadline_that_passed_during_a_step_stays_passed():
    """A deadline compared with the loop's time takes the same branch in every life, though replay takes no time."""

    @holdfast.agent
    async def agent() -> list[str]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 60
        await holdfast.sleep("2m")
        out = [f"{loop.time() - deadline >= 60}"]
        try:
            async with asyncio.timeout_at(deadline):
                out.append(await work("never"))
        except TimeoutError:
            out.append("late")
        try:
            await asyncio.wait_for(holdfast.receive("never"), deadline + 120 - loop.time())
        except TimeoutError:
            out.append("later")
        left = deadline + 120 - loop.time()
        out.append(f"{left <= 0}")
        return [*out, await work("end")]

    crash_everywhere(agent, ["True", "late", "later", "True", "end"])


async def test_time_stands_still_between_outcomes():
    """Between two outcomes the loop's time does not pass for agent code, so a slow machine takes no other branch."""

    @holdfast.agent
    async def agent() -> str:
        for _ in range(20):
            limit = asyncio.timeout(0.001)
            time.sleep(0.002)  # longer than the timeout: the first life must not find it passed already
            try:
                async with limit:
                    await holdfast.receive("never")
            except TimeoutError:
                pass
        return "end"

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.result(timeout=20)
        assert await counted(run, "tick") == 20


async def test_the_loops_time_is_the_same_on_replay():
    """loop.time() in agent code gives each life the same values, and never goes back."""
    seen: list[list[float]] = []

    @holdfast.agent
    async def agent() -> None:
        loop, values = asyncio.get_running_loop(), []
        seen.append(values)
        for n in range(6):
            values.append(loop.time())
            if n % 2:
                await asyncio.sleep(0.25)
            else:
                await holdfast.sleep("1h")
            values.append(loop.time())

    async with holdfast.testing.open(agents=[agent]) as hf:
        await (await hf.start(agent, id="r")).result(timeout=20)
    assert len(seen) == 4
    for earlier, later in zip(seen, seen[1:], strict=False):
        assert later[: len(earlier)] == earlier
    assert seen[-1] == sorted(seen[-1])
    assert seen[-1][-1] - seen[-1][0] >= 3 * 3600 + 0.75


@pytest.mark.slow
def test_handles_of_plain_timers():
    """call_later and call_at give handles that can be cancelled and asked, as asyncio's own."""

    @holdfast.agent
    async def agent() -> list[str]:
        loop, out = asyncio.get_running_loop(), []
        done = asyncio.Event()
        start = loop.time()
        first = loop.call_later(10, out.append, "first")
        second = loop.call_at(start + 5, out.append, "second")
        third = loop.call_later(7, out.append, "cancelled")
        loop.call_later(20, done.set)
        out.append(f"{first.when() - start:.0f} {second.when() - start:.0f} {third.cancelled()}")
        third.cancel()
        await done.wait()
        first.cancel()  # too late, and harmless
        out.append(f"{first.cancelled()} {second.cancelled()} {third.cancelled()}")
        await work("after")
        return out

    crash_everywhere(agent, ["10 5 False", "second", "first", "True False True"])


@pytest.mark.slow
def test_a_timer_set_by_a_timer():
    """A callback of a plain timer may set another one, and both replay in order."""

    @holdfast.agent
    async def agent() -> list[str]:
        loop, out, done = asyncio.get_running_loop(), [], asyncio.Event()

        def again(left: int) -> None:
            out.append(f"{left}")
            loop.call_later(1, again, left - 1) if left else done.set()

        loop.call_soon(again, 4)
        await done.wait()
        return [*out, await work("end")]

    crash_everywhere(agent, ["4", "3", "2", "1", "0", "end"])


async def test_an_error_in_a_timer_goes_to_the_loop():
    """An exception in a timer's callback goes to the loop's exception handler, and the run goes on."""
    problems = []

    @holdfast.agent
    async def agent() -> str:
        def broken() -> None:
            raise ValueError("from a timer")

        asyncio.get_running_loop().call_later(1, broken)
        await asyncio.sleep(2)
        return await work("went on")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with holdfast.testing.open(agents=[agent]) as hf:
        assert await (await hf.start(agent, id="r")).result(timeout=20) == "went on"
    assert [type(problem["exception"]) for problem in problems] == [ValueError]


async def test_ticks_race_in_recorded_order():
    """Which of two equal timers came first is recorded, and the same in every life."""
    seen: list[list[int]] = []

    @holdfast.agent
    async def agent() -> list[int]:
        out: list[int] = []
        seen.append(out)

        async def sleeper(n: int) -> None:
            await asyncio.sleep(0.01 * (n % 3))
            out.append(n)

        await asyncio.gather(*(sleeper(n) for n in range(9)))
        await holdfast.sleep("1h")
        return out

    async with holdfast.testing.open(agents=[agent]) as hf:
        result = await (await hf.start(agent, id="r")).result(timeout=20)
    assert len(seen) == 2
    assert seen[0] == seen[1] == result


async def test_a_timer_from_a_thread_is_refused():
    """A plain timer set by a thread of the agent is an error there: its place in the history would be chance."""
    problems = []

    @holdfast.agent
    async def agent() -> None:
        loop = asyncio.get_running_loop()

        def in_thread() -> None:
            try:
                loop.call_later(1, print)
            except holdfast.NotInRun as error:
                problems.append(str(error))

        await asyncio.to_thread(in_thread)

    async with holdfast.testing.open(agents=[agent]) as hf:
        await (await hf.start(agent, id="r")).result(timeout=20)
    assert len(problems) == 1
