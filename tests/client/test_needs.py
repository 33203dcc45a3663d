"""What needs a person, and how many runs there are, on both stores."""

from __future__ import annotations

import asyncio
import os
import sys

import apsw
import pytest
from tests.client.test_filters import AGENTS, ends, mails, old, settled, waits

import holdfast
from holdfast import Actor

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_counts_are_those_of_lists"}


@holdfast.step(in_doubt="ask")
async def charges() -> None:
    os.kill(os.getpid(), 9)


@holdfast.agent
async def buys() -> None:
    await charges()


async def test_counts_are_those_of_lists(store_url: str) -> None:
    """By state, with any filter, with how many need a person; unfiltered ones come from indexes alone."""
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        empty = await hf.run_counts()
        assert (set(empty.counts.values()), empty.needs, empty.exact) == ({0}, 0, True)
        for what in ("person", "timer", "child"):
            await hf.start(waits, what, id=what)
        await hf.start(ends, 1, id="done")
        await hf.start(ends, -1, id="failed")
        await hf.start(mails, 3.0, id="dear")
        await hf.start(old, 1, id="unserved")
        await settled(hf)
        await hf.get("timer").pause(by="ana")
        for which in (
            {}, {"root": True}, {"agent": "waits"}, {"agent": ["ends", "mails"]}, {"queue": "mail"}, {"cost": 1},
            {"parent": "child"}, {"waits_for": "timer"}, {"needs": True}, {"stuck": True}, {"since": "1h", "search": "e"},
            {"status": ["failed", "paused"]},
            {"status": "completed"}, {"version": "7"}, {"needs": False},
        ):  # fmt: skip
            found, listed = await hf.run_counts(**which), await hf.runs(**which)
            for status, count in found.counts.items():
                assert count == sum(info.status == status for info in listed), which
            assert found.needs == len(await hf.runs(**{**which, "needs": True})) or which == {"needs": False}, which
            assert found.exact


async def test_many_that_have_ended_are_counted_in_no_time(tmp_path) -> None:
    """Of more than 100,000 of one end it is said that there are more; so it is of more than 20,000 that a filter looks at."""
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        apsw.Connection(f"{tmp_path}/runs.db").execute(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100500)"
            "INSERT INTO runs (id, uid, agent, status, input, queue, root_id, labels, created_at, updated_at, finished_at)"
            "SELECT 'run-' || n, 'u', 'agent', CASE WHEN n > 100 THEN 'completed' ELSE 'failed' END, '{}', 'default', 'run-' || n,"
            " '{}', n, n, n FROM n"
        )
        found = await hf.run_counts()
        assert (found.counts["completed"], found.counts["failed"], found.exact) == (100_000, 100, False)
        found = await hf.run_counts(root=True)
        assert (found.counts["completed"], found.counts["failed"], found.exact) == (20_000, 100, False)
        assert (await hf.run_counts(status="failed", agent="agent")).exact


async def test_questions_come_first_and_what_one_worker_mends_is_one_thing(store_url: str) -> None:
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        assert await hf.needs() == holdfast.Needs((), 0)
        await hf.start(waits, "person", id="person", labels={"team": "night"})
        for number in range(3):
            await hf.start(old, number, id=f"unserved-{number}")
        await hf.start(waits, "timer", id="timer")
        await settled(hf)
        await hf.get("timer").pause(by="ana", reason="too dear")
        found = await hf.needs(by="ana")
        assert [(need.kind, need.run, need.count, need.mine) for need in found.needs] == [
            ("question", "person", 1, True), ("unserved", "unserved-0", 3, False), ("paused", "timer", 1, False),
        ]  # fmt: skip
        assert (found.total, found.runs) == (3, 5) == (3, (await hf.run_counts()).needs)
        question, unserved, paused = found.needs
        (asked,) = await hf.approvals()
        assert (question.approval, question.to, question.text) == (asked.id, ("ana",), "Go on?")
        assert (unserved.agent, unserved.version) == ("old", "7")
        assert "version 7 of 'old'" in unserved.text
        assert "too dear" in paused.detail
        others = await hf.needs(by=Actor("bo"))
        assert [need.kind for need in others.needs] == ["unserved", "paused", "question"]
        assert not others.needs[-1].mine
        short = await hf.needs(1, by="ana")
        assert ([need.kind for need in short.needs], short.total) == (["question"], 3)
        assert [need.run for need in (await hf.needs(labels={"team": "night"})).needs] == ["person"]


@holdfast.agent
async def leads() -> None:
    async with asyncio.TaskGroup() as group:
        for n in range(2):
            group.create_task(waits("timer" if n else "person"), name=f"part-{n}")


async def test_a_run_stands_once_among_what_needs_a_person(store_url: str) -> None:
    """A family that was paused together is one thing, which one resume mends; and a question says that its run is paused."""
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=[*AGENTS, leads], settings=settings) as hf:
        await hf.start(leads, id="family")
        await hf.start(waits, "person", id="alone")
        await settled(hf)
        for id in ("family", "alone"):
            await hf.get(id).pause(by="ana", reason="lunch")
        await settled(hf)
        found = await hf.needs(by="ana")
        told = [(each.kind, each.run, each.count) for each in found.needs]
        below = next(each.run for each in found.needs if each.kind == "question" and each.run != "alone")
        assert sorted(told) == [("paused", "family", 3), ("question", "alone", 1), ("question", below, 1)]
        assert all(each.detail.endswith(", paused") for each in found.needs if each.kind == "question")
        assert found.runs == 4 == (await hf.run_counts()).needs


async def test_a_step_in_doubt_needs_a_person(store_url: str) -> None:
    """Its process was killed in the middle of a step that asks."""
    script = (
        "import asyncio, sys, holdfast\n"
        "from tests.client import test_needs as t\n"
        "async def main():\n"
        "    async with holdfast.open(sys.argv[1], agents=[t.buys]) as hf:\n"
        "        await hf.run(t.buys, id='b')\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, store_url, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert await process.wait() == -9
    async with holdfast.open(store_url, agents=[buys]) as hf:
        async with asyncio.timeout(30):
            while not await hf.approvals():
                await asyncio.sleep(0.02)
        (need,) = (await hf.needs(by="ana")).needs
        assert (need.kind, need.run, need.mine) == ("in_doubt", "b", True)


@pytest.mark.parametrize("limit", [-1, "x"])
async def test_a_limit_that_is_none_is_refused(store_url: str, limit) -> None:
    async with holdfast.open(store_url) as hf:
        with pytest.raises(holdfast.BadArguments, match="limit="):
            await hf.needs(limit)
