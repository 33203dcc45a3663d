"""Migrations: numbered SQL files that bring a file to the schema of this version, each applied once, with its checksum.

All that is missing is applied in one transaction. It begins with the write lock, so of several processes that open a
new file at once one applies, and the others wait and find it done. Dying on the way leaves the file as it was.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import apsw

from holdfast.errors import NewerJournal, StoreUnavailable


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@functools.cache
def known() -> tuple[Migration, ...]:
    """Read the migrations of this version, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    found = []
    for file in folder.iterdir():
        number, _, rest = file.name.partition("_")
        if rest.endswith(".sql") and number.isdigit():
            text = file.read_text(encoding="utf-8").replace("\r\n", "\n")
            found.append(Migration(int(number), rest.removesuffix(".sql"), text))
    return tuple(sorted(found, key=lambda migration: migration.number))


def migrate(db: apsw.Connection, now: int, migrations: Sequence[Migration] | None = None) -> int:
    """Apply what is missing; returns how many. `NewerJournal` when the file knows more than we do."""
    wanted = list(known() if migrations is None else migrations)
    if not _missing(db, wanted):  # the usual case costs no write lock
        return 0
    db.execute("BEGIN IMMEDIATE")
    try:
        lacking = _missing(db, wanted)
        db.execute(
            "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
            " checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)"
        )
        for migration in lacking:
            db.execute(migration.sql)
            db.execute(
                "INSERT INTO migrations (number, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.checksum, now),
            )
            if migration.name == "copies":
                db.execute("INSERT INTO identity (id, made_at) VALUES (?, ?)", (secrets.token_hex(16), now))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return len(lacking)


def _missing(db: apsw.Connection, wanted: list[Migration]) -> list[Migration]:
    """Find what this file has not seen yet, after checking that what it has seen is what we know."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "migrations" not in tables:
        if tables:
            raise StoreUnavailable(
                f"{db.filename!r} is a SQLite file of some other program (it has a table {min(tables)!r});"
                " name another file"
            )
        return wanted
    applied: list[Any] = db.execute("SELECT number, name, checksum FROM migrations").fetchall()
    return missing(repr(db.filename), applied, wanted)


def missing(where: str, found: Sequence[tuple[int, str, str]], wanted: Sequence[Migration]) -> list[Migration]:
    """Find what a database has not seen yet, after checking that what it has seen (number, name, checksum) is what we know."""
    applied = {number: (name, checksum) for number, name, checksum in found}
    ours = {migration.number: migration for migration in wanted}
    newest = max(applied, default=0)
    if newest > max(ours, default=0):
        raise NewerJournal(
            f"{where} has schema {newest} ({applied[newest][0]}), this Holdfast knows {max(ours, default=0)};"
            " upgrade this one"
        )
    for number, (name, checksum) in sorted(applied.items()):
        if number not in ours or ours[number].checksum != checksum:
            raise NewerJournal(
                f"{where} was made with another text of schema {number} ({name}) than this Holdfast has;"
                " use the version that made it"
            )
    return [migration for migration in wanted if migration.number not in applied]
