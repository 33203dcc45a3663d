"""What commands and servers see of a worker beside its journals."""

import asyncio

import holdfast
from holdfast.client.edge import Edge

GOES_ON = asyncio.Event()


@holdfast.step
async def takes_its_time(what: str) -> str:
    await GOES_ON.wait()
    return what


@holdfast.agent
async def busy() -> str:
    return await takes_its_time("tea")


async def test_the_steps_whose_bodies_run_now_are_listed_until_they_end(tmp_path):
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db", agents=[busy]) as hf:
        run = await hf.start(busy, id="b")
        while not (found := Edge(hf).open_calls()):
            await asyncio.sleep(0.01)
        (call,) = found["b"]
        assert (call.name, call.input) == ("takes_its_time", "what='tea'")
        assert call.began > 0
        GOES_ON.set()
        assert await run.result() == "tea"
        assert Edge(hf).open_calls() == {}
