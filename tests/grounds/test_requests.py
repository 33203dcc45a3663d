"""Requests to pause, to go on and to stop that come close together, on Temporal with a database beside it."""

from urllib.parse import quote

import pytest
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@holdfast.step
async def work(n: int) -> int:
    return n


@holdfast.agent
async def waiter() -> str:
    await work(1)
    return await holdfast.receive("go", str)


@pytest.fixture
def url(temporal_url, postgres_url):  # noqa: F811
    return f"{temporal_url}&side={quote(postgres_url, safe='')}"


@pytest.mark.slow
async def test_a_pause_that_was_not_carried_out_yet_is_called_off(url):
    async with holdfast.open(url, agents=[waiter], settings=QUICK) as hf:
        for _ in range(5):
            run = await hf.start(waiter)
            await run.pause(by="ana")
            await run.resume(by="ana")
            await run.send("go", "on")
            assert await run.result(timeout="30s") == "on"


@pytest.mark.slow
async def test_a_pause_that_no_worker_has_heard_of_is_called_off(url):
    async with holdfast.open(url) as hf:
        run = await hf.start(waiter)
        await run.pause(by="ana")
        await run.resume(by="ana")
        with pytest.raises(holdfast.RunActive):
            await run.resume(by="ana")
        await run.send("go", "on")
        async with holdfast.open(url, agents=[waiter], settings=QUICK):
            assert await run.result(timeout="30s") == "on"


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "pause", "paused", "resume"])
async def test_a_run_says_who_cancelled_it(url, before):
    async with holdfast.open(url, agents=[waiter], settings=QUICK) as hf:
        for _ in range(3):
            run = await hf.start(waiter)
            if before != "nothing":
                await run.pause(by="ana")
            if before == "paused":
                await run.wait("paused", timeout="30s")
            if before == "resume":
                await run.resume(by="ana")
            await run.cancel(by="ana")
            await run.wait("cancelled", timeout="30s")
            assert (await run.info()).reason == "cancelled by ana"


@pytest.mark.slow
async def test_a_run_that_was_cancelled_before_a_worker_took_it_says_by_whom(url):
    async with holdfast.open(url) as hf:
        run = await hf.start(waiter)
        await run.cancel(by="ana")
        async with holdfast.open(url, agents=[waiter], settings=QUICK):
            await run.wait("cancelled", timeout="30s")
        assert (await run.info()).reason == "cancelled by ana"
