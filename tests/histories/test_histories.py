"""Stores that older versions left, with runs of every kind in them, killed in the middle: this version goes on with them."""

import asyncio
import gzip
import json
from pathlib import Path

import apsw
import pytest
from tests.histories import agents
from tests.histories.record import _connected, bring_back, go_on
from tests.histories.scenes import SCENES, start

import holdfast
from holdfast.model import KINDS

SINCE = {"step.progress"}  # kinds of events that are younger than the first recorded histories
FILES = sorted(Path(__file__).parent.glob("*/*.gz"))
EVENTS = "SELECT run_id, seq, kind, key, data, value, blob, at, epoch FROM events WHERE run_id <> ''"


def kind_of(file):
    return file.name.partition(".")[0]


@pytest.fixture(params=FILES, ids=lambda file: f"{file.parent.name}-{kind_of(file)}")
def history(request, tmp_path):
    """A recorded file, and the URL of a store that was made of it."""
    file = request.param
    sqlite = kind_of(file) == "sqlite"
    url = f"sqlite:{tmp_path}/old.db?durability=process" if sqlite else request.getfixturevalue("postgres_url")
    asyncio.run(bring_back(file, url))
    return file, url


async def recorded(url):
    """The events of a store, by run and number."""
    if url.startswith("sqlite:"):
        db = apsw.Connection(url.removeprefix("sqlite:").partition("?")[0])
        rows = db.execute(EVENTS).fetchall()
        db.close()
    else:
        connection, _ = await _connected(url)
        rows = [tuple(row) for row in await connection.fetch(EVENTS)]
        await connection.close()
    return {row[:2]: row for row in rows}


def test_every_run_ends_as_it_would_have_with_the_version_that_began_it(history):
    file, url = history

    async def main():
        before = await recorded(url)
        return before, await go_on(url), await recorded(url)

    before, ended, after = asyncio.run(main())
    wanted = json.loads(file.with_name(f"{kind_of(file)}.ended.json").read_text())
    assert ended["runs"] == wanted["runs"]
    assert ended["bodies"] == wanted["bodies"]  # the same bodies under the same idempotency keys, and no others
    assert {key: after.get(key) for key in before} == before  # a journal is only ever added to
    assert len(after) > len(before)


def test_starting_a_recorded_run_again_is_that_run(history):
    async def main():
        async with holdfast.open(history[1]) as hf:
            return [(await start(hf, name)).created for name in SCENES]

    assert not any(asyncio.run(main()))


def test_recorded_runs_can_be_looked_at(history):
    async def main():
        async with holdfast.open(history[1]) as hf:
            infos = await hf.runs(limit=1000)
            for info in infos:
                run = hf.get(info.id)
                seqs = [event.seq async for event in run.events(follow=False)]
                assert seqs == sorted(set(seqs))
                assert (seqs[-1] if seqs else -1) == (await run._row()).next_seq - 1
                assert isinstance(await run.arguments(), dict)
            return len(infos), len(await hf.approvals()), len(await hf.audit(limit=1000))

    runs, open_questions, deeds = asyncio.run(main())
    assert runs >= len(SCENES)
    assert open_questions >= 5
    assert deeds >= 10


def test_every_kind_of_event_is_in_a_history_of_each_store():
    for kind in ("sqlite", "postgres"):
        found = set()
        for file in FILES:
            if kind_of(file) == kind:
                text = gzip.decompress(file.read_bytes())
                found |= {name for name in KINDS if name.encode() in text}
        assert set(KINDS) - found <= SINCE, kind


def test_every_agent_that_was_recorded_is_still_here():
    assert {scene.agent.name for scene in SCENES.values()} <= {agent.name for agent in agents.ALL}
