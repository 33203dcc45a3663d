"""Fleets for tests: `holdfast worker` as real processes on one store, which end with the test."""

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.processes import fleet_agents as agents
from tests.workers import PATIENCE_S, Worker, ask

AGENTS = Path(agents.__file__)


class Effect(NamedTuple):
    """One line of the ledger."""

    run: str
    key: str
    pid: int
    at: float
    what: str


@pytest.fixture
def fleet(commands, store_url, tmp_path):
    started = Fleet(commands, store_url, tmp_path)
    yield started
    started.close()


class Fleet:
    """Workers on one store, the ledger of what they did, and a client that serves nothing."""

    def __init__(self, commands, url, folder):
        self._commands, self.url, self.folder, self.workers = commands, url, folder, []

    def command(self, *words):
        """A process of the command line on this store."""
        return Worker(self._commands.start([*words, "--db", self.url], self.folder, {"FLEET": str(self.folder)}))

    def worker(self, *options, agents=AGENTS, ready=True):
        """A new worker; `ready`: wait until it says that it serves."""
        started = self.command("worker", agents, *options)
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
        return ask(self.url, what)

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
