"""Stores that older versions left, with runs of every kind in them, killed in the middle: this version goes on with them."""

import asyncio
import functools
import gzip
import json
import re
from pathlib import Path

import apsw
import pytest
from tests.histories import agents
from tests.histories.record import _connected, bring_back, go_on
from tests.histories.scenes import ALL, SCENES, start

import holdfast
from holdfast.words.facts import NEEDED, misfit
from holdfast.words.model import KINDS

OUTSIDE = {"on", "open", "restore_backup"}  # public functions that no agent calls
NOTES = ("$unset", "$of", "$default", "$names", "whole_digest", "lean_digest")
FILES = sorted(Path(__file__).parent.glob("*/*.gz"))
EVENTS = "SELECT run_id, seq, kind, key, data, value, blob, at, epoch FROM events WHERE run_id <> ''"


def kind_of(file):
    return file.name.partition(".")[0]


def ended_then(file):
    """How the version that recorded it ended its runs."""
    return json.loads(file.with_name(f"{kind_of(file)}.ended.json").read_text())


@functools.cache
def events_of(file):
    """(run, kind, data) of every event that was recorded."""
    content = gzip.decompress(file.read_bytes())
    if kind_of(file) == "postgres":
        rows = [json.loads(row) for row in json.loads(content)["events"]]
        return [(row["run_id"], row["kind"], row["data"] or "{}") for row in rows if row["run_id"]]
    db = apsw.Connection(":memory:")
    db.deserialize("main", content)
    return db.execute("SELECT run_id, kind, coalesce(data, '{}') FROM events WHERE run_id <> ''").fetchall()


def facts(events):
    """By kind: the names of what every event of it says."""
    found = {}
    for kind, data in events:
        names = set(json.loads(data or "{}")) - {"worker"}  # which the first event of each claim has, of whatever kind
        found[kind] = found.get(kind, names) & names
    return found


@pytest.fixture(params=FILES, ids=lambda file: f"{file.parent.name}-{kind_of(file)}")
def history(request, tmp_path):
    """A recorded file, and the URL of a store that was made of it."""
    file = request.param
    sqlite = kind_of(file) == "sqlite"
    url = f"sqlite:{tmp_path}/old.db?durability=process" if sqlite else request.getfixturevalue("postgres_nothing")
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


def once(bodies):
    """A serializable transaction that the database ended is run again, and counts once."""
    return [body for place, body in enumerate(bodies) if body[1] != "insert_late" or body not in bodies[:place]]


@pytest.mark.by_day("*-sqlite", "*-events-postgres")
def test_every_run_ends_as_it_would_have_with_the_version_that_began_it(history):
    file, url = history

    async def main():
        before = await recorded(url)
        return before, await go_on(url), await recorded(url)

    before, ended, after = asyncio.run(main())
    wanted = ended_then(file)
    assert ended["runs"] == wanted["runs"]
    # The same bodies under the same idempotency keys, and no others.
    assert once(ended["bodies"]) == once(wanted["bodies"])
    assert {key: after.get(key) for key in before} == before  # a journal is only ever added to
    assert len(after) > len(before)
    said = facts((row[2], row[4]) for row in before.values())
    says = facts((row[2], row[4]) for key, row in after.items() if key not in before)
    lost = {kind: said[kind] - names for kind, names in says.items() if not said.get(kind, names) <= names}
    assert not lost, "events say less than they did"


async def test_starting_a_recorded_run_again_is_that_run(history):
    async with holdfast.open(history[1]) as hf:
        returned = [(await start(hf, name)).created for name in SCENES if name in ended_then(history[0])["runs"]]
    assert not any(returned)


async def test_recorded_runs_can_be_looked_at(history):
    async with holdfast.open(history[1]) as hf:
        infos = await hf.runs(limit=1000)
        for info in infos:
            run = hf.get(info.id)
            seqs = [event.seq async for event in run.events(follow=False)]
            assert seqs == sorted(set(seqs))
            assert (seqs[-1] if seqs else -1) == (await run._row()).next_seq - 1
            assert isinstance(await run.arguments(), dict)
        returned = len(infos), len(await hf.approvals()), len(await hf.audit(limit=1000))
    runs, open_questions, deeds = returned
    assert runs == len(ended_then(history[0])["runs"])
    assert open_questions >= 5
    assert deeds >= 10


def test_a_store_of_then_opens_and_is_like_a_new_one(history, tmp_path):
    file, url = history

    async def main():
        async with holdfast.open(url, agents=[agents.finished]) as hf:
            run = await hf.start(agents.finished, "new", id="new")
            assert await run.result() == agents.Order("new")
            secret = ended_then(file).get("token", "")
            token = await hf.token_of(secret)
            assert (token and token.name) == ("ana" if secret else None)
        return await columns(url)

    async def fresh():
        new = f"sqlite:{tmp_path}/new.db" if url.startswith("sqlite:") else f"{url}_new"  # another schema
        async with holdfast.open(new):
            pass
        return await columns(new)

    then, now = asyncio.run(main()), asyncio.run(fresh())
    assert now <= then


async def columns(url):
    """Every column of every table, with its type."""
    if url.startswith("sqlite:"):
        db = apsw.Connection(url.removeprefix("sqlite:").partition("?")[0])
        text = "SELECT t.name, c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'"
        found = set(db.execute(text))
        db.close()
        return found
    connection, schema = await _connected(url)
    text = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = $1"
    found = {tuple(row) for row in await connection.fetch(text, schema)}
    await connection.close()
    return found


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_kind_of_event_is_in_a_history(store):
    found = {kind for file in FILES if kind_of(file) == store for _, kind, _ in events_of(file)}
    lacking = sorted(set(KINDS) - found)
    assert not lacking, f"{lacking}: add a scene that has them, and record it (python -m tests.histories.record NAME)"


def test_every_event_that_was_recorded_says_what_its_kind_needs():
    events = [(kind, data) for file in FILES for _, kind, data in events_of(file)]
    wrong = [(kind, misfit(kind, json.loads(data)), data) for kind, data in events]
    assert [each for each in wrong if each[1] is not None] == []
    assert len(events) > 2000 and NEEDED.keys() <= KINDS.keys()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_sixty_runs_with_values_of_every_note_are_recorded(store):
    files = [file for file in FILES if kind_of(file) == store]
    texts = [gzip.decompress(file.read_bytes()) for file in files]
    assert max(len(ended_then(file)["runs"]) for file in files) >= 60
    assert [note for note in NOTES if not any(note.encode() in text for text in texts)] == []


def test_every_verb_is_in_an_agent_that_is_recorded():
    code = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("agents*.py"))
    verbs = {name for name in holdfast.__all__ if name.islower()} - OUTSIDE
    assert sorted(verbs - set(re.findall(r"\bholdfast\.(\w+)", code))) == []


def test_every_agent_that_was_recorded_is_still_here():
    assert {scene.agent.name for scene in SCENES.values()} <= {agent.name for agent in ALL}
