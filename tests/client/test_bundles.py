"""Runs carried from store to store as files: moved, copied, decided on the way, encrypted, refused."""

import asyncio
import contextlib
import dataclasses
import io
import json
import os
import threading
import time

import apsw
import pytest
from tests.client.bundle_agents import (
    AGENTS,
    LARGE,
    act,
    all_there_is,
    by_another,
    clerk,
    fails,
    guest,
    host,
    house,
    house_of_cards,
    planner,
    sleeper,
    talker,
    two_edit,
    two_edit_a_page,
    two_edit_a_price,
    two_of_us,
)
from tests.security.fuzzers.bundles import Apart

import holdfast
import holdfast.testing
from holdfast.client.bundles import add_decisions, read, read_from, read_receipt
from holdfast.client.edge import open_bundle
from holdfast.errors import BadBundle
from holdfast.store.bundles import CONTENT, Mark, Move
from holdfast.values import bundle as bundle_files
from holdfast.values import codec
from holdfast.words.people import Actor

WAYS = ["sqlite-sqlite", "sqlite-postgres", "postgres-sqlite"]
QUICK = holdfast.Settings(park_grace_s=0.0)

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_move_is_confirmed_or_taken_back",
    "test_all_that_a_run_can_have_comes_along",
    "test_of_two_exports_at_once_one_moves_the_run",
}


class Road:
    """Two stores, and a folder of keys that both sides use unless a test says otherwise."""

    def __init__(self, source, destination, folder):
        self.source, self.destination, self.folder = source, destination, folder
        self.keys = holdfast.Keys(folder / "keys")
        self.file = folder / "run.bundle"

    @contextlib.asynccontextmanager
    async def open(self, which, *, agents=AGENTS):
        async with holdfast.open(getattr(self, which), agents=agents, settings=QUICK) as hf:
            yield hf

    async def move(self, run, **more):
        async with holdfast.open(self.destination) as there:
            to = await there.store_id()
        return await run.export(self.file, move=to, keys=self.keys, **more)

    async def take(self, **more):
        """Import the file, where agents are served."""
        async with self.open("destination") as hf:
            told = await hf.import_run(self.file, keys=self.keys, **more)
            return told, await hf.get(told.run).result(timeout=30)


@pytest.fixture(params=WAYS)
def road(request, tmp_path):
    kinds = request.param.split("-")
    urls = []
    for place, kind in enumerate(kinds):
        urls.append(
            f"sqlite:{tmp_path / f'{place}.db'}?durability=process"
            if kind == "sqlite"
            else request.getfixturevalue("postgres_url")
        )
    made = Road(*urls, tmp_path)
    made.keys.new("ana")
    return made


@pytest.fixture
def files(tmp_path):
    """Two files: for what does not depend on the database."""
    made = Road(
        f"sqlite:{tmp_path / '0.db'}?durability=process", f"sqlite:{tmp_path / '1.db'}?durability=process", tmp_path
    )
    made.keys.new("ana")
    return made


async def waiting(hf, agent, *arguments, id="r"):
    run = await hf.start(agent, *arguments, id=id)
    await run.wait("waiting", waits_for="timer" if agent is sleeper else "message")
    return run


async def nested(hf):
    """The house, whose clerk waits for a person."""
    run = await hf.start(house, "ada", id="r")
    question = await run.wait_for_question()
    for each in await hf.runs():
        await hf.get(each.id).wait("waiting")
    return run, question


async def test_a_family_that_waits_for_a_person_goes_on_elsewhere(road):
    """Moved with its question; here it is closed, with a word where it went."""
    async with road.open("source") as hf:
        run, question = await nested(hf)
        made = await road.move(run, by="ben")
        assert (made.kind, made.run, made.summary["runs"], made.signed_by) == ("move", "r", 2, "ana")
        assert [each["question"] for each in made.summary["asks"]] == ["May ada come in?"]
        info = await run.info()
        assert info.status == "moved" and made.destination in info.reason
        with pytest.raises(holdfast.RunFinished, match=f"moved to store {made.destination}"):
            await hf.approve(question, by="zoe")
        with pytest.raises(holdfast.RunFinished, match="moved to store"):
            await run.result()
        for act in (run.resume, run.cancel, run.pause, run.retry):
            with pytest.raises(holdfast.RunFinished, match="moved"):
                await act()
        with pytest.raises(holdfast.RunFinished):
            await run.send("go", "on")
        assert not await hf.approvals()
        assert [deed.action for deed in await hf.audit(run="r", by="ben")] == ["move"]
    async with road.open("destination") as hf:
        told = await hf.import_run(road.file, keys=road.keys)
        assert (told.run, told.runs, told.questions, told.missing, told.changed) == ("r", 2, (question.id,), (), ())
        (again,) = await hf.approvals()
        assert (again.id, again.path, again.shown, again.asked_at) == (
            question.id, ("house", "clerk"), {"name": "ada"}, question.asked_at,
        )  # fmt: skip
        await hf.approve(again, by=holdfast.Actor("zoe", groups=["doorkeepers"]), data={"name": "bo"})
        assert await hf.get("r").result(timeout=30) == "did let bo in"
        events = [event async for event in hf.get("r").events(follow=False)]
        done = [event.data["input"] for event in events if event.kind == "step.completed"]
        assert done == ["what='open'", "what='close'"]  # the first was recorded there, the last here


async def test_all_that_a_run_can_have_comes_along(road):
    async with road.open("source") as hf:
        run = await waiting(hf, all_there_is, "otters")
        before = [chunk.data async for chunk in run.stream("answer", follow=False)]
        await road.move(run)
        assert (await hf.conversation("talk").info()).run is None
    async with road.open("destination") as hf:
        await hf.import_run(road.file, keys=road.keys)
        run = hf.get("r")
        assert [chunk.data async for chunk in run.stream("answer", follow=False)] == before
        (fetched,) = [step async for step in run.steps() if step.name == "fetch"]
        assert (await fetched.arguments())["words"][0] == "otters " * 100
        assert (await hf.conversation("talk").info()).run == "r"
        await run.send("go", "on")
        message, child, length, _, *rest = await run.result(timeout=30)
        assert (message, child, length) == ("on", "did stack otters", str(len(LARGE)))
        assert rest == ["about otters", "did last"]
        assert [each.value for each in await hf.conversation("talk").messages()] == ["about otters", "done"]


async def test_only_the_store_that_a_move_names_takes_it_and_once(road):
    async with road.open("source") as hf:
        run, question = await nested(hf)
        await road.move(run)
    async with holdfast.open(f"sqlite:{road.folder / 'third.db'}") as third:
        with pytest.raises(holdfast.BadBundle, match="is for the store"):
            await third.import_run(road.file, keys=road.keys)
        assert not await third.runs()
    async with road.open("destination") as hf:
        dry = await hf.import_run(road.file, keys=road.keys, dry_run=True)
        assert dry.dry_run and not await hf.runs()
        await hf.import_run(road.file, keys=road.keys)
        with pytest.raises(holdfast.BadBundle, match="imported here before"):
            await hf.import_run(road.file, keys=road.keys)
        await hf.deny(question.id, by=holdfast.Actor("zoe", groups=["doorkeepers"]), note="late")
        assert await hf.get("r").result(timeout=30) == "did sent ada away: late"
        await hf.get("r").delete()
        with pytest.raises(holdfast.BadBundle, match="imported here before"):
            await hf.import_run(road.file, keys=road.keys)


