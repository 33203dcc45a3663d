"""Histories of older versions: each run of them is replayed by this version's code, and found to fit it."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.histories import agents
from tests.histories.record import bring_back
from tests.histories.scenes import ALL

import holdfast

FILES = sorted((Path(__file__).parents[1] / "histories").glob("*/*.gz"))


@pytest.fixture(params=FILES, ids=lambda file: f"{file.parent.name}-{file.name.partition('.')[0]}")
def store(request, tmp_path):
    """A store that was made of a recording, and how its runs ended."""
    file = request.param
    sqlite = file.name.startswith("sqlite")
    url = f"sqlite:{tmp_path}/old.db?durability=process" if sqlite else request.getfixturevalue("postgres_nothing")
    asyncio.run(bring_back(file, url))
    runs = json.loads(file.with_name(f"{file.name.partition('.')[0]}.ended.json").read_text())["runs"]
    return url, runs


@pytest.mark.by_day("*-sqlite")
async def test_every_recorded_run_is_checked_and_replayed(store):
    url, runs = store
    agents.ledger.clear()
    async with holdfast.open(url) as hf:
        hf.store.refuses = "it is only looked at"
        checked = await hf.check(ALL, finished=1000)
        wrong = {found.run: (found.verdict, found.reason) for found in checked.replays if not found.fits}
        # It is paused because its code is about to do raw I/O, and a replay comes to the same line.
        assert wrong.pop("strict", ("unsure", ""))[0] == "unsure"
        assert wrong == {}
        assert {found.run for found in checked.replays} == set(runs)
        for run in runs:
            found = await hf.replay(run, ALL)
            assert found.fits or run == "strict", (run, found.reason)
    assert not agents.ledger


@pytest.mark.by_day("*-sqlite")
async def test_every_recorded_run_is_replayed_up_to_its_middle(store):
    """Wherever a replay is told to stop, the code fits what came before."""
    url, runs = store
    async with holdfast.open(url) as hf:
        for run in sorted(runs)[::7]:
            last = max([event.seq async for event in hf.get(run).events(follow=False)], default=-1)
            for to in range(0, last + 1, max(1, last // 3)):
                found = await hf.replay(run, ALL, to=to)
                assert found.fits, (run, to, found.reason)
