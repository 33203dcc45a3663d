"""Workers in processes of their own, on each store, which tests kill."""

import pytest
from tests.workers import Worker, ask


@pytest.fixture
def workers(commands, store_url, tmp_path):
    started = Workers(commands, store_url, tmp_path)
    yield started
    started.close()


class Workers:
    """Processes that serve the agents of this folder."""

    def __init__(self, commands, url, folder):
        self._commands, self.url, self._folder, self._alive = commands, url, folder, []

    def start(self):
        """One more; it says when it serves."""
        words = ["worker", "tests.processes.conversation_agents", "--db", self.url]
        self._alive.append(Worker(self._commands.start(words, self._folder, {})))
        self._alive[-1].until("Serving")

    def kill(self, which=0):
        """End one by SIGKILL."""
        self._alive.pop(which).kill()

    def restart(self, which=0):
        self.kill(which)
        self.start()

    def close(self):
        while self._alive:
            self.kill()

    def ask(self, what):
        """What a client without agents says."""
        return ask(self.url, what)
