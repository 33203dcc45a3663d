"""Runs that ask people, on each store; who decides is this process, who carries them are others that can be killed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.people import agents
from tests.servers import postgres_server, postgres_url  # noqa: F401 - fixtures

import holdfast

SOURCE = Path(holdfast.__file__).parents[1]
PATIENCE_S = 50.0  # a bound, never a measure
STORES = {
    "sqlite": lambda request: f"sqlite:{request.getfixturevalue('tmp_path') / 'people.db'}",
    "postgres": lambda request: request.getfixturevalue("postgres_url"),
}


@pytest.fixture(params=STORES)
def office(request, tmp_path):
    opened = Office(STORES[request.param](request), tmp_path)
    yield opened
    opened.close()


class Office:
    """A store, a worker on it, and what it did."""

    def __init__(self, url, folder):
        self.url, self.folder, self.worker = url, folder, None

    def start_worker(self):
        """A real process that serves the agents; it says when it does."""
        env = os.environ | {
            "PYTHONPATH": str(SOURCE),
            "PYTHONUNBUFFERED": "1",
            "PEOPLE_LEDGER": str(self.folder / "ledger"),
        }
        command = [sys.executable, "-m", "holdfast", "worker", agents.__file__, "--db", self.url]
        self.worker = subprocess.Popen(
            command,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for line in self.worker.stdout:
            if b"Serving" in line:
                return
        raise AssertionError("the worker never served")

    def kill_worker(self):
        if self.worker is not None and self.worker.poll() is None:
            self.worker.kill()
            self.worker.wait()
        if self.worker is not None:
            self.worker.stdout.close()
            self.worker = None

    def restart_worker(self):
        """Killed, and another one in its place."""
        self.kill_worker()
        self.start_worker()

    def ask(self, what):
        """What a client without agents says."""

        async def main():
            async with holdfast.open(self.url) as hf:
                return await asyncio.wait_for(what(hf), PATIENCE_S)

        return asyncio.run(main())

    def effects(self):
        ledger = self.folder / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return [line.rpartition(" ")[0] for line in lines]  # without the key

    def close(self):
        self.kill_worker()
