"""The writer: one thread that takes all that waits, and commits it as one transaction.

A lone write, when the thread has nothing to do, is committed where it comes from (`write_here`): to wake a thread and be
woken by it takes as long as the commit. It is not waited for: if another process writes, or the disk is slow or in trouble,
the thread does it.

Two passes. The hopeful one runs everything without savepoints; nearly always it is the only one. If any piece of work
raises, all is rolled back and the careful pass gives each its own savepoint, so that only the guilty one fails.

Trouble (a full or failing disk, a lock held for too long) is no caller's fault: nothing is acknowledged, the batch is kept
and offered again every 250 ms until it works or the store is closed. When COMMIT itself failed, it is not known whether
it happened; each piece of work is told so (`again`) and recognises its own rows. A client waits only for so long: then its
work is withdrawn, and passed over when its turn comes.

Crash points: before COMMIT, nothing of the batch exists. After it and before `_deliver` runs on the loop, all exists,
and nobody was told.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import apsw

from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.store.appends import QueuedAppend, Refused, apply_all, apply_one
from holdfast.store.changes import News
from holdfast.store.operations import Crash, Faults, Operation, Result, Work, names, nobody_waits, put_back, refusals
from holdfast.store.queries import QUERIES
from holdfast.store.sqlite.connection import Nap
from holdfast.store.sqlite.execute import do
from holdfast.store.sqlite.wal import Log, Runway
from holdfast.store.work import Transaction
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger

_log = logger("holdfast.store")

POLL_S: Final = 0.5
_RESERVE: Final = QUERIES["reserve"]
_RECORD: Final = QUERIES["record"]
_RETRY_S: Final = 0.25
_SLOW_S: Final = 0.002  # a commit that takes longer does not belong on the loop
_QUIET_S: Final = 0.002  # since the last write: no other run is writing much
_HELD_OFF: Final = 50  # lone appends that go to the thread after a slow one
_LARGEST_BATCH: Final = 2_000  # bounds the time one transaction holds the write lock against other processes

# After these the connection is not trusted any more: what it has in memory may differ from the file.
_BROKEN: Final = (apsw.IOError, apsw.CantOpenError, apsw.NoMemError, apsw.ProtocolError, apsw.ReadOnlyError,
                  apsw.ConnectionClosedError)  # fmt: skip
_TROUBLE: Final = (*_BROKEN, apsw.FullError, apsw.BusyError, apsw.LockedError)
_UNDONE: Final = (apsw.FullError, apsw.BusyError, apsw.LockedError)  # after these at COMMIT it has surely not happened
_RUINED: Final = (apsw.CorruptError, apsw.NotADBError)


def inject(hook: Callable[[list[str]], None], writes: list[str]) -> None:
    """Call a test's hook. `Crash` kills the writer; any other exception is to us what a failing disk is."""
    try:
        hook(writes)
    except Exception as error:
        raise apsw.IOError(f"injected: {error!r}") from error


class Solo:
    """Tells whether a write is a lone one, which is best committed where it comes from.

    Lone: it comes from the run that wrote last, or nobody has written for a while. Several runs that write in turn are better
    off together in the thread. After a slow commit the thread gets the next ones, because the loop must not wait for a disk.
    """

    __slots__ = ("_held_off", "_run", "_wrote_at")

    def __init__(self) -> None:
        self._run, self._held_off, self._wrote_at = "", 0, 0.0

    def allows(self, batch: list[Operation]) -> bool:
        run = batch[0].append.run if len(batch) == 1 and type(batch[0]) is QueuedAppend else ""
        quiet = len(batch) == 1 and batch[0].small and time.perf_counter() > self._wrote_at + _QUIET_S
        lone, self._run = quiet or (run != "" and run == self._run), run
        if self._held_off:
            self._held_off -= 1
            return False
        return lone

    def hold_off(self) -> None:
        """Leave the next lone writes to the thread."""
        self._held_off = _HELD_OFF

    def wrote(self) -> None:
        self._wrote_at = time.perf_counter()

    def wrote_alone(self, began: float, changed: dict[str, News]) -> None:
        """Learn from a lone write: how long it took, and which run it created, claimed or told, because that writes next."""
        self.wrote()
        if not self._run and len(changed) == 1:
            self._run = next(iter(changed))
        if self._wrote_at - began > _SLOW_S:
            self.hold_off()


