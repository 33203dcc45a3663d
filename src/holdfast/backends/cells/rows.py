"""The rows of a slot: which go with it, how they are read, put in elsewhere, and deleted.

Look here when a table is added to the store: what of it belongs to a run must be named in `_TABLES`, or it stays behind.
"""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.store.postgres.connection import Connection

_PIECE: Final = 16 << 20  # bytes of a parcel in one row
_BLOB: Final = r'"\$blob":"([0-9a-f]{64})"'
_OF_RUNS: Final = "run_id IN (SELECT id FROM moving)"
_OF_NAMES: Final = "run_id IN (SELECT name FROM moving_names)"
# What goes with a slot, in the order in which it is put in: rows that others point to come first.
_TABLES: Final = {
    "approvals": _OF_RUNS, "askers": _OF_RUNS, "spending": _OF_RUNS, "chunks": _OF_RUNS, "signals": _OF_RUNS, "remnants": _OF_RUNS,
    "forks": _OF_RUNS, "lineage": _OF_RUNS, "part_uses": _OF_NAMES, "events": _OF_NAMES, "exports": _OF_RUNS, "imports": _OF_RUNS,
    "audit": _OF_RUNS, "archived": "name IN (SELECT name FROM moving_names)",
    "links": f"question IN (SELECT id FROM approvals WHERE {_OF_RUNS})",
    "conversations": "@cells.slot_of(id) = $1", "conversation_line": "@cells.slot_of(conversation) = $1",
    "conversation_messages": "@cells.slot_of(conversation) = $1", "rates": "@cells.hashed(key) = $1",
    "late_turns": "@cells.hashed(key) = $1", "parts": f"digest IN (SELECT digest FROM part_uses WHERE {_OF_NAMES})",
    "blobs": "digest IN (SELECT digest FROM moving_blobs)",
}  # fmt: skip
_TEXTS: Final = (
    ("runs", "input", "id IN (SELECT id FROM moving)"), ("runs", "result", "id IN (SELECT id FROM moving)"),
    ("events", "value", _OF_NAMES), ("signals", "value", _OF_RUNS), ("approvals", "shown", _OF_RUNS),
    ("approvals", "data", _OF_RUNS),
    ("audit", "value", _OF_RUNS), ("archived", "input", "name IN (SELECT name FROM moving_names)"),
    ("conversation_messages", "value", "@cells.slot_of(conversation) = $1"),
)  # fmt: skip
_SHARED: Final = frozenset(
    {"blobs", "parts", "archived", "rates", "late_turns", "imports", "exports"}
)  # may be there already
_STAYS: Final = frozenset({"blobs", "parts"})  # others may need them


async def copied(db: Connection, cells: str, slot: int) -> AsyncIterator[tuple[str, list[str], bytes]]:
    """All rows of a slot that stands still, a table after the other, as COPY writes them and in pieces. In a transaction.

    A table without any is left out, so an empty slot is quick.
    """
    await name_rows(db, cells, slot)
    known = await _columns(db)
    for table, where in {"runs": "", **_TABLES}.items():
        columns = known[table]
        listed = ", ".join(f'"{name}"' for name in columns)
        source = f"{cells}.frozen_{slot}" if table == "runs" else f'"{table}" WHERE {where}'
        pieces = _Pieces()
        done = await db.copy_from_query(
            _spelled(f"SELECT {listed} FROM {source}", cells, slot), output=pieces.take, format="binary"
        )
        if done != "COPY 0":
            for piece in pieces.all():
                yield table, columns, piece


def _spelled(query: str, cells: str, slot: int) -> str:
    return query.replace("@cells", cells).replace("$1", str(int(slot)))


async def delete_rows(db: Connection, cells: str, slot: int) -> None:
    """Delete all rows of a slot, in the transaction that says that it is not here; large values of it are waste from now on."""
    await name_rows(db, cells, slot)
    await db.execute(f"INSERT INTO {cells}.waste SELECT digest FROM moving_blobs ON CONFLICT DO NOTHING")
    for table, where in reversed(_TABLES.items()):
        if table not in _STAYS:
            await db.execute(_spelled(f'DELETE FROM "{table}" WHERE {where}', cells, slot))
    await db.execute("DELETE FROM runs WHERE id IN (SELECT id FROM moving)")
    await db.execute("DROP TABLE moving, moving_names, moving_blobs")


class _Pieces:
    """Output of COPY, in pieces of a size that a row can hold."""

    def __init__(self) -> None:
        self._full, self._last = list[bytes](), bytearray()

    async def take(self, data: bytes) -> None:
        self._last += data
        if len(self._last) >= _PIECE:
            self._full.append(bytes(self._last))
            self._last.clear()

    def all(self) -> list[bytes]:
        return [*self._full, bytes(self._last)] if self._last else self._full


async def name_rows(db: Connection, cells: str, slot: int) -> None:
    """Name, for this transaction, the runs of a slot, the names under which events are theirs, and the large values they name."""
    await db.execute(
        f"CREATE TEMP TABLE moving ON COMMIT DROP AS SELECT id FROM runs WHERE {cells}.slot_of(root_id) = {int(slot)};"
        "CREATE TEMP TABLE moving_names ON COMMIT DROP AS SELECT id AS name FROM moving UNION SELECT base_id FROM lineage WHERE"
        f" {_OF_RUNS} AND left(base_id, 1) = '#' UNION SELECT base_id FROM forks WHERE {_OF_RUNS} AND left(base_id, 1) = '#'"
    )
    texts = " UNION ALL ".join(
        f"SELECT {column} AS text FROM {table} WHERE strpos({column}, '$blob') > 0 AND {where}"
        for table, column, where in _TEXTS
    )
    await db.execute(
        f"CREATE TEMP TABLE moving_blobs ON COMMIT DROP AS SELECT blob AS digest FROM events WHERE blob IS NOT NULL AND {_OF_NAMES}"
        f" UNION SELECT found[1] FROM ({texts}) AS texts, regexp_matches(text, '{_BLOB}', 'g') AS found"
        .replace("@cells", cells).replace("$1", str(int(slot)))
    )  # fmt: skip


async def _columns(db: Connection) -> dict[str, list[str]]:
    """The columns of each table of the store that are copied."""
    rows = await db.fetch(
        "SELECT table_name::text, array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND (table_name <> 'audit' OR column_name <> 'id') GROUP BY 1"
    )
    return {table: list(columns) for table, columns in rows}


async def put(db: Connection, cells: str, table: str, columns: list[str], content: bytes) -> None:
    """Put rows of a table in, as COPY wrote them."""
    names = ", ".join(f'"{name}"' for name in columns)
    await db.execute(f'CREATE TEMP TABLE arrived ON COMMIT DROP AS SELECT {names} FROM "{table}" WHERE FALSE')
    await db.copy_to_table("arrived", source=_stream(content), columns=columns, format="binary")
    values = names
    order = ""
    if table == "events":  # of the past here too
        values = names.replace('"position"', f"nextval('\"{cells}\".former_positions')")
        order = ' ORDER BY "position"'
    elsewhere = " ON CONFLICT DO NOTHING" if table in _SHARED else ""
    if table in _STAYS:  # one that is there is locked: a transaction that deletes it looks again when our rows name it
        elsewhere, order = " ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest", " ORDER BY digest"
    await db.execute(
        f'INSERT INTO "{table}" ({names}) SELECT {values} FROM (SELECT * FROM arrived{order}) AS came{elsewhere}'
    )
    await db.execute("DROP TABLE arrived")


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), 1 << 20):
        yield content[at : at + (1 << 20)]
