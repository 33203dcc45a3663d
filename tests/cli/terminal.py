"""The command line as a real process: its output is read line by line, so that a test waits for what it says."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from tests.commands import environment

PATIENCE_S = 40.0  # a bound, never a measure
FLEET = Path(__file__).parent / "command_agents.py"


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


# A person


@pytest.fixture
def person(terminal):
    """Starts `holdfast` on a terminal with somebody before it: `person("run", ..., columns=80)`."""
    here = []

    def sits_down(*words, columns=100, lines=50, **env):
        here.append(Person(terminal, words, columns, lines, env))
        return here[-1]

    yield sits_down
    for each in here:
        each.end()


class Person:
    """Sits at a terminal of its own: reads what is on the screen and types."""

    def __init__(self, terminal, words, columns, lines, env):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {**environment(terminal.env), "TERM": "xterm", **env}
        self.columns, self.screen, self.raw, self._read = columns, "", "", 0
        command = [sys.executable, "-m", "holdfast", *map(str, words)]
        self.process = subprocess.Popen(
            command, cwd=terminal.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def sees(self, text):
        """Until this is on the screen, after what was seen before."""
        until = time.monotonic() + PATIENCE_S
        while (at := self.screen.find(text, self._read)) < 0:
            assert self._take(until), f"no {text!r} in:\n{self.screen}"
        self._read = at + len(text)

    def _take(self, until):
        """Read what is new; False at the end."""
        assert select.select([self._ours], [], [], until - time.monotonic())[0], f"nothing more in:\n{self.screen}"
        try:
            part = os.read(self._ours, 65_536).decode(errors="replace")
        except OSError:
            return False
        self.raw += part
        self.screen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)
        return bool(part)

    def types(self, line):
        os.write(self._ours, f"{line}\n".encode())

    def leaves(self):
        """What stands on the screen, scrolled back to the top, when the command has ended; and its exit code."""
        until = time.monotonic() + PATIENCE_S
        while self._take(until):
            pass
        return drawn(self.raw, self.columns), self.process.wait(PATIENCE_S)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


def drawn(raw, columns):
    """The lines that a terminal has after these characters: enough of one for what is drawn over and taken away."""
    lines, row, column = [[]], 0, 0
    for found in re.finditer(r"\x1b\[([0-9;?]*)([a-zA-Z])|\r|\n|[^\x1b]", raw):
        count = int(found[1]) if found[1] and found[1].isdigit() else 1
        if found[0] == "\r":
            column = 0
        elif found[0] == "\n":
            row += 1
        elif found[2] == "A":
            row = max(row - count, 0)
        elif found[2] == "K":
            lines[row] = [] if found[1] == "2" else lines[row][:column]
        elif not found[2]:
            if column >= columns:
                row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
            lines[row] += " " * (column + 1 - len(lines[row]))
            lines[row][column] = found[0]
            column += 1
        lines += [[] for _ in range(row + 1 - len(lines))]
    return ["".join(line).rstrip() for line in lines]
