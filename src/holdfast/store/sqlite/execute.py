"""Answers of a SQLite connection to what work asks."""

from __future__ import annotations

from typing import Any, TypeVar

import apsw

from holdfast.errors import BadArguments
from holdfast.store.queries import QUERIES
from holdfast.store.work import HALF_OF_A_CHARACTER, Asked, Asking, Conflict, Count, Rows

T = TypeVar("T")


def do(db: apsw.Connection, work: Asking[T]) -> T:
    """Run a piece of work to its end."""
    try:
        asked = next(work)
        while True:
            try:
                rows = _answer(db, asked)
            except Conflict as conflict:
                asked = work.throw(conflict)
            else:
                asked = work.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def _answer(db: apsw.Connection, asked: Asked) -> Any:
    try:
        if type(asked) is Rows:
            return db.execute(QUERIES[asked.query], asked.parameters).fetchall()
        if type(asked) is Count:
            before = db.total_changes()
            db.executemany(QUERIES[asked.query], asked.lists)
            return db.total_changes() - before
        return db.executemany(QUERIES[asked.query], asked[1]).fetchall()
    except apsw.ConstraintError as error:
        raise Conflict(str(error)) from error
    except UnicodeEncodeError as error:
        raise BadArguments(HALF_OF_A_CHARACTER) from error
