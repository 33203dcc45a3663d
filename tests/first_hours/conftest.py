"""A user in an empty folder, with a shell, a terminal and a clock. Only what is installed is there."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.terminal import Person

PATIENCE_S = 120.0  # a bound, never a measure


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.nightly)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def user(tmp_path):
    with contextlib.ExitStack() as stack:
        made = User(tmp_path, stack)
        yield made


class User:
    """Writes files, starts commands and reads what they print."""

    def __init__(self, folder, stack):
        self.folder, self._stack, self._count = folder, stack, 0
        self.env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}
        self.env |= {name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR") if name in os.environ}

    def writes(self, name, text):
        (self.folder / name).write_text(text)

    def types(self, *words, code=0):
        """A command to its end; returns what it printed, all of it."""
        printed, found = self.starts(*words).ends()
        assert found == code, printed
        return printed

    def asks(self, *words):
        """What a command says as JSON."""
        return json.loads(self.types(*words, "--json"))

    def starts(self, *words):
        """A command that goes on beside the user, until it is killed or the hour is over."""
        self._count += 1
        path = self.folder / f".printed-{self._count}"
        with path.open("wb") as printed:
            process = subprocess.Popen(
                [*map(str, words)], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=printed,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        started = Started(process, path)
        self._stack.callback(started.kill)
        return started

    def sits_at(self, *words, columns=100):
        """`holdfast` on a terminal of its own."""
        person = Person(self, words, columns, 50, {})
        self._stack.callback(person.end)
        return person

    def lines(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


class Started:
    """A process that the user can read and kill. It writes to a file, so that nobody need read for it to go on."""

    def __init__(self, process, path):
        self._process, self._path, self._seen = process, path, 0

    def says(self, text):
        """Until it has printed a line with this, behind what was seen before; returns that line."""

        def found():
            over = self._process.poll() is not None
            rest = self._path.read_text()[self._seen :]
            if (at := rest.find(text)) >= 0 and "\n" in rest[at:]:
                end = rest.index("\n", at)
                self._seen += end
                return rest[rest.rfind("\n", 0, at) + 1 : end]
            assert not over, f"{text!r} never came in:\n{rest}"
            return None

        return until(found, text)

    def ends(self):
        """What it printed, and its exit code."""
        code = self._process.wait(PATIENCE_S)
        return self._path.read_text(), code

    def kill(self):
        """Kill -9."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def until(what, why="what was waited for"):
    """Look until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, f"{why} did not come"
        time.sleep(0.05)
    return found
