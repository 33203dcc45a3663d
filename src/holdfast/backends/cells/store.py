"""A set of cells as one store: each question goes to the cell that can answer it, and lists are put together.

Every public method of `Store` is here, in one of six ways, which the tables at the end name: it goes to the cell of its run, of
its runs, of a name, or of a question; to the first cell, which keeps what belongs to no run; or to all that can be reached.

Slots move. What was asked of a cell counts if the slot was there when the cell had answered; otherwise it is asked again where
the slot went (`_routed`). That is right for writes too, because every method of a store is idempotent or fenced. While
a slot is being copied, callers that ask for it wait.

A cell that is down raises `StoreUnavailable` for what it alone knows. Lists leave it out and say so in the log, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar

from holdfast.backends.cells import answers, courier, moves, ownership
from holdfast.backends.cells.cell import NO_TRANSACTION, CellStore
from holdfast.backends.cells.cells import PATIENCE_S, Cells
from holdfast.backends.cells.ownership import Holding
from holdfast.backends.cells.places import READERS, Place, Places, Positions, held_back, place_at
from holdfast.backends.cells.plan import Plan, read_plan
from holdfast.backends.cells.slots import check_place, key_slot, placed, slot_of
from holdfast.backends.cells.worker import CellsWorker
from holdfast.errors import (
    BadArguments,
    HoldfastError,
    StoreUnavailable,
    UnknownApproval,
    UnknownRun,
    UnknownTrigger,
    Unsupported,
)
from holdfast.runtime import AgentSpec
from holdfast.store.announcements import NEWS, Announced, NewAnnouncement
from holdfast.store.audit import Refusal
from holdfast.store.bundles import Import
from holdfast.store.changes import Changes
from holdfast.store.contract import Ailment, write_limit
from holdfast.store.conversations import ConversationRow
from holdfast.store.forks import NewFork
from holdfast.store.journal import Line
from holdfast.store.links import LinkRow
from holdfast.store.notifications import NotificationRow
from holdfast.store.operations import Faults
from holdfast.store.postgres.clock import DatabaseClock
from holdfast.store.runs import NewRun
from holdfast.store.schedules import Declared, ScheduleRow
from holdfast.store.sessions import Sight
from holdfast.store.store import Store
from holdfast.store.triggers import Act, DecideAct, DeliveryRow, NewDelivery, StartAct, TriggerRow, unknown_delivery
from holdfast.store.work import ALL
from holdfast.words.clock import Clock, SystemClock, Timer
from holdfast.words.features import Feature
from holdfast.words.harmless import logger
from holdfast.words.limits import Lane
from holdfast.words.model import ApprovalRow, Event, RunRow
from holdfast.words.notifications import Message
from holdfast.words.people import Ballot
from holdfast.words.triggers import OUTGOING
from holdfast.worker.settings import Settings

T = TypeVar("T")
_log = logger("holdfast.store")
LOOK_EVERY_S: Final = 0.5  # at the owners of slots, and which cells can be reached
_MOVING_S: Final = 60.0  # that a caller without a deadline waits for a slot that is being copied
_LOOK_S: Final = 0.02
_TOLD_S: Final = 0.2


class _Clock(SystemClock):
    """The time of the first cell that can be reached."""

    def __init__(self, cells: Callable[[], Iterable[CellStore]]) -> None:
        self._cells, self._own = cells, DatabaseClock()

    def _clock(self) -> Clock:
        return next((cell.clock for cell in self._cells()), self._own)

    def now(self) -> int:
        return self._clock().now()

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        return self._clock().call_at(when, callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._clock().call_later(delay_s, callback)

    def after(self, grace_s: float, callback: Callable[[], object]) -> Timer:
        return self._clock().after(grace_s, callback)


class CellsStore(Store):
    """All cells of a plan, as a `Store`."""

    def __init__(self, plan: Plan, *, clock: Clock | None = None, faults: Faults | None = None, name: str = "") -> None:
        super().__init__(clock if clock is not None else _Clock(lambda: self.cells.up), name)
        self.cells, self.url = Cells(plan, self.worker_id, clock=clock, faults=faults), plan.shown
        self.inputs = next(iter(self.cells.made.values())).inputs
        self.cells.heard = self._heard
        self._worker: CellsWorker | None = None
        self._positions = Positions(plan.urls, self.clock.now)
        self.feed_alike = self._positions.alike
        # Of each cell: when this process asked until when its feed is complete, and the answer.
        self._told: dict[str, tuple[float, int]] = {}
        self._told_turns = {each: asyncio.Lock() for each in plan.urls}
        self._announced = {each: asyncio.Event() for each in plan.urls}
        self._watches: list[asyncio.Task[None]] = []

    @classmethod
    def from_url(
        cls, url: str, *, clock: Clock | None = None, faults: Faults | None = None, name: str = ""
    ) -> CellsStore:
        """Make a store for `cells:FILE`."""
        return cls(read_plan(url), clock=clock, faults=faults, name=name)

    # Life of the store

    @property
    def lacks(self) -> Mapping[Feature, str]:
        return {"backup": self._each()}

    async def open(self) -> None:
        self._begin()
        self.cells.refuses, self.cells.read_limit_s, self._open = self.refuses, self.read_limit_s, True
        try:
            await self.cells.open()
        except BaseException:
            await self.close()
            raise
        self._watches = [
            self._loop.create_task(self._keep_watch(name), context=self.context) for name in self.cells.made
        ]

    async def _keep_watch(self, name: str) -> None:
        """Look at one cell again and again; one that does not answer holds up no other."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._announced[name].wait()
            self._announced[name].clear()
            try:
                if await self.cells.look_at(name) and self._worker is not None:
                    await self._worker.look()
                    await moves.mend(self.cells, [name])
                    await courier.carry(self.cells, self.cells.made[name])
            except HoldfastError as problem:
                _log.warning("cell %r of %s could not be looked at; trying again: %s", name, self.url, problem)
            except Exception:  # noqa: BLE001 - whatever it is: a cell that is not looked at any more would only seem to be there
                _log.exception("cell %r of %s could not be looked at; trying again", name, self.url)

    def _heard(self, name: str, changes: Changes) -> None:
        if NEWS in changes:
            self._announced[name].set()
        self._tell(changes)

    async def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._open = False
        await self.cells.close()

    def abandon(self) -> None:
        self._open = False
        for watch in self._watches:
            watch.cancel()
        self.cells.abandon()

    def observe(self, commit: Callable[[int, float], None]) -> None:
        self.cells.observe = commit
        for cell in self.cells.made.values():
            cell.observe(commit)

    def ailment(self) -> Ailment | None:
        """Tell of one when no cell can be written: a cell alone stops its share alone."""
        found = [Ailment(f"cell {name!r} is down", lasting=False, trouble=why) for name, why in self.cells.down.items()]
        found += [each for each in (cell.ailment() for cell in self.cells.up) if each is not None]
        return None if len(found) < len(self.cells.made) else found[0]

    def worker(
        self, specs: Iterable[AgentSpec], settings: Settings, triggers: Iterable[Any], apply: Any, *, listens: bool
    ) -> CellsWorker:
        """Make what carries runs of all cells in this process."""
        self._worker = CellsWorker(self, self.cells, specs, settings, triggers, apply, listens=listens)
        return self._worker

    def placed(self, id: str, lane: Lane) -> str:
        return placed(id, lane)

    def before(self, position: int, end: int) -> bool:
        return self._positions.before(position - 1, end - 1)

    # Asking cells

    async def _routed(self, slot: int, call: Callable[[CellStore], Awaitable[T]], *, fenced: bool = False) -> T:
        """Ask the cell of a slot, and ask again where the slot went if it was not there any more.

        `fenced`: what is asked is refused by the database itself where the slot is not.
        """
        until = self._until()
        while True:
            cell, known = self.cells.of_slot(slot), self.cells.known(slot)
            refused: BaseException | None = None
            try:
                answer = await call(cell)
                if fenced:
                    return answer
            except StoreUnavailable as error:
                raise type(error)(f"cell {cell.cell!r}: {error}") from None
            except Exception as error:
                if not isinstance(error, HoldfastError) and not ownership.is_fence(error):
                    raise
                refused = error
            held = await cell.holding(slot, max(until - time.monotonic(), PATIENCE_S))
            if held is not None and held.state in ("owned", "leaving"):
                if self.cells.is_news(
                    held, known
                ):  # it may have answered before the slot came, or while it stood still
                    self.cells.learn(cell.cell, [held])
                    continue
                if refused is None:
                    return answer
                if not ownership.is_fence(refused):
                    raise refused
                continue  # it came back meanwhile
            await self._moved(slot, cell, held, until)

    async def _moved(self, slot: int, cell: CellStore, held: Holding | None, until: float) -> None:
        """Wait until a slot that is not in a cell any more is somewhere."""
        if held is None or held.state == "gone":
            if held is not None:
                self.cells.learn(cell.cell, [held])
            there = self.cells.made.get(self.cells.owners[slot])
            if there is not None and there is not cell and there.is_open:
                new = await there.holding(slot)
                if new is not None and new.state != "gone":
                    self.cells.learn(there.cell, [new])
                    return
            if held is None:
                await self.cells.look()
        if time.monotonic() > until:
            way = f"from cell {cell.cell!r} " if held is not None and held.state == "frozen" else ""
            to = held.other if way and held is not None else self.cells.owners[slot]
            raise StoreUnavailable(f"slot {slot} is being moved {way}to cell {to!r}; try again")
        await asyncio.sleep(_LOOK_S)

    async def _every(self, call: Callable[[CellStore], Awaitable[T]]) -> list[tuple[CellStore, T]]:
        """Ask all cells that can be reached. One that does not answer soon is left out."""
        cells = self.cells.up
        told = await asyncio.gather(*(self._within(cell, call(cell)) for cell in cells), return_exceptions=True)
        found = []
        for cell, answer in zip(cells, told, strict=True):
            if isinstance(answer, StoreUnavailable):
                self.cells.lost(cell.cell, str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((cell, answer))
        if not found:
            raise StoreUnavailable(f"no cell of {self.url!r} can be reached: {self.cells.why()}")
        return found

    async def _within(self, cell: CellStore, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(PATIENCE_S if len(self.cells.made) > 1 else None):
                return await call
        except TimeoutError:
            raise StoreUnavailable(f"cell {cell.cell!r} did not answer within {PATIENCE_S:g} s") from None

    async def _all(self, what: str, call: Callable[[CellStore], Awaitable[T]]) -> list[T]:
        """Have all cells do it; `StoreUnavailable` if one cannot, because it must be the same in all. To do it again is safe."""
        if self.cells.absent:
            raise StoreUnavailable(
                f"{what} is kept in every cell, and one cannot be asked: {self.cells.why()}. Try again when it can"
            )
        return [await call(cell) for cell in self.cells.made.values()]

    async def _find(
        self, call: Callable[[CellStore], Awaitable[T]], found: Callable[[T], bool], missing: HoldfastError
    ) -> tuple[CellStore, T]:
        """Ask all cells for what one of them has, and does not say by its name in which slot it is.

        A slot that moves is in a parcel for a while, and may be asked for before it comes here, and there after it went. So
        nothing is missing before all were asked while no slot changed hands, and none was in a parcel.
        """
        until, stood = self._until(), None
        while True:
            for cell, answer in await self._every(call):
                if found(answer):
                    return cell, answer
            if self.cells.absent:
                raise StoreUnavailable(f"it may be in a cell that cannot be asked: {self.cells.why()}")
            stands, coming = await self._standing()
            if not coming and stands == stood:
                raise missing
            if time.monotonic() > until:
                where = [f"slot {slot}, which is being moved to cell {to!r}" for slot, to in coming]
                raise StoreUnavailable(
                    f"it may be in {' or '.join(where[:3]) or 'a slot that was moved now'}; try again"
                )
            stood = stands
            if coming:
                await asyncio.sleep(_LOOK_S)

    async def _standing(self) -> tuple[dict[str, int], list[tuple[int, str]]]:
        """Read how often slots of each cell have changed hands, and which slots are in parcels, with the cells they go to."""
        told = await self._every(lambda cell: cell.ask(functools.partial(moves.standing, store=cell.schema)))
        coming = []
        for cell, (_, parcels) in told:
            for slot, epoch, origin in parcels:
                there = self.cells.made.get(origin)
                held = await there.holding(slot, PATIENCE_S) if there is not None and there.is_open else None
                if held is None or (held.state, held.epoch) == ("gone", epoch):
                    coming.append((slot, cell.cell))
        return {cell.cell: version for cell, (version, _) in told}, coming

    def _until(self) -> float:
        """The moment until which the caller waits for a slot that is being moved."""
        return time.monotonic() + (write_limit.get() or self.read_limit_s() or _MOVING_S)

    def _here(self, cell: CellStore, root: str) -> bool:
        return self.cells.owners[slot_of(root)] == cell.cell

    # Runs

    async def create(
        self, run: NewRun, blobs: Mapping[str, bytes] | None = None, *, by: str = "", via: str = ""
    ) -> tuple[RunRow, bool]:
        check_place(run.id, run.root_id or run.id, run.agent, run.lane)
        return await self._routed(slot_of(run.id), lambda cell: cell.create(run, blobs, by=by, via=via), fenced=True)

    async def run(self, run: str) -> RunRow | None:
        if not run:  # a probe
            return (await self._every(lambda cell: cell.run("")))[0][1]
        found = await self._routed(slot_of(run), lambda cell: cell.run(run))
        if found is None and len(run) > _LONG:  # an id too long for its family's name
            with contextlib.suppress(UnknownRun):
                _, found = await self._find(lambda cell: cell.run(run), lambda row: row is not None, UnknownRun(run))
        return found

    async def runs(
        self, *, parent: str | None = None, root: str | None = None, limit: int = 100, order: Any = "newest",
        after: str | None = None, at: int | None = None, **which: Any,
    ) -> list[RunRow]:  # fmt: skip
        family = parent or root
        if family is not None:
            listed = functools.partial(
                CellStore.runs, parent=parent, root=root, limit=limit, order=order, after=after, at=at, **which
            )
            return await self._routed(slot_of(family), listed)
        if after is not None and at is None:
            last = await self.run(after)
            if last is None:
                raise UnknownRun(f"run {after!r}, after which the next page begins, is not there any more; begin again")
            changed = last.updated_at if last.finished_at is None else last.finished_at
            at = changed if order == "updated" else last.created_at
        statuses = which.get("statuses")
        backwards = order == "oldest" and (statuses is None or "completed" in statuses)
        pages = await self._every(lambda cell: cell.runs(limit=limit, order=order, after=after, at=at, **which))
        rows = [[row for row in page if self._here(cell, row.root_id)] for cell, page in pages]
        return answers.in_order(rows, order, limit, by_id_backwards=backwards)

    async def run_counts(self, *, parent: str | None = None, **which: Any) -> Any:
        if parent is not None:
            return await self._routed(slot_of(parent), lambda cell: cell.run_counts(parent=parent, **which))
        return answers.counted([found for _, found in await self._every(lambda cell: cell.run_counts(**which))])

    async def halted(self, late_ms: int, limit: int, after: RunRow | None = None) -> list[RunRow]:
        pages = await self._every(lambda cell: cell.halted(late_ms, limit, after))
        key = lambda row: (row.updated_at if row.due_at is None else row.due_at, row.id)  # noqa: E731
        return sorted(answers.concatenated(page for _, page in pages), key=key)[:limit]

    async def fork(self, new: NewFork) -> tuple[RunRow, bool]:
        if slot_of(new.id) != slot_of(new.run):
            raise Unsupported(
                f"fork {new.id!r} would be in slot {slot_of(new.id)}, and its run {new.run!r} is in slot {slot_of(new.run)}. "
                f"Leave id= out, or let it begin with the run's: id='{new.run.partition('.')[0]}.{new.id}'"
            )
        return await self._routed(slot_of(new.run), lambda cell: cell.fork(new))

    async def prune(self, before: int, statuses: Iterable[str], limit: int = 1000, **which: Any) -> int:
        wanted = list(statuses)
        return sum(many for _, many in await self._every(lambda cell: cell.prune(before, wanted, limit, **which)))

    # Questions

    async def _question(self, approval: str) -> tuple[CellStore, ApprovalRow]:
        async def look(cell: CellStore) -> ApprovalRow | None:
            with contextlib.suppress(UnknownApproval):
                return await cell.approval(approval)
            return None

        missing = UnknownApproval(f"there is no question {approval!r}")
        cell, row = await self._find(
            look, lambda row: row is not None and self.cells.owners[slot_of(row.root_id)] != "", missing
        )
        assert row is not None
        return cell, row

    async def _asked(self, approval: str, call: Callable[[CellStore], Awaitable[T]]) -> T:
        _, row = await self._question(approval)
        return await self._routed(slot_of(row.root_id), call)

    async def approval(self, approval: str) -> ApprovalRow:
        return await self._asked(approval, lambda cell: cell.approval(approval))

    async def decide(
        self, approval: str, ballot: Ballot, blobs: Mapping[str, bytes] | None = None, known: ApprovalRow | None = None
    ) -> ApprovalRow:
        if known is not None:
            return await self._routed(slot_of(known.root_id), lambda cell: cell.decide(approval, ballot, blobs, known))
        return await self._asked(approval, lambda cell: cell.decide(approval, ballot, blobs))

    async def delegate(self, approval: str, to: str, ballot: Ballot) -> ApprovalRow:
        return await self._asked(approval, lambda cell: cell.delegate(approval, to, ballot))

    async def expire(self, approval: str) -> ApprovalRow:
        return await self._asked(approval, lambda cell: cell.expire(approval))

    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow:
        return await self._asked(approval, lambda cell: cell.require(approval, digest, needs, value))

    async def approvals(
        self, *, run: str | None = None, approval: str | None = None, statuses: Iterable[str] = ("open",), limit: int = 100,
        after: str | None = None, at: int | None = None, only: Mapping[str, str] | None = None,
    ) -> list[ApprovalRow]:  # fmt: skip
        wanted: dict[str, Any] = {"statuses": list(statuses), "limit": limit, "after": after, "at": at, "only": only}
        if approval is not None:
            with contextlib.suppress(UnknownApproval):
                return await self._asked(approval, lambda cell: cell.approvals(approval=approval, **wanted))
            return []
        if run is not None:
            return await self._routed(slot_of(run), lambda cell: cell.approvals(run=run, **wanted))
        if after is not None and at is None:
            wanted["at"] = (await self.approval(after)).asked_at
        pages = await self._every(lambda cell: cell.approvals(**wanted))
        rows = [row for cell, page in pages for row in page if self._here(cell, row.root_id)]
        found = sorted(rows, key=lambda row: (row.asked_at, row.id))
        return found[:limit] if wanted["statuses"] == ["open"] else found[-limit:]

    # The feed

    async def feed(self, after: int, kinds: Iterable[str] | None, limit: int = 500) -> list[Event]:
        chosen = None if kinds is None else list(kinds)
        return await self._fed(after, limit, lambda cell, place: cell.feed(place, chosen, limit))

    async def feed_lines(
        self, after: int, kinds: Iterable[str] | None, run: str | None = None, limit: int = 500,
        only: Mapping[str, str] | None = None,
    ) -> list[Line]:  # fmt: skip
        chosen = None if kinds is None else list(kinds)
        return await self._fed(after, limit, lambda cell, place: cell.feed_lines(place, chosen, run, limit, only))

    async def feed_page(
        self, after: int, sure: int, kinds: Iterable[str] | None, run: str | None = None,
        only: Mapping[str, str] | None = None,
    ) -> tuple[list[Line], int]:  # fmt: skip
        chosen, limit = None if kinds is None else list(kinds), 500
        pages, read_at, places = await self._read_feed(
            after, lambda cell, place: cell.feed_lines(place, chosen, run, limit, only)
        )
        lines = answers.feed(pages, read_at, places, self._positions, limit)
        if lines:
            return lines, lines[-1].position
        # Only what a cell was asked for is known not to fit: one that has told how far it is sure may have died since.
        surely, reached = self._positions.known(sure - 1).of, {**places.of}
        for name in pages:
            position = max(reached[name].position, surely[name].position if name in surely else 0)
            reached[name] = Place(position, read_at[name])
        before = self._positions.known(after).of
        if {name: place.position for name, place in before.items()} == {
            name: place.position for name, place in reached.items()
        }:
            return lines, after
        return lines, self._positions.give(Places(reached, places.start))

    async def _fed(
        self, after: int, limit: int, read: Callable[[CellStore, int], Awaitable[Sequence[Any]]]
    ) -> list[Any]:
        return answers.feed(*await self._read_feed(after, read), self._positions, limit)

    async def _read_feed(
        self, after: int, read: Callable[[CellStore, int], Awaitable[Sequence[Any]]]
    ) -> tuple[dict[str, Sequence[Any]], dict[str, int], Places]:
        """Read a page of each cell that answers: returns the pages, when they were read at the latest, and where they begin."""
        await self._number_positions()
        known = self._positions.known(after)
        start = known.start or 0

        async def look(cell: CellStore) -> tuple[Place, int]:
            place = known.of.get(cell.cell)
            if place is None:
                place = await cell.ask(lambda db: place_at(db, start))
            return place, await self._told_until(cell)

        looked = {cell.cell: found for cell, found in await self._every(look)}
        places = Places({**known.of, **{name: place for name, (place, _) in looked.items()}}, start)

        async def page(cell: CellStore) -> Sequence[Any] | None:
            return await read(cell, places.of[cell.cell].position) if cell.cell in looked else None

        pages = {cell.cell: found for cell, found in await self._every(page) if found is not None}
        return pages, {name: looked[name][1] for name in pages}, places

    async def _number_positions(self) -> None:
        """Get the number of this process in its positions, before it gives one. Without the first cell it is a random one."""
        if self._positions.reader is not None:
            return
        number = secrets.randbelow(READERS)
        home = self.cells.made[self.cells.plan.home]
        if self.refuses is None and home in self.cells.up:
            with contextlib.suppress(StoreUnavailable):
                number = await home.ask(functools.partial(ownership.next_reader, store=home.schema), PATIENCE_S)
        if self._positions.reader is None:
            self._positions.reader = number % READERS

    async def _told_until(self, cell: CellStore) -> int:
        """Read until when a cell's feed, read from now on, has all that happened. Readers share answers: older ones hold."""
        async with self._told_turns[cell.cell]:
            asked_s, until = self._told.get(cell.cell, (0.0, 0))
            if time.monotonic() - asked_s > _TOLD_S or not until:
                asked_s, now = time.monotonic(), cell.clock.now()
                kept = await cell.ask(held_back)
                until = now if kept is None else min(now, kept)
                self._told[cell.cell] = asked_s, until
            return until

    async def feed_reach(self) -> tuple[int, int]:
        async def reach(cell: CellStore) -> tuple[Place, Place]:
            now, until = cell.clock.now(), await self._told_until(cell)
            sure, end = await cell.feed_reach()
            return Place(sure - 1, until), Place(end - 1, now)

        await self._number_positions()
        found = await self._every(reach)
        sure, end = (
            self._positions.give(Places({cell.cell: told[nth] for cell, told in found}, None)) for nth in (0, 1)
        )
        return sure + 1, end + 1

    # The audit: a row of a cell is told apart from those of others by the cell's number

    async def audit(
        self, run: str | None = None, limit: int = 100, *, by: str | None = None, actions: Iterable[str] | None = None,
        before: int | None = None, only: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        chosen = None if actions is None else list(actions)
        last = None if before is None else await self._deed(before)

        async def read(cell: CellStore) -> list[dict[str, Any]]:
            number, at = self.cells.said[cell.cell].number, ALL
            if last is not None:
                at = await cell.ask(functools.partial(_deed_before, at=last, before=before or 0, number=number))
            rows = await cell.audit(run, limit, by=by, actions=chosen, before=at, only=only)
            return [{**row, "id": row["id"] * _CELLS + number} for row in rows]

        if run is not None:
            return await self._routed(slot_of(run), read)
        pages = await self._every(read)
        return sorted(
            answers.concatenated(page for _, page in pages), key=lambda row: (row["at"], row["id"]), reverse=True
        )[:limit]

    async def _deed(self, id: int) -> int:
        """Read when a deed was done, by its id here."""
        cell = next((cell for cell in self.cells.up if self.cells.said[cell.cell].number == id % _CELLS), None)
        at = (
            None
            if cell is None
            else await cell.ask(lambda db: db.fetchval("SELECT at FROM audit WHERE id = $1", id // _CELLS))
        )
        if at is None:
            raise BadArguments(f"before={id}: there is no such deed, or its cell is down; begin again")
        return int(at)

    async def note_refusals(self, tries: Sequence[Refusal]) -> None:
        for each in tries:
            cell = self.cells.home if not each[0] else self.cells.of_slot(slot_of(each[0]))
            await cell.note_refusals([each])

    async def erase_audit(
        self, *, run: str | None = None, actor: str | None = None, before: int | None = None, by: str, via: str
    ) -> int:
        erase = functools.partial(CellStore.erase_audit, run=run, actor=actor, before=before, by=by, via=via)
        return sum(await self._all("the audit", erase))

    # Values

    async def blob(self, digest: str) -> bytes:
        async def look(cell: CellStore) -> bytes | None:
            with contextlib.suppress(HoldfastError, KeyError, LookupError):
                return await cell.blob(digest)
            return None

        _, content = await self._find(
            look, lambda content: content is not None, StoreUnavailable(f"there is no value {digest!r}")
        )
        assert content is not None
        return content

    # Triggers: what comes for one is in the cell of its name, and does what it does in others before it is done there

    async def apply(
        self, acts: Sequence[Act], taken: DeliveryRow | None = None, *, counted: str = ""
    ) -> list[dict[str, Any]]:
        for act in acts:
            if isinstance(act, StartAct):
                new = act.create.run
                check_place(new.id, new.id, new.agent, new.lane)
        name = taken.trigger if taken is not None else counted
        own = slot_of(name) if name else None
        places = [self._slot_of_act(act, own) for act in acts]
        done: list[dict[str, Any] | None] = [None] * len(acts)
        last = own if own is not None else (places[0] if places else 0)
        for slot in [*sorted({place for place in places if self.cells.owners[place] != self.cells.owners[last]}), last]:
            here = [nth for nth, place in enumerate(places) if done[nth] is None and slot in (place, last)]
            ending = slot == last
            some = [acts[nth] for nth in here]
            ended, counts = (taken, counted) if ending else (None, "")
            told = await self._routed(
                slot, functools.partial(CellStore.apply, acts=some, taken=ended, counted=counts), fenced=True
            )
            for nth, each in zip(here, told, strict=True):
                done[nth] = each
        return [each for each in done if each is not None]

    def _slot_of_act(self, act: Act, own: int | None) -> int:
        if isinstance(act, StartAct):
            return slot_of(act.create.run.id)
        if isinstance(act, DecideAct) or act.run is not None:
            return slot_of(str(act.run))
        return own or 0

    async def triggers(self) -> list[tuple[TriggerRow, int]]:
        pages = await self._every(lambda cell: cell.triggers())
        return sorted(answers.concatenated(page for _, page in pages), key=lambda each: each[0].name)

    async def receive(self, new: NewDelivery) -> bool:
        return await self._routed(slot_of(new.trigger), lambda cell: cell.receive(new))

    # Schedules, conversations

    async def make_schedule(self, made: Declared, *, by: str, via: str) -> ScheduleRow:
        return await self._routed(slot_of(made.name), lambda cell: cell.make_schedule(made, by=by, via=via))

    async def schedules(self, *, after: str = "", limit: int = 100) -> list[ScheduleRow]:
        pages = await self._every(lambda cell: cell.schedules(after=after, limit=limit))
        return sorted(answers.concatenated(page for _, page in pages), key=lambda row: row.name)[:limit]

    async def conversations(
        self, *, conversation: str | None = None, after: str = "", limit: int = 100
    ) -> list[ConversationRow]:
        if conversation is not None:
            return await self._routed(slot_of(conversation), lambda cell: cell.conversations(conversation=conversation))
        pages = await self._every(lambda cell: cell.conversations(after=after, limit=limit))
        return sorted(answers.concatenated(page for _, page in pages), key=lambda row: row.id)[:limit]

    # Announcements: published in one cell, and carried to the others under the same id

    async def announce(self, new: NewAnnouncement, *, by: str, via: str) -> Announced:
        return await self._routed(slot_of(new.id), lambda cell: cell.announce(new, by=by, via=via))

    # Notifications: each cell tells of its own events

    async def make_notification(self, name: str, config: str, *, by: str, via: str) -> NotificationRow:
        return (await self._all("a notification", lambda cell: cell.make_notification(name, config, by=by, via=via)))[0]

    async def steer_notification(self, name: str, state: str, *, by: str, via: str) -> NotificationRow:
        return (await self._all("a notification", lambda cell: cell.steer_notification(name, state, by=by, via=via)))[0]

    async def delete_notification(self, name: str, *, by: str, via: str) -> None:
        await self._all("a notification", lambda cell: cell.delete_notification(name, by=by, via=via))

    async def tell(self, told: Sequence[tuple[str, Message]]) -> int:
        if not self.cells.up:
            raise StoreUnavailable(f"no cell of {self.url!r} can be reached: {self.cells.why()}")
        return await self.cells.up[0].tell(told)

    # What came for a trigger is in the cell of its name; messages of a notification are in the cells of their events

    async def deliveries(
        self, trigger: str, status: str, *, before: int | None = None, limit: int = 100
    ) -> list[DeliveryRow]:
        read = functools.partial(CellStore.deliveries, trigger=trigger, status=status, before=before, limit=limit)
        if not trigger.startswith(OUTGOING):
            return await self._routed(slot_of(trigger), read)
        found = answers.concatenated(page for _, page in await self._every(read))
        return sorted(found, key=lambda row: row.received_at, reverse=True)[:limit]

    async def delivery(self, trigger: str, key: str) -> tuple[DeliveryRow, bytes]:
        return await self._of_delivery(trigger, key, lambda cell: cell.delivery(trigger, key))

    async def replay_delivery(self, trigger: str, key: str, *, by: str, via: str) -> DeliveryRow:
        return await self._of_delivery(trigger, key, lambda cell: cell.replay_delivery(trigger, key, by=by, via=via))

    async def dismiss_delivery(self, trigger: str, key: str, *, by: str, via: str) -> DeliveryRow:
        return await self._of_delivery(trigger, key, lambda cell: cell.dismiss_delivery(trigger, key, by=by, via=via))

    async def _of_delivery(self, trigger: str, key: str, call: Callable[[CellStore], Awaitable[T]]) -> T:
        if not trigger.startswith(OUTGOING):
            return await self._routed(slot_of(trigger), call)

        async def look(cell: CellStore) -> bool:
            with contextlib.suppress(UnknownTrigger):
                return bool(await cell.delivery(trigger, key))
            return False

        cell, _ = await self._find(look, bool, unknown_delivery(trigger, key))
        return await call(cell)

    # Bundles: a run moves to one database, by its own URL

    def check_takes(self, root: str) -> None:
        slot = slot_of(root)
        name = self.cells.owners[slot]
        cell = self.cells.made.get(name)
        if cell is None:
            where = f"which no cell of the file has: `holdfast cells check --db {self.url}` says more"
        else:
            where = f"which is in cell {name!r}: use its URL, {cell.url}"
        raise Unsupported(
            f"{self.url!r} is {len(self.cells.made)} databases, and a run moves to one of them. Run {root!r} belongs to slot "
            f"{slot}, {where}"
        )

    async def import_bundle(self, work: Import) -> NoReturn:
        self.check_takes(work.found.root if work.copy is None else work.copy.id)
        raise AssertionError("unreachable")

    # Links: each is where its question is, because the decision uses it up, and goes with it. Sessions of links are at home

    async def add_link(self, new: LinkRow, lasts_ms: int, run: str, *, by: str, via: str) -> LinkRow:
        return await self._asked(new.question, lambda cell: cell.add_link(new, lasts_ms, run, by=by, via=via))

    async def link(self, id: str) -> LinkRow | None:
        with contextlib.suppress(UnknownApproval):
            return (await self._find(lambda cell: cell.link(id), lambda row: row is not None, UnknownApproval(id)))[1]
        return None

    async def session(self, digest: str) -> Sight:
        sight = await self.cells.home.session(digest)
        kind, _, id = ("", "", "") if sight.session is None else sight.session.whose.partition(" ")
        return replace(sight, link=await self.link(id)) if kind == "link" else sight

    # The store as a whole

    async def size(self) -> tuple[int, int]:
        found = [answer for _, answer in await self._every(lambda cell: cell.size())]
        return sum(size for size, _ in found), sum(events for _, events in found)

    async def held(self) -> bool:
        return any(held for _, held in await self._every(lambda cell: cell.held()))

    async def activate(self, *, by: str, via: str) -> int:
        total = 0
        for cell in self.cells.up:
            if await cell.held():
                total += await cell.activate(by=by, via=via)
        return total

    async def recover(self) -> int:
        return sum(many for _, many in await self._every(lambda cell: cell.recover()))

    async def facts(self) -> dict[str, Any]:
        found = {cell.cell: facts for cell, facts in await self._every(lambda cell: cell.facts())}
        first = next(iter(found.values()))
        wrong = [f"cell {name}: {facts['integrity']}" for name, facts in found.items() if facts["integrity"] != "ok"]
        sums = ("events", "signals", "blobs", "open_approvals", "workers", "bytes")
        return first | {name: sum(facts[name] or 0 for facts in found.values()) for name in sums} | {
            "runs": answers.summed(facts["runs"] for facts in found.values()),
            "code_versions": answers.summed(facts["code_versions"] for facts in found.values()),
            "integrity": "; ".join(wrong) or "ok", "down": self.cells.absent,
            "database": f"cells {', '.join(found)}", "url": self.url,
            "cells": {name: {"bytes": facts["bytes"], "runs": facts["runs"], "url": facts["url"]} for name, facts in found.items()},
        }  # fmt: skip

    # What an owner does: it has the store of its own cell

    def heartbeat(self, ttl_ms: int) -> NoReturn:
        raise self._of_one_cell("a lease")

    def transaction(self, isolation: str) -> NoReturn:
        raise Unsupported(NO_TRANSACTION)

    def shuts_out(self, isolation: str) -> NoReturn:
        raise Unsupported(NO_TRANSACTION)

    def post(self, *_: Any, **__: Any) -> NoReturn:
        raise self._of_one_cell("the journal of a run")

    append = take = post

    def _of_one_cell(self, what: str) -> Unsupported:
        return Unsupported(f"{what} is in one cell, and {self.url!r} names all of them")

    def _flush(self) -> None:
        """Do nothing: each cell has its own queue."""

    async def _hold_lock(self) -> None:
        """Do nothing: each cell has the lock of its worker."""

    async def _living(self) -> list[Any]:
        return answers.concatenated([living for _, living in await self._every(lambda cell: cell._living())])

    async def _copy_out(self, part: Any) -> NoReturn:
        raise Unsupported(self._each())

    def _each(self) -> str:
        urls = ", ".join(cell.url for cell in self.cells.made.values())
        return f"{self.url!r} is {len(self.cells.made)} databases. Do this with each by its own URL: {urls}"

    def _submit(self, do: Any, **_: Any) -> NoReturn:
        raise self._of_one_cell("what is to be written")

    async def _read(self, read: Any, *arguments: Any, **named: Any) -> NoReturn:
        raise self._of_one_cell("what is to be read")

    _snapshot = _glance = _read


_CELLS: Final = 64  # ids of deeds are this far apart, and a cell's number is between
_LONG: Final = 100


async def _deed_before(db: Any, at: int, before: int, number: int) -> int:
    """The id in this cell behind which deeds are that were done later than one of any cell."""
    last = await db.fetchval(
        "SELECT coalesce(max(id), 0) FROM audit WHERE at < $1 OR (at = $1 AND id * 64 + $2 < $3)", at, number, before
    )
    return int(last) + 1


# What goes where


def _of_run(name: str) -> Any:
    async def method(self: CellsStore, run: str, *args: Any, **named: Any) -> Any:
        return await self._routed(slot_of(run), lambda cell: getattr(cell, name)(run, *args, **named))

    return method


def _of_runs(name: str, merge: Callable[[Sequence[Any]], Any]) -> Any:
    async def method(self: CellsStore, runs: Iterable[str]) -> Any:
        slots: dict[str, dict[int, list[str]]] = {}
        for run in runs:
            slots.setdefault(self.cells.owners[slot_of(run)], {}).setdefault(slot_of(run), []).append(run)
        found = []
        for name_of, by_slot in slots.items():
            cell = self.cells.made.get(name_of)
            if cell is None or not cell.is_open or name_of in self.cells.down:
                continue  # they are of a list, which leaves them out
            with contextlib.suppress(StoreUnavailable):
                found.append(
                    await self._within(cell, getattr(cell, name)([run for some in by_slot.values() for run in some]))
                )
        return merge(found)

    return method


def _of_name(name: str, slot: Callable[[Any], int] = slot_of) -> Any:
    async def method(self: CellsStore, first: Any, *args: Any, **named: Any) -> Any:
        return await self._routed(slot(first), lambda cell: getattr(cell, name)(first, *args, **named))

    return method


def _at_home(name: str) -> Any:
    async def method(self: CellsStore, *args: Any, **named: Any) -> Any:
        return await getattr(self.cells.home, name)(*args, **named)

    return method


def _of_all(name: str, merge: Callable[[Sequence[Any]], Any]) -> Any:
    async def method(self: CellsStore, *args: Any, **named: Any) -> Any:
        args = tuple(
            list(each) if isinstance(each, Iterable) and not isinstance(each, (str, Mapping)) else each for each in args
        )
        return merge([found for _, found in await self._every(lambda cell: getattr(cell, name)(*args, **named))])

    return method


def _refused() -> Any:
    async def method(self: CellsStore, *_: Any, **__: Any) -> NoReturn:
        raise Unsupported(self._each())

    return method


def _in_a_worker(name: str) -> Any:
    async def method(self: CellsStore, *_: Any, **__: Any) -> NoReturn:
        raise self._of_one_cell(name)

    return method


_BY_AT: Final = answers.ordered(lambda row: row.at, backwards=True)
OF_RUN: Final = [
    "journal",
    "outline",
    "lines",
    "lines_at",
    "outline_of",
    "begun_before",
    "worker_at",
    "events_at",
    "inputs_between",
    "last_of_kind",
    "last_request",
    "send",
    "inbox",
    "last_messages",
    "count_messages",
    "whole_inbox",
    "voted",
    "spent_by",
    "purses",
    "conversations_held",
    "pieces",
    "streams",
    "stream_sizes",
    "former",
    "former_result",
    "origin",
    "below",
    "journal_below",
    "keys_like",
    "belongings",
    "members",
    "note_copy",
    "halt_forsaken",
    "call_off_move",
    "moved",
    "came",
    "imported_from",
    "delete",
    "pause",
    "cancel",
    "resume",
    "sees_run",
    "family_size",
    "open_below",
]
OF_RUNS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    **dict.fromkeys(("spent", "spent_with_steps", "granted", "progress", "present", "open_calls"), answers.united),
    **dict.fromkeys(("these_runs", "forks"), answers.concatenated),
    "parts_of": lambda found: set().union(*found),
}
OF_NAME: Final = [
    "said",
    "fill_conversation",
    "delete_conversation",
    "steer_schedule",
    "delete_schedule",
    "begin_at",
    "schedule",
    "trigger",
    "note_taken",
    "note_broker",
    "replay_dead",
    "delete_trigger",
    "files",
    "see_files",
    "prune_files",
]
OF_KEY: Final = ["take_turn", "use_late", "pause_rate", "charge", "closed"]
AT_HOME: Final = [
    "begin_session",
    "use_once",
    "end_sessions_of",
    "end_session",
    "add_token",
    "use_token",
    "revoke_tokens",
    "token",
    "tokens",
    "store_id",
]
OF_ALL: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "worker_ids": lambda found: list(dict.fromkeys(answers.concatenated(found))), "notifications": lambda found: found[0],
    "agents": answers.published, "queues_taken": answers.queues, "count_workers": max, "fleet_workers": answers.workers,
    "lost_workers": _BY_AT, "minutes": answers.minutes, "unserved": answers.unserved, "busy_rates": answers.rates,
    "count_runs": answers.nested, "census": answers.census, "question_ages": answers.ages,
    "recent_runs": answers.concatenated, "runs_beginning": answers.ordered(lambda row: row[0]),
    "stuck": answers.ordered(lambda row: (row.updated_at if row.due_at is None else row.due_at, row.id)),
    "would_prune": answers.concatenated, "taken": answers.summed, "absences": answers.united,
    "tally_deliveries": answers.tallies,
    "paused_rates": answers.ordered(lambda row: -row[1]), "parts": answers.united, "notification": lambda found: found[0],
}  # fmt: skip
REFUSED: Final = ["backup", "restore", "move", "moved_content", "take_back", "confirm", "imported"]
IN_A_WORKER: Final = [
    "claim",
    "next_due",
    "let_in",
    "publish",
    "refuse",
    "reconsider",
    "count_minute",
    "tell_calls",
    "take_slot",
    "leave_slot",
    "declare_schedules",
    "begin_due",
    "next_schedule",
    "declare_triggers",
    "next_delivery",
    "claim_deliveries",
    "fail_delivery",
    "leave_delivery",
    "recall_deliveries",
    "prune_deliveries",
    "give_up_messages",
    "declare_subscriptions",
    "next_announcement",
    "pass_on",
    "prune_announcements",
    "end_gatherings",
    "recall_gatherings",
    "find_file",
    "tell_events",
]

for _name in OF_RUN:
    setattr(CellsStore, _name, _of_run(_name))
for _name, _merge in OF_RUNS.items():
    setattr(CellsStore, _name, _of_runs(_name, _merge))
for _name in OF_NAME:
    setattr(CellsStore, _name, _of_name(_name))
for _name in OF_KEY:
    setattr(CellsStore, _name, _of_name(_name, key_slot))
for _name in AT_HOME:
    setattr(CellsStore, _name, _at_home(_name))
for _name, _merge in OF_ALL.items():
    setattr(CellsStore, _name, _of_all(_name, _merge))
for _name in REFUSED:
    setattr(CellsStore, _name, _refused())
for _name in IN_A_WORKER:
    setattr(CellsStore, _name, _in_a_worker(_name))
CellsStore.__abstractmethods__ = frozenset()  # those of the tables are there
