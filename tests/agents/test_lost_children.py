"""Children that a fork or a retried run needs anew and that are gone: started again, or refused with the way on; on both stores."""

from __future__ import annotations

import pytest
from tests.agents.runs import history

import holdfast
from holdfast import BadArguments, RunFailed
from holdfast.cli.view.tree import History

BROKEN: set[str] = set()
DID: list[tuple[str, str, str]] = []  # which run, what, and with which idempotency key

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_fork_of_a_fork_starts_the_child_of_a_deleted_run_anew",
    "test_a_retried_run_starts_a_child_again_that_was_deleted",
}


@pytest.fixture(autouse=True)
def fresh():
    BROKEN.clear()
    DID.clear()


@pytest.fixture
def opened(store_url):
    return lambda *agents: holdfast.open(store_url, agents=agents)


@holdfast.step
async def act(what: str) -> str:
    DID.append((holdfast.this_run().id, what, holdfast.idempotency_key()))
    if what in BROKEN:
        raise ValueError(f"{what} is broken")
    return f"{what}!"


@holdfast.agent
async def child(what: str) -> str:
    return await act(what)


@holdfast.agent
async def calls(what: str) -> str:
    return await child(what)


@holdfast.agent
async def spawns(what: str) -> list[str]:
    later = await holdfast.spawn(child, what)
    await act("between")
    return [await later]


@holdfast.agent
async def slow(what: str) -> str:
    return f"{what} {await holdfast.receive('go', str)}"


@holdfast.agent
async def leads() -> list[str]:
    later = await holdfast.spawn(slow, "slow")
    await act("spawned")
    middle = await holdfast.receive("middle", str)
    return [middle, await later]


async def failed(run) -> None:
    with pytest.raises(RunFailed):
        await run.result(timeout=20)


async def delete_child(hf, run: str) -> str:
    (lost,) = await hf.runs(parent=run)
    await hf.get(lost.id).delete()
    return lost.id


async def test_a_retried_run_starts_a_child_again_that_was_deleted(opened, tmp_path):
    BROKEN.add("x")
    async with opened(calls, child) as hf:
        run = await hf.start(calls, "x", id="r")
        await failed(run)
        lost = await delete_child(hf, "r")
        await run.retry()
        await failed(run)  # also when the new one fails
        assert await delete_child(hf, "r") == lost
        BROKEN.clear()
        await run.retry()
        assert await run.result(timeout=20) == "x!"
        assert [info.id for info in await hf.runs(parent="r")] == [lost]
        assert {(who, key) for who, _, key in DID} == {(lost, DID[0][2])}  # it has the same idempotency key
        assert len(DID) == 3
        holdfast.Keys(str(tmp_path / "keys")).new("ops")
        await run.export(str(tmp_path / "r.bundle"), keys=str(tmp_path / "keys"))
    async with holdfast.open(
        f"sqlite:{tmp_path}/b.db", agents=(calls, child)
    ) as there:  # such a history is a sound one
        await there.import_run(str(tmp_path / "r.bundle"), keys=str(tmp_path / "keys"), id="c")
        assert await there.get("c").result(timeout=20) == "x!"


@pytest.mark.parametrize("way", ["retry", "fork"])
async def test_a_spawned_child_that_was_deleted_is_told_with_the_ways_on(opened, way):
    BROKEN.add("x")
    async with opened(spawns, child) as hf:
        run = await hf.start(spawns, "x", id="r")
        await failed(run)
        lost = await delete_child(hf, "r")
        before = await history(hf, "r")
        with pytest.raises(BadArguments, match=rf"(?s){lost}.*was deleted.*at=':spawn.child#0'.*replace="):
            await (run.retry() if way == "retry" else run.fork(effects="new"))
        assert await history(hf, "r") == before
        assert [each.id for each in await run.forks()] == ["r"]
        assert (await run.info()).status == "failed"
        BROKEN.clear()
        given = await run.fork(replace={":spawn.child#0": "given"}, effects="new")
        assert await given.result(timeout=20) == ["given"]
        if way == "fork":
            run = await run.fork(at=":spawn.child#0", effects="new")
        else:
            await run.retry(at=":spawn.child#0", effects="new")
        assert await run.result(timeout=20) == ["x!"]


