"""A run from inside: its calls page by page, what it waits for, and its state at any event; by async and by plain code."""

import asyncio
import random

import pytest
from tests.agents.runs import Gate

import holdfast
import holdfast.sync
import holdfast.testing
from holdfast import BadArguments, UnknownRun
from holdfast.words.calls import Calls

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_pages_of_any_size_are_the_whole_history"}


@holdfast.step
async def fetch(url: str) -> str:
    return f"what {url} says"


@holdfast.step(retry=holdfast.Retry(3, first=0))
async def flaky(n: int) -> int:
    if holdfast.this_step().attempt < 3:
        raise ValueError(f"not yet {n}")
    holdfast.spend(0.25, input_tokens=10, model="m")
    return n


@holdfast.step
async def breaks() -> None:
    raise LookupError("no such thing")


@holdfast.agent
async def below(n: int) -> int:
    if n:
        decision = await holdfast.approve("Go deeper?", show={"n": n}, to=["ana", "editors"])
        return n if decision else 0
    await holdfast.sleep("1h")
    return 0


@holdfast.agent
async def busy(size: int) -> int:
    """Steps that end one after the other, among others that are open for long."""
    long = [asyncio.ensure_future(holdfast.sleep(f"{n + 1}h")) for n in range(3)]
    for n in range(size):
        await fetch(f"u{n}")
        if n % 4 == 0:
            await flaky(n)
    await asyncio.gather(*long)
    return size


@holdfast.agent
async def all_sorts() -> int:
    await holdfast.note("it begins")
    await fetch("a")
    await flaky(1)
    try:
        await breaks()
    except holdfast.StepFailed:
        pass
    except LookupError:
        pass
    await holdfast.progress(1, 2, "half")
    children = [await holdfast.spawn(below, 0)]
    tasks = [asyncio.ensure_future(below(5)), asyncio.ensure_future(holdfast.receive("orders", str))]
    tasks += [asyncio.ensure_future(holdfast.sleep("2h"))]
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(_wait(task))
    return len(children)


async def _wait(task):
    return await task


async def pages(run, size, **how):
    """All calls, by pages of this size."""
    found, after = [], -1
    while page := [step async for step in run.steps(after=after, limit=size, **how)]:
        found += page
        after = page[-1].seq
        if len(page) < size:
            break
    return found


async def test_pages_of_any_size_are_the_whole_history(store_url):
    """Whatever is open where a page ends, each call is on one page, with all that was recorded of it since."""
    async with holdfast.open(store_url, agents=[busy]) as hf:
        run = await hf.start(busy, 40)
        await run.wait("waiting", timeout=20)
        whole = [step async for step in run.steps()]
        events = await hf.store.journal(run.id)
        assert [(step.key, step.seq) for step in whole] == [(call.key, call.seq) for call in Calls(events)]
        assert {step.worker for step in whole} == {hf.store.worker_id}
        for size in (1, 2, 7, 50, 1000):
            assert await pages(run, size) == whole
        for after in random.Random(3).sample(range(len(events)), 8):
            assert [step async for step in run.steps(after=after)] == [step for step in whole if step.seq > after]


async def test_a_call_says_all_that_is_known_of_it():
    async with holdfast.testing.open(agents=[all_sorts, below]) as hf:
        run = await hf.start(all_sorts)
        await run.wait("waiting")
        found = {step.name: step for step in [step async for step in run.steps()]}
        assert [step.kind for step in found.values()][:3] == ["note", "step", "step"]
        step = found["flaky"]
        assert (step.status, step.attempts, step.failures) == ("completed", 3, ("ValueError: not yet 1",) * 2)
        assert (step.spent.usd, step.spent.input_tokens, step.input, step.kept) == (0.25, 10, "n=1", False)
        assert (await step.result(), await step.arguments()) == (1, None)
        assert step.began_at <= step.ended_at
        failed = found["breaks"]
        assert (failed.status, failed.error, await failed.result()) == ("failed", "LookupError: no such thing", None)
        asked = found["below"]
        assert (asked.status, asked.kind, asked.ended_at) == ("waiting", "child", None)
        assert await asked.arguments() == {"n": 5}
        assert await found[":sleep"].arguments() == {"ms": 7_200_000}
        assert await found[":progress"].arguments() == {"done": 1, "total": 2, "text": "half"}
        assert await run.step("flaky#0") == step
        assert await run.step(step.seq) == step


