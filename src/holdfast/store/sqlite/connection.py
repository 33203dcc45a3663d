"""Connections to a SQLite file: the URL, the settings, and waiting for a lock.

`power` means that an acknowledged write survives a power cut (`synchronous=FULL`: the log is flushed before each
commit returns). `process` survives the death of the process but may lose the last commits when the computer loses
power (`NORMAL`: the log is flushed at checkpoints only). Neither can corrupt the file. `none` flushes nothing: for tests,
where a process is only said to die.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl

import apsw

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.words.calls import KeptAs, checked_inputs
from holdfast.words.urls import redacted

Durability = Literal["power", "process", "none"]
_MOST_DAMAGES: Final = 100  # that are looked for
_TOLD_DAMAGES: Final = 3
_SYNCHRONOUS: Final = {"power": "FULL", "process": "NORMAL", "none": "OFF"}

# Up to 3.51.2 two connections that write and checkpoint at once can corrupt a file (sqlite.org/wal.html#walresetbug).
_OLDEST_SQLITE: Final = (3, 51, 3)

# A commit writes whole pages, so small ones are quicker; an event needs one page, so with 4 KiB one of 2 KiB has a page to
# itself and the file is twice what it holds. With 8 KiB it is 1.4 times that, with 16 KiB 1.2 times and slower to commit.
PAGE_BYTES: Final = 8_192
CHECKPOINT_PAGES: Final = 1_000  # of the log, until it is moved into the file
_BUSY_S: Final = 30.0
_PRAGMAS: Final = ("journal_mode", "synchronous", "page_size", "page_count", "freelist_count", "wal_autocheckpoint",
                   "foreign_keys", "mmap_size")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a store URL."""

    path: str
    durability: Durability = "power"
    inputs: KeptAs | None = None


def parse_url(url: str) -> Options:
    """`sqlite:PATH` or `sqlite:PATH?durability=process`; `BadArguments` says what is wrong with any other."""
    scheme, colon, rest = url.partition(":")
    shown = redacted(url)
    if scheme != "sqlite" or not colon:
        raise BadArguments(f"{shown!r} is not a SQLite URL; write 'sqlite:PATH', for example 'sqlite:holdfast.db'")
    path, mark, query = rest.partition("?")
    if (not path.strip("/") and path != "/") or path == ":memory:":
        raise BadArguments(
            f"{shown!r} names no file; runs must outlive the process: write 'sqlite:holdfast.db' or the like"
        )
    path = _checked_path(shown, path, mark + query)
    durability, inputs = "power", None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "inputs":
            inputs = checked_inputs(value)
        elif name == "durability":
            durability = value
        else:
            raise BadArguments(f"{shown!r} has an unknown option {name!r}; there are 'durability' and 'inputs'")
    if durability not in _SYNCHRONOUS or durability == "none":
        raise BadArguments(f"durability={durability!r} in {shown!r} is neither 'power' nor 'process'")
    return Options(path, cast(Durability, durability), inputs)


def _checked_path(shown: str, path: str, rest: str) -> str:
    """Read the path of a file. Two or three slashes mean a file in this folder to some programs, in the root folder to others."""
    bare = path.lstrip("/")
    if path.endswith("/"):
        raise BadArguments(
            f"{shown!r} names a folder; write {redacted(f'sqlite:{path if bare else str()}holdfast.db{rest}')!r}"
        )
    if path.startswith("////"):
        return f"/{bare}"
    if path.startswith("//") and "@" in path + rest:
        raise BadArguments(f"{shown!r} names a host; a store of SQLite is a file: write 'sqlite:PATH'")
    if path.startswith("//"):
        folder = str(Path(f"/{bare}").parent)
        where = "the root folder" if folder == "/" else f"the folder {folder}"
        raise BadArguments(
            f"{shown!r} has slashes that mean different files to different programs; write {redacted(f'sqlite:{bare}{rest}')!r} "
            f"for a file in the current folder, {redacted(f'sqlite:/{bare}{rest}')!r} for one in {redacted(where)}"
        )
    return path


def check_library() -> None:
    """Refuse a SQLite library that can corrupt the file."""
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    if found < _OLDEST_SQLITE:
        wanted = ".".join(map(str, _OLDEST_SQLITE))
        raise StoreUnavailable(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a file that two processes write;"
            f" {wanted} or newer is needed: install a newer apsw"
        )


class _Fork:
    """State that this process has from a fork.

    SQLite keeps in memory which locks its process holds, and a child has that memory but not the locks: what it writes to the
    same file can be lost (sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_). It may also wait
    for ever for a thread that was inside the library and is not there any more.
    """

    inherited = False  # were there connections?

    @classmethod
    def happened(cls) -> None:
        """Keep, in the child, the parent's connections open: they are never closed here, also not at the end of the program."""
        open_there = apsw.connections()
        cls.inherited = cls.inherited or bool(open_there)
        if open_there:
            import ctypes  # noqa: PLC0415 - nobody else needs it

            for kept in (apsw, *open_there):  # the module closes at its end what is open
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Fork.happened)


