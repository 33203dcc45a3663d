"""Limits and rates: which runs and steps may run now.

Limits of agents. At most `limit_n` runs with a `limit_key` are running. A run that is due and finds no slot is held: it
has no due time and `waits_for` is 'slot', so it stands in no claim's way. A run that stops wakes the run that was held back
longest, in the same transaction. Both count under one lock, so no wake-up is lost: if the claim comes first, the run that
stops finds the one it held; if that run comes first, the claim finds its slot. What a wake-up cannot know (a limit that
was raised, a run that was woken and that no worker serves) is found by `Leases.let_in`, now and then.

Rates. The turns of a key are one after the other, at places that are `interval_us` apart. A run that is due takes the next
turn; if that is later, the run is due again at that time. `n` intervals are a little longer than the window, so a turn may be
used so much late, and all turns of any window are `n` at most. One that is used later than that is written down with its
time: the turns a window behind it wait for it, and no others. So what comes late delays a fiftieth of the turns, is made up
for by and by, and none is lost. A turn that is much too late is lost and another is taken: so a pile of runs that were due
while no worker lived begins as slowly as any other.

No turn is earlier than the end of a pause, nor than the time at which the tokens that were used are paid for. Tokens are known
only when a body has ended; so that the bodies that wait do not all begin before the first bill comes, turns are as far apart as the
tokens of the last few would have them.

Slots of steps are rows, because a run may have many bodies. They count while their run is running under the same epoch and
its lease is not over: those of a dead worker are free at once.

Lock order: the rows of runs, then the lock under which slots and turns are counted, then held rows, of which locked ones are
passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdfast.store.changes import News
from holdfast.store.work import Asking, Feature, Transaction, rows, to_json
from holdfast.words.limits import interval_us, latest_us, slack_us, span_us, stretch_us

KEYS_AT_ONCE: Final = 200


def in_milliseconds(micros: int) -> int:
    """Round up, so that nothing begins early."""
    return -(-micros // 1000)


class Turn(NamedTuple):
    """The time at which a run or a step may begin: later than now because of a pause, or of turns that come before.

    Its place is in microseconds, and never changes. Places are an interval apart.
    """

    place: int
    paused: bool = False
    late: int = 0  # when the users of the turns a window before began, if they were late, in microseconds

    @property
    def at(self) -> int:
        return in_milliseconds(self.place)

    def usable_at(self, every_ms: int) -> int:
        """Return the time from which the turn can be used: a window after the turns before it that were used late."""
        return max(self.at, in_milliseconds(self.late) + every_ms if self.late else 0)


class Closed(NamedTuple):
    """Until when a rate is paused, and until when it has to pay for tokens that were used.

    `late` is when those began, in microseconds, that had their turn a window before ours and used it late: ours comes a
    window after that. 0: there is none.
    """

    paused: int
    owed: int
    late: int


class Limits(Feature):
    """Slots and turns, counted. Keys are those of `words.limits.Lane`; times are the store's, in milliseconds."""

    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0, every_ms: int = 0) -> Turn:
        """Reserve the next turn of a rate, which may be now. The one after it comes `interval_us` later.

        With `tokens_us`, the time that a thousand tokens take, it comes later still if turns use many of them.
        `every_ms` is the window: the turn knows of turns that were used late a window before it.
        """

        def work(tx: Transaction) -> Asking[Turn]:
            yield from tx.rows("lock_counts")
            return (yield from _take_turns(tx, key, interval_us, tokens_us, every_ms=every_ms))

        return await self._submit(work, small=True, runs=())

    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None:
        """Write down when late turns were used, by the beginning of their stretch (`words.limits.stretch_us`)."""

        def work(tx: Transaction) -> Asking[None]:
            yield from tx.rows("lock_counts")
            yield from _use_late(tx, key, began, every_ms)

        await self._submit(work, small=True, runs=())

    async def pause_rate(self, key: str, wait_ms: int, because: str | None = None) -> int:
        """Give out no turn that is earlier than so long from now; returns until when. Pauses do not add up.

        `because` is for people: of several pauses that of the longest is kept.
        """

        def work(tx: Transaction) -> Asking[int]:
            yield from tx.rows("lock_counts")
            (until,) = yield from tx.row("pause_rate", key=key, until=(tx.now + wait_ms) * 1000, reason=because)
            return in_milliseconds(until)

        return await self._submit(work, small=True, runs=())

    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None:
        """Charge a rate for tokens that a body used whose turn was at `since`; turns taken from now on are later for it."""

        def work(tx: Transaction) -> Asking[None]:
            yield from tx.rows("lock_counts")
            cost = tokens * tokens_us // 1000
            yield from tx.rows("charge", key=key, tokens=tokens, cost=cost, since=since * 1000)

        await self._submit(work, small=True, runs=())

    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed:
        """Tell whether a turn that was reserved earlier can still be used."""
        place = 0 if turn is None else turn.place - span_us(every_ms)
        found = await self._glance(rows, "rate", key=key, place=place)
        if not found:
            return Closed(0, 0, 0)
        paused, owed, late = found[0]
        return Closed(in_milliseconds(paused), in_milliseconds(owed), late)

    async def paused_rates(self, limit: int = 100) -> list[tuple[str, int]]:
        """Read the rates that are paused now, and until when; the longest first."""
        found = await self._read(rows, "paused_rates", micros=self.clock.now() * 1000, limit=limit)
        return [(key, in_milliseconds(until)) for key, until in found]

    async def take_slot(self, key: str, n: int, run: str, call: str, epoch: int) -> bool:
        """Take one of `n` slots for the body of a call, if one is free. It is free again when the run's lease ends."""

        def work(tx: Transaction) -> Asking[bool]:
            yield from tx.rows("lock_counts")
            yield from tx.rows("clear_slots", key=key, run=run, call=call, epoch=epoch)
            taken = yield from tx.rows("take_slot", key=key, run=run, call=call, epoch=epoch, limit=n)
            return bool(taken)

        return await self._submit(work, small=True, runs=())

    async def leave_slot(self, run: str, call: str, epoch: int) -> None:
        """Free the slot of a body that has ended."""

        def work(tx: Transaction) -> Asking[None]:
            yield from tx.rows("lock_counts")
            yield from tx.rows("leave_slot", run=run, call=call, epoch=epoch)

        await self._submit(work, small=True, runs=())


