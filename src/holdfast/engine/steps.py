"""Steps: running a body, again if it must be, and knowing what is not known.

`_drive` is the whole life of a call that has no outcome yet: settle what a crash left in doubt, wait until the next
attempt is due, write the intent where a crash must be noticed, run the body, and record how it ended.

Crash points. Before the intent: nothing happened. Between intent and outcome: in doubt, the policy decides. Without an
intent (policy 'retry') a crash leaves no trace and the body runs again with the same idempotency key. After the outcome:
never again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import time
from asyncio.events import _get_running_loop
from collections.abc import Callable
from typing import Any

from holdfast.engine.approvals import withdraw
from holdfast.engine.attempts import RUN_IT, Ended, Past
from holdfast.engine.bills import Bill
from holdfast.engine.bodies import NotBegun
from holdfast.engine.calls import Call, loaded, tagged
from holdfast.engine.divergence import unfit
from holdfast.engine.doubts import resolve
from holdfast.engine.limits import Passage, doze
from holdfast.engine.streams import Attempt
from holdfast.errors import BadArguments, InDoubt, LeaseLost, NotStorable, StepTimeout, Suspended
from holdfast.runtime import StepContext, StepSpec, _here
from holdfast.values import failures
from holdfast.values.codec import kept
from holdfast.values.signature import Bound
from holdfast.words import salvage
from holdfast.words.limits import lane_of
from holdfast.words.model import Event


class Account:
    """How far a body says it has come. The last is told; how often, is bounded: twice a second at first, ever more rarely then."""

    __slots__ = ("_began_s", "_call", "_data", "_timer")

    def __init__(self, call: StepCall) -> None:
        self._call, self._began_s = call, time.monotonic()
        self._data: dict[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, data: dict[str, Any]) -> None:
        """Now, or when it is time again."""
        if self._timer is not None:
            self._data = data
            return
        execution, call = self._call.execution, self._call
        execution.record("step.progress", call.key, call.facts(**data), call.keep())
        gap_s = max(0.5, (time.monotonic() - self._began_s) / 50)
        self._timer = execution.loop.call_later(gap_s, self._again, context=execution.outside)

    def _again(self) -> None:
        data, self._data, self._timer = self._data, None, None
        if data is not None and not (self._call.numbered or self._call.withdrawn or self._call.execution.closing):
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
        "_account",
        "_again",
        "_began_at",
        "_context",
        "_copy",
        "_has_copy",
        "_kept",
        "_limit_s",
        "_resumed",
        "_task",
        "bill",
        "bound",
        "looped",
        "so_far",
        "spec",
        "target",
    )

    def prepare(self, spec: StepSpec, target: object, bound: Bound) -> None:
        self.spec, self.target, self.bound = spec, target, bound
        self._task: asyncio.Task[None] | None = None
        self._copy: Any = None
        self._has_copy = self._kept = False
        self._account: Account | None = None  # what the body says of how far it has come
        self.looped = False  # a person has looked at the loop that it would go on with
        # The body sees the caller's context variables, live and resumed alike.
        self._context: contextvars.Context | None = contextvars.copy_context()

    def weigh(self) -> str:
        return self.bound.whole or self.bound.digest

    def thin(self) -> str:
        return self.bound.lean or self.bound.digest

    def ask(self) -> None:
        execution = self.execution
        execution.asks(self)
        if self.key in execution.journal.begun and self.key not in execution.journal.closed and not execution.closing:
            self._recall()

    def _recall(self) -> None:
        """Go on with the arguments that are on record, whatever the defaults are by now: with these a body ran, or was shown."""
        given, execution = Past.of(self.past()).given, self.execution
        text = self.bound.text if given is None else execution.text_of(given)
        self._kept = given is not None
        if text == self.bound.text:
            return
        try:
            self.bound = self.spec.signature.recorded(text, self.bound)
        except (BadArguments, NotStorable) as error:
            unfit(
                execution,
                f"NondeterminismError: run {execution.run.id!r}: the arguments that the journal has under the key {self.key!r} do "
                f"not fit the step any more: {error}. Nothing was done and nothing was written. Bring the old parameters and types "
                "back (new ones need a default), then resume the run",
            )
            return
        self.preview, self.whole = self.bound.preview, self.weigh()

    def keep(self) -> str | None:
        """The arguments for the first event of the call, if a default that changes could change them."""
        kept, self._kept = self._kept, True
        return None if kept or self.bound.text == self.bound.identity else self.bound.text

    def begin(self) -> None:
        past = self.past()
        self.so_far = Past.of(past) if past else Past()
        self._resumed = self.execution.edge_due is not None  # perhaps it ran before, and wrote to streams
        self._again = self._resumed and self.spec.in_doubt == "retry" and self._may_have_run()
        self._began_at, self._limit_s = 0, self.spec.timeout_s
        if self.bound.varies:
            whole = self.whole or self.bound.whole
            self.whole = "" if whole == self.digest else whole
            self.lean = self.lean or self.bound.lean
        self.bill = Bill()
        self._task = self.execution.start_driver(self._drive, self._fail, self._context)
        self._context = None

    def _may_have_run(self) -> bool:
        """Can an earlier owner have begun a body of which nothing is recorded, because it died or was stopped?

        It can if the last outcome that the agent had seen when it asked was recorded by an earlier owner: that one may
        have come to this call as well.
        """
        journal, epoch = self.execution.journal, self.execution.run.lease_epoch
        before = 0 if journal.checkpoint is None else journal.checkpoint.data["delivered"]
        place = min(self.asked - before, len(journal.outcomes))
        seen = journal.outcomes[place - 1] if place > 0 else journal.checkpoint
        return epoch > 1 and (seen is None or seen.epoch < epoch)

    async def _drive(self) -> None:
        """From an unanswered call to its recorded outcome."""
        spec, past, execution = self.spec, self.so_far, self.execution
        ended = RUN_IT
        if self._resumed:
            await execution.streams.know()
        if past.in_doubt:
            ended = await resolve(self, InDoubt(self._broken_off()), crashed=True)
        while True:
            while ended is RUN_IT:
                if past.due is not None:
                    await self.until_due()
                watched = execution.watch is not None or execution.meter is not None
                refused = await self._refused() if watched else None
                if refused is not None:
                    ended = Ended(error=refused, final=True)
                    break
                past.attempt += 1
                past.probes = 0
                ended = await self._let_through() if spec.flow is not None else await self._attempt()
                if ended.doubt and spec.in_doubt != "retry":
                    assert ended.error is not None
                    ended = await resolve(self, ended.error, crashed=False)
            past.in_doubt = False
            if ended.error is None:
                self._complete(ended.value)
                return
            past.failures += 1
            wait_s = None if ended.final else spec.retry.delay_s(past.failures, ended.error, self.key)
            if wait_s is None:
                await execution.streams.recall(self.key)
                self._fail(ended.error)
                return
            await self.put_off(wait_s, ended.error, **({"pauses": ended.pauses} if ended.pauses else {}))
            ended = RUN_IT

    def _broken_off(self) -> str:
        """What came while the body ran of which no end is recorded: its owner was told to pause at once, died, or let go."""
        started, journal = self.so_far.started, self.execution.journal
        if started is not None and journal.stopped.get(started.epoch, -1) > started.seq:
            return "it was stopped by a pause while the body ran"
        if started is None or started.epoch in journal.crashed:
            return "a crash came while the body ran"
        return "its worker was stopped, or gave the run back, while the body ran"

    async def _refused(self) -> Exception | None:
        """Why no body may begin, if none may; it may be asked for and waited for first."""
        watch, meter = self.execution.watch, self.execution.meter
        looped = None if watch is None else await watch.let_in(self)
        return looped if looped is not None or meter is None else await meter.let_in(self)

    async def _let_through(self) -> Ended:
        """One attempt of a step that has a rate or a limit."""
        flow, execution = self.spec.flow, self.execution
        assert flow is not None
        passage = Passage(self, lane_of(flow, self.spec.signature, self.bound.identity), self.so_far.turn)
        await passage.enter(
            lambda turn: execution.record("step.held", self.key, self.facts(**passage.told(turn)), self.keep())
        )
        self.so_far.turn, known = None, len(self.bill.spendings)
        try:
            ended = await self._attempt(passage)
            tokens = sum(spent.tokens for spent, _ in self.bill.spendings[known:])
            ended.pauses = await passage.learn(ended.error, tokens)
            return ended
        finally:
            passage.leave()

    # One attempt

    async def _attempt(self, passage: Passage | None = None) -> Ended:
        execution, spec = self.execution, self.spec
        if not execution.permitted:
            await execution.permission()
        execution.bodies += 1  # from the intent on: a run that is given back in between would be in doubt for nothing
        try:
            if spec.in_doubt != "retry":
                await execution.durably("step.started", self.key, self.facts(attempt=self.so_far.attempt), self.keep())
                await execution.assurance()
            self._began_at = execution.clock.now()
            if passage is not None:
                passage.begins(self._began_at)
            self.so_far.in_doubt = True  # until it is known how the body ended
            self.bill.bodies += 1
            context = self.context()
            context.stream = attempt = Attempt(self)
            context.tell = None if spec.transaction else self.tell
            execution.host.body_runs(spec, self.key)
            began_s, how, known = time.perf_counter(), "stopped", len(self.bill.spendings)
            try:
                ended = await self._perform(context)
                attempt.end(ended.error)
                how = "in_doubt" if ended.doubt else "completed" if ended.error is None else "failed"
            finally:
                execution.host.body_ended(how, time.perf_counter() - began_s)
                if len(self.bill.spendings) > known:
                    execution.host.spent(execution.run.agent, [spent for spent, _ in self.bill.spendings[known:]])
                if self._account is not None:
                    self._account.end()
            return ended
        finally:
            execution.body_ended()

    async def _perform(self, context: StepContext) -> Ended:
        ended = await self._body(context)
        self._still_wanted()
        return ended

    def _still_wanted(self) -> None:
        """A body may swallow that it was stopped; the record says that it was, and there is no other outcome."""
        if self.withdrawn:
            raise Suspended

    def _function(self) -> tuple[Callable[..., Any], bool]:
        """What runs, and whether in a thread."""
        spec = self.spec
        fn = self.execution.host.replacement(spec) or spec.fn
        return fn, spec.threaded if fn is spec.fn else not inspect.iscoroutinefunction(fn)

    async def _body(self, context: StepContext) -> Ended:
        fn, threaded = self._function()
        args = self.bound.args if self.target is None else (self.target, *self.bound.args)
        limit = None if self._limit_s is None else asyncio.timeout(self._limit_s)
        place = _here.set(context)
        try:
            if not threaded:
                coroutine = fn(*args, **self.bound.kwargs)
            else:
                ended = await self._in_thread(functools.partial(fn, *args, **self.bound.kwargs))
                if not inspect.iscoroutine(ended.value):
                    return ended
                coroutine = ended.value  # a decorator hid that the function is async
            if limit is None:
                return Ended(await coroutine)
            async with limit:
                return Ended(await coroutine)
        except InDoubt as error:
            return Ended(error=error, doubt=True)
        except Exception as error:
            if limit is not None and limit.expired():  # whatever the body made of being stopped
                return Ended(error=self._timed_out(error), doubt=True)
            return Ended(error=error)
        except asyncio.CancelledError:
            if self._task is not None and self._task.cancelling() == 0:  # the body's own, not ours
                return Ended(error=RuntimeError("the body of the step was cancelled from inside"))
            raise
        except (KeyboardInterrupt, Suspended, LeaseLost):
            raise
        except BaseException as error:  # sys.exit() in a body ends the body, not the worker
            problem = RuntimeError(f"the body of the step raised {type(error).__name__}: {error}")
            problem.__cause__ = error
            return Ended(error=problem)
        finally:
            _here.reset(place)

    async def _in_thread(self, body: Any) -> Ended:
        """Run a plain function in a thread. Nothing can stop a thread, so what it did is known only when it returns."""
        execution, may_repeat = self.execution, self.spec.in_doubt == "retry"
        running = execution.run_in_thread(body, lambda: not self.withdrawn)
        execution.unstoppable += not may_repeat
        try:
            done, _ = await asyncio.wait([running], timeout=self._limit_s)
            if not done:
                if may_repeat:
                    return Ended(error=self._timed_out(), doubt=True)
                await asyncio.wait([running])
            return Ended(running.result())
        except NotBegun:
            return RUN_IT
        finally:
            execution.unstoppable -= not may_repeat

    def _timed_out(self, cause: Exception | None = None) -> StepTimeout:
        timed_out = StepTimeout(f"no end within {self._limit_s:g} s")
        timed_out.__cause__ = cause  # its traceback shows where the body was
        return timed_out

    def tell(self, data: dict[str, Any]) -> None:
        """Have it in the history how far the body has come; in whatever thread the body is."""
        execution = self.execution
        if _get_running_loop() is execution.loop:
            self._tell(data)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody looks any more
                execution.loop.call_soon_threadsafe(self._tell, data, context=execution.outside)

    def _tell(self, data: dict[str, Any]) -> None:
        if not (self.numbered or self.withdrawn or self.execution.closing):
            if self._account is None:
                self._account = Account(self)
            self._account.tell(data)

    async def put_off(self, wait_s: float, error: Exception, **more: Any) -> None:
        """Record that the next attempt comes later."""
        past, wait_ms = self.so_far, round(wait_s * 1000)
        self.execution.streams.broke_off(self.key)
        record = failures.record(error, self.spec.raises)
        data = self.ending(attempt=past.attempt, failures=past.failures, wait_ms=wait_ms, error=record, **more)
        event = await self.execution.durably("step.retrying", self.key, data, self.keep())
        self._landed(event)
        past.due = event.at + wait_ms

    async def until_due(self) -> None:
        """A durable wait for the next attempt: the run may leave memory meanwhile."""
        due, self.so_far.due = self.so_far.due, None
        if due is None or due <= self.execution.clock.now():
            return  # a run that is due would only be parked to be claimed again
        await doze(self, "retry", due)

    def context(self) -> StepContext:
        """Where a body of this call is, or its probe."""
        execution = self.execution
        return StepContext(
            self.key, self.idempotency_key, self.so_far.attempt, execution.facts(), execution.host.resources,
            spendings=self.bill.spendings, left=self.bill.left(execution.clock), clock=execution.clock.now,
            again=self._again or self.so_far.attempt > 1,
        )  # fmt: skip

    def idempotency_key(self) -> str:
        return self.execution.idempotency_key(self.key, self.digest)

    # Outcomes

    def ending(self, **more: Any) -> dict[str, Any]:
        """What an event that ends an attempt says of the call, with what it has spent."""
        data, bill = self.facts(), self.bill
        data.update(more)
        if self.looped:
            data["loop"] = True
        if bill.spendings or bill.purses is not None:
            data |= bill.due(self.execution.clock)
        return data

    def _landed(self, _: Event) -> None:
        if self.execution.meter is not None:
            self.execution.meter.landed(self)

    def _ended(self, **more: Any) -> dict[str, Any]:
        return self.ending(attempts=max(self.so_far.attempt, 1), began=self._began_at, **more)

    def _complete(self, value: Any) -> None:
        try:
            text, self._copy = self.execution.stored(self.spec.signature.returns, value, "result")
        except NotStorable as error:
            self._fail(kept(error, value))
            return
        self._has_copy = self.numbered = True
        self.execution.streams.over(self.key)
        # The agent's only task waits for this, so nothing else can be recorded now.
        alone = self.execution.resting and self.execution.alone and self._account is None
        self._task = None  # its driver ends here
        then = None if self.execution.meter is None else self._landed
        data = self._ended()
        if then is None:
            del self.bound, self.bill, self.so_far  # as long as it is on its way nobody asks for these
        self.execution.record("step.completed", self.key, data, text, then=then, alone=alone)

    def _fail(self, error: Exception) -> None:
        self.numbered = True
        record = failures.record(error, self.spec.raises)
        data = self._ended(error=record)
        if partial := self.execution.streams.failed(self.key):
            data["partial"] = partial
        self.execution.record("step.failed", self.key, data, then=self._landed)

    def settle(self, event: Event) -> None:
        self.execution.means = event.data.get("left", self.execution.means)
        if self.execution.watch is not None:
            self.execution.watch.saw(self, event)
        super().settle(event)

    def read(self, event: Event) -> Any:
        if event.kind == "step.completed":
            if self._has_copy:
                return self._copy
            spec = self.spec
            return loaded(self.execution, spec.signature.returns, event, f"a result of {self.name!r}", spec.migrate)
        attempts = event.data.get("attempts", 1)
        error = failures.rebuild(event.data["error"], self.spec.raises, step=self.name, attempts=attempts)
        if "partial" in event.data:
            salvage.attach(error, self.execution.streams.partial(event.data["partial"]))
        raise tagged(error, self.key, event.seq)

    def abandon(self) -> None:
        """Stop the body. Whether it had its effect is not known, which the record says."""
        if self._task is not None:
            self.execution.stop_driver(self._task)
        if self.so_far.question is not None:
            withdraw(self.execution, self.key, self.so_far.question)
        if self.begun:
            self.numbered = True
            self.execution.streams.over(self.key, well=False, reason="cancelled")
            self.execution.record(
                "step.cancelled", self.key, self.ending(in_doubt=self.so_far.in_doubt), then=self._landed
            )

    def forsake(self) -> None:
        question = Past.of(self.past()).question
        if question is not None:
            self.execution.mailbox.forsaken[question] = self.key
