"""Child runs: started once whoever starts them, and ended by an arrival in the parent's inbox.

A child's id and uid come from its parent's uid and the key of the call, so that a second attempt at the same call finds the
same child. Its row is written in one transaction with the event that says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from holdfast.engine.budgets import inherited
from holdfast.engine.calls import Call, Wait, loaded, tagged
from holdfast.engine.control import postpones
from holdfast.engine.journal import first_of
from holdfast.engine.loop import GateFuture
from holdfast.engine.parking import notice
from holdfast.errors import RunCancelled, RunFailed
from holdfast.runtime import AgentSpec
from holdfast.store.blobs import unspilled
from holdfast.store.runs import NewRun
from holdfast.values.codec import UNTYPED, digest
from holdfast.values.signature import Input
from holdfast.words.limits import lane_of
from holdfast.words.model import FINISHED, Event, plain_id

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution


class SpawnCall(Call):
    """Starts a child run: the child's row and the outcome are written together."""

    of = "child"
    __slots__ = ("_child", "_input", "_spec")

    def prepare(self, spec: AgentSpec, given: Input) -> None:
        self._spec, self._input = spec, given
        self._child = child_id(self.execution, self.key, spec.name)

    def weigh(self) -> str:
        return digest(self._input.text)

    def thin(self) -> str:
        return self._input.lean or self.digest

    def begin(self) -> None:
        if postpones(self.execution, self):
            return
        self.numbered = True
        self.whole, self.lean = self._input.whole, self._input.lean
        child = new_child(self.execution, self._spec, self._child, self.key, self._input)
        self.execution.record("child.spawned", self.key, self.facts(child=self._child), children=[child])

    def read(self, event: Event) -> str:
        self.execution.host.serve(self._spec)
        child: str = event.data["child"]
        return child


class ChildCall(Call):
    """Waits for a child's end: one it starts itself (`await other(...)`), or one spawned before (`await child`)."""

    of = "child"
    __slots__ = ("_child", "_input", "_spec")

    def prepare(self, spec: AgentSpec, given: Input) -> None:
        self._spec: AgentSpec | None = spec
        self._input: Input | None = given
        self._child = child_id(self.execution, self.key, spec.name)

    def weigh(self) -> str:
        return self.digest if self._input is None else digest(self._input.text)

    def thin(self) -> str:
        return self.digest if self._input is None else self._input.lean or self.digest

    def awaits(self, child: str, agent: str) -> None:
        self._spec, self._input, self._child = self.execution.host.spec_of(agent), None, child

    def wait(self) -> Generator[Any, Any, Any]:
        execution, mailbox = self.execution, self.execution.mailbox
        self.ask()
        if execution.closing:
            yield from execution.refusal()
        event = mailbox.ended.get(self._child)
        try:
            if event is None:
                mailbox.wait("child", self._child, self.future)
                event = yield from execution.rest(self)
            if event.data["status"] == "cancelled" and execution.cancelling is not None and not execution.unwinding:
                # It is part of our own being cancelled, and no failure: that this agent is told of once, and soon.
                self.future = GateFuture(loop=execution.loop)
                event = yield from execution.rest(self)
        except asyncio.CancelledError:
            mailbox.forget("child", self._child, self.future)
            raise
        finally:
            execution.drop(self)
        return self.read(event)

    def begin(self) -> None:
        execution = self.execution
        starts = self._input is not None and first_of(self.past(), "child.started") is None
        if starts and postpones(execution, self):
            return
        execution.waits[self.key] = Wait("child", None, f"child:{self._child}")
        if starts:
            assert self._spec is not None
            assert self._input is not None
            child = new_child(execution, self._spec, self._child, self.key, self._input)
            self.whole, self.lean = self._input.whole, self._input.lean
            execution.record("child.started", self.key, self.facts(child=self._child), children=[child])
            return
        if self._spec is not None:
            execution.host.serve(self._spec)
        _ = execution.start_driver(lambda: look_for_end(execution, self._child))

    def read(self, event: Event) -> Any:
        status, error = event.data["status"], event.data.get("error") or {}
        if status == "completed":
            shape = self._spec.signature.returns if self._spec else UNTYPED
            return loaded(self.execution, shape, event, f"the result of child {self._child!r}")
        if status == "cancelled":
            raise tagged(RunCancelled(f"child run {self._child!r} was cancelled"), self.key, event.seq)
        message, kind, trace = error.get("message", ""), error.get("type", ""), error.get("traceback", "")
        failure = RunFailed(message, run=self._child, type=kind, traceback=trace)
        raise tagged(failure, self.key, event.seq, self._child)


def child_id(execution: Execution, key: str, agent: str) -> str:
    """The same for every attempt at the call."""
    mark = execution.derived(f"child:{key}")
    name = f"{execution.run.id}.{plain_id(agent)}-{mark[:8]}"
    return name if len(name) <= 200 else f"{plain_id(agent)[:100]}-{mark}"


def new_child(execution: Execution, spec: AgentSpec, child: str, key: str, given: Input) -> NewRun:
    """The child's row: with the same labels, in the same tree, and in the same queue unless its agent has one."""
    run = execution.run
    execution.host.serve(spec)
    lane = lane_of(spec.flow, spec.signature, given.identity, child=True)
    return NewRun(
        child, execution.derived(f"uid:{key}"), spec.name, given.text, spec.version, spec.flow.queue or run.queue, run.labels,
        run.id, key, run.root_id or run.id, lane=lane, budget=inherited(execution, spec.budget),
        identity=given.digest,
    )  # fmt: skip


async def look_for_end(execution: Execution, child: str) -> None:
    """A child that was started before is awaited: ask its row, for nobody may tell of its end any more.

    A spawned one may have ended before the last checkpoint, and one that was retried with this run before this was ready.
    """
    row = await execution.store.run(child)
    if any(signal.topic == child for signal in await execution.store.inbox(execution.run.id, execution.inbox_seen)):
        notice(execution)  # somebody has told, and it need not be told twice
        return
    coming = [event.data.get("child") for event in execution.undelivered.values() if event.kind == "child.ended"]
    if row is not None and row.status in FINISHED and child not in (*execution.mailbox.ended, *coming):
        error = None if row.error is None else json.loads(row.error)
        data = {"child": child, "status": row.status, "error": error}
        execution.record("child.ended", None, data, await unspilled(execution.store, row.result))
