"""Forks looked into: what they have from the run they were made from is shown as it was, also when that run is gone."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import holdfast
from holdfast.client.family import account
from holdfast.store.work import rows as rows_of

BROKEN: set[str] = set()
LARGE = "x" * 300_000  # of arguments that are kept apart

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_forks_deletions_and_writers_of_the_same_inputs_meet"}


@pytest.fixture(autouse=True)
def fresh():
    BROKEN.clear()


@pytest.fixture
def opened(store_url):
    return lambda *agents: holdfast.open(store_url, agents=agents)


@holdfast.step
async def act(what: str) -> str:
    if what in BROKEN:
        raise ValueError(f"{what} is broken")
    return f"{what}!"


@holdfast.agent
async def grandchild(text: str) -> int:
    await holdfast.progress(1, 2, "reading")
    return len(await act(text))


@holdfast.agent
async def child(name: str, text: str) -> str:
    items = await holdfast.plan(["first", "second"])
    await items.done("first")
    await grandchild(text)
    return await act(name)


@holdfast.agent
async def leads() -> list[str]:
    items = await holdfast.plan(["child", "wait"])
    await holdfast.progress(1, 2, "half")
    done = [await child("one", LARGE)]
    await items.done("child")
    await holdfast.progress(2, 2, "waits")
    done.append(await holdfast.receive("go", str))
    return [*done, await act("end")]


AGENTS = (leads, child, grandchild)


async def calls_of(run):
    return {step.key: step async for step in run.steps()}


async def looked(hf, run):
    """All that is shown of the runs that a fork shares, as text or as data."""
    (below,) = (await run.snapshot()).children
    (deep,) = below.children
    shown = await account(hf, run.id)
    calls = await calls_of(run)
    (called,) = [step for step in calls.values() if step.kind == "child"]
    told = [(each.row.id, each.info.status, [event.kind for event in each.events]) for each in shown.members()[1:]]
    return (
        (below.run.id, below.run.status, below.goal[:40], below.plan, below.run.plan, below.run.steps, below.run.finished_at),
        (deep.run.id, deep.run.status, deep.run.progress, deep.goal[:40]),
        (await called.arguments(), await called.result(), called.child),
        told,
    )  # fmt: skip


@pytest.mark.parametrize("effects", ["ask", "new"])
async def test_a_fork_shows_what_it_shares_also_when_the_original_is_deleted(opened, effects):
    """Plan, progress and children, with what these were called with; for a fork of the fork too. At last nothing is left."""
    async with opened(*AGENTS) as hf:
        run = await hf.start(leads, id="r")
        await run.wait("waiting", waits_for="message")
        fork = await run.fork(id="f", effects=effects)
        await fork.wait("waiting", waits_for="message")
        before = await looked(hf, run)
        info = await run.info()
        assert before[2][:2] == ({"name": "one", "text": LARGE}, "one!")
        assert before[0][3] == (("first", True), ("second", False))

        async def check(each):
            assert await looked(hf, each) == before
            mine = await each.info()
            assert (mine.plan, mine.progress) == (info.plan, info.progress)
            assert (await each.snapshot()).plan == (("child", True), ("wait", False))
            (listed,) = [one for one in await hf.runs() if one.id == each.id]
            assert (listed.plan, listed.progress) == (info.plan, info.progress)

        await check(fork)
        await run.send("go", "on")
        await run.result()
        await check(fork)
        assert await run.delete() == 3
        await check(fork)
        again = await fork.fork(id="g", effects=effects)
        await again.wait("waiting", waits_for="message")
        await check(again)
        await fork.cancel(grace=0)
        await fork.wait("cancelled")
        await fork.delete()
        await check(again)
        await hf.start(leads, id="r")  # the name is another's now
        await again.cancel(grace=0)
        await again.wait("cancelled")
        await check_nothing_is_left(hf, again)


async def check_nothing_is_left(hf, last):
    await hf.get("r").wait("waiting", waits_for="message")
    await hf.get("r").cancel(grace=0)
    await hf.get("r").wait("cancelled")
    await hf.get("r").delete()
    await last.delete()
    facts = await hf.store.facts()
    assert (facts["integrity"], facts["events"], facts["runs"], facts["blobs"]) == ("ok", 0, {}, 0)


async def test_a_fork_shows_a_child_as_it_ended_before_it_was_retried(opened):
    @holdfast.agent
    async def tries() -> str:
        return await child("one", "short")

    async with opened(tries, *AGENTS) as hf:
        BROKEN.add("one")
        run = await hf.start(tries, id="r")
        await run.wait("failed")
        (before,) = (await run.snapshot()).children
        ended = [event async for event in run.events(follow=False)][-1].seq
        fork = await run.fork(at=ended, id="f", effects="new")
        await fork.wait("failed")
        BROKEN.clear()
        await run.retry()
        assert await run.result() == "one!"
        (after,) = (await run.snapshot()).children
        (shown,) = (await fork.snapshot()).children
        assert (shown.run.status, shown.run.error, shown.run.steps) == ("failed", before.run.error, before.run.steps)
        assert (after.run.status, after.run.steps) == ("completed", before.run.steps + 1)


async def test_a_copy_and_a_fork_that_was_moved_show_what_they_share(opened, tmp_path):
    """Children of the original come along as a fork shows them, though they are no runs there."""
    keys = holdfast.Keys(tmp_path / "keys")
    keys.new("ana")
    there = f"sqlite:{tmp_path / 'there.db'}?durability=process"
    async with opened(*AGENTS) as hf, holdfast.open(there, agents=AGENTS) as other:
        run = await hf.start(leads, id="r")
        await run.wait("waiting", waits_for="message")
        before = await looked(hf, run)
        await run.export(tmp_path / "copy", keys=keys)
        copy = other.get((await other.import_run(tmp_path / "copy", keys=keys, id="c")).run)
        assert await looked(other, copy) == before
        assert (await copy.info()).plan == (await run.info()).plan

        fork = await run.fork(id="f")
        await fork.wait("waiting", waits_for="message")
        await fork.export(tmp_path / "fork", move=await other.store_id(), keys=keys)
        await other.import_run(tmp_path / "fork", keys=keys)
        moved = other.get("f")
        assert await looked(other, moved) == before
        for each in (copy, moved):
            await each.send("go", "on")
            assert await each.result() == ["one!", "on", "end!"]
            await each.delete()
        facts = await other.store.facts()
        assert (facts["integrity"], facts["events"], facts["blobs"]) == ("ok", 0, 0)


# Calls, named


async def test_a_call_is_found_by_its_name_and_several_are_told_apart(opened):
    async with opened(*AGENTS) as hf:
        run = await hf.start(leads, id="r")
        await run.send("go", "on")
        await run.result()
        assert (await run.step("child")).key == "child#0"
        assert (await run.step("act")).key == "act#0"
        with pytest.raises(holdfast.BadArguments, match=r"called ':plan' 2 times: name one of ':plan#0', ':plan#1'"):
            await run.step(":plan")
        with pytest.raises(holdfast.BadArguments, match="has no call 'ac'"):
            await run.step("ac")
        below = (await run.step("child")).child
        with pytest.raises(
            holdfast.BadArguments, match=rf"run '{below}' below it did.*'grandchild#0'.*started it: 'child#0'"
        ):
            await run.fork(replace={"grandchild": 3})
        assert [(step.key, step.kept, await step.arguments() is not None) async for step in run.steps()] == [
            (step.key, step.kept, step.kept) async for step in run.steps()
        ]


async def test_a_question_that_a_retry_took_out_is_shown_as_it_was_decided(opened):
    @holdfast.agent
    async def asks() -> str:
        await act("a")
        await holdfast.approve("go on?")
        return await act("end")

    async with opened(asks) as hf:
        BROKEN.add("end")
        run = await hf.start(asks, id="r")
        await hf.approve(await run.wait_for_question(), by="ana")
        await run.wait("failed")
        await run.retry(at="act#0", effects="new")
        again = await run.wait_for_question()
        for limit in (None, 1):  # in one page, or in many
            page, after, found = [], -1, []
            while page or after == -1:
                page = [step async for step in run.steps(after=after, limit=limit, dropped=True)]
                found += page
                after = page[-1].seq if page and limit else 10**6
                if limit is None or not page:
                    break
            asked = [(step.status, step.dropped is not None) for step in found if step.kind == "question"]
            assert asked == [("completed", True), ("waiting", False)]
        await hf.deny(again, by="ana")
        await run.wait("failed")
        (before, after) = [step async for step in run.steps(dropped=True) if step.kind == "question"]
        assert (await before.result(), before.status, after.status) == (None, "completed", "completed")


# Races

GROWING = [f"message {n} " + "m" * 400 for n in range(12)]  # of inputs that many runs have in common


@holdfast.step(inputs="full", effects=False)
async def reads(messages: list[str], n: int) -> int:
    return len(messages) + n


@holdfast.agent
async def talks(tag: int) -> int:
    return sum([await reads(GROWING[: n + 1], tag) for n in range(len(GROWING))])


async def test_forks_deletions_and_writers_of_the_same_inputs_meet(store_url):
    """Two clients fork, delete, prune and write the same parts at once: what each run has stays whole, and all goes at last."""

    async def fork(hf, run, at):
        with contextlib.suppress(holdfast.UnknownRun):
            return await hf.get(run).fork(at=at, effects="new", id=f"{run}.f{at}")

    async def delete(hf, run):
        with contextlib.suppress(holdfast.UnknownRun, holdfast.RunActive):
            await hf.get(run).delete()

    async def whole(hf, run):
        """Every call has its arguments, whoever wrote the parts of them."""
        found = [(await step.arguments())["messages"] async for step in run.steps()]
        assert found == [GROWING[: n + 1] for n in range(len(GROWING))]

    async with holdfast.open(store_url, agents=[talks]) as one, holdfast.open(store_url, agents=[talks]) as two:
        parts: set[str] = set()
        for n in range(4):
            await (await one.start(talks, n, id=f"r{n}")).result()
            parts |= await one.store.parts_of([f"r{n}"])
            old = one.store.clock.now() + 1
            made = await asyncio.gather(
                *[fork((one, two)[at % 2], f"r{n}", at * 3) for at in range(4)],
                two.start(talks, 100 + n, id=f"w{n}"),
                delete((one, two)[n % 2], f"r{n}"),
                two.store.prune(old, ["completed"]),
                one.start(talks, 200 + n, id=f"v{n}"),
            )
            for run in [each for each in made if isinstance(each, holdfast.Run)]:
                try:
                    await run.result()
                    await whole(one, one.get(run.id))
                except holdfast.UnknownRun:
                    assert run.id[0] in "wv"  # it was quick, and pruned as soon as it had ended
        for info in await one.runs(limit=1000):
            deeper = await fork(two, info.id, 6)
            await asyncio.gather(delete(one, info.id), deeper.result())
            await whole(two, deeper)
        for info in await one.runs(limit=1000):
            await one.get(info.id).wait("completed")
            await delete(two, info.id)
        facts = await one.store.facts()
        assert (facts["integrity"], facts["events"], facts["runs"]) == ("ok", 0, {})
        assert parts and await one.store.parts(parts) == {}


async def test_a_fork_and_the_deletion_of_a_child_meet(store_url):
    """The fork has the child, kept or not deleted yet, or finds that it is gone; it never counts on events that are not there."""
    async with holdfast.open(store_url, agents=AGENTS) as one, holdfast.open(store_url) as two:
        for n in range(4):
            run = await one.start(leads, id=f"r{n}")
            await run.send("go", "on")
            await run.result()
            (below,) = await one.runs(parent=run.id)
            fork, _ = await asyncio.gather(
                one.get(run.id).fork(at=":progress#1", effects="new", id=f"f{n}"), two.get(below.id).delete()
            )
            await fork.result()
            rows = {row.id for row in await one.store.below(fork.id)}
            counted = {name for _, base, *_, name in await one.store._read(segments_of, fork.id) if base != run.id}
            assert counted == rows
            for name in rows:
                assert await one.store.journal_below(fork.id, name)
        for info in await one.runs(limit=1000):
            with contextlib.suppress(holdfast.UnknownRun):
                await two.get(info.id).delete()
        facts = await one.store.facts()
        assert (facts["integrity"], facts["events"], facts["runs"], facts["blobs"]) == ("ok", 0, {}, 0)


def segments_of(run):
    return (yield from rows_of("segments", run=run))
