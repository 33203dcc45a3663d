"""`holdfast` as real processes, made quickly: a warm server forks one for each command.

The server is a process of its own that has imported what commands import, and has no loop, no thread and no open store:
a fork of it is as clean as a new interpreter and costs a tenth of the time. It is the parent of what it forks, so it alone
reaps; a test signals through a pidfd, which never means another process. When the test's process ends, however it ends,
the server kills what is left and ends too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USED = (
    "asyncpg",
    "holdfast.cli",
    "holdfast.cli.serve",
    "holdfast.cli.worker",
    "holdfast.client.client",
    "holdfast.http.server",
    "holdfast.store.postgres",
    "holdfast.worker",
)


# The test's side


def environment(more=()):
    """The environment of a command: that of the test, and more."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in os.environ.items() if name != "HOLDFAST_URL"} | paths | dict(more)


class Server:
    """The fork server, as a test sees it."""

    def __init__(self):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment(),
            # Of the same kinds as those of the commands: the interpreter looks at its streams once, when it starts.
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        theirs.close()

    def start(self, words, folder, env):
        """A new process of `holdfast` with these words, in this folder, with this in its environment."""
        (output, write), (ended, tell) = os.pipe(), os.pipe()
        request = {"words": [str(word) for word in words], "folder": str(folder), "env": environment(env)}
        socket.send_fds(self._control, [json.dumps(request).encode()], [write, tell])
        for end in (write, tell):
            os.close(end)
        pid, handles, _, _ = socket.recv_fds(self._control, 64, 1)
        assert pid, f"the server is gone:\n{self._process.stdout.read().decode()}"
        return Process(int(pid), *handles, ended, output)

    def close(self):
        self._control.close()
        self._process.wait()
        self._process.stdout.close()


class Process:
    """One of them, with the methods of `subprocess.Popen`. Its stdout and stderr come in one stream."""

    def __init__(self, pid, handle, ended, output):
        self.pid, self.returncode, self.stdout = pid, None, open(output, "rb")  # noqa: PTH123, SIM115 - it stays open
        self._handle, self._ended = handle, ended

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self.returncode = int(os.read(self._ended, 64))
            os.close(self._ended)
            os.close(self._handle)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended in this moment
                signal.pidfd_send_signal(self._handle, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Cold:
    """The same where there are no pidfds: a new interpreter for each."""

    def start(self, words, folder, env):
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "holdfast", *map(str, words)], cwd=folder, env=environment(env),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def close(self):
        """Nothing is open."""


@pytest.fixture(scope="session")
def commands() -> Iterator[Server | Cold]:
    """Starts processes of `holdfast`, for all tests of the session."""
    server = Server() if sys.platform == "linux" else Cold()
    yield server
    server.close()


# The server's side


def become(request, output):
    """In the child: run the command, as `python -m holdfast` would."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0], sys.argv = request["folder"], ["holdfast", *request["words"]]
    sys.modules["holdfast.cli"].main()


def serve(control):
    """Fork for every request, reap, and tell; until the test's end of the line is closed."""
    for module in USED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    living = {}
    while True:
        readable, _, _ = select.select([control, *living], [], [])
        for handle in readable:
            if handle is control:
                continue
            pid, tell = living.pop(handle)
            with contextlib.suppress(BrokenPipeError):
                os.write(tell, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os.close(tell)
            os.close(handle)
        if control not in readable:
            continue
        message, ends, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not message:
            break
        write, tell = ends
        pid = os.fork()
        if pid == 0:
            control.close()
            for end in (tell, *living, *(each for _, each in living.values())):
                os.close(end)
            become(json.loads(message), write)
        os.close(write)
        handle = os.pidfd_open(pid)
        living[handle] = pid, tell
        socket.send_fds(control, [str(pid).encode()], [handle])
    for pid, _ in living.values():
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as line:
        serve(line)
