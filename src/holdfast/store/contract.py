"""The contract between the engine and what keeps its runs. Private and free to change: it serves us, not outsiders.

Rules every store keeps (the suite in tests/store proves them):

1. An acknowledged write survives; a write that was not acknowledged may or may not be there.
2. Only the owner of a run writes its journal. Each claim adds one to `lease_epoch`; `append` changes nothing unless the
   run is running under the epoch and at the `next_seq` that the owner names. No match: `LeaseLost`. An append whose
   commit was unknown and in fact happened is recognised by its own rows, and acknowledged.
3. A key has at most one closing event that is not dropped.
4. `due_at` says when a worker should look at a run: new = now, timer = its time, waiting for a message = null, running =
   the end of its lease, finished = null. Claim, wake-up and recovery are one query on it.
5. Senders never write the journal: a signal is an inbox row and `inbox_count + 1`. A run is parked only if it has seen
   every signal, so no wake-up is lost.
6. All writes that wait in a process go out in one transaction; one that fails (fence, duplicate) fails alone.
7. Every method is idempotent or fenced, so it may be repeated after an unknown outcome.
The order of locks and the crash points are at the head of queries.sql.

`store.Store` is the contract and the work it submits: each of its features is one file, with the words of its requests and
rows, its methods, and what these do in the database. The classes here name the part of it that the engine and a worker call
and no more, so that something smaller than a database can stand in its place. What a method promises is said at the method
of `Store` with its name, in the file named above it here. A client may call all of `Store`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.store.appends import Append, Told
from holdfast.store.approvals import QuestionAges
from holdfast.store.changes import Changes
from holdfast.store.conversations import MessageRow
from holdfast.store.files import FoundFile
from holdfast.store.forks import Done
from holdfast.store.inbox import Taken
from holdfast.store.leases import Lease
from holdfast.store.limits import Closed, Turn
from holdfast.store.runs import Census
from holdfast.store.schedules import Begun, Declared
from holdfast.store.streams import Piece
from holdfast.store.transactions import Joint
from holdfast.store.triggers import DeclaredTrigger, DeliveryRow, NewDelivery, Tally
from holdfast.words.budget import Purse
from holdfast.words.calls import KeptAs
from holdfast.words.clock import Clock
from holdfast.words.model import ApprovalRow, Event, RunRow, Signal
from holdfast.words.spent import Spent

# How long a caller that writes waits, in seconds: a client and a server for so long, a worker (None) until it is done.
write_limit: Final[ContextVar[float | None]] = ContextVar("write_limit", default=None)

# Does this caller read again after news? Many do at once; one that asks for the first time need not wait for all of them.
looks_again: Final[ContextVar[bool]] = ContextVar("looks_again", default=False)


@dataclass(frozen=True, slots=True)
class Ailment:
    """Trouble that keeps a store from being written. `lasting`: it does not pass by itself, only a new process helps."""

    reason: str
    lasting: bool


class OwnStore(Protocol):
    """The store as the owner of one run needs it: its journal, its inbox, its streams, its transactions."""

    # store: the owner's writes
    def post(self, append: Append, told: Told, *, alone: bool = False) -> None: ...
    def append(self, append: Append) -> asyncio.Future[int]: ...

    # runs, journal, blobs
    async def run(self, run: str) -> RunRow | None: ...
    async def journal(self, run: str, from_seq: int = 0) -> list[Event]: ...
    async def blob(self, digest: str) -> bytes: ...

    # forks
    async def former(self, run: str) -> list[Done]: ...

    # inbox
    async def inbox(self, run: str, after: int) -> list[Signal]: ...
    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> asyncio.Future[Taken] | None: ...

    # streams
    async def streams(self, run: str) -> list[Piece]: ...
    async def pieces(self, run: str, stream: str, after: int) -> Sequence[Piece]: ...

    # transactions
    def transaction(self, isolation: str) -> AbstractAsyncContextManager[Joint]: ...
    def shuts_out(self, isolation: str) -> bool: ...


class CommonStore(Protocol):
    """The store as runs share it: what another run, a client or the clock may change meanwhile."""

    # limits
    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0, every_ms: int = 0) -> Turn: ...
    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None: ...
    async def pause_rate(self, key: str, wait_ms: int) -> int: ...
    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None: ...
    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed: ...
    async def take_slot(self, key: str, n: int, run: str, call: str, epoch: int) -> bool: ...
    async def leave_slot(self, run: str, call: str, epoch: int) -> None: ...

    # budgets
    async def purses(self, run: str) -> list[Purse]: ...
    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]: ...

    # approvals
    async def approval(self, approval: str) -> ApprovalRow: ...
    async def expire(self, approval: str) -> ApprovalRow: ...
    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow: ...

    # conversations
    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]: ...

    # runs, control: of children
    async def open_below(self, run: str) -> list[str]: ...
    async def cancel(
        self, run: str, *, by: str, reason: str = "", grace_ms: int, request: str, insist: bool = True
    ) -> str: ...


class EngineStore(OwnStore, CommonStore, Protocol):
    """The store as the engine needs it, and nothing more."""


class WorkerStore(EngineStore, Protocol):
    """The store as a worker needs it: for its engine, to take runs and give them back, and to tell how the store fares."""

    clock: Clock
    url: str
    inputs: KeptAs | None
    code_version: str | None
    queues: Sequence[str] | None

    # leases
    async def claim(
        self,
        agents: Iterable[str],
        limit: int,
        ttl_ms: int,
        *,
        root: str | None = None,
        queues: Sequence[str] | None = None,
        alone: bool = False,
        sure: bool = False,
        early_ms: int = 0,
    ) -> list[RunRow]: ...
    async def next_due(
        self,
        agents: Iterable[str],
        *,
        root: str | None = None,
        queues: Sequence[str] | None = None,
        alone: bool = True,
    ) -> int | None: ...
    async def let_in(
        self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None
    ) -> int: ...
    def heartbeat(self, ttl_ms: int) -> list[Lease]: ...

    # workers
    async def publish(self, agents: Iterable[tuple[str, str | None, str]]) -> None: ...
    async def recover(self) -> int: ...
    async def refuse(self, run: RunRow, reason: str) -> None: ...
    async def reconsider(self) -> None: ...

    # schedules
    async def declare_schedules(self, declared: Sequence[Declared]) -> None: ...
    async def begin_due(self) -> Begun: ...
    async def next_schedule(self) -> int | None: ...

    # triggers
    async def declare_triggers(self, declared: Sequence[DeclaredTrigger]) -> None: ...
    async def receive(self, new: NewDelivery) -> bool: ...
    async def note_taken(self, name: str, count: int, lag: int | None) -> None: ...
    async def next_delivery(self, triggers: Iterable[str]) -> int | None: ...
    async def claim_deliveries(
        self, triggers: Sequence[str], limit: int, ttl_ms: int
    ) -> list[tuple[DeliveryRow, bytes]]: ...
    async def fail_delivery(self, taken: DeliveryRow, error: str, wait_ms: int | None) -> None: ...
    async def prune_deliveries(self, before: int) -> int: ...
    async def tally_deliveries(self, statuses: Iterable[str] = ...) -> list[Tally]: ...

    # files
    async def files(self, trigger: str) -> list[FoundFile]: ...
    async def find_file(self, file: FoundFile, new: NewDelivery) -> bool: ...
    async def see_files(self, trigger: str, paths: Sequence[str]) -> None: ...
    async def prune_files(self, trigger: str, before: int) -> None: ...

    # store, backup: changes and health
    def on_change(self, listener: Callable[[Changes], None]) -> None: ...
    def observe(self, commit: Callable[[int, float], None]) -> None: ...
    def ailment(self) -> Ailment | None: ...
    async def held(self) -> bool: ...

    # runs, approvals, audit: counts and retention
    async def census(self, late_ms: int) -> list[Census]: ...
    async def question_ages(self) -> QuestionAges: ...
    async def erase_audit(self, *, before: int | None = None, by: str, via: str) -> int: ...
