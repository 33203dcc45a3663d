"""The command line as a real process: its output is read line by line, so that a test waits for what it says."""

import signal
import subprocess
from pathlib import Path

import pytest

FLEET = Path(__file__).parent / "fleet.py"


@pytest.fixture
def terminal(commands, tmp_path):
    started = Terminal(commands, tmp_path)
    yield started
    started.close()


class Terminal:
    """Starts `holdfast` in a folder; whatever still runs when the test ends is killed."""

    def __init__(self, commands, folder):
        self._commands, self.folder, self.started, self.env = commands, folder, [], {"FLEET": str(folder)}

    def start(self, *words):
        process = Holdfast(self._commands.start(words, self.folder, self.env))
        self.started.append(process)
        return process

    def run(self, *words):
        """To its end; returns the exit code, and all it wrote."""
        process = self.start(*words)
        code = process.wait()
        return code, process.output()

    def close(self):
        for process in self.started:
            process.end()

    def touch(self, *names):
        for name in names:
            (self.folder / name).touch()

    @property
    def ledger(self):
        path = self.folder / "ledger"
        return sorted(path.read_text().splitlines()) if path.exists() else []


class Holdfast:
    """One process; stdout and stderr come in one stream."""

    def __init__(self, process):
        self._process, self._lines = process, []

    def until(self, text):
        """Read until a line has this text."""
        for line in self._process.stdout:
            self._lines.append(line.decode())
            if text in self._lines[-1]:
                return self._lines[-1]
        raise AssertionError(f"{text!r} never came in:\n{''.join(self._lines)}")

    def output(self):
        self._lines += [line.decode() for line in self._process.stdout]
        return "".join(self._lines)

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self):
        self._lines += [line.decode() for line in self._process.stdout]
        return self._process.wait()

    def ended(self, within_s):
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
