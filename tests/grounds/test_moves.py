"""A run is carried from ground to ground while it waits: one owner at any time, equal results, and no body runs twice."""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections import Counter

import pytest
from tests.grounds import canonical
from tests.grounds.test_kills import ROOT, Fleet
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

QUICK = holdfast.Settings(lease_ttl_s=3.0)
CHILDS = "look#0"
BODIES = ["look#0", "look#1", "look#2", "look#3", "look#4"]


@pytest.fixture
def ledger(monkeypatch, tmp_path):
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv("LEDGER", str(path))

    def begun():
        """Bodies of the runs, and how often each began: by its key and its idempotency key, which no two calls share."""
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        return Counter((key, mark) for at, what, run, key, mark in lines if what == "begin" and run.startswith("t"))

    return begun


@pytest.fixture
def keys(tmp_path):
    folder = tmp_path / "keys"
    holdfast.Keys(folder).new("ops")
    return folder


def served(url):
    return holdfast.open(url, agents=[canonical.traveller, canonical.child], settings=QUICK)


async def identity(url):
    async with holdfast.open(url) as hf:
        return await hf.store_id()


async def until_it_waits(hf, what, run="t1"):
    await hf.get(run).wait("waiting", waits_for=what, timeout="60s")


@pytest.mark.slow
async def test_a_waiting_run_goes_to_temporal_and_on_to_postgresql(temporal_url, postgres_url, tmp_path, ledger, keys):  # noqa: F811
    here, file = f"sqlite:{tmp_path}/runs.db", tmp_path / "t1.bundle"
    async with served(here) as hf:
        run = await hf.start(canonical.traveller, "otters", id="t1", labels={"team": "a"})
        await until_it_waits(hf, "message")
        await run.export(file, move=await identity(temporal_url), keys=keys)
        assert (await run.info()).status == "moved"
    async with served(temporal_url) as hf:
        told = await hf.import_run(file, keys=keys, receipt=tmp_path / "receipt")
        assert (told.run, told.runs) == ("t1", 2)
        with pytest.raises(holdfast.BadBundle, match="imported here before"):
            await hf.import_run(file, keys=keys)
        run = hf.get("t1")
        await run.send("go", "now")
        await until_it_waits(hf, "person")
        question = await run.wait_for_question(timeout="60s")
        assert (await hf.get((await run.info()).id).info()).labels == {"team": "a"}
        with pytest.raises(holdfast.RunExists):  # another run of that name
            await hf.import_run(await other_run(tmp_path, await hf.store_id(), keys), keys=keys)
        file = tmp_path / "on.bundle"
        await run.export(file, move=await identity(postgres_url), keys=keys)
        assert (await run.info()).status == "moved"
        with pytest.raises(holdfast.RunFinished):
            await run.send("go", "too late")
        again = tmp_path / "again.bundle"
        await run.export(again, keys=keys)
        assert again.read_bytes() == file.read_bytes()
    async with served(here) as hf:
        await hf.get("t1").confirm_move(tmp_path / "receipt", keys=keys)
    async with served(postgres_url) as hf:
        await hf.import_run(file, keys=keys, receipt=tmp_path / "receipt2")
        await hf.approve(question.id, by="ann", data={"text": "edited", "n": 2})
        assert await hf.get("t1").result(timeout="60s") == canonical.TRAVELLED
        moved = [event.key async for event in hf.get("t1").events(follow=False, kinds="step.completed")]
    async with served(temporal_url) as hf:
        await hf.get("t1").confirm_move(tmp_path / "receipt2", keys=keys)
        with pytest.raises(holdfast.RunFinished):
            await hf.get("t1").export(tmp_path / "more.bundle", keys=keys)
    assert set(ledger().values()) == {1}
    assert sorted(moved) == BODIES


async def other_run(folder, to, keys):
    async with served(f"sqlite:{folder}/other.db") as hf:
        run = await hf.start(canonical.traveller, "others", id="t1")
        await until_it_waits(hf, "message")
        await run.export(folder / "other.bundle", move=to, keys=keys)
    return folder / "other.bundle"


