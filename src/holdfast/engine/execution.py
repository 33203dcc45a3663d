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
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from holdfast.clock import Timer
from holdfast.codec import BLOB_BYTES, UNTYPED, Shape, checked_size
from holdfast.engine import foreign, parking
from holdfast.engine.calls import Call, Wait, outside
from holdfast.engine.ending import conclude
from holdfast.engine.gate import Gate
from holdfast.engine.host import Host
from holdfast.engine.journal import Divergence, Journal
from holdfast.engine.mailbox import Mailbox
from holdfast.engine.scope import Scope
from holdfast.engine.tasks import REFUSALS, RunTask, Stirring, never, waiting_location
from holdfast.errors import LeaseLost, Suspended
from holdfast.model import FINISHED, KINDS, OUTCOMES, Event, RunRow, Signal
from holdfast.runtime import AgentSpec, Durable, Placed, RunFacts, _here
from holdfast.store.base import Append, NewApproval, NewRun, Transition, spilled, unspilled

_log = logging.getLogger("holdfast")
STALL_GRACE_S = 0.5  # how long a replay that waits for something unrecorded may take before it counts as diverged


class Execution:
    """The state of one attempt. Verbs come in through `Scope`; outcomes go out through the gate."""

    def __init__(self, host: Host, run: RunRow, spec: AgentSpec, journal: Journal, signals: list[Signal]) -> None:
        self.host, self.run, self.spec, self.journal = host, run, spec, journal
        self.store, self.clock, self.loop = host.store, host.clock, asyncio.get_running_loop()
        self.outside = outside()
        self.gate = Gate(self.loop, self.outside, self._advance, self._restless)
        self.mailbox = Mailbox()
        # identity
        self.era = 0
        self.counters: dict[str, int] = {}
        self.open_scopes: set[str] = set()
        self.hash_base = int(run.uid[:8], 16) << 20
        self.task_count = self.call_count = 0
        # what is open
        self.root: RunTask | None = None
        self.tasks: dict[RunTask, None] = {}
        self.calls: dict[str, Call] = {}
        self.unawaited: dict[int, Durable[Any]] = {}
        self.waits: dict[str, Wait] = {}
        self.drivers: set[asyncio.Task[None]] = set()
        self.bodies = self.ticks = self.unacked = 0
        # where the run is
        self.live = self.resting = self.dusty = self.asked_any = False
        self.may_begin = asyncio.Event()  # cleared while the run is being given back: nothing new begins
        self.may_begin.set()
        self.closing: str | None = None
        self.refusals = 0
        self.delivered = 0
        self.time = run.created_at
        self.ready: deque[Event] = deque()
        self.next_seq = run.next_seq
        self.inbox_seen = run.inbox_seen
        self.signals = signals
        self.edge_due: list[tuple[int, int, Callable[[], None]]] | None = None
        self.patches: dict[str, bool] = {}
        self.texts: dict[str, str] = {}
        self.foreign: set[str] = set()
        self.edge_patches: list[str] = []
        self.new_outcomes = 0
        # checkpoints
        self.state_shape: Shape | None = None
        self.awaits_restore = journal.checkpoint is not None
        self.ended: asyncio.Future[str] = self.loop.create_future()
        self.progress = asyncio.Event()  # set whenever a body ends or an append is acknowledged
        self.lease_until = 0.0  # of the loop's time; heartbeats prolong it for all runs of a worker
        self.park_timer: Timer | None = None
        self.fetching = False

    # Tasks

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start the agent's code from its first line."""
        context = contextvars.copy_context()
        scope = Scope(self, "", "")
        context.run(_here.set, scope)
        self.root = self._new_task(self.spec.fn(*args, **kwargs), scope, context)

    def adopt(self, parent: Scope, coro: Any, context: contextvars.Context, **kw: Any) -> RunTask:
        """A task created inside the run: numbered now, in its parent's program order."""
        if self.closing:
            coro.close()
            raise Suspended
        name = getattr(coro, "__name__", "task").replace("/", ".").replace("#", ".")
        place = f"{parent.path}/{name}" if parent.path else name
        if isinstance(coro, Durable):  # it has its key already and makes no calls of its own
            path = f"{place}~"
        else:
            nth = self.counters.get(place, 0)
            self.counters[place] = nth + 1
            path = f"{place}#{nth}"
        scope = Scope(self, path, parent.named)
        context.run(_here.set, scope)
        return self._new_task(coro, scope, context, **kw)

    def _new_task(self, coro: Any, scope: Scope, context: contextvars.Context, **kw: Any) -> RunTask:
        self.task_count += 1
        number = self.hash_base + self.task_count
        stirring = Stirring(coro, self, scope)
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
        if task is self.root:
            if not self.tasks and not self.dusty:
                conclude(self)
                return
            for other in list(self.tasks):  # as asyncio.run does
                other.cancel()
        self.dusty = True
        self.gate.kick()

    @property
    def holding(self) -> bool:
        """Is the run being given back?"""
        return not self.may_begin.is_set()

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
        self.unawaited.pop(hash(call), None)

    def ask(self, call: Call | None) -> Generator[Any, Any, None]:
        """The agent waits for this call (None: only check that the run is not leaving)."""
        if self.closing:
            yield from self._refusal()
        if call is not None:
            self.asks(call)
            if self.closing:  # it diverged
                yield from self._refusal()

    def asks(self, call: Call) -> None:
        """Claim the call in the journal, and begin it if the run is live."""
        if self.closing:
            return
        self.asked_any = True
        if self.awaits_restore:
            assert self.journal.checkpoint is not None
            found = f"the agent called {call.name}({call.preview}) before restore()"
            self.diverge(Divergence.of(self.journal.checkpoint), found)
            return
        divergence = self.journal.claim(call.key, call.name, call.digest)
        if divergence is not None:
            self.diverge(divergence, f"the code now calls {call.name}({call.preview}) there")
            return
        call.asked = self.delivered
        self.calls[call.key] = call
        self.gate.activity += 1
        if self.live and not self.holding:
            self._begin(call)

    def _begin(self, call: Call) -> None:
        call.begun = True
        with Placed(None):  # what begins here (timers, drivers) is ours, not the agent's
            call.begin()

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
                    yield from self._refusal()
                result: Event = future.result()
                return result
            if self.closing:
                yield from self._refusal()
            self.resting = True
            if self.ready or (not self.bodies and not self.unacked):
                self.gate.kick()
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
                    self._reach_edge()
                    continue
            elif self.ready:
                event = self.ready[0]
            else:
                return
            asker = self.calls.get(event.key or "")
            simple = KINDS[event.kind].arrives or asker is call or (asker is not None and asker.withdrawn)
            if not simple or not self._deliver(event):
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
            if call.begun:
                with Placed(None):
                    call.abandon()
        self.gate.kick()

    def drop(self, call: Call) -> None:
        """A call whose outcome is an arrival is over."""
        self.calls.pop(call.key, None)
        self.waits.pop(call.key, None)

    # Delivering

    def _advance(self) -> bool:
        """The run has settled: deliver the next outcome, or find out why there is none. True when one was delivered."""
        self.dusty = False
        if self.closing:
            return False
        if not self.live:
            event = self.journal.next()
            if event is not None:
                if self._deliver(event):
                    self.journal.turn += 1
                    return True
                self._stalled(event)
                return False
            self._reach_edge()
            if self.closing:
                return False
        if self.ready:
            self._deliver(self.ready.popleft())
            return True
        self.resting = True
        if self.root is not None and self.root.done() and not self.tasks:
            conclude(self)
        else:
            parking.idle(self)
        return False

    def _deliver(self, event: Event) -> bool:
        """Hand one outcome to the agent. False when it cannot be: nobody has asked for it yet."""
        if KINDS[event.kind].arrives:
            self._saw(event)
            self.mailbox.deliver(event)
            return True
        call = self.calls.get(event.key or "")
        if call is None or (event.kind == "step.cancelled" and not call.withdrawn):
            if not self.live:
                return False
            self._saw(event)
            return True
        del self.calls[call.key]
        self._saw(event)
        call.settled = True
        call.settle(event)
        return True

    def _saw(self, event: Event) -> None:
        self.delivered += 1
        self.time = max(self.time, event.at)
        self.resting = False
        self.gate.activity += 1

    def _reach_edge(self) -> None:
        """Every recorded outcome is through and the run has settled: from here on the run acts."""
        left_over = self.journal.left_over()
        if left_over is not None:
            self.diverge(left_over, "the code did not ask for it" + foreign.where(self))
            return
        self.live = True
        for patch in self.edge_patches:
            self.record("patched", None, {"patch": patch})
        self.edge_due = []
        for call in list(self.calls.values()):
            if not call.begun and not call.withdrawn:
                self._begin(call)
        # What was pending while nobody looked comes in the order of its own times.
        pending: list[tuple[int, int, Callable[[], None]]] = self.edge_due
        pending += [(signal.sent_at, n, self._arrival(signal)) for n, signal in enumerate(self.signals)]
        self.edge_due = None
        self.signals = []
        for _, _, happen in sorted(pending, key=lambda entry: entry[:2]):
            happen()

    def _arrival(self, signal: Signal) -> Callable[[], None]:
        return lambda: self.arrive(signal)

    def arm(self, due: int, fire: Callable[[], None]) -> Timer | None:
        """Have a durable timer fire at its time; one that is due at the edge fires in the order of due times."""
        if self.edge_due is not None and due <= self.clock.now():
            self.edge_due.append((due, len(self.edge_due), fire))
            return None
        return self.clock.call_at(due, fire)

    # Recording

    def record(
        self,
        kind: str,
        key: str | None,
        data: dict[str, Any],
        text: str | None = None,
        *,
        children: list[NewRun] | None = None,
        approvals: list[NewApproval] | None = None,
        checkpoint: bool = False,
        inbox_seen: int | None = None,
        transition: Transition | None = None,
        then: Callable[[Event], None] | None = None,
    ) -> asyncio.Future[int] | None:
        """Give an event its place in the journal and have it written; `then` is called once it is durable."""
        if self.closing:
            return None
        event = Event(self.next_seq, kind, key, data, text, None, 0, self.run.lease_epoch, self.run.id)
        self.next_seq += 1
        blobs: dict[str, bytes] = {}
        if text is not None and len(text) > BLOB_BYTES:
            content = text.encode()
            event.blob, event.value = hashlib.sha256(content).hexdigest(), None
            blobs[event.blob], self.texts[event.blob] = content, text
        for child in children or ():
            child.input, more = spilled(child.input)
            blobs.update(more)
        append = Append(self.run.id, self.run.lease_epoch, event.seq, [event], blobs, children or [], approvals or [])
        append.inbox_seen, append.transition = inbox_seen, transition
        if transition is not None and transition.result is not None:
            transition.result, more = spilled(transition.result)
            blobs.update(more)
        append.checkpoint_seq = event.seq if checkpoint else None
        return self._write(append, lambda at: self._durable(event, at, then))

    def _write(self, append: Append, acknowledged: Callable[[int], None]) -> asyncio.Future[int]:
        self.unacked += 1
        written = self.store.append(append)

        def done(future: asyncio.Future[int]) -> None:
            self.unacked -= 1
            self.progress.set()
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                acknowledged(future.result())
            else:
                self._refused_write(error)

        written.add_done_callback(done, context=self.outside)
        return written

    def _refused_write(self, error: BaseException) -> None:
        if isinstance(error, LeaseLost):
            self.close("lost")
        elif not self.closing:
            _log.error("run %r: its journal could not be written: %s", self.run.id, error)
            self.close("lost")

    def _durable(self, event: Event, at: int, then: Callable[[Event], None] | None) -> None:
        event.at = at
        if self.closing:
            return
        if then is not None:
            then(event)
        if event.kind in OUTCOMES:
            self.new_outcomes += 1
            self.ready.append(event)
            if self.resting and self.alone and not self.gate.pumping:
                self._deliver(self.ready.popleft())
            else:
                self.gate.kick()

    async def durably(self, kind: str, key: str, data: dict[str, Any], **more: Any) -> Event:
        """Record, and go on once it is durable."""
        kept: list[Event] = []
        written = self.record(kind, key, data, then=kept.append, **more)
        if written is None:
            raise Suspended
        await asyncio.shield(written)
        if not kept:
            raise Suspended
        return kept[0]

    def stored(self, shape: Shape, value: object, where: str) -> tuple[str, Any]:
        """A value as text, and the copy that live code gets."""
        text, copy = shape.store(value, where)
        checked_size(text, self.host.value_limit_bytes, where)
        return text, copy

    def text_of(self, event: Event) -> str:
        """The payload of an event, wherever it is kept."""
        if event.value is not None:
            return event.value
        return "null" if event.blob is None else self.texts[event.blob]

    # Drivers: what runs outside the agent on behalf of a call

    def start_driver(
        self, work: Coroutine[Any, Any, None], failed: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[None]:
        """Run work of ours beside the agent's tasks; an unexpected error in it becomes the call's failure."""

        async def guarded() -> None:
            try:
                await work
            except (Suspended, LeaseLost):
                pass
            except Exception as error:
                _log.exception("run %r: unexpected error", self.run.id)
                if failed is not None:
                    failed(error)

        context = contextvars.copy_context()
        context.run(_here.set, None)
        task = self.loop.create_task(guarded(), context=context)
        self.drivers.add(task)
        task.add_done_callback(self.drivers.discard)
        return task

    def body_ended(self) -> None:
        self.bodies -= 1
        self.progress.set()

    async def permission(self) -> None:
        """Begin no effect unless the lease is surely ours and the run is not being released."""
        while self.holding or not self.host.trusted(self.lease_until):
            await (self.may_begin.wait() if self.holding else self.host.trust())

    def run_in_thread(self, body: Callable[[], Any]) -> asyncio.Future[Any]:
        context = contextvars.copy_context()
        return self.loop.run_in_executor(self.host.threads, context.run, body)

    async def ask_person(self, question: str, key: str, data: dict[str, Any], text: str, shape: Shape) -> None:
        """Store a question together with the event that asks it."""
        schema = json.dumps(shape.schema())
        approval = NewApproval(question, key, "in_doubt", text, data.get("input"), schema)
        await self.durably("approval.asked", key, data, approvals=[approval])

    def answer_of(self, decided: Event) -> Any:
        """What the person said: 'run', 'fail', or {'result': text}."""
        answer = UNTYPED.load(decided.data["decision"])
        return {"result": UNTYPED.store(answer["result"])[0]} if isinstance(answer, dict) else answer

    # The inbox

    def arrive(self, signal: Signal) -> None:
        """A signal becomes an event of the journal, and is seen once that is durable."""
        names = {"child.ended": "child", "approval.decided": "approval"}
        data = {**signal.data, names.get(signal.kind, "topic"): signal.topic}
        self.inbox_seen = max(self.inbox_seen, signal.position)
        self.record(signal.kind, None, data, signal.value, inbox_seen=signal.position)

    def look_for_end(self, child: str) -> None:
        """A spawned child is awaited: its end may have come before the last checkpoint, so ask its row."""
        self.start_driver(self._look_for_end(child))

    async def _look_for_end(self, child: str) -> None:
        row = await self.store.run(child)
        if row is not None and row.status in FINISHED and child not in self.mailbox.ended:
            error = None if row.error is None else json.loads(row.error)
            data = {"child": child, "status": row.status, "error": error}
            self.record("child.ended", None, data, await unspilled(self.store, row.result))

    # Children

    def child_id(self, key: str, agent: str) -> str:
        """The same for every attempt: a child is started once, whoever starts it."""
        mark = self.derived(f"child:{key}")
        name = f"{self.run.id}.{agent}-{mark[:8]}"
        return name if len(name) <= 200 else f"{agent[:100]}-{mark}"

    def new_child(self, spec: AgentSpec, child: str, key: str, text: str) -> NewRun:
        self.host.serve(spec)
        uid = self.derived(f"uid:{key}")
        run = self.run
        return NewRun(
            child, uid, spec.name, text, spec.version, run.queue, run.labels, run.id, key, run.root_id or run.id
        )

    # Checkpoints

    def restored(self) -> Event:
        """Go on from the checkpoint the journal begins with."""
        event = self.journal.checkpoint
        assert event is not None
        self.awaits_restore = False
        self._enter_era(event)
        return event

    def carried(self) -> dict[str, Any]:
        """What the next era must know besides the state."""
        unread = [[event.seq, event.data, self.text_of(event), event.at] for event in self.mailbox.unread()]
        return {"era": self.era + 1, "delivered": self.delivered + 1, "unread": unread, "patches": self.patches}

    def new_era(self, event: Event) -> None:
        """The checkpoint is durable: keys start again, and what was recorded before is history."""
        self.journal = Journal(checkpoint=event)
        self._enter_era(event)

    def _enter_era(self, event: Event) -> None:
        self.era = event.data["era"]
        self.counters.clear()
        self.texts = {event.blob: self.texts[event.blob]} if event.blob in self.texts else {}
        if not self.live:
            self.delivered = event.data["delivered"]
            self.time = max(self.time, event.at)
            self.patches = dict(event.data["patches"])
            for seq, data, text, at in event.data["unread"]:
                self.mailbox.deliver(Event(seq, "message.received", None, data, text, at=at))

    def patched(self, patch: str) -> bool:
        """True when first reached at the edge of the journal, False when passed on replay; fixed for the run."""
        known = self.patches.get(patch)
        if known is None:
            if self.journal.claim_patch(patch):
                known = True
            else:
                known = self.live or (self.journal.exhausted and not self.journal.unclaimed and not self.awaits_restore)
                if known:
                    self._mark_patched(patch)
            self.patches[patch] = known
        return known

    def _mark_patched(self, patch: str) -> None:
        if self.live:
            self.record("patched", None, {"patch": patch})
        else:  # at the edge, but other tasks may still stir: it is written with the first thing that is
            self.edge_patches.append(patch)

    # Leaving

    def close(self, outcome: str) -> None:
        """Leave memory, for good: 'ended', 'parked', 'released', 'paused' or 'lost'."""
        if self.closing:
            return
        self.closing = outcome
        if self.park_timer is not None:
            self.park_timer.cancel()
        for call in self.calls.values():
            timer = getattr(call, "_timer", None)
            if timer is not None:
                timer.cancel()
        for driver in list(self.drivers):
            driver.cancel()
        for task in list(self.tasks):
            task.cancel()
        if not self.ended.done():
            self.ended.set_result(outcome)

    async def unwound(self) -> None:
        """Wait a little for the tasks to unwind; what does not end is kept, never left to the garbage collector."""
        left: set[asyncio.Task[Any]] = {*self.tasks, *self.drivers}
        if left:
            _, left = await asyncio.wait(left, timeout=1.0)
        for stray in left:
            self.host.keep(stray)

    def refused(self, verb: str) -> Durable[Any]:
        """What a verb gives while the run leaves memory."""
        self.refusals += 1
        if self.refusals <= REFUSALS:
            raise Suspended
        return Durable(verb, self._refusal)

    def _refusal(self) -> Generator[Any, Any, Any]:
        self.refusals += 1
        if self.refusals <= REFUSALS:
            raise Suspended
        while True:
            yield never(self.loop)

    def diverge(self, divergence: Divergence, found: str) -> None:
        """The code does not fit its journal: pause with the reason, before any effect."""
        self.pause(f"NondeterminismError: {divergence.told(self.run.id, found)}")

    def pause(self, reason: str) -> None:
        """Stop here; only a person or other code makes it go on."""
        if self.closing:
            return
        _log.error("%s", reason)
        append = Append(self.run.id, self.run.lease_epoch, self.next_seq)
        append.transition = Transition("paused", reason=reason)
        self._write(append, lambda at: None)
        self.close("paused")

    def _restless(self) -> None:
        if self.live and not self.ready:
            self.gate.kick()  # busy with things of its own, and nobody waits for it
            return
        lines = [f"{task.scope.path or 'root'} at {waiting_location(task.get_coro())}" for task in list(self.tasks)[:3]]
        self.pause(
            f"run {self.run.id!r} never settles: its tasks go on without waiting for anything, so no outcome can be "
            f"delivered in a fixed place. Look at {', '.join(lines)}; a loop around asyncio.sleep(0) is the usual cause"
        )

    def _stalled(self, event: Event) -> None:
        """Replay waits for a call that the code does not make: a divergence, or raw I/O that is still on its way."""
        self.resting = True
        if self.root is not None and self.root.done() and not self.tasks:
            conclude(self)
            return
        if not foreign.unaccounted(self):
            self._stalled_for_good(event, self.gate.activity)
            return
        with Placed(None):
            self.loop.call_later(STALL_GRACE_S, self._stalled_for_good, event, self.gate.activity)

    def _stalled_for_good(self, event: Event, seen: int) -> None:
        if self.gate.activity == seen and not self.closing:
            self.diverge(Divergence.of(event), "the code did not ask for it" + foreign.where(self))

    def stirred_by_foreign(self, scope: Scope, coro: Any) -> None:
        foreign.stirred(self, scope.path, coro)

    def report_foreign(self, path: str, what: str, line: str) -> None:
        with Placed(None):
            foreign.report(self, path, what, line)

    # Facts

    def facts(self) -> RunFacts:
        run = self.run
        return RunFacts(run.id, run.agent, json.loads(run.labels), run.parent_id, run.root_id, not self.live)

    def derived(self, label: str) -> str:
        """A hex string that only this run and label have."""
        return hashlib.sha256(f"{self.run.uid}\0{label}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def idempotency_key(self, key: str) -> str:
        return f"hf_{self.derived(key)}"
