"""The cells of a plan: which can be reached, and which of them owns each slot, as the databases say.

Look here when a process asks the wrong cell, or does not notice that one is back.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Iterable
from typing import Final

from holdfast.backends.cells import ownership
from holdfast.backends.cells.cell import CellStore
from holdfast.backends.cells.ownership import Cell, Holding
from holdfast.backends.cells.plan import Plan
from holdfast.backends.cells.slots import SLOTS, key_slot, slot_of
from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.changes import Changes
from holdfast.store.operations import Faults
from holdfast.store.postgres.connection import Connection
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
_ORDER: Final = ("leaving", "frozen", "gone", "owned")  # of one epoch: a move, and where it came to
_TRIES: Final = 3  # to join the cells that answer
PATIENCE_S: Final = 2.0  # that a list, or a look, waits for a cell


class Cells:
    """All cells of a plan, opened as far as they can be reached. `worker` is the id of this process in each."""

    def __init__(
        self, plan: Plan, worker: str, *, clock: Clock | None = None, faults: Faults | None = None, gives_up: Collection[str] = ()
    ) -> None:  # fmt: skip
        self.plan, self.worker, self._gives_up = plan, worker, frozenset(gives_up)
        self._clock, self._faults = clock, faults
        self.made = {name: self._make(name) for name in plan.urls}
        self.said: dict[str, Cell] = {}  # what each database says of itself, once it was reached
        self.owners = {slot: plan.owner(slot) for slot in range(SLOTS)}
        self._ranks: dict[int, int] = {}  # of what was believed last of each slot
        self.down: dict[str, str] = {}  # cells that cannot be reached, and why
        self._heard_of: set[str] = set()  # cells that have said which slots they have or had
        self._missed: list[str] = []  # those of `missing` that the log has named
        self._opened = False
        # How each is opened: why nothing may be written, how long a reader waits, and the listener for changes.
        self.refuses: str | None = None
        self.read_limit_s: Callable[[], float | None] = lambda: None
        self.heard: Callable[[str, Changes], None] = lambda _name, _changes: None
        self.observe: Callable[[int, float], None] | None = None

    def _make(self, name: str) -> CellStore:
        cell = CellStore(name, self.plan.urls[name], self.worker, clock=self._clock, faults=self._faults)
        cell.around.rate_store, cell.around.owns = self.of_key, functools.partial(self.owns, name)
        cell.around.tells_minutes = lambda: self.up[:1] == [cell]
        return cell

    # Life

    async def open(self) -> None:
        """Open all that can be reached: one is enough, if the set was founded."""
        await asyncio.gather(*map(self._open, list(self.made)))
        await self._join_all()
        await self.look()
        self._opened = True
        for name, why in self.down.items():
            _log.warning("cell %r of %s is down, and so are its runs; all others go on: %s", name, self.plan.shown, why)

    async def _open(self, name: str) -> bool:
        cell = self.made[name]
        cell.refuses, cell.read_limit_s = self.refuses, self.read_limit_s
        try:
            await cell.open()
        except StoreUnavailable as error:
            if error.lasting:  # it answers, and is not what we need
                raise
            self._drop(name, str(error))
            return False
        self.down.pop(name, None)
        cell.on_change(functools.partial(self.heard, name))
        if self.observe is not None:
            cell.observe(self.observe)
        return True

    def _drop(self, name: str, why: str) -> None:
        """Let go of a cell, so that the next look opens it anew."""
        self.made[name].abandon()
        self.made[name], self.down[name] = self._make(name), why

    async def _join_all(self) -> None:
        """Join all that were reached, but for those that go down meanwhile."""
        tries = _TRIES
        while True:
            up = self.up
            if not up:
                raise StoreUnavailable(f"no cell of {self.plan.shown!r} can be reached: {self.why()}")
            try:
                return await self._join()
            except StoreUnavailable as error:
                if error.lasting:
                    raise
                await asyncio.gather(*map(self._drop_if_silent, up))
                if self.up == up:  # all of them answer
                    tries -= 1
                if not tries:
                    raise

    async def _drop_if_silent(self, cell: CellStore) -> None:
        """Let go of a cell that does not answer."""
        try:
            await cell.ask(functools.partial(ownership.told, store=cell.schema), PATIENCE_S)
        except StoreUnavailable as error:
            self._drop(cell.cell, str(error))

    async def _join(self) -> None:
        """Let every database that was reached say what it is; found the set if none is a cell yet."""
        said = await self._told()
        if None in said.values():  # another process may have founded it while we asked one after the other
            said = await self._told()
        ownership.check_names(self.plan, said)
        if None in said.values():
            said = await self._found()
        told = {name: cell for name, cell in said.items() if cell is not None}
        await self._check_known(told)
        ownership.check_members(self.plan, told.values(), self._gives_up)
        if self.refuses is None:
            for cell in [self.made[name] for name, each in told.items() if not each.renewed]:
                await cell.ask(functools.partial(ownership.renew, store=cell.schema))
            await self._identify(told)
            await self._enrol(told)
        if not self.down and self.refuses is None and not all(cell.complete for cell in told.values()):
            for cell in self.up:
                await cell.ask(functools.partial(ownership.complete, store=cell.schema))
        self.said |= told

    async def _told(self) -> dict[str, Cell | None]:
        return {cell.cell: await cell.ask(functools.partial(ownership.told, store=cell.schema)) for cell in self.up}

    async def _check_known(self, told: dict[str, Cell]) -> None:
        """Refuse a cell with slots that knows of no set, where the first cell does, which is told last: it is of another."""
        first = told.get(self.plan.home)
        for name in [name for name, cell in told.items() if cell.identity is None]:
            cell = self.made[name]
            if first is not None and first.identity is not None and await self._holdings(cell):
                raise ownership.of_no_set(self.plan, name, cell.schema, first)

    async def _identify(self, told: dict[str, Cell]) -> None:
        """Let cells that know of no set know theirs."""
        unknown, first = [name for name, cell in told.items() if cell.identity is None], told.get(self.plan.home)
        if first is not None and first.identity is not None:
            for cell in map(self.made.__getitem__, unknown):
                await cell.ask(functools.partial(ownership.identify, store=cell.schema, identity=first.identity))
        elif unknown and not self.down:
            await self.home.ask(self._identify_all)

    async def _enrol(self, told: dict[str, Cell]) -> None:
        """Let each cell know all others, as some do not that an older version made."""
        members = ownership.members_of(told.values())
        for name in [name for name, cell in told.items() if cell.members != members]:
            cell = self.made[name]
            await cell.ask(functools.partial(ownership.enrol, store=cell.schema, members=members))

    async def _identify_all(self, db: Connection) -> None:
        """Agree on an identity, one process after the other."""
        home = self.home
        async with db.transaction():
            await ownership.lock(db, home.schema)
            others = [cell for cell in self.up if cell is not home]
            said = {cell.cell: await cell.ask(functools.partial(ownership.told, store=cell.schema)) for cell in others}
            ours = await ownership.told(db, home.schema)
            ownership.check_names(self.plan, {home.cell: ours, **said})
            known = [cell.identity for cell in (ours, *said.values()) if cell is not None and cell.identity is not None]
            identity = known[0] if known else ownership.new_identity()
            for cell in others:
                await cell.ask(functools.partial(ownership.identify, store=cell.schema, identity=identity))
            await ownership.identify(db, home.schema, identity)

    async def _found(self) -> dict[str, Cell | None]:
        shown = self.plan.shown
        if self.refuses is not None:
            raise StoreUnavailable(
                f"{shown!r} has no cells yet, and a command that only looks founds none", lasting=True
            )
        if self.down:
            raise StoreUnavailable(f"{shown!r} is new, and its cells can only be founded together: {self.why()}")
        said: dict[str, Cell | None] = {}
        identity: str | None = ownership.new_identity()
        members = {name: number for number, name in enumerate(self.made, 1)}
        for name, cell in self.made.items():
            found = functools.partial(
                ownership.found, store=cell.schema, name=name, of=self.plan.digest, slots=self.plan.slots[name],
                now=cell.clock.now(), identity=identity, members=members,
            )  # fmt: skip
            made = await cell.ask(found)
            said[name] = made
            if name == self.plan.home:
                identity = made.identity  # another process may have founded it
        ownership.check_names(self.plan, said)
        return said

    async def close(self) -> None:
        """Close all that were opened. One that is down keeps nobody waiting: its leases end by themselves."""
        for name in self.down:
            self.made[name].abandon()
        await asyncio.gather(*(cell.close() for cell in self.made.values()))

    def abandon(self) -> None:
        """Drop all, as a killed process would."""
        for cell in self.made.values():
            cell.abandon()

    # Which there are

    @property
    def up(self) -> list[CellStore]:
        """The cells that were opened, and answered when they were last asked."""
        return [cell for name, cell in self.made.items() if cell.is_open and name not in self.down]

    @property
    def given_up(self) -> set[str]:
        """Cells of the set that are lost for good, as an operator said."""
        return {name for cell in self.said.values() for name in cell.lost}.union(self._gives_up)

    @property
    def missing(self) -> list[str]:
        """Cells of the set that the file does not name: it is older than the set, or somebody took them out."""
        known = {*ownership.members_of(self.said.values()), *self.owners.values()}
        return sorted(known - self.made.keys() - self.given_up)

    @property
    def absent(self) -> dict[str, str]:
        """Cells of the set that cannot be asked, and why."""
        old = f"it is not in {str(self.plan.path)!r}, which is older than the set: use the newer file"
        return self.down | dict.fromkeys(self.missing, old)

    def why(self, names: Iterable[str] | None = None) -> str:
        """Say why cells cannot be asked."""
        return "; ".join(f"cell {name!r}: {why}" for name, why in self.absent.items() if names is None or name in names)

    def of_slot(self, slot: int) -> CellStore:
        """Find the cell that has a slot; `StoreUnavailable` if it was never reached."""
        cell = self.made.get(self.owners[slot])
        if cell is None or (
            slot not in self._ranks and self._heard_of >= self.made.keys()
        ):  # no cell of the file ever had it
            raise StoreUnavailable(self._elsewhere(slot))
        if not cell.is_open:
            raise StoreUnavailable(f"slot {slot} is in a cell that is down: {self.why([cell.cell])}")
        return cell

    def _elsewhere(self, slot: int) -> str:
        shown, owner = self.plan.shown, self.owners[slot]
        if self.given_up and not self.missing:
            return (
                f"slot {slot} was in a cell that is lost for good: `holdfast cells settle {slot} --to NAME --db {shown}` gives it "
                "to another, without runs"
            )
        if owner in self.made:  # so says the file alone
            owner = " or ".join(self.missing) or "of another name"
        return f"slot {slot} is in cell {owner!r}, which is not in {shown!r}: use the newer file"

    def is_news(self, held: Holding, known: int | None = None) -> bool:
        """Is this later than what is known of its slot, or was when that was `known`?"""
        return _rank(held) > (self.known(held.slot) if known is None else known)

    def known(self, slot: int) -> int:
        """Rank of what is known of a slot: the later the higher."""
        return self._ranks.get(slot, -1)

    def of_key(self, key: str) -> CellStore:
        """Find the cell in which a rate is kept."""
        return self.of_slot(key_slot(key))

    @property
    def home(self) -> CellStore:
        """The cell that keeps what belongs to no run."""
        cell = self.made[self.plan.home]
        if not cell.is_open:
            raise StoreUnavailable(f"tokens and sessions are in a cell that is down: {self.why([cell.cell])}")
        return cell

    def owns(self, cell: str, name: str) -> bool:
        """Tell whether something with this name belongs to a cell."""
        return self.owners[slot_of(name)] == cell

    # Owners of slots, and cells that can be reached

    async def look(self) -> None:
        """Learn now which cell owns which slots, and which cells can be reached."""
        await asyncio.gather(*map(self.look_at, list(self.made)))

    async def look_at(self, name: str) -> bool:
        """Learn what one cell says of its slots; False if it does not answer."""
        cell = self.made[name]
        try:
            if not cell.is_open:
                if not await self._open(name):
                    return False
                cell = self.made[name]
                try:
                    await self._join()  # is it one of the set?
                except (BadArguments, StoreUnavailable) as refused:
                    self._drop(name, str(refused))
                    raise
            said = await cell.ask(functools.partial(ownership.told, store=cell.schema), PATIENCE_S)
            told = await self._holdings(cell, PATIENCE_S)
        except StoreUnavailable as error:
            self.lost(name, str(error))
            return False
        if self.down.pop(name, None) is not None:
            _log.warning("cell %r of %s is there again", name, self.plan.shown)
        cell.around.leaving = frozenset(held.slot for held in told if held.state == "leaving")
        self.learn(name, told)
        self._heard_of.add(name)
        if said is not None:
            self.said[name] = said
        self._note_missing()
        return True

    def _note_missing(self) -> None:
        """Say once of each cell that the file does not name, that it is left out."""
        before, self._missed = self._missed, self.missing
        for name in [name for name in self._missed if name not in before]:
            _log.warning("cell %r is left out, with its runs: %s", name, self.absent[name])

    async def _holdings(self, cell: CellStore, within_s: float | None = None) -> list[Holding]:
        return await cell.ask(functools.partial(ownership.holdings, store=cell.schema), within_s)

    def lost(self, name: str, why: str) -> None:
        """Note that a cell does not answer; the next look may find it again."""
        if name not in self.down and self._opened:
            _log.warning("cell %r of %s is down, and so are its runs; all others go on: %s", name, self.plan.shown, why)
        self.down[name] = why

    def learn(self, name: str, holdings: Iterable[Holding]) -> None:
        """Believe a database: it has a slot, or gave it to another cell."""
        for held in holdings:
            if self.is_news(held):
                self._ranks[held.slot] = _rank(held)
                self.owners[held.slot] = name if held.state != "gone" else held.other or self.owners[held.slot]


def _rank(held: Holding) -> int:
    return len(_ORDER) * held.epoch + _ORDER.index(held.state)