async def test_calls_that_are_not_there_are_refused():
    async with holdfast.testing.open(agents=[busy]) as hf:
        run = await hf.start(busy, 2)
        await run.wait("waiting")
        with pytest.raises(BadArguments, match="has no call 'nothing#0'"):
            await run.step("nothing#0")
        with pytest.raises(BadArguments, match="has no call that begins with event 999"):
            await run.step(999)
        with pytest.raises(BadArguments, match="has a history of"):
            await anext(run.steps(after=999))
        for wrong in (0, -1, 1.5, True, "x"):
            with pytest.raises(BadArguments, match="limit="):
                await anext(run.steps(limit=wrong))
        for wrong in (-2, "x", None):
            with pytest.raises(BadArguments, match="after="):
                await anext(run.steps(after=wrong))
        gone = hf.get("nobody")
        for asked in (gone.state(), gone.snapshot(), gone.step(0), anext(gone.steps())):
            with pytest.raises(UnknownRun):
                await asked


@holdfast.step(raises=(LookupError,))
async def fails_once(marks: list[int]) -> int:
    if not await asyncio.to_thread(_seen):
        raise LookupError("the first time")
    return 1


SEEN = []


def _seen():
    SEEN.append(1)
    return len(SEEN) > 1


@holdfast.agent
async def retried() -> int:
    await fetch("a")
    return await fails_once([1])


async def test_calls_that_a_retry_took_out_are_listed_if_asked_for():
    SEEN.clear()
    async with holdfast.testing.open(agents=[retried]) as hf:
        run = await hf.start(retried)
        await run.wait("failed")
        await run.retry()
        await run.result()
        assert [(step.name, step.status) async for step in run.steps()] == [
            ("fetch", "completed"),
            ("fails_once", "completed"),
        ]
        every = [(step.name, step.status, step.dropped is None) async for step in run.steps(dropped=True)]
        assert every == [
            ("fetch", "completed", True),
            ("fails_once", "failed", False),
            ("fails_once", "completed", True),
        ]
        assert await pages(run, 1, dropped=True) == [step async for step in run.steps(dropped=True)]


# Snapshots


async def test_a_snapshot_says_what_a_run_waits_for_and_those_below_it():
    async with holdfast.testing.open(agents=[all_sorts, below]) as hf:
        run = await hf.start(all_sorts, labels={"a": "b"})
        await run.wait("waiting")
        question = await run.wait_for_question()
        found = await run.snapshot()
        assert (found.run.id, found.goal, found.run.progress.text) == (run.id, "all_sorts()", "half")
        waits = {each.kind: each for each in found.pending}
        assert waits.keys() == {"child", "message", "timer"}
        assert waits["message"].what == "orders"
        assert waits["timer"].until is not None
        asks, sleeps = sorted(found.children, key=lambda child: child.goal, reverse=True)
        assert (asks.goal, sleeps.goal) == ("below(n=5)", "below(n=0)")
        assert asks.run.id == waits["child"].what
        (asked,) = asks.pending
        assert (asked.kind, asked.what, asked.text, asked.to) == (
            "question",
            question.id,
            "Go deeper?",
            ("ana", "editors"),
        )
        assert [each.kind for each in sleeps.pending] == ["timer"]
        assert found.run.spent.usd == 0.25
        assert found.spent_by[0][0] == "flaky"
        assert (found.request.name, found.state, found.streams) == ("flaky", None, ())
        await run.send("orders", "look at the gate")
        await run.cancel()
        await run.wait()
        over = await run.snapshot()
        assert over.pending == ()
        assert [(each.topic, await each.value()) for each in over.messages] == [("orders", "look at the gate")]


@holdfast.step(rate="1/h")
async def slow(n: int) -> int:
    return n


@holdfast.agent(limit=1)
async def limited() -> int:
    await slow(1)
    return await slow(2)


@holdfast.agent
async def holds(name: str) -> int:
    async with holdfast.conversation(name):
        await holdfast.receive("go", str)
    return 1


async def waits_of(run):
    return [(each.kind, each.what) for each in (await run.snapshot()).pending]


