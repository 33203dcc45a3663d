"""The story in the example's README: every command is typed into a real shell, and what the page shows is what one sees."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest
from tests.cli.processes import SOURCE
from tests.examples.office import EXAMPLE

import holdfast

PATIENCE_S = 60.0  # a bound, never a measure
ROOT = EXAMPLE.parents[1]
CHANGES = [  # what is another one each time
    (r"\bq-[0-9a-f]{16}\b", "q-ID"),
    (r"\b(accounts|privileges)-[0-9a-f]{8}\b", r"\1-ID"),
    (r"^\s*\d\d:\d\d:\d\d ", ""),  # shown where it is not that of the line before
    (r"\b[\d.]+ (ms|s|min|h|days)\b", "A WHILE"),
    (r"(\s|─)+", " "),
]


def story():
    """The commands of the page in order, each with the lines it shows."""
    told = []
    for block in re.findall(r"^```console\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                told.append((line[2:], []))
            else:
                told[-1][1].append(line)
    return told


def usual(line):
    for changing, same in CHANGES:
        line = re.sub(changing, same, line)
    return line.strip()


class Shell:
    """A bash that is typed into. What it started and the story has not ended is ended with it, by id."""

    def __init__(self, folder):
        programs = folder / "bin"
        programs.mkdir()
        for name, text in (
            ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
            ("holdfast", f"#!{sys.executable}\nfrom holdfast.cli import main\nmain()\n"),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as free:
            office = f"http://127.0.0.1:{free.getsockname()[1]}"
        env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE), "OFFICE_URL": office}
        for name in ("HOLDFAST_URL", "COLUMNS"):  # the page was written without them
            env.pop(name, None)
        self.folder, self._typed = folder, 0
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    def type(self, command):
        """Type a command; returns what it printed by the time the shell waits for the next one."""
        self._typed += 1
        output, done = self.folder / f"output{self._typed}", self.folder / f"done{self._typed}"
        self._process.stdin.write(f"{{ {command}\n}} > {output} 2>&1\ntouch {done}\n".encode())
        self._process.stdin.flush()
        until(done.exists)
        return output.read_text()

    def close(self):
        self.type("kill -9 $(jobs -p)")
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)


@pytest.fixture
def shell(tmp_path):
    place = tmp_path / "examples" / "onboarding"
    place.mkdir(parents=True)
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, place)
    started = Shell(tmp_path)
    yield started
    started.close()


def until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.01)


@pytest.mark.timeout(300)
def test_the_story_is_what_one_sees(shell, tmp_path):
    """Each command works in the order of the page, and prints each line that the page shows of it."""
    place = tmp_path / "examples" / "onboarding"

    def needs(run, many):
        """Has this run a question that so many must agree to?"""

        async def main():
            async with holdfast.open(f"sqlite:{place / 'holdfast.db'}") as hf:
                return [each.needs for each in await hf.approvals(run=run)] == [many]

        return (place / "holdfast.db").exists() and asyncio.run(main())

    readers_wait = iter([  # until the page's next step makes sense; in the order of the commands they come before
        ("holdfast run agents.py:onboard ada --id ada 2> run.log &", lambda: "mails" in shell.type("python services.py books")),
        ("kill -9 $!", lambda: needs("ada", 1)),
        ("holdfast approve ada --by ana", lambda: needs("ada", 2)),
        ("kill -9 $!", lambda: "Welcome" in shell.type("python services.py books")),
        ('holdfast delegate bob --to eve --by ana --note "on leave"', lambda: needs("bob", 1)),
    ])  # fmt: skip
    before, ready = next(readers_wait)
    for command, shown in story():
        if command == before:
            until(ready)
            before, ready = next(readers_wait, (None, None))
        printed = [usual(line) for line in shell.type(command).splitlines()]
        for line in map(usual, shown):
            assert line in printed, f"$ {command}\nprints no such line: {line}\nbut: " + "\n".join(printed)
            del printed[: printed.index(line) + 1]
    assert before is None


def test_the_page_is_one_page_and_linked():
    """It is short, and the README of the project leads to it."""
    assert len((EXAMPLE / "README.md").read_text().splitlines()) <= 110
    assert len((EXAMPLE / "agents.py").read_text().splitlines()) <= 110
    assert "examples/onboarding/" in (ROOT / "README.md").read_text()
