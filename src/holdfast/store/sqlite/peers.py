"""Peers: other processes on the same file, which of them are alive, and which should look.

Beside the file `x.db` lies the folder `x.db-workers`. Each incarnation (one opened store) has up to two files there:

- `<id>.lock`, held under `flock` from before its first lease until its end. The operating system lets go of it when the
  process dies, however it dies, and keeps it while the process is merely stopped. So a process that can take this lock knows
  that the owner is gone. The file gets its name after it is locked: a lock file that can be seen is held, or its owner
  is dead. A child made by fork without exec shares the lock; then the lease's end decides.
- `<id>.sock`, a datagram socket. After a commit the writer thread sends to each the ids of the changed runs, one per
  line, after a mark that says how much changed. A long list is cut down to the mark alone. An empty datagram says that
  a new process came. Nothing depends on their arrival: the poll of the file is the truth.

Folder, locks and sockets are as open to other accounts as the file itself, and the folder must belong to this account, to the
file's owner or to root: in a folder that many may write, another account could have made it, or a link in its place, before us.

Without flock (Windows) only the end of the lease tells that a worker died; without such sockets only the poll wakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

from holdfast.errors import StoreUnavailable
from holdfast.store.changes import News, as_text, from_text
from holdfast.words.harmless import logger

_log = logger("holdfast.store")

_LONGEST_ADDRESS: Final = 103  # bytes of a socket's path: 104 with the final zero on macOS, 108 on Linux
_LONGEST_POKE: Final = 1_024
_POKE_EVERY_S: Final = 0.001
_LIST_EVERY_S: Final = 0.5


class Peers:
    """This incarnation's lock and socket, and the way to the others'."""

    def __init__(self, path: str, worker: str) -> None:
        self.path, self.folder, self.worker = Path(path), Path(path + "-workers"), worker
        self._lock: int | None = None
        self._locking = threading.Lock()  # several claims may be the first
        self._socket: socket.socket | None = None
        self._folder_fd: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._others: list[str] = []
        self._list_at = self._poke_at = 0.0
        self._pending: dict[str, News] = {}

    # The lock

    def lock(self) -> bool:
        """Hold our lock. Must come before the first lease is committed; False where there is no flock."""
        with self._locking:
            return self._held_lock()

    def _held_lock(self) -> bool:
        if fcntl is None or self._lock is not None:
            return self._lock is not None
        draft = f".{self.worker}.new"
        for _ in range(10):
            # A process that closes removes the folder when it is empty, perhaps just now: make it again.
            try:
                mode = self._make_folder()
                fd = os.open(self.folder / draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue
            os.fchmod(fd, mode)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.folder / draft).rename(self.folder / f"{self.worker}.lock")
            self._lock = fd
            return True
        _log.warning("no lock file could be made in %s; a crash is noticed at the end of the lease only", self.folder)
        return False

    def unlock(self) -> None:
        """Let go as a dying process does: the file stays."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def seize(self, worker: str) -> int | None:
        """Take the lock of another incarnation: only possible if it is dead. To be given to `remove` or `put_back`."""
        if fcntl is None or worker == self.worker:
            return None
        try:
            fd = os.open(self.folder / f"{worker}.lock", os.O_RDWR)
        except OSError:
            return None  # without its lock file nothing is known about it; the end of its lease decides
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def put_back(self, fd: int) -> None:
        """Leave a dead incarnation to others."""
        os.close(fd)

    def remove(self, worker: str, fd: int) -> None:
        """Remove the files of a dead incarnation, under its lock: several may do this, and it is the same."""
        self._unlink(worker)
        os.close(fd)

    def alive(self, worker: str) -> bool | None:
        """Is this incarnation alive? None: it cannot be known."""
        if worker == self.worker:
            return True
        if fcntl is None:
            return None
        if not (self.folder / f"{worker}.lock").exists():
            return False
        fd = self.seize(worker)
        if fd is None:
            return True
        self.put_back(fd)
        return False

    def lock_files(self) -> Iterable[str]:
        """List the incarnations that have a lock file, alive or dead."""
        return self._named(".lock")

    # The socket

    def listen(self, loop: asyncio.AbstractEventLoop, heard: Callable[[str, News], None]) -> None:
        """Hear on the loop what others committed."""
        if not hasattr(socket, "AF_UNIX") or not hasattr(loop, "add_reader"):
            return
        with contextlib.suppress(FileNotFoundError):  # removed by one that closed, and made again below
            self._make_folder()
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        mine.setblocking(False)
        try:
            self._bind(mine)
            loop.add_reader(mine.fileno(), self._hear, mine, heard)
        except (OSError, NotImplementedError) as error:
            mine.close()
            _log.warning("no socket could be made in %s, others are heard by polling only: %s", self.folder, error)
            return
        self._socket, self._loop = mine, loop
        for other in self._list():
            self._send(other, b"")

    def _bind(self, mine: socket.socket) -> None:
        for last in (False, False, True):
            mode = self._make_folder()
            try:
                if len(os.fsencode(self.folder / f"{self.worker}.sock")) > _LONGEST_ADDRESS:
                    self._folder_fd = os.open(self.folder, os.O_RDONLY)
                mine.bind(self._address(self.worker))
                (self.folder / f"{self.worker}.sock").chmod(mode)
                return
            except FileNotFoundError:  # the folder was removed by one that closed
                if last:
                    raise

    def _hear(self, mine: socket.socket, heard: Callable[[str, News], None]) -> None:
        for _ in range(100):
            try:
                text = mine.recv(4 * _LONGEST_POKE).decode("ascii", "replace")
            except OSError:
                return
            if not text:
                self._list_at = 0.0
            for run, how in from_text(text):
                heard(run, how)

    def poke(self, changes: dict[str, News]) -> float | None:
        """Tell the others, at most once per millisecond. Returns in how many seconds to call again, None if never.

        Called by the thread that holds the writer's connection; `_list_at` may be set to 0 by any.
        """
        if self._socket is None:
            return None
        pending, now = self._pending, time.monotonic()
        if now >= self._list_at:
            self._others, self._list_at = self._list(), now + _LIST_EVERY_S
        if not self._others:  # a process that comes later looks for itself
            pending.clear()
            return None
        for run, how in changes.items():
            pending[run] = max(pending.get(run, how), how)
        if not pending:
            return None
        if now < self._poke_at:
            return self._poke_at - now
        message = as_text(pending).encode("ascii", "replace")
        self._others = [other for other in self._others if self._send(other, message)]
        self._poke_at = now + _POKE_EVERY_S
        pending.clear()
        return None

    def _send(self, other: str, message: bytes) -> bool:
        """Send to a socket; False when no process will ever hear there again."""
        mine = self._socket
        if mine is None:
            return False
        try:
            mine.sendto(message, self._address(other))
        except ConnectionRefusedError:
            # The file is there and nobody is bound to it: its process is gone, because names are never used twice.
            with contextlib.suppress(OSError):
                (self.folder / f"{other}.sock").unlink()
            return False
        except FileNotFoundError:
            return False
        except OSError:
            return True  # its queue is full, or the like: it looks late, at its next poll
        return True

    def close(self, *, died: bool = False) -> None:
        """Stop listening and let go of the lock. On the loop's thread. `died`: leave the files, as a killed process."""
        mine, self._socket = self._socket, None
        if mine is not None and self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(mine.fileno())
            mine.close()
        if not died and (mine is not None or self._lock is not None):
            self._unlink(self.worker)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        self.unlock()
        if self._folder_fd is not None:
            os.close(self._folder_fd)
            self._folder_fd = None

    # Names

    def _make_folder(self) -> int:
        """Make the folder, or see that it can be trusted. Returns the mode of what lies in it: that of the store's file."""
        file = self.path.stat()
        mode = stat.S_IMODE(file.st_mode) & 0o666
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(0o700)
        found = self.folder.lstat()
        if not hasattr(os, "geteuid"):  # pragma: no cover - Windows
            return mode
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), file.st_uid, 0):
            what = "a link or a file" if not stat.S_ISDIR(found.st_mode) else f"of another account (uid {found.st_uid})"
            raise StoreUnavailable(
                f"{str(self.folder)!r} is {what}, so what workers say to each other could be read or changed there; remove it, "
                "and keep the store in a folder that only its own account may write"
            )
        wanted = mode | (mode & 0o444) >> 2  # an account that may read the file may enter the folder
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != wanted:
            self.folder.chmod(wanted)
        return mode

    def _address(self, worker: str) -> str:
        """Shorten a socket's address, which has little room: a long path goes through our open folder, where there is /proc."""
        if self._folder_fd is not None:
            return f"/proc/self/fd/{self._folder_fd}/{worker}.sock"
        return str(self.folder / f"{worker}.sock")

    def _named(self, suffix: str) -> list[str]:
        try:
            names = [file.name for file in self.folder.iterdir()]
        except OSError:
            return []
        return [name.removesuffix(suffix) for name in sorted(names) if name.endswith(suffix) and name[0] != "."]

    def _list(self) -> list[str]:
        return [worker for worker in self._named(".sock") if worker != self.worker]

    def _unlink(self, worker: str) -> None:
        for suffix in (".sock", ".lock"):
            with contextlib.suppress(OSError):
                (self.folder / (worker + suffix)).unlink()
