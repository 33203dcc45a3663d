"""The performer of bodies on Temporal: each is an activity, named by the key of its call and the digest of its input.

A body travels to any worker that serves the agent, if it can: its arguments are stored texts, and it is found there by its name.
One that cannot (a method's object, a `Local`, a context variable that is set, a function that stands in its place) runs at home, on
a task queue of the very process that has the run; if that dies, at the next one's.

Failures come back as records, made where the body ran, and what its `retry` says of them too: only there is the exception itself.
A crash of whatever ran a body comes back as one, or, where the step may simply run again, is the server's to repeat.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from holdfast.backends.temporal.address import STEP
from holdfast.backends.temporal.house import Body, House, place_of
from holdfast.backends.temporal.loads import PAYLOADS, Load, weight
from holdfast.backends.temporal.side import piece_of
from holdfast.backends.temporal.turns import AHEAD_MS, turn_of
from holdfast.declare import NOT_DONE
from holdfast.engine.elsewhere import learn
from holdfast.engine.host import Ended, Stored, Work
from holdfast.engine.loop import _lent
from holdfast.errors import InDoubt, StepTimeout, Suspended
from holdfast.runtime import _here
from holdfast.store.limits import Turn
from holdfast.store.work import settle
from holdfast.values import failures
from holdfast.words.clock import Clock
from holdfast.words.model import CRASHES_AT_MOST, RunRow
from holdfast.words.spent import Spent

NOT_HERE: Final = "holdfast.not_here"  # the type of the failure of a body that is not in this process
GONE: Final = "holdfast.gone"  # the type of that of a body that began, and may not begin again
LATER: Final = "holdfast.later"  # the type of that of a body that lost its turn at a rate; it has another one
LACKS: Final = "holdfast.lacks"  # the type of that of a body that asked for what its ground has not
ENDED: Final = "holdfast.ended"  # the type of that of a body that failed
_FOREVER: Final = timedelta(days=3650)
_SLACK_S: Final = 30.0  # that a body may be late to be stopped by its own worker
_AT_HOME_S: Final = 10.0  # for so long a process is waited for to take a body that only it has
_KEY_LENGTH: Final = 700
_DOUBTS: Final = (InDoubt, StepTimeout)
_OURS: Final = (_here, _lent)


class Place(Protocol):
    """The ground of a run, as its bodies see it."""

    house: House
    row: RunRow
    loop: asyncio.AbstractEventLoop
    outside: contextvars.Context
    evicted: bool
    load: Load

    @property
    def has_side(self) -> bool: ...

    @property
    def clock(self) -> Clock: ...

    def came(self, key: str, activity: str, text: str) -> None:
        """The body of a step ended with this result."""
        ...

    def pause(self, reason: str) -> None: ...


class Performer:
    """Has bodies of one run performed."""

    def __init__(self, ground: Place) -> None:
        self._ground = ground
        self._usual = dict(contextvars.copy_context().items())  # context variables as they are where nobody has set any
        self._times: dict[str, int] = {}
        self.calls_off = False  # bodies were called off that the cluster may still have in a queue

    async def __call__(self, work: Work) -> Ended:
        """Run a body or a probe; returns how it ended."""
        ground, spec, context = self._ground, work.spec, contextvars.copy_context()
        travels = self._travels(work, context)
        probes = work.fn is spec.probe
        asked = _asked(work, probes)
        again = spec.in_doubt == "retry" or probes
        crashes, at = 0, None
        if not again:
            asked["once"] = True
        if ground.has_side:
            asked["beside"] = True
        while True:
            name = self._name(work, probes)
            try:
                told = await self._through(name, work, asked, context, travels=travels, again=again, at=at)
            except ActivityError as error:
                cause = error.cause
                if _is(cause, ENDED):
                    return self._failed(cause.details[0], work)  # type: ignore[union-attr]
                if _is(cause, LACKS):
                    ground.pause(f"run {ground.row.id!r}: its step {spec.name!r} {cause.message}")  # type: ignore[union-attr]
                    raise Suspended from None
                if _is(cause, NOT_HERE):
                    travels = False
                    continue
                if _is(cause, LATER):
                    asked["turn"] = cause.details[0]  # type: ignore[union-attr]
                    await self._until_soon(Turn(*asked["turn"][-3:]).at)
                    continue
                if isinstance(cause, ActivityTimeout) and cause.type == TimeoutType.SCHEDULE_TO_START:
                    at = None
                    continue  # nobody took it: the process that had it is gone
                asked.setdefault(
                    "after", name
                )  # if the body is still there, whatever follows is given what it comes to
                if not again and not _is(cause, GONE):
                    asked, at = {"once": True, "after": asked["after"]}, _place_in(cause)
                    continue
                if not again:
                    return Ended(error=InDoubt("a crash came while the body ran"), doubt=True, crashed=True)
                crashes += 1
                if crashes >= CRASHES_AT_MOST or travels:
                    ground.pause(
                        f"run {ground.row.id!r}: the process that runs step {spec.name!r} ended again and again in the middle of "
                        f"its body ({cause or error}). Mend the cause, then resume the run"
                    )
                    raise Suspended from None
                continue
            _spend(told, work)
            learn(work, map(piece_of, told.get("streams", ())))
            if told.get("undone"):
                return Ended(NOT_DONE)
            if probes:
                return Ended(Stored(told["text"]))
            ground.came(work.context.key, name, told["text"])
            return Ended(Stored(told["text"]))

    async def _until_soon(self, at: int) -> None:
        """Wait until a little before a turn."""
        clock, over = self._ground.clock, self._ground.loop.create_future()
        timer = clock.call_at(at - AHEAD_MS, lambda: settle(over, None, None))
        try:
            await over
        finally:
            timer.cancel()

    def _name(self, work: Work, probes: bool) -> str:
        """The id of the activity: what is asked for, and with which input."""
        key = work.context.key + (":probe" if probes else "")
        if len(key) > _KEY_LENGTH:
            key = f"{key[:_KEY_LENGTH]}.{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        name = f"{key} {work.digest[:12]}"
        times = self._times[name] = self._times.get(name, 0) + 1
        return name if times == 1 else f"{name} ~{times}"

    def _travels(self, work: Work, context: contextvars.Context) -> bool:
        spec, bound = work.spec, work.bound
        given = (*bound.by_position, *bound.by_keyword.values())
        if work.target is not None or any(argument.parameter.local for argument in given):
            return False
        if work.fn is not spec.fn and work.fn is not spec.probe:
            return False
        usual = self._usual
        for variable, value in context.items():
            if variable not in _OURS and (variable not in usual or usual[variable] is not value):
                return False
        return self._ground.house.step(self._ground.row.agent, spec.name, place_of(spec)) is spec

    async def _through(
        self, name: str, work: Work, asked: dict[str, Any], context: contextvars.Context, *, travels: bool, again: bool,
        at: str | None,
    ) -> dict[str, Any]:  # fmt: skip
        ground, house, options = self._ground, self._ground.house, dict[str, Any]()
        if not travels:
            home = asked["home"] = f"{workflow.info().run_id} {name}"
            house.bodies[home] = Body(work, context)
            options = {"task_queue": house.queue, "schedule_to_start_timeout": timedelta(seconds=_AT_HOME_S)}
        if at is not None:
            options = {"task_queue": at, "schedule_to_start_timeout": timedelta(seconds=_AT_HOME_S)}
        limit = _FOREVER if work.limit_s is None else timedelta(seconds=work.limit_s + _SLACK_S)
        tries = CRASHES_AT_MOST if travels and again else 1
        size = weight(asked)
        try:
            await ground.load.room(size)
            handle = workflow.start_activity(
                STEP if not travels else work.spec.name, args=[asked, ground.load.unsent.take(PAYLOADS - size)], activity_id=name,
                result_type=dict,
                start_to_close_timeout=limit, heartbeat_timeout=timedelta(seconds=house.settings.lease_ttl_s),
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.5,
                                         maximum_attempts=tries), **options,
            )  # fmt: skip
            told: dict[str, Any] = await self.awaited(handle)
            return told
        finally:
            if not travels:
                house.bodies.pop(asked.pop("home"), None)

    async def awaited(self, handle: asyncio.Task[Any]) -> Any:
        """Wait for an activity by way of a future of our own: a waiter that is cancelled must see that, and no `ActivityError`."""
        ground = self._ground
        done: asyncio.Future[None] = ground.loop.create_future()
        handle.add_done_callback(lambda _: settle(done, None, None), context=ground.outside)
        try:
            await done
        except asyncio.CancelledError:
            handle.add_done_callback(lambda task: task.cancelled() or task.exception())
            if not ground.evicted:
                self.calls_off = self.calls_off or not handle.done()
                handle.cancel()
            raise
        return handle.result()

    def _failed(self, told: Mapping[str, Any], work: Work) -> Ended:
        _spend(told, work)
        learn(work, map(piece_of, told.get("streams", ())))
        error = failures.recorded(told["error"], _DOUBTS if told["doubt"] else work.spec.raises)
        return Ended(error=error, doubt=told["doubt"], final=told["wait_s"] is None, wait_s=told["wait_s"])


def _asked(work: Work, probes: bool) -> dict[str, Any]:
    context, run = work.context, work.context.run
    assert run is not None
    asked: dict[str, Any] = {
        "agent": run.agent, "step": work.spec.name, "place": place_of(work.spec), "input": work.bound.text, "key": context.key,
        "mark": context.idempotency_key, "attempt": context.attempt, "failures": work.failures, "limit_s": work.limit_s,
        "again": context.again, "run": run.id, "labels": run.labels, "parent": run.parent, "root": run.root, "probe": probes,
        "turn": None if work.rate is None else turn_of(work.rate), "left": context.left,
    }  # fmt: skip
    return {name: value for name, value in asked.items() if value not in (None, False, {}, 0)}


def _is(cause: BaseException | None, kind: str) -> bool:
    return isinstance(cause, ApplicationError) and cause.type == kind


def _place_in(cause: BaseException | None) -> str | None:
    """Tell which process had a body, if it has said so: the task queue that only it takes from."""
    said = cause.last_heartbeat_details if isinstance(cause, ActivityTimeout) else ()
    return said[0] if said and isinstance(said[0], str) else None


def _spend(told: Mapping[str, Any], work: Work) -> None:
    work.context.spendings.extend((Spent.of(spent), model) for spent, model in told.get("spent", ()))