async def test_a_fork_of_a_fork_starts_the_child_of_a_deleted_run_anew(opened):
    async with opened(leads, slow) as hf:
        run = await hf.start(leads, id="r")
        await run.wait("waiting", waits_for="message")
        (first,) = await hf.runs(parent="r")
        await run.send("middle", "m")
        await hf.get(first.id).send("go", "now")
        assert await run.result(timeout=20) == ["m", "slow now"]
        fork = await run.fork(id="f", effects="new")
        assert await fork.result(timeout=20) == ["m", "slow now"]
        await run.delete()
        again = await fork.fork(at=2, id="g", effects="new")
        (other,) = await hf.runs(parent="g")
        assert (other.agent, other.root) == ("slow", "g")
        await again.send("middle", "n")
        await hf.get(other.id).send("go", "later")
        assert await again.result(timeout=20) == ["n", "slow later"]
        for run, its in (("f", first.id), ("g", other.id)):  # each is shown with its own
            shown = History(await hf.store.journal(run))
            assert shown.children == [its]
            assert [(node.child, node.state) for node in shown.items if node.sort == "child"] == [(its, "done")]
        third = await again.fork(at=2, id="h", effects="new")
        (last,) = await hf.runs(parent="h")
        assert History(await hf.store.journal(third.id)).children == [last.id]


async def test_a_fork_of_a_copy_starts_the_child_of_the_other_store_anew(opened, tmp_path):
    keys = holdfast.Keys(str(tmp_path / "keys"))
    keys.new("ops")
    file, folder = str(tmp_path / "r.bundle"), str(tmp_path / "keys")
    async with opened(leads, slow) as hf, holdfast.open(f"sqlite:{tmp_path}/b.db", agents=(leads, slow)) as there:
        run = await hf.start(leads, id="r")
        await run.wait("waiting", waits_for="message")
        await run.export(file, keys=folder, effects="new")
        await there.import_run(file, keys=folder, id="c")
        again = await there.get("c").fork(at=2, id="g", effects="new")
        (other,) = await there.runs(parent="g")
        await again.send("middle", "n")
        await there.get(other.id).send("go", "later")
        assert await again.result(timeout=20) == ["n", "slow later"]


async def test_a_wait_for_a_child_that_is_not_there_ends(opened):
    """However it came to be: here its end was lost with it."""

    @holdfast.agent
    async def waits() -> str:
        later = await holdfast.spawn(slow, "slow")
        await holdfast.receive("middle", str)
        return await later

    async with opened(waits, slow) as hf:
        run = await hf.start(waits, id="r")
        await run.wait("waiting", waits_for="message")
        (lost,) = await hf.runs(parent="r")
        await hf.get(lost.id).wait("waiting")

        def forget(tx):
            yield from tx.rows("delete_run", run=lost.id)

        await hf.store._submit(forget)
        await run.send("middle", "m")
        with pytest.raises(RunFailed, match=rf"there is no run '{lost.id}' any more"):
            await run.result(timeout=20)


@holdfast.agent
async def four() -> list[str]:
    return [await act("a"), await child("kid"), await act("c"), await act("d")]


@pytest.mark.parametrize(
    ("first", "then", "asked"),
    [("new", "ask", 1), ("new", "refuse", 0), ("ask", "new", 0), ("refuse", "ask", 2), ("refuse", "new", 0)],
)
async def test_the_last_word_on_effects_holds_for_children_too(opened, first, then, asked):
    async with opened(four, child) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        BROKEN.add("d")
        fork = await run.fork(at="act#1", id="f", effects=first, replace={"act#1": "REPL"})
        if first == "ask":
            await hf.answer(await fork.wait_for_question(timeout=20), "run", by="ana")
        await failed(fork)
        BROKEN.clear()
        DID.clear()
        await fork.retry(at="child", effects=then)
        for _ in range(asked):
            await hf.answer(await fork.wait_for_question(timeout=20), "run", by="ana")
        if then == "refuse":
            with pytest.raises(RunFailed, match="InDoubt"):
                await fork.result(timeout=20)
            assert DID == []
            await fork.retry(at="child", effects="new")  # there is a way out of that
        assert await fork.result(timeout=20) == ["a!", "kid!", "REPL", "d!"]
        assert [what for _, what, _ in DID] == ["kid", "d"]


async def test_a_refused_fork_goes_on_when_it_is_retried_with_new_effects(opened):
    async with opened(four, child) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        fork = await run.fork(at="act#1", id="f", effects="refuse")
        with pytest.raises(RunFailed, match="InDoubt"):
            await fork.result(timeout=20)
        DID.clear()
        await fork.retry(at="act#1", effects="new")
        assert await fork.result(timeout=20) == ["a!", "kid!", "c!", "d!"]
        assert [what for _, what, _ in DID] == ["c", "d"]
