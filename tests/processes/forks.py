"""Real processes, made quickly: a warm server forks a child for each scenario, and tells the test how it ended.

The server is a process of its own that has imported everything and has no loop, no thread and no open store, so that
a fork of it is as clean as a new interpreter and costs milliseconds instead of half a second. A child runs one function
of the modules in `SCENES`, `function(parent, **arguments)`; through `parent` it talks with the test in lines of JSON.
Its output goes to a file in the test's folder. When the child is dead, the test's end of the line is at its end too.

The server is the parent of the children, so it alone signals and reaps them: no pid is signalled once it was reaped.
When the test's process ends, however it ends, the server kills what is left and ends too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCENES = (
    "tests.processes.scenes", "tests.processes.workers", "tests.processes.transaction_program", "tests.processes.bundle_program",
    "tests.processes.announcement_program",
)  # fmt: skip
PATIENCE_S = 30.0  # how long a test waits for a process that should answer; a bound, never a measure


# The test's side


class Server:
    """The fork server, as a test sees it."""

    def __init__(self):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-W", "error", str(Path(__file__)), str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        )
        theirs.close()
        self._children = {}
        self._started = []
        assert self._hear() == {"ready": True}

    def _hear(self):
        self._control.settimeout(PATIENCE_S)
        message = self._control.recv(1 << 16)
        assert message, "the fork server is gone"
        return json.loads(message)

    def start(self, function, log, **arguments):
        """A new process that runs this function of a scene module."""
        mine, theirs = socket.socketpair()
        request = {"start": [function.__module__, function.__name__], "arguments": arguments, "log": str(log)}
        socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno()])
        theirs.close()
        while not self._started:
            self._take(self._hear())
        pid = self._started.pop()
        child = self._children[pid] = Child(self, pid, mine, Path(log))
        return child

    def _take(self, message):
        if "started" in message:
            self._started.append(message["started"])
        elif "ended" in message:
            self._children.pop(message["ended"]).code = message["code"]

    def pump(self, until, timeout):
        """Hear of ends until this holds."""
        end = time.monotonic() + timeout
        while not until():
            left = max(0.0, end - time.monotonic())
            if not select.select([self._control], [], [], left)[0]:
                return
            self._take(self._hear())

    def signal(self, pid, number):
        self._control.send(json.dumps({"signal": [pid, number]}).encode())

    def close(self):
        self._control.close()
        self._process.wait(PATIENCE_S)


class Died(AssertionError):
    """A child ended though the test expected something of it."""


class Child:
    """One process. `code` is None while it lives, then its exit code, or minus the signal that killed it."""

    def __init__(self, server, pid, line, log):
        self.pid, self.code, self.log = pid, None, log
        self._server, self._line, self._heard = server, line, b""

    def read(self, timeout=PATIENCE_S):
        """The next thing it says."""
        self._line.settimeout(timeout)
        while b"\n" not in self._heard:
            try:
                more = self._line.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            except TimeoutError:
                raise Died(f"process {self.pid} said nothing for {timeout} s{self._logged()}") from None
            if not more:
                raise Died(f"process {self.pid} ended with {self.wait()} and said nothing{self._logged()}")
            self._heard += more
        said, _, self._heard = self._heard.partition(b"\n")
        return json.loads(said)

    def says(self):
        """All it says until it ends."""
        while True:
            try:
                yield self.read()
            except Died:
                if self.code is None:
                    raise
                return

    def tell(self, word="go"):
        """Say something to it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._line.sendall(json.dumps(word).encode() + b"\n")

    def signal(self, number):
        self._server.signal(self.pid, number)

    def kill(self):
        """As kill -9; returns when it is gone."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def stop(self):
        """As SIGSTOP; returns when it stands still."""
        self.signal(signal.SIGSTOP)
        end = time.monotonic() + PATIENCE_S
        while _state(self.pid) != "T":
            assert time.monotonic() < end, f"process {self.pid} did not stop"
            os.sched_yield()

    def go_on(self):
        self.signal(signal.SIGCONT)

    def wait(self, timeout=PATIENCE_S):
        """How it ended: 0, or its exit code, or minus the signal that killed it."""
        self._server.pump(lambda: self.code is not None, timeout)
        if self.code is None:
            raise Died(f"process {self.pid} did not end within {timeout} s{self._logged()}")
        return self.code

    def poll(self):
        """How it ended, or None."""
        self._server.pump(lambda: self.code is not None, 0)
        return self.code

    def ends(self, timeout=PATIENCE_S):
        """It ends by itself, with nothing to complain about."""
        code, text = self.wait(timeout), self.log.read_text()
        assert (code, text) == (0, ""), f"process {self.pid} ended with {code}{self._logged()}"

    def close(self):
        self._line.close()

    def _logged(self):
        return "\n" + self.log.read_text()[-6000:] if self.log.exists() else ""


def _state(pid):
    """The state of a process, as the kernel tells it: R, S, D, T (stopped), Z."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Forks:
    """What a test uses: processes whose logs lie in its folder, and that end with it."""

    def __init__(self, server, folder):
        self._server, self._folder, self._count, self._children = server, folder, itertools.count(), []

    def start(self, function, **arguments):
        child = self._server.start(function, self._folder / f"process-{next(self._count)}.log", **arguments)
        self._children.append(child)
        return child

    def close(self):
        """Kill what is left."""
        for child in self._children:
            if child.code is None:
                child.kill()
            child.close()


# The server's side


class Parent:
    """The test, as a child sees it."""

    def __init__(self, line):
        self._line, self._heard = line, b""

    def say(self, **words):
        """Tell the test something."""
        self._line.setblocking(True)
        self._line.sendall(json.dumps(words).encode() + b"\n")

    async def told(self, loop):
        """The next thing the test says; None when it is gone."""
        self._line.setblocking(False)
        while b"\n" not in self._heard:
            more = await loop.sock_recv(self._line, 4096)
            if not more:
                return None
            self._heard += more
        word, _, self._heard = self._heard.partition(b"\n")
        return json.loads(word)


def _child(line, request):
    """In the child: run the function and end."""
    output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    module, name = request["start"]
    code = 0
    try:
        getattr(sys.modules[module], name)(Parent(line), **request["arguments"])
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(control):
    """Fork for every request, reap, and tell; until the test's end of the line is closed."""
    for module in SCENES:
        importlib.import_module(module).warm_up()
    gc.collect()
    gc.freeze()
    wake, waker = socket.socketpair()
    for end in (wake, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    children = set()
    control.send(json.dumps({"ready": True}).encode())
    while True:
        readable, _, _ = select.select([control, wake], [], [])
        if wake in readable:
            wake.recv(4096)
            for pid in list(children):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    children.discard(pid)
                    control.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
        if control not in readable:
            continue
        message, lines, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            break
        request = json.loads(message)
        if "signal" in request:
            pid, number = request["signal"]
            if pid in children:
                os.kill(pid, number)
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (control, wake, waker):
                end.close()
            _child(socket.socket(fileno=lines[0]), request)
        os.close(lines[0])
        children.add(pid)
        control.send(json.dumps({"started": pid}).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for end in (control, wake, waker):
        end.close()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