class Poll:
    """Looks now and then whether other connections (so other processes) committed: the truth behind wake-ups."""

    __slots__ = ("_moved", "_next", "_version")

    def __init__(self, moved: Callable[[], None]) -> None:
        self._moved = moved
        self._version, self._next = 0, 0.0

    def begin(self, db: apsw.Connection) -> None:
        self._version, self._next = db.pragma("data_version"), time.monotonic() + POLL_S

    def wait_s(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._next - time.monotonic())

    def look(self, db: apsw.Connection) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + POLL_S
        with contextlib.suppress(apsw.Error):
            version = db.pragma("data_version")
            if version != self._version:
                self._version = version
                self._moved()


class Writer:
    """Owns the writing connection. Everything but `submit`, `write_here`, `stop` and `kill` runs in its thread."""

    def __init__(self, connect: Callable[[], apsw.Connection], clock: Clock, worker: str, *,
                 deliver: Callable[[Sequence[Result], dict[str, News]], None],
                 committed: Callable[[dict[str, News]], float | None], moved: Callable[[], None],
                 died: Callable[[], None], faults: Faults | None, runway: Runway | None = None) -> None:  # fmt: skip
        self._connect, self._clock, self._worker, self._faults = connect, clock, worker, faults
        self._deliver, self._committed, self._died = deliver, committed, died
        self.log, self._poll, self._solo = Log(runway), Poll(moved), Solo()
        self._queue: queue.SimpleQueue[list[Operation] | None] = queue.SimpleQueue()
        self._connection = threading.Lock()  # held by the thread that uses the connection, or tells other processes
        self._writing: list[Operation] = []  # in the thread
        self._nudged = False  # the thread is about to look, though nothing is queued
        self.observe: Callable[[int, float], None] = lambda _operations, _seconds: None
        self._broken_here: apsw.Error | None = None  # what `write_here` met: the connection is not to be trusted
        self._stopping, self._killed = threading.Event(), False
        self.trouble: BaseException | None = None  # what keeps us from writing now
        self._poke_in: float | None = None  # seconds until other processes must hear of what is committed
        self.thread = threading.Thread(target=self._main, name="holdfast-writer", daemon=True)
        self._opened: Callable[[BaseException | None], None] = lambda _: None

    def start(self, opened: Callable[[BaseException | None], None]) -> None:
        """Begin; `opened` is called in the writer's thread when the file is open, or cannot be."""
        self._opened = opened
        self.thread.start()

    def submit(self, batch: list[Operation]) -> None:
        """Have this written, after all that was submitted before."""
        self._queue.put(batch)

    def write_here(self, batch: list[Operation]) -> tuple[list[Result], dict[str, News]] | None:
        """Commit a lone write now, in the calling thread; None if the writer's thread must do it.

        The caller sees to it that nothing is on its way through the thread, because this would overtake it.
        """
        if not self._solo.allows(batch) or self._stopping.is_set():
            return None
        if not self._connection.acquire(blocking=False):
            return None
        began = time.perf_counter()
        try:
            self._nap.patient = False
            written = self._transact(batch)
            self._poke_in = self._committed(written[1])
        except Crash:
            self._end_now()
            return None
        except apsw.Error as trouble:
            if isinstance(trouble, _BROKEN):
                self._broken_here = trouble
                self._solo.hold_off()
            return None  # the thread deals with it; `again` is set if the commit may have happened
        finally:
            self._nap.patient = True
            self._connection.release()
        self._solo.wrote_alone(began, written[1])
        if (self._poke_in is not None or self.log.is_long) and not self._nudged:
            self._nudged = True
            self._queue.put([])
        return written

    def stop(self) -> None:
        """Write what is queued, then end. Under trouble: end at the next try."""
        self._stopping.set()
        self._queue.put(None)

    def kill(self) -> None:
        """End without writing what is queued; a COMMIT on its way may finish. Returns when the thread is gone."""
        self._end_now()
        if threading.current_thread() is not self.thread and self.thread.ident is not None:
            self.thread.join(timeout=10)

    def _end_now(self) -> None:
        self._killed = True
        self.stop()

    def join(self) -> None:
        self.thread.join()

    # In the writer's thread

    def _main(self) -> None:
        try:
            self._use(self._connect())
            self._poll.begin(self._db)
        except BaseException as error:  # noqa: BLE001 - it is raised by `open`
            self._opened(error)
            return
        self._opened(None)
        pending: list[Operation] = []
        try:
            while not self._killed:
                pending = []
                ended = self._take(pending)
                with self._connection:
                    self._nudged = False
                    if pending:
                        self._writing = pending
                        self._write(pending)
                        pending = self._writing = []
                    elif self._poke_in is not None:
                        self._poke_in = self._committed({})
                    self._poll.look(self._db)
                    if not self._killed:
                        self.log.shorten(self._db)
                if ended:
                    break
        except Crash:
            self._killed = True
        except BaseException as error:  # noqa: BLE001 - nobody above; callers that wait must hear of it
            _log.exception("the writer of the store ended")
            self._killed = True
            self._refuse(pending, error)
            pending = []
        finally:
            self._end(pending)

    def _use(self, db: apsw.Connection) -> None:
        self._db, self._nap = db, Nap(self._is_wanted)
        db.set_busy_handler(self._nap)
        self.log.watch(db)

    def _is_wanted(self) -> bool:
        """Does a caller wait for what is being written? If not, it need not wait for a lock, nor closing for it."""
        return not self._killed and (not self._writing or not nobody_waits(self._writing))

    def _take(self, batch: list[Operation]) -> bool:
        """Wait for work, then take all there is, up to a bound; True when the end was asked for."""
        timeout = self._poll.wait_s()
        if self._poke_in is not None:
            timeout = min(timeout, self._poke_in)
        try:
            first = self._queue.get(timeout=timeout)
            while first is not None:
                batch += first
                if len(batch) >= _LARGEST_BATCH:
                    return False
                first = self._queue.get_nowait()
        except queue.Empty:
            return False
        return True

    def _write(self, batch: list[Operation]) -> None:
        """Commit the batch, however long that takes."""
        broken, self._broken_here = self._broken_here, None
        if broken is not None:
            self._note_trouble(broken)
            self._reopen(broken)
        while True:
            if self._killed:
                raise Crash
            try:
                results, changes = self._transact(batch)
            except _TROUBLE as trouble:
                self._note_trouble(trouble)
                self._stopping.wait(_RETRY_S)
                if nobody_waits(batch):
                    self._deliver(refusals(batch), {})
                    return
                if self._stopping.is_set():
                    self._refuse(batch, trouble)
                    return
                self._reopen(trouble)
            except _RUINED as ruin:
                _log.error("the store's file is damaged: %s", ruin)
                self._refuse(batch, ruin)
                return
            else:
                if self.trouble is not None:
                    self.trouble = None
                    _log.info("the store can be written again")
                self._solo.wrote()
                self._deliver(results, changes)
                self._poke_in = self._committed(changes)
                return

    def _transact(self, batch: list[Operation]) -> tuple[list[Result], dict[str, News]]:
        db, began = self._db, time.perf_counter()
        tx = Transaction(self._clock.now(), self._worker)
        db.execute("BEGIN IMMEDIATE")
        try:
            try:
                results = self._hopeful(tx, batch)
            except (*_TROUBLE, *_RUINED, Crash):
                raise
            except BaseException:  # noqa: BLE001 - whatever it is, the careful pass finds whose it is
                db.execute("ROLLBACK")
                tx = Transaction(self._clock.now(), self._worker)
                db.execute("BEGIN IMMEDIATE")
                results = self._careful(tx, batch)
            if tx.taken:
                do(self._db, tx.note_taken())
            self._commit(batch)
        except BaseException:
            if db.in_transaction:  # SQLite has rolled back by itself after some errors
                with contextlib.suppress(apsw.Error):
                    db.execute("ROLLBACK")
            put_back(batch)
            raise
        self.observe(len(batch), time.perf_counter() - began)
        return results, tx.changes

    def _hopeful(self, tx: Transaction, batch: list[Operation]) -> list[Result]:
        if len(batch) == 1 and type(batch[0]) is QueuedAppend and batch[0].plain:
            self._plainly(tx, batch[0])
            return [(batch[0], tx.now, None)]
        appends = [operation for operation in batch if type(operation) is QueuedAppend]
        results: list[Result] = [(operation, tx.now, None) for operation in appends]
        if appends:
            do(self._db, apply_all(tx, appends))
        if len(appends) != len(batch):
            for operation in batch:
                if isinstance(operation, Work):
                    tx.again = operation.again
                    if operation.take():
                        results.append((operation, do(self._db, operation.do(tx)), None))
                    else:
                        results.append((operation, None, operation.refusal()))
        return results

    def _plainly(self, tx: Transaction, queued: QueuedAppend) -> None:
        """Do what `apply_all` does, without its detours, for one append that only goes on, which is what a step is."""
        db, now = self._db, (tx.now,)
        db.execute(_RESERVE, queued.fence(tx.now))
        if db.changes() != 1:
            raise Refused
        db.executemany(_RECORD, [row + now for row in queued.rows])
        tx.changes[queued.append.run] = News.GREW

    def _careful(self, tx: Transaction, batch: list[Operation]) -> list[Result]:
        results: list[Result] = []
        all_changes = tx.changes
        for operation in sorted(batch, key=lambda operation: isinstance(operation, Work)):  # stable: appends first
            tx.changes, tx.again, taken = {}, operation.again, tx.taken.copy()
            self._db.execute("SAVEPOINT operation")
            try:
                if isinstance(operation, Work) and not operation.take():
                    raise operation.refusal()
                value = do(self._db, operation.do(tx) if isinstance(operation, Work) else apply_one(tx, operation))
            except (*_TROUBLE, *_RUINED, Crash):
                raise
            except (Exception, LeaseLost) as error:  # noqa: BLE001 - it is given to the caller
                self._db.execute("ROLLBACK TO operation")
                tx.taken = taken
                results.append((operation, None, error))
            else:
                for run, news in tx.changes.items():
                    all_changes[run] = max(all_changes.get(run, news), news)
                results.append((operation, value, None))
            self._db.execute("RELEASE operation")
        tx.changes = all_changes
        return results

    def _commit(self, batch: list[Operation]) -> None:
        faults = self._faults
        writes = names(batch) if faults is not None else []
        if faults is not None and writes:
            inject(faults.before_commit, writes)
        if self._killed:
            raise Crash
        self.log.make_room()
        try:
            self._db.execute("COMMIT")
            if faults is not None and writes:
                inject(faults.after_commit, writes)
        except apsw.Error as error:
            for operation in batch:
                operation.again = True
                if isinstance(operation, Work) and not isinstance(error, _UNDONE):
                    operation.unknown = True
            raise

    def _note_trouble(self, trouble: BaseException) -> None:
        if self.trouble is None:
            _log.warning("the store cannot be written, trying again every %d ms: %s", _RETRY_S * 1000, trouble)
        self.trouble = trouble

    def _reopen(self, trouble: BaseException) -> None:
        """Start again, after an I/O error, from what is in the file: flushed pages the kernel gave up on are written again."""
        if not isinstance(trouble, _BROKEN):
            return
        self.log.close()
        with contextlib.suppress(apsw.Error):
            self._db.close(force=True)
        try:
            self._use(self._connect())
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, StoreUnavailable) as error:
            _log.debug("the store could not be reopened: %s", error)

    def _refuse(self, batch: Iterable[Operation], reason: BaseException) -> None:
        self._deliver([(operation, None, StoreUnavailable(f"the store cannot be written: {reason}"))
                       for operation in batch], {})  # fmt: skip

    def refuse_rest(self, pending: Iterable[Operation] = ()) -> None:
        """Tell callers that still wait that nothing more is written. Any thread may call it once the writer ends."""
        left = list(pending)
        with contextlib.suppress(queue.Empty):
            while True:
                left += self._queue.get_nowait() or ()
        self._refuse(left, StoreUnavailable("it is closed"))

    def _end(self, pending: list[Operation]) -> None:
        if self._killed:
            self._died()
            with contextlib.suppress(apsw.Error):  # as a killed process: leave the log as it is
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.log.close()
        with contextlib.suppress(apsw.Error):
            self._db.close(force=True)
        self.refuse_rest(pending)
