"""What anyio, which frameworks are built on, puts around agent code: its groups, scopes, deadlines and streams."""

import asyncio

import pytest
from tests.engine.lives import history

import holdfast
import holdfast.testing

anyio = pytest.importorskip("anyio")


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.step
async def slow(what: str) -> str:
    await asyncio.sleep(0.003)
    return what


def crash_everywhere(agent, expected):
    """Run the agent with a crash at each commit: the keys of what each of these runs has recorded, in its order."""

    async def main():
        recorded = []
        async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == expected
            assert not await history(run, "foreign")
            recorded.append([event.key for event in await history(run, "step.completed", "tick")])
        return recorded

    return asyncio.run(main())


@pytest.mark.slow
def test_anyio_task_groups():
    """A task group of anyio gives its tasks keys of their own, and a failure in one cancels the others."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []

        async def one(n: int) -> None:
            out.append(await slow(f"{n}.1"))
            out.append(await slow(f"{n}.2"))

        async with anyio.create_task_group() as group:
            for n in range(3):
                group.start_soon(one, n)

        async def fails() -> None:
            await work("about to fail")
            raise ValueError("one of them")

        async def waits() -> None:
            await holdfast.receive("never")

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(waits)
                group.start_soon(fails)
        except* ValueError as errors:
            out.append(str(errors.exceptions[0]))
        out.append(await work("end"))
        return sorted(out)

    expected = sorted([*(f"{n}.{m}" for n in range(3) for m in (1, 2)), "one of them", "end"])
    keys = {f"_run_coro#{n}/slow#{m}" for n in range(3) for m in range(2)} | {"_run_coro#4/work#0", "work#0"}
    for recorded in crash_everywhere(agent, expected):
        assert (len(recorded), set(recorded)) == (8, keys)


@pytest.mark.slow
def test_anyio_deadlines():
    """move_on_after and fail_after are plain timers: replayed exactly, the inner before the outer."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        with anyio.move_on_after(60) as scope:
            await holdfast.receive("never")
        out.append(f"moved on {scope.cancelled_caught}")
        try:
            with anyio.fail_after(30):
                with anyio.move_on_after(10):
                    await holdfast.receive("never")
                out.append(await work("after the inner"))
                await anyio.sleep(3600)
        except TimeoutError:
            out.append("failed")
        with anyio.move_on_after(30):
            out.append(await work("in time"))
        return [*out, await work("end")]

    recorded = crash_everywhere(agent, ["moved on True", "after the inner", "failed", "in time", "end"])
    assert recorded == [[":tick#0", ":tick#2", "work#0", ":tick#1", "work#1", "work#2"]] * len(recorded)


def test_anyio_cancellation_from_inside():
    """A scope that is cancelled by its own task ends at the next wait, and that is nobody else's doing."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            out.append(await work("never"))
        with anyio.CancelScope() as scope:
            try:
                await work("first")
                scope.cancel()
                await holdfast.receive("never")
            finally:
                with anyio.CancelScope(shield=True):
                    out.append(await work("clean up"))
        return [*out, await work("end")]

    recorded = crash_everywhere(agent, ["clean up", "end"])
    assert recorded == [["work#1", "work#2", "work#3"]] * len(recorded)  # the first call was never made


def test_anyio_streams_and_locks():
    """Memory streams, events and limiters of anyio hand over in the same order in every life."""
    seen: list[list[str]] = []

    @holdfast.agent
    async def agent() -> list[str]:
        got: list[str] = []
        seen.append(got)
        send, receive = anyio.create_memory_object_stream[str](1)
        limiter = anyio.Semaphore(2)

        async def produce(n: int) -> None:
            async with limiter:
                await send.send(await slow(f"{n}"))

        async with send, receive, anyio.create_task_group() as group:
            for n in range(5):
                group.start_soon(produce, n)
            for _ in range(5):
                got.append(await receive.receive())
                await work(got[-1])
                if len(got) == 3:
                    await holdfast.sleep("1h")
        return got

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            result = await run.result(timeout=20)
            assert sorted(result) == list("01234")
            assert not await history(run, "foreign")
            return result

    result = asyncio.run(main())
    assert len(seen) >= 2
    for life in seen:
        assert life == result[: len(life)]