@pytest.mark.slow
async def test_a_run_is_taken_back_and_comes_back(temporal_url, tmp_path, ledger, keys):  # noqa: F811
    there = f"sqlite:{tmp_path}/there.db"
    async with served(temporal_url) as hf:
        run = await hf.start(canonical.traveller, "otters", id="t2")
        await until_it_waits(hf, "message", "t2")
        await run.pause(by="ann")
        await run.wait("paused", timeout="30s")
        await run.send("go", "now")  # nobody has taken it when it leaves
        await run.export(tmp_path / "one", move=await identity(there), keys=keys)
        await run.take_back(force=True)
        assert (await run.info()).status == "paused"
        await run.export(tmp_path / "two", move=await identity(there), keys=keys)
    async with served(there) as other:
        with pytest.raises(holdfast.BadBundle):
            await other.import_run(tmp_path / "two", keys=tmp_path / "other keys")
        await other.import_run(tmp_path / "two", keys=keys)
        run = other.get("t2")
        assert (await run.info()).status == "paused"
        await run.resume(by="ann")
        await until_it_waits(other, "person", "t2")
        await run.export(tmp_path / "back", move=await identity(temporal_url), keys=keys)
    async with served(temporal_url) as hf:
        await hf.import_run(tmp_path / "back", keys=keys)
        question = await hf.get("t2").wait_for_question(timeout="60s")
        await hf.approve(question.id, by="ann", data={"text": "edited", "n": 2})
        assert await hf.get("t2").result(timeout="60s") == canonical.TRAVELLED
    assert set(ledger().values()) == {1}
    assert sorted(key for key, _ in ledger()) == [CHILDS, *BODIES]


@pytest.mark.slow
async def test_of_two_moves_at_once_one_is_made(temporal_url, tmp_path, ledger, keys):  # noqa: F811
    urls = [f"sqlite:{tmp_path}/{n}.db" for n in range(2)]
    async with served(temporal_url) as hf:
        run = await hf.start(canonical.traveller, "otters", id="t5")
        await until_it_waits(hf, "message", "t5")
        ways = [run.export(tmp_path / f"way-{n}", move=await identity(url), keys=keys) for n, url in enumerate(urls)]
        made = await asyncio.gather(*ways, return_exceptions=True)
        assert [isinstance(each, holdfast.Bundle) for each in made].count(True) == 1, made
    owners = 0
    for n, url in enumerate(urls):
        async with holdfast.open(url) as hf:
            with contextlib.suppress(holdfast.BadBundle, holdfast.BadArguments, OSError):
                await hf.import_run(tmp_path / f"way-{n}", keys=keys)
                owners += 1
    assert owners == 1


@pytest.mark.nightly
async def test_no_message_is_lost_that_was_sent_while_a_run_left(temporal_url, tmp_path, keys):  # noqa: F811
    """Each that was taken by the cluster is in the bundle; the others were refused."""
    there = f"sqlite:{tmp_path}/there.db"
    async with holdfast.open(temporal_url, agents=[canonical.collects], settings=QUICK) as hf:
        run = await hf.start(canonical.collects, id="t6")
        await run.wait("waiting", waits_for="message", timeout="60s")
        sent, over = [], asyncio.Event()

        async def sends():
            while not over.is_set():
                with contextlib.suppress(holdfast.RunFinished):
                    await run.send("mail", f"m{len(sent)}")
                    sent.append(f"m{len(sent)}")
                    await asyncio.sleep(0.1 * 1.05 ** len(sent))  # a move needs a moment in which nothing comes
                    continue
                return

        sender = asyncio.create_task(sends())
        await run.export(tmp_path / "mail", move=await identity(there), keys=keys)
        over.set()
        await sender
    async with holdfast.open(there, agents=[canonical.collects]) as hf:
        await hf.import_run(tmp_path / "mail", keys=keys)
        await hf.get("t6").send("mail", "end")
        assert await hf.get("t6").result(timeout="60s") == sent