async def test_of_two_imports_at_once_one_has_the_run(road):
    """Both have read the file before either is in the store."""
    async with road.open("source") as hf:
        run, _ = await nested(hf)
        await road.move(run)
    async with road.open("destination") as hf, holdfast.open(road.destination) as other:
        told = await asyncio.gather(
            *(each.import_run(road.file, keys=road.keys) for each in (hf, other, hf)), return_exceptions=True
        )
        (taken,) = [each for each in told if not isinstance(each, Exception)]
        assert taken.run == "r"
        assert all(isinstance(each, BadBundle) for each in told if each is not taken), told
        assert len(await hf.runs()) == 2


async def test_a_run_comes_back_and_takes_the_place_of_what_was_left_of_it(road):
    async with road.open("source") as hf:
        run, question = await nested(hf)
        await road.move(run)
    async with road.open("destination") as there:
        await there.import_run(road.file, keys=road.keys)
        await there.get("r").wait("waiting")
        async with holdfast.open(road.source) as hf:
            home = await hf.store_id()
        await there.get("r").export(road.folder / "back.bundle", move=home, keys=road.keys)
    async with road.open("source") as hf:
        await hf.import_run(road.folder / "back.bundle", keys=road.keys)
        await hf.approve(question.id, by=holdfast.Actor("zoe", groups=["doorkeepers"]))
        assert await hf.get("r").result(timeout=30) == "did let ada in"
        with pytest.raises(holdfast.RunActive, match="not moved"):
            await hf.get("r").take_back(force=True)


async def test_a_decision_is_written_into_the_file_and_counts_where_that_is_imported(road):
    """Decided by a person who has the file and a key, and neither store."""
    hers = holdfast.Keys(road.folder / "hers")
    line = hers.new("zoe").public
    hers.trust(road.keys.own("ana").public)
    async with road.open("source") as hf:
        run, question = await nested(hf)
        await road.move(run)
    async with open_bundle(str(road.file), Actor("zoe"), "cli:zoe", lambda: hers.own("zoe"), hers) as look:
        (asked,) = await look.approvals()
        assert asked.id == question.id
        await look.approve(asked, by=Actor("zoe", via="cli:zoe"), data={"name": "eve"}, note="she may")
    made_at = time.time() * 1000
    async with road.open("destination") as hf:
        with pytest.raises(holdfast.BadBundle, match=r"'zoe' .* not trusted here"):
            await hf.import_run(road.file, keys=road.keys)
        road.keys.trust(line, uses=["decisions"])
        with pytest.raises(holdfast.NotAllowed, match="it is for doorkeepers"):
            await hf.import_run(road.file, keys=road.keys)
        assert not await hf.runs()
        road.keys.trust(line, uses=["decisions"], groups=["doorkeepers"])
        told = await hf.import_run(road.file, keys=road.keys)
        assert (told.decisions, told.questions) == (1, ())
        assert await hf.get("r").result(timeout=30) == "did let eve in"
        (deed,) = await hf.audit(action="approve")
        assert deed.by == "zoe" and deed.via.startswith("bundle:") and deed.value == {"name": "eve"}
        (event,) = [each for each in await _family_events(hf) if each.kind == "approval.decided"]
        assert event.data["at"] == deed.data["at"] < made_at  # when she said it


async def test_a_key_for_decisions_signs_no_bundles(files):
    theirs = holdfast.Keys(files.folder / "theirs")
    theirs.new("eve")
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        await run.export(files.file, keys=theirs)
    files.keys.trust(theirs.own().public, uses=["decisions"])
    async with files.open("destination") as hf:
        with pytest.raises(holdfast.BadBundle, match="trusted for decisions here"):
            await hf.import_run(files.file, keys=files.keys)


async def test_an_encrypted_bundle_is_read_by_its_recipient_alone(road):
    theirs = holdfast.Keys(road.folder / "theirs")
    line = theirs.new("bob").public
    theirs.trust(road.keys.own().public)
    road.keys.trust(line)
    async with road.open("source") as hf:
        run, question = await nested(hf)
        made = await road.move(run, recipient="bob")
        assert made.summary["run"] == "r"
    content = road.file.read_bytes()
    assert b"clerk" not in content and json.loads(content.split(b"\n")[1]) == {
        "encrypted_for": "bob", "key": theirs.own().id,
    }  # fmt: skip
    async with road.open("destination") as hf:
        with pytest.raises(holdfast.BadBundle, match="encrypted for 'bob'"):
            await hf.import_run(road.file, keys=road.keys)
        async with open_bundle(str(road.file), Actor("bob"), "cli:bob", theirs.own, theirs) as look:
            await look.deny(question.id, by=Actor("bob", via="cli:bob"), note="secret reason")
        assert b"secret reason" not in road.file.read_bytes()
        bob = theirs.own()
        (theirs.folder / "bob.key").rename(road.keys.folder / "bob.key")
        with pytest.raises(holdfast.NotAllowed):  # he is in no group here
            await hf.import_run(road.file, keys=road.keys)
        assert bob.id in {key.id for key in road.keys.all()}


async def test_a_shared_secret_signs_as_well(files):
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        files.keys.new("us", shared=True)
        await files.move(run, key="us")
    async with files.open("destination") as hf:
        assert (await hf.import_run(files.file, keys=files.keys)).run == "r"


async def test_a_running_body_ends_before_its_run_is_moved(road):
    """Paused at a safe point; where it arrives it goes on without being told."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def slow() -> str:
        entered.set()
        await leave.wait()
        return "slowly"

    @holdfast.agent
    async def worker_bee() -> str:
        said = await slow()
        await holdfast.receive("go")  # else it may end before its worker hears of the pause
        return said

    async with road.open("source", agents=[worker_bee]) as hf:
        run = await hf.start(worker_bee, id="r")
        await entered.wait()
        with pytest.raises(TimeoutError, match="no safe point within"):
            await road.move(run, timeout=0.2)
        before = (await hf.store.run("r")).inbox_count
        moving = asyncio.create_task(road.move(run))
        while (await hf.store.run("r")).inbox_count == before:  # until it is asked to pause
            await asyncio.sleep(0.005)
        assert not moving.done()
        leave.set()
        await moving
        assert (await run.info()).status == "moved"
    async with road.open("destination", agents=[worker_bee]) as hf:
        entered.clear()
        await hf.import_run(road.file, keys=road.keys)
        await hf.get("r").send("go", None)
        assert await hf.get("r").result(timeout=30) == "slowly"
        assert not entered.is_set()


async def test_a_run_that_a_dead_export_paused_goes_on_where_another_one_moves_it(road):
    """The same command finishes what was killed, and the pause was for that alone."""
    async with road.open("source") as hf:
        run = await waiting(hf, guest)
        await hf.store.pause("r", by="ana", request="move:of the dead", family=False, yields=True)
        await run.wait("paused")
        await road.move(run)
    async with road.open("destination") as hf:
        await hf.import_run(road.file, keys=road.keys)
        await hf.get("r").send("go", "on")
        assert await hf.get("r").result(timeout=20) == "on"


@pytest.mark.parametrize("later", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("comes", [True, False], ids=["moved", "given up"])
async def test_a_pause_by_a_person_outlives_that_of_a_move(files, comes, later):
    """Both wait for the same body to end, whoever was first; the person's holds the run, here or where it is imported."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def slow() -> str:
        entered.set()
        await leave.wait()
        return "slowly"

    @holdfast.agent
    async def bee() -> str:
        return await slow()

    async def asked(hf, times):
        while len([each for each in await hf.store.inbox("r", 0) if each.kind == "run.pausing"]) < times:
            await asyncio.sleep(0.01)

    async with files.open("source", agents=[bee]) as hf:
        run = await hf.start(bee, id="r")
        await entered.wait()
        if not later:
            await run.pause(by="ana")
        moving = asyncio.create_task(files.move(run, timeout=None if comes else 0.2))
        await asked(hf, 1 if later else 2)
        if later:
            await run.pause(by="ana")
        if comes:
            leave.set()
            await moving
        else:
            with pytest.raises(TimeoutError, match="nothing was moved"):
                await moving
            leave.set()
            assert "ana" in (await run.wait("paused")).reason
            return
    async with files.open("destination", agents=[bee]) as hf:
        await hf.import_run(files.file, keys=files.keys)
        info = await hf.get("r").info()
        assert info.status == "paused" and "ana" in info.reason
        await hf.get("r").resume()
        assert await hf.get("r").result(timeout=20) == "slowly"


