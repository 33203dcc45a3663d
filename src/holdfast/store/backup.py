"""Backups: one SQLite file with all that a store has, whichever database that is, and how it becomes a store again.

A backup is a store itself, which can be looked at and refuses every write: it stays what was written (`View`). A store
restored from it is another one, and *held*: no worker claims a run in it until an operator activates it, because the original may
live on beside it and would do everything too.

A file is written under another name, flushed, and gets its own name when it is whole. So a file of that name is a whole backup,
and what a killed process leaves is called `.NAME.<random>.part`. A checksum of all rows tells whether it still is what was written,
and its id is one of everything else that matters.

Left out is what belongs to processes: workers, the slots they hold and the schedules they declare. A run in the middle of a body is
interrupted by being copied, as by a crash, and goes on as after one.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import hashlib
import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store import audit
from holdfast.store.changes import News
from holdfast.store.migrate import known, migrate, missing
from holdfast.store.sqlite.connection import make_private
from holdfast.store.work import Asking, Feature, Transaction, rows

_OF_WORKERS: Final = frozenset({"workers", "slots", "open_calls", "lost_workers", "worker_minutes"})
NOT_COPIED: Final = _OF_WORKERS | {"migrations", "identity", "positions", "schedules_declared"}
_PAGES_AT_ONCE: Final = 2_000
_ROWS_AT_ONCE: Final = 500
_LARGE: Final = {"blobs": 4, "chunks": 50, "parts": 50, "exports": 1}  # rows at once of tables whose rows are large
_UNSEALED: Final = 32  # characters of the id of a backup that older versions made: any, and it tells nothing
# What reading damaged pages, schemas, texts and numbers raises.
_DAMAGE: Final = (
    apsw.CorruptError, apsw.FullError, apsw.IOError, apsw.SQLError, apsw.TooBigError, UnicodeDecodeError, TypeError,
)  # fmt: skip
_IDENTITY: Final = ("id", "made_at", "backup_of", "backup_at", "restored_at", "held_at")


def identity(row: Any) -> dict[str, Any]:
    """Name the columns of the row that says what a store is."""
    return dict(zip(_IDENTITY, row, strict=True))


class Backups(Feature):
    """Copies of a store: made, and turned into a store again."""

    async def backup(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        """Write all there is at one moment to a file, while others go on; returns how many runs. `BadArguments` if it exists."""
        part = Part(path, "the backup")
        noted = functools.partial(audit.note, run="", by=by, via=via, action="backup", data={"file": part.path.name})
        await self._submit(noted, journal=False)  # first: there is no copy without its row
        return await self._copy_out(part)

    @abc.abstractmethod
    async def _copy_out(self, part: Part) -> int:
        """Fill a backup with what this store has at one moment, and finish it."""

    @abc.abstractmethod
    async def restore(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        """Fill this store, which must be empty and not open, from a backup; it is held then. Returns how many runs."""

    async def activate(self, *, by: str, via: str) -> int:
        """Let a held store go on; returns how many unfinished runs it has. `BadArguments` if it is not held."""
        return await self._submit(lambda tx: _activate(tx, by, via), journal=False)

    async def held(self) -> bool:
        """Is it a copy whose runs no worker may carry yet?"""
        (itself,) = await self._glance(rows, "identity")
        return identity(itself)["held_at"] is not None


def rows_at_once(table: str) -> int:
    """Tell how many rows of a table may be in memory."""
    return _LARGE.get(table, _ROWS_AT_ONCE)


class Part:
    """A file on its way: it has its name when it is whole."""

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        self.path = Path(path).absolute()
        self._part = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.part")
        self.unwanted = False  # no caller waits for it any more
        if not self.path.parent.is_dir():
            raise BadArguments(f"there is no folder {str(self.path.parent)!r} for {what}; create it first")
        for suffix in ("", "-wal", "-journal"):  # a log that is there would be taken for that of the new file
            if Path(f"{self.path}{suffix}").exists():
                raise BadArguments(f"{str(self.path) + suffix!r} is there already; name another file for {what}")

    def open(self) -> apsw.Connection:
        """Make the file, empty. Nothing of it is flushed before the end, because until then it is nothing."""
        make_private(str(self._part))
        db = apsw.Connection(str(self._part))
        db.execute("PRAGMA synchronous = OFF")
        return db

    def check_wanted(self) -> None:
        """Give up if no caller waits any more."""
        if self.unwanted:
            raise StoreUnavailable("the copy was given up")

    def finish(self, db: apsw.Connection) -> None:
        """Flush the file and give it its name, unless another has taken it."""
        db.pragma("journal_mode", "delete")  # one file, that can be copied as it is
        db.close()
        with self._part.open("rb+") as file:
            os.fsync(file.fileno())
        try:
            os.link(self._part, self.path)
        except FileExistsError:
            raise BadArguments(f"{str(self.path)!r} is there already; name another file, or move it away") from None
        except OSError:  # a file system without links
            self._part.rename(self.path)
        self.discard()
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Remove what was written under the other name."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                Path(f"{self._part}{suffix}").unlink()


def copy_pages(source: apsw.Connection, target: apsw.Connection, check: Callable[[], None]) -> None:
    """Copy all of a file as it is at one moment, while others write to it."""
    source.execute("BEGIN")
    try:
        source.execute("SELECT 1 FROM sqlite_schema").fetchall()  # from here on it is seen as it is now
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                check()
                copying.step(_PAGES_AT_ONCE)
    finally:
        source.execute("ROLLBACK")


def seal(db: apsw.Connection, of: str, at: int) -> int:
    """Make a backup of a filled file: it names its original, is held and has its checksum. Returns how many runs it has."""
    db.execute("BEGIN; DELETE FROM identity")
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table in _OF_WORKERS & there:  # a file of an older schema does not have them all
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our schema
    rows = checksum(db)
    row = (_seal_of(db, of, at, rows), at, of, at, at, rows)
    db.execute(
        "INSERT INTO identity (id, made_at, backup_of, backup_at, held_at, checksum) VALUES (?, ?, ?, ?, ?, ?)", row
    )
    db.execute("COMMIT")
    runs: int = db.execute("SELECT count(*) FROM runs").get
    return runs


def _tables(db: apsw.Connection) -> list[str]:
    found: list[Any] = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    return [
        name for name, sql in found
        if name not in NOT_COPIED and not name.startswith("sqlite_") and not sql.startswith("CREATE VIRTUAL")
    ]  # fmt: skip


def columns(db: apsw.Connection, table: str) -> list[str]:
    """List the names of a table's columns."""
    return [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))]


