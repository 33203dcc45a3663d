"""The contract between the engine and a database. Private and free to change: it serves us, not outsiders.

Rules every store keeps (the suite in tests/store proves them):

1. An acknowledged write survives; a write that was not acknowledged may or may not be there.
2. Only the owner of a run writes its journal. Each claim adds one to `lease_epoch`; `append` changes nothing unless the
   run is running under the epoch and at the `next_seq` that the owner names. No match: `LeaseLost`. An append whose
   commit was unknown and in fact happened is recognised by its own rows, and acknowledged.
3. A key has at most one closing event that is not dropped.
4. `due_at` says when someone should look at a run: new = now, timer = its time, waiting for a message = null, running =
   the end of its lease, finished = null. Claim, wake-up and recovery are one query on it.
5. Senders never write the journal: a signal is an inbox row and `inbox_count + 1`. A run is parked only if it has seen
   every signal, so no wake-up is lost.
6. All writes that wait in a process go out in one transaction; one that fails (fence, duplicate) fails alone.
Lock order: the run's row first, then its events, signals and approvals; of two runs the child before the parent.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from holdfast.values.codec import BLOB_BYTES
from holdfast.words.budget import Purse
from holdfast.words.clock import Clock
from holdfast.words.limits import Lane
from holdfast.words.model import ApprovalRow, Event, Published, RunRow, Signal
from holdfast.words.people import Ballot
from holdfast.words.salvage import Reason
from holdfast.words.spent import Spent

# The part of the contract with a database that has to do with arrivals: an owner takes what came to its run.


class Taken(NamedTuple):
    """What is in the journal now, and whether the owner must look for more itself: of another kind, large, or many."""

    events: list[Event]
    more: bool


class ArrivalStore(Protocol):
    """Where arrivals lie, and from where they may go into the journal by themselves."""

    async def inbox(self, run: str, after: int, limit: int = 1000) -> list[Signal]:
        """What came to a run after a position, in the order in which it came."""
        ...

    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> asyncio.Future[Taken] | None:
        """Begin to take what came after `seen`, at this place of the journal; None where to read and append is as quick.

        Until it is known what was taken, the owner must not append. If its fence does not hold, nothing is taken.
        """
        ...


# The part of the contract with a database that has to do with rates: whose turn it is, for all workers together.


def in_milliseconds(micros: int) -> int:
    """Rounded up: nothing begins early."""
    return -(-micros // 1000)


class Turn(NamedTuple):
    """When one may begin. It is late because of a pause, or because of those that come before.

    Its place is in microseconds, and never changes. Places are an interval apart.
    """

    place: int
    paused: bool = False

    @property
    def at(self) -> int:
        return in_milliseconds(self.place)


class Closed(NamedTuple):
    """Until when a rate is paused, and until when it has to pay for tokens that were used.

    `late` is when those began, in microseconds, that had their turn a window before ours and used it late: ours comes a
    window after that. 0: there is none.
    """

    paused: int
    owed: int
    late: int


class RateStore(Protocol):
    """Where turns are reserved. Keys are those of `flow.Lane`; times are the store's, in milliseconds."""

    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0) -> Turn:
        """Reserve the next turn of a rate, which may be now. The one after it comes `interval_us` later.

        With `tokens_us`, the time that a thousand tokens take, it comes later still if turns use many of them.
        """
        ...

    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None:
        """Write down when late turns were used, by the beginning of their stretch (`flow.stretch_us`)."""
        ...

    async def pause_rate(self, key: str, wait_ms: int) -> int:
        """From now on and for so long nobody gets a turn that is earlier; returns until when. Pauses do not add up."""
        ...

    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None:
        """A body that had its turn at `since` has used tokens; turns that are taken from now on are later for it."""
        ...

    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed:
        """Whether a turn that was reserved earlier can still be used."""
        ...

    async def paused_rates(self, limit: int = 100) -> list[tuple[str, int]]:
        """The rates that are paused now, and until when; the longest first."""
        ...


# The part of the contract with a database that has to do with people: what is asked, and how it ends.


