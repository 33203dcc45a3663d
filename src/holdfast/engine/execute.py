"""THE LOOP: what happens to a run between being claimed and leaving this process.

    claim    a worker took the run under a new epoch; nobody else can write its journal
    load     its events since the last checkpoint, and the signals it has not seen
    replay   the agent's code from its first line, against what was recorded
    act      past the last record: bodies run, timers are set, children start
    commit   every outcome is durable before the agent sees it
    leave    ended, parked until something is due, released, paused, or lost to another worker

A crash at any of these points leaves a journal from which the next claim does the same again: before `act` nothing has
happened, during `act` what is recorded is never done again, and what is not recorded is in doubt.

`begin` loads a run and starts its agent's code. From then on the gate turns the loop: whenever the run has settled it calls
`Loop.advance`, which delivers the next outcome, or finds out why there is none. `assemble` is the engine's table of contents.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.engine import approvals, checkpoints, conversations, effects, forks, outlets
from holdfast.engine.attempt import Attempt
from holdfast.engine.budgets import Meter
from holdfast.engine.carried import Carried
from holdfast.engine.control import REQUESTS
from holdfast.engine.host import Host
from holdfast.engine.journal import Divergence, Journal
from holdfast.engine.loop import Place, install
from holdfast.engine.loops import Watch
from holdfast.engine.scope import Scope
from holdfast.errors import HoldfastError, NotStorable
from holdfast.runtime import AgentSpec, Placed
from holdfast.store.blobs import unspilled
from holdfast.values import failures
from holdfast.words.model import OUTCOMES, Claimed, Event, RunRow, Signal

STALL_GRACE_S = 0.5  # how long a replay that waits for something unrecorded may take before it counts as diverged,
FOREIGN_GRACE_S = 300.0  # and how long when it is known to wait for such things: raw I/O takes its time again

# Arrivals from outside: by kind of event, the part that takes it.
ARRIVALS: Final[Mapping[str, Callable[[Attempt, Event], None]]] = {
    "message.received": lambda attempt, event: attempt.inbox.mailbox.message(event),
    "child.ended": lambda attempt, event: attempt.inbox.mailbox.child_ended(event),
    "approval.decided": lambda attempt, event: attempt.inbox.mailbox.decision(event),
    "approval.expired": lambda attempt, event: attempt.inbox.mailbox.decision(event),
    "approval.voted": lambda attempt, event: attempt.inbox.mailbox.said(event),
    "approval.delegated": lambda attempt, event: attempt.inbox.mailbox.said(event),
    "conversation.entered": lambda attempt, event: attempt.talks.arrive(event),
    "conversation.refused": lambda attempt, event: attempt.talks.arrive(event),
    "run.cancelling": lambda attempt, event: attempt.control.deliver(event),
    "run.unwinding": lambda attempt, event: attempt.control.deliver(event),
    "run.forked": forks.arrive,
}


async def begin(host: Host, run: RunRow, spec: AgentSpec) -> Carried:
    """Load a claimed run and start its agent's code; what it does next is up to its journal."""
    attempt = await load(host, run, spec)
    await start(attempt)
    return Carried(attempt)


async def start(attempt: Attempt) -> None:
    """Start the code of a run that was loaded, with its arguments; one whose arguments do not fit the code leaves."""
    run, spec = attempt.run, attempt.spec
    try:
        text = await unspilled(attempt.host.store, run.input)
        args, kwargs = _arguments(spec, text or "{}")
    except HoldfastError as error:
        attempt.life.does_not_fit(
            f"run {run.id!r}: its arguments do not fit agent {spec.name!r}: {error}. Bring the old parameters back (new ones "
            "need a default), then resume the run"
        )
        return
    effects.watch()
    attempt.start(args, kwargs)


