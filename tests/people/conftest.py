"""Runs that ask people, on each store; who decides is this process, who carries them are others that can be killed."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
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
        path = os.pathsep.join([str(SOURCE), str(Path(__file__).parents[2])])
        self._env = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PEOPLE": str(folder)}

    # The worker

    def start_worker(self):
        """A real process that serves the agents; it says when it does."""
        command = ["worker", "tests.people.agents", "tests.people.recipes", "--db", self.url]
        self.worker = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *command],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said = []
        for line in self.worker.stdout:
            if b"Serving" in line:
                return
            said.append(line.decode())
        raise AssertionError(f"the worker never served:\n{''.join(said)}")

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

    def close(self):
        self.kill_worker()

    # Other processes: this one, and the command line

    def ask(self, what):
        """What a client without agents says."""

        async def main():
            async with holdfast.open(self.url) as hf:
                return await asyncio.wait_for(what(hf), PATIENCE_S)

        return asyncio.run(main())

    def meanwhile(self, what):
        """What a client says while no worker lives; then there is another one."""
        self.kill_worker()
        told = self.ask(what)
        self.start_worker()
        return told

    def say(self, *words, code=0):
        """What the command line prints, as a process of its own."""
        command = [sys.executable, "-m", "holdfast", *words, "--db", self.url]
        done = subprocess.run(
            command, cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    # What was done

    def bodies(self):
        """What bodies did, each as often as it ran."""
        return [line.rpartition(" ")[0] for line in self._lines()]

    def effects(self):
        """The same as a service has it that takes keys: once for each."""
        return [line.rpartition(" ")[0] for line in dict.fromkeys(self._lines())]

    def _lines(self):
        ledger = self.folder / "ledger"
        return ledger.read_text().splitlines() if ledger.exists() else []

    def allow(self, *whats):
        for what in whats:
            (self.folder / f"allowed {what}").touch()

    def until(self, holds):
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, f"it never came to be so: {self.bodies()}"
            time.sleep(0.005)
