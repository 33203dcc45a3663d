"""The present of runs: what lists say they do or wait for now, on both stores and from any process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.agents.runs import Gate

import holdfast
from holdfast import Doing, Retry, RunInfo
from holdfast.store.calls import news_of

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_killed_worker_tells_nothing_any_more",
    "test_a_list_tells_plans_failures_and_numbers",
}

gate = Gate()


@pytest.fixture(autouse=True)
def shut():
    gate.__init__()  # in the loop of this test


@holdfast.step
async def fetch(url: str) -> str:
    await gate()
    return url


@holdfast.step
async def quick(number: int) -> int:
    return number


@holdfast.step(retry=Retry(8, first="1h", max="1h"))
async def stumbles(url: str) -> str:
    raise ConnectionError("503")


@holdfast.agent
async def fetches(many: int = 1) -> int:
    async with asyncio.TaskGroup() as group:
        for number in range(many):
            group.create_task(fetch(f"page-{number}"))
    return many


@holdfast.agent
async def hurries(seconds: float) -> int:
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:  # what is replayed is only how often
        count = await quick(count) + 1
        if count > 5_000:
            break
    return count


@holdfast.agent
async def waits(what: str) -> None:
    if what == "question":
        await holdfast.approve("Go on?", to="ana")
    elif what == "timer":
        await holdfast.sleep("2h")
    elif what == "message":
        await holdfast.receive("news")
    elif what == "child":
        await waits("timer")
    elif what == "retry":
        await stumbles("a")
    elif what == "conversation":
        async with holdfast.conversation("c"):
            await holdfast.sleep("1h")


@holdfast.agent
async def plans() -> None:
    plan = await holdfast.plan(["look", "think", "write"])
    await plan.done("look")
    await holdfast.sleep("1h")


@holdfast.agent
async def breaks() -> None:
    raise ValueError("broken")


AGENTS = [fetches, hurries, waits, plans, breaks]


async def until(hf: holdfast.Client, run: str, holds) -> RunInfo:
    async with asyncio.timeout(30):
        while not holds(info := await hf.get(run).info()):
            await asyncio.sleep(0.02)
        return info


async def test_what_runs_for_longer_than_a_second_is_told(store_url: str) -> None:
    """To any process, within about a second, with how many there are; when it has ended it is gone."""
    async with holdfast.open(store_url, agents=AGENTS) as hf, holdfast.open(store_url) as elsewhere:
        run = await hf.start(fetches, 3, id="f")
        await gate.reached.wait()
        assert await elsewhere.get("f").open_calls() == []  # too young
        info = await until(elsewhere, "f", lambda info: info.doing is not None)
        assert info.doing is not None
        assert (info.doing.kind, info.doing.name, info.doing.attempt, info.doing.count) == ("step", "fetch", 1, 3)
        calls = await elsewhere.get("f").open_calls()
        assert [(call.name, call.input, call.attempt) for call in calls] == [
            ("fetch", f"url='page-{number}'", 1) for number in range(3)
        ]
        assert info.started_at is not None
        assert all(info.started_at <= call.began for call in calls)
        gate.open.set()
        assert await run.result() == 3
        assert await elsewhere.get("f").open_calls() == []
        with pytest.raises(holdfast.UnknownRun):
            await elsewhere.get("nobody").open_calls()


async def test_short_steps_tell_nothing(store_url: str) -> None:
    """A run of nothing but short steps, for longer than two rounds, writes no word of open calls."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        heard: list[str] = []
        hf.store.on_change(heard.extend)
        assert await hf.run(hurries, 2.5, id="h") > 10
        assert "h" in heard
        assert news_of("h") not in heard