@pytest.mark.slow
async def test_a_family_that_has_not_ended_comes_and_does_not_leave(temporal_url, tmp_path, ledger, keys):  # noqa: F811
    here = f"sqlite:{tmp_path}/runs.db"
    async with holdfast.open(here, agents=[canonical.above]) as hf:
        run = await hf.start(canonical.above, id="t3")
        while not (below := list(await hf.runs(parent="t3"))) or below[0].waits_for != "message":
            await asyncio.sleep(0.02)
        await run.export(tmp_path / "one", move=await identity(temporal_url), keys=keys)
    async with holdfast.open(temporal_url, agents=[canonical.above], settings=QUICK) as hf:
        await hf.import_run(tmp_path / "one", keys=keys)
        with pytest.raises(holdfast.Unsupported, match="below run 't3'"):
            await hf.get("t3").export(tmp_path / "two", move=await identity(here), keys=keys)
        await hf.get(below[0].id).send("go", "now")
        assert await hf.get("t3").result(timeout="60s") == "above: now"


class Moving:
    """The command line, killed again and again until it has done its work."""

    def __init__(self, keys, dice):
        self._env = {**os.environ, "PYTHONPATH": ROOT, "HOLDFAST_KEYS": str(keys)}
        self._dice, self.kills = dice, 0

    def __call__(self, *words, kills, done=()):
        command = [sys.executable, "-m", "holdfast", *map(str, words)]
        for _ in range(kills):
            process = subprocess.Popen(
                command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            try:
                process.wait(self._dice.uniform(0.5, 4.0))
            except subprocess.TimeoutExpired:
                process.kill()
                self.kills += 1
            said = process.communicate()[0]
            if process.returncode == 0:
                return said
        finished = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        said = finished.stdout + finished.stderr
        assert finished.returncode == 0 or any(word in said for word in done), said
        return said


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_workers_and_movers_are_killed_and_every_body_runs_once(temporal_url, postgres_url, tmp_path, ledger, keys):  # noqa: F811
    """The command line moves it, and is killed, as are the workers: what was recorded is not done again."""
    dice = random.Random(7)
    moves, urls = Moving(keys, dice), [f"sqlite:{tmp_path}/runs.db", temporal_url, postgres_url]
    fleets = [Fleet(url, tmp_path) for url in urls]
    started = False
    for nth, (url, fleet) in enumerate(zip(urls, fleets, strict=True)):
        fleet.start()
        try:
            asyncio.run(goes_on(url, fleet, nth, start=not started))
            started = True
            if nth < 2:
                to, file = asyncio.run(identity(urls[nth + 1])), tmp_path / f"{nth}.bundle"
                moves("export", "t4", "--db", url, "--move", to, "--to", file, kills=3)
                moves("import", file, "--db", urls[nth + 1], kills=3, done=("imported here before",))
        finally:
            fleet.kill()
    assert moves.kills > 0
    counts = ledger()
    assert sorted(key for key, _ in counts) == [CHILDS, *BODIES]  # no call had two idempotency keys
    assert max(counts.values()) <= 2  # a body that was running when its worker died


async def goes_on(url, fleet, nth, *, start):
    """Do what the run waits for, with a worker that is killed once meanwhile."""
    async with holdfast.open(url) as hf:
        run = await hf.start(canonical.traveller, "otters", id="t4") if start else hf.get("t4")
        if nth == 1:
            await run.send("go", "now", key="go")
        if nth == 2:
            question = await run.wait_for_question(timeout="60s")
            await hf.approve(question.id, by="ann", data={"text": "edited", "n": 2})
        await asyncio.sleep(0.5)
        fleet.kill()
        fleet.start()
        if nth == 2:
            assert await run.result(timeout="120s") == canonical.TRAVELLED
        else:
            await run.wait("waiting", waits_for=["message", "person"][nth], timeout="120s")


@pytest.mark.slow
async def test_who_waits_for_a_run_without_a_worker_can_be_cancelled(temporal_url, tmp_path, keys):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[canonical.collects], settings=QUICK) as hf:
        await (await hf.start(canonical.collects, id="t7")).wait("waiting", waits_for="message", timeout="60s")
    async with holdfast.open(temporal_url) as hf:
        exports = asyncio.create_task(hf.get("t7").export(tmp_path / "mail", keys=keys))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await exports
        assert exports.cancelled()
