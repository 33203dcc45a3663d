"""Child runs: started once however often they are asked for, and ended by an arrival in the parent's inbox.

A child's id and uid come from its parent's uid and the key of the call, so that a second attempt at the same call finds the
same child. Its row is written in one transaction with the event that says so. The id is made when the child is: a call that was
open where a fork began is made under the identity of another run, and its child must not be the other's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

from holdfast.engine.attempt import Attempt, Call, Site, tagged
from holdfast.engine.budgets import inherited
from holdfast.engine.journal import first_of
from holdfast.engine.loop import GateFuture
from holdfast.engine.parking import Wait
from holdfast.errors import RunCancelled, RunFailed, UnknownRun
from holdfast.runtime import AgentSpec, AwaitChild, CallChild, Spawn
from holdfast.store.blobs import unspilled
from holdfast.store.runs import NewRun
from holdfast.values.codec import UNTYPED, checked_size, digest
from holdfast.values.failures import record
from holdfast.values.signature import Input
from holdfast.words.limits import lane_of
from holdfast.words.model import FINISHED, Event, plain_id
from holdfast.words.overrides import check_seen


class SpawnCall(Call):
    """Starts a child run: the child's row and the outcome are written together."""

    of = "child"
    __slots__ = ("_input", "_spec")

    def __init__(self, site: Site, request: Spawn) -> None:
        spec = self._spec = request.spec
        self._input, preview = _fitting(site, spec, request.args, request.kwargs)
        super().__init__(site.attempt, site.key(f":spawn.{spec.name}"), spec.name, self._input.digest, preview)
        _check_seen(self)

    def weigh(self) -> str:
        return digest(self._input.text)

    def thin(self) -> str:
        return self._input.lean or self.digest

    def begin(self) -> None:
        self.numbered = True
        self.whole, self.lean = self._input.whole, self._input.lean
        child = new_child(self.attempt, self._spec, self.key, self._input)
        self.attempt.pen.record("child.spawned", self.key, self.facts(child=child.id), children=[child])

    def read(self, event: Event) -> str:
        self.attempt.host.serve(self._spec)
        child: str = event.data["child"]
        return child


