"""What a piece of work asks of the database, and the transaction it does so in."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.store.contract import News

T = TypeVar("T")

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


class _Names(dict[str, str]):
    """The few names that the data of events has, as JSON with a colon."""

    def __missing__(self, name: str) -> str:
        self[name] = written = f"{_quote(name)}:"
        return written


_quote: Final = json.encoder.encode_basestring_ascii
_names: Final = _Names()


def data_to_json(data: dict[str, Any]) -> str:
    """The data of an event as compact JSON. Nearly always all of it is texts and small numbers."""
    pieces = []
    for name, value in data.items():
        kind = type(value)
        if kind is str:
            pieces.append(_names[name] + _quote(value))
        elif kind is int:
            pieces.append(_names[name] + repr(value))
        else:
            return to_json(data)
    return "{" + ",".join(pieces) + "}"


def listed(values: Iterable[str] | None) -> str | None:
    """A list as a parameter of a query; None stays None, which means any."""
    return None if values is None else to_json(list(values))


class Conflict(Exception):
    """A row breaks a constraint. Work may say what that means; it cannot ask anything more."""


class Rows(NamedTuple):
    """Run a named query; the answer is its rows."""

    query: str
    parameters: dict[str, Any]


class Many(NamedTuple):
    """Run a named query once for each list of parameters, given in the order of queries.sql; the answer is all their rows."""

    query: str
    lists: Sequence[Sequence[Any]]


class Count(NamedTuple):
    """The same; the answer is how many rows were changed."""

    query: str
    lists: Sequence[Sequence[Any]]


# A piece of work: it yields what it asks of the database and is sent the answer. So the same work runs in a thread on a
# SQLite connection and on the loop on one of PostgreSQL.
Asked = Rows | Many | Count
Asking = Generator[Asked, Any, T]


class Transaction:
    """What a piece of work knows of the transaction it is in, and where it notes which runs it changed."""

    __slots__ = ("again", "changes", "now", "worker")

    def __init__(self, now: int, worker: str) -> None:
        self.now, self.worker = now, worker
        self.again = False  # an earlier commit of this work failed in a way that leaves open whether it happened
        self.changes: dict[str, News] = {}

    def rows(self, query: str, **parameters: Any) -> Asking[list[Any]]:
        """Run a named query. `:now` and `:worker` are always there."""
        parameters.setdefault("now", self.now)
        parameters.setdefault("worker", self.worker)
        found: list[Any] = yield Rows(query, parameters)
        return found

    def row(self, query: str, **parameters: Any) -> Asking[Any]:
        """Its first row, or None."""
        found = yield from self.rows(query, **parameters)
        return found[0] if found else None

    def changed(self, run: str, news: News = News.GREW) -> None:
        """Somebody may be waiting for this."""
        self.changes[run] = max(self.changes.get(run, news), news)
