"""One cell: a PostgreSQL store that knows its slots, and what of a run would need another cell.

A worker's engine has this store under it. It refuses, by pausing the run with the reason, what one transaction of this database
cannot do: count a child under a key of another slot, or take a conversation of another slot.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from holdfast.backends.cells import ownership
from holdfast.backends.cells.ownership import FREEZES, Holding, still
from holdfast.backends.cells.slots import check_place, slot_of
from holdfast.errors import BadArguments, LeaseLost, StoreUnavailable, UnknownApproval, Unsupported
from holdfast.store.appends import Append, Told, Transition
from holdfast.store.conversations import Enter
from holdfast.store.limits import Closed, Turn, freed
from holdfast.store.links import LinkRow, keep_link
from holdfast.store.postgres.connection import TROUBLE, Connection, connect, goodbye, parse_url
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.schedules import Declared
from holdfast.store.triggers import DeclaredTrigger, TriggerRow
from holdfast.store.work import Asking, Transaction, to_json
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger
from holdfast.words.model import RunRow

if TYPE_CHECKING:
    from holdfast.store.operations import Faults

T = TypeVar("T")
_log = logger("holdfast.store")
_TRIES: Final = 3
_LATER_MS: Final = 500  # for so long a run of a slot that leaves is not claimed again


@dataclass(slots=True)
class Around:
    """The set around a cell, as the cell needs it."""

    name: str
    leaving: frozenset[int] = frozenset()  # slots whose runs are not carried here any more
    rate_store: Callable[[str], CellStore] | None = None  # finds the cell that keeps a rate
    owns: Callable[[str], bool] = lambda _: True  # does something with this name belong here?
    tells_minutes: Callable[[], bool] = lambda: True
    roots: dict[str, str] = field(default_factory=dict)  # of the runs here whose ids do not tell it


class _Line:
    """A connection for small questions, one at a time, apart from all that runs do."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect, self._turn = connect, asyncio.Lock()
        self._db: Connection | None = None

    async def ask(self, question: Callable[[Connection], Awaitable[T]], within_s: float | None) -> T:
        async with asyncio.timeout(within_s), self._turn:
            try:
                if self._db is None or self._db.is_closed():
                    self._db = await self._connect()
                return await question(self._db)
            except BaseException:
                self.abort()
                raise

    async def close(self) -> None:
        db, self._db = self._db, None
        await goodbye(db)

    def abort(self) -> None:
        if self._db is not None:
            self._db.terminate()