class ChildCall(Call):
    """Waits for a child's end: one it starts itself (`await other(...)`), or one spawned before (`await child`)."""

    of = "child"
    __slots__ = ("_child", "_input", "_spec")

    def __init__(self, site: Site, request: CallChild | AwaitChild) -> None:
        self._spec: AgentSpec | None
        self._input: Input | None = None
        if isinstance(request, AwaitChild):
            agent, self._child = request.agent, request.child
            self._spec = site.attempt.host.spec_of(agent)
            key, what = site.key(f":await.{agent}"), digest(f'"{self._child}"')
            super().__init__(site.attempt, key, agent, what, self._child)
            return
        spec = self._spec = request.spec
        given, preview = _fitting(site, spec, request.args, request.kwargs)
        super().__init__(site.attempt, site.key(spec.name), spec.name, given.digest, preview)
        _check_seen(self)
        started = first_of(self.past(), "child.started")
        self._input, self._child = given, "" if started is None else started.data["child"]

    def weigh(self) -> str:
        return self.digest if self._input is None else digest(self._input.text)

    def thin(self) -> str:
        return self.digest if self._input is None else self._input.lean or self.digest

    def wait(self) -> Generator[Any, Any, Any]:
        attempt, mailbox = self.attempt, self.attempt.inbox.mailbox
        self.ask()
        if attempt.life.closing:
            yield from attempt.tasks.refusal()
        event = mailbox.ended.get(self._child)
        try:
            if event is None:
                if self._child and not self._starts():
                    mailbox.wait("child", self._child, self.future)
                event = yield from attempt.rest(self)
            if (
                event.data["status"] == "cancelled"
                and attempt.control.cancelling is not None
                and not attempt.control.unwinding
            ):
                # It is part of our own being cancelled, and no failure: that this agent is told of once, and soon.
                self.future = GateFuture(loop=attempt.life.loop)
                event = yield from attempt.rest(self)
        except asyncio.CancelledError:
            mailbox.forget("child", self._child, self.future)
            raise
        finally:
            attempt.drop(self)
        return self.read(event)

    def begin(self) -> None:
        attempt, former = self.attempt, self.attempt.kept.former
        starts = self._starts()
        if former is not None and self._input is not None and self.key in former.replaced:
            self._take(former.replaced[self.key], starts)
            return
        if starts:
            assert self._spec is not None
            assert self._input is not None
            child = new_child(attempt, self._spec, self.key, self._input)
            self._child = child.id
            ended = attempt.inbox.mailbox.ended.get(self._child)
            if ended is None:
                attempt.inbox.mailbox.wait("child", self._child, self.future)
            elif not self.future.done():
                self.future.set_result(ended)
            attempt.parking.waits[self.key] = Wait("child", None, f"child:{self._child}")
            self.whole, self.lean = self._input.whole, self._input.lean
            attempt.pen.record("child.started", self.key, self.facts(child=self._child), children=[child])
            return
        own = attempt.inbox.mailbox.stand_ins.get(self._child, self._child)
        attempt.parking.waits[self.key] = Wait("child", None, f"child:{own}")
        if self._spec is not None:
            attempt.host.serve(self._spec)
        _ = attempt.bodies.start(self._look)

    async def _look(self) -> None:
        """Look for the end of a child that was started before. One that is not there any more would be waited for for ever."""
        attempt = self.attempt
        if not await look_for_end(attempt, self._child) or attempt.bodies.stopping:
            return
        if self._input is not None and self._spec is not None:  # it was deleted, and this run was told to wait again
            child = new_child(attempt, self._spec, self.key, self._input)
            if child.id == self._child:
                attempt.pen.record("child.started", self.key, self.facts(child=child.id), children=[child])
                return
        own = attempt.inbox.mailbox.stand_ins.get(self._child, self._child)
        told = f"there is no run {own!r} any more: it was deleted, and nothing can end this wait for it"
        error = record(UnknownRun(told)) | {"traceback": ""}
        attempt.pen.record("child.ended", None, {"child": own, "status": "failed", "error": error})

    def _take(self, given: str, starts: bool) -> None:
        """Take the result that was given when the run was forked: no child is started."""
        attempt, former = self.attempt, self.attempt.kept.former
        assert self._spec is not None
        assert self._input is not None
        assert former is not None
        if not former.fits(attempt, self._spec.signature.returns, self.key, given):
            return
        if starts:
            self._child = child_id(attempt, self.key, self._spec.name)
            self.whole, self.lean = self._input.whole, self._input.lean
            attempt.inbox.mailbox.wait("child", self._child, self.future)
            attempt.pen.record("child.started", self.key, self.facts(child=self._child, replaced=True))
        data = {"child": self._child, "status": "completed", "error": None, "replaced": True}
        attempt.pen.record("child.ended", None, data, given)

    def _starts(self) -> bool:
        """Is there no child yet?"""
        return self._input is not None and first_of(self.past(), "child.started") is None

    def read(self, event: Event) -> Any:
        status, error = event.data["status"], event.data.get("error") or {}
        if status == "completed":
            shape = self._spec.signature.returns if self._spec else UNTYPED
            return self.attempt.loaded(shape, event, f"the result of child {self._child!r}")
        if status == "cancelled":
            raise tagged(RunCancelled(f"child run {self._child!r} was cancelled"), self.key, event.seq)
        message, kind, trace = error.get("message", ""), error.get("type", ""), error.get("traceback", "")
        failure = RunFailed(message, run=self._child, type=kind, traceback=trace)
        raise tagged(failure, self.key, event.seq, self._child)


