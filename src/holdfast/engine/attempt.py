"""One attempt at one run: the calls that its agent has open, and the parts that carry them out.

The life of a call: asked (its key is claimed in the journal) -> begun (only once every recorded outcome is through) ->
numbered (its outcome has a place in the journal) -> durable -> settled (delivered through the gate). A waiter that is
cancelled withdraws the call; once numbered, the outcome is delivered to nobody and nothing more is recorded.

Replay. Recorded outcomes are delivered in order, each when the run has settled; no body starts and nothing is written
until the last one is through and the run has settled once more. That moment is the edge (`reach_edge`): what the journal holds
and the code did not ask for is a divergence, found before any effect. Then unanswered calls begin, in the order asked.

Live. A call begins when asked. Its outcome is numbered (`pen.record`), becomes durable, and is delivered in that order.

`deliver_next` is the only way by which an outcome reaches the agent. It is called when the run has settled (`execute.Loop`);
and at once when the run has one task and that waits for what comes, because then the run has settled the moment it waits.

Each part owns its state, and only its module assigns it. Parts import nothing from here; calls and verbs of the engine do.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, Protocol

from holdfast.engine.bodies import Bodies
from holdfast.engine.control import REQUESTS, Control
from holdfast.engine.host import Ended, Host
from holdfast.engine.identity import Identity
from holdfast.engine.inbox import Inbox
from holdfast.engine.inputs import Inputs
from holdfast.engine.journal import Divergence, Journal, arrives
from holdfast.engine.life import Life, Living
from holdfast.engine.loop import Carrying, GateFuture, Tasks
from holdfast.engine.parking import Parking
from holdfast.engine.patches import Patches
from holdfast.engine.recorder import Receipt, Recorder
from holdfast.engine.streams import Streams
from holdfast.engine.talks import Talking, Talks
from holdfast.engine.unrecorded import Unrecorded
from holdfast.errors import NotStorable, Suspended
from holdfast.runtime import AgentSpec, Durable, Placed, RunFacts, _here, outside
from holdfast.store.appends import Append, Transition
from holdfast.store.runs import Origin
from holdfast.values.codec import Migrate, Shape
from holdfast.values.deltas import Chain
from holdfast.words.clock import Timer
from holdfast.words.harmless import logger
from holdfast.words.model import KINDS, Event, RunRow, Signal
from holdfast.words.overrides import Override, active, enter
from holdfast.words.salvage import Reason

_log = logger("holdfast")
_UNWIND_S = 1.0
_UNWIND_TURNS = 3  # of the loop, in which nearly every task has ended: for these it takes no timer
_AT_ONCE = 50  # messages at least that leave the inbox by one write
_IDENTIFIES = frozenset({"name", "digest", "input", "asked", "whole_digest", "lean_digest", "inputs", "worker"})


class Site(Protocol):
    """The place of a call: one task of a run, or one named block of it. It hands out keys in program order."""

    attempt: Attempt
    path: str
    named: str

    def key(self, label: str) -> str: ...
    def rename(self, path: str) -> None:
        """Go on as the task of this path."""
        ...


class Guard(Protocol):
    """A check of every step before its body begins: the budget, or the watch for loops."""

    async def let_in(self, call: Any) -> Exception | None:
        """Wait until a body of the call may begin; or why it may not."""

    def saw(self, event: Event) -> None:
        """The outcome of a step was delivered."""

    def landed(self, call: Any) -> None:
        """An event that ends an attempt of the call is in the store."""

    def begin_era(self) -> None:
        """The agent has taken a checkpoint, or goes on from one."""


class Former(Protocol):
    """The past that a run went back from, as its calls look at it."""

    replaced: dict[str, str]
    said: dict[str, int]

    async def settle(self, call: Any) -> Ended: ...
    def fits(self, attempt: Attempt, shape: Shape, key: str, text: str) -> bool: ...
    def anew(self, key: str, digest: str) -> int | None: ...
    def child(self, key: str, digest: str, copies: list[list[Any]]) -> Origin | None: ...
    def carried(self) -> dict[str, Any]: ...


class Owner(Carrying, Living, Talking, Protocol):
    """The owner of an attempt, which carries it from outcome to outcome."""


class Kept:
    """Choices that agent code has made so far, and facts it was told. A checkpoint carries most of them."""

    __slots__ = (
        "asked_any",
        "choices",
        "former",
        "letters",
        "means",
        "overrides",
        "plan",
        "released",
        "shape",
        "stored",
    )

    def __init__(self) -> None:
        self.asked_any = False  # the agent has made a durable call
        self.shape: Shape | None = None  # of its state, from `restore` on
        self.stored: Chain | None = (
            None  # its state at the last checkpoint, if the next one may be told by what changed
        )
        self.letters: Sequence[Event] = ()  # messages that the checkpoint names, until the agent goes on from it
        self.released = 0  # up to here messages have left the inbox
        self.plan: Sequence[list[Any]] = ()
        self.choices: dict[str, Any] = {}
        self.means: dict[str, Any] = {}  # what is left of the budgets that hold, as the agent knows it
        self.overrides: tuple[Override, ...] = ()  # the overrides that held when the code began
        self.former: Former | None = None  # what was done behind the point to which the run went back, if it did

    def ask(self) -> None:
        self.asked_any = True

    def has_state(self, shape: Shape) -> None:
        self.shape = shape

    def stores(self, stored: Chain) -> None:
        self.stored = stored

    def recall(self, letters: Sequence[Event]) -> None:
        self.letters = letters

    def release(self, position: int) -> tuple[int, int] | None:
        """Have messages up to this position leave the inbox: from where to where that is new; None as long as it is little."""
        if position - self.released < _AT_ONCE:
            return None
        before, self.released = self.released, position
        return before, position

    def plans(self, items: list[list[Any]]) -> None:
        self.plan = items

    def remember(self, former: Former) -> None:
        """The run went back to an earlier point."""
        self.former = former

    def has_left(self, means: dict[str, Any]) -> None:
        self.means = means

    def carried(self) -> dict[str, Any]:
        """Return what a checkpoint carries."""
        kept = {"plan": self.plan, "choices": dict(self.choices), "means": self.means, "released": self.released}
        return {name: value for name, value in kept.items() if value}

    def restore(self, kept: dict[str, Any]) -> None:
        """Take over what a checkpoint carries."""
        self.plan, self.choices = kept.get("plan", ()), dict(kept.get("choices", {}))
        self.means = kept.get("means", self.means)
        self.released = kept.get("released", 0)


class Attempt:
    """One attempt at one run. Verbs come in through `Scope`; outcomes go out through the gate."""

    __slots__ = (
        "__weakref__", "_arrivals", "_facts", "_patches", "_streams", "_waited", "bodies", "calls", "control", "edge_due",
        "guards", "host", "identity", "inbox", "journal", "kept", "life", "parking", "pen", "spec", "talks", "tasks",
        "unawaited", "unrecorded",
    )  # fmt: skip

    def __init__(
        self, host: Host, run: RunRow, spec: AgentSpec, journal: Journal, signals: Sequence[Signal], owner: Owner,
        arrivals: Mapping[str, Callable[[Attempt, Event], None]],
    ) -> None:  # fmt: skip
        self.host, self.spec, self.journal = host, spec, journal
        self._arrivals = arrivals  # by kind of event, the function that takes it
        self._waited = bool(signals) and run.lease_epoch > 1
        self._facts: RunFacts | None = None
        self.calls: dict[str, Call] = {}
        self.unawaited: dict[int, Durable[Any]] = {}
        self.edge_due: list[tuple[int, int, Callable[[], None]]] | None = (
            None  # while it goes live: what is due already
        )
        self.guards: tuple[Guard, ...] = ()
        self.kept = Kept()
        self.life = life = Life(run, asyncio.get_running_loop(), outside(), owner)
        forks = [wind for wind in journal.winds if wind.kind == "run.forked"]
        self.identity = Identity(run, forks[0].data["was"] if forks else None)
        self.tasks = tasks = Tasks(life, host, self.identity, owner)
        inputs = Inputs(journal, run, host, spec.inputs)
        self.pen = pen = Recorder(life, host, self, journal.numbered, inputs)
        self.bodies = bodies = Bodies(life, host, pen, tasks, self)
        self.inbox = inbox = Inbox(life, host, journal, pen, bodies, tasks, signals, self)
        self.unrecorded = Unrecorded(life, host, journal, pen, bodies, tasks)
        self.parking = Parking(life, host, journal, pen, bodies, tasks, inbox, self.unrecorded, self)
        self.control = Control(life, host, journal, pen, bodies, tasks, inbox, self.parking)
        self.talks = Talks(journal, self.identity, pen, bodies, inbox.mailbox, self.parking, owner)
        self._patches: Patches | None = None  # until the agent asks
        self._streams: Streams | None = None  # until somebody writes, or looks at what was written

    @property
    def run(self) -> RunRow:
        return self.life.run

    @property
    def patches(self) -> Patches:
        if self._patches is None:
            self._patches = Patches(self.life, self.host, self.journal, self.pen)
        return self._patches

    @property
    def streams(self) -> Streams:
        if self._streams is None:
            self._streams = Streams(self.life.run, self.host, self.pen.outflow, self.calls)
        return self._streams

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start the agent's code from its first line."""
        context, run = contextvars.copy_context(), self.life.run
        enter(self.host.overrides(run.root_id or run.id), context)
        self.kept.overrides = context.run(active)
        self.tasks.start(self.spec.fn(*args, **kwargs), context)

    def guard_by(self, guard: Guard, *, first: bool = False) -> None:
        """Add a guard that checks every step, after the guards already there, or before them."""
        self.guards = (guard, *self.guards) if first else (*self.guards, guard)

    # Asking

    def offered(self, name: str, begin: Callable[[], Generator[Any, Any, Any]]) -> Durable[Any]:
        """A durable call that now has its identity; the agent must await it."""
        number = self.identity.next_call()
        call = self.unawaited[number] = Durable(name, begin, number, self.unawaited)
        return call

    def enter(self, call: Call | None) -> Generator[Any, Any, None]:
        """Enter a verb: refused if the run is leaving, and a divergence if it should have been `restore` (None)."""
        if call is not None and not self.life.closing:
            self.kept.ask()
            if self.journal.awaits_restore:
                self._before_restore(call)
        if self.life.closing:
            yield from self.tasks.refusal()

    def _before_restore(self, call: Call) -> None:
        assert self.journal.checkpoint is not None
        found = f"the agent called {call.name}({call.preview}) before restore()"
        self.diverge(Divergence.of(self.journal.checkpoint), found)

    def asks(self, call: Call) -> None:
        """Claim the call in the journal, and begin it if the run is live."""
        if self.life.closing:
            return
        journal = self.journal
        self.kept.asked_any = True
        if journal.checkpoint is not None and not journal.restored:
            self._before_restore(call)
            return
        divergence = journal.claim(call.key, call.name, call.digest, call.of)
        if divergence is not None and not call.is_of(divergence):
            self.diverge(divergence, divergence.found(call.name, call.preview, call.of, call.question))
            return
        call.asked = journal.delivered
        self.calls[call.key] = call
        self.tasks.asked()
        if self.life.live and (self.bodies.may_begin.up or self._may_begin(call)):
            self._begin(call)

    def _may_begin(self, call: Call) -> bool:
        return not self.bodies.holding and not self._waits_for_long(call)

    def _waits_for_long(self, call: Call) -> bool:
        return self.bodies.stopping or (self.bodies.out_of_turn and call.needs_turn())

    def _begin(self, call: Call) -> None:
        call.begun = True
        token = _here.set(None)  # what begins here (timers, drivers) is ours, not the agent's
        try:
            call.begin()
        finally:
            _here.reset(token)

    def begin_asked(self) -> None:
        """Begin calls that were made while a reason, which is over now, held the run back."""
        for call in list(self.calls.values()):
            if self.life.live and not call.begun and not call.withdrawn and self._may_begin(call):
                self._begin(call)
        self.tasks.gate.kick()

    def all_begun(self) -> bool:
        """Has every call begun that need not wait until the run has its conversations again, or the agent is told to stop?"""
        return all(call.begun or self._waits_for_long(call) for call in self.calls.values())

    def rest(self, call: Call) -> Generator[Any, Any, Event]:
        """Wait until the gate has delivered the call's outcome.

        With one live task the run has settled the moment that task waits, so nothing needs to be counted: a recorded
        outcome is handed over at once (with one turn of the loop, so that others get theirs).
        """
        future, tasks = call.future, self.tasks
        if tasks.alone:
            if not self.life.live or self.journal.ready:
                self._hurry(future)
            if future.done():
                return self._handed(future)
            if self.life.closing:
                return tasks.refusal()
            tasks.rest()
            nothing_comes = self.journal.ready or not (self.bodies.drivers or self.pen.unacked)
            (tasks.gate.kick if nothing_comes else tasks.gate.cease)()
        else:
            tasks.gate.kick()
        return future.__await__()

    def _handed(self, outcome: asyncio.Future[Event]) -> Generator[Any, Any, Event]:
        """Let others have their turn of the loop before the agent goes on with an outcome that was there at once."""
        yield
        if self.life.closing:
            yield from self.tasks.refusal()
        return outcome.result()

    def withdraw(self, call: Call) -> None:
        """Stop a call whose waiter is gone, if its outcome has no number yet; afterwards this changes nothing."""
        if self.life.closing or call.settled or call.withdrawn:
            return
        call.withdrawn = True
        if not call.numbered and call.key not in self.journal.closed:
            self.calls.pop(call.key, None)
            with Placed(None):
                (call.abandon if call.begun else call.forsake)()
        self.tasks.gate.kick()

    def drop(self, call: Call) -> None:
        """A call whose outcome is an arrival is over."""
        self.calls.pop(call.key, None)
        self.parking.waits.pop(call.key, None)

    # Delivering

    def deliver_next(self, awaited: asyncio.Future[Any] | None = None) -> bool:
        """Deliver the outcome that is next; False if there is none, or it cannot be delivered yet."""
        event = self.journal.next()
        if event is None or not self._deliver(event, awaited):
            return False
        self.journal.move_on()
        return True

    def _hurry(self, awaited: asyncio.Future[Any]) -> None:
        """Deliver what can be delivered to the only task there is, while it waits for this at the gate."""
        while not awaited.done() and not self.life.closing:
            if not self.deliver_next(awaited):
                if self.life.live or self.journal.next() is not None:
                    return
                with Placed(None):
                    self.reach_edge()

    def landed(self, event: Event) -> None:
        """An outcome is durable: it waits for its turn. The only task there is, when it is at rest, need not wait at all."""
        journal, tasks = self.journal, self.tasks
        first = not journal.ready
        if first:
            awaited = tasks.awaited
            if awaited is not None and self._deliver(event, awaited):
                if not awaited.done():
                    tasks.gate.kick()  # what wakes nobody leaves it to the run to come to rest again
                return
            if tasks.never_settle and event.kind in REQUESTS and self._deliver(event):
                tasks.gate.kick()
                return
            tasks.gate.awaited()
        journal.land(event)
        tasks.gate.kick()

    def _deliver(self, event: Event, awaited: asyncio.Future[Any] | None = None) -> bool:
        """Hand one outcome to the agent: the only way by which one reaches it. False when it cannot be handed over yet.

        On replay it cannot if nobody has asked for it. `awaited`: the run was not seen to settle, but its only task waits for
        this. Then only what that task waits for is delivered, what nobody waits for any more, and what arrives.
        """
        call = self.calls.get(event.key or "")
        others = awaited is not None and (call is None or call.future is not awaited)
        if others and not arrives(event) and (call is None or not call.withdrawn):
            return False
        takes = self._arrivals.get(event.kind)
        if takes is None and (call is None or (event.kind == "step.cancelled" and not call.withdrawn)):
            if not self.life.live:
                return False
            call = None  # nobody is left to take it
        self.pen.undelivered.pop(event.seq, None)
        self.journal.saw(event)
        self.tasks.stir()
        token = _here.set(None)  # a timer that is set here is ours, though the agent may run
        try:
            if takes is not None:
                takes(self, event)
            elif call is not None:
                del self.calls[event.key or ""]  # one call may take the outcomes of several keys
                call.settled = True
                call.settle(event)
        finally:
            _here.reset(token)
        return True

    def passed(self, event: Event) -> None:
        """The outcome that is next was taken without the call that it belongs to."""
        self.journal.move_on()
        del self.calls[event.key or ""]
        self.pen.undelivered.pop(event.seq, None)
        self.journal.saw(event)
        self.tasks.stir()

    def saw_step(self, event: Event) -> None:
        """Note the delivered outcome of a step: what is left of budgets is known, and that the step was made."""
        means = event.data.get("left")
        if means is not None:
            self.kept.has_left(means)
        for guard in self.guards:
            guard.saw(event)

    def pass_over(self) -> None:
        """Pass over recorded outcomes that no task waited for any more the first time: the agent has ended."""
        while (event := self.journal.next()) is not None:
            call = self.calls.get(event.key or "")
            if not KINDS[event.kind].arrives and (call is None or not call.withdrawn):
                return
            self._deliver(event)
            self.journal.move_on()

    def end_streams(self, call: Call, *, well: bool = True, reason: Reason | None = None) -> None:
        """A step has an outcome: the streams that it wrote to end."""
        if self._streams is not None:
            self._streams.over(call.key, well=well, reason=reason)

    def rested(self) -> None:
        """A write is durable that is no outcome."""
        self.bodies.rested()

    # The edge

    def reach_edge(self) -> None:
        """Go live: every recorded outcome is delivered and the run has settled, so from here on the run acts."""
        left_over = self.journal.left_over()
        if left_over is not None:
            self.diverge(left_over, "the code did not ask for it" + self.asks_instead() + self.unrecorded.where())
            return
        self.life.go_live()
        if self.life.closing:
            return  # it was only to come so far
        pending = self.edge_due = []
        self.control.look_ahead()
        for call in list(self.calls.values()):
            if not (call.begun or call.withdrawn) and self._may_begin(call):
                self._begin(call)
        # What was pending while nobody looked comes in the order of its own times; signals in the order in which they came.
        if self.inbox.signals:
            signals = self.inbox.take_signals()
            times = accumulate((signal.sent_at for signal in signals), max)  # senders' clocks differ
            pending += [(at, n, partial(self.inbox.arrive, signals[n])) for n, at in enumerate(times)]
        self.edge_due = None
        for _, _, happen in sorted(pending, key=lambda entry: entry[:2]):
            happen()
        self.control.look_back()
        self.inbox.look()

    def write_found(self) -> None:
        """The run is live: write, before anything else, what was found out on the way."""
        if self._patches is not None:
            self._patches.write()
        self.unrecorded.write()

    def arm(self, due: int, fire: Callable[[], None]) -> Timer | None:
        """Have a durable timer fire at its time; one that is due at the edge fires in the order of due times."""
        clock = self.host.clock
        if self.edge_due is not None and due <= clock.now():
            self.edge_due.append((due, len(self.edge_due), fire))
            return None
        return clock.call_at(due, fire)

    # When code and journal do not fit: the run is paused with the reason, before any effect and without a write to its
    # journal. It is never raised into the agent, which could catch it and act upon it.

    def diverge(self, divergence: Divergence, found: str) -> None:
        """Pause the run, because the code does not fit its journal."""
        self.life.diverges(divergence, found)
        self.pause(f"NondeterminismError: {divergence.told(self.run.id, found)}")

    def pause(self, reason: str) -> None:
        """Stop here; only a person or other code makes the run go on."""
        if self.life.closing:
            return
        _log.error("%s", reason)
        append = Append(self.run.id, self.run.lease_epoch, self.pen.next_seq)
        append.transition = self.life.leaves(Transition("paused", reason=reason))
        self.pen.write(append, Receipt(self.pen))
        self.life.close("paused")

    def loaded(self, shape: Shape, event: Event, what: str, migrate: Migrate | None = None) -> Any:
        """A recorded value. One that does not fit the code is no exception to be caught and acted upon: the run leaves."""
        try:
            return shape.load(self.pen.text_of(event), migrate=migrate)
        except NotStorable as error:
            self.life.does_not_fit(
                f"NondeterminismError: run {self.run.id!r}: what the journal has under the key {event.key or ''!r}, "
                f"{what}, does not fit its type: {error}. Nothing was done and nothing was written. Bring the "
                "old type back, give new fields a default, or say what became of renamed ones (migrate=), then resume the run",
                event,
            )
            raise Suspended from None

    def asks_instead(self) -> str:
        """The calls that the code makes where it does not do what is recorded, of which the journal knows nothing."""
        journal = self.journal
        new = [call for call in self.calls.values() if call.key not in journal.closed and call.key not in journal.begun]
        told = [f"{call.name}({call.preview}) under the key {call.key!r}" for call in new[:3] if not call.begun]
        more = f" and {len(new) - 3} more" if len(new) > 3 else ""
        return f"; it now calls {', '.join(told)}{more}, which the journal does not have" if told else ""

    def requested(self, signal: Signal) -> None:
        """Pass on a request that the run pause, go on or stop."""
        self.control.requested(signal)

    # Leaving

    def let_go(self) -> None:
        """The run leaves memory: let go of all that would go on."""
        for call in self.calls.values():
            call.let_go()
        self.parking.disarm()
        self.control.disarm()
        self.bodies.stop_all()
        self.tasks.cancel_all()

    async def unwound(self) -> None:
        """Wait a little for the tasks to unwind; what does not end is kept, never left to the garbage collector."""
        loop, tasks, drivers = self.life.loop, self.tasks.alive, self.bodies.drivers
        for _ in range(_UNWIND_TURNS):
            if not (tasks or drivers):
                return
            await asyncio.sleep(0)
        until = loop.time() + _UNWIND_S
        while loop.time() < until:
            awake = {task for task in tasks if not task.stirring.asleep} | drivers
            if not awake:
                break
            await asyncio.wait(awake, timeout=_UNWIND_S / 20)
        for stray in (*tasks, *drivers):
            self.host.keep(stray)

    # Facts

    def renamed(self) -> None:
        """Forget the names of the run, which has other ones from here on."""
        self._facts = None

    def facts(self) -> RunFacts:
        replaying = not self.life.live and self._replaying()
        if self._facts is None or self._facts.replaying != replaying:
            run = self.run
            labels = json.loads(run.labels)
            name, parent, root = self.identity.names
            self._facts = RunFacts(name, run.agent, labels, parent, root, replaying)
        return self._facts

    def _replaying(self) -> bool:
        """Has the code that runs now run before? Past all that is recorded only if the run waited for an arrival."""
        journal = self.journal
        return self._waited or journal.awaits_restore or not journal.exhausted or bool(journal.unclaimed)