class CellStore(PostgresStore):
    """A cell, opened. Only the loop that opened it uses it."""

    def __init__(
        self, cell: str, url: str, worker: str, *, clock: Clock | None = None, faults: Faults | None = None
    ) -> None:
        super().__init__(parse_url(url), clock=clock, faults=faults, worker=worker)
        self.around, self._line = Around(cell), _Line(self.connection)

    @property
    def cell(self) -> str:
        """The name of the cell."""
        return self.around.name

    @property
    def leaving(self) -> frozenset[int]:
        """Slots whose runs are not carried here any more."""
        return self.around.leaving

    def owns(self, name: str) -> bool:
        """Tell whether something with this name belongs here."""
        return self.around.owns(name)

    def _keeps(self, key: str) -> CellStore:
        return self if self.around.rate_store is None else self.around.rate_store(key)

    @property
    def schema(self) -> str:
        """The schema that the runs are in."""
        return self._options.schema

    @property
    def is_open(self) -> bool:
        """Was it opened, and not closed since?"""
        return self._open

    # What the database says of its slots

    async def connection(self) -> Connection:
        """Make a connection of our own, with our schema."""
        return await connect(self._options)

    async def ask(self, question: Callable[[Connection], Awaitable[T]], within_s: float | None = None) -> T:
        """Ask the database something small, apart from all that runs do; `StoreUnavailable` if it does not answer."""
        try:
            return await self._line.ask(question, within_s)
        except TROUBLE as error:
            raise StoreUnavailable(f"cell {self.cell!r} does not answer: {self._told(error)}") from None

    async def holding(self, slot: int, within_s: float | None = None) -> Holding | None:
        """Read how a slot stands here."""
        return await self.ask(lambda db: ownership.state_of(db, self.schema, slot), within_s)

    async def close(self) -> None:
        await super().close()
        await self._line.close()

    def abandon(self) -> None:
        super().abandon()
        self._line.abort()

    # Runs of a slot that is frozen say 'moved', and are here until the move is decided: lists show what they are

    async def runs(self, *, statuses: Iterable[str] | None = None, **which: Any) -> list[RunRow]:
        wanted = None if statuses is None else list(statuses)
        rows = await self._as_they_are(functools.partial(super().runs, statuses=wanted, **which))
        return [row for row in rows if wanted is None or row.status in wanted]

    async def these_runs(self, runs: Iterable[str]) -> list[RunRow]:
        return await self._as_they_are(functools.partial(super().these_runs, list(runs)))

    async def _as_they_are(self, read: Callable[[], Awaitable[list[RunRow]]]) -> list[RunRow]:
        for _ in range(_TRIES):
            rows = await read()
            frozen = {row.id for row in rows if row.status == "moved" and (row.reason or "").startswith(FREEZES)}
            were = await self.ask(functools.partial(still, store=self.schema, runs=frozen)) if frozen else {}
            if were.keys() >= frozen:
                break  # otherwise its move was decided or called off between the two
        return [replace(row, **were.get(row.id, {})) for row in rows if row.id in were or row.id not in frozen]

    # What an engine asks for

    async def claim(self, agents: Iterable[str], limit: int, ttl_ms: int, **which: Any) -> list[RunRow]:
        claimed = await super().claim(agents, limit, ttl_ms, **which)
        for row in claimed:
            if slot_of(row.id) != slot_of(row.root_id):
                self.around.roots[row.id] = row.root_id
        if not self.leaving:
            return claimed
        gone = [row for row in claimed if slot_of(row.root_id) in self.leaving]
        for row in gone:
            await self._put_off(row)
        return [row for row in claimed if row not in gone]

    async def _put_off(self, row: RunRow) -> None:
        """Give back a run that is about to move. It is due again in a while, here or there: nobody takes it at once."""

        def work(tx: Transaction) -> Asking[None]:
            keys = []
            for _, key in (yield from tx.rows("release", run=row.id, epoch=row.lease_epoch)):
                keys.append(key)
                yield from tx.rows(
                    "hold_back", ids=to_json([row.id]), due_at=tx.now + _LATER_MS, waits_for=row.waits_for, turn=None
                )
            yield from freed(tx, keys)

        await self._submit(work)

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        if append.children or append.talks:
            try:
                self._check(append)
            except Unsupported as refused:
                told = _lost(str(refused), told)
                append = Append(
                    append.run, append.epoch, append.expected_seq,
                    transition=Transition("paused", reason=f"run {append.run!r} cannot go on here: {refused}"),
                )  # fmt: skip
                _log.error("run %r is paused: %s", append.run, refused)
        super().post(append, told, alone=alone)

    def _check(self, append: Append) -> None:
        root = self.around.roots.get(append.run, append.run)
        slot = slot_of(root)
        for child in append.children:
            check_place(child.id, root, child.agent, child.lane)
        for talking in append.talks:
            name = talking.conversation if isinstance(talking, Enter) else None
            if name is not None and slot_of(name) != slot:
                raise Unsupported(
                    f"conversation {name!r} is in slot {slot_of(name)}, and the run in slot {slot}: a run and its conversations "
                    f"live in one cell. Start such runs with an id that begins with the name of it: id='{name}.1' is in its slot"
                )

    # A link is where its question is

    async def add_link(self, new: LinkRow, lasts_ms: int, run: str, *, by: str, via: str) -> LinkRow:
        def work(tx: Transaction) -> Asking[LinkRow]:
            # A move of its slot waits for us, and we for it: it takes the link along.
            yield from tx.rows("hold_run", run=run)
            if (yield from tx.row("approval", approval=new.question)) is None:
                raise UnknownApproval(f"there is no question {new.question!r}")
            return (yield from keep_link(tx, new, lasts_ms, run, by, via))

        return await self._submit(work, journal=False)

    # Rates are kept where their key is, whichever run asks

    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0, every_ms: int = 0) -> Turn:
        there = self._keeps(key)
        return await PostgresStore.take_turn(there, key, interval_us, tokens_us, every_ms)

    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None:
        await PostgresStore.use_late(self._keeps(key), key, began, every_ms)

    async def pause_rate(self, key: str, wait_ms: int, because: str | None = None) -> int:
        return await PostgresStore.pause_rate(self._keeps(key), key, wait_ms, because)

    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None:
        await PostgresStore.charge(self._keeps(key), key, tokens, tokens_us, since)

    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed:
        return await PostgresStore.closed(self._keeps(key), key, turn, every_ms)

    async def take_slot(self, key: str, n: int, run: str, call: str, epoch: int) -> NoReturn:
        raise Unsupported(
            f"limit= of a step ({key!r}) counts bodies in all cells, and no database knows them all; use rate="
        )

    async def count_minute(self, at: int, steps: int, ended: int, failed: int) -> None:
        if self.around.tells_minutes():  # one of them is enough: the worker of each cell would say what all of them did
            await super().count_minute(at, steps, ended, failed)

    # A schedule is begun where its name belongs

    async def declare_schedules(self, declared: Sequence[Declared]) -> None:
        await self._declared(super().declare_schedules([each for each in declared if self.owns(each.name)]))

    # And so is a trigger

    async def declare_triggers(self, declared: Sequence[DeclaredTrigger]) -> list[TriggerRow]:
        ours = [each for each in declared if self.owns(each.name)]
        return await self._declared(super().declare_triggers(ours)) if ours else []

    async def declare_subscriptions(self, declared: Sequence[DeclaredTrigger]) -> None:
        await self._declared(super().declare_subscriptions([each for each in declared if self.owns(each.name)]))

    async def _declared(self, declaring: Awaitable[T]) -> T:
        """Have it declared; `StoreUnavailable` if the slot of something went away just now: the worker tries again."""
        try:
            return await declaring
        except BadArguments as error:
            if not ownership.is_fence(error):
                raise
            raise StoreUnavailable(f"cell {self.cell!r}: {error}") from error

    # A commit of the store with others

    def transaction(self, isolation: str) -> NoReturn:
        raise Unsupported(NO_TRANSACTION)

    def shuts_out(self, isolation: str) -> NoReturn:
        raise Unsupported(NO_TRANSACTION)


NO_TRANSACTION: Final = (
    "transaction= commits a step with the store, and cells are several databases: a table of yours would be in one of them. Make "
    "the effect idempotent with holdfast.idempotency_key(), or use one postgresql:// store"
)


def _lost(reason: str, told: Told) -> Told:
    """Let go of a run that was paused instead of going on."""
    return lambda at, error: told(at, error or LeaseLost(reason))