async def test_a_run_whose_worker_died_is_moved_without_it(files):
    """Nobody serves it: it is fenced and paused, as a crash would leave it."""
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
    async with holdfast.open(files.source) as hf:
        (row,) = await hf.store.claim(["sleeper"], 1, 0, early_ms=10**9)
        assert row.id == "r"
        await files.move(hf.get("r"))
    async with files.open("destination") as hf:
        await hf.import_run(files.file, keys=files.keys)
        assert (await hf.get("r").wait("waiting")).waits_for == "timer"
    del run


async def test_a_failed_run_is_moved_and_retried_there(road):
    async with road.open("source") as hf:
        run = await hf.start(fails, id="r")
        await run.wait("failed")
        await road.move(run)
    async with road.open("destination") as hf:
        await hf.import_run(road.file, keys=road.keys)
        run = hf.get("r")
        await run.retry()
        await run.wait("failed")
        with pytest.raises(holdfast.RunFailed, match="no"):
            await run.result()


async def test_what_cannot_be_exported_is_said(files):
    async with files.open("source") as hf:
        run, _ = await nested(hf)
        child = next(each.id for each in await hf.runs() if each.parent)
        own = await hf.store_id()
        with pytest.raises(holdfast.BadArguments, match="belongs to run 'r'"):
            await hf.get(child).export(files.file, keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="not of this one"):
            await run.export(files.file, move=own, keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="not of this one"):
            await run.export(files.file, move="prod", keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="goes to a file"):
            await run.export(io.BytesIO(), move="0" * 32, keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="holdfast key new"):
            await run.export(files.file, keys=files.folder / "nothing")
        with pytest.raises(holdfast.BadArguments, match="no folder"):
            await run.export(files.folder / "no" / "file", keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="effects='all'"):
            await run.export(files.file, effects="all", keys=files.keys)
        with pytest.raises(holdfast.UnknownRun):
            await hf.get("nobody").export(files.file, keys=files.keys)
        files.file.write_text("mine")
        with pytest.raises(holdfast.BadArguments, match="is there already"):
            await files.move(run)
        assert files.file.read_text() == "mine" and (await run.info()).status == "waiting"
        done = await hf.start(house, "x", id="done")
        await done.cancel()
        await done.cancel()
        await done.wait()
        with pytest.raises(holdfast.RunFinished, match="nothing to move"):
            await done.export(files.folder / "done.bundle", move="0" * 32, keys=files.keys)


async def test_a_move_is_written_again_until_it_is_confirmed(road):
    async with road.open("source") as hf:
        run, _ = await nested(hf)
        made = await road.move(run)
        first = road.file.read_bytes()
        road.file.unlink()
        with pytest.raises(holdfast.RunActive, match="has not confirmed"):
            await run.delete()
        assert await hf.prune(0, status="moved") == 0
        with pytest.raises(holdfast.RunFinished, match="Only that store"):
            await run.export(road.file, move="0" * 32, keys=road.keys)
        again = await run.export(road.file, keys=road.keys)
        assert road.file.read_bytes() == first and again.id == made.id
        await run.confirm_move(by="ana")
        with pytest.raises(holdfast.RunFinished, match="it came there"):
            await run.export(road.folder / "third.bundle", keys=road.keys)
        with pytest.raises(holdfast.RunFinished, match="move it back from there"):
            await run.take_back(force=True)
        assert await run.delete() == 2


async def test_a_move_is_taken_back_by_force_alone(road):
    async with road.open("source") as hf:
        run, question = await nested(hf)
        await road.move(run)
        with pytest.raises(holdfast.BadArguments, match="every effect happens twice"):
            await run.take_back()
        await run.take_back(force=True, by="ben")
        (asked,) = await hf.approvals()
        assert asked.id == question.id
        await hf.approve(asked, by=holdfast.Actor("zoe", groups=["doorkeepers"]))
        assert await run.result(timeout=30) == "did let ada in"
        assert [deed.action for deed in await hf.audit(run="r", by="ben")] == ["take_back"]
        with pytest.raises(holdfast.RunActive):
            await run.take_back(force=True)


def slow_disk(monkeypatch, meanwhile, times=1):
    """Let something happen, `times` times, while a file is flushed."""
    left, flush = list(range(times)), os.fsync

    def slow(file):
        with contextlib.suppress(IndexError):
            left.pop()
            meanwhile()
        flush(file)

    monkeypatch.setattr(os, "fsync", slow)


async def hosting(hf):
    run = await waiting(hf, host)
    (child,) = [hf.get(each.id) for each in await hf.runs() if each.parent]
    await child.wait("waiting", waits_for="message")
    return run, child


@pytest.mark.parametrize("end", ["completed", "cancelled"])
async def test_a_run_that_ends_while_its_file_is_written_is_not_moved(road, end, monkeypatch):
    """Nothing below it is given up: no store would take that, and it would be lost."""
    async with road.open("source") as hf:
        run, child = await hosting(hf)
        loop = asyncio.get_running_loop()

        async def ends():
            await (run.send("end", "bye") if end == "completed" else run.cancel(grace="0s"))
            await run.wait(end)

        slow_disk(monkeypatch, lambda: asyncio.run_coroutine_threadsafe(ends(), loop).result(20))
        with pytest.raises(holdfast.RunFinished, match=f"'r' is {end}: it has ended, and there is nothing to move"):
            await road.move(run, timeout=20)
        assert not list(road.folder.glob("*.bundle*")) and await hf.store.moved("r") is None
        if end == "completed":  # with a run that is cancelled those below it are
            assert (await child.info()).status == "waiting"
            await child.send("go", "on")
            assert await child.result(timeout=20) == "on"