@dataclass(slots=True)
class NewApproval:
    """A question to be stored together with the event that asks it."""

    id: str
    key: str
    kind: str
    question: str
    shown: str | None = None  # a large one names the blob that the event has
    digest: str = ""
    schema: str | None = None
    recipients: list[str] = field(default_factory=list)
    needs: str = "1"
    expires_ms: int | None = None
    fallback: str | None = None
    remind_ms: int | None = None
    not_by_starter: bool = False  # who started the run, or the one above all, may not decide it
    about: str | None = None  # the run whose budget it is about; then several runs may ask it


class QuestionStore(Protocol):
    """Where questions to people are kept."""

    async def decide(self, approval: str, ballot: Ballot, blobs: dict[str, bytes] | None = None,
                     known: ApprovalRow | None = None) -> ApprovalRow:  # fmt: skip
        """Count what a person says to an open question, and tell its run; the last that is needed decides it, once.

        `known` is the question as it was a moment ago, if that is known: it need not be looked up if it is still so.
        `AlreadyDecided` shows who was first; `NotAllowed` who may; `Stale` when something else is shown by now; `Expired`;
        `RunFinished` when it was withdrawn.
        """
        ...

    async def delegate(self, approval: str, to: str, ballot: Ballot) -> ApprovalRow:
        """Pass an open question on, as one who may decide it."""
        ...

    async def expire(self, approval: str) -> ApprovalRow:
        """End an open question whose time is over, and tell its run; one that a person decided first stays so."""
        ...

    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow:
        """How many must agree to this value, as only its run can tell; decides it if that many have."""
        ...

    async def approvals(
        self,
        *,
        run: str | None = None,
        approval: str | None = None,
        statuses: Iterable[str] = ("open",),
        limit: int = 100,
    ) -> list[ApprovalRow]:
        """Questions in the order asked: one, those of a run and of all below it, or all."""
        ...  # fmt: skip


# The part of the contract with a database that has to do with money: what was spent, and what may be.

BUDGET: Final = "budget"  # the key of questions for more; no call has such a key


class BudgetStore(Protocol):
    """Where spending is summed. It is never written by itself: appends sum what their events say (`data["spent"]`)."""

    async def spent(self, runs: Iterable[str]) -> dict[str, Spent]:
        """What each of these runs has spent with all below it, if it has spent anything."""
        ...

    async def spent_with_steps(self, runs: Iterable[str]) -> dict[str, Spent]:
        """The same; `steps` of a run that no budget holds for are those completed, in it and in all below it."""
        ...

    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]:
        """Which steps, by their names, have spent most of it."""
        ...

    async def purses(self, run: str) -> list[Purse]:
        """The budgets that hold for a run, its own and those above it, the nearest first, and how they stand."""
        ...


# The part of the contract with a database that has to do with conversations: what was said, and whose turn it is.
#
# What is said in a conversation is numbered from 0 and never changes. One run at a time has the conversation and may add to
# it; others stand in line, in the order in which they asked. Asking, adding and leaving are written with the events that
# record them. Who asks is told by a signal to its inbox, at once or when its turn has come, so it waits as for a message.


@dataclass(slots=True)
class Enter:
    """A run asks for a conversation. `request` names this asking; the answer is a signal with that topic."""

    conversation: str
    request: str
    key: str | None
    wait: bool  # in line, if another run has it


@dataclass(slots=True)
class Say:
    """Messages of the run that has the conversation by this request, to stand at `first` and after it."""

    conversation: str
    request: str
    first: int
    texts: list[str]  # large ones name blobs
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Leave:
    """The run needs the conversation no longer, or does not wait for it any more."""

    conversation: str
    request: str


Talking = Enter | Say | Leave


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Something that was said."""

    position: int
    value: str
    run: str
    at: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation as the store keeps it."""

    id: str
    length: int
    run: str | None  # who has it
    waiting: int  # how many runs stand in line
    created_at: int
    updated_at: int  # when something was said last


