"""Bundles that a trusted key signed and that say what no store would: refused at import, or borne by whoever goes on with them."""

import asyncio
import functools
import hashlib
import io
import json
import shutil
from pathlib import Path

import pytest
from tests.histories import agents
from tests.histories.record import HERE, bring_back_sqlite
from tests.histories.scenes import ALL
from tests.security.fuzzers.bundles import Apart, Bundles, borne, looked_at, places, unlogged

import holdfast
from holdfast.client.bundles import read_from
from holdfast.errors import BadBundle
from holdfast.store.bundles import SECTIONS
from holdfast.words.facts import misfit
from holdfast.words.model import FINISHED, KINDS

NESTED = '{"$blob":' + "[" * 60 + '"' + "0" * 64 + '"' + "]" * 60 + "}"


@pytest.fixture(scope="module")
def bundles():
    made = Bundles()
    yield made
    made.close()


def column(section, name):
    return list(SECTIONS[section]).index(name)


def said(made, section, name, value, **where):
    """Put another value into the column of the first row that has these."""
    row = next(
        row for row in made.rows[section] if all(row[column(section, each)] == wanted for each, wanted in where.items())
    )
    row[column(section, name)] = value(row[column(section, name)]) if callable(value) else value


def other_large(content):
    def harm(made):
        name = hashlib.sha256(content).hexdigest()
        said(made, "events", "blob", name, blob=made.rows["blobs"][0][0])
        made.content, made.rows["blobs"] = content, [[name, len(content)]]

    return harm


def named(data, **facts):
    return json.dumps(json.loads(data) | facts)


