"""Bodies of plain functions that wait for a free thread."""

import asyncio
import threading

import holdfast


async def test_a_body_in_line_does_not_begin_when_nobody_wants_it(tmp_path):
    """Of two bodies and one thread the second waits; its run is cancelled, the thread becomes free, and it never begins."""
    begun, end = [], threading.Event()

    @holdfast.step
    def kept(name: str) -> str:
        begun.append(name)
        assert name != "first" or end.wait(20)
        return name

    @holdfast.agent(name="threads-kept")
    async def agent(name: str) -> str:
        return await kept(name)

    settings = holdfast.Settings(threads=1)
    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[agent], settings=settings) as hf:
        first = await hf.start(agent, "first")
        while not begun:
            await asyncio.sleep(0.005)
        second = await hf.start(agent, "second")
        while not hf._worker.threads._work_queue.qsize():
            await asyncio.sleep(0.005)
        await second.cancel(by="ana")
        assert (await second.wait("cancelled", timeout=20)).status == "cancelled"
        end.set()
        assert await first.result(timeout=20) == "first"
        assert await (await hf.start(agent, "third")).result(timeout=20) == "third"
    assert begun == ["first", "third"]
