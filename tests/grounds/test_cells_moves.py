"""A slot is moved while its runs go on: none is lost, and no recorded step runs again, wherever the mover dies."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds import work
from tests.grounds.test_cells_down import Fleet, begun_again, outcomes, served

import holdfast
from holdfast.backends.cells import inventory, moves
from holdfast.backends.cells.slots import slot_of

pytestmark = pytest.mark.slow
ROOT = str(Path(__file__).parents[2])
# A mover that kills itself behind a step.
MOVER = """
import asyncio, os, signal, sys
from holdfast.backends.cells import inventory, moves

async def main(url, slot, to, step):
    async with inventory.opened(url) as store:
        def tell(at):
            if at == step:
                os.kill(os.getpid(), signal.SIGKILL)
        await moves.move(store, int(slot), to, grace_s=20.0, tell=tell)

asyncio.run(main(*sys.argv[1:]))
"""


def family(slot, many):
    """Ids of one slot: what stands before the dot decides."""
    head = next(f"head-{n}" for n in range(9999) if slot_of(f"head-{n}") == slot)
    return [f"{head}.{n}" for n in range(many)]


async def other(store, slot):
    return next(name for name in store.made if name != store.owners[slot])


@holdfast.agent
async def asks(n: int) -> str:
    answer = await holdfast.approve("really?", show={"n": n})
    note = await holdfast.receive("note", str)
    return f"{answer.by} {note}"


@holdfast.agent
async def nothing() -> None: ...


async def test_what_waits_moves_whole(cells_url):  # noqa: F811
    """Journals, questions, messages, large values, the audit and conversations; and all of it can come back."""

    @holdfast.step
    async def large() -> str:
        return "x" * 500_000

    @holdfast.agent
    async def keeper(name: str) -> int:
        text = await large()
        async with holdfast.conversation(name, str) as talk:
            await talk.add("before")
            note = await holdfast.receive("note", str)
            await talk.add(note)
            return len(text) + len(await talk.messages())

    first, second, *_ = family(77, 3)
    head = first.partition(".")[0]
    async with holdfast.open(cells_url, agents=[asks, keeper]) as hf:
        asked, kept = await hf.start(asks, 1, id=first), await hf.start(keeper, head, id=second)
        await asked.wait("waiting", waits_for="person", timeout="60s")
        await kept.wait("waiting", waits_for="message", timeout="60s")
        before = [(event.seq, event.kind) async for event in asked.events(follow=False)]
        origin = hf.store.cells.owners[77]
        for to in ("b", "a", "b"):
            if hf.store.cells.owners[77] == to:
                continue
            moved = await moves.move(hf.store.cells, 77, to)
            assert (moved.runs, moved.interrupted, hf.store.cells.owners[77]) == (2, 0, to)
            assert (await asked.info()).status == "waiting"
            assert [(event.seq, event.kind) async for event in asked.events(follow=False)] == before
            assert len(await hf.runs(limit=100)) == 2
            (question,) = await hf.approvals()
            assert [deed.action for deed in await hf.audit(run=first)] == ["start"]
        await hf.approve(question, by="ana")
        await asked.send("note", "hello")
        await kept.send("note", "after")
        assert await asked.result(timeout="60s") == "ana hello"
        assert await kept.result(timeout="60s") == 500_002
        left = [cell for name, cell in hf.store.cells.made.items() if name != hf.store.cells.owners[77]]
        assert [await cell.runs(limit=100) for cell in left] == [[]]
        assert origin in ("a", "b")


async def test_a_slot_moves_under_load(cells_url, tmp_path):  # noqa: F811
    """Runs go on all the time, messages are sent, and none is made twice."""
    fleet, slot = Fleet(cells_url, tmp_path, 2), 300
    names, aside = family(slot, 6), [f"run-{n}" for n in range(6)]
    try:
        async with holdfast.open(cells_url) as hf:
            await served(hf)
            for name in names + aside:
                await hf.start("walk", 30, 0.05, id=name)
            for _ in range(2):
                moved = await moves.move(hf.store.cells, slot, await other(hf.store.cells, slot), grace_s=60.0)
                assert moved.runs >= 6
                for name in names:
                    assert (await hf.get(name).info()).id == name
            for name in names + aside:
                assert await hf.get(name).result(timeout="300s") == work.expected(30)
            recorded = await outcomes(hf, names + aside)
            async with inventory.opened(cells_url) as store:
                assert (await inventory.check(store)).wrong == []
    finally:
        fleet.stop()
    assert len(recorded) == 12 * (30 + 6)
    assert begun_again(tmp_path, recorded) == ([], [])


async def killed_behind(step, url, slot, to):
    """Let a mover of the slot begin, which is killed behind this step."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", MOVER, url, str(slot), to, step]
    mover = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True)
    assert mover.returncode == -9, mover.stderr


