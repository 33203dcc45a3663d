"""Answers of a SQLite connection to what work asks."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import apsw

from holdfast.store.queries import QUERIES
from holdfast.store.work import Asked, Asking, Conflict, Count, Rows, run

T = TypeVar("T")


def do(db: apsw.Connection, work: Asking[T]) -> T:
    """Run a piece of work to its end."""
    return run(work, functools.partial(_answer, db))


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