class ConversationStore(Protocol):
    """Where conversations are kept. They belong to no run: deleting and pruning runs leaves them alone."""

    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]:
        """The messages at these positions, as far as they are there, in order."""
        ...

    async def conversations(
        self, *, conversation: str | None = None, after: str = "", limit: int = 100
    ) -> list[ConversationRow]:
        """Conversations in the order of their ids, after one; or the one that is named."""
        ...

    async def delete_conversation(self, conversation: str, *, by: str = "", via: str = "") -> int:
        """Delete a conversation with all that was said in it; returns how much. `ConversationBusy` if a run has it."""
        ...


# The part of the contract with a database that has to do with streams: text that a run writes while it is made.
#
# A stream is a sequence of rows, each at a position: every character counts one, and so does every mark. The position of a
# row is the one behind it. Rows are written with the appends of the run's owner, so they are fenced and ordered as events
# are, and the owner alone knows where a stream stands.


@dataclass(slots=True)
class Piece:
    """One row of a stream: text, or a mark. `began` is the position at which the text it belongs to begins."""

    stream: str
    position: int
    kind: str  # 'data', 'restart', 'break' (an attempt ended badly, another may come; no reader sees it), 'end'
    key: str  # of the call that wrote it
    attempt: int
    began: int
    reason: Reason | None = None
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


def chunk_row(run: str, epoch: int, piece: Piece) -> tuple[Any, ...]:
    """A piece as it is kept, in the order of `insert_chunk`."""
    content = piece.text.encode("utf-8", "surrogatepass")
    return (
        run,
        piece.stream,
        piece.position,
        piece.kind,
        content,
        piece.key,
        piece.attempt,
        piece.began,
        piece.reason,
        epoch,
    )


class StreamStore(Protocol):
    """Where streams are kept."""

    async def pieces(self, run: str, stream: str, after: int, limit: int = 500) -> Sequence[Piece]:
        """The rows of a stream behind a position, in order; the first may begin before it."""
        ...

    async def streams(self, run: str) -> list[Piece]:
        """The last row of each stream of a run, without its text."""
        ...

    async def stream_sizes(self, run: str) -> dict[str, int]:
        """How many bytes of text each stream of a run has; reads all of them."""
        ...


# The part of the contract with a database that has to do with tokens: who may ask a server, and what they may do.


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as the store keeps it: not its secret, only the digest of that."""

    id: str
    name: str
    member_of: str  # JSON list of groups
    scopes: str  # JSON list
    digest: str
    created_at: int = 0
    revoked_at: int | None = None
    expires_at: int | None = None
    used_at: int | None = None


class TokenStore(Protocol):
    """Where tokens are kept."""

    async def add_token(self, token: TokenRow, lasts_ms: int | None = None, *, by: str = "", via: str = "") -> TokenRow:
        """Keep a new token; its id is random. Returns it with its time. `BadArguments` if its name is another's group."""
        ...

    async def use_token(self, id: str, every_ms: int) -> None:
        """Note that it was shown, unless that was noted less than so long ago."""
        ...

    async def revoke_tokens(self, which: str, *, by: str = "", via: str = "") -> list[TokenRow]:
        """Revoke the token with this id, or all of this name; returns them."""
        ...

    async def token(self, id: str) -> TokenRow | None: ...
    async def tokens(self, limit: int = 1000) -> list[TokenRow]:
        """All of them, revoked ones too, the oldest first."""
        ...


# A joint transaction: somebody's own statements and an append of ours, committed together. Part of the contract of stores.

T = TypeVar("T")


