"""The writer: one connection, and a task that takes all that waits and commits it as one transaction.

While a commit is on its way the next batch collects. Appends that only go on, which is what steps are, take one statement
and one round trip for the whole batch (`append`): it fences every run, and a run that is lost is left out while the others
are written. Anything else is a transaction that first locks the runs it knows of, in the order of their ids. If a piece of
work raises in it, all is rolled back, the rest is written without it, and then it by itself: only the guilty one fails.

Trouble (a server that is gone, a connection that is cut, a deadlock) is no caller's fault: nothing is acknowledged, and the
batch is offered again after a short random time, until it works or the store is closed. When the commit itself failed, it
is not known whether it happened; each piece of work is told so (`again`) and recognises its own rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from asyncpg import exceptions as pg

from holdfast.errors import BadArguments, LeaseLost, StoreUnavailable
from holdfast.store.appends import QueuedAppend, Refused, apply_all, apply_one, merge
from holdfast.store.changes import News
from holdfast.store.conversations import Leave
from holdfast.store.inbox import Send
from holdfast.store.operations import Crash, Faults, Operation, Result, Work, names, nobody_waits, put_back, refusals
from holdfast.store.postgres import connection
from holdfast.store.postgres.connection import FENCED, GAVE_WAY, TROUBLE, Connection, goodbye
from holdfast.store.postgres.dialect import STATEMENTS
from holdfast.store.postgres.execute import Answers
from holdfast.store.postgres.single_statement import IN_COMPANY, PLAIN, send_many
from holdfast.store.runs import Create
from holdfast.store.work import Conflict, Transaction
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger
from holdfast.words.model import FINISHED

_log = logger("holdfast.store")

_LARGEST_BATCH: Final = 2_000
_RETRY_S: Final = 0.25
_LOOK_S: Final = 0.05  # while it stops: does a caller still wait?
_LOOKS: Final = 5  # how often work may find that others were quicker
_APPEND, _APPEND_TEXT = STATEMENTS["append"].text, STATEMENTS["append_text"].text
_LOCK: Final = STATEMENTS["lock_runs"].text
Written = tuple[list[Result], dict[str, News]]


class Apart(Exception):
    """Operations that keep a batch from being written: the rest goes first, and each of them by itself."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__()
        self.operations = operations


class Injected(OSError):
    """A test's hook raised: to us that is what a failing server is."""


def _is_plain_send(work: Work[Any]) -> bool:
    """Is it a small signal that was surely not sent before?"""
    return type(work.do) is Send and not (work.do.blobs or work.again)


def _for_people(error: BaseException) -> BaseException:
    """Say what to do where a database refuses a run because it is one of several cells, and not the one that has the run's slot."""
    if getattr(error, "sqlstate", None) != FENCED:
        return error
    refused = BadArguments(
        f"{error.args[0]}: the database is one of several cells, and the run belongs to another. Open the store as cells:FILE, "
        "or, to move a run there, by the URL that `holdfast cells slot ID --db cells:FILE` says"
    )
    refused.__cause__ = error
    return refused


