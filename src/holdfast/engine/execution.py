"""One attempt at one run: the agent's tasks, the calls they have open, and the journal behind them.

Replay. Recorded outcomes are delivered in order, each when the run has settled; no body starts and nothing is written
until the last one is through and the run has settled once more. That moment is the edge: what the journal holds and the
code did not ask for is a divergence, found before any effect. Then unanswered calls begin, in the order asked.

Live. A call begins when asked. Its outcome is numbered (`record`), becomes durable, and is delivered in that order.

Leaving. `close` is sticky: nothing is recorded any more, every task is unwound, verbs refuse. It is how a run is parked,
released, paused, lost to another worker, or ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import weakref
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from itertools import accumulate
from typing import Any

from holdfast.engine import control, effects, parking, unrecorded
from holdfast.engine.calls import Call, Wait
from holdfast.engine.divergence import asks_instead, diverge, hopped_far, restless
from holdfast.engine.ending import conclude, go_live, stalled
from holdfast.engine.gate import Gate
from holdfast.engine.host import Host
from holdfast.engine.identity import Scope
from holdfast.engine.inbox import Mailbox
from holdfast.engine.journal import Divergence, Journal, arrives
from holdfast.engine.leaving import Leaving
from holdfast.engine.loop import GateFuture, RunTask, Stirring, made_at
from holdfast.engine.patches import Patches
from holdfast.runtime import AgentSpec, Durable, Placed, RunFacts, _here, outside
from holdfast.values.codec import Shape
from holdfast.words.clock import Timer
from holdfast.words.model import KINDS, OUTCOMES, Event, RunRow, Signal
from holdfast.words.overrides import Override, active, enter


class Execution(Leaving):
    """The state of one attempt. Verbs come in through `Scope`; outcomes go out through the gate."""

    __slots__ = (
        "_facts", "_waited", "asked_any", "awaits_restore", "call_count", "choices", "counters",
        "delivered", "dusty", "edge_due", "effects", "era", "fetching", "foreign", "gate", "hash_base", "inbox_seen",
        "journal", "live", "mailbox", "new_outcomes", "noticed", "open_scopes", "outside", "overrides", "patches", "plan",
        "ready", "resting",
        "root", "settled", "signals", "spec", "state_shape", "task_count", "ticked_s", "ticks", "time", "unawaited",
        "waits",
    )  # fmt: skip

    def __init__(self, host: Host, run: RunRow, spec: AgentSpec, journal: Journal, signals: list[Signal]) -> None:
        super().__init__(host, run)
        self.spec, self.journal, self.signals = spec, journal, signals
        self._waited = bool(signals) and run.lease_epoch > 1
        self.outside = outside()
        self.gate = Gate(self.loop, self.outside, self)
        self.mailbox = Mailbox()
        # identity
        self.era = 0
        self.counters: dict[str, int] = {}
        self.open_scopes: set[str] = set()
        self.hash_base = int(run.uid[:8], 16) << 20
        self.task_count = self.call_count = 0
        # what is open
        self.root: RunTask | None = None
        self.unawaited: dict[int, Durable[Any]] = {}
        self.waits: dict[str, Wait] = {}
        self.ticks = 0
        # where the run is
        self.live = self.dusty = self.asked_any = False
        self.resting = self.settled = False  # its only task waits at the gate; all of it has been seen to wait
        self.delivered = 0
        self.time, self.ticked_s = run.created_at, 0.0
        self.ready: deque[Event] = deque()
        self.inbox_seen = run.inbox_seen
        self.edge_due: list[tuple[int, int, Callable[[], None]]] | None = None
        self.patches = Patches(self)
        self.overrides: tuple[Override, ...] = ()  # those that held when the code began
        self.plan: list[list[Any]] = []
        self.choices: dict[str, Any] = {}
        self.foreign: dict[str, dict[str, Any]] = {}  # waits for what is not recorded: told, by task and line
        self.effects: dict[str, dict[str, Any]] = {}  # the same of what it did without waiting
        self.new_outcomes = 0
        self._facts: RunFacts | None = None
        # checkpoints
        self.state_shape: Shape | None = None
        self.awaits_restore = journal.checkpoint is not None
        self.numbered = len(journal.outcomes) + (journal.checkpoint.data["delivered"] if journal.checkpoint else 0)
        self.fetching = self.noticed = False  # reading the inbox; told that there is something in it

    # Tasks

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start the agent's code from its first line."""
        context = contextvars.copy_context()
        enter(self.host.overrides(self.run.root_id or self.run.id), context)
        self.overrides = context.run(active)
        scope = Scope(self, "", "")
        context.run(_here.set, scope)
        self.root = self._new_task(Stirring(self.spec.fn(*args, **kwargs), self, scope), scope, context)
        self.gate.kick()

    def adopt(self, parent: Scope, coro: Any, given: contextvars.Context | None, **kw: Any) -> RunTask:
        """A task created inside the run: numbered now, in its parent's program order."""
        name = getattr(coro, "__name__", "task").replace("/", ".").replace("#", ".")
        place = f"{parent.path}/{name}" if parent.path else name
        if isinstance(coro, Durable) or self.closing:  # has its key, or may not call: `finally` needs tasks too
            path = f"{place}~"
        else:
            nth = self.counters.get(place, 0)
            self.counters[place] = nth + 1
            path = f"{place}#{nth}"
        scope = Scope(self, path, parent.named)
        scope.made_at = made_at(coro)
        context = contextvars.copy_context() if given is None else given
        if given is None:
            context.run(_here.set, scope)
        return self._new_task(Stirring(coro, self, scope, shared=given is not None), scope, context, **kw)

    def _new_task(self, stirring: Stirring, scope: Scope, context: contextvars.Context, **kw: Any) -> RunTask:
        self.task_count += 1
        number = self.hash_base + self.task_count
        task = RunTask(stirring, number=number, scope=scope, loop=self.loop, context=context, **kw)
        scope.task = task
        self.tasks[task] = None
        self.dusty = len(self.tasks) > 1
        self.gate.activity += 1
        task.add_done_callback(self._task_done, context=self.outside)
        return task

    def _task_done(self, task: Any) -> None:
        self.tasks.pop(task, None)
        self.gate.activity += 1
        if self.closing:
            return
        if task._log_traceback:  # it failed, and asyncio reports that unless the agent looks at it
            self.failed = self.failed or weakref.WeakSet()
            self.failed.add(task)
        if task is self.root:
            if not self.tasks and not self.dusty:
                conclude(self)
                if not (self.finishing or self.closing):
                    self.gate.kick()  # it cannot end yet, and waits
                return
            for other in list(self.tasks):  # as asyncio.run does
                if not other.tidies:
                    other.cancel()
        self.dusty = True
        self.gate.kick()

    def hops(self) -> None:
        """Agent code, or asyncio on its behalf, has the loop call something that is no step of a task."""
        self.dusty = True
        self.gate.activity += 1
        self.gate.hops += 1

    @property
    def alone(self) -> bool:
        """Is there one live task, and nothing left of others that could still move?"""
        return len(self.tasks) == 1 and not self.dusty

    # Asking

    def offered(self, name: str, begin: Callable[[], Generator[Any, Any, Any]]) -> Durable[Any]:
        """A durable call that now has its identity; whoever made it must await it."""
        self.call_count += 1
        number = self.hash_base + self.call_count
        call = Durable(name, begin, number, self._awaited)
        self.unawaited[number] = call
        return call

    def _awaited(self, call: Durable[Any]) -> None:
        self.unawaited.pop(call.number, None)

    def enter(self, call: Call | None) -> Generator[Any, Any, None]:
        """A verb is awaited: refused if the run is leaving, and a divergence if it should have been `restore` (None)."""
        if call is not None and not self.closing:
            self.asked_any = True
            if self.awaits_restore:
                self._before_restore(call)
        if self.closing:
            yield from self.refusal()

    def _before_restore(self, call: Call) -> None:
        assert self.journal.checkpoint is not None
        found = f"the agent called {call.name}({call.preview}) before restore()"
        diverge(self, Divergence.of(self.journal.checkpoint), found)

    def asks(self, call: Call) -> None:
        """Claim the call in the journal, and begin it if the run is live."""
        if self.closing:
            return
        self.asked_any = True
        if self.awaits_restore:
            self._before_restore(call)
            return
        divergence = self.journal.claim(call.key, call.name, call.digest, call.of)
        if divergence is not None and not call.is_of(divergence):
            diverge(self, divergence, divergence.found(call.name, call.preview, call.of))
            return
        call.asked = self.delivered
        self.calls[call.key] = call
        self.gate.activity += 1
        if self.live and not self.holding:
            self._begin(call)

    def _begin(self, call: Call) -> None:
        call.begun = True
        token = _here.set(None)  # what begins here (timers, drivers) is ours, not the agent's
        try:
            call.begin()
        finally:
            _here.reset(token)

    def rest(self, call: Call) -> Generator[Any, Any, Event]:
        """Wait until the gate has delivered the call's outcome.

        With one live task the run has settled the moment that task waits, so nothing needs to be counted: a recorded
        outcome is handed over at once (with one turn of the loop, so that others get theirs).
        """
        future: asyncio.Future[Any] = call.future
        if self.alone:
            self._hurry(call)
            if future.done():
                yield
                if self.closing:
                    yield from self.refusal()
                result: Event = future.result()
                return result
            if self.closing:
                yield from self.refusal()
            self.resting = True
            nothing_comes = self.ready or not (self.drivers or self.unacked)
            (self.gate.kick if nothing_comes else self.gate.cease)()
        else:
            self.gate.kick()
        event: Event = yield from future
        return event

    def _hurry(self, call: Call) -> None:
        """Deliver what can be delivered to the only task there is, while it waits at the gate."""
        while not call.future.done() and not self.closing:
            if not self.live:
                event = self.journal.next()
                if event is None:
                    with Placed(None):  # a timer that is set here is ours, though the agent runs
                        self._reach_edge()
                    continue
            elif self.ready:
                event = self.ready[0]
            else:
                return
            asker = self.calls.get(event.key or "")
            if asker is not call:
                if not arrives(event) and (asker is None or not asker.withdrawn):
                    return
                with Placed(None):  # as above: a request to stop sets one
                    delivered = self._deliver(event)
            else:
                delivered = self._deliver(event)
            if not delivered:
                return
            if self.live:
                self.ready.popleft()
            else:
                self.journal.turn += 1

    def withdraw(self, call: Call) -> None:
        """The waiter is gone. Before the outcome is numbered this stops the call; afterwards it changes nothing."""
        if self.closing or call.settled or call.withdrawn:
            return
        call.withdrawn = True
        if not call.numbered and call.key not in self.journal.closed:
            self.calls.pop(call.key, None)
            with Placed(None):
                (call.abandon if call.begun else call.forsake)()
        self.gate.kick()

    def drop(self, call: Call) -> None:
        """A call whose outcome is an arrival is over."""
        self.calls.pop(call.key, None)
        self.waits.pop(call.key, None)

    # Delivering

    def advance(self) -> bool:
        """The run has settled: deliver the next outcome, or find out why there is none. True when one was delivered."""
        self.dusty = False
        if self.closing:
            return False
        if self.postponed:
            control.begin_postponed(self)
        if not self.live:
            event = self.journal.next()
            if event is not None and self._deliver(event):
                self.journal.turn += 1
                return True
            missing = self.journal.left_over() if event is None else Divergence.of(event)
            if missing is not None:
                stalled(self, missing)
                return False
            self._reach_edge()
        if self.ready:
            self._deliver(self.ready.popleft())
            return True
        self.resting = self.settled = True
        if self.root is not None and self.root.done() and not self.tasks:
            conclude(self)
        if not (self.finishing or self.closing):
            parking.idle(self)
        return False

    restless, hopped_far = restless, hopped_far

    def is_told_anyway(self) -> bool:
        """The run does not settle, and a request to stop is next: it is told wherever it is, for nothing else would end it."""
        told = False
        while (event := (self.ready[0] if self.ready else None) if self.live else self.journal.next()) is not None:
            if event.kind not in control.REQUESTS:
                break
            self.never_settles = told = True
            if self.live:
                self.ready.popleft()
            else:
                self.journal.turn += 1
            self._deliver(event)
        return told

    def _deliver(self, event: Event) -> bool:
        """Hand one outcome to the agent. False when it cannot be: nobody has asked for it yet."""
        if KINDS[event.kind].arrives:
            self._saw(event)
            if event.kind.startswith("run."):
                control.deliver(self, event)
            else:
                self.mailbox.deliver(event)
            return True
        call = self.calls.get(event.key or "")
        if call is None or (event.kind == "step.cancelled" and not call.withdrawn):
            if not self.live:
                return False
            self._saw(event)
            return True
        del self.calls[event.key or ""]
        self._saw(event)
        call.settled = True
        call.settle(event)
        return True

    def _saw(self, event: Event) -> None:
        self.delivered += 1
        self.undelivered.pop(event.seq, None)
        self.time = max(self.time, event.at)
        self.resting = self.settled = False
        self.gate.activity += 1

    def _reach_edge(self) -> None:
        """Every recorded outcome is through and the run has settled: from here on the run acts."""
        left_over = self.journal.left_over()
        if left_over is not None:
            diverge(self, left_over, "the code did not ask for it" + asks_instead(self) + unrecorded.where(self))
            return
        go_live(self)
        self.edge_due = []
        control.look_ahead(self)
        for call in list(self.calls.values()):
            if not (call.begun or call.withdrawn or self.holding):
                self._begin(call)
        # What was pending while nobody looked comes in the order of its own times; signals in the order in which they came.
        pending: list[tuple[int, int, Callable[[], None]]] = self.edge_due
        times = accumulate((signal.sent_at for signal in self.signals), max)  # for senders' clocks differ
        pending += [(at, n, partial(self.arrive, self.signals[n])) for n, at in enumerate(times)]
        self.edge_due, self.signals = None, []
        for _, _, happen in sorted(pending, key=lambda entry: entry[:2]):
            happen()
        control.go_on(self)
        if self.noticed:  # something came while the run was loaded or replayed
            parking.notice(self)

    def arm(self, due: int, fire: Callable[[], None]) -> Timer | None:
        """Have a durable timer fire at its time; one that is due at the edge fires in the order of due times."""
        if self.edge_due is not None and due <= self.clock.now():
            self.edge_due.append((due, len(self.edge_due), fire))
            return None
        return self.clock.call_at(due, fire)

    def became_durable(self, event: Event) -> None:
        """An outcome waits for its turn; the only task there is, when it is at rest, need not wait at all."""
        if event.kind not in OUTCOMES:
            if self.resting and self.waits and not (self.bodies or self.unacked):
                self.gate.kick()  # what was begun is begun: perhaps the run only waits now
            return
        self.new_outcomes += 1
        if self.never_settles and event.kind in control.REQUESTS and not self.ready:
            self._deliver(event)
            self.gate.kick()
            return
        if self.resting and self.alone and not self.ready:
            (task,), asker = self.tasks, self.calls.get(event.key or "")
            awaited: Any = getattr(task, "_fut_waiter", None)
            its_own = asker is not None and asker.future is awaited
            if its_own or (arrives(event) and isinstance(awaited, GateFuture) and not awaited.done()):
                self._deliver(event)
                if not awaited.done():
                    self.gate.kick()  # what wakes nobody leaves it to the run to come to rest again
                return
        if not self.ready:
            self.gate.awaited()
        self.ready.append(event)
        self.gate.kick()

    arrive = control.arrive
    sees_off = control.sees_off

    # What others report

    stirred_by_foreign = unrecorded.stirred

    def report_foreign(self, scope: Scope, what: str, line: str) -> None:
        effects.report(self, scope, what, line, waits=True)

    # Facts

    def facts(self) -> RunFacts:
        replaying = self._replaying()
        if self._facts is None or self._facts.replaying != replaying:
            run = self.run
            labels = json.loads(run.labels)
            self._facts = RunFacts(run.id, run.agent, labels, run.parent_id, run.root_id, replaying)
        return self._facts

    def _replaying(self) -> bool:
        """Has the code that runs now run before? Past all that is recorded only if the run waited for an arrival."""
        if self.live:
            return False
        return self._waited or self.awaits_restore or not self.journal.exhausted or bool(self.journal.unclaimed)