async def test_the_move_itself_refuses_a_run_that_has_ended(road):
    async with road.open("source") as hf:
        run, child = await hosting(hf)
        await run.send("end", "bye")
        await run.result(timeout=20)
        marks = {row.id: Mark.of(row) for row in (await hf.store.belongings("r")).runs}
        with pytest.raises(holdfast.RunFinished, match="nothing to move"):
            await hf.store.move(Move("b" * 32, "r", "0" * 32, marks, "move:1", b"", "moved", by="", via=""))
        assert (await child.info()).status == "waiting"


async def test_a_run_is_not_deleted_while_one_below_it_is_on_its_way(files):
    async with files.open("source") as hf:
        run, child = await hosting(hf)
        await files.move(run)
        # By the store's own library: a second one in a process takes the locks of the first away when it closes the file.
        with contextlib.closing(apsw.Connection(str(files.folder / "0.db"))) as db:
            db.execute("UPDATE runs SET status = 'completed' WHERE id = 'r'")
        with pytest.raises(holdfast.RunActive, match="has not confirmed"):
            await run.delete()
        assert await hf.prune(0) == 0
        await run.take_back(force=True)
        assert (await child.info()).status == "waiting"


async def test_of_two_exports_at_once_one_moves_the_run(road, monkeypatch):
    async with road.open("source") as hf, holdfast.open(road.source) as other:
        run = await waiting(hf, sleeper)
        both = threading.Barrier(2, timeout=20)
        slow_disk(monkeypatch, both.wait, times=2)  # each has read the run before the other moves it
        second = other.get("r").export(road.folder / "2.bundle", move="0" * 32, keys=road.keys, timeout=20)
        told = await asyncio.gather(road.move(run, timeout=20), second, return_exceptions=True)
        (made,) = [each for each in told if isinstance(each, holdfast.Bundle)]
        (error,) = [each for each in told if isinstance(each, holdfast.RunFinished)]
        (file,) = road.folder.glob("*.bundle*")
        assert f"moved to store {made.destination} in {file.name} by another export" in str(error)
        assert (await run.info()).status == "moved" and made.id == (await hf.store.moved("r")).bundle
        again = await run.export(file, keys=road.keys)  # over itself alone
        assert again.id == made.id


async def test_the_time_of_a_move_includes_its_file(files, monkeypatch):
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        slow_disk(monkeypatch, lambda: time.sleep(0.6))
        with pytest.raises(TimeoutError, match="nothing was moved"):
            await files.move(run, timeout=0.5)
        assert not list(files.folder.glob("*.bundle*")) and (await run.info()).status == "waiting"


async def test_a_move_is_confirmed_or_taken_back(road):
    async with road.open("source") as hf, holdfast.open(road.source) as other:
        for place in range(5):
            run = await waiting(hf, sleeper, id=f"r{place}")
            road.file = road.folder / f"{place}.bundle"
            made = await road.move(run)
            told = await asyncio.gather(
                run.confirm_move(), other.get(run.id).take_back(force=True), return_exceptions=True
            )
            confirmed = (await run.info()).status == "moved"
            assert [type(each) for each in told] == (
                [type(None), holdfast.RunFinished] if confirmed else [holdfast.RunActive, type(None)]
            )
        run = await waiting(hf, sleeper)
        road.file = road.folder / "last.bundle"
        made = await road.move(run)
        await run.take_back(force=True)
        with pytest.raises(holdfast.RunActive, match="taken back, and there is nothing to confirm"):
            await hf.store.confirm("r", made.id, {}, by="", via="")  # by one who read it before
        assert (await hf.store.moved("r")).confirmed_at is None


async def test_the_receipt_of_the_destination_confirms_a_move(road):
    """Signed there, checked here; from then on the bundle is not written again, and the move is not undone."""
    theirs = holdfast.Keys(road.folder / "theirs")
    theirs.new("bob")
    theirs.trust(road.keys.own().public)
    slip = road.folder / "r.receipt"
    async with road.open("source") as hf, road.open("destination") as there:
        run = await waiting(hf, sleeper)
        made = await road.move(run)
        with pytest.raises(holdfast.BadArguments, match="no key to sign with"):
            await there.import_run(road.file, keys=_only_trusting(road), receipt=slip)
        assert not await there.runs()
        await there.import_run(road.file, keys=theirs, receipt=slip)
        receipt = await there.get("r").move_receipt(keys=theirs)
        assert receipt.text == slip.read_text()
        assert (receipt.bundle, receipt.run, receipt.destination) == (made.id, "r", made.destination)
        with pytest.raises(holdfast.BadBundle, match=r"'bob' .* not trusted here"):
            await run.confirm_move(slip, keys=road.keys)
        road.keys.trust(theirs.own().public, uses=["decisions"])
        with pytest.raises(holdfast.BadBundle, match="not for bundles"):
            await run.confirm_move(slip, keys=road.keys)
        road.keys.trust(theirs.own().public)
        slip.write_text(slip.read_text().replace('"run":"r"', '"run":"q"'))
        with pytest.raises(holdfast.BadBundle, match="changed after 'bob' signed it"):
            await run.confirm_move(slip, keys=road.keys)
        assert (await hf.store.moved("r")).confirmed_at is None
        await run.confirm_move(receipt, keys=road.keys, by="ben")
        with pytest.raises(holdfast.RunFinished, match="it came there"):
            await run.export(road.folder / "again.bundle", keys=road.keys)
        with pytest.raises(holdfast.RunFinished, match="it came there"):
            await run.take_back(force=True)
        (deed,) = await hf.audit(action="confirm_move")
        assert deed.by == "ben" and deed.data["receipt"]["by"] == "bob"
        await there.get("r").cancel()
        await there.get("r").wait()
        await there.get("r").delete()
        assert (await there.get("r").move_receipt(keys=theirs)).bundle == made.id
        with pytest.raises(holdfast.UnknownRun, match="was moved into this store"):
            await hf.get("r").move_receipt(keys=road.keys)


def _only_trusting(road):
    keys = holdfast.Keys(road.folder / "trusting")
    keys.trust(road.keys.own().public)
    return keys


async def test_a_receipt_is_for_one_move_alone(files):
    async with files.open("source") as hf, holdfast.open(files.destination) as there:
        receipts = []
        for id in ("a", "b"):
            run = await waiting(hf, sleeper, id=id)
            files.file = files.folder / f"{id}.bundle"
            await files.move(run)
            await there.import_run(files.file, keys=files.keys)
            receipts.append(await there.get(id).move_receipt(keys=files.keys))
        with pytest.raises(holdfast.BadBundle, match="is for run 'b'"):
            await hf.get("a").confirm_move(receipts[1], keys=files.keys)
        # It comes back, and is moved once more: the receipt of the first time proves nothing of the second.
        back = files.folder / "back.bundle"
        await there.get("a").export(back, move=await hf.store_id(), keys=files.keys)
        await hf.import_run(back, keys=files.keys)
        await hf.get("a").wait("waiting")
        files.file = files.folder / "again.bundle"
        await files.move(hf.get("a"))
        with pytest.raises(holdfast.BadBundle, match="holdfast receipt a"):
            await hf.get("a").confirm_move(receipts[0], keys=files.keys)
        await hf.get("b").take_back(force=True)
        with pytest.raises(holdfast.RunActive, match="two stores go on"):
            await hf.get("b").confirm_move(receipts[1], keys=files.keys)
        for bad in (files.file, files.folder / "nothing", files.folder):
            with pytest.raises((holdfast.BadBundle, holdfast.BadArguments), match="receipt"):
                await hf.get("a").confirm_move(bad, keys=files.keys)
        copied = files.folder / "copy.bundle"
        await hf.get("b").export(copied, keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="only a move has a receipt"):
            await there.import_run(copied, keys=files.keys, receipt=files.folder / "x.receipt")


