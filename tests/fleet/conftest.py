"""Fleets for tests: `holdfast worker` as real processes on one store, which end with the test."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.fleet import agents
from tests.servers import postgres_server, postgres_url  # noqa: F401 - fixtures

import holdfast

AGENTS = Path(agents.__file__)
SOURCE = AGENTS.parents[2] / "src"
PATIENCE_S = 40.0  # a bound, never a measure

STORES = {
    "sqlite": lambda request: f"sqlite:{request.getfixturevalue('tmp_path') / 'fleet.db'}?durability=process",
    "postgres": lambda request: request.getfixturevalue("postgres_url"),
}


class Effect(NamedTuple):
    """One line of the ledger."""

    run: str
    key: str
    pid: int
    at: float
    what: str


@pytest.fixture(params=STORES)
def fleet(request, tmp_path):
    started = Fleet(STORES[request.param](request), tmp_path)
    yield started
    started.close()


class Fleet:
    """Workers on one store, the ledger of what they did, and a client that serves nothing."""

    def __init__(self, url, folder):
        self.url, self.folder, self.workers = url, folder, []

    def worker(self, *options, ready=True):
        """A new worker; `ready`: wait until it says that it serves."""
        started = Worker(["worker", AGENTS, "--db", self.url, *options], self.folder)
        self.workers.append(started)
        if ready:
            started.until("Serving")
        return started

    def start(self, *runs):
        """Start runs (agent, arguments, id), all at once."""

        async def main(hf):
            await asyncio.gather(*[hf.start(agent, *arguments, id=run) for agent, arguments, run in runs])

        self.ask(main)

    def ask(self, what):
        """What a client on this store says."""

        async def main():
            async with holdfast.open(self.url) as hf:
                return await asyncio.wait_for(what(hf), PATIENCE_S)

        return asyncio.run(main())

    def status(self, run):
        return self.ask(lambda hf: hf.get(run).info()).status

    def results(self, runs):
        """Wait for the ends of these runs."""

        async def main(hf):
            ends = [hf.get(run).result() for run in runs]
            return dict(zip(runs, await asyncio.gather(*ends, return_exceptions=True), strict=True))

        return self.ask(main)

    def events(self, *kinds):
        async def main(hf):
            return [event async for event in hf.events(kinds=kinds or None, follow=False)]

        return self.ask(main)

    def allow(self, what):
        (self.folder / what).touch()

    def effects(self, run=None):
        """What the ledger has, in order."""
        with contextlib.suppress(FileNotFoundError):
            lines = [line.split("\t") for line in (self.folder / "ledger").read_text().splitlines()]
            found = [Effect(each, key, int(pid), float(at), what) for each, key, pid, at, what in lines]
            return [effect for effect in found if run in (None, effect.run)]
        return []

    def counts(self):
        """How often each call had its effect."""
        return Counter((effect.run, effect.key) for effect in self.effects())

    def until(self, holds):
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, "it never came to be so:\n" + "\n".join(each.said() for each in self.workers)
            time.sleep(0.005)

    def close(self):
        for each in self.workers:
            each.kill()


class Worker:
    """One process. All it says is kept, by a thread, so that it never waits for the test to read."""

    def __init__(self, words, folder):
        env = os.environ | {"FLEET": str(folder), "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-W", "error", "-m", "holdfast", *map(str, words)]
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.pid, self._lines, self._changed = self._process.pid, [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self._process.stdout as stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line.decode())
                    self._changed.notify_all()

    def said(self):
        return "".join(self._lines)

    def until(self, text):
        """Wait for a line with this text."""
        with self._changed:
            found = self._changed.wait_for(lambda: [line for line in self._lines if text in line], PATIENCE_S)
        assert found, f"{text!r} never came in:\n{self.said()}"
        return found[0]

    @property
    def running(self):
        return self._process.poll() is None

    def stop(self):
        """As a supervisor does."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self):
        if self.running:
            self._process.kill()
        self.ended()

    def ended(self):
        """How it ended."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code
