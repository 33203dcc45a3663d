"""The store: what keeps runs, whatever the database. `Store` is the contract, and the work that it has done.

Look here for the life of a store, for how writes wait and callers are told, and for the list of its features, each of which is
a file of this folder. A database adds how it is opened, how a batch is committed (`_flush`), how it reads (`_read`, and
`_glance` for what is small), and how an incarnation is known to be alive (`_hold_lock`, `recover`, `_living`).
"""

from __future__ import annotations

import abc
import asyncio
import functools
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import StoreUnavailable, Unsupported
from holdfast.runtime import AgentSpec
from holdfast.runtime import outside as in_no_run
from holdfast.store.announcements import Announcements
from holdfast.store.appends import Append, QueuedAppend, Told
from holdfast.store.approvals import Approvals
from holdfast.store.audit import Audit
from holdfast.store.backup import Backups, identity
from holdfast.store.blobs import Blobs
from holdfast.store.budgets import Budgets
from holdfast.store.bundles import Bundles, public_id
from holdfast.store.calls import Calls
from holdfast.store.changes import Changes, News
from holdfast.store.contract import Ailment, write_limit
from holdfast.store.control import Control
from holdfast.store.conversations import Conversations
from holdfast.store.deletion import Deletion
from holdfast.store.files import Files
from holdfast.store.fleet import Fleet
from holdfast.store.forks import Forks
from holdfast.store.gatherings import Gatherings
from holdfast.store.inbox import Inbox
from holdfast.store.journal import Journals
from holdfast.store.leases import Leases
from holdfast.store.limits import Limits
from holdfast.store.links import Links
from holdfast.store.notifications import Notifications
from holdfast.store.operations import Operation, Result, Work
from holdfast.store.parts import Parts
from holdfast.store.present import Presents
from holdfast.store.runs import Runs
from holdfast.store.schedules import Schedules
from holdfast.store.sessions import Sessions
from holdfast.store.streams import Streams
from holdfast.store.tokens import Tokens
from holdfast.store.transactions import Transactions
from holdfast.store.triggers import Triggers
from holdfast.store.work import Asking, Transaction, rows, settle
from holdfast.words.calls import KeptAs
from holdfast.words.clock import Clock
from holdfast.words.durations import spoken
from holdfast.words.features import Feature
from holdfast.words.harmless import logger
from holdfast.words.limits import Lane

_log = logger("holdfast.store")
T = TypeVar("T")
P = ParamSpec("P")

_LOOK_S, _LOOKS = 0.05, 20  # for so long a write may still be told how it ended when its time is over


class _Deadline:
    """Withdraws a write when its time is over, or when its caller is gone."""

    __slots__ = ("_future", "_limit_s", "_store", "_timer", "_work")

    def __init__(self, store: Store, work: Work[Any], future: asyncio.Future[Any], limit_s: float) -> None:
        self._store, self._work, self._future, self._limit_s = store, work, future, limit_s
        self._call(limit_s, 0)
        future.add_done_callback(self._done)

    def _call(self, in_s: float, looks: int) -> None:
        self._timer = self._future.get_loop().call_later(in_s, self._over, looks, context=self._store.context)

    def _over(self, looks: int) -> None:
        ailment = self._store.ailment()
        late = f"within {spoken(self._limit_s)}"
        because = (late, late) if ailment is None else (f"{late} ({ailment})", f"{late} ({ailment.reason})")
        if not self._work.withdraw(*because) and not self._work.unknown and looks < _LOOKS:
            self._call(_LOOK_S, looks + 1)  # it is in a transaction in this moment, which ends one way or the other
        else:
            settle(self._future, None, self._work.refusal())

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        if future.cancelled():
            self._work.withdraw("in time", "in time")