def check_process() -> None:
    """Refuse a process in which SQLite cannot be used."""
    if _Fork.inherited:
        raise BadArguments(
            "this process was forked while its parent had a file of SQLite open, whose locks do not come along: what is written "
            "here could be lost. Open no store before the fork, or close it first; or start this process without a fork, as "
            "`multiprocessing.get_context('spawn')` does"
        )


class Nap:
    """Waits for another process's lock in short random naps: SQLite's own handler naps 100 ms and starves a writer."""

    def __init__(self, wanted: Callable[[], bool] = lambda: True) -> None:
        self._until = 0.0
        self._wanted = wanted  # asked before each nap: does a caller still wait for what needs the lock?
        self.patient = True  # False: do not wait at all

    def __call__(self, naps_before: int) -> bool:
        if not self.patient or not self._wanted():
            return False
        now = time.monotonic()
        if naps_before == 0:
            self._until = now + _BUSY_S
        elif now > self._until:
            return False
        time.sleep(random.uniform(0.0003, 0.001))
        return True


def connect(path: str, durability: Durability, *, vfs: str | None = None, writer: bool = False) -> apsw.Connection:
    """Open a connection with our settings. A file that is not there is created. Never `mmap`: I/O errors would kill us."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise StoreUnavailable(f"there is no folder {str(folder)!r} for the file {path!r}; create it first")
    if Path(path).is_dir():
        raise StoreUnavailable(f"{path!r} is a folder; name a file in it: 'sqlite:{Path(path) / 'holdfast.db'}'")
    make_private(path)
    check_owners(path)
    connection = apsw.Connection(path, vfs=vfs, statementcachesize=200)
    # Plans do not depend on parameters: else SQLite makes the plan of a claim anew each time that its parameters are others.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.set_busy_handler(Nap())
    connection.execute(
        f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA foreign_keys = ON; PRAGMA synchronous = {_SYNCHRONOUS[durability]};"
        "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864;"
        "PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0"
    )
    try:
        _use_wal(connection, path)
        check_owners(path)  # the log is open now: nobody can have put another one there meanwhile
    except BaseException:
        connection.close(force=True)
        raise
    if not writer:
        connection.execute("PRAGMA query_only = ON")
    return connection


def make_private(path: str) -> None:
    """Make a file that is not there, for this account alone whatever the umask says: SQLite gives its logs the same mode."""
    with contextlib.suppress(OSError):  # where none can be made, SQLite says why
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def check_owners(path: str) -> None:
    """Refuse what another account has put there before us, where anybody may: it would be read and written by both.

    Systems may refuse that by themselves, in folders where nobody removes what is another's (`fs.protected_regular`); not all do.
    """
    if not hasattr(os, "geteuid"):  # pragma: no cover - Windows
        return
    file = Path(path).resolve()  # the log of a link lies beside what that leads to
    folders = [each.stat() for each in {Path(path).parent, file.parent}]
    if not any(folder.st_mode & stat.S_IWOTH for folder in folders):
        return
    trusted = {os.geteuid(), 0, *(folder.st_uid for folder in folders)}
    for each in (path, *(f"{file}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))):
        with contextlib.suppress(FileNotFoundError):
            owner = Path(each).lstat().st_uid
            if owner not in trusted:
                raise StoreUnavailable(
                    f"{each!r} belongs to another account (uid {owner}), which would read and could change what is in the store; "
                    "remove it, and keep the store in a folder that only its own account may write"
                )


def _use_wal(connection: apsw.Connection, path: str) -> None:
    # Of several processes that open a new file at once, one switches it to WAL; the others find it locked, and SQLite
    # does not always ask the busy handler here.
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.001, 0.003))
            continue
        if mode != "wal":
            raise StoreUnavailable(
                f"{path!r} cannot use a write-ahead log (it stays in {mode!r} mode); use a local disk"
            )
        return


def facts(db: apsw.Connection, path: str) -> dict[str, Any]:
    """Read everything about the file that a person looking for trouble wants to know. Reads all of it."""
    sizes = {}
    for name, suffix in (("file", ""), ("log", "-wal")):
        with contextlib.suppress(OSError):
            sizes[f"{name}_bytes"] = Path(path + suffix).stat().st_size
    return {
        "store": "sqlite",
        "path": path,
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        **sizes,
        "pragmas": {name: db.pragma(name) for name in _PRAGMAS},
        "free_bytes": shutil.disk_usage(Path(path).parent).free,
        "integrity": _integrity(db),
    }


def _integrity(db: apsw.Connection) -> str:
    """Ask SQLite what is wrong with the file; the first few of it, in one line."""
    try:
        found = [text for (text,) in db.execute(f"PRAGMA integrity_check({_MOST_DAMAGES})")]
    except apsw.Error as error:
        return str(error)
    lines = [line for text in found for line in str(text).splitlines() if not line.startswith("***")]
    more = f"; and {len(lines) - _TOLD_DAMAGES} more" if len(lines) > _TOLD_DAMAGES else ""
    return "; ".join(lines[:_TOLD_DAMAGES]) + more
