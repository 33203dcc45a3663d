"""Workers in processes of their own, on each store, which tests kill."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import postgres_server, postgres_url  # noqa: F401 - fixtures

import holdfast

PATIENCE_S = 50.0  # a bound, never a measure
STORES = {
    "sqlite": lambda request: f"sqlite:{request.getfixturevalue('tmp_path') / 'talk.db'}?durability=process",
    "postgres": lambda request: request.getfixturevalue("postgres_url"),
}


@pytest.fixture(params=STORES)
def workers(request, tmp_path):
    started = Workers(STORES[request.param](request), tmp_path)
    yield started
    started.close()


class Workers:
    """Processes that serve the agents of this folder."""

    def __init__(self, url, folder):
        self.url, self._folder, self._alive = url, folder, []
        path = os.pathsep.join([str(Path(holdfast.__file__).parents[1]), str(Path(__file__).parents[2])])
        self._env = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

    def start(self):
        """One more; it says when it serves."""
        command = [sys.executable, "-m", "holdfast", "worker", "tests.conversations.agents", "--db", self.url]
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._alive.append(process)
        for line in process.stdout:
            if b"Serving" in line:
                return
        raise AssertionError("the worker never served")

    def kill(self, which=0):
        """End one by SIGKILL."""
        process = self._alive.pop(which)
        process.kill()
        process.wait()
        process.stdout.close()

    def restart(self, which=0):
        self.kill(which)
        self.start()

    def close(self):
        while self._alive:
            self.kill()

    def ask(self, what):
        """What a client without agents says."""

        async def main():
            async with holdfast.open(self.url) as hf:
                return await asyncio.wait_for(what(hf), PATIENCE_S)

        return asyncio.run(main())
