"""Answers what work asks of a SQLite connection."""

from __future__ import annotations

from typing import Any, TypeVar

import apsw

from holdfast.store.queries import QUERIES
from holdfast.store.work import Asked, Asking, Conflict, Count, Rows

T = TypeVar("T")


def do(db: apsw.Connection, work: Asking[T]) -> T:
    """Run a piece of work to its end."""
    answered: Any = None
    while True:
        try:
            asked = work.send(answered)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            answered = _answer(db, asked)
        except apsw.ConstraintError as error:
            work.throw(Conflict(str(error)))


def _answer(db: apsw.Connection, asked: Asked) -> Any:
    if type(asked) is Rows:
        return db.execute(QUERIES[asked.query], asked.parameters).fetchall()
    if type(asked) is Count:
        before = db.total_changes()
        db.executemany(QUERIES[asked.query], asked.lists)
        return db.total_changes() - before
    return db.executemany(QUERIES[asked.query], asked[1]).fetchall()
