"""The log of a file is made longer ahead of what is written to it."""

from __future__ import annotations

from pathlib import Path

import apsw
from tests.store.places import Place, owned, step, write

from holdfast.store.sqlite.connection import PAGE_BYTES
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.sqlite.wal import Runway


def log_of(file: Place) -> Path:
    return Path(file.path + "-wal")


async def test_the_log_has_room_and_loses_nothing(file: Place) -> None:
    """Its end is zeros, a killed process's commits are all read back before them, and nothing is wrong with the file."""
    store = SQLiteStore(file.path)
    await store.open()
    row = await owned(store, "a")
    for _ in range(100):
        await store.append(write(row, step()))
    assert log_of(file).read_bytes()[-PAGE_BYTES:] == bytes(PAGE_BYTES)
    store.abandon()
    async with file.open() as again:
        assert len(await again.journal("a")) == 100
        assert (await again.facts())["integrity"] == "ok"


async def test_only_what_flushes_needs_it(file: Place) -> None:
    """A store that flushes nothing at each commit has a log that ends with what was written."""
    store = SQLiteStore(file.path, durability="process")
    await store.open()
    await owned(store, "a")
    assert (len(log_of(file).read_bytes()) - 32) % (PAGE_BYTES + 24) == 0
    await store.close()


def test_it_never_writes_over_what_is_there(tmp_path) -> None:
    """It begins where the file ends, whatever it believed before; and no file, or one that may not be written, is nothing."""
    path = tmp_path / "file.db"
    runway = Runway(str(path), PAGE_BYTES)
    runway.reach(1)
    log = tmp_path / "file.db-wal"
    log.write_bytes(b"x" * 10_000)
    runway.reach(1)
    grown = log.stat().st_size
    assert grown > 10_000
    log.write_bytes(b"y" * grown)  # somebody else has used it up
    with log.open("ab") as more:
        more.write(b"z" * 100_000)
    runway.reach(grown // PAGE_BYTES)
    runway.close()
    assert log.read_bytes().startswith(b"y" * grown + b"z" * 100_000)
    runway.close()


async def test_another_program_reads_it(file: Place) -> None:
    """SQLite itself, of any other program, finds what is in the log and that the file is sound."""
    store = SQLiteStore(file.path)
    await store.open()
    row = await owned(store, "a")
    await store.append(write(row, step()))
    other = apsw.Connection(file.path)
    assert other.execute("SELECT count(*) FROM events").get == 1
    assert other.pragma("integrity_check") == "ok"
    other.close()
    await store.close()