class Writer:
    """Owns the writing connection. All of it runs on the loop of the store."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], clock: Clock, worker: str, *,
                 deliver: Callable[[Sequence[Result], dict[str, News]], None],
                 died: Callable[[], None], faults: Faults | None) -> None:  # fmt: skip
        self._connect, self._clock, self._worker, self._faults = connect, clock, worker, faults
        self._deliver, self._died = deliver, died
        self._queue: list[Operation] = []
        self._on_its_way: dict[int, Operation] = {}  # taken from the queue and not told yet
        self._more, self._stopping = asyncio.Event(), asyncio.Event()
        self._db: Connection | None = None
        self.observe: Callable[[int, float], None] = lambda _operations, _seconds: None
        self.trouble: BaseException | None = None  # what keeps us from writing now
        self.ended = False

    def open(self, db: Connection | None) -> None:
        """Begin, with this connection; when there is none, or it is lost, one is made."""
        self._db = db
        self._task = asyncio.get_running_loop().create_task(self._main())

    def submit(self, batch: Sequence[Operation]) -> None:
        """Have this written, after all that was submitted before."""
        self._queue += batch
        self._more.set()

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._on_its_way)

    async def stop(self) -> None:
        """Write what is queued, then end. Under trouble: end at the next try."""
        self._stopping.set()
        self._more.set()
        asyncio.get_running_loop().call_later(_LOOK_S, self._let_go)
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await goodbye(self._db)

    def _let_go(self) -> None:
        """End a writer that stops once all that it still has was withdrawn, because the server does not answer."""
        left = [*self._on_its_way.values(), *self._queue]
        if left and nobody_waits(left):
            self._task.cancel()
        elif not self._task.done():
            asyncio.get_running_loop().call_later(_LOOK_S, self._let_go)

    def kill(self) -> None:
        """End without writing what is queued; a commit on its way may happen or not."""
        self._stopping.set()
        self._task.cancel()
        if self._db is not None:
            self._db.terminate()
        self._refuse_all("it is closed")

    # The task

    async def _main(self) -> None:
        try:
            while True:
                if not self._queue:
                    if self._stopping.is_set():
                        return
                    self._more.clear()
                    await self._more.wait()
                    continue
                batch, self._queue = self._queue[:_LARGEST_BATCH], self._queue[_LARGEST_BATCH:]
                self._on_its_way = {id(one): one for one in batch}
                # Work that locks rows which are not known before has a transaction to itself.
                together = [one for one in batch if one.runs is not None]
                if together:
                    await self._write(together)
                for one in batch:
                    if one.runs is None:
                        await self._write([one])
        except (Crash, asyncio.CancelledError) as end:
            self.ended = True
            if self._db is not None:
                self._db.terminate()
            self._died()
            self._refuse_all("it is closed")
            if isinstance(end, asyncio.CancelledError):
                raise
        except BaseException as error:  # noqa: BLE001 - nobody above; callers that wait must hear of it
            _log.exception("the writer of the store ended")
            self.trouble, self.ended = error, True
            self._died()
            self._refuse_all(str(error))

    async def _write(self, batch: list[Operation]) -> None:
        """Commit the batch, however long that takes."""
        looks = tries = 0
        while True:
            try:
                async with asyncio.timeout(connection.ANSWER_S):
                    results, changes = await self._transact(batch)
            except TROUBLE as trouble:
                if not isinstance(trouble, GAVE_WAY):
                    tries += 1
                    await self._fail(trouble, min(_RETRY_S, 0.01 * 2 ** min(tries, 10)))
                    if nobody_waits(batch):
                        self._tell(refusals(batch), {})
                        return
                    if self._stopping.is_set():
                        self._refuse(batch, str(trouble))
                        return
                else:
                    await asyncio.sleep(random.uniform(0.001, 0.02))
            except Apart as apart:
                guilty = {id(one) for one in apart.operations}
                rest = [one for one in batch if id(one) not in guilty]
                if rest:
                    await self._write(rest)
                for one in apart.operations:
                    await self._write([one])
                return
            except (Exception, LeaseLost) as error:  # noqa: BLE001 - it is given to the caller
                looks += 1
                if len(batch) > 1:
                    for one in batch:
                        await self._write([one])
                elif not (isinstance(error, Conflict) and looks < _LOOKS):
                    self._tell([(batch[0], None, _for_people(error))], {})
                else:
                    continue  # another process was quicker: look again
                return
            else:
                if self.trouble is not None:
                    self.trouble = None
                    _log.info("the store can be written again")
                told = {id(operation) for operation, _, _ in results}
                self._tell(results, changes)
                for one in batch:
                    if id(one) not in told:
                        await self._write([one])  # the batch left it out: find out why
                return

    async def _transact(self, batch: list[Operation]) -> Written:
        began = time.perf_counter()
        if self._db is None or self._db.is_closed():
            self._db = await self._connect()
        tx = Transaction(self._clock.now(), self._worker)
        appends = [one for one in batch if type(one) is QueuedAppend]
        plain = len(appends) == len(batch) and not any(
            one.again or one.stored_with or one.append.transition is not None for one in appends
        )
        results = await (self._append(tx, appends) if plain else self._alone(tx, batch))
        if results is None:
            results = await self._transaction(tx, appends, batch)
        self.observe(len(batch), time.perf_counter() - began)
        return results, tx.changes

    async def _append(self, tx: Transaction, appends: list[QueuedAppend]) -> list[Result]:
        """Write appends by one statement that is its own transaction; those it refuses have no result."""
        fences, _ = merge(tx.now, appends)
        next_seq, _now, steps, progress, checkpoint, seen, runs, epochs, expected = zip(*fences, strict=True)
        rows = [row for queued in appends for row in queued.rows]
        columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * 8
        chunks = [row for queued in appends for row in queued.chunks]
        statement = _APPEND_TEXT if chunks else _APPEND
        columns += zip(*chunks, strict=True)
        assert self._db is not None
        await self.hook("before_commit", appends)
        try:
            reserved = await self._db.fetch(statement, runs, tx.now, epochs, expected, next_seq, steps, progress,
                                            checkpoint, seen, *columns)  # fmt: skip
            await self.hook("after_commit", appends)
        except GAVE_WAY:
            raise
        except BaseException as error:
            for one in appends:
                one.again = True  # so that each is judged, in a transaction of its own
            if isinstance(error, pg.IntegrityConstraintViolationError):
                raise Conflict(str(error)) from error
            raise
        accepted = {row[0] for row in reserved}
        for run in accepted:
            tx.changed(run)
        results: list[Result] = []
        for one in appends:
            if one.append.run in accepted:
                results.append((one, tx.now, None))
            else:
                one.again = True
        return results

    async def _alone(self, tx: Transaction, batch: list[Operation]) -> list[Result] | None:
        """Do what one statement can do; None if it takes a transaction."""
        one = batch[0]
        quick = PLAIN.get(type(one.do)) if len(batch) == 1 and type(one) is Work and not one.again else None
        if quick is None or type(one) is not Work or (type(one.do) is Create and one.do.counted):
            return None  # what is counted takes two statements
        await self.hook("before_commit", batch)
        if not one.take():
            return [(one, None, one.refusal())]
        try:
            done = await Answers(self._db).do(quick(tx, one.do))
            await self.hook("after_commit", batch)
        except (*GAVE_WAY, Conflict):
            one.put_back()
            return None
        except BaseException:
            one.again = one.unknown = True
            raise
        if done is None:
            one.put_back()
            return None
        return [(one, done, None)]

    async def _transaction(self, tx: Transaction, appends: list[QueuedAppend], batch: list[Operation]) -> list[Result]:
        assert self._db is not None
        db, answers = self._db, Answers(self._db)
        await db.execute("BEGIN")
        try:
            await self._lock(batch)
            results: list[Result] = []
            if len(batch) == 1 and appends:
                results.append((appends[0], await answers.do(apply_one(tx, appends[0])), None))
            elif appends:
                try:
                    await answers.do(apply_all(tx, appends))
                except Refused as refused:
                    known = [one for one in appends if one.append.run in refused.runs]
                    raise Apart(known or batch) from None
                results += [(one, tx.now, None) for one in appends]
            alone = len(batch) == 1
            for plain, some in itertools.groupby((one for one in batch if isinstance(one, Work)), _is_plain_send):
                works = list(some)
                placed = await self._send(answers, tx, works) if plain and len(works) > 1 else {}
                for one in works:
                    if id(one) in placed:
                        results.append((one, placed[id(one)], None))
                    elif one.take():
                        results.append((one, await self._work(answers, tx, one, alone=alone), None))
                    else:
                        results.append((one, None, one.refusal()))
            if tx.taken:
                await answers.do(tx.note_taken())
            await self._commit(db, batch)
        except BaseException:
            if not db.is_closed():
                with contextlib.suppress(*TROUBLE):
                    await db.execute("ROLLBACK")
            put_back(batch)
            raise
        return results

    async def _send(self, answers: Answers, tx: Transaction, works: list[Work[Any]]) -> dict[int, int]:
        """Put signals into inboxes by one statement; returns the places of the new signals, by the ids of their works."""
        sending = [one for one in works if one.take()]
        try:
            places = await answers.do(send_many(tx, [one.do for one in sending if isinstance(one.do, Send)]))
        except (*TROUBLE, Crash):
            raise
        except Exception:  # noqa: BLE001 - one of them is guilty, and hears of it when it is by itself
            raise Apart(sending) from None
        return {id(one): place for one, place in zip(sending, places, strict=True) if place is not None}

    async def _work(self, answers: Answers, tx: Transaction, work: Work[Any], *, alone: bool) -> Any:
        tx.again = work.again
        quick = IN_COMPANY.get(type(work.do)) if not work.again else None
        try:
            done = None if quick is None else await answers.do(quick(tx, work.do))
            return await answers.do(work.do(tx)) if done is None else done
        except (*TROUBLE, Crash):
            raise
        except (Exception, LeaseLost):
            if alone:
                raise
            raise Apart([work]) from None

    async def _lock(self, batch: list[Operation]) -> None:
        """Lock the runs of this batch in one order for all; a lone one is locked by its first statement."""
        runs: set[str] = set()
        leaving: set[str] = set()
        looks = False
        for one in batch:
            if type(one) is QueuedAppend:
                runs.update((one.append.run, *(one.runs or ())))
                transition = one.append.transition
                leaves = any(isinstance(talking, Leave) for talking in one.append.talks)
                if leaves or one.runs is None or (transition is not None and transition.status in FINISHED):
                    leaving.add(one.append.run)
            elif one.runs:
                runs.update(one.runs)
                looks = True  # at the row, before it changes it
        if len(runs) > 1 or leaving or looks:
            assert self._db is not None
            await self._db.fetch(_LOCK, sorted(runs), sorted(leaving))

    async def _commit(self, db: Connection, batch: list[Operation]) -> None:
        await self.hook("before_commit", batch)
        try:
            await db.execute("COMMIT")
            await self.hook("after_commit", batch)
        except GAVE_WAY:
            raise
        except BaseException:
            for one in batch:
                one.again = True
                if isinstance(one, Work):
                    one.unknown = True
            raise

    async def hook(self, name: str, batch: Sequence[Operation]) -> None:
        """Call a test's hook in a thread, as it may wait there. `Crash` kills the writer."""
        if self._faults is None or not (writes := names(batch)):
            return
        try:
            await asyncio.to_thread(getattr(self._faults, name), writes)
        except Exception as error:
            raise Injected(f"injected: {error!r}") from error

    async def _fail(self, trouble: BaseException, wait_s: float) -> None:
        """Note the trouble once, let go of the connection, and wait a little."""
        if self.trouble is None:
            _log.warning("the store cannot be written, trying again about every %d ms: %s", _RETRY_S * 1000,
                         str(trouble) or repr(trouble))  # fmt: skip
        self.trouble = trouble
        if self._db is not None and not isinstance(trouble, Injected):
            self._db.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), random.uniform(0.5, 1.0) * wait_s)

    def _refuse(self, batch: Iterable[Operation], reason: str) -> None:
        self._tell([(one, None, StoreUnavailable(f"the store cannot be written: {reason}")) for one in batch], {})

    def _refuse_all(self, reason: str) -> None:
        left, self._queue = [*self._on_its_way.values(), *self._queue], []
        self._refuse(left, reason)

    def _tell(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        for operation, _, _ in results:
            self._on_its_way.pop(id(operation), None)
        self._deliver(results, changes)
