"""Steps: running a body, again if it must be, and knowing what is not known.

`_drive` is the whole life of a call that has no outcome yet: settle what a crash left in doubt, wait until the next
attempt is due, write the intent where a crash must be noticed, run the body, and record how it ended.

Crash points. Before the intent: nothing happened. Between intent and outcome: in doubt, the policy decides. Without an
intent (policy 'retry') a crash leaves no trace and the body runs again with the same idempotency key. After the outcome:
never again.

In doubt: a body ran and nobody knows whether it had its effect. The step's policy decides before any further attempt
(`_resolve`). A probe is tried again like a step; a person's answer may come days later, in another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import time
from asyncio.events import _get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.declare import NotDone
from holdfast.engine.announcements import Outgoing
from holdfast.engine.approvals import answered, approval_id, withdraw
from holdfast.engine.attempt import Attempt, Call, tagged
from holdfast.engine.host import RUN_IT, Ended, Stored, Work
from holdfast.engine.limits import Passage, doze
from holdfast.engine.outlets import BodyStreams
from holdfast.engine.turns import Reservation
from holdfast.errors import BadArguments, InDoubt, NotStorable, StepTimeout, Suspended
from holdfast.runtime import Placed, StepContext, StepSpec
from holdfast.store.announcements import NewAnnouncement
from holdfast.store.approvals import NewApproval
from holdfast.values import failures
from holdfast.values.codec import UNTYPED, kept
from holdfast.values.signature import Bound
from holdfast.values.tagged import read_noting
from holdfast.words import salvage
from holdfast.words.budget import Bill
from holdfast.words.clock import Timer
from holdfast.words.limits import lane_of
from holdfast.words.model import Event
from holdfast.words.people import writable

_NOT_HERE: Final = object()


@dataclass(slots=True)
class Past:
    """The attempts at one call so far, as the journal tells of them, and the one that runs now."""

    attempt: int = 0
    failures: int = 0
    due: int | None = None
    in_doubt: bool = False
    started: Event | None = None  # the last start of a body that was recorded
    probes: int = 0  # of this attempt, that failed
    undone: int = 0  # attempts in a row that the database undid
    turn: int | None = None  # the place of the turn of the step's rate that this attempt has reserved
    rate: Reservation | None = None  # which has it, while a body waits for it or runs
    given: Event | None = None  # has the arguments of the call, as far as its digest does not tell them
    question: str | None = None
    loop: bool = False  # the question is whether to go on with a loop
    looped: bool = False  # a person has looked at the loop that the call would go on with
    replaced: bool = False  # its outcome is not what a body did
    resumed: bool = False  # an earlier life of the run may have begun the call, and written to streams
    again: bool = False  # a body may have run of which the journal has no trace
    began_at: int = 0
    published: tuple[NewAnnouncement, ...] = ()  # by the body, or the probe, that came to the outcome

    @classmethod
    def of(cls, events: Sequence[Event]) -> Past:
        past = cls()
        for event in events:
            if past.given is None and _gives(event):
                past.given = event
            if event.kind == "step.started":
                past.attempt, past.in_doubt, past.started = event.data["attempt"], True, event
                past.question, past.loop = None, False
                past.probes, past.due, past.turn = 0, None, None
            elif event.kind == "step.retrying":
                past.attempt, past.failures = event.data["attempt"], event.data["failures"]
                past.probes, past.undone = event.data.get("probes", 0), event.data.get("undone", 0)
                past.due, past.in_doubt, past.turn = event.at + event.data["wait_ms"], past.probes > 0, None
            elif event.kind == "step.held":
                past.turn = event.data.get("place", event.data["at"] * 1000)
            elif event.kind == "approval.asked":
                past.question, past.loop = event.data["approval"], event.data["kind"] == "loop"
            elif event.kind == "approval.withdrawn":
                past.question, past.loop = None, False
        return past


def _gives(event: Event) -> bool:
    has_text = event.value is not None or event.blob is not None
    return has_text and (event.kind.startswith("step.") or bool(event.data.get("given")))


class Account:
    """A body's own account of how far it has come. Only the last word is recorded: twice a second, then ever more rarely."""

    __slots__ = ("_began_s", "_call", "_data", "_timer")

    def __init__(self, call: StepCall) -> None:
        self._call, self._began_s = call, time.monotonic()
        self._data: dict[str, Any] | None = None
        self._timer: Timer | None = None

    def tell(self, data: dict[str, Any]) -> None:
        """Record progress now, or when it is time again."""
        if self._timer is not None:
            self._data = data
            return
        attempt, call = self._call.attempt, self._call
        attempt.pen.record("step.progress", call.key, call.facts(**data), call.keep())
        gap_s = max(0.5, (time.monotonic() - self._began_s) / 50)
        with Placed(None):
            self._timer = attempt.host.clock.after(gap_s, self._again)

    def _again(self) -> None:
        data, self._data, self._timer = self._data, None, None
        if data is not None and not (self._call.numbered or self._call.withdrawn or self._call.attempt.life.closing):
            self.tell(data)

    def end(self) -> None:
        """The body has ended: its last word comes before its outcome."""
        if self._timer is not None:
            self._timer.cancel()
            self._again()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class StepCall(Call):
    """One call of a step."""

    of = "step"
    __slots__ = (
        "_account", "_bill", "_context", "_copy", "_kept", "_task", "bound", "so_far", "spec", "target",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, key: str, spec: StepSpec, target: object, bound: Bound) -> None:
        Call.__init__(self, attempt, key, spec.name, bound.digest, bound.preview)
        self.spec, self.target, self.bound = spec, target, bound
        self._task: asyncio.Task[None] | None = None
        self._copy: Any = _NOT_HERE  # of the result, if the body ran here
        self._kept = False
        self._account: Account | None = None  # what the body says of how far it has come
        self._bill: Bill | None = None  # until a body is about to run
        # The body sees the caller's context variables, live and resumed alike.
        self._context: contextvars.Context | None = contextvars.copy_context()

    @property
    def bill(self) -> Bill:
        """The spending of the bodies of this call."""
        if self._bill is None:
            self._bill = Bill()
        return self._bill

    @property
    def body_began_at(self) -> int:
        # There is none before the call begins, nor while its outcome is on its way.
        past: Past | None = getattr(self, "so_far", None)
        return 0 if past is None else past.began_at

    @property
    def body_attempt(self) -> int:
        past: Past | None = getattr(self, "so_far", None)
        return 0 if past is None else past.attempt

    def weigh(self) -> str:
        return self.bound.whole or self.bound.digest

    def thin(self) -> str:
        return self.bound.lean or self.bound.digest

    def ask(self) -> None:
        attempt = self.attempt
        attempt.asks(self)
        if self.key in attempt.journal.begun and self.key not in attempt.journal.closed and not attempt.life.closing:
            self._recall()

    def _recall(self) -> None:
        """Go on with the arguments that are on record, whatever the defaults are by now: with these a body ran, or was shown."""
        given, attempt = Past.of(self.past()).given, self.attempt
        text = self.bound.text if given is None else attempt.pen.text_of(given)
        self._kept = given is not None
        if text == self.bound.text:
            return
        try:
            self.bound = self.spec.signature.recorded(text, self.bound)
        except (BadArguments, NotStorable) as error:
            attempt.life.does_not_fit(
                f"NondeterminismError: run {attempt.run.id!r}: the arguments that the journal has under the key {self.key!r} do "
                f"not fit the step any more: {error}. Nothing was done and nothing was written. Bring the old parameters and types "
                "back (new ones need a default), then resume the run",
                given,
            )
            return
        self.preview, self.whole = self.bound.preview, self.weigh()

    def keep(self) -> str | None:
        """The arguments for the first event of the call, if a default that changes could change them."""
        kept, self._kept = self._kept, True
        return None if kept or self.bound.text == self.bound.identity else self.bound.text

    def tell_inputs(self, data: dict[str, Any]) -> None:
        self.tells = False
        self.attempt.pen.inputs.tell(self.spec, self.bound, data)

    def begin(self) -> None:
        past = self.past()
        self.so_far = Past.of(past) if past else Past()
        epoch = self.attempt.life.run.lease_epoch
        if epoch > 1 and self.attempt.edge_due is not None:
            before = self.attempt.journal.may_have_begun(self.asked, epoch)
            self.so_far.resumed, self.so_far.again = True, before and self.spec.in_doubt == "retry"
        if self.bound.varies:
            whole = self.whole or self.bound.whole
            self.whole = "" if whole == self.digest else whole
            self.lean = self.lean or self.bound.lean
        if self.attempt.pen.inputs.are_kept(self.spec):
            self.tells = not any("inputs" in event.data for event in past)
        self._task = self.attempt.bodies.start(self._drive, self, self._context)
        self._context = None

    async def _drive(self) -> None:
        """Drive an unanswered call to its recorded outcome."""
        spec, past, attempt = self.spec, self.so_far, self.attempt
        ended = RUN_IT
        if past.resumed:
            await attempt.streams.know()
        if past.in_doubt:
            ended = await self._resolve(InDoubt(self._broken_off()), crashed=True)
        elif attempt.kept.former is not None:
            ended = await attempt.kept.former.settle(self)
            if ended is not RUN_IT and ended.error is None:
                StepCall._complete(self, ended.value)
                return
        while True:
            while ended is RUN_IT:
                if past.due is not None:
                    await self.until_due()
                refused = await self._refused() if attempt.guards else None
                if refused is not None:
                    ended = Ended(error=refused, final=True)
                    break
                past.attempt += 1
                past.probes = 0
                ended = await self._let_through() if spec.flow is not None else await self._attempt()
                if ended.doubt and spec.in_doubt != "retry":
                    assert ended.error is not None
                    ended = await self._resolve(ended.error, crashed=ended.crashed)
            past.in_doubt = False
            if ended.error is None:
                self._complete(ended.value)
                return
            past.failures += 1
            wait_s = None if ended.final else ended.wait_s
            if wait_s is None and not ended.final:
                wait_s = spec.retry.delay_s(past.failures, ended.error, self.key)
            if wait_s is None:
                await attempt.streams.recall(self.key)
                self.fail(ended.error)
                return
            await self.put_off(wait_s, ended.error, **({"pauses": ended.pauses} if ended.pauses else {}))
            ended = RUN_IT

    def replace(self) -> None:
        """Note that its outcome is given, so no body runs."""
        self.so_far.replaced = True

    def looked_at(self) -> None:
        """Note that a person has looked at the loop that this call would go on with."""
        self.so_far.question, self.so_far.loop, self.so_far.looped = None, False, True

    def _broken_off(self) -> str:
        """Say why no end of the body is recorded: its owner was told to pause at once, died, or let go."""
        started, journal = self.so_far.started, self.attempt.journal
        if started is not None and journal.stopped.get(started.epoch, -1) > started.seq:
            return "it was stopped by a pause while the body ran"
        if started is None or started.epoch in journal.crashed:
            return "a crash came while the body ran"
        return "its worker was stopped, or gave the run back, while the body ran"

    async def _refused(self) -> Exception | None:
        """Return why no body may begin, if none may; a person may be asked, and waited for, first."""
        for guard in self.attempt.guards:
            refused = await guard.let_in(self)
            if refused is not None:
                return refused
        return None

    async def _let_through(self) -> Ended:
        """Make one attempt of a step that has a rate or a limit."""
        flow, attempt = self.spec.flow, self.attempt
        assert flow is not None
        passage = Passage(self, lane_of(flow, self.spec.signature, self.bound.identity), self.so_far.turn)
        await passage.enter(
            lambda turn: attempt.pen.record("step.held", self.key, self.facts(**passage.told(turn)), self.keep())
        )
        self.so_far.turn, known = None, len(self.bill.spendings)
        self.so_far.rate = passage.reservation
        try:
            ended = await self._attempt(passage)
            tokens = sum(spent.tokens for spent, _ in self.bill.spendings[known:])
            ended.pauses = await passage.learn(ended.error, tokens)
            return ended
        finally:
            self.so_far.rate = None
            passage.leave()

    # In doubt

    async def _resolve(self, error: Exception, *, crashed: bool) -> Ended:
        """The policy, before any further attempt: what happened, or that it must run (again)."""
        policy = self.spec.in_doubt
        if policy == "probe":
            found = await self._probe()
            if found is not None:
                return found
            return RUN_IT if crashed else Ended(error=error)
        if policy == "ask":
            text = (
                f"Did {self.name}({self.preview}) happen? Its outcome is not known: {error}. Its idempotency key is "
                f'{self.idempotency_key()}. Answer {{"result": ...}} if it happened, "run" if it did not and should run, "fail" '
                "to fail the step."
            )
            return await self.ask_person("whether the effect happened is not known", text, self.preview)
        if policy == "fail":
            timed_out = isinstance(error, StepTimeout)  # which says by itself that the effect is not known
            unknown = error if timed_out else InDoubt(f"whether the effect happened is not known: {error}")
            return Ended(error=unknown, final=True)
        return RUN_IT

    async def _probe(self) -> Ended | None:
        """Look whether the effect happened; None when it did not. A probe that fails is tried again like a step."""
        attempt, spec, past = self.attempt, self.spec, self.so_far
        assert spec.probe is not None
        while True:
            await self.until_due()
            await attempt.bodies.permission()
            attempt.bodies.begun()
            outgoing = Outgoing(self.idempotency_key)
            context = self._place(outgoing)
            try:
                ended = await attempt.host.perform(self._work(spec.probe, False, context, None))
            finally:
                attempt.bodies.ended()
                outgoing.end()
            past.published = outgoing.made if ended.error is None else ()
            error = ended.error
            if error is None:
                return None if isinstance(ended.value, NotDone) else ended
            past.probes += 1
            wait_s = spec.retry.delay_s(past.probes, error, f"{self.key}:probe")
            if wait_s is None:
                unknown = InDoubt(f"the probe failed, so what happened is not known: {error!r}")
                unknown.__cause__ = error
                return Ended(error=unknown, final=True)
            await self.put_off(wait_s, error, probes=past.probes)

    async def ask_person(self, why: str, text: str, shown: Any) -> Ended:
        """Ask a person; the answer may come days later, in another process. `why` is told if it is to fail."""
        attempt, past = self.attempt, self.so_far
        question = past.question or approval_id(attempt, self.key)
        if past.question is None:
            past.question = question
            await self._put_question(question, text, shown)
        decided = await answered(self, question)
        past.question = None
        answer, notes = read_noting(attempt.pen.text_of(decided))
        if answer == "run":
            return RUN_IT
        if answer == "fail":
            return Ended(error=InDoubt(f"{why}; {decided.data.get('by')} decided to fail the step"), final=True)
        return Ended(self.spec.signature.returns.revive(answer["result"], notes=notes))

    async def _put_question(self, question: str, text: str, shown: Any) -> None:
        approval = NewApproval(question, self.key, "in_doubt", writable(text), UNTYPED.store(shown)[0], self.digest)
        approval.schema = json.dumps(self.spec.signature.returns.schema())
        data = self.facts(of="step", kind="in_doubt", approval=question, question=approval.question[:2000], to=[])
        await self.attempt.pen.durably("approval.asked", self.key, data, approvals=[approval])

    # One attempt

    async def _attempt(self, passage: Passage | None = None) -> Ended:
        attempt, spec = self.attempt, self.spec
        if not attempt.bodies.permitted:
            await attempt.bodies.permission()
        attempt.bodies.begun()  # from the intent on: a run that is given back in between would be in doubt for nothing
        try:
            if spec.in_doubt != "retry":
                await attempt.pen.durably(
                    "step.started", self.key, self.facts(attempt=self.so_far.attempt), self.keep()
                )
                await attempt.bodies.assurance()
            self.so_far.began_at = attempt.host.clock.now()
            if passage is not None:
                passage.begins(self.so_far.began_at)
            self.so_far.in_doubt = True  # until it is known how the body ended
            bill = self.bill
            bill.bodies += 1
            streams, outgoing = BodyStreams(self, self.so_far.attempt), Outgoing(self.idempotency_key)
            context = self._place(outgoing, streams, None if spec.transaction else self.tell)
            attempt.host.body_runs(spec, self.key)
            began_s, how, known = time.perf_counter(), "stopped", len(bill.spendings)
            try:
                ended = await self._perform(context)
                streams.end(ended.error)
                self.so_far.published = outgoing.made if ended.error is None else ()
                how = "in_doubt" if ended.doubt else "completed" if ended.error is None else "failed"
            finally:
                outgoing.end()
                attempt.host.body_ended(how, time.perf_counter() - began_s)
                if len(bill.spendings) > known:
                    attempt.host.spent(attempt.run.agent, [spent for spent, _ in bill.spendings[known:]])
                if self._account is not None:
                    self._account.end()
            return ended
        finally:
            attempt.bodies.ended()

    async def _perform(self, context: StepContext) -> Ended:
        ended = await self.attempt.host.perform(self._work(*self._function(), context, self.spec.timeout_s))
        if self.withdrawn:
            raise Suspended  # a body may swallow that it was stopped; the record says that it was, and no other comes
        return ended

    def _function(self) -> tuple[Callable[..., Any], bool]:
        """The function that runs, and whether in a thread."""
        spec = self.spec
        fn = self.attempt.host.replacement(spec) or spec.fn
        return fn, spec.threaded if fn is spec.fn else not inspect.iscoroutinefunction(fn)

    def _work(self, fn: Callable[..., Any], threaded: bool, context: StepContext, limit_s: float | None) -> Work:
        args = self.bound.args if self.target is None else (self.target, *self.bound.args)
        return Work(
            self.spec, fn, threaded, args, self.bound.kwargs, context, limit_s, self._wanted, self.attempt.bodies, self.bound,
            self.target, self.digest, self.so_far.failures, self.so_far.rate,
        )  # fmt: skip

    def _wanted(self) -> bool:
        return not self.withdrawn

    def tell(self, data: dict[str, Any]) -> None:
        """Have it in the history how far the body has come; in whatever thread the body is."""
        attempt = self.attempt
        if _get_running_loop() is attempt.life.loop:
            self._tell(data)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody looks any more
                attempt.life.loop.call_soon_threadsafe(self._tell, data, context=attempt.life.outside)

    def _tell(self, data: dict[str, Any]) -> None:
        if not (self.numbered or self.withdrawn or self.attempt.life.closing):
            if self._account is None:
                self._account = Account(self)
            self._account.tell(data)

    async def put_off(self, wait_s: float, error: Exception, **more: Any) -> None:
        """Record that the next attempt comes later."""
        past, wait_ms = self.so_far, round(wait_s * 1000)
        self.attempt.streams.broke_off(self.key)
        record = failures.record(error, self.spec.raises)
        data = self.ending(attempt=past.attempt, failures=past.failures, wait_ms=wait_ms, error=record,
                           most=self.spec.retry.attempts, **more)  # fmt: skip
        event = await self.attempt.pen.durably("step.retrying", self.key, data, self.keep())
        self._landed(event)
        past.due = event.at + wait_ms

    async def until_due(self) -> None:
        """A durable wait for the next attempt: the run may leave memory meanwhile."""
        due, self.so_far.due = self.so_far.due, None
        if due is None or due <= self.attempt.host.clock.now():
            return  # a run that is due would only be parked to be claimed again
        await doze(self, "retry", due)

    def _place(
        self, publish: Outgoing, stream: BodyStreams | None = None, tell: Callable[[dict[str, Any]], None] | None = None
    ) -> StepContext:
        """Make the context in which a body of this call, or its probe, runs."""
        past, bill, host = self.so_far, self.bill, self.attempt.host
        now = host.clock.now
        return StepContext(
            self.key, self.idempotency_key, past.attempt, self.attempt.facts(), host.resources, None, bill.spendings,
            bill.left(now()) if bill.purses else {}, now, stream, tell, publish, past.again or past.attempt > 1,
        )  # fmt: skip

    def idempotency_key(self) -> str:
        return self.attempt.identity.idempotency_key(self.key, self.digest)

    # Outcomes

    def ending(self, **more: Any) -> dict[str, Any]:
        """Data for an event that ends an attempt: the facts of the call, and what it has spent."""
        data, bill = self.facts(), self._bill
        data.update(more)
        if self.so_far.looped:
            data["loop"] = True
        if self.so_far.replaced:
            data["replaced"] = True
        if bill is not None and (bill.spendings or bill.purses is not None):
            data |= bill.due(self.attempt.host.clock.now())
        return data

    def _landed(self, _: Event) -> None:
        for guard in self.attempt.guards:
            guard.landed(self)

    def _ended(self, **more: Any) -> dict[str, Any]:
        if self.so_far.published:
            more["published"] = {new.id: new.name for new in self.so_far.published}
        return self.ending(attempts=max(self.so_far.attempt, 1), began=self.so_far.began_at, **more)

    def _complete(self, value: Any) -> None:
        try:
            if isinstance(value, Stored):
                text = value.text
            else:
                text, self._copy = self.attempt.pen.stored(self.spec.signature.returns, value, "result")
        except NotStorable as error:
            self.fail(kept(error, value))
            return
        self.numbered = True
        self.attempt.end_streams(self)
        # The agent's only task waits for this, so nothing else can be recorded now.
        alone = self.attempt.tasks.resting and self.attempt.tasks.alone and self._account is None
        self._task = None  # its driver ends here
        then = self._landed if self.attempt.guards else None
        data, announces = self._ended(), self.so_far.published
        if then is None:
            del self.bound, self._bill, self.so_far  # as long as it is on its way nobody asks for these
        self.attempt.pen.record("step.completed", self.key, data, text, then=then, alone=alone, announces=announces)

    def fail(self, error: Exception) -> None:
        """Record that the call failed."""
        self.numbered, self.so_far.published = True, ()
        record = failures.record(error, self.spec.raises)
        data = self._ended(error=record)
        if partial := self.attempt.streams.failed(self.key):
            data["partial"] = partial
        self.attempt.pen.record("step.failed", self.key, data, then=self._landed)

    def settle(self, event: Event) -> None:
        if self.attempt.guards or "left" in event.data:
            self.attempt.saw_step(event)
        if not self.future.done():
            self.future.set_result(event)

    def read(self, event: Event) -> Any:
        if event.kind == "step.completed":
            if self._copy is not _NOT_HERE:
                return self._copy
            spec = self.spec
            return self.attempt.loaded(spec.signature.returns, event, f"a result of {self.name!r}", spec.migrate)
        attempts = event.data.get("attempts", 1)
        error = failures.rebuild(event.data["error"], self.spec.raises, step=self.name, attempts=attempts)
        if "partial" in event.data:
            salvage.attach(error, self.attempt.streams.partial(event.data["partial"]))
        raise tagged(error, self.key, event.seq)

    def abandon(self) -> None:
        """Stop the body. Whether it had its effect is not known, which the record says."""
        if self._task is not None:
            self.attempt.bodies.stop(self._task)
        if self.so_far.question is not None:
            withdraw(self.attempt, self.key, self.so_far.question)
        if self.begun:
            self.numbered = True
            self.attempt.end_streams(self, well=False, reason="cancelled")
            self.attempt.pen.record(
                "step.cancelled", self.key, self.ending(in_doubt=self.so_far.in_doubt), then=self._landed
            )

    def forsake(self) -> None:
        question = Past.of(self.past()).question
        if question is not None:
            self.attempt.inbox.mailbox.forsake(question, self.key)
