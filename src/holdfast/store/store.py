"""What both stores do alike: queue what is written, tell those who wait, ask and answer in the words of the contract.

A store adds how its database is opened, how a batch is committed (`_flush`), how it reads (`_read`, and `_glance` for what
is small), and how an incarnation is known to be alive (`_hold_lock`, `recover`, `agents`).
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import functools
import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.runtime import outside as in_no_run
from holdfast.store import (
    approvals,
    audit,
    budgets,
    control,
    conversations,
    families,
    leases,
    limits,
    reads,
    runs,
    tokens,
)
from holdfast.store.appends import QueuedAppend
from holdfast.store.backup import Part, activate, identity
from holdfast.store.contract import (
    Ailment,
    Append,
    Census,
    Changes,
    Closed,
    ConversationRow,
    MessageRow,
    NewRun,
    News,
    Piece,
    QuestionAges,
    Taken,
    TokenRow,
    Told,
    Turn,
    in_milliseconds,
    settle,
    write_limit,
)
from holdfast.store.operations import Operation, Result, Work
from holdfast.store.transaction import Asking, Transaction, to_json
from holdfast.words.budget import Purse
from holdfast.words.clock import Clock
from holdfast.words.durations import spoken
from holdfast.words.harmless import logger
from holdfast.words.limits import span_us
from holdfast.words.model import ApprovalRow, Event, Published, RunRow, Signal
from holdfast.words.people import Ballot
from holdfast.words.spent import Spent

_log = logger("holdfast.store")
T = TypeVar("T")
P = ParamSpec("P")

_SAID_AT_A_GLANCE: Final = 50  # messages
_ERASED_AT_ONCE: Final = 500  # rows of the audit per transaction
_LOOK_S, _LOOKS = 0.05, 20  # for so long a write may still be told how it ended when its time is over
_PRUNED_AT_ONCE: Final = 50  # root runs per transaction: others can write in between


def forget(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this one; its failure was logged where it happened."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


class _Deadline:
    """Withdraws a write when its time is over, or when the one who asked for it is gone."""

    __slots__ = ("_future", "_limit_s", "_store", "_timer", "_work")

    def __init__(self, store: SharedStore, work: Work[Any], future: asyncio.Future[Any], limit_s: float) -> None:
        self._store, self._work, self._future, self._limit_s = store, work, future, limit_s
        self._call(limit_s, 0)
        future.add_done_callback(self._done)

    def _call(self, in_s: float, looks: int) -> None:
        self._timer = self._future.get_loop().call_later(in_s, self._over, looks, context=self._store.context)

    def _over(self, looks: int) -> None:
        ailment = self._store.ailment()
        late = f"within {spoken(self._limit_s)}" + ("" if ailment is None else f" ({ailment.reason})")
        if not self._work.withdraw(late) and not self._work.unknown and looks < _LOOKS:
            self._call(_LOOK_S, looks + 1)  # it is in a transaction in this moment, which ends one way or the other
        else:
            settle(self._future, None, self._work.refusal())

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        if future.cancelled():
            self._work.withdraw("in time")


class SharedStore(abc.ABC):
    """The part of a `Store` that no database changes."""

    def __init__(self, clock: Clock, name: str = "") -> None:
        self.clock, self.worker_id = clock, f"{name}-{secrets.token_hex(8)}".lstrip("-")
        self._listeners: list[Callable[[Changes], None]] = []
        self._served: set[str] = set()  # names of agents, and names with a version after a space
        self.code_version: str | None = None
        self.queues: Sequence[str] | None = None
        self.refuses: str | None = None
        self._held_after = ""  # the limit up to which held runs were looked at
        self._waiting: list[Operation] = []
        self._said_due = False  # a commit of ours made a run due, and no claim has looked since
        self._open = self._registered = False
        self.read_limit_s: Callable[[], float | None] = lambda: None

    @property
    def is_backup(self) -> bool:
        return False

    def _begin(self) -> None:
        self._loop, self.context = asyncio.get_running_loop(), in_no_run()

    @abc.abstractmethod
    async def _read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a piece of work that changes nothing."""

    async def _glance(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """The same for what is found by an index and small."""
        return await self._read(read, *arguments, **named)

    @abc.abstractmethod
    async def _hold_lock(self) -> None:
        """Hold the lock that tells others that this incarnation is alive."""

    @abc.abstractmethod
    def _flush(self) -> None:
        """Begin to write what waits; called on the loop a turn after the first of it came."""

    # Telling

    def on_change(self, listener: Callable[[Changes], None]) -> None:
        self._listeners.append(listener)

    def _deliver(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        """On the loop, after a commit: everyone who waits for it, then everyone who listens."""
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

    # Queueing

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is not open")

    def _check_writable(self) -> None:
        if self.refuses is not None:
            raise StoreUnavailable(self.refuses, lasting=True)

    def _submit(self, do: Callable[[Transaction], Asking[T]], *, journal: bool = True, small: bool = False,
                runs: Sequence[str] | None = None) -> asyncio.Future[T]:  # fmt: skip
        self._check_open()
        self._check_writable()
        future: asyncio.Future[T] = self._loop.create_future()
        work = Work(do, functools.partial(settle, future), journal, small, runs)
        limit_s = write_limit.get()
        if limit_s is not None:
            _Deadline(self, work, future, limit_s)
        self._queue(work)
        return future

    @abc.abstractmethod
    def ailment(self) -> Ailment | None:
        """What keeps this store from being written now."""

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        self._check_open()
        self._queue(QueuedAppend(append, told))

    def append(self, append: Append) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self.post(append, functools.partial(settle, future))
        return future

    def _queue(self, operation: Operation) -> None:
        """Collect what comes in one turn of the loop: it goes out together."""
        self._waiting.append(operation)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._flush, context=self.context)  # not in that of whoever writes first

    # Writing

    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> asyncio.Future[Taken] | None:
        return None  # there is no way to the database that could be spared

    async def claim(self, agents: Iterable[str], limit: int, ttl_ms: int, *, root: str | None = None,
                    queues: Sequence[str] | None = None, alone: bool = False, sure: bool = False,
                    early_ms: int = 0) -> list[RunRow]:  # fmt: skip
        named = None if queues is None else list(queues)
        claim = leases.Claim(list(agents), limit, ttl_ms, root, named, alone, early_ms)
        if limit < 1:
            return []
        # Look before writing, for an idle claim should cost no transaction; not when a commit of ours just said so.
        said_so, self._said_due = self._said_due, False
        if not (said_so or sure or await self._may_be_due(claim)):
            return []
        if not self._registered:
            await self.publish([])
        work = self._submit(claim, small=True, runs=())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._give_back)
            raise

    async def _may_be_due(self, claim: leases.Claim) -> bool:
        now, worker = self.clock.now(), self.worker_id
        when = {"now": now, "soon": now + claim.early_ms}
        return bool(await self._glance(reads.rows, "due", worker=worker, limit=1, **when, **claim.ours))

    def _give_back(self, work: asyncio.Future[list[RunRow]]) -> None:
        """Who claimed was cancelled: the runs would stay leased to a process that does not know of them."""
        claimed = [] if work.cancelled() or work.exception() is not None else work.result()
        if self._open and claimed:
            forget(self._submit(leases.release([(run.id, run.lease_epoch) for run in claimed])))

    async def refuse(self, run: RunRow, reason: str) -> None:
        living = await self._living()
        able = [each.id for each in living if each.may_take(run.agent, run.version, run.queue)]
        await self._submit(families.paused_or_ended(run.id, leases.refuse(run, self.worker_id, reason, able)))

    async def reconsider(self) -> None:
        refused = await self._read(reads.rows, "refused_due", now=self.clock.now())
        if not refused:
            return
        living = await self._living()
        nobody = [
            run
            for run, agent, version, queue, by in refused
            if not any(each.may_take(agent, version, queue) and each.id not in json.loads(by) for each in living)
        ]
        if nobody:
            await self._submit(leases.reconsider(nobody))

    async def _living(self) -> list[leases.Living]:
        """The workers that are alive."""
        raise NotImplementedError

    async def publish(self, agents: Iterable[tuple[str, str | None, str]]) -> None:
        self._check_writable()
        published = list(agents)
        self._served.update(name for name, _, _ in published)
        self._served.update(f"{name} {version}" for name, version, _ in published if version is not None)
        if not self._registered:
            await self._hold_lock()  # first: from the first lease on, whoever can take it takes us for dead
        work = runs.publish(published, sorted(self._served), self.queues, self.code_version)
        await self._submit(work, journal=False)
        self._registered = True

    async def let_in(
        self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None
    ) -> int:
        held = await self._glance(reads.rows, "held_keys", after=self._held_after, limit=limits.KEYS_AT_ONCE)
        self._held_after = held[-1][0] if len(held) == limits.KEYS_AT_ONCE else ""
        keys = [key for key, taken, slots in held if taken < slots]
        return await self._submit(limits.let_in(keys, leases.ours(agents, root, queues, False))) if keys else 0

    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0) -> Turn:
        return await self._submit(limits.take_turn(key, interval_us, tokens_us), small=True, runs=())

    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None:
        await self._submit(limits.use_late(key, began, every_ms), small=True, runs=())

    async def pause_rate(self, key: str, wait_ms: int) -> int:
        return await self._submit(limits.pause(key, wait_ms), small=True, runs=())

    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None:
        await self._submit(limits.charge(key, tokens, tokens_us, since), small=True, runs=())

    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed:
        place = 0 if turn is None else turn.place - span_us(every_ms)
        found = await self._glance(reads.rows, "rate", key=key, place=place)
        return limits.closed(found[0]) if found else Closed(0, 0, 0)

    async def paused_rates(self, limit: int = 100) -> list[tuple[str, int]]:
        found = await self._read(reads.rows, "paused_rates", micros=self.clock.now() * 1000, limit=limit)
        return [(key, in_milliseconds(until)) for key, until in found]

    async def take_slot(self, key: str, n: int, run: str, call: str, epoch: int) -> bool:
        return await self._submit(limits.take_slot(key, n, run, call, epoch), small=True, runs=())

    async def leave_slot(self, run: str, call: str, epoch: int) -> None:
        await self._submit(limits.leave_slot(run, call, epoch), small=True, runs=())

    async def create(
        self, run: NewRun, blobs: dict[str, bytes] | None = None, *, by: str = "", via: str = ""
    ) -> tuple[RunRow, bool]:
        return await self._submit(runs.Create(run, blobs or {}, by, via), small=not blobs, runs=())

    async def send(self, run: str, signal_id: str, kind: str, topic: str, value: str | None, data: dict[str, Any],
                   blobs: dict[str, bytes] | None = None, *, by: str = "", via: str = "") -> int:  # fmt: skip
        work = runs.Send(run, signal_id, kind, topic, value, data, blobs or {}, by, via)
        return await self._submit(work, small=not blobs, runs=[run])

    async def decide(self, approval: str, ballot: Ballot, blobs: dict[str, bytes] | None = None,
                     known: ApprovalRow | None = None) -> ApprovalRow:  # fmt: skip
        return await self._submit(approvals.Decide(approval, ballot, blobs or {}, known), small=not blobs)

    async def delegate(self, approval: str, to: str, ballot: Ballot) -> ApprovalRow:
        return await self._submit(approvals.delegate(approval, to, ballot), small=True)

    async def expire(self, approval: str) -> ApprovalRow:
        return await self._submit(approvals.expire(approval), small=True)

    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow:
        return await self._submit(approvals.require(approval, digest, needs, value), small=True)

    async def pause(
        self,
        run: str,
        *,
        by: str,
        via: str = "run",
        reason: str = "",
        request: str,
        family: bool = True,
        now: bool = False,
    ) -> str:
        ask = functools.partial(control.pause, run, by, reason, request, via, family, now)
        status = await self._submit(ask(whole=False), small=True, runs=[run])
        return status or (await self._submit(ask(whole=True), small=True)) or ""

    async def cancel(
        self, run: str, *, by: str, via: str = "run", reason: str = "", grace_ms: int, request: str, insist: bool = True
    ) -> str:
        ask = functools.partial(control.cancel, run, by, reason, grace_ms, request, insist, via)
        status = await self._submit(ask(whole=False), small=True, runs=[run])
        return status or (await self._submit(ask(whole=True), small=True)) or ""

    async def resume(
        self,
        run: str,
        *,
        by: str,
        via: str = "run",
        retry: bool = False,
        budget: str | None = None,
        family: bool = True,
    ) -> None:
        go_on = functools.partial(runs.resume, run, by, retry, budget, via, family)
        if not await self._submit(go_on(whole=False), runs=[run]):
            await self._submit(go_on(whole=True))

    async def delete(self, run: str, *, by: str = "", via: str = "") -> int:
        return await self._submit(runs.delete(run, by, via))

    async def prune(
        self, before: int, statuses: Iterable[str], limit: int = 1000, *, agent: str | None = None,
        labels: dict[str, str] | None = None, by: str = "", via: str = "",
    ) -> int:  # fmt: skip
        wanted, spared, pruned = list(statuses), set[str](), 0
        while pruned < limit:
            at_once, spared_before = min(_PRUNED_AT_ONCE, limit - pruned), len(spared)
            done = await self._submit(runs.prune(before, wanted, agent, labels, at_once, spared, by, via))
            pruned += done
            if done + len(spared) - spared_before < at_once:
                break
        return pruned

    async def would_prune(
        self, before: int, statuses: Iterable[str], *, agent: str | None = None, labels: dict[str, str] | None = None
    ) -> list[str]:
        found = await self._read(reads.would_prune, runs.prunable(before, statuses, agent, labels))
        return [run for (run,) in found]

    async def delete_conversation(self, conversation: str, *, by: str = "", via: str = "") -> int:
        return await self._submit(conversations.delete_conversation(conversation, by, via))

    async def add_token(self, token: TokenRow, lasts_ms: int | None = None, *, by: str = "", via: str = "") -> TokenRow:
        return await self._submit(tokens.add_token(token, lasts_ms, by, via), journal=False)

    async def use_token(self, id: str, every_ms: int) -> None:
        await self._submit(tokens.use_token(id, every_ms), small=True, runs=())

    async def revoke_tokens(self, which: str, *, by: str = "", via: str = "") -> list[TokenRow]:
        return await self._submit(tokens.revoke_tokens(which, by, via), journal=False)

    async def backup(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        part = Part(path, "the backup")
        noted = functools.partial(audit.note, run="", by=by, via=via, action="backup", data={"file": part.path.name})
        await self._submit(noted, journal=False)  # first: there is no copy without its row
        return await self._copy_out(part)

    @abc.abstractmethod
    async def _copy_out(self, part: Part) -> int:
        """Fill a backup with what this store has at one moment, and finish it."""

    async def activate(self, *, by: str, via: str) -> int:
        return await self._submit(activate(by, via), journal=False)

    async def held(self) -> bool:
        (itself,) = await self._glance(reads.rows, "identity")
        return identity(itself)["held_at"] is not None

    async def note_refusals(self, tries: Sequence[tuple[str, str, str, dict[str, Any]]]) -> None:
        await self._submit(audit.refusals(tries), journal=False)

    async def erase_audit(
        self, *, run: str | None = None, actor: str | None = None, before: int | None = None, by: str, via: str
    ) -> int:
        erased, which = 0, audit.Which(run, actor, before)
        place: int | None = 0
        while place is not None:
            some, place = await self._submit(audit.erase(which, place, _ERASED_AT_ONCE, by, via), journal=False)
            erased += some
        return erased

    # Reading

    async def run(self, run: str) -> RunRow | None:
        return await self._glance(reads.run, run)

    async def runs(self, *, statuses: Iterable[str] | None = None, agent: str | None = None,
                   labels: dict[str, str] | None = None, since: int | None = None, until: int | None = None,
                   search: str | None = None, parent: str | None = None, root: str | None = None,
                   limit: int = 100, after: str | None = None) -> list[RunRow]:  # fmt: skip
        fits = reads.Fits(statuses, agent, labels, since, until, search)
        return await self._read(reads.runs, fits, parent, root, limit, after)

    async def count_runs(self, *, statuses: Iterable[str] | None = None, agent: str | None = None,
                         labels: dict[str, str] | None = None, since: int | None = None, until: int | None = None,
                         search: str | None = None) -> dict[str, dict[str, int]]:  # fmt: skip
        return await self._read(reads.count_runs, reads.Fits(statuses, agent, labels, since, until, search))

    async def open_below(self, run: str) -> list[str]:
        return [member for (member,) in await self._read(reads.rows, "open_below", run=run)]

    async def journal(
        self, run: str, from_seq: int = 0, limit: int | None = None, dropped: bool = False
    ) -> list[Event]:
        return await self._read(reads.journal, run, from_seq, limit, dropped)

    async def progress(self, runs: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
        said: dict[str, dict[str, dict[str, Any]]] = {}
        for run, kind, data, _ in await self._glance(reads.rows, "progress", ids=to_json(list(runs))):
            said.setdefault(run, {})["plan" if kind == "plan" else "progress"] = json.loads(data)
        return said

    async def feed(self, after: int, kinds: Iterable[str] | None, limit: int = 500) -> list[Event]:
        return await self._read(reads.feed, after, kinds, limit)

    async def feed_reach(self) -> tuple[int, int]:
        ((sure, all_now),) = await self._read(reads.rows, "feed_reach")
        return sure, all_now

    async def inbox(self, run: str, after: int, limit: int = 1000) -> list[Signal]:
        return await self._read(reads.inbox, run, after, limit)

    async def blob(self, digest: str) -> bytes:
        return await self._read(reads.blob, digest)

    async def pieces(self, run: str, stream: str, after: int, limit: int = 500) -> list[Piece]:
        return await self._read(reads.pieces, run, stream, after, limit)

    async def streams(self, run: str) -> list[Piece]:
        return await self._glance(reads.streams, run)

    async def stream_sizes(self, run: str) -> dict[str, int]:
        return {stream: int(size) for stream, size in await self._read(reads.rows, "stream_sizes", run=run)}

    async def approvals(self, *, run: str | None = None, approval: str | None = None,
                        statuses: Iterable[str] = ("open",), limit: int = 100) -> list[ApprovalRow]:  # fmt: skip
        return await self._read(reads.approvals, run, approval, statuses, limit)

    async def spent(self, runs: Iterable[str]) -> dict[str, Spent]:
        found = await self._glance(reads.rows, "spent", ids=to_json(list(runs)))
        return {run: Spent.from_row(sums) for run, *sums in found}

    async def spent_with_steps(self, runs: Iterable[str]) -> dict[str, Spent]:
        ids = list(runs)
        spent = await self.spent(ids)
        for run, steps in await self._read(reads.rows, "steps_below", ids=to_json(ids)) if ids else ():
            if steps:
                spent[run] = dataclasses.replace(spent.get(run, Spent()), steps=steps)
        return spent

    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]:
        found = await self._read(reads.rows, "spent_by", run=run, limit=limit)
        return [(what, Spent.from_row(sums)) for what, *sums in found]

    async def purses(self, run: str) -> list[Purse]:
        return await self._glance(budgets.purses, run)

    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]:
        read = self._glance if end - first <= _SAID_AT_A_GLANCE else self._read
        found = await read(reads.rows, "said", conversation=conversation, first=first, end=end)
        return [MessageRow(*row) for row in found]

    async def conversations(
        self, *, conversation: str | None = None, after: str = "", limit: int = 100
    ) -> list[ConversationRow]:
        if conversation is None:
            found = await self._read(reads.rows, "conversations", after=after, limit=limit)
        else:
            found = await self._glance(reads.rows, "conversation", conversation=conversation)
        return [ConversationRow(*row) for row in found]

    async def token(self, id: str) -> TokenRow | None:
        found = await self._glance(reads.rows, "token", token=id)
        return TokenRow(*found[0]) if found else None

    async def tokens(self, limit: int = 1000) -> list[TokenRow]:
        return [TokenRow(*row) for row in await self._read(reads.rows, "tokens", limit=limit)]

    async def next_due(self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None,
                       alone: bool = True) -> int | None:  # fmt: skip
        ours = leases.ours(agents, root, queues, alone)
        found = await self._glance(reads.rows, "next_due", worker=self.worker_id, **ours)
        due_at: int | None = found[0][0]
        return due_at

    async def _published(self, served: set[str]) -> Published:
        """What was published, and which versions of it are among those that live workers serve."""
        found = await self._read(reads.rows, "agents")
        versions: dict[str, set[str]] = {}
        for each in served:
            name, _, version = each.partition(" ")
            versions.setdefault(name, set()).add(version)
        return {name: (version, schema, frozenset(versions.get(name, ()))) for name, version, schema in found}

    async def queues_taken(self) -> frozenset[str] | None:
        return await self._read(reads.queues)

    async def question_ages(self, now: int | None = None) -> QuestionAges:
        at = self.clock.now() if now is None else now
        ((oldest, *counts),) = await self._read(reads.rows, "question_ages", now=at)
        return QuestionAges(tuple(count or 0 for count in counts), max(at - oldest, 0) if oldest is not None else 0)

    async def census(self, late_ms: int) -> list[Census]:
        now = self.clock.now()
        return [Census(*row) for row in await self._read(reads.rows, "census", now=now, late=now - late_ms)]

    async def stuck(self, late_ms: int, limit: int = 100) -> list[RunRow]:
        now = self.clock.now()
        return [RunRow(*row) for row in await self._read(reads.rows, "stuck", now=now, late=now - late_ms, limit=limit)]

    async def audit(
        self, run: str | None = None, limit: int = 100, *, by: str | None = None, actions: Iterable[str] | None = None,
        before: int | None = None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        return await self._read(audit.rows, run, by, actions, before, limit)
