"""Workers are killed at random moments, and the server once: every run is right, and no recorded step runs again."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from tests.grounds import canonical, work
from tests.temporal import cluster, own_cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

APP = canonical.__name__  # as a module: a declared exception is known by the name of its module
ROOT = str(Path(__file__).parents[2])


class Fleet:
    """One worker at a time, in a process of its own."""

    def __init__(self, url, folder, *options, app=APP):
        self._url, self._options, self._process, self._app = url, options, None, app
        self._env = {
            **os.environ,
            "LEDGER": str(folder / "ledger"),
            "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]),
        }
        self._log = folder / "worker.log"

    def start(self):
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "worker",
            self._app,
            "--db",
            self._url,
            "--lease",
            "2",
            *self._options,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def keep(self):
        """Start it again if it has ended, as whatever supervises workers does: one that finds no server when it starts ends."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def kill(self):
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


async def kept(fleet, over):
    while not over.is_set():
        fleet.keep()
        await asyncio.sleep(0.2)


async def people(url, runs, over):
    """Decide whatever is asked, whatever is away meanwhile."""
    left = set(runs)
    async with holdfast.open(url) as hf:
        while left and not over.is_set():
            for run in sorted(left):
                with contextlib.suppress(holdfast.HoldfastError, TimeoutError), hf.deadline("4s"):
                    for question in await hf.approvals(run=run):
                        with contextlib.suppress(holdfast.AlreadyDecided):
                            await hf.approve(question, by="ann", data={"text": "edited", "n": 2})
                        left.discard(run)
                    if (await hf.get(run).info()).status == "completed":
                        left.discard(run)
            await asyncio.sleep(0.3)


async def result(hf, run, over, limit="150s"):
    while True:
        try:
            return await hf.get(run).result(timeout=limit)
        except holdfast.StoreUnavailable:
            await asyncio.sleep(0.5)


async def ran_again(server, ledger):
    """Bodies that began after their step was recorded, and calls that had two idempotency keys."""
    client = await Client.connect(server)
    begun, marks, again = {}, {}, []
    for line in ledger.read_text().splitlines():
        at, what, run, key, mark = line.split("\t")
        if what == "begin":
            begun.setdefault((run, key), []).append(float(at))
            marks.setdefault((run, key), set()).add(mark)
    recorded = 0
    async for execution in client.list_workflows("WorkflowType = 'holdfast.run'"):
        names = {}
        handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
        async for event in handle.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id.split(" ")[0]
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                recorded += 1
                key = names[event.activity_task_completed_event_attributes.scheduled_event_id]
                at = event.event_time.ToNanoseconds() / 1e9
                again += [(execution.id, key) for each in begun.get((execution.id, key), ()) if each > at + 0.002]
    return recorded, again, [call for call, found in marks.items() if len(found) > 1]


async def campaign(server, folder, seed, *, runs, kills, options=(), events=8000):
    """Play it; returns how many steps were recorded."""
    dice = random.Random(seed)
    url = server.url(events=events)
    fleet, over = Fleet(url, folder, *options), asyncio.Event()
    names = [f"c{n}" for n in range(runs)]
    async with holdfast.open(url) as hf:
        fleet.start()
        while "canonical" not in [agent.name for agent in await hf.agents()]:
            await asyncio.sleep(0.2)
        for name in names:
            await (await hf.start(canonical.canonical, "otters", id=name)).send("go", "now")
        helpers = [asyncio.create_task(people(url, names, over))]
        try:
            for nth in range(kills):
                await asyncio.sleep(dice.uniform(0.4, 4.0))
                fleet.kill()
                await asyncio.sleep(dice.uniform(0, 0.3))
                fleet.start()
                if nth == kills // 2:
                    await asyncio.sleep(dice.uniform(0.8, 2.5))
                    server.kill()
                    await asyncio.sleep(0.5)
                    await asyncio.to_thread(server.start)
            helpers.append(asyncio.create_task(kept(fleet, over)))
            found = await asyncio.gather(*(result(hf, name, over) for name in names))
        finally:
            over.set()
            fleet.kill()
            await asyncio.gather(*helpers)
    assert found == [canonical.EXPECTED] * runs
    recorded, again, two = await ran_again(f"127.0.0.1:{server.port}", folder / "ledger")
    assert (again, two) == ([], [])
    return recorded


def replays(url, seeds):
    for seed in seeds:
        env = {**os.environ, "PYTHONHASHSEED": seed, "LEDGER": os.devnull}
        command = [sys.executable, "-m", "tests.grounds.replay", url]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.slow
async def test_a_run_goes_on_when_its_worker_and_the_server_are_killed(own_cluster, tmp_path):  # noqa: F811
    await campaign(own_cluster, tmp_path, 0, runs=2, kills=2)
    await asyncio.sleep(1.5)
    await asyncio.to_thread(replays, own_cluster.url(), ["0", "77"])


@pytest.mark.slow
async def test_a_body_that_may_not_run_again_is_in_doubt_when_its_worker_is_killed(temporal_url, tmp_path):  # noqa: F811
    fleet, ledger = Fleet(temporal_url, tmp_path, app=work.__name__), tmp_path / "ledger"
    async with holdfast.open(temporal_url) as hf:
        try:
            fleet.start()
            while "pays" not in [agent.name for agent in await hf.agents()]:
                await asyncio.sleep(0.2)
            run = await hf.start("pays", 1)
            while not ledger.exists():
                await asyncio.sleep(0.1)
            fleet.kill()
            fleet.start()
            assert await run.result(timeout="60s") == "InDoubt"
        finally:
            fleet.kill()
    assert len(ledger.read_text().splitlines()) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["usual", "cache of one", "short executions"])
@pytest.mark.parametrize("seed", range(1, 8))
async def test_runs_go_on_under_many_kills(own_cluster, tmp_path, seed, how):  # noqa: F811
    options = ("--concurrency", "1") if how == "cache of one" else ()
    events = 60 if how == "short executions" else 8000
    await campaign(own_cluster, tmp_path, seed, runs=4, kills=10, options=options, events=events)
    await asyncio.sleep(1.5)
    await asyncio.to_thread(replays, own_cluster.url(), ["0", "1", "77"])