def checksum(db: apsw.Connection) -> str:
    """Digest every row of every table, in the order of their keys."""
    found = hashlib.sha256()
    for table in _tables(db):
        if table == "agents":  # older versions let a client that looked at a backup publish its agents there
            continue
        keys = [
            name for (name,) in db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
        ]
        order = ", ".join(f'"{key}"' for key in keys) or "rowid"
        found.update(table.encode())
        for row in db.execute(f'SELECT * FROM "{table}" ORDER BY {order}'):  # noqa: S608 - names of this very file
            found.update(ascii(row).encode())
    return found.hexdigest()


def _seal_of(db: apsw.Connection, of: str, at: int, rows: str) -> str:
    """Make the id of a backup: a digest of all that matters in it, beside the rows also what they are held in."""
    schema = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()
    applied = db.execute("SELECT * FROM migrations ORDER BY number").fetchall()
    agents = db.execute("SELECT * FROM agents ORDER BY 1").fetchall()
    return hashlib.sha256(ascii((of, at, rows, schema, applied, agents)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Backup:
    """A whole backup, open to be read."""

    path: str
    db: apsw.Connection
    of: str
    at: int

    def rows(self, table: str) -> Iterator[list[Any]]:
        """Read a table, some rows at a time."""
        names = ", ".join(f'"{name}"' for name in columns(self.db, table))
        where = " WHERE run_id <> ''" if table == "events" else ""  # marks of deleted positions are for SQLite
        cursor = self.db.execute(f'SELECT {names} FROM "{table}"{where}')  # noqa: S608 - names of this very file
        while some := list(itertools.islice(cursor, rows_at_once(table))):
            yield some

    def identity(self, now: int) -> tuple[Any, ...]:
        """Make the row of a store that is restored from it: another store, which is held."""
        return secrets.token_hex(16), now, self.of, self.at, now, now


def opened(path: str | os.PathLike[str]) -> Backup:
    """Open the backup in a file, after all of it was read; `BadArguments` says what is wrong with any other file."""
    where = str(Path(path).absolute())
    if not Path(where).is_file():
        raise BadArguments(f"there is no file {where!r}")
    db = _read_only(where)
    try:
        of, at = _checked(db, where)
    except _DAMAGE as error:
        db.close()
        raise BadArguments(f"{where!r} is damaged ({error}); take another backup") from error
    except apsw.NotADBError:
        db.close()
        raise BadArguments(f"{where!r} is no backup: it is no SQLite file") from None
    except BaseException:
        db.close()
        raise
    return Backup(where, db, of, at)


def _read_only(path: str) -> apsw.Connection:
    """Open a connection that changes nothing and leaves nothing beside the file; its folder need not be writable."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    if not any(_has_content(path + suffix) for suffix in ("-wal", "-journal")):  # then the file is all there is
        return apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)
    db = apsw.Connection(f"file:{quote(path)}?mode=ro", flags=flags)
    try:
        db.execute("SELECT 1 FROM sqlite_schema").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        db.close()
        return apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)
    except apsw.Error:
        pass  # it is found again, where it is told
    return db


def _has_content(path: str) -> bool:
    try:
        return Path(path).stat().st_size > 0
    except OSError:
        return False


def is_backup(path: str) -> bool:
    """Is this file a backup, as opposed to a store that was made of one? To ask changes nothing.

    Versions before let a backup be activated in its place; it has been a store since then.
    """
    if not _has_content(path):
        return False
    try:
        db = _read_only(path)
        try:
            found = db.execute("SELECT 1 FROM identity WHERE checksum IS NOT NULL AND held_at IS NOT NULL").get
        finally:
            db.close()
    except apsw.Error:  # whatever it is, opening it as a store tells
        return False
    return found is not None


def is_older(path: str) -> bool:
    """Has the store in this file an older schema than this version? To ask changes nothing."""
    try:
        db = _read_only(path)
        try:
            applied: list[Any] = db.execute("SELECT number, name, checksum FROM migrations").fetchall()
        finally:
            db.close()
    except apsw.Error:  # whatever it is, opening it as a store tells
        return False
    return bool(missing(repr(path), applied, known()))


class View:
    """A store that is only looked at: as it is, or, if it has an older schema, a copy of it that is brought up to date."""

    def __init__(self, path: str) -> None:
        self._path, self._folder = path, None
        db = _read_only(path)
        try:
            applied: list[Any] = db.execute("SELECT number, name, checksum FROM migrations").fetchall()
            if missing(repr(path), applied, known()):
                self._folder = tempfile.TemporaryDirectory(prefix="holdfast-")
                self._path = str(Path(self._folder.name) / "copy.db")
                _bring_up_to_date(db, self._path)
        except BaseException:
            self.close()
            raise
        finally:
            db.close()

    def connect(self) -> apsw.Connection:
        """Open a connection that sees what is in it."""
        db = _read_only(self._path)
        db.execute("PRAGMA temp_store = MEMORY")
        return db

    def close(self) -> None:
        """Remove the copy, if there is one; the last connection must be closed."""
        if self._folder is not None:
            self._folder.cleanup()


def _bring_up_to_date(backup: apsw.Connection, path: str) -> None:
    copy = apsw.Connection(path)
    try:
        copy.execute("PRAGMA synchronous = OFF")
        copy_pages(backup, copy, lambda: None)
        copy.pragma("journal_mode", "delete")
        migrate(copy, 0)
    finally:
        copy.close()


def _checked(db: apsw.Connection, path: str) -> tuple[str, int]:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "migrations" not in tables:
        other = f"it is some other program's (it has a table {min(tables)!r})" if tables else "it is empty"
        raise BadArguments(f"{path!r} is no backup: {other}")
    applied: list[Any] = db.execute("SELECT number, name, checksum FROM migrations").fetchall()
    newest, name, _ = max(applied, default=(0, "", ""), key=lambda row: row[0])
    whole = {ours.number for ours in known()} <= {number for number, _, _ in applied}  # else a number was changed
    if newest > known()[-1].number and whole and isinstance(name, str):  # one that has no name is damaged
        missing(repr(path), applied, known())  # first: what else it has may be unknown here
    found = db.execute("SELECT id, backup_of, backup_at, checksum FROM identity").get if "identity" in tables else None
    if found is None or found[3] is None:
        raise BadArguments(f"{path!r} is a store and no backup; make one of it with `holdfast backup`")
    problem = db.execute("PRAGMA integrity_check(1)").get
    if problem != "ok":
        raise BadArguments(f"{path!r} is damaged ({problem}); take another backup")
    own, of, at, rows = found
    if checksum(db) != rows or (len(str(own)) != _UNSEALED and _seal_of(db, of, at, rows) != own):
        raise BadArguments(f"{path!r} is damaged, or was changed since it was made; take another backup")
    missing(repr(path), applied, known())
    return of, at


@contextlib.contextmanager
def up_to_date(backup: Backup) -> Iterator[Backup]:
    """Give the backup the schema of this version: itself, or a copy in memory if it has an older one."""
    applied = {number for (number,) in backup.db.execute("SELECT number FROM migrations")}
    if all(migration.number in applied for migration in known()):
        yield backup
        return
    copy = apsw.Connection(":memory:")
    try:
        copy_pages(backup.db, copy, lambda: None)
        migrate(copy, backup.at)
        yield Backup(backup.path, copy, backup.of, backup.at)
    finally:
        copy.close()


def restore_file(path: str | os.PathLike[str], target: str, now: int, by: str, via: str) -> int:
    """Make a file of a backup that is a store: held, and with an identity of its own. Returns how many runs it has."""
    part, backup = Part(target, "the store"), opened(path)
    db = None
    try:
        db = part.open()
        copy_pages(backup.db, db, part.check_wanted)
        db.pragma("journal_mode", "delete")
        migrate(db, now)
        # Numbers of the audit go on behind its last row. What SQLite keeps of them has no checksum, and could be damaged.
        db.execute("BEGIN; DELETE FROM identity; DELETE FROM sqlite_sequence")
        db.execute(
            "INSERT INTO identity (id, made_at, backup_of, backup_at, restored_at, held_at) VALUES (?, ?, ?, ?, ?, ?)",
            backup.identity(now),
        )
        audited = "INSERT INTO audit (at, run_id, actor, action, data, via) VALUES (?, '', ?, 'restore', NULL, ?)"
        db.execute(audited, (now, by, via))
        db.execute("COMMIT")
        runs: int = db.execute("SELECT count(*) FROM runs").get
        part.finish(db)
    finally:
        backup.db.close()
        if db is not None:
            db.close(force=True)
        part.discard()
    return runs


def _activate(tx: Transaction, by: str, via: str) -> Asking[int]:
    """Let a held store go on; returns how many unfinished runs it has. Runs that were copied in the middle are due at once."""
    found = yield from tx.row("identity")
    if identity(found)["held_at"] is None:
        if tx.again:
            return 0
        raise BadArguments("this store is not held: its runs are carried by whatever workers it has")
    yield from tx.rows("let_go")
    yield from tx.rows("orphan_all")
    ((unfinished,),) = yield from tx.rows("count_unfinished")
    yield from audit.note(tx, "", by, via, "activate", {"runs": unfinished})
    tx.changed("", News.DUE)
    runs: int = unfinished
    return runs
