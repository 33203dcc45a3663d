"""An attempt as its host sees it: all that a host may ask of an attempt, and nothing else.

Look here to put the engine on another ground: a `Host` (host.py) gives an attempt what it needs, `execute.begin` returns one of
these, and a host that uses both knows no part of the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast.engine.attempt import Attempt
from holdfast.engine.parking import Wait
from holdfast.store.appends import Transition
from holdfast.words.calls import OpenBody


class Asked(NamedTuple):
    """A call that is open: its place, its name, its input in short, and the digests by which its input is known."""

    key: str
    name: str
    preview: str
    digest: str
    whole: str
    lean: str


class Carried:
    """One attempt at one run, in memory from `execute.begin` on until `ended` is done."""

    __slots__ = ("attempt", "ended", "run")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt, self.run = attempt, attempt.run
        # How it left: 'ended', 'parked', 'released', 'paused', 'unfit' (this code cannot read its records) or 'lost'.
        self.ended: asyncio.Future[str] = attempt.life.ended

    # News for it

    def leased(self, until: float | None) -> None:
        """The lease holds until then. None: a heartbeat did not find it, so the run is another's, and leaves memory.

        A run that is just ending or being given back has no lease any more: its write on the way tells what became of it. No such
        write is on its way while a body runs.
        """
        attempt, bodies = self.attempt, self.attempt.bodies
        bodies.leased(until)
        if until is None and not (attempt.pen.unacked or (bodies.holding and not bodies.running)):
            attempt.life.close("lost")

    def notice(self, *, sure: bool = False) -> None:
        """Look into the inbox, where something may have come; `sure`: it has."""
        self.attempt.inbox.notice(sure=sure)

    def notice_after(self, count: int) -> None:
        """Look into the inbox if more came than this attempt has seen."""
        if count > self.attempt.inbox.seen:
            self.attempt.inbox.notice()

    def stopped(self) -> None:
        """Look whether the run is still ours: it was stopped in the store."""
        self.attempt.control.look_for_owner()

    # How it fares

    @property
    def leaves(self) -> bool:
        """Is it on its way out of memory?"""
        return self.attempt.life.closing is not None

    @property
    def left(self) -> Transition | None:
        """The status in which it was left: parked, paused or finished; None: neither."""
        return self.attempt.life.left

    @property
    def unfit(self) -> str:
        """The reason why its records do not fit this code, if it left because of that."""
        return self.attempt.life.unfit

    @property
    def progressed(self) -> bool:
        """Did this attempt add an outcome to the journal?"""
        return self.attempt.pen.new_outcomes > 0

    @property
    def awaits_signal(self) -> bool:
        """Does a call wait for what comes from outside?"""
        return any(wait.token is not None for wait in self.attempt.parking.waits.values())

    @property
    def is_live(self) -> bool:
        """Is it past all that was recorded, so that bodies run?"""
        return self.attempt.life.live

    @property
    def is_writing(self) -> bool:
        """Is a write on its way to the store?"""
        return self.attempt.pen.unacked > 0

    @property
    def is_idle(self) -> bool:
        """Does nothing move, so that only what comes from outside or a time that comes makes it go on?"""
        attempt = self.attempt
        busy = attempt.bodies.driving or attempt.pen.unacked or attempt.journal.ready or attempt.bodies.holding
        # While the gate pumps it may be about to leave memory.
        return attempt.life.live and attempt.tasks.resting and not attempt.tasks.gate.pumping and not busy

    @property
    def is_leaving_soon(self) -> bool:
        """Does it leave memory after a grace, because it only waits?"""
        return self.attempt.parking.timer is not None

    @property
    def moves(self) -> tuple[object, ...]:
        """A value that differs once the run has moved."""
        attempt = self.attempt
        return self.run.id, self.run.lease_epoch, attempt.tasks.activity, attempt.pen.next_seq, attempt.pen.unacked

    @property
    def bodies(self) -> int:
        """Count the bodies that run now."""
        return self.attempt.bodies.running

    def open_calls(self) -> Iterator[OpenBody]:
        """List the steps whose bodies run now."""
        attempt = self.attempt
        for key, call in list(attempt.calls.items()):
            began = call.body_began_at
            if began and not call.numbered and key not in attempt.parking.waits:
                yield OpenBody(key, call.name, call.preview, call.body_attempt, began)

    def asked(self, key: str) -> Asked:
        """Return what identifies an open call, for a host that answers instead of the call's body."""
        call = self.attempt.calls[key]
        return Asked(key, call.name, call.preview, call.digest, call.weigh(), call.thin())

    @contextmanager
    def dozing(self) -> Iterator[None]:
        """Count a body as one that waits for its time, for as long as a block lasts."""
        self.attempt.bodies.doze(1)
        try:
            yield
        finally:
            self.attempt.bodies.doze(-1)

    def drives(self, task: asyncio.Task[Any] | None) -> bool:
        """Is this the task of one of its bodies?"""
        return task in self.attempt.bodies.drivers

    @property
    def waits(self) -> Wait | None:
        """Say what it waits for, and until when, if it only waits."""
        return self.attempt.parking.resting if self.attempt.life.live else None

    @property
    def unended(self) -> int:
        """Count its tasks, and the work beside them, that have not ended and are not asleep for ever."""
        return sum(not task.stirring.asleep for task in self.attempt.tasks.alive) + len(self.attempt.bodies.drivers)

    # Taking it out of memory

    async def drain(self) -> None:
        """Let the bodies that run end, begin nothing new, and leave memory: all that was recorded is in the store then."""
        await self.attempt.parking.drain()
        self.attempt.life.close("released")

    def pause(self, reason: str) -> None:
        """Stop it here; only a person or other code makes it go on."""
        self.attempt.pause(reason)

    def hold(self) -> None:
        """Begin no more bodies: the run is about to be released."""
        self.attempt.bodies.hold("releasing")

    async def release(self, grace_s: float) -> None:
        """Give the run back at its next safe point, at the latest after the grace."""
        await self.attempt.parking.release(grace_s)

    def abandon(self) -> None:
        """Drop it as a killed process would: nothing is given back."""
        self.attempt.life.close("lost")

    async def put_away(self) -> None:
        """Write that the run is paused, if it left with bodies that were stopped for that."""
        if self.attempt.control.is_put_away:
            await self.attempt.unwound()
            await self.attempt.control.put_away()

    async def unwound(self) -> None:
        """Wait a little for its tasks to end; the host keeps the tasks that do not."""
        await self.attempt.unwound()
