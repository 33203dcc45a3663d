"""Outlines of whole runs: groups of calls, kept up to date, folded anew after a retry, and quick for huge histories."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3

import pytest
from tests.turns import counted_turns

import holdfast
from holdfast import BadArguments, UnknownRun

HUGE = 100_000


@holdfast.step(retry=holdfast.Retry(attempts=3, first="1ms"))
async def reads(n: int) -> int:
    if n == 3 and holdfast.this_step().attempt == 1:
        raise OSError("again")
    return n


@holdfast.agent
async def reader(name: str) -> None:
    async def branch(first: int) -> None:
        for n in range(first, first + 2):
            await reads(n)

    for n in range(5):
        await reads(n)
    async with asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(branch(10 * n), name="branch")
    await holdfast.receive("go", str)
    await holdfast.note(name)


async def test_an_outline_grows_with_its_run(store_url):
    """Calls and tasks in groups; what came since is added, and a run that ended has an end."""
    async with holdfast.open(store_url, agents=[reader]) as hf:
        run = await hf.start(reader, "x", id="r")
        await run.wait("waiting", waits_for="message", timeout=20)
        first = await run.outline(buckets=12)
        told = {group.key: (group.kind, group.count, group.running) for group in first.groups}
        assert told["reads"] == ("step", 5, 0)
        assert [key for key in told if key.startswith("branch")] == ["branch#0/", "branch#1/", "branch#2/"]
        assert first.ended is None and all(len(group.density) == 12 for group in first.groups)
        (reading,) = [group for group in first.groups if group.key == "reads"]
        assert sum(reading.density) == 5 and reading.attempts == 6
        assert [call.key for call in reading.again] == ["reads#3"] and reading.again[0].attempts == 2
        assert len(reading.slowest) == 5 and reading.slowest[0].ms == max(call.ms for call in reading.slowest)
        inside = await run.outline(under="branch#1/")
        assert [(group.key, group.count) for group in inside.groups] == [("branch#1/reads", 2)]
        await run.send("go", "on")
        await run.result(timeout=20)
        last = await run.outline(buckets=12)
        assert last.ended is not None and last.calls == first.calls + 1 == 12
        assert last.events > first.events
        assert {group.key for group in last.groups} - {group.key for group in first.groups} == {":note"}
        for wrong in ({"buckets": 0}, {"buckets": 1_001}, {"buckets": "x"}, {"under": "\0"}, {"under": "x" * 10_001}):
            with pytest.raises(BadArguments):
                await run.outline(**wrong)
        with pytest.raises(UnknownRun):
            await hf.get("none").outline()
        assert (await run.outline(under="nowhere/")).groups == ()


@holdfast.step
async def may_fail(n: int) -> int:
    if n == 2 and not FIXED:
        raise ValueError("broken")
    return n


FIXED: list[int] = []


@holdfast.agent
async def fails() -> int:
    return sum([await may_fail(n) for n in range(4)])


async def test_what_a_retry_takes_out_is_not_in_the_outline(store_url):
    FIXED.clear()
    async with holdfast.open(store_url, agents=[fails]) as hf:
        run = await hf.start(fails, id="f")
        await run.wait("failed", timeout=20)
        (group,) = (await run.outline()).groups
        assert (group.count, group.failed) == (3, 1)
        FIXED.append(1)
        await run.retry(by="ana")
        await run.result(timeout=20)
        (group,) = (await run.outline()).groups
        assert (group.count, group.failed) == (4, 0)
        fresh = holdfast.open(store_url)
        async with fresh:
            assert (await fresh.get("f").outline()).groups == (await run.outline()).groups


def grow(path, run, events):
    """Write a long history straight into the file of a store that nobody has open."""
    with contextlib.closing(sqlite3.connect(path, timeout=20)) as db, db:
        ((first, began),) = db.execute("SELECT next_seq, created_at FROM runs WHERE id = ?", (run,)).fetchall()
        ((position,),) = db.execute("SELECT coalesce(max(position), 0) FROM events").fetchall()
        rows = (
            (position + 1 + n, run, first + n, "step.completed", f"task#{n % 100}/read#{n // 100}",
             json.dumps({"name": "read", "began": began + n, "digest": "0" * 32, "input": f"n={n}"}), str(n), 1, began + n + 5)
            for n in range(events)
        )  # fmt: skip
        db.executemany(
            "INSERT INTO events (position, run_id, seq, kind, key, data, value, epoch, at) VALUES (?,?,?,?,?,?,?,?,?)",
            rows,
        )
        db.execute("UPDATE runs SET next_seq = ? WHERE id = ?", (first + events, run))


@pytest.mark.slow
async def test_a_huge_history_is_outlined_without_keeping_the_loop(tmp_path, monkeypatch):
    """A hundred thousand events are read once, and others are served all the while."""
    url = f"sqlite:{tmp_path}/runs.db"
    async with holdfast.open(url, agents=[reader]) as hf:
        await (await hf.start(reader, "x", id="r")).wait("waiting", waits_for="message", timeout=20)
    grow(tmp_path / "runs.db", "r", HUGE)
    async with holdfast.open(url) as hf:
        run = hf.get("r")
        async with counted_turns() as turns:
            whole = await run.outline()
        assert turns.count > 100 and turns.longest_s < 1  # measured: 90 ms
        monkeypatch.setattr(hf.store, "outline", None)  # the history is not read again
        assert whole.events == (await run.outline()).events > HUGE
        (group,) = [each for each in whole.groups if each.key == "task/"]
        assert group.count == HUGE and sum(group.density) == HUGE
