"""Control of a run: pause, resume and cancel, as its owner carries them out; and how a run ends.

Look here when a run does not stop when it is asked to, or stops in the wrong place.

Pause concerns the agent's code not at all: nothing new begins, running bodies end and are recorded, and the run leaves
memory as `paused`. The request is in the journal (`run.pausing`) from the moment it is taken from the inbox, so that it
outlives its owner whatever else arrives; all that has arrived is taken in before the run is paused. If it is to be paused now,
bodies are stopped as when their worker stops, and are in doubt as after a crash. A resume that comes before the run has been
paused is a signal too (`run.resumed`), which calls the request off.

Cancel reaches the code as `asyncio.CancelledError` in its root task, at a fixed place of its history. `run.cancelling` is
the request; the children are told first and end first; `run.unwinding` is the moment the agent is told. Nothing that the agent
asks for in between begins: a decision or a message that came behind the request may reach its code, and has no effect. A call that
the agent still waits for when it has been told begins then. It may tidy up with further steps until the grace is over. Then, or at
a second request, the run ends whatever its code does.

A run that is asked to stop does not pause any more: a paused run could not tidy up.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from holdfast.engine.bodies import STOP, Bodies
from holdfast.engine.host import Host
from holdfast.engine.inbox import Inbox
from holdfast.engine.journal import Journal
from holdfast.engine.life import Life
from holdfast.engine.loop import Tasks
from holdfast.engine.parking import Parking, Wait
from holdfast.engine.recorder import Recorder
from holdfast.errors import LeaseLost, RunFinished, StoreUnavailable, UnknownRun
from holdfast.store.appends import Append, InboxMoved, Transition
from holdfast.words.clock import Timer
from holdfast.words.model import Event, Signal

_GRACE = "run.cancelling"  # the key under which the end of the grace is waited for
REQUESTS = ("run.cancelling", "run.unwinding")


class Control:
    """Requests to one run to pause, to stop or to be put away, and how far each is."""

    __slots__ = (
        "_asked", "_bodies", "_childless", "_ends_now", "_grace_timer", "_host", "_inbox", "_journal", "_life", "_mailbox",
        "_parking", "_pausing", "_pen", "_seeing_off", "_stopping", "_tasks", "cancelling", "unwinding",
    )  # fmt: skip

    def __init__(
        self, life: Life, host: Host, journal: Journal, pen: Recorder, bodies: Bodies, tasks: Tasks, inbox: Inbox,
        parking: Parking,
    ) -> None:  # fmt: skip
        self._life, self._host, self._journal, self._pen, self._bodies = life, host, journal, pen, bodies
        self._tasks, self._inbox, self._mailbox, self._parking = tasks, inbox, inbox.mailbox, parking
        self._pausing: dict[str, Any] | None = None  # the pause that was asked for: by whom, and why
        self._stopping = False  # it was asked to stop, although the agent's code may not have come so far yet
        self._asked: dict[str, Any] | None = None  # the first request to stop that this owner took in
        self.cancelling: dict[str, Any] | None = None  # asked to stop: by whom, why, and until when it may tidy up
        self.unwinding = False  # the agent was told
        self._seeing_off = self._childless = False  # all below it are being seen off; have ended
        self._ends_now = False  # it was asked for twice
        self._grace_timer: Timer | None = None

    def disarm(self) -> None:
        """Take the timer back."""
        if self._grace_timer is not None:
            self._grace_timer.cancel()

    # Requests, as they come from the inbox

    def requested(self, signal: Signal) -> None:
        """Take a request in."""
        if signal.kind == "run.pausing":
            self._asked_to_pause(signal)
        elif signal.kind == "run.resumed":
            self._asked_to_resume(signal)
        else:
            self._asked_to_stop(signal)

    def _asked_to_pause(self, signal: Signal) -> None:
        """The only request that leaves no trace for replay."""
        if signal.data and not self._stopping:  # else it is over: the run was resumed since, or is to stop
            self._pen.record(signal.kind, None, signal.data, inbox_seen=signal.position)
            self._pause_for(signal.data)

    def _asked_to_resume(self, signal: Signal) -> None:
        if self._pausing is not None and self._pausing.get("request") in signal.data["requests"]:
            resumed = {"by": signal.data["by"], "cut": None}
            self._pen.record(signal.kind, None, resumed, inbox_seen=signal.position)
            self._stay()

    def _asked_to_stop(self, signal: Signal) -> None:
        data = signal.recorded()
        if data is None:
            return
        # A second request ends the run as soon as it is recorded: code that never waits would not let it through.
        ends = (lambda _: self._end()) if self._stopping else None
        self._asked = self._asked or data
        self._pen.record(signal.kind, None, data, signal.value, inbox_seen=signal.position, then=ends)
        self._is_stopping()
        if self._pausing is not None:
            self._stay()

    def _is_stopping(self) -> None:
        self._stopping = True
        self._inbox.look_at_each()

    def look_ahead(self) -> None:
        """Hold everything back if the run, which goes live, is to pause."""
        if self._journal.pausing is not None:
            self._pause_for(self._journal.pausing.data)  # its owner died before it could
        elif any(signal.kind == "run.pausing" and signal.data for signal in self._inbox.signals) and not self._stopping:
            self._bodies.hold("pausing")

    def look_back(self) -> None:
        """All that came before is taken in."""
        if self._pausing is None and self._bodies.holding:
            self._bodies.allow("pausing")  # a request to stop came before that to pause
        self.go_on()

    # Pausing

    def _pause_for(self, request: dict[str, Any]) -> None:
        """Pause the run as a request asks. Of several requests the nearest holds it: its own, then its parent's."""
        before = self._pausing
        if before is None:
            self._pausing = request
            self._bodies.hold("pausing")
            _ = self._bodies.start(self._pause)
            return
        nearest = request if request.get("depth", 0) <= before.get("depth", 0) else before
        self._pausing = nearest | {"now": before.get("now") or request.get("now")}
        self._pen.progress.set()

    def _stay(self) -> None:
        """Go on: the run is not to be paused any more."""
        self._pausing = None
        self._pen.progress.set()
        self._bodies.allow("pausing")

    def _quiet(self) -> bool:
        if self._pausing is None or not (self._bodies.running or self._pen.unacked):
            return True
        return bool(self._pausing.get("now")) and not self._bodies.unstoppable

    async def _pause(self) -> None:
        life, pen = self._life, self._pen
        while True:
            await pen.until(self._quiet)
            request = self._pausing
            if life.closing or request is None:
                return
            if self._bodies.running:
                pen.outflow.flush()  # what they have written to streams stays
                life.leaves(self._paused(request))
                life.close("paused")  # and stops them; `put_away` says so in the journal
                return
            seq = pen.next_seq
            try:
                await self._host.store.append(self._pausing_append(request))
            except InboxMoved:
                self._inbox.notice()
                await pen.until(lambda: self._inbox.idle)
            except (LeaseLost, StoreUnavailable):
                if pen.next_seq == seq:  # else something was recorded meanwhile, and it is tried again behind that
                    life.close("lost")
                    return
            else:
                self._pausing = None  # it is written
                life.close("paused")
                return

    def _paused(self, request: dict[str, Any]) -> Transition:
        return Transition("paused", reason=_said(request, "paused"), inbox_seen=self._inbox.seen)

    def _pausing_append(self, request: dict[str, Any]) -> Append:
        """The write that pauses a run: the event keeps the name of the request, by which a resume of the family knows it."""
        data = {name: value for name, value in request.items() if name != "now"}
        event, run = Event(self._pen.next_seq, "run.paused", None, data), self._life.run
        paused = self._life.leaves(self._paused(request))
        return Append(run.id, run.lease_epoch, event.seq, [event], inbox_seen=self._inbox.seen, transition=paused)

    async def put_away(self) -> None:
        """The run left memory with bodies that were stopped because it is to be paused now: write that, once they have ended.

        If something came in between (it may be a cancel), the run is given back instead: the next owner finds the request in
        the journal, and pauses it when all that came is taken in.
        """
        request, store = self._pausing, self._host.store
        if not self.is_put_away or request is None:
            return
        await self._pen.let_through()  # a commit that is on its way
        append = self._pausing_append(request)
        try:
            await store.append(append)
        except InboxMoved:
            run = self._life.run
            await store.append(Append(run.id, run.lease_epoch, append.expected_seq, transition=Transition("ready")))
        except LeaseLost:
            pass

    @property
    def is_put_away(self) -> bool:
        """Did the run leave memory with bodies that were stopped because it is to be paused now?"""
        return self._life.closing == "paused" and self._pausing is not None and bool(self._pausing.get("now"))

    # Stopping

    def deliver(self, event: Event) -> None:
        """A request has its place in the history, or the agent is told of it."""
        if event.kind == "run.unwinding":
            self.unwinding, self._childless = True, False  # it may start children again, to tidy up
            if self._tasks.root is not None:
                self._tasks.root.cancel()
            return
        self._is_stopping()
        if self.cancelling is None:
            self._cancel_for(event.data)
        else:
            self._ends_now = True
        if self._life.live:
            self.go_on()

    def _cancel_for(self, request: dict[str, Any]) -> None:
        """Stop the run as a request asks. Until the agent is told nothing new begins: all children there are have been counted."""
        self.cancelling = request
        if not self.unwinding:
            self._bodies.hold(STOP)

    def begin_postponed(self) -> None:
        """The agent was told, and the run has settled since: what it still waits for begins."""
        if self._bodies.stopping:
            self._bodies.allow(STOP)

    def go_on(self) -> None:
        """Live, and asked to stop: see to all below it and to the end of the grace."""
        if self.cancelling is None or self._life.closing:
            return
        if self._ends_now:
            self._end()
            return
        until, waits = self.cancelling["until"], self._parking.waits
        if _GRACE not in waits:
            waits[_GRACE] = Wait("timer", until)
            outside = self._life.outside
            self._grace_timer = self._host.clock.call_at(until, lambda: outside.run(self._end))
            if not self.unwinding:
                self._begin_seeing_off()

    def sees_off(self) -> bool:
        """Asked to stop, the agent has ended: that counts once all below it have ended, also what it has left behind."""
        if self.cancelling is None or self._childless:
            return False
        if _GRACE not in self._parking.waits:
            self.go_on()
            self._inbox.notice()  # a run that ends on replay has not looked
        self._begin_seeing_off()
        return True

    def _begin_seeing_off(self) -> None:
        if not (self._seeing_off or self._life.closing or self._life.finishing):
            self._seeing_off = True
            _ = self._bodies.start(self._see_off)

    async def _see_off(self) -> None:
        """Tell all below the run to stop, and wait for their ends; then the agent is told, or may end."""
        life, pen, ended = self._life, self._pen, self._mailbox.ended
        while True:
            await pen.until(lambda: not pen.unacked)  # a child that was just started is in the store
            known = dict(ended)
            open_ones = await self._pass_on()
            if life.closing or not open_ones:
                break
            for child in open_ones:
                if ended.get(child) is known.get(child):  # else it has ended since it was looked
                    await self._child_ended(child)
        self._seeing_off = False
        if life.closing:
            return
        self._childless = True
        if self._tasks.root is not None and self._tasks.root.done():
            self._tasks.gate.kick()  # it has ended, and that may count now
            return
        assert self.cancelling is not None
        pen.record("run.unwinding", None, {"by": self.cancelling["by"], "reason": self.cancelling["reason"]})

    async def _pass_on(self) -> list[str]:
        """Tell the nearest unfinished runs below what this run was told; returns which these are."""
        request, run, store = self.cancelling, self._life.run, self._host.store
        assert request is not None
        grace_ms = max(0, request["until"] - self._host.clock.now())
        open_ones = await store.open_below(run.id)
        for child in open_ones:
            with contextlib.suppress(RunFinished, UnknownRun):
                await store.cancel(
                    child, by=f"run {run.id}", reason=request["reason"], grace_ms=grace_ms, request=f"cancel:{run.uid}",
                    insist=False,
                )  # fmt: skip
        return open_ones

    async def _child_ended(self, child: str) -> None:
        """Wait for the end of a child; the run may leave memory meanwhile."""
        token, ended = f"child:{child}", self._life.loop.create_future()
        self._mailbox.wait("child", child, ended)
        with self._parking.asleep(token, Wait("child", None, token)):
            await ended

    # Ending

    def _end(self) -> None:
        """End the run, and all below it, although its code has not ended: the grace is over, or it was asked for twice."""
        if not self._life.closing and self._life.live:
            self.finish("cancelled", None, None)

    def finish(self, status: str, text: str | None, error: dict[str, Any] | None) -> None:
        """Record how the run ended; it leaves memory once that is durable."""
        if self._life.finishing:
            return
        transition = self._life.finish(
            Transition(status, result=text, error=None if error is None else json.dumps(error))
        )
        data: dict[str, Any] = {} if error is None else {"error": error}
        # Several requests that are taken in at once end the run before the first has its place in the history.
        asked = self.cancelling or (self._asked if status == "cancelled" else None)
        if asked is not None:
            transition.ends_below = asked["reason"]
            if status == "cancelled":
                data = {"by": asked["by"], "reason": asked["reason"]}
                transition.reason = _said(data, "cancelled")
        self._bodies.hold("ending")
        self._pen.record(f"run.{status}", None, data, transition=transition, then=lambda _: self._life.close("ended"))

    def look_for_owner(self) -> None:
        """Look whether this process still has the run, which was stopped, perhaps by another process."""

        async def look() -> None:
            run = self._life.run
            row = await self._host.store.run(run.id)
            if row is None or row.lease_epoch != run.lease_epoch:
                self._life.close("lost")

        if not (self._life.closing or self._life.finishing):
            _ = self._bodies.start(look)

    # Checkpoints

    def carried(self) -> dict[str, Any] | None:
        """The part of a request to stop that a checkpoint keeps."""
        return None if self.cancelling is None else {**self.cancelling, "unwinding": self.unwinding}

    def restore(self, kept: dict[str, Any] | None) -> None:
        """Go on with a request to stop that the checkpoint kept."""
        if kept is not None:
            self.unwinding = kept["unwinding"]
            self._cancel_for(kept)
            self._is_stopping()


def _said(request: dict[str, Any], what: str) -> str:
    """A request in words: what was done, by whom and why."""
    by, reason = request["by"], request["reason"]
    return f"{what} by {by or 'somebody'}" + (f": {reason}" if reason else "")
