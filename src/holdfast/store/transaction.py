"""One write transaction as the pieces of work in it see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import apsw

from holdfast.store.base import News
from holdfast.store.queries import QUERIES

# ASCII only: a lone surrogate in someone's data then is an escape and not an encoding error.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def _in_c() -> Callable[[object, int], Iterable[str]] | None:
    """The encoder in C, made once: `JSONEncoder.encode` makes one for each text, which takes longer than to write it."""
    make = getattr(json.encoder, "c_make_encoder", None)
    return make and make(
        None, _ENCODER.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
    )


_pieces: Final = _in_c()


def to_json(value: object) -> str:
    """Compact JSON."""
    return _ENCODER.encode(value) if _pieces is None else "".join(_pieces(value, 0))


def listed(values: Iterable[str] | None) -> str | None:
    """A list as a parameter of a query; None stays None, which means any."""
    return None if values is None else to_json(list(values))


Parameters = Mapping[str, Any] | Sequence[Any]


class Transaction:
    """The connection inside BEGIN, the time, and where the work notes which runs it changed."""

    __slots__ = ("again", "changes", "db", "now", "worker")

    def __init__(self, db: apsw.Connection, now: int, worker: str) -> None:
        self.db, self.now, self.worker = db, now, worker
        self.again = False  # an earlier commit of this work failed in a way that leaves open whether it happened
        self.changes: dict[str, News] = {}

    def rows(self, query: str, **parameters: Any) -> list[Any]:
        """Run a named query. `:now` and `:worker` are always there."""
        parameters.setdefault("now", self.now)
        parameters.setdefault("worker", self.worker)
        return self.db.execute(QUERIES[query], parameters).fetchall()

    def row(self, query: str, **parameters: Any) -> Any:
        """Its first row, or None."""
        rows = self.rows(query, **parameters)
        return rows[0] if rows else None

    def changed(self, run: str, news: News = News.GREW) -> None:
        """Somebody may be waiting for this."""
        self.changes[run] = max(self.changes.get(run, news), news)