class Call:
    """One durable call. Subclasses say how it begins and what its outcome means."""

    of: ClassVar[str] = ""  # its own events are the kinds that begin with this word
    __slots__ = (
        "asked", "attempt", "begun", "digest", "future", "key", "lean", "name", "numbered", "preview", "settled", "tells",
        "whole", "withdrawn",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, key: str, name: str, digest: str, preview: str) -> None:
        self.attempt, self.key, self.name, self.digest, self.preview = attempt, key, name, digest, preview
        self.whole = self.lean = ""  # the other two digests of the input (values/codec.py), if they are others
        self.asked = 0  # how many outcomes the run had seen when this was asked
        self.begun = self.numbered = self.settled = self.withdrawn = False
        self.tells = False  # its next event tells its whole input
        self.future: asyncio.Future[Any] = GateFuture(loop=attempt.life.loop)

    @property
    def question(self) -> str:
        """The text that a person is asked, if one is."""
        return ""

    def ask(self) -> None:
        """The agent waits for this. The run may leave now, because the call diverged: the caller looks whether it does."""
        self.attempt.asks(self)

    def wait(self) -> Generator[Any, Any, Any]:
        """Ask, and wait for the outcome."""
        attempt = self.attempt
        self.ask()
        if attempt.life.closing:
            yield from attempt.tasks.refusal()
        try:
            event = yield from attempt.rest(self)
        except asyncio.CancelledError:
            attempt.withdraw(self)
            raise
        return self.read(event)

    def begin(self) -> None:
        """Start, now that the run is live."""
        raise NotImplementedError

    def needs_turn(self) -> bool:
        """Must a run that was retried have its conversations again before this begins?"""
        return True

    def settle(self, event: Event) -> None:
        """Take the outcome."""
        if not self.future.done():
            self.future.set_result(event)

    def read(self, event: Event) -> Any:
        """Turn the outcome into what the agent gets."""

    def abandon(self) -> None:
        """The waiter is gone and there is no outcome yet: stop what was begun."""

    def forsake(self) -> None:
        """The waiter is gone while the run is replayed: nothing was begun in this life, but perhaps in an earlier one."""

    def let_go(self) -> None:
        """The run leaves memory: cancel timers."""

    def facts(self, **more: Any) -> dict[str, Any]:
        """The data of an event: what identifies the call, which replay compares, and more under other names."""
        if more and not _IDENTIFIES.isdisjoint(more):
            raise TypeError(f"the data of an event names its call by {', '.join(sorted(_IDENTIFIES))}; use other names")
        data = {"name": self.name, "digest": self.digest, "input": self.preview, "asked": self.asked, **more}
        if self.whole:
            data["whole_digest"] = self.whole
        if self.lean:
            data["lean_digest"] = self.lean
        if self.tells:
            self.tell_inputs(data)
        return data

    def tell_inputs(self, data: dict[str, Any]) -> None:
        """Put the whole input into the data of an event."""

    @property
    def body_began_at(self) -> int:
        """The time at which the body of this call began; 0 if it has none, or none that ran here."""
        return 0

    @property
    def body_attempt(self) -> int:
        """The number of the body's attempt; 0 if there is none."""
        return 0

    def weigh(self) -> str:
        """The digest of the input with all that is at its default."""
        return self.digest

    def thin(self) -> str:
        """The digest of the input with as little as possible of that."""
        return self.digest

    def is_of(self, record: Divergence) -> bool:
        """Is this the call of a record that has another digest? It is if the input is the same with all that is at its default.

        Then a default has become what the code gives, or what it gives was the default. It also is if the input is the same
        with nothing of it but what tells members of unions apart: then a field was added to one. The call keeps the digest that
        it is known by, because its idempotency key is made of that.
        """
        if (record.family, record.name) != (self.of, self.name):
            return False
        if record.whole != self.weigh() and record.lean != self.thin():
            return False
        self.digest, self.whole = record.digest, "" if record.whole == record.digest else record.whole
        self.lean = "" if record.lean == record.digest else record.lean
        return True

    def past(self) -> Sequence[Event]:
        """The events by which the journal says that this call was begun."""
        return self.attempt.journal.begun.get(self.key, ())


def tagged(error: Exception, key: str, seq: int, child: str | None = None) -> Exception:
    """Remember which outcome an exception came from, so that a retry of the run knows where to cut."""
    error.__holdfast__ = {"key": key, "seq": seq, "child": child}  # type: ignore[attr-defined]
    return error