# What a hunt has found, and what is like it: (which bundle, what is done to it, what is said of it).
KEPT = {
    "a name that no reason of a pause can repeat": (
        0, lambda made: said(made, "events", "data", lambda data: named(data, name="\ud800"), kind="conversation.asked"),
        "'name' of its data is not what conversation.asked says",
    ),
    "a pause whose reason no database takes": (
        0, lambda made: said(made, "signals", "data", lambda data: named(data, by="\0"), kind="conversation.entered"),
        "'by' of its data is not what conversation.entered says",
    ),
    "an input that names no large value": (2, lambda made: said(made, "runs", "input", NESTED), "'input' is not what"),
    "an answer in time of need that is elsewhere": (
        2, lambda made: said(made, "approvals", "fallback", '{"$blob":"' + "0" * 64 + '"}'), "'fallback' is not what",
    ),
    "a large value that is no text": (0, other_large(b"\xff" * 9), "the large value is no JSON"),
    "a large value in another encoding": (0, other_large('"a"'.encode("utf-16")), "the large value is no JSON"),
    "a large value that is no value": (0, other_large(b"{"), "the large value is no JSON"),
    "a question that shows something else than the agent did": (
        3, lambda made: said(made, "approvals", "shown", '{"name":"eve"}'), "no run asks that",
    ),
    "a question that is for others": (3, lambda made: said(made, "approvals", "recipients", "[]"), "no run asks that"),
    "a question with other words": (3, lambda made: said(made, "approvals", "question", "Nice day?"), "no run asks that"),
    "a question with the digest of something else": (
        3, lambda made: said(made, "approvals", "digest", "0" * 32), "no run asks that",
    ),
    "a question that was edited, with the digest of something else": (
        3, lambda made: said(made, "approvals", "data", '{"name":"eve"}') or said(made, "approvals", "digest", "0" * 32),
        "no run asks that",
    ),
    "a question that nobody asks": (3, lambda made: said(made, "approvals", "id", "q-0"), "no run asks that"),
    "an event of a claim that never was": (
        0, lambda made: said(made, "events", "epoch", lambda epoch: epoch + 1_000), "written before the one before it, or after",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_once_is_refused(name, bundles):
    which, harm, why = KEPT[name]
    made = Apart.of(bundles.bases[which])
    harm(made)
    with pytest.raises(BadBundle, match=why):
        read_from(io.BytesIO(made.together(bundles.signer)), bundles.keys)


def test_the_last_event_of_a_claim_may_be_the_first_of_the_next(bundles):
    """Nobody who was not there could tell, so it is taken, and a worker goes on with it."""
    made = Apart.of(bundles.bases[0])
    epoch = column("runs", "lease_epoch")
    made.rows["runs"][0][epoch] += 1
    own = [row for row in made.rows["events"] if row[0] == made.rows["runs"][0][0]]
    own[-1][column("events", "epoch")] = made.rows["runs"][0][epoch]
    own[-2][column("events", "epoch")] = made.rows["runs"][0][epoch]
    content = made.together(bundles.signer)
    bundles.bear(read_from(io.BytesIO(content), bundles.keys), content)


# Events that lack a fact


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Every recorded run as a bundle, those that have not ended first; and the keys that sign them."""
    folder = tmp_path_factory.mktemp("recorded")
    keys = holdfast.Keys(folder / "keys")
    keys.new("ana")

    async def main():
        made = []
        for file in sorted(HERE.glob("*/sqlite.db.gz")):
            url = f"sqlite:{folder}/{file.parent.name}.db?durability=process"
            bring_back_sqlite(file, url)
            async with holdfast.open(url) as hf:
                for info in await hf.runs(limit=1000):
                    if info.parent is None:
                        content = io.BytesIO()
                        await hf.get(info.id).export(content, keys=keys)
                        made.append((info.status in FINISHED, content.getvalue()))
        return [content for _, content in sorted(made, key=lambda each: each[0])]

    return asyncio.run(main()), keys


def without(data, way):
    """The data without what is at the end of a way."""
    data = json.loads(json.dumps(data))
    *before, last = way
    del functools.reduce(lambda inner, name: inner[name], before, data)[last]
    return data


def lacking(bundles):
    """(kind, way of what an event lacks) -> bundles that nobody refuses for what that event says, up to some of each."""
    found, kinds, refused = {}, set(), 0
    for content in bundles:
        for place, row in enumerate(Apart.of(content).rows["events"]):
            if row[4] is None or row[9] is not None:
                continue
            kinds.add(row[2])
            data = json.loads(row[4])
            for way in places(data):
                name = (row[2], *("*" if isinstance(each, int) else each for each in way))
                less = without(data, way)
                if misfit(row[2], less) is not None:
                    refused += 1
                else:
                    found.setdefault(name, []).append((content, place, json.dumps(less, separators=(",", ":"))))
    assert kinds >= set(KINDS) - {"run.interrupted", "run.completed"}
    assert refused > 2_000
    return found


def read(keys, content, place, data):
    """The bundle whose event says this now, signed anew, as whoever trusts its key reads it; None if it is refused."""
    made = Apart.of(content)
    made.rows["events"][place][4] = data
    harmed = made.together(keys.own())
    try:
        return read_from(io.BytesIO(harmed), keys), harmed
    except BadBundle:
        return None, harmed


@pytest.mark.slow
def test_every_recorded_run_is_taken(recorded):
    """Those of older versions too, whose questions say less than those of today."""
    bundles, keys = recorded
    taken = [read_from(io.BytesIO(content), keys).found for content in bundles]
    assert sum(asked.status == "open" for found in taken for asked in found.questions) > 20


@pytest.mark.slow
def test_an_event_that_lacks_a_fact_is_refused_or_can_be_read(recorded):
    bundles, keys = recorded
    cases = {name: found[0] for name, found in lacking(bundles).items() if len(name) == 2}
    assert len(cases) > 80
    for name, (content, place, data) in cases.items():
        taken, _ = read(keys, content, place, data)
        if taken is not None:
            used = {run.agent for run in taken.found.runs}
            with unlogged() as logged:
                asyncio.run(looked_at(taken, [agent for agent in ALL if agent.name in used]))
            assert not logged, (name, logged[0])


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_an_event_that_lacks_a_fact_is_refused_or_borne(recorded, tmp_path, monkeypatch):
    """A worker goes on with it: up to three events of each kind and lack, of what is inside a fact too."""
    bundles, keys = recorded
    monkeypatch.setattr(agents, "going", True)

    async def empty():
        async with holdfast.open(f"sqlite:{tmp_path}/empty.db"):
            pass

    asyncio.run(empty())
    for name, found in lacking(bundles).items():
        for content, place, data in found[:3]:
            taken, harmed = read(keys, content, place, data)
            if taken is not None:
                folder = Path(tmp_path / "store")
                folder.mkdir()
                shutil.copy(tmp_path / "empty.db", folder / "b.db")
                with unlogged() as logged:
                    asyncio.run(borne(taken, harmed, folder, keys, ALL))
                assert not logged, (name, logged[0])
                shutil.rmtree(folder)