async def test_what_was_read_before_a_slot_arrived_is_read_again(cells_url):  # noqa: F811
    """Who knows where a slot went may look there before it has come, and be told after the look that it has."""
    slot = 300
    (name,) = family(slot, 1)
    async with holdfast.open(cells_url, agents=[nothing]) as hf:
        await hf.run(nothing, id=name)
    async with holdfast.open(cells_url) as hf:
        to = await other(hf.store.cells, slot)
        await killed_behind("decided", cells_url, slot, to)
        looks = []

        async def look(cell):
            found = await cell.run(name)
            looks.append((cell.cell, found is not None))
            if cell.cell == to and len(looks) == 2:
                async with inventory.opened(cells_url) as store:
                    await moves.mend(store)
            return found

        assert (await hf.store._routed(slot, look)).id == name
        assert looks[1:] == [(to, False), (to, True)]


async def asked_in(slot, url):
    """A run of the slot that waits for a person; returns its id and its question."""
    (name,) = family(slot, 1)
    async with holdfast.open(url, agents=[asks]) as hf:
        await (await hf.start(asks, 1, id=name)).wait("waiting", waits_for="person", timeout="60s")
        (question,) = await hf.approvals()
    return name, question


async def test_a_question_of_a_slot_in_a_parcel_is_waited_for(cells_url):  # noqa: F811
    """Between two cells it is in none, and nobody hears that there is no such question."""
    slot = 300
    _, question = await asked_in(slot, cells_url)
    async with holdfast.open(cells_url) as hf:
        link = await hf.approval_link(question, by="ana")
        to = await other(hf.store.cells, slot)
        await killed_behind("decided", cells_url, slot, to)
        for ask in (
            lambda: hf.approval(question.id),
            lambda: hf.approve(question.id, by="ana", digest=question.digest),
            lambda: hf.store.link(link.partition("#link=")[2].partition("_")[0]),
        ):
            says = f"slot 300, which is being moved to cell {to!r}"
            with pytest.raises(holdfast.StoreUnavailable, match=says), hf.deadline("500ms"):
                await ask()
        found = asyncio.create_task(hf.approval(question.id))
        async with inventory.opened(cells_url) as store:
            await moves.mend(store)
        assert (await found).id == question.id
        assert (await hf.approve(question.id, by="ana")).decided_by == "ana"
        with pytest.raises(holdfast.UnknownApproval):
            await hf.approval("q-0000000000000000")


async def test_a_question_that_moves_while_the_cells_are_asked_is_found(cells_url, monkeypatch):  # noqa: F811
    """One cell may be asked before the question comes, and the other one after it went."""
    monkeypatch.setattr("holdfast.backends.cells.store.PATIENCE_S", 60.0)  # the answers wait for the move
    slot = 300
    _, question = await asked_in(slot, cells_url)
    async with holdfast.open(cells_url) as hf, inventory.opened(cells_url) as store:
        origin, to = hf.store.cells.owners[slot], await other(hf.store.cells, slot)
        cells, looks, came = hf.store.cells.made, [], asyncio.Event()
        approvals = {name: cell.approval for name, cell in cells.items()}

        async def late(asked):
            if not came.is_set():
                await came.wait()
            return await approvals[origin](asked)

        async def early(asked):
            looks.append(1)
            try:
                return await approvals[to](asked)
            finally:
                if len(looks) == 1:
                    await moves.move(store, slot, to)
                    came.set()

        cells[origin].approval, cells[to].approval = late, early
        assert (await hf.approval(question.id)).id == question.id


@pytest.mark.by_day("copied")
@pytest.mark.parametrize("step", ["frozen", "copied", "decided"])
async def test_a_run_is_not_shown_as_moved_before_its_slot_is(step, cells_url):  # noqa: F811
    slot = 300
    name, _ = await asked_in(slot, cells_url)
    async with holdfast.open(cells_url) as hf:
        origin, to = hf.store.cells.owners[slot], await other(hf.store.cells, slot)

        async def shown(**which):
            found = await hf.runs(**which)
            return [(each.id, each.status, each.waits_for, each.reason, each.finished_at) for each in found]

        before = await shown()
        await killed_behind(step, cells_url, slot, to)
        await hf.store.cells.look()
        assert before[0][:3] == (name, "waiting", "person")
        assert await shown() == ([] if step == "decided" else before)
        assert await hf.runs(status="moved") == []
        says = f"being moved to cell {to!r}" if step == "decided" else f"from cell {origin!r} to cell {to!r}"
        with pytest.raises(holdfast.StoreUnavailable, match=says), hf.deadline("300ms"):
            await hf.get(name).info()


