"""A cell that is down stops its share and nothing else, and nothing of it is lost."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cells import own_cells_url, own_servers, written  # noqa: F401 - fixtures
from tests.grounds import work

import holdfast
from holdfast.backends.cells.cell import CellStore
from holdfast.backends.cells.cells import Cells
from holdfast.backends.cells.slots import slot_of
from holdfast.worker.worker import Worker

ROOT = str(Path(__file__).parents[2])
RUNS, STEPS = 200, 12


class Fleet:
    """Workers in processes of their own."""

    def __init__(self, url, folder, many=1):
        env = {
            **os.environ,
            "LEDGER": str(folder / "ledger"),
            "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, "-m", "holdfast", "worker", work.__name__, "--db", url, "--lease", "5", "--quiet"]
        self._log = (folder / "worker.log").open("ab")
        self._processes = [subprocess.Popen(command, env=env, stdout=self._log, stderr=self._log) for _ in range(many)]

    def stop(self):
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._log.close()


async def served(hf):
    while "walk" not in [agent.name for agent in await hf.agents() if agent.served]:
        await asyncio.sleep(0.1)


def begun_again(folder, recorded):
    """Bodies of steps that began after their outcome was recorded, and calls with two idempotency keys."""
    begun, keys = {}, {}
    for line in (folder / "ledger").read_text().splitlines():
        at, _, run, key, mark = line.split("\t")
        begun.setdefault((run, key), []).append(float(at))
        keys.setdefault((run, key), set()).add(mark)
    again = [call for call, at in recorded.items() for began in begun.get(call, ()) if began > at + 1.0]
    return again, [call for call, found in keys.items() if len(found) > 1]


async def outcomes(hf, names):
    found = {}
    for name in names:
        for info in [await hf.get(name).info(), *await hf.runs(parent=name, limit=100)]:
            async for event in hf.get(info.id).events(follow=False, kinds="step.completed"):
                assert (info.id, event.key) not in found
                found[info.id, event.key] = event.at.timestamp()
    return found


def steps_in(folder, cell_of, cell, since, until):
    lines = [line.split("\t") for line in (folder / "ledger").read_text().splitlines()]
    return sum(since <= float(at) < until and cell_of(run) == cell for at, _, run, _, _ in lines)


@pytest.mark.nightly
async def test_one_of_two_databases_is_killed_under_200_runs(own_cells_url, own_servers, tmp_path):  # noqa: F811
    fleet = Fleet(own_cells_url, tmp_path)
    try:
        async with holdfast.open(own_cells_url) as hf:
            await served(hf)
            names = [f"run-{n}" for n in range(RUNS)]
            for name in names:
                await hf.start("walk", STEPS, 0.5, id=name)
            owners = dict(hf.store.cells.owners)
            cell_of = lambda run: owners[slot_of(run)]  # noqa: E731
            await asyncio.sleep(2)
            before = time.time()
            await asyncio.sleep(2)
            own_servers["b"].kill()
            dead = time.time()
            theirs = [name for name in names if cell_of(name) == "a"]
            for name in theirs:
                assert await hf.get(name).result(timeout="300s") == work.expected(STEPS)
            assert {info.status for info in await hf.runs(limit=500, root=True)} == {
                "completed"
            }  # those that can be listed
            with pytest.raises(holdfast.StoreUnavailable, match="cell 'b'"), hf.deadline("2s"):
                await hf.get(next(name for name in names if cell_of(name) == "b")).info()
            alive = steps_in(tmp_path, cell_of, "a", dead, dead + 2), steps_in(tmp_path, cell_of, "a", before, dead)
            own_servers["b"].start(("shared_buffers=32MB",))
            for name in names:
                while True:
                    try:
                        assert await hf.get(name).result(timeout="300s") == work.expected(STEPS)
                        break
                    except holdfast.StoreUnavailable:
                        await asyncio.sleep(0.2)
            recorded = await outcomes(hf, names)
    finally:
        fleet.stop()
    print("steps of the living cell in 2 s, before and after the kill:", alive[1], alive[0])  # noqa: T201
    assert alive[0] > 0  # how much that is in comparison, a benchmark tells
    assert begun_again(tmp_path, recorded) == ([], [])


@pytest.mark.slow
async def test_a_process_begins_while_a_cell_is_down(own_cells_url, own_servers, tmp_path, monkeypatch):  # noqa: F811
    """It carries the runs of that cell when it is back."""
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    async with holdfast.open(own_cells_url) as hf:
        cell_of = lambda run: hf.store.cells.owners[slot_of(run)]  # noqa: E731
        names = [next(f"run-{n}" for n in range(99) if cell_of(f"run-{n}") == cell) for cell in "ab"]
    own_servers["b"].kill()
    async with holdfast.open(own_cells_url, agents=[work.walk, work.helper]) as hf:
        assert await hf.run(work.walk, 3, 0.0, id=names[0]) == work.expected(3)
        assert [info.id for info in await hf.runs(root=True)] == [names[0]]
        with pytest.raises(holdfast.StoreUnavailable, match="cell 'b'"):
            await hf.start(work.walk, 3, 0.0, id=names[1])
        own_servers["b"].start(("shared_buffers=32MB",))
        while hf.store.cells.down:
            await asyncio.sleep(0.05)
        assert await hf.run(work.walk, 3, 0.0, id=names[1]) == work.expected(3)


@pytest.mark.slow
async def test_the_log_names_the_cell_that_is_down(own_cells_url, own_servers, caplog):  # noqa: F811
    async with holdfast.open(own_cells_url, agents=[work.walk, work.helper]):
        own_servers["b"].kill()
        while not any("of cell 'b' could not be looked at" in text for text in caplog.messages):
            await asyncio.sleep(0.05)
    assert not any("of cell 'a'" in text for text in caplog.messages)


@pytest.mark.slow
async def test_a_set_is_not_founded_by_half(own_cells_url, own_servers):  # noqa: F811
    own_servers["b"].kill()
    with pytest.raises(holdfast.StoreUnavailable, match="founded together"):
        async with holdfast.open(own_cells_url):
            pass


@pytest.mark.slow
async def test_no_cell_that_answers_is_no_store(own_cells_url, own_servers):  # noqa: F811
    for server in own_servers.values():
        server.kill()
    with pytest.raises(holdfast.StoreUnavailable, match="no cell of"):
        async with holdfast.open(own_cells_url):
            pass


def killing(owner, name, server, cell_of):
    """Let the database of cell b go down just before a method of the cells, or of a worker, begins there for the first time."""
    method, killed = getattr(owner, name), []

    async def instead(self, *args, **named):
        if not killed and cell_of(self, *args, **named):
            killed.append(1)
            server.kill()
        return await method(self, *args, **named)

    return instead


async def goes_on_without_b(url, servers):
    """A process that begins carries the runs of the other cell, and those of b when it is back."""
    async with asyncio.timeout(60), holdfast.open(url, agents=[work.walk, work.helper]) as hf:
        cell_of = lambda run: hf.store.cells.owners[slot_of(run)]  # noqa: E731
        names = [next(f"run-{n}" for n in range(99) if cell_of(f"run-{n}") == cell) for cell in "ab"]
        assert await hf.run(work.walk, 3, 0.0, id=names[0]) == work.expected(3)
        servers["b"].start(("shared_buffers=32MB",))
        while hf.store.cells.down:
            await asyncio.sleep(0.05)
        assert await hf.run(work.walk, 3, 0.0, id=names[1]) == work.expected(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "cell_of", "order"),
    [
        (Cells, "_join", lambda _: True, "ab"),
        (Cells, "_join", lambda _: True, "ba"),
        (Cells, "look", lambda _: True, "ab"),
        (Worker, "start", lambda self: getattr(self.store, "cell", "") == "b", "ab"),
        (CellStore, "recover", lambda self: self.cell == "b", "ba"),
        (CellStore, "publish", lambda self, *_: self.cell == "b", "ba"),
    ],
    ids=["joined", "joined as first", "looked at", "begun", "recovered", "published"],
)
async def test_a_cell_goes_down_while_a_process_begins(
    owner,
    name,
    cell_of,
    order,
    own_servers,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    """Whatever the process was at, it goes on with the other cell, wherever that stands in the file."""
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    url = written(tmp_path / "cells.toml", {each: own_servers[each].url for each in order})
    async with holdfast.open(url):  # founds it
        pass
    monkeypatch.setattr(owner, name, killing(owner, name, own_servers["b"], cell_of))
    await goes_on_without_b(url, own_servers)


@pytest.mark.slow
async def test_a_cell_goes_down_while_new_code_is_served(own_cells_url, own_servers, tmp_path, monkeypatch):  # noqa: F811
    """The other cell has the new code at once, and this one when it is back."""

    @holdfast.agent
    async def told() -> str:
        return "old"

    @holdfast.agent(name="told")
    async def told_anew() -> str:
        return "new"

    async with asyncio.timeout(60), holdfast.open(own_cells_url, agents=[told]) as hf:
        cell_of = lambda run: hf.store.cells.owners[slot_of(run)]  # noqa: E731
        names = [next(f"run-{n}" for n in range(99) if cell_of(f"run-{n}") == cell) for cell in "ab"]
        away = killing(Worker, "serve_instead", own_servers["b"], lambda self, *_: self.store.cell == "b")
        monkeypatch.setattr(Worker, "serve_instead", away)
        await hf._worker.serve_instead([told_anew.spec])
        assert await hf.run("told", id=names[0]) == "new"
        own_servers["b"].start(("shared_buffers=32MB",))
        while hf.store.cells.down:
            await asyncio.sleep(0.05)
        assert await hf.run("told", id=names[1]) == "new"