async def test_two_exports_to_one_file_never_take_it_from_each_other(files, monkeypatch):
    """Moves of one run, and copies of two: the file is always that of one that succeeded, whole and released."""
    async with files.open("source") as hf, holdfast.open(files.source) as other:
        for place in range(12):
            run = await waiting(hf, sleeper, id=f"r{place}")
            file = files.folder / f"{place}.bundle"
            both = threading.Barrier(2, timeout=20)
            slow_disk(
                monkeypatch, both.wait, times=2 * (place % 2)
            )  # each has written its file before it gets its name
            told = await asyncio.gather(
                *(each.get(run.id).export(file, move="0" * 32, keys=files.keys, timeout=20) for each in (hf, other)),
                return_exceptions=True,
            )
            (made,) = [each for each in told if isinstance(each, holdfast.Bundle)]
            (error,) = [each for each in told if isinstance(each, holdfast.RunFinished | holdfast.BadArguments)]
            assert read(file, files.keys).told() == dataclasses.replace(made, size_bytes=file.stat().st_size), error
        assert not list(files.folder.glob(".*part"))
        for place in range(12):
            file = files.folder / f"copies{place}.bundle"
            runs = [(hf, "r0"), (other, "r1")]
            told = await asyncio.gather(
                *(_exported(each, run, file, files) for each, run in runs), return_exceptions=True
            )
            (made,) = [each for each in told if isinstance(each, holdfast.Bundle)]
            (error,) = [each for each in told if each is not made]
            assert "name another file for the bundle" in str(error)
            assert read(file, files.keys).head.manifest.id == made.id


async def _exported(hf, run, file, files):
    with contextlib.suppress(holdfast.HoldfastError):
        await hf.get(run).take_back(force=True)
    return await hf.get(run).export(file, keys=files.keys)


async def test_a_file_that_took_the_place_of_a_move_stays(files, monkeypatch):
    """The run is moved, and its bundle is written again under another name."""
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        moves = hf.store.move

        async def move(work):
            await moves(work)
            files.file.write_text("mine")

        monkeypatch.setattr(hf.store, "move", move, raising=False)
        with pytest.raises(holdfast.BadArguments, match="write it again: `holdfast export r --to FILE`"):
            await files.move(run)
        assert files.file.read_text() == "mine" and (await run.info()).status == "moved"
        made = await run.export(files.folder / "again.bundle", keys=files.keys)
        assert made.released