class Store(
    Leases, Runs, Control, Deletion, Journals, Inbox, Approvals, Budgets, Conversations, Limits, Streams, Transactions, Blobs,
    Parts, Tokens, Audit, Backups, Bundles, Forks, Schedules, Triggers, Announcements, Gatherings, Files, Notifications, Calls,
    Presents, Fleet, Sessions, Links,
):  # fmt: skip
    """A database that keeps runs. Every method is idempotent or fenced, so it may be repeated after an unknown outcome."""

    url: str
    inputs: KeptAs | None = None  # how steps keep their inputs that do not say it, nor do their agents
    refuses: str | None = None  # why nothing may be written, if so: it is only looked at
    # Tells how long a caller that reads now waits for a server; None: until it answers.
    read_limit_s: Callable[[], float | None]

    def __init__(self, clock: Clock, name: str = "", worker: str = "") -> None:
        self.clock, self.worker_id = clock, worker or f"{name}-{secrets.token_hex(8)}".lstrip("-")
        self._listeners: list[Callable[[Changes], None]] = []
        self._served = set()
        self._waiting: list[Operation] = []
        self.read_limit_s = lambda: None

    # Life of the store

    @property
    def is_backup(self) -> bool:
        """Is it the file of a backup, which refuses every write? Known before it is open too."""
        return False

    @property
    def lacks(self) -> Mapping[Feature, str]:
        """Features that this ground does not have: why, and what to do instead."""
        return {}

    def refusal(self, feature: Feature) -> Unsupported:
        """Make the error that tells of a feature that is lacked."""
        return Unsupported(self.lacks[feature])

    @abc.abstractmethod
    async def open(self) -> None:
        """Open the database, in the loop that uses the store."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Write what is queued, give back what is leased, and let go of the database."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Drop everything as a killed process would: nothing queued is written, the incarnation's lock is let go."""

    def worker(
        self, specs: Iterable[AgentSpec], settings: Any, triggers: Iterable[Any], apply: Any, *, listens: bool
    ) -> Any:
        """Make what carries runs here, if the store has workers of its own kind; None: ours do."""
        return None

    def check_agent(self, spec: AgentSpec) -> None:
        """Refuse an agent whose runs could not be carried here, as far as it declares that: `Unsupported`."""

    def placed(self, id: str, lane: Lane) -> str:
        """Return an id that was made for a new run as the store wants it: one of several databases may have to be told by it."""
        return id

    @property
    def value_limit_bytes(self) -> int:
        """The size of the largest value that it takes; settings may say less."""
        return sys.maxsize

    # Tells whether two positions of the feed stand for the same place; None: if they are the same number.
    feed_alike: Callable[[int, int], bool] | None = None

    def before(self, position: int, end: int) -> bool:
        """Tell whether a place in the feed is before another one, so that something between them may be missing yet."""
        return position < end

    @abc.abstractmethod
    def observe(self, commit: Callable[[int, float], None]) -> None:
        """Call this after each commit with the number of operations in it and the seconds it took, in any thread."""

    @abc.abstractmethod
    def ailment(self) -> Ailment | None:
        """Tell what is known to keep this store from being written; needs no database and no loop."""

    @abc.abstractmethod
    async def facts(self) -> dict[str, Any]:
        """Read what `doctor` shows: versions, sizes, counts by status, pragmas, integrity."""

    def _begin(self) -> None:
        self._loop, self.context = asyncio.get_running_loop(), in_no_run()

    # Listeners

    def on_change(self, listener: Callable[[Changes], None]) -> None:
        """Tell this listener of changes, on the loop: at once of this process's commits, soon of other processes'."""
        self._listeners.append(listener)

    def _deliver(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        """Tell, on the loop, after a commit: every caller that waits for it, then every listener."""
        for operation, value, error in results:
            try:
                operation.told(value, error)
            except Exception:  # noqa: BLE001 - whatever it is, the next one must hear
                _log.exception("what followed a write failed")
        self._said_due = self._said_due or News.DUE in changes.values()
        if changes:
            self._tell(changes)

    def _tell(self, changes: Changes) -> None:
        for listener in self._listeners:
            try:
                listener(changes)
            except Exception:  # noqa: BLE001 - whatever it is, the next one must hear
                _log.exception("a listener failed")

    # The owner's writes

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        """Queue a write; `told` gets the time of its commit. Writes of one run are committed in the order given.

        Or it gets `LeaseLost` or `InboxMoved`. On a full or failing disk it waits and tries again: nothing is lost.
        `alone` says that no other write of this run can be about to come, so that it is no use to wait for company;
        `told` may then be called before this returns.
        """
        self._check_open()
        self._queue(QueuedAppend(append, told))

    def append(self, append: Append) -> asyncio.Future[int]:
        """Queue a write, to be awaited."""
        future: asyncio.Future[int] = self._loop.create_future()
        self.post(append, functools.partial(settle, future))
        return future

    # The queue

    def _submit(
        self,
        do: Callable[[Transaction], Asking[T]],
        *,
        journal: bool = True,
        small: bool = False,
        runs: Sequence[str] | None = None,
    ) -> asyncio.Future[T]:
        self._check_open()
        self._check_writable()
        future: asyncio.Future[T] = self._loop.create_future()
        work = Work(do, functools.partial(settle, future), journal, small, runs)
        limit_s = write_limit.get()
        if limit_s is not None:
            _Deadline(self, work, future, limit_s)
        self._queue(work)
        return future

    def _queue(self, operation: Operation) -> None:
        """Collect what comes in one turn of the loop: it goes out together."""
        self._waiting.append(operation)
        if len(self._waiting) == 1:
            self._loop.call_soon(
                self._flush, context=self.context
            )  # not in the context of the caller that writes first

    @abc.abstractmethod
    def _flush(self) -> None:
        """Begin to write what waits; called on the loop a turn after the first of it came."""

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is not open")

    def _check_writable(self) -> None:
        if self.refuses is not None:
            raise StoreUnavailable(self.refuses, lasting=True)


def facts() -> Asking[dict[str, Any]]:
    """Read what every store can tell to a person looking for trouble."""
    counted = yield from rows("count_runs")
    ((events, signals, blobs, questions, workers),) = yield from rows("count_rows")
    ((schema,),) = yield from rows("newest_migration")
    versions = yield from rows("code_versions")
    (itself,) = yield from rows("identity")
    return {
        "schema": schema,
        "identity": identity(itself),
        "store_id": public_id(itself[0]),
        "runs": dict(counted),
        "events": events,
        "signals": signals,
        "blobs": blobs,
        "open_approvals": questions,
        "workers": workers,
        "code_versions": dict(versions),
    }