def _take_turns(
    tx: Transaction, key: str, interval_us: int, tokens_us: int = 0, turns: int = 1, every_ms: int = 0
) -> Asking[Turn]:
    """Reserve turns; returns the first of them."""
    place, paused, late = yield from tx.row(
        "take_turns", key=key, micros=tx.now * 1000, interval=interval_us, tokens_us=tokens_us, turns=turns,
        span=span_us(every_ms),
    )  # fmt: skip
    return Turn(place, paused > tx.now * 1000, late)


def _use_late(tx: Transaction, key: str, began: dict[int, int], every_ms: int) -> Asking[None]:
    """Write down when late turns are used, by stretches. What was written a window ago delays no turn any more."""
    yield from tx.rows("forget_late", key=key, micros=tx.now * 1000 - every_ms * 1000)
    for stretch, micros in sorted(began.items()):
        yield from tx.rows("use_late", key=key, place=stretch, micros=micros)


class Due(NamedTuple):
    """A run that is due, as `due` finds it."""

    id: str
    status: str
    owner: str | None
    epoch: int
    seq: int
    due_at: int
    waits_for: str | None
    started_at: int | None
    limit_key: str | None
    limit_n: int | None
    rate_key: str | None
    rate_n: int | None
    rate_ms: int | None
    turn: int | None  # its place, if it waits for one
    paused: int | None  # until when its rate is, in microseconds
    late: int | None  # when those began that had their turn a window before, if they were late
    crashes: int  # since it last made progress
    company: int  # with so many it may be carried, if it may end its process

    @property
    def limited(self) -> bool:
        """Must the run have a slot? One that lost its owner has it still."""
        return self.limit_key is not None and self.status != "running"

    def needs_turn(self, now: int) -> bool:
        """Must its turn be looked at? Not if the run has begun, nor if it waited for its turn, which is now.

        A turn that comes too late, or whose rate was paused meanwhile, is looked at.
        """
        if self.rate_key is None or self.rate_ms is None or self.started_at is not None:
            return False
        if (self.paused or 0) > now * 1000 or self.waits_for != "rate":
            return True
        return self.turn_us > now * 1000 or now * 1000 - self.place > slack_us(self.rate_ms)

    @property
    def place(self) -> int:
        """Place of the turn that the run waited for."""
        return self.due_at * 1000 if self.turn is None else self.turn

    @property
    def turn_us(self) -> int:
        """Time from which that turn can be used."""
        return max(self.place, 0 if self.late is None else self.late + (self.rate_ms or 0) * 1000)