class Undone(Exception):
    """The database undid a transaction, through no fault of what was in it: nothing happened, and it may be tried again."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Joint(Protocol):
    """A transaction that somebody's own statements share with an append of ours. One that is left uncommitted never was.

    Nobody else may end it; if that is tried it is refused, or `commit` says so, where the database cannot refuse it.
    """

    @property
    def connection(self) -> Any:
        """What the statements go through."""
        ...

    @property
    def in_threads(self) -> bool:
        """May it be used in any thread, or on the loop only?"""
        ...

    @property
    def longest_s(self) -> float | None:
        """How long it may be open: others wait for it."""
        ...

    def undid(self, error: Exception) -> bool:
        """Is this error the database's doing, so that the same statements may well succeed next time?"""
        ...

    async def commit(self, appends: Sequence[Append]) -> int:
        """Append, fenced like any append, and commit all; returns the time. Must not be cancelled.

        `LeaseLost`, with nothing written. `Undone` too leaves nothing behind: if it is not known whether a commit
        happened, this finds out. Any other error is that of the statements before it.
        """
        ...


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for what must not be stopped half-way; a cancellation that comes meanwhile takes effect afterwards."""
    task, here = asyncio.ensure_future(work), asyncio.current_task()
    stopped = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            stopped = True
    if stopped and here is not None:
        here.cancel()
    return task.result()


@dataclass(slots=True)
class NewRun:
    """A run to be created. `uid` is random and never shown to be guessed; seeds and idempotency keys come from it."""

    id: str
    uid: str
    agent: str
    input: str
    version: str | None = None
    queue: str = "default"
    labels: str = "{}"
    parent_id: str | None = None
    parent_key: str | None = None
    root_id: str = ""
    delay_ms: int = 0
    lane: Lane = field(default_factory=Lane)
    budget: str | None = None  # as RunRow has it
    identity: str | None = None


@dataclass(slots=True)
class Transition:
    """How an append leaves the run: parked, released, paused or finished. The lease ends with it."""

    status: str
    due_at: int | None = None  # for 'waiting'; 'ready' is due at once
    waits_for: str | None = None
    awaits: Sequence[str] | None = None  # topics that may wake it; None: any
    inbox_seen: int | None = None  # refuse to park (InboxMoved) when a signal came after this one
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    ends_below: str | None = None  # why all below the run end with it, in the same transaction; None: they go on

    def __post_init__(self) -> None:
        if self.status == "cancelled" and self.ends_below is None:
            self.ends_below = ""


@dataclass(slots=True)
class Append:
    """What the owner of a run writes in one piece: events, and what must be stored with them or not at all."""

    run: str
    epoch: int
    expected_seq: int
    events: Sequence[Event] = ()  # their `seq` counts up from expected_seq; the store sets `at`
    blobs: Mapping[str, bytes] | None = None  # digest -> content
    children: Sequence[NewRun] = ()
    approvals: Sequence[NewApproval] = ()
    withdraws: Sequence[str] = ()  # questions that nobody waits for any more
    talks: Sequence[Talking] = ()  # what the run does in conversations
    pieces: Sequence[Piece] = ()  # what was written to streams since the append before
    inbox_seen: int | None = None  # the last inbox position these events take in
    checkpoint_seq: int | None = None
    transition: Transition | None = None


class InboxMoved(Exception):
    """The run was not parked: a signal came that its owner has not seen."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a heartbeat tells the owner about one of its runs."""

    run: str
    epoch: int
    inbox_count: int


class News(IntEnum):
    """How much a commit changed of a run: each level includes those before it."""

    GREW = 0  # its journal has more events
    MOVED = 1  # its status is another one
    STOPPED = 2  # it ended, or was paused
    DUE = 3  # a worker should look at it: its owner if it has one, anybody otherwise


# What a commit, or several, changed that somebody may be waiting for, by run. An empty name: look at everything.
Changes = Mapping[str, News]


@dataclass(frozen=True, slots=True)
class Census:
    """The unfinished runs of one queue in one state."""

    queue: str
    status: str
    runs: int
    due: int  # of these; for running ones that is: whose lease is over
    late: int  # of these, due for long
    first_due_at: int | None


@dataclass(frozen=True, slots=True)
class QuestionAges:
    """How long open questions have waited: how many up to 5 minutes, an hour, a day, a week and longer, and the oldest."""

    counts: tuple[int, ...]
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Ailment:
    """What keeps a store from being written. `lasting`: it does not pass by itself, only a new process helps."""

    reason: str
    lasting: bool