def _arguments(spec: AgentSpec, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that a run was started with. The first state of a reducer is migrated like any that it stored."""
    try:
        return spec.signature.load(text)
    except HoldfastError:
        given = json.loads(text)
        if spec.folding is None or spec.folding.migrate is None or "state" not in given:
            raise
        return (spec.folding.state.load(json.dumps(given["state"]), "state", migrate=spec.folding.migrate),), {}


async def load(host: Host, run: RunRow, spec: AgentSpec, loop: Loop | None = None) -> Attempt:
    """Load everything that replay needs, read once: no work per step grows with the history."""
    install(asyncio.get_running_loop())
    store = host.store
    events = run.journal if isinstance(run, Claimed) else None
    if events is None:
        events = await store.journal(run.id, run.checkpoint_seq or 0) if run.next_seq else []
    signals = await store.inbox(run.id, run.inbox_seen) if run.inbox_count > run.inbox_seen else ()
    for signal in signals:
        signal.value = await unspilled(store, signal.value)
    attempt = assemble(host, run, spec, events, signals, loop or Loop())
    if events:
        await _recall(attempt, events)
    return attempt


async def _recall(attempt: Attempt, events: list[Event]) -> None:
    """Read what events only name."""
    store, closed, texts = attempt.host.store, attempt.journal.closed, attempt.pen.texts
    for event in events:
        if event.epoch == attempt.run.lease_epoch:  # written by the claim itself
            attempt.pen.claimed(event)
        if event.blob is not None and (event.kind in OUTCOMES or event.key not in closed):  # else its call is over
            texts[event.blob] = (await store.blob(event.blob)).decode()
    texts |= await conversations.recollect(store, events)
    await checkpoints.recall(attempt)
    await forks.recall(attempt)
    await outlets.recall(attempt)


def assemble(
    host: Host, run: RunRow, spec: AgentSpec, events: list[Event], signals: Sequence[Signal], loop: Loop
) -> Attempt:
    """Put one attempt together."""
    loop.attempt = attempt = Attempt(host, run, spec, Journal.of(events, run.created_at), signals, loop, ARRIVALS)
    # Before a body begins: may it?
    if spec.loops is not None:
        attempt.guard_by(Watch(attempt, spec.loops))
    if run.budget is not None:
        attempt.guard_by(Meter(attempt))
    return attempt


class Loop:
    """Carries one attempt from outcome to outcome. The gate calls it, and so does the end of the agent's code."""

    __slots__ = ("_seen", "attempt")
    attempt: Attempt

    def __init__(self) -> None:
        self._seen = 0  # outcomes that had reached the run when it was last found restless

    def new_scope(self, path: str, named: str, made_at: str) -> Scope:
        """Make the place of a new task."""
        return Scope(self.attempt, path, named, made_at)

    def went_live(self) -> None:
        """The run acts from here on: what it found out or wrote on the way goes out first."""
        attempt = self.attempt
        attempt.write_found()
        approvals.withdraw_forsaken(attempt)
        attempt.talks.rejoin()
        attempt.pen.went_live()

    def advance(self) -> bool:
        """The run has settled: deliver the next outcome, or find out why there is none. True when one was delivered."""
        attempt, life, journal = self.attempt, self.attempt.life, self.attempt.journal
        attempt.tasks.swept()
        if life.closing:
            return False
        if attempt.control.unwinding:
            attempt.control.begin_postponed()
        if (journal.ready or not life.live) and attempt.deliver_next():
            return True
        if not life.live:
            event = journal.next()
            missing = journal.left_over() if event is None else Divergence.of(event)
            if missing is not None:
                self._stalled(missing)
                return False
            attempt.reach_edge()
            if attempt.deliver_next():
                return True
        if attempt.tasks.settle():
            self.conclude()
        if not (life.finishing or life.closing):
            attempt.parking.idle()
        return False

    # How a run ends: the agent returned or raised, and everything it started is over

    def conclude(self) -> None:
        """Record the end, unless the journal holds something the code has not asked for."""
        attempt, control, root = self.attempt, self.attempt.control, self.attempt.tasks.root
        assert root is not None
        if not attempt.life.live:
            attempt.pass_over()
            left_over = attempt.journal.left_over()
            if left_over is not None:
                attempt.diverge(left_over, "the agent ended without asking for it" + attempt.asks_instead())
                return
            attempt.life.go_live()
        if attempt.bodies.holding or control.sees_off():
            return  # it is being released, and the next worker will end it; or it is not the time yet
        if root.cancelled() and control.cancelling is not None:
            attempt.unawaited.clear()
            control.finish("cancelled", None, None)
            return
        error = how_it_ended(attempt)
        attempt.unawaited.clear()
        if error is None:
            try:
                text, _ = attempt.pen.stored(attempt.spec.signature.returns, root.result(), "result")
            except NotStorable as problem:
                error = problem
            else:
                control.finish("completed", text, None)
                return
        control.finish("failed", None, _error_record(error))

    def fail(self, error: Exception) -> None:
        """The run cannot have what it needs to go on: it ends where it is, and its code hears nothing of it."""
        self.attempt.control.finish("failed", None, _error_record(error))

    def let_go(self) -> None:
        """The run leaves memory."""
        self.attempt.let_go()

    # When it does not go on

    def _stalled(self, missing: Divergence) -> None:
        """Replay waits for a call that the code does not make: a divergence, or raw I/O that is still on its way."""
        attempt, tasks = self.attempt, self.attempt.tasks
        if tasks.settle():
            self.conclude()
        elif not attempt.unrecorded.unaccounted():
            self._stalled_for_good(missing, tasks.activity)
        else:
            grace_s, seen = FOREIGN_GRACE_S if attempt.unrecorded.known else STALL_GRACE_S, tasks.activity
            with Placed(None):
                attempt.host.clock.after(grace_s, lambda: self._stalled_for_good(missing, seen))

    def stirred(self, place: Place, coro: Any) -> None:
        """A task of a settled run has moved by itself."""
        self.attempt.unrecorded.stirred(place, coro)

    def report(self, place: Place, what: str, line: str) -> None:
        """Agent code waits for something foreign."""
        effects.report(self.attempt, place, what, line)

    def _stalled_for_good(self, missing: Divergence, seen: int) -> None:
        attempt = self.attempt
        if attempt.tasks.activity == seen and not attempt.life.closing:
            where = attempt.unrecorded.where()
            attempt.diverge(missing, "the code did not ask for it" + attempt.asks_instead() + where)

    def restless(self) -> None:
        """The run has not settled for a long time."""
        attempt, journal, gate = self.attempt, self.attempt.journal, self.attempt.tasks.gate
        if (
            journal.delivered != self._seen
        ):  # it gets on: the only task of a run need not settle to be handed what is recorded
            self._seen = journal.delivered
            gate.kick()
            return
        if self._told_anyway():
            gate.kick()
            return
        if journal.next() is None and attempt.all_begun():
            if not attempt.life.live and journal.left_over() is None:
                attempt.tasks.go_on_forever()
                attempt.reach_edge()  # nothing is recorded that it has not seen, and requests must be heard
            gate.kick()  # busy with things of its own, and nobody waits for it
            return
        attempt.pause(
            f"run {attempt.run.id!r} never settles: its tasks go on without waiting for anything, so no outcome can be "
            f"delivered in a fixed place. Look at {', '.join(attempt.unrecorded.places())}; a loop around asyncio.sleep(0) is "
            "the usual cause"
        )

    def _told_anyway(self) -> bool:
        """A request to stop is next: the agent is told wherever it is, because nothing else would end it."""
        told = False
        while (event := self.attempt.journal.next()) is not None and event.kind in REQUESTS:
            told = True
            self.attempt.tasks.go_on_forever()
            self.attempt.deliver_next()
        return told

    def hopped_far(self) -> None:
        """A chain of callbacks goes on for longer than the version that began the run, if that was an older one, waited for it.

        It delivered the next outcome in the middle of the chain if it had one by then, and behind it if not: the journal does
        not say which.
        """
        attempt = self.attempt
        event = None if attempt.life.live else attempt.journal.next()
        if event is not None and attempt.run.identity is None:
            attempt.pause(
                f"NondeterminismError: run {attempt.run.id!r} was begun by an older version of Holdfast, which waited for a "
                "chain of callbacks (nested asyncio.shield, gather of futures, call_soon) for 32 turns of the loop only. The chain "
                f"that goes on before {event.kind} of {event.key or 'the inbox'!r} is longer, and which the agent saw first is not "
                "recorded. Nothing was done and nothing was written. Finish the run with that version, or start it anew"
            )


def how_it_ended(attempt: Attempt) -> BaseException | None:
    """The exception that ends the run, if one does."""
    root = attempt.tasks.root
    assert root is not None
    if root.cancelled():
        return asyncio.CancelledError("the agent was cancelled from inside")
    error = root.exception()
    if error is None and attempt.unawaited:
        names = sorted({call.__name__ for call in attempt.unawaited.values()})
        return HoldfastError(
            f"the agent called {', '.join(names)} without awaiting it, so it did not happen; write `await {names[0]}(...)`"
        )
    return error


def _error_record(error: BaseException) -> dict[str, Any]:
    """An agent's exception as a record, with the outcomes it came from: where a retry would cut."""
    record = failures.record(error, ())
    sources: list[dict[str, Any]] = []
    _sources(error, sources, set())
    record["from"] = sources
    return record


def _sources(error: BaseException | None, found: list[dict[str, Any]], seen: set[int]) -> None:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    mark = getattr(error, "__holdfast__", None)
    if mark is not None:
        found.append(mark)
        return
    for inner in getattr(error, "exceptions", ()):
        _sources(inner, found, seen)
    _sources(error.__cause__, found, seen)
    _sources(error.__context__, found, seen)  # also behind `from None`, which hides it from people only
