"""Work: what a feature of the store asks of the database, and the transaction it asks in.

A piece of work is a generator. It yields named queries and is sent their rows, so the same text runs in a thread on a SQLite
connection and on the loop on one of PostgreSQL, and needs neither to be read or imported. A piece that writes takes the
`Transaction` first; one that only reads needs none. A `Feature` is one noun's part of `Store`: its promises are methods, and
each submits or reads one piece of work.
"""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from holdfast.store.changes import News
from holdfast.words.clock import Clock

T = TypeVar("T")
P = ParamSpec("P")
ALL: Final = (1 << 63) - 1  # as a limit: none

# ASCII only: a lone surrogate in someone's data then is an escape and not an encoding error.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def _in_c() -> Callable[[object, int], Iterable[str]] | None:
    """Make the encoder in C, once: `JSONEncoder.encode` makes one for each text, which takes longer than to write it."""
    make = getattr(json.encoder, "c_make_encoder", None)
    return make and make(
        None, _ENCODER.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
    )


_pieces: Final = _in_c()


def to_json(value: object) -> str:
    """Write compact JSON."""
    return _ENCODER.encode(value) if _pieces is None else "".join(_pieces(value, 0))


def listed(values: Iterable[str] | None) -> str | None:
    """Write a list as a parameter of a query; None stays None, which means any."""
    return None if values is None else to_json(list(values))


def only_of(labels: Mapping[str, str] | None) -> str | None:
    """Write the labels of the runs that are there for a caller as a parameter of a query; None stays None, which means all."""
    return None if labels is None else to_json(dict(labels))


HALF_OF_A_CHARACTER: Final = "a text has half of a character in it, a lone surrogate, which no database takes"


class Conflict(Exception):
    """A row breaks a constraint. Work may say what that means, and must not ask anything more."""


class Rows(NamedTuple):
    """Run a named query; the answer is its rows."""

    query: str
    parameters: dict[str, Any]


class Many(NamedTuple):
    """Run a named query once for each list of parameters, given in the order of queries.sql; the answer is all their rows."""

    query: str
    lists: Sequence[Sequence[Any]]


class Count(NamedTuple):
    """Run a named query once for each list of parameters; the answer is how many rows were changed."""

    query: str
    lists: Sequence[Sequence[Any]]


TAKEN: Final = "taken "  # before the name of a trigger among what workers declare: how many messages it has applied
Asked = Rows | Many | Count
Asking = Generator[Asked, Any, T]


def rows(query: str, /, **parameters: Any) -> Asking[list[Any]]:
    """Read the rows of a named query."""
    found: list[Any] = yield Rows(query, parameters)
    return found


class Transaction:
    """The transaction that a piece of work is in: its time, its worker, and a note of the runs it changed."""

    __slots__ = ("again", "changes", "now", "taken", "told", "worker")

    def __init__(self, now: int, worker: str) -> None:
        self.now, self.worker = now, worker
        self.again = False  # an earlier commit of this work failed in a way that leaves open whether it happened
        self.changes: dict[str, News] = {}
        self.told = 0  # how often work had something told: work that finds all done has nothing
        self.taken: dict[str, int] = {}  # messages of queues whose actions are in it, by trigger

    def rows(self, query: str, **parameters: Any) -> Asking[list[Any]]:
        """Run a named query. `:now` and `:worker` are always there."""
        parameters.setdefault("now", self.now)
        parameters.setdefault("worker", self.worker)
        found: list[Any] = yield Rows(query, parameters)
        return found

    def row(self, query: str, **parameters: Any) -> Asking[Any]:
        """Run a named query; the answer is its first row, or None."""
        found = yield from self.rows(query, **parameters)
        return found[0] if found else None

    def record(self, run: str, seq: int, epoch: int, kind: str, data: dict[str, Any]) -> Asking[None]:
        """Write one event of the store's own, at a place that was reserved for it."""
        yield Count("record", [(run, seq, kind, None, to_json(data), None, None, epoch, self.now)])

    def changed(self, run: str, news: News = News.GREW) -> None:
        """Have listeners told of this run when the transaction is committed."""
        self.changes[run] = max(self.changes.get(run, news), news)
        self.told += 1

    def took(self, trigger: str) -> None:
        """Count a message of a queue whose actions are in this transaction."""
        self.taken[trigger] = self.taken.get(trigger, 0) + 1

    def note_taken(self) -> Asking[None]:
        """Write down, last of all, the messages that were taken: a row for each queue, which is this worker's own."""
        for name, count in sorted(self.taken.items()):
            yield from self.rows("count_taken", name=TAKEN + name, taken=count)


class Feature(abc.ABC):
    """One noun's part of `Store`: its promises are methods, each of which has one piece of work done."""

    clock: Clock
    worker_id: str  # this process's incarnation: its name, if it has one, and what is random at each opening

    @abc.abstractmethod
    def _submit(
        self,
        do: Callable[[Transaction], Asking[T]],
        *,
        journal: bool = True,
        small: bool = False,
        runs: Sequence[str] | None = None,
    ) -> asyncio.Future[T]:
        """Queue a piece of work that writes; its answer comes when it is committed.

        `journal`: tests that break commits hear of this one. `small`: it is quick enough to be committed on the loop.
        `runs`: the existing runs that it changes; None if that is not known before.
        """

    @abc.abstractmethod
    async def _read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a piece of work that changes nothing."""

    @abc.abstractmethod
    async def _snapshot(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a piece of work that changes nothing, all of whose queries see the store as it is at one moment."""

    @abc.abstractmethod
    async def _glance(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a piece of work that changes nothing, finds its rows by an index, and finds few."""


def settle(
    future: asyncio.Future[Any] | concurrent.futures.Future[Any], value: Any, error: BaseException | None
) -> None:
    """Tell a future how a write ended, unless the caller that waited is gone: the write stands all the same."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def forget(future: asyncio.Future[Any]) -> None:
    """Leave a write to itself: nobody waits for it, and its failure was logged where it happened."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