def _fitting(site: Site, spec: AgentSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Input, str]:
    """The arguments of a child, and how they are shown."""
    bound, host = spec.signature.bind(args, kwargs), site.attempt.host
    given = bound.input
    checked_size(given.text, host.value_limit_bytes, "the arguments")
    host.serve(spec)  # refused here, live and resumed alike, if another agent has the name
    return given, bound.preview


def _check_seen(call: Call) -> None:
    """A child sees no override that its parent's code has made; one that is on record goes on as it began."""
    attempt = call.attempt
    if call.key not in attempt.journal.begun and call.key not in attempt.journal.closed:
        check_seen(attempt.kept.overrides, f"a child run of {call.name!r}")


def child_id(attempt: Attempt, key: str, agent: str, salt: str = "") -> str:
    """The id of the child that a call starts: every attempt at the call starts the same child."""
    mark = attempt.identity.derived(f"child:{key}{salt}")
    name = f"{attempt.run.id}.{plain_id(agent)}-{mark[:8]}"
    return name if len(name) <= 200 else f"{plain_id(agent)[:100]}-{mark}"


def new_child(attempt: Attempt, spec: AgentSpec, key: str, given: Input) -> NewRun:
    """The child's row: with the same labels, in the same tree, and in the same queue unless its agent has one."""
    run, former, salt = attempt.run, attempt.kept.former, ""
    if former is not None and (anew := former.anew(key, given.digest)) is not None:
        salt = f":{anew}"
    child = child_id(attempt, key, spec.name, salt)
    attempt.host.serve(spec)
    lane = lane_of(spec.flow, spec.signature, given.identity, child=True)
    return NewRun(
        child, attempt.identity.derived(f"uid:{key}{salt}"), spec.name, given.text, spec.version, spec.flow.queue or run.queue,
        run.labels, run.id, key, run.root_id or run.id, lane=lane, budget=inherited(run, spec.budget),
        identity=given.digest, origin=None if former is None else former.child(key, given.digest, attempt.talks.copies),
    )  # fmt: skip


async def look_for_end(attempt: Attempt, known: str) -> bool:
    """A child that was started before is awaited: ask its row, because nobody may tell of its end any more; True: there is none.

    A spawned one may have ended before the last checkpoint, and one that was retried with this run before this was ready.
    """
    child = attempt.inbox.mailbox.stand_ins.get(known, known)
    checkpoint = attempt.journal.checkpoint
    if attempt.talks.copies and checkpoint is not None and await _ended_before(attempt, known, child, checkpoint.seq):
        return False
    row = await attempt.host.store.run(child)
    if any(signal.topic == child for signal in await attempt.host.store.inbox(attempt.run.id, attempt.inbox.seen)):
        attempt.inbox.notice()  # somebody has told, and it need not be told twice
        return False
    coming = [event.data.get("child") for event in attempt.pen.undelivered.values() if event.kind == "child.ended"]
    if known in attempt.inbox.mailbox.ended or child in coming:
        return False
    if row is not None and row.status in FINISHED:
        error = None if row.error is None else json.loads(row.error)
        data = {"child": child, "status": row.status, "error": error}
        attempt.pen.record("child.ended", None, data, await unspilled(attempt.host.store, row.result))
    return row is None


async def _ended_before(attempt: Attempt, known: str, child: str, checkpoint: int) -> bool:
    """Look for the end of a child in the history before the last checkpoint: a fork shares children that ended in its past.

    Their rows belong to another run, and may be retried or deleted with it.
    """
    for event in await attempt.host.store.journal(attempt.run.id, 0):
        if event.seq >= checkpoint:
            break
        if event.kind == "child.ended" and event.data["child"] == child and known not in attempt.inbox.mailbox.ended:
            text = event.value if event.blob is None else (await attempt.host.store.blob(event.blob)).decode()
            attempt.pen.record("child.ended", None, event.data, text)
            return True
    return False