class Faults(Protocol):
    """Hooks for tests that break things: called around each commit that holds journal writes, with their names."""

    def before_commit(self, writes: list[str]) -> None: ...

    def after_commit(self, writes: list[str]) -> None: ...


# Called on the loop, once: with the time of the commit, or with why there is none.
Told = Callable[[int, BaseException | None], None]


def settle(
    future: asyncio.Future[Any] | concurrent.futures.Future[Any], value: Any, error: BaseException | None
) -> None:
    """Tell a future how a write ended, unless the one who waited is gone: the write stands all the same."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


# How long the one who writes waits, in seconds: a client and a server for so long, a worker (None) until it is done.
write_limit: Final[ContextVar[float | None]] = ContextVar("write_limit", default=None)

# Does who reads now look again after news? Many do at once; who asks for the first time need not wait for all of them.
looks_again: Final[ContextVar[bool]] = ContextVar("looks_again", default=False)


class Store(QuestionStore, RateStore, BudgetStore, ConversationStore, StreamStore, TokenStore, ArrivalStore, Protocol):
    """A database that keeps runs. Every method is idempotent or fenced, so it may be repeated after an unknown outcome."""

    clock: Clock
    url: str
    code_version: str | None  # of the code that this process runs, for people
    queues: Sequence[str] | None  # those this process takes runs of; None: all
    refuses: str | None  # why nothing may be written, if so: it is only looked at
    read_limit_s: Callable[[], float | None]  # how long whoever reads now waits for a server; None: until it answers
    worker_id: str  # this process's incarnation: its name, if it has one, and what is random at each opening

    @property
    def is_backup(self) -> bool:
        """Is it the file of a backup, which refuses every write? Known before it is open too."""
        ...

    # Life of the store
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def abandon(self) -> None:
        """Drop everything as a killed process would: nothing queued is written, the incarnation's lock is let go."""
        ...

    def on_change(self, listener: Callable[[Changes], None]) -> None:
        """Hear of changes on the loop: at once for this process's commits, soon for other processes'."""
        ...

    def observe(self, commit: Callable[[int, float], None]) -> None:
        """Call this after each commit with the number of operations in it and the seconds it took, in any thread."""
        ...

    def ailment(self) -> Ailment | None:
        """What is known to keep this store from being written; needs no database and no loop to tell."""
        ...

    # The owner's writes
    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        """Queue a write; `told` gets the time of its commit. Writes of one run are committed in the order given.

        Or it gets `LeaseLost` or `InboxMoved`. On a full or failing disk it waits and tries again: nothing is lost.
        `alone` says that no other write of this run can be about to come, so that it is no use to wait for company;
        `told` may then be called before this returns.
        """
        ...

    def append(self, append: Append) -> asyncio.Future[int]:
        """The same, to be awaited."""
        ...

    def transaction(self, isolation: str) -> AbstractAsyncContextManager[Joint]:
        """Open a transaction for somebody's own statements: 'read committed' or 'serializable', or what is stricter."""
        ...

    def shuts_out(self, isolation: str) -> bool:
        """Must nothing else be written to the run while such a transaction of it is open?"""
        ...

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
    ) -> list[RunRow]:
        """Take up to `limit` due runs of these agents (of this root's tree and these queues only, if given), epoch + 1 each.

        An agent is a name, for runs of no version, or a name and a version with a space between them, beside the name. The
        highest priority goes first. A run whose limit has no slot, or whose rate no turn, is held back.
        A claimed run that was still 'running' was interrupted: `crash_count + 1` and a `run.interrupted` event. Runs
        with two crashes or more are left out, unless `alone`: then one run is claimed, and any may be it. Never claims
        a run that this very incarnation is running. `sure`: there is one, so it need not be looked for before. A run that
        waits is taken up to `early_ms` before its time.
        """
        ...  # fmt: skip

    def heartbeat(self, ttl_ms: int) -> list[Lease]:
        """Prolong every lease of this incarnation in one statement; tells which ones it still has.

        Blocks, at most for the time of a lease, and needs nothing of the loop: any other thread may call it while the
        loop is hung. `StoreUnavailable` when it could not be done.
        """
        ...

    async def recover(self) -> int:
        """Make the runs of dead incarnations due now; returns how many. A stopped (not dead) process keeps its runs."""
        ...

    # Who may run now
    async def let_in(
        self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None
    ) -> int:
        """Make runs due that a `claim` with these arguments held back and that would find a slot now; tells how many.

        The end of a run that had a slot does so itself. This is for what it cannot know, and is bounded: call it now and
        then.
        """
        ...

    async def take_slot(self, key: str, n: int, run: str, call: str, epoch: int) -> bool:
        """Take one of `n` slots for the body of a call, if one is free. It is free again when the run's lease ends."""
        ...

    async def leave_slot(self, run: str, call: str, epoch: int) -> None:
        """The body has ended."""
        ...

    # Writes from outside
    # Each of these writes a row of the audit in its own transaction: `by` did it, through the door `via`.
    async def create(
        self, run: NewRun, blobs: dict[str, bytes] | None = None, *, by: str = "", via: str = ""
    ) -> tuple[RunRow, bool]:
        """Create the run, or return the one with this id or the unfinished one of its singleton; True: it was created.

        Without `by` the audit has no row for it.
        """
        ...

    async def send(self, run: str, signal_id: str, kind: str, topic: str, value: str | None, data: dict[str, Any],
                   blobs: dict[str, bytes] | None = None, *, by: str = "", via: str = "") -> int:  # fmt: skip
        """Put a signal into the run's inbox; the same signal_id twice is one signal. Returns its position.

        `UnknownRun`, or `RunFinished` when the run has ended.
        """
        ...

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
        """Have the run and all below it stop at a safe point; returns its status, 'running' while its owner must do it.

        `request` is the id of the request: the same one twice is one. `now`: bodies that run are stopped.
        """
        ...

    async def cancel(
        self, run: str, *, by: str, via: str = "run", reason: str = "", grace_ms: int, request: str, insist: bool = True
    ) -> str:
        """Have the run told to stop, and ended when the grace is over; a second request, or unbegun: at once. Its status.

        Without `insist` a run that was asked before is left alone.
        """
        ...

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
        """Make a paused (or, with retry, failed) run ready again, its crash count zero, with this budget.

        With `family` those below it go on too that the same request had paused.

        A failed one goes back to the first outcome that its error came from: events from there on are marked dropped, except
        completed outcomes of calls asked before. Failed children go with it, in one transaction, unless it had dealt with them.
        """
        ...

    async def delete(self, run: str, *, by: str = "", via: str = "") -> int:
        """Delete a finished run, its finished descendants and what only they used; `RunActive` if one is unfinished."""
        ...

    async def prune(
        self,
        before: int,
        statuses: Iterable[str],
        limit: int = 1000,
        *,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        by: str = "",
        via: str = "",
    ) -> int:
        """Delete up to `limit` root runs that finished before this time, with their descendants; returns the count."""
        ...

    async def would_prune(
        self, before: int, statuses: Iterable[str], *, agent: str | None = None, labels: dict[str, str] | None = None
    ) -> list[str]:
        """The ids of the root runs that `prune` would delete, the oldest first."""
        ...

    async def publish(self, agents: Iterable[tuple[str, str | None, str]]) -> None:
        """Record (name, version, schema JSON) of agents this process serves; of several versions the last is the newest."""
        ...

    # Reads
    async def run(self, run: str) -> RunRow | None: ...
    async def runs(
        self,
        *,
        statuses: Iterable[str] | None = None,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        since: int | None = None,
        until: int | None = None,
        search: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[RunRow]:
        """Newest first; `after` is the id of the last run of the page before. Relatives: no `since`, no `search`."""
        ...  # fmt: skip

    async def count_runs(
        self,
        *,
        statuses: Iterable[str] | None = None,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        since: int | None = None,
        until: int | None = None,
        search: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """How many runs fit: of each agent, in each state."""
        ...

    async def open_below(self, run: str) -> list[str]:
        """The nearest unfinished runs below this one: its children, and in place of one that has ended those below it."""
        ...

    async def journal(
        self, run: str, from_seq: int = 0, limit: int | None = None, dropped: bool = False
    ) -> list[Event]:
        """The run's events from a seq on, in order; dropped ones only if asked for."""
        ...

    async def progress(self, runs: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """What these runs say of how far they have come: the data of the last 'progress' and of the last 'plan' of each.

        A 'step.progress' among the last hundred events of a run counts as its 'progress' if it is newer.
        """
        ...

    async def feed(self, after: int, kinds: Iterable[str] | None, limit: int = 500) -> list[Event]:
        """Events of all runs after a position, in the order in which they became visible."""
        ...

    async def feed_reach(self) -> tuple[int, int]:
        """Before which position `feed` gives all there will ever be, and before which one all is that is committed now."""
        ...

    async def blob(self, digest: str) -> bytes: ...
    async def agents(self) -> Published:
        """What was published, and which of it live workers serve."""
        ...

    async def refuse(self, run: RunRow, reason: str) -> None:
        """Give back a run whose records do not fit the code here, for a worker that has other code; paused if none is left."""
        ...

    async def reconsider(self) -> None:
        """Look for runs that wait for a worker that has not refused them, when the last one of these is gone."""
        ...

    async def next_due(self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None,
                       alone: bool = True) -> int | None:  # fmt: skip
        """The earliest time (it may be past) at which a `claim` with the same arguments would find a run."""
        ...

    async def queues_taken(self) -> frozenset[str] | None:
        """The queues that workers which are there take runs of; None: all."""
        ...

    async def census(self, late_ms: int) -> list[Census]:
        """Counts of unfinished runs by queue and state, from an index; late are those due for longer than this."""
        ...

    async def question_ages(self, now: int | None = None) -> QuestionAges:
        """How long the questions that are open at a time, now, have waited; from an index."""
        ...

    async def stuck(self, late_ms: int, limit: int = 100) -> list[RunRow]:
        """Runs that have been due for longer than this, paused ones, and those with two crashes or more; longest due first."""
        ...

    async def audit(
        self,
        run: str | None = None,
        limit: int = 100,
        *,
        by: str | None = None,
        actions: Iterable[str] | None = None,
        before: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of the audit, the newest first: of a run and those below it, by somebody, of these actions, before a row."""
        ...

    # Copies
    async def backup(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        """Write all there is at one moment to a file, while others go on; returns how many runs. `BadArguments` if it exists."""
        ...

    async def restore(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        """Fill this store, which must be empty and not open, from a backup; it is held then. Returns how many runs."""
        ...

    async def activate(self, *, by: str, via: str) -> int:
        """Let a held store go on; returns how many unfinished runs it has. `BadArguments` if it is not held."""
        ...

    async def held(self) -> bool:
        """Is it a copy whose runs nobody may carry yet?"""
        ...

    async def note_refusals(self, tries: Sequence[tuple[str, str, str, dict[str, Any]]]) -> None:
        """Write rows of the audit for what was refused: the run, the actor, the door, and what was tried how often."""
        ...

    async def erase_audit(
        self, *, run: str | None = None, actor: str | None = None, before: int | None = None, by: str, via: str
    ) -> int:
        """Take values and free text out of rows that fit: of a run, of an actor, from before a time. Returns how many."""
        ...

    async def facts(self) -> dict[str, Any]:
        """What `doctor` shows: versions, sizes, counts by status, pragmas, integrity."""
        ...


def spilled(text: str) -> tuple[str, dict[str, bytes]]:
    """A text as it is kept in a column: itself, or a reference to the blob that holds it when it is large.

    A reference cannot be confused with a value: the codec escapes a user's dict whose only key starts with a dollar sign.
    """
    if len(text) <= BLOB_BYTES:
        return text, {}
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    return f'{{"$blob":"{digest}"}}', {digest: content}


async def unspilled(store: Store, text: str | None) -> str | None:
    """The text itself, wherever it is kept."""
    if text is None or not text.startswith('{"$blob":'):
        return text
    return (await store.blob(text[10:74])).decode()
