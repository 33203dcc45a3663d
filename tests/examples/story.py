"""A story on a page: its commands, typed into a real shell, and the lines that the page shows of each."""

import os
import re
import subprocess
import sys
import time

from tests.commands import ROOT

PATIENCE_S = 60.0  # a bound, never a measure
CHANGES = [  # what is another one each time
    (r"\bq-[0-9a-f]{16}\b", "q-ID"),
    (r"^\s*\d\d:\d\d:\d\d ", ""),  # shown where it is not that of the line before
    (r"\b[\d.]+ (ms|s|min|h|days)\b", "A WHILE"),
    (r"(\s|─)+", " "),
]


def story(page):
    """The commands of the page in order, each with the lines it shows."""
    told = []
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                told.append((line[2:], []))
            else:
                told[-1][1].append(line)
    return told


def play(told, shell, readers_wait=(), changes=()):
    """Type the story. Readers wait: pairs of a command and what must hold before it, in the order of the story."""
    waits = iter(readers_wait)
    before, ready = next(waits, (None, None))
    for command, shown in told:
        if command == before:
            until(ready)
            before, ready = next(waits, (None, None))
        printed = [usual(line, changes) for line in shell.type(command).splitlines()]
        for line in (usual(line, changes) for line in shown):
            assert line in printed, f"$ {command}\nprints no such line: {line}\nbut: " + "\n".join(printed)
            del printed[: printed.index(line) + 1]
    assert before is None


def usual(line, changes=()):
    for changing, same in (*changes, *CHANGES):
        line = re.sub(changing, same, line)
    return line.strip()


def until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.01)


class Shell:
    """A bash that is typed into. What it started and the story has not ended is ended with it, by id."""

    def __init__(self, folder, **env):
        programs = folder / "bin"
        programs.mkdir()
        for name, text in (
            ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
            ("holdfast", f"#!{sys.executable}\nfrom holdfast.cli import main\nmain()\n"),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        path = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        whole = {key: value for key, value in os.environ.items() if key not in ("HOLDFAST_URL", "COLUMNS")}
        self.folder, self._typed = folder, 0
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=whole | path | env, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
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
