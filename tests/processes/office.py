"""Runs that ask people, on each store; who decides is this process, who carries them are others that can be killed."""

import time

import pytest
from tests.workers import PATIENCE_S, Worker, ask


@pytest.fixture
def office(commands, store_url, tmp_path):
    opened = Office(commands, store_url, tmp_path)
    yield opened
    opened.close()


class Office:
    """A store, a worker on it, and what it did."""

    def __init__(self, commands, url, folder):
        self._commands, self.url, self.folder, self.worker = commands, url, folder, None

    def another(self):
        """Another one on the same store."""
        return Office(self._commands, self.url, self.folder)

    def _command(self, *words):
        return Worker(self._commands.start([*words, "--db", self.url], self.folder, {"PEOPLE": str(self.folder)}))

    # The worker

    def start_worker(self):
        """A real process that serves the agents; it says when it does."""
        self.worker = self._command("worker", "tests.processes.office_agents", "tests.processes.office_recipes")
        self.worker.until("Serving")

    def kill_worker(self):
        if self.worker is not None:
            self.worker.kill()
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
        return ask(self.url, what)

    def meanwhile(self, what):
        """What a client says while no worker lives; then there is another one."""
        self.kill_worker()
        told = self.ask(what)
        self.start_worker()
        return told

    def say(self, *words, code=0):
        """What the command line prints, as a process of its own."""
        typed = self._command(*words)
        assert typed.ended() == code, typed.said()
        return typed.said()

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