@pytest.mark.parametrize("in_doubt", ["retry", "ask"])
async def test_a_copy_of_a_run_at_work_says_so(files, in_doubt):
    """Nothing tells of a plain step that its body was running there: it runs again in the copy. One that is to ask does."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @holdfast.step(in_doubt=in_doubt)
    async def slow() -> str:
        entered.set()
        await leave.wait()
        return "slowly"

    @holdfast.agent
    async def bee() -> str:
        return await slow()

    async with files.open("source", agents=[bee]) as hf:
        run = await hf.start(bee, id="r")
        await entered.wait()
        made = await run.export(files.file, keys=files.keys)
        assert made.at_work == ("r",) and made.summary["at_work"] == ["r"]
        leave.set()
        await run.result(timeout=20)
        done = await run.export(files.folder / "done.bundle", keys=files.keys)
        assert done.at_work == ()
    entered.clear()
    async with files.open("destination", agents=[bee]) as hf:
        told = await hf.import_run(files.file, keys=files.keys)
        assert told.at_work == ("r",)
        copy = hf.get(told.run)
        if in_doubt == "ask":
            question = await copy.wait_for_question(timeout=20)
            assert question.kind == "in_doubt" and not entered.is_set()
            await hf.answer(question, "run", by="ana")
        assert await copy.result(timeout=20) == "slowly"
        assert entered.is_set()


async def test_a_decision_that_does_not_count_is_left_out_and_no_other(road):
    """Two must agree: one who may, and one whose key nobody knows there."""
    hers, his = holdfast.Keys(road.folder / "hers"), holdfast.Keys(road.folder / "his")
    ring = {"zoe": hers, "eve": his}
    for name, keys in ring.items():
        keys.new(name)
        keys.trust(road.keys.own().public)
    his.trust(hers.own().public)
    hers.trust(his.own().public)
    async with road.open("source", agents=[two_of_us]) as hf:
        run = await hf.start(two_of_us, id="r")
        question = await run.wait_for_question()
        await run.wait("waiting")
        await road.move(run)
    for name, keys in ring.items():
        async with open_bundle(str(road.file), Actor(name), f"cli:{name}", keys.own, keys) as look:
            await look.approve(question.id, by=Actor(name, via=f"cli:{name}"))
    road.keys.trust(hers.own().public, uses=["decisions"], groups=["owners"])
    async with road.open("destination", agents=[two_of_us]) as hf:
        with pytest.raises(holdfast.BadBundle, match=r"decision 2 in it, by 'eve', .* not trusted .*without=\[2\]"):
            await hf.import_run(road.file, keys=road.keys)
        road.keys.trust(his.own().public, uses=["decisions"])
        with pytest.raises(
            holdfast.NotAllowed, match=r"decision 2 in it, by 'eve', .* it is for owners.*without=\[2\]"
        ):
            await hf.import_run(road.file, keys=road.keys)
        with pytest.raises(holdfast.BadArguments, match="no decision 3"):
            await hf.import_run(road.file, keys=road.keys, without=[2, 3])
        assert not await hf.runs()
        told = await hf.import_run(road.file, keys=road.keys, without=[2])
        assert (told.decisions, told.questions) == (1, (question.id,))
        (asked,) = await hf.approvals()
        assert [vote.by for vote in asked.votes] == ["zoe"]
        await hf.approve(asked, by=holdfast.Actor("ida", groups=["owners"]))
        assert await hf.get("r").result(timeout=20) == "agreed"
        (deed,) = await hf.audit(action="import")
        assert deed.data["without"] == [2]


async def asked_of_two(files, agent=two_edit_a_page):
    """A question in a file that two must agree to, whose value may be edited; the first has agreed to what is shown."""
    for name in ("zoe", "eve"):
        files.keys.new(name)
    async with files.open("source", agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        question = await run.wait_for_question()
        await run.wait("waiting")
        async with holdfast.open(files.destination) as there:
            await run.export(files.file, move=await there.store_id(), keys=files.keys, key="ana")
    async with open_bundle(str(files.file), Actor("zoe"), "cli:zoe", lambda: files.keys.own("zoe"), files.keys) as look:
        await look.approve(question.id, by=Actor("zoe", via="cli:zoe"))
    return question


@pytest.mark.parametrize(
    ("value", "digest", "why"),
    [
        ('{"name":"mallory","lines":1}', None, "for a value that it does not have"),
        ('{"name":"mallory","lines":1}', "shown", "for another value than it has"),
        (None, "0" * 32, "for a value that it does not have"),
        ('{"name":7,"lines":1}', "own", "data: name"),
        ('{"name":"mallory"}', "own", "lines"),
        ('{"name":"mallory","lines":1,"more":1}', "own", "more"),
    ],
)
async def test_a_decision_in_a_file_is_for_the_value_that_it_has(files, value, digest, why):
    """Else one of two who must agree could put another value under the word of the other."""
    question = await asked_of_two(files)
    digest = {"shown": question.digest, "own": codec.digest(value or "null")}.get(digest, digest)
    told = {"id": "x", "question": question.id, "yes": True, "note": "", "at": round(time.time() * 1000),
            "seen": question.digest, "value": value, "digest": digest}  # fmt: skip
    add_decisions(files.file, files.keys, read(files.file, files.keys), [(files.keys.own("eve"), told)])
    async with files.open("destination", agents=[two_edit_a_page]) as hf:
        with pytest.raises(holdfast.BadBundle, match=f"decision 2 in it, by 'eve', does not count: .*{why}"):
            await hf.import_run(files.file, keys=files.keys)
        await hf.import_run(files.file, keys=files.keys, without=[2])
        await hf.approve(question.id, by="ida")
        assert await hf.get("r").result(timeout=20) == "otters"  # what both were shown


async def test_an_edit_beyond_the_limits_of_its_type_is_refused_at_the_file_and_by_the_import(files):
    """A decimal as a text too: the run that gets it would fail."""
    question = await asked_of_two(files, two_edit_a_price)
    own, before = files.keys.own("eve"), files.file.read_bytes()
    why = "eur: found str '-5', expected greater than or equal to 0"
    with pytest.raises(holdfast.BadArguments, match=why):
        async with open_bundle(str(files.file), Actor("eve"), "cli:root", lambda: own, files.keys) as look:
            await look.approve(question.id, by=Actor("eve", via="cli:root"), data={"eur": "-5"})
    assert files.file.read_bytes() == before
    value = '{"eur":"-5"}'
    told = {"id": "x", "question": question.id, "yes": True, "note": "", "at": round(time.time() * 1000),
            "seen": question.digest, "value": value, "digest": codec.digest(value)}  # fmt: skip
    add_decisions(files.file, files.keys, read(files.file, files.keys), [(own, told)])
    async with files.open("destination", agents=[two_edit_a_price]) as hf:
        with pytest.raises(holdfast.BadBundle, match=f"decision 2 in it, by 'eve', does not count: .*{why}"):
            await hf.import_run(files.file, keys=files.keys)
        await hf.import_run(files.file, keys=files.keys, without=[2])
        await hf.approve(question.id, by="ida")
        assert await hf.get("r").result(timeout=20) == "9.90"


async def test_edits_of_several_people_in_a_file_follow_each_other(files):
    question = await asked_of_two(files)
    for name in ("eve", "zoe"):
        own = files.keys.own(name)
        async with open_bundle(str(files.file), Actor(name), "cli:root", lambda own=own: own, files.keys) as look:
            await look.approve(
                await look.approval(question.id), by=Actor(name, via="cli:root"), data={"name": "bees", "lines": 2}
            )
    async with files.open("destination", agents=[two_edit_a_page]) as hf:
        assert (await hf.import_run(files.file, keys=files.keys)).decisions == 3
        assert await hf.get("r").result(timeout=20) == "bees"


async def test_a_decision_is_for_the_file_that_was_looked_at(files):
    """Another bundle under its name, or a decision that came in between, is something else than was shown."""
    question = await asked_of_two(files)
    own = files.keys.own("eve")
    before = files.file.read_bytes()
    head = read(files.file, files.keys).head
    other = before[: head.ends]  # the same bundle, before anybody had decided in it

    async def decided(meanwhile):
        async with open_bundle(str(files.file), Actor("eve"), "cli:root", lambda: own, files.keys) as look:
            await look.approve(question.id, by=Actor("eve", via="cli:root"))
            files.file.write_bytes(meanwhile)

    release = before.index(b"\nrelease ") + len(b"\nrelease ")
    early = before[:release] + b"-" * 88 + before[release + 88 :]  # as its export left it that was interrupted
    for content, error, why in (
        (other, holdfast.Stale, "not what you were shown"), (b"mine", BadBundle, "it is not a bundle"),
        (early, BadBundle, "still has run 'r'"),
    ):  # fmt: skip
        with pytest.raises(error, match=why):
            await decided(content)
        assert files.file.read_bytes() == content
        files.file.write_bytes(before)


async def test_what_was_decided_in_a_file_stays_when_the_bundle_is_written_again(files):
    await asked_of_two(files)
    decided = files.file.read_bytes()
    head = read(files.file, files.keys).head
    async with files.open("source", agents=[two_edit_a_page]) as hf:
        await hf.get("r").export(files.file, keys=files.keys, key="ana")
        assert files.file.read_bytes() == decided
        files.file.write_bytes(decided[: head.begins + 9])  # it was not copied whole
        await hf.get("r").export(files.file, keys=files.keys, key="ana")
        assert files.file.read_bytes() == decided[: head.ends]
        files.file.write_bytes(decided + b"half a decis")
        with pytest.raises(holdfast.BadArguments, match="name another file"):
            await hf.get("r").export(files.file, keys=files.keys, key="ana")
        assert files.file.read_bytes() == decided + b"half a decis"


async def test_a_copy_of_a_store_moves_nothing_before_it_is_activated(files):
    """Its original has the run too, so two stores would go on with it."""
    async with files.open("source") as hf:
        await waiting(hf, sleeper)
        await hf.backup(files.folder / "all.backup")
    restored = f"sqlite:{files.folder / 'restored.db'}"
    await holdfast.restore_backup(files.folder / "all.backup", restored)
    async with holdfast.open(restored) as hf:
        run = hf.get("r")
        with pytest.raises(holdfast.BadArguments, match=r"a copy and held.*restore --activate"):
            await files.move(run)
        assert not files.file.exists() and (await run.info()).status == "waiting"
        await hf.activate()
        assert (await files.move(run)).released


async def test_a_person_who_may_not_decide_anywhere_is_refused_at_the_file(files):
    """The run was started by the decider: another person is to decide."""
    files.keys.new("zoe")
    async with files.open("source", agents=[by_another]) as hf:
        run = await hf.acting_as("zoe").start(by_another, id="r")
        question = await run.wait_for_question()
        await run.wait("waiting")
        async with holdfast.open(files.destination) as there:
            await run.export(files.file, move=await there.store_id(), keys=files.keys, key="ana")
    before = files.file.read_bytes()
    for key in ("zoe", "ana"):
        own = files.keys.own(key)
        look = open_bundle(str(files.file), Actor(key), "cli:root", lambda own=own: own, files.keys)
        if key == "zoe":
            with pytest.raises(holdfast.NotAllowed, match="zoe"):
                async with look as hf:
                    await hf.approve(question.id, by=Actor("zoe", via="cli:root"))
            assert files.file.read_bytes() == before
        else:
            async with look as hf:
                await hf.approve(question.id, by=Actor("ana", via="cli:root"))
    async with files.open("destination", agents=[by_another]) as hf:
        await hf.import_run(files.file, keys=files.keys)
        assert await hf.get("r").result(timeout=20) == "fine"


async def test_a_bundle_is_encrypted_for_somebody_who_is_known_and_not_trusted(files):
    theirs = holdfast.Keys(files.folder / "theirs")
    bob = theirs.new("bob")
    theirs.trust(files.keys.own().public)
    known = files.keys.add(bob.public)
    assert (known.kind, known.uses, known.groups) == ("known", (), ())
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        await run.export(files.file, recipient="bob", keys=files.keys)
        await run.export(files.folder / "his.bundle", keys=theirs)
        with pytest.raises(holdfast.BadBundle, match="not trusted here"):
            await hf.import_run(files.folder / "his.bundle", keys=files.keys)
        with pytest.raises(holdfast.BadArguments, match="holdfast key add LINE"):
            await run.export(files.folder / "x.bundle", recipient="eve", keys=files.keys)
    async with files.open("destination") as hf:
        assert (await hf.import_run(files.file, keys=theirs, dry_run=True)).kind == "copy"
    assert files.keys.own().name == "ana"  # somebody else's signs nothing
    with pytest.raises(holdfast.BadArguments, match="another key of 'bob' is known"):
        files.keys.add(holdfast.Keys(files.folder / "more").new("bob").public)
    assert files.keys.trust(bob.public).kind == "trusted"
    assert [(key.name, key.kind) for key in files.keys.all()] == [("ana", "own"), ("bob", "trusted")]
    with pytest.raises(holdfast.BadArguments, match="trusted already"):
        files.keys.add(bob.public, name="robert")


async def test_the_summary_says_what_a_person_would(files):
    async with files.open("source", agents=[planner]) as hf:
        run = await hf.start(planner, "otters", [1, 2], id="r")
        await run.wait_for_question()
        made = await run.export(files.file, keys=files.keys)
    told = made.summary
    assert told["arguments"] == {"topic": "otters", "more": [1, 2]}
    assert told["progress"] == {"done": 1, "total": 3, "text": "half way"}
    assert told["plan"] == [{"item": "read", "done": True}, {"item": "write", "done": False}]
    assert told["asks"][0]["shown"] == {"title": "otters", "body": "x" * 20}


async def test_a_copy_does_not_take_the_name_of_the_original(files):
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        await run.export(files.file, keys=files.keys)
    async with files.open("destination") as hf:
        with pytest.raises(holdfast.BadArguments, match="may be moved here one day"):
            await hf.import_run(files.file, keys=files.keys, id="r")


async def test_a_copy_of_a_cancelled_run_goes_on_from_before_that(road):
    async with road.open("source") as hf:
        run, _ = await nested(hf)
        await run.cancel(grace="0s")
        await run.wait("cancelled")
        await run.export(road.file, keys=road.keys)
    async with road.open("destination") as hf:
        told = await hf.import_run(road.file, keys=road.keys)
        question = await hf.get(told.run).wait_for_question()
        await hf.approve(question, by=holdfast.Actor("zoe", groups=["doorkeepers"]))
        assert await hf.get(told.run).result(timeout=30) == "did let ada in"


async def test_a_conversation_that_went_on_elsewhere_is_not_mixed(road):
    async with road.open("source") as hf:
        run = await waiting(hf, talker, "one")
        await road.move(run)
    async with road.open("destination") as hf:
        other = await waiting(hf, talker, "another", id="other")
        with pytest.raises((holdfast.BadArguments, holdfast.ConversationBusy), match="nothing was imported"):
            await hf.import_run(road.file, keys=road.keys)
        assert [each.id for each in await hf.runs()] == ["other"]
        await other.cancel()
        await other.wait()


async def test_an_id_that_is_taken_is_refused(files):
    async with files.open("source") as hf:
        run = await waiting(hf, sleeper)
        await files.move(run)
    async with files.open("destination") as hf:
        await waiting(hf, sleeper)
        with pytest.raises(holdfast.RunExists, match="'r' here already"):
            await hf.import_run(files.file, keys=files.keys)
        with pytest.raises(holdfast.RunExists):
            await hf.import_run(files.file, keys=files.keys, dry_run=True)


async def test_a_copy_has_the_past_of_the_original_and_goes_on_by_itself(road):
    """The original stays; both end, each with a question and keys of its own for what comes."""
    async with road.open("source") as hf:
        run = await waiting(hf, all_there_is, "otters")
        made = await run.export(road.file, keys=road.keys)
        assert made.kind == "copy"
        await run.send("go", "home")
        first = (await run.result(timeout=30))[3]
        with pytest.raises(holdfast.RunExists, match="fork it"):
            await hf.import_run(road.file, keys=road.keys)
    async with road.open("destination") as hf:
        dry = await hf.import_run(road.file, keys=road.keys, id="copy", dry_run=True)
        assert dry.run == "copy" and not await hf.runs()
        told = await hf.import_run(road.file, keys=road.keys, id="copy")
        assert [each.id for each in await hf.runs()] == [told.run] == ["copy"]
        run = hf.get("copy")
        assert (
            "".join([chunk.data async for chunk in run.stream("answer", follow=False)]) == "half a \U0001f9a6 thought"
        )
        await run.send("go", "on")
        message, child, length, seed, *rest = await run.result(timeout=30)
        assert (message, child, length, seed) == ("on", "did stack otters", str(len(LARGE)), first)
        assert rest == ["about otters", "did last"]
        with pytest.raises(holdfast.RunExists, match=r"there is a run 'copy'"):
            await hf.import_run(road.file, keys=road.keys, id="copy")
        first, second = await run.forks()
        assert (first.id, first.status, first.imported_from) == ("r", "elsewhere", made.source)
        assert (second.id, second.of, second.imported_from) == ("copy", "r", None)
        again = await hf.import_run(road.file, keys=road.keys)
        assert again.run == f"r-{made.id[:8]}"
        await hf.get(again.run).wait("waiting")
        assert await run.delete() == 1


async def test_a_copy_asks_anew_before_it_does_again_what_the_original_did(files):
    async with files.open("source") as hf:
        run, question = await nested(hf)
        await run.export(files.file, keys=files.keys)
    async with files.open("destination") as hf:
        copy = hf.get((await hf.import_run(files.file, keys=files.keys)).run)
        asked = await copy.wait_for_question(timeout=30)
        assert asked.id != question.id and asked.question == "May ada come in?"
        await hf.approve(asked, by=holdfast.Actor("zoe", groups=["doorkeepers"]))
        assert await copy.result(timeout=30) == "did let ada in"
    with pytest.raises(holdfast.BadArguments, match="asks its questions anew"):
        async with open_bundle(str(files.file), Actor("ana"), "cli:ana", files.keys.own, files.keys) as look:
            await look.deny(question.id, by=Actor("ana", via="cli:ana"))


@pytest.mark.parametrize("way", ["moved", "copied"])
async def test_a_fork_that_no_worker_has_begun_is_carried(files, way):
    async with files.open("source") as hf:
        run = await waiting(hf, all_there_is, "otters", id="o")
        await run.send("go", "home")
        await run.result(timeout=30)
        at = _last_receive(await _events(run))
    async with holdfast.open(files.source) as hf:  # nobody works
        fork = await hf.get("o").fork(id="r", at=at)
        await fork.pause()
        await (files.move(fork) if way == "moved" else fork.export(files.file, keys=files.keys))
    async with files.open("destination") as hf:
        fork = hf.get((await hf.import_run(files.file, keys=files.keys)).run)
        if way == "moved":  # a copy goes on by itself
            await fork.resume()
        await fork.send("go", "again")
        await hf.answer(await fork.wait_for_question(timeout=30), "run", by="ana")
        assert (await fork.result(timeout=30))[0] == "again"


async def test_a_fork_is_moved_with_what_it_knows_of_its_original(road):
    """A step that the original did behind the point asks first, in the other store too."""
    async with road.open("source") as hf:
        run = await waiting(hf, all_there_is, "otters", id="o")
        await run.send("go", "home")
        await run.result(timeout=30)
        fork = await run.fork(id="r", at=_last_receive(await _events(run)))
        await fork.wait("waiting", waits_for="message")
        await road.move(fork)
        await run.delete()
    async with road.open("destination") as hf:
        await hf.import_run(road.file, keys=road.keys)
        fork = hf.get("r")
        await fork.send("go", "again")
        question = await fork.wait_for_question(timeout=30)
        assert question.kind == "in_doubt" and "by run 'o'" in question.question
        await hf.answer(question, "run", by="ana")
        assert (await fork.result(timeout=30))[0] == "again"


async def _family_events(hf):
    return [event for each in await hf.runs() for event in await _events(hf.get(each.id))]


async def _events(run):
    return [event async for event in run.events(follow=False)]


def _last_receive(events):
    return next(event.seq for event in events if event.kind == "message.received")


async def test_a_dry_run_tells_which_step_and_line_would_part(files):
    """The code of the destination is held against the runs; nothing of it runs."""
    async with files.open("source") as hf:
        run, _ = await nested(hf)
        await files.move(run)

    @holdfast.agent(name="house")
    async def other_house(name: str) -> str:
        await act("lock")
        return await clerk(name)

    async with holdfast.open(files.destination) as hf:
        fits = await hf.import_run(files.file, keys=files.keys, dry_run=True, agents=[house, clerk])
        assert fits.diverges == ()
        told = await hf.import_run(files.file, keys=files.keys, dry_run=True, agents=[other_house, clerk])
        (parted,) = told.diverges
        assert (parted.run, parted.verdict, parted.key) == ("r", "diverges", "act#0")
        assert "test_bundles.py" in parted.line and "open" in parted.recorded and "lock" in parted.present
        assert not await hf.runs()


async def test_a_bundle_becomes_a_regression_test_in_three_lines(files, monkeypatch):
    """The run of production is replayed in a test, from its file alone."""
    async with files.open("source") as hf:
        run = await hf.start(house_of_cards, "otters", id="r")
        await run.result(timeout=30)
        await run.export(files.file, keys=files.keys)
    monkeypatch.setenv("HOLDFAST_KEYS", str(files.keys.folder))
    replayed = holdfast.testing.replay(str(files.file), "r", [house_of_cards])
    assert replayed.result == "did stack otters"

    @holdfast.agent(name="house_of_cards")
    async def changed(topic: str) -> str:
        return await act(f"pile {topic}")

    with pytest.raises(holdfast.NondeterminismError, match=r"test_bundles.py:\d+"):
        holdfast.testing.replay(str(files.file), "r", [changed])


LIES = [
    ("run.forked", "began", ""), ("run.forked", "was", None), ("child.ended", "child", []), ("step.completed", "attempts", {}),
    ("step.completed", "asked", -1), ("approval.asked", "expires_ms", "soon"), ("approval.decided", "votes", [[]]),
    ("child.started", "child", {"a": 1}),
]  # fmt: skip


async def test_an_event_that_says_what_its_kind_does_not_is_refused(files):
    """A trusted key signed it all the same: a worker that believed it would hang."""
    async with files.open("source") as hf:
        await nested(hf)
        done = await hf.start(house_of_cards, "x", id="c")
        await done.result()
        fork = await done.fork(at=0, id="d")
        await fork.wait_for_question()
        copies = []
        for run in (fork, hf.get("r")):
            copied = io.BytesIO()
            await run.export(copied, keys=files.keys)
            copies.append(copied)
    found = set()
    for copied in copies:
        read_from(io.BytesIO(copied.getvalue()), files.keys)
        copied.seek(0)
        head = bundle_files.read_head(copied)
        texts = {each.name: bundle_files.read_section(copied, head, each, None) for each in head.manifest.sections}
        for lie in LIES:
            rows = {
                each.name: bundle_files.read_rows(texts[each.name], each)
                for each in head.manifest.sections
                if each.name != CONTENT
            }
            kind, name, value = lie
            row = next((row for row in rows["events"] if row[2] == kind), None)
            if row is None:
                continue
            found.add(lie[0])
            row[4] = json.dumps(json.loads(row[4]) | {name: value})
            made = Apart(head.manifest, head.summary, rows, texts[CONTENT]).together(files.keys.own())
            with pytest.raises(BadBundle, match=f"{name!r} of its data is not what {kind} says"):
                read_from(io.BytesIO(made), files.keys)
    assert len(found) >= 4 and "run.forked" in found


async def test_an_edited_value_stays_while_a_question_has_it(road):
    """Another run that had the same large value is deleted, and the audit forgets it: the last vote still decides on it."""
    large = {"name": LARGE}
    async with road.open("source", agents=[*AGENTS, two_edit]) as hf:
        run = await hf.start(two_edit, id="r")
        question = await run.wait_for_question()
        await hf.approve(question, by="zoe", data=large)
        await run.wait("waiting", waits_for="person")
        await road.move(run)
    async with road.open("destination", agents=[*AGENTS, two_edit]) as hf:
        await hf.import_run(road.file, keys=road.keys)
        other = await hf.start(two_edit, id="other")
        asked = await other.wait_for_question()
        for person in ("zoe", "ida"):
            asked = await hf.approve(asked, by=person, **({"data": large} if person == "zoe" else {}))
        await other.result(timeout=20)
        await hf.erase_audit(run="other")
        await other.delete()
        (left,) = await hf.approvals()
        assert left.data == large
        await hf.approve(left, by="ida")
        assert await hf.get("r").result(timeout=20) == len(LARGE)


def test_a_receipt_that_was_changed_in_any_byte_is_refused(tmp_path):
    """Whatever is flipped, cut off or added, it proves nothing."""
    keys = holdfast.Keys(tmp_path)
    whole = bundle_files.Receipt("a" * 32, "r", "b" * 32, "c" * 32, 5).signed(keys.new("ana"))
    path = tmp_path / "r.receipt"
    path.write_bytes(whole)
    assert read_receipt(path, keys).run == "r"
    changed = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))]
    for content in [*changed, whole[:-1], whole + b"\n", whole + b"x", b"", whole * 2, whole.replace(b"\n", b"\r\n")]:
        path.write_bytes(content)
        with pytest.raises(holdfast.BadBundle):
            read_receipt(path, keys)
