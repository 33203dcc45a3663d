"""Followers of the feed of cells over HTTP: each goes on where it was, whoever else follows beside it."""

import asyncio
import contextlib

import pytest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds.test_cells_feed import many, run_in
from tests.http.site import followed, served

pytestmark = pytest.mark.slow
RUNS = 4


async def test_a_follower_that_comes_back_is_told_everything_once_beside_another(cells_url):  # noqa: F811
    async with served(cells_url, agents=[many]) as site, asyncio.timeout(60):
        names = [run_in(site.hf, cell, n) for cell in "ab" for n in range(RUNS // 2)]

        async def stays():
            async with contextlib.aclosing(followed(site.web, "/api/events", 0)) as feed:
                async for _, event in feed:
                    assert event

        async def comes_back():
            told, last, ended = [], 0, 0
            while ended < RUNS:
                left = 15
                async with contextlib.aclosing(followed(site.web, "/api/events", last)) as feed:
                    async for place, event in feed:
                        last = place
                        told.append((event["run"], event["seq"]))
                        ended += event["kind"] == "run.completed"
                        left -= 1
                        if not left or ended == RUNS:
                            break
            return told

        staying, coming = asyncio.create_task(stays()), asyncio.create_task(comes_back())
        for name in names:
            await site.hf.start(many, id=name)
        told = await coming
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)
        happened = {(name, event.seq) for name in names async for event in site.hf.get(name).events(follow=False)}
        assert len(told) == len(set(told))
        assert set(told) == happened