async def test_every_kind_of_wait_is_told(store_url):
    settings = holdfast.Settings(park_grace_s=0.0)
    async with holdfast.open(store_url, agents=[limited, holds], settings=settings) as hf:
        later = await hf.start(holds, "x", after="2h")
        (start,) = (await later.snapshot()).pending
        assert (start.kind, start.what) == ("start", "holds")
        assert 7190 < (start.until - (await later.info()).created_at).total_seconds() < 7210
        first = await hf.start(limited)
        await first.wait("waiting", timeout=20)
        assert await waits_of(first) == [("rate", "slow")]
        one, two = await hf.start(holds, "talk"), None
        await one.wait("waiting", waits_for="message", timeout=20)
        two = await hf.start(holds, "talk")
        await two.wait("waiting", waits_for="conversation", timeout=20)
        assert await waits_of(one) == [("message", "go")]
        assert (await one.snapshot()).conversations == ("talk",)
        assert await waits_of(two) == [("conversation", "talk")]
        await two.pause(reason="lunch")
        (paused, _) = (await two.snapshot()).pending
        assert (paused.kind, paused.text) == ("resume", "paused by someone: lunch")
    async with holdfast.open(store_url) as hf:
        await hf.get(one.id).send("go", "x")
        while ("worker", "holds") not in await waits_of(hf.get(one.id)):
            await asyncio.sleep(0.01)
        (message,) = (await hf.get(one.id).snapshot()).messages
        assert not message.taken


async def test_a_snapshot_of_many_runs_is_bounded(monkeypatch):
    monkeypatch.setattr("holdfast.client.history._RUNS", 4)
    async with holdfast.testing.open(agents=[spawns, below]) as hf:
        run = await hf.start(spawns, 9)
        await run.wait("waiting")
        found = await run.snapshot()
        assert (len(found.children), found.left_out) == (3, 6)


@holdfast.agent
async def spawns(many: int) -> None:
    for _ in range(many):
        await holdfast.spawn(below, 0)
    await holdfast.receive("go", str)


# State


@holdfast.agent
async def stores(turns: int) -> int:
    state = await holdfast.restore({"turn": 0})
    while state["turn"] < turns:
        await fetch(str(state["turn"]))
        state = await holdfast.checkpoint({"turn": state["turn"] + 1})
    await holdfast.receive("go", str)
    return state["turn"]


async def test_the_state_at_any_event_is_that_of_the_last_checkpoint(store_url):
    async with holdfast.open(store_url, agents=[stores]) as hf:
        run = await hf.start(stores, 3)
        await run.wait("waiting", timeout=20)
        held = [None if (state := await run.state(at)) is None else (state.era, await state.value()) for at in range(6)]
        turns = [None, (1, {"turn": 1}), (2, {"turn": 2}), (3, {"turn": 3})]
        assert held == [turns[0], turns[1], turns[1], turns[2], turns[2], turns[3]]
        last = await run.state()
        assert (last.seq, last.era, await last.value()) == (5, 3, {"turn": 3})
        assert (await run.snapshot()).state == last
        for wrong in (6, -5, "x"):
            with pytest.raises(BadArguments, match="at="):
                await run.state(wrong)


# By plain code, and while a body runs


def test_plain_code_looks_inside_too(tmp_path):
    with holdfast.sync.open(f"sqlite:{tmp_path / 'a.db'}", agents=[stores]) as hf:
        run = hf.start(stores, 2)
        run.wait("waiting", timeout=20)
        assert [step.result() for step in run.steps() if step.kind == "step"] == ["what 0 says", "what 1 says"]
        assert run.step("fetch#0").result() == "what 0 says"
        assert run.state().value() == {"turn": 2}
        found = run.snapshot()
        assert [each.what for each in found.pending] == ["go"]
        assert found.state.value() == {"turn": 2}
        run.send("go", 7)
        assert [message.value() for message in run.snapshot().messages] == [7]


async def test_a_body_that_runs_with_an_intent_is_seen():
    gate = Gate()

    @holdfast.step(in_doubt="fail")
    async def works() -> int:
        await gate()
        return 1

    @holdfast.agent
    async def worker() -> int:
        return await works()

    async with holdfast.testing.open(agents=[worker]) as hf:
        run = await hf.start(worker)
        await gate.reached.wait()
        assert [(step.status, step.attempts) async for step in run.steps()] == [("running", 1)]
        assert await waits_of(run) == [("step", "works")]
        gate.open.set()
        assert await run.result() == 1