def admitted(tx: Transaction, due: list[Due], room: int) -> Asking[list[Due]]:
    """Pick the due runs that may run now, in their order and at most so many; a run that has no slot or turn is held."""
    if not any(run.limited or run.needs_turn(tx.now) for run in due):
        return due[:room]
    yield from tx.rows("lock_counts")
    refused = yield from _without_slot(tx, due)
    yield from _hold(tx, refused, None, "slot")
    held = set(refused)
    passing = [run for run in due if run.id not in held][:room]
    later = yield from _before_their_turn(tx, [run for run in passing if run.needs_turn(tx.now)])
    for name, (at, place) in later.items():
        yield from _hold(tx, [name], in_milliseconds(at), "rate", place)
        held.add(name)
    return [run for run in passing if run.id not in held]


def _without_slot(tx: Transaction, due: list[Due]) -> Asking[list[str]]:
    keys = sorted({run.limit_key for run in due if run.limited and run.limit_key})
    counted = (yield from tx.rows("occupied", keys=to_json(keys))) if keys else []
    taken = Counter({key: count for key, count in counted})  # noqa: C416 - rows of a database are no tuples
    refused = []
    for run in due:
        if not run.limited:
            continue
        if taken[run.limit_key] < (run.limit_n or 1):
            taken[run.limit_key] += 1
        else:
            refused.append(run.id)
    return refused


def _before_their_turn(tx: Transaction, due: list[Due]) -> Asking[dict[str, tuple[int, int]]]:
    """Find the runs whose turn is later: its time, and its place. A run that has no turn that can be used takes one."""
    later: dict[str, tuple[int, int]] = {}
    by_key: dict[str, list[Due]] = {}
    for run in due:
        by_key.setdefault(run.rate_key or "", []).append(run)
    for key in sorted(by_key):
        runs = by_key[key]
        without = yield from _use_turns(tx, key, runs, later)
        if without:
            every_ms = runs[0].rate_ms or 0
            interval = interval_us(runs[0].rate_n or 0, every_ms)
            first = yield from _take_turns(tx, key, interval, turns=len(without), every_ms=every_ms)
            for number, run in enumerate(without):
                place = first.place + number * interval
                at = max(place, first.late + every_ms * 1000 if first.late else 0)
                if at > tx.now * 1000:
                    later[run.id] = (at, place)
    return later


def _use_turns(tx: Transaction, key: str, due: list[Due], later: dict[str, tuple[int, int]]) -> Asking[list[Due]]:
    """Let runs that have a turn begin, or come `later`; returns the runs that have none, or lost it."""
    now, without, used_late = tx.now * 1000, list[Due](), dict[int, int]()
    for run in due:
        every_ms = run.rate_ms or 0
        if run.waits_for != "rate" or (run.paused or 0) > now or now - run.place > latest_us(every_ms):
            without.append(run)
        elif run.turn_us > now:
            later[run.id] = (run.turn_us, run.place)
        elif now - run.place > slack_us(every_ms):
            used_late[stretch_us(run.place, every_ms)] = now
    if used_late:
        yield from _use_late(tx, key, used_late, due[0].rate_ms or 0)
    return without


def _hold(
    tx: Transaction, runs: list[str], due_at: int | None, waits_for: str, place: int | None = None
) -> Asking[None]:
    if runs:
        yield from tx.rows("hold_back", ids=to_json(runs), due_at=due_at, waits_for=waits_for, turn=place)
        for run in runs:
            tx.changed(run, News.MOVED)


def freed(tx: Transaction, keys: Iterable[str | None]) -> Asking[None]:
    """Free the slots of runs that stopped running: for each, the run that was held longest is due."""
    slots = Counter(key for key in keys if key is not None)
    if not slots:
        return
    yield from tx.rows("lock_counts")
    for key in sorted(slots):
        for (run,) in (yield from tx.rows("wake", key=key, limit=slots[key])):
            tx.changed(run, News.DUE)


def let_in(tx: Transaction, keys: Iterable[str], ours: dict[str, Any]) -> Asking[int]:
    """Wake held runs that this worker may take, of limits that were seen to have free slots; returns how many."""
    woken = 0
    yield from tx.rows("lock_counts")
    for key in sorted(keys):
        taken, slots = yield from tx.row("room", key=key)
        found = yield from tx.rows("wake_ours", key=key, limit=max((slots or 0) - taken, 0), **ours)
        for (run,) in found:
            tx.changed(run, News.DUE)
        woken += len(found)
    return woken