async def test_a_killed_worker_tells_nothing_any_more(store_url: str, tmp_path: Path) -> None:
    """What it had told of its run is gone with it; the next owner tells its own, under another attempt of life."""
    script = tmp_path / "serves.py"
    script.write_text(
        "import asyncio, sys, holdfast\n"
        "from tests.client import test_present as t\n"
        "async def main():\n"
        "    async with holdfast.open(sys.argv[1], agents=t.AGENTS):\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    async with holdfast.open(store_url) as hf:
        await hf.start(fetches, 1, id="f")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), store_url, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
        try:
            info = await until(hf, "f", lambda info: info.doing is not None and info.doing.kind == "step")
            assert info.life[-1][0] == "work"
            process.send_signal(signal.SIGKILL)
            await process.wait()
            info = await until(hf, "f", lambda info: info.waits_for == "worker")
            assert info.doing is not None
            assert (info.doing.kind, info.doing.name) == ("worker", "fetches")
            assert info.life[-1][0] == "torn"
            assert await hf.get("f").open_calls() == []
        finally:
            if process.returncode is None:
                process.kill()
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        await gate.reached.wait()
        info = await until(hf, "f", lambda info: info.doing is not None and info.doing.kind == "step")
        assert (info.interruptions, info.epoch) == (1, 2)
        assert "torn" in [kind for kind, _ in info.life]
        gate.open.set()
        assert await hf.get("f").result() == 1


SEEN = {
    "question": Doing("question", ":approve#0", "approve", "Go on?"),
    "timer": Doing("timer", ":sleep#0"),
    "message": Doing("message", name="news"),
    "child": Doing("child"),
    "retry": Doing("retry", "stumbles#0", "stumbles", "url='a'", 1, 8, error="ConnectionError: 503"),
}


@pytest.mark.parametrize("what", SEEN)
async def test_what_a_run_waits_for_is_told_in_lists(store_url: str, what: str) -> None:
    """By its last event of that kind, with when it goes on by itself and which question it is."""
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        await hf.start(waits, what, id="w")
        info = await until(hf, "w", lambda info: info.status == "waiting")
        (listed,) = [each for each in await hf.runs() if each.id == "w"]
        doing, wanted = listed.doing, SEEN[what]
        assert doing is not None
        assert (doing.kind, doing.count) == (wanted.kind, 1)
        assert doing.since is not None
        for name in ("key", "name", "input", "attempt", "of", "error"):
            if getattr(wanted, name):
                assert getattr(doing, name) == getattr(wanted, name)
        if what in ("timer", "retry"):
            assert doing.next_at == info.due_at
        if what == "question":
            assert [doing.question] == [each.id for each in await hf.approvals()]
        if what == "child":
            assert doing.name == next(each.id for each in await hf.runs(parent="w"))


async def test_a_list_tells_plans_failures_and_numbers(store_url: str) -> None:
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        await hf.start(plans, id="p")
        info = await until(hf, "p", lambda info: info.status == "waiting")
        assert [(item.text, item.state) for item in info.items] == [
            ("look", "done"), ("think", "next"), ("write", "open"),
        ]  # fmt: skip
        assert (info.queue, info.priority, info.epoch, info.events, info.interruptions) == ("default", 5, 1, 3, 0)
        assert info.updated_at is not None
        assert [kind for kind, _ in info.life if kind != "ready"] == ["work", "wait"]
        assert info.worked_ms == dict(info.life)["work"]
        with pytest.raises(holdfast.RunFailed):
            await hf.run(breaks, id="b")
        broken = await hf.get("b").info()
        assert broken.failure is not None
        assert (broken.failure.type, broken.failure.message, broken.error) == (
            "ValueError", "broken", "ValueError: broken",
        )  # fmt: skip
        assert "test_present.py" in broken.failure.traceback
        assert broken.doing is None


async def test_a_fork_tells_where_it_comes_from(store_url: str) -> None:
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.start(waits, "timer", id="w")
        await until(hf, "w", lambda info: info.events > 0)
        fork = await hf.acting_as("ana").get(run.id).fork(at=0, id="w2")
        info = await fork.info()
        assert info.forked == holdfast.Forked("w", 0, "ana")
        assert (info.interruptions, info.life[0][0]) == (0, "ready")


async def test_what_is_being_stopped_says_so(store_url: str) -> None:
    """From the request until it has stopped; a resume calls it off."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.start(fetches, 1, id="f")
        await gate.reached.wait()
        assert (await run.info()).stopping is None
        await run.pause(by="ana")
        info = await until(hf, "f", lambda info: "run.pausing" in str(info) or info.stopping)
        assert info.stopping == "pausing"
        await run.resume(by="ana")
        await until(hf, "f", lambda info: info.stopping is None)
        await run.cancel(by="ana")
        await until(hf, "f", lambda info: info.stopping == "cancelling" or info.status == "cancelled")
        await until(hf, "f", lambda info: info.status == "cancelled" and info.stopping is None)