@pytest.mark.by_day("decided")
@pytest.mark.parametrize("step", moves.STEPS)
async def test_a_mover_is_killed_behind_each_step(step, cells_url, tmp_path):  # noqa: F811
    """A worker that looks calls the move off, or finishes it; in between nobody hears that a run is gone."""
    fleet, slot = Fleet(cells_url, tmp_path), 300
    names = family(slot, 4)
    try:
        async with holdfast.open(cells_url) as hf:
            await served(hf)
            for name in names:
                await hf.start("walk", 12, 0.05, id=name)
            origin, to = hf.store.cells.owners[slot], await other(hf.store.cells, slot)
            await killed_behind(step, cells_url, slot, to)
            for name in names:
                assert (await hf.get(name).info()).id == name
            for name in names:
                assert await hf.get(name).result(timeout="300s") == work.expected(12)
            await hf.store.cells.look()
            assert hf.store.cells.owners[slot] == (origin if moves.STEPS.index(step) < 3 else to)
            recorded = await outcomes(hf, names)
            async with inventory.opened(cells_url) as store:
                assert (await inventory.check(store)).wrong == []
    finally:
        fleet.stop()
    assert begun_again(tmp_path, recorded) == ([], [])


async def test_a_body_that_outlasts_the_grace_is_interrupted(cells_url):  # noqa: F811
    begun = []

    @holdfast.step
    async def slow() -> None:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.sleep(3600)

    @holdfast.agent
    async def stubborn() -> str:
        await slow()
        return "done"

    (name,) = family(5, 1)
    settings = holdfast.Settings(stop_grace_s=3600.0, lease_ttl_s=2.0)
    async with holdfast.open(cells_url, agents=[stubborn], settings=settings) as hf:
        run = await hf.start(stubborn, id=name)
        while not begun:
            await asyncio.sleep(0.02)
        moved = await moves.move(hf.store.cells, 5, await other(hf.store.cells, 5), grace_s=1.0)
        assert moved.interrupted == 1
        assert await run.result(timeout="120s") == "done"
        assert len(begun) == 2


async def test_what_cannot_be_moved_is_refused(cells_url):  # noqa: F811
    async with holdfast.open(cells_url) as hf:
        with pytest.raises(holdfast.BadArguments, match="has no cell 'z'"):
            await moves.move(hf.store.cells, 1, "z")
        with pytest.raises(holdfast.BadArguments, match="already"):
            await moves.move(hf.store.cells, 1, hf.store.cells.owners[1])
        slot = slot_of("nightly")
        await hf.schedule("nightly", nothing, "0 3 * * *")
        with pytest.raises(holdfast.Unsupported, match="schedule 'nightly'"):
            await moves.move(hf.store.cells, slot, await other(hf.store.cells, slot))


async def test_a_run_that_begins_to_wait_for_an_announcement_while_its_slot_leaves_is_not_moved(cells_url):  # noqa: F811
    goes = asyncio.Event()

    @holdfast.step
    async def works() -> None:
        await goes.wait()

    @holdfast.agent
    async def listens() -> int:
        await works()
        return (await holdfast.next_event("news", int)).value

    async with holdfast.open(cells_url, agents=[listens]) as hf, asyncio.timeout(60):
        slot = 300
        run = await hf.start(listens, id=family(slot, 1)[0])
        while (await run.info()).status != "running":
            await asyncio.sleep(0.02)
        async with inventory.opened(cells_url) as store:

            def tell(at):
                if at == "leaving":
                    goes.set()

            hf.store._worker._give_back = lambda _: None  # it has not looked yet
            with pytest.raises(holdfast.Unsupported, match="run that waits for an announcement"):
                await moves.move(store, slot, await other(store, slot), tell=tell)
        await hf.publish("news", 7)
        assert await run.result() == 7


async def test_a_schedule_that_is_made_with_an_old_map_is_where_its_slot_went(cells_url):  # noqa: F811
    """In a cell that has given its slot away it would be there beside the real one, and hold up what is due there."""
    async with holdfast.open(cells_url, agents=[nothing]) as hf, asyncio.timeout(60):
        name, here = family(300, 1)[0].partition(".")[0], hf.store.cells.of_slot(300)
        for watch in hf.store._watches:
            watch.cancel()
        async with inventory.opened(cells_url) as store:
            there = hf.store.cells.made[await other(store, 300)]
            await moves.move(store, 300, there.cell)
        await hf.schedule(name, nothing, holdfast.Schedule("0 7 * * *"))
        names = [[row.name for row in await cell.schedules()] for cell in (here, there)]
        assert names == [[], [name]]
