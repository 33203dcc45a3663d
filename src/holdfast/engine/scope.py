"""A scope is the local engine's `Runtime`: one per task of a run, the value of the context variable while agent code runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, cast

from holdfast.engine.announcements import NextEventCall, PublishCall
from holdfast.engine.approvals import ApprovalCall
from holdfast.engine.attempt import Attempt, Kept
from holdfast.engine.calls import LookCall, NoteCall, PlanCall, ProgressCall, ReceiveCall, Tick, TimerCall, opened
from holdfast.engine.checkpoints import CheckpointCall, RestoreCall
from holdfast.engine.children import ChildCall, SpawnCall
from holdfast.engine.conversations import AddCall, EnterCall, LeaveCall, ReadCall
from holdfast.engine.fast_forward import SkipCall, ahead
from holdfast.engine.loop import RunTask, in_place
from holdfast.engine.loops import Watch
from holdfast.engine.outlets import AgentOutlet, UnfinishedCall
from holdfast.engine.steps import StepCall
from holdfast.engine.transactions import TransactionCall
from holdfast.errors import BadArguments, NotInRun, Suspended
from holdfast.runtime import (
    UNSET,
    AddToConversation,
    AwaitChild,
    CallChild,
    Checkpoint,
    Durable,
    EnterConversation,
    LeaveConversation,
    Look,
    NextEvent,
    Note,
    Plan,
    Progress,
    Publish,
    Question,
    ReadConversation,
    Receive,
    Restore,
    RunFacts,
    Skip,
    Sleep,
    Spawn,
    StepSpec,
    Unfinished,
    _here,
)
from holdfast.values.codec import Shape
from holdfast.words.durations import moment
from holdfast.words.loops import Loops
from holdfast.words.model import Recorded

# What each request becomes.
CALLS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    Sleep: TimerCall,
    Receive: ReceiveCall,
    CallChild: ChildCall,
    AwaitChild: ChildCall,
    Spawn: SpawnCall,
    Question: ApprovalCall,
    EnterConversation: EnterCall,
    ReadConversation: ReadCall,
    AddToConversation: AddCall,
    LeaveConversation: LeaveCall,
    Note: NoteCall,
    Progress: ProgressCall,
    Plan: PlanCall,
    Publish: PublishCall,
    NextEvent: NextEventCall,
    Unfinished: UnfinishedCall,
    Restore: RestoreCall,
    Checkpoint: CheckpointCall,
    Skip: SkipCall,
    Look: LookCall,
}


class Scope:
    """One task of a run, or one named block of it; hands out keys in program order."""

    __slots__ = ("attempt", "made_at", "named", "path", "task", "tasks")
    is_scope: Final = True

    def __init__(self, attempt: Attempt, path: str, named: str, made_at: str, task: RunTask | None = None) -> None:
        self.attempt, self.path, self.named, self.task = attempt, path, named, task
        self.tasks = attempt.tasks
        self.made_at = made_at  # the line that made the task, if its own code has none to show

    def runs_in(self, task: RunTask) -> None:
        """The code of this scope runs in this task."""
        self.task = task

    def rename(self, path: str) -> None:
        """Go on as the task of this path."""
        self.attempt.identity.rename(self.path, path)
        self.path = path

    # Identity

    def key(self, label: str) -> str:
        """The next key for this label; one counter per path and label in a run."""
        return self.attempt.identity.key(self.path, label)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        if self._check("scope") is not None:
            raise Suspended
        if not isinstance(name, str) or not name or "/" in name or "#" in name or len(name) > 200:
            raise BadArguments(f"{name!r} cannot name a scope; use 1 to 200 characters without '/' and '#'")
        path = f"{self.named}/{name}" if self.named else name
        self.attempt.identity.open(path)
        inner, task = Scope(self.attempt, path, path, self.made_at, self.task), self.task
        token = _here.set(inner)
        if task is not None:
            task.enter(inner)
        try:
            yield
        finally:
            if task is not None:
                task.enter(self)
            _here.reset(token)
            self.attempt.identity.close(path)

    def place(self, name: str) -> str:
        if self._check("place") is not None:
            raise Suspended
        key = self.key(name)
        return key.replace(f"{self.named}/", "", 1) if self.named else key

    @property
    def label(self) -> str:
        return self.path.rpartition("/")[2]

    def ahead(self, names: str) -> Iterator[Recorded]:
        if self._check("ahead") is not None:
            raise Suspended
        return ahead(self, names)

    def at_home(self) -> Scope:
        """The scope of the task that is running, if it is one of this run.

        Some frameworks copy the context variables of one task into another, and this scope with them. Whose code runs is
        known by the task.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return self
        if task is self.task or not isinstance(task, RunTask) or task.scope.tasks is not self.tasks:
            return self
        return cast("Scope", task.scope)

    def _check(self, verb: str) -> Durable[Any] | None:
        """Check that a verb is called in the task it belongs to: from a thread or a callback its order would be chance.

        While the run leaves memory every verb is refused; the first hundred times by raising `Suspended`, then (code that
        swallows everything must not spin the loop) by a call that never ends.
        """
        if self.attempt.life.closing:
            return self.attempt.tasks.refused(verb)
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not self.task:
            raise NotInRun(
                f"{verb} was called outside the task {self.path or 'root'!r} it belongs to (from a thread, a callback or "
                "another loop), where its place in the run's history would be chance. Call it in the agent's own tasks"
            )
        return None

    # Verbs

    @property
    def facts(self) -> RunFacts:
        return self.attempt.facts()

    def step(self, spec: StepSpec, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Durable[Any]:
        if (refused := self._check(spec.name)) is not None:
            return refused
        if target is None and spec.signature.skip_self:
            if not args:
                raise BadArguments(f"step {spec.name!r} is a method; call it on an object, or pass one first")
            target, args = args[0], args[1:]
        bound, key = spec.signature.identify(args, kwargs), self.attempt.identity.key(self.path, spec.name)
        if bound.varies and key not in self.attempt.journal.closed:
            bound.hold()  # a body may run
        kind = StepCall if spec.transaction is None else TransactionCall
        return self.attempt.offered(spec.name, kind(self.attempt, key, spec, target, bound).wait)

    def call(self, request: Any) -> Durable[Any]:
        if (refused := self._check(request.verb)) is not None:
            return refused
        call = CALLS[type(request)](self, request)
        return self.attempt.offered(request.verb.rpartition(".")[2], call.wait)

    def deadline(self, delay_ms: int, callback: Callable[[], None]) -> TimerCall:
        if self._check("timeout") is not None:
            raise Suspended
        call = TimerCall(self, Sleep(delay_ms, None), ":timeout")
        call.calls_back(callback)
        return call

    def time(self) -> float:
        """The loop's time as agent code sees it: that of the last outcome, and never before a timer that has fired."""
        return max(self.attempt.journal.time / 1000, self.tasks.ticked_s)

    def tick(self, delay_s: float, callback: Any, args: tuple[Any, ...], context: Any) -> Tick:
        if _in_task_or_thread():  # a callback of the loop may set a timer too: it runs where an outcome put it
            self._check("an asyncio timer")
        if (_here.get(UNSET) if context is None else context.get(_here, UNSET)) is UNSET:
            callback = in_place(self, callback)
        return Tick(self, delay_s, self.time() + delay_s, callback, args, context)

    def messages(self, topic: str, shape: Shape) -> list[Any]:
        if self._check("receive_nowait") is not None:
            raise Suspended
        mailbox = self.attempt.inbox.mailbox
        letters = mailbox.take_all(topic)
        found = []
        for place, letter in enumerate(letters):
            try:
                found.append(opened(self.attempt, topic, shape, letter))
            except BadArguments:  # only the one that does not fit is gone
                mailbox.put_back(topic, [*letters[:place], *letters[place + 1 :]])
                raise
        return found

    def watch(self, loops: Loops) -> None:
        if self._check("watch_loops") is not None:
            raise Suspended
        if not any(isinstance(guard, Watch) for guard in self.attempt.guards):
            self.attempt.guard_by(Watch(self.attempt, loops), first=True)

    @property
    def kept(self) -> Kept:
        return self.attempt.kept

    def stream(self, name: str) -> AgentOutlet:
        if self._check("stream") is not None:
            raise Suspended
        return AgentOutlet(self.attempt, self.key(f":stream.{name}"), name)

    def patched(self, patch: str) -> bool:
        if self._check("patched") is not None:
            raise Suspended
        return self.attempt.patches.answer(patch)

    def now(self) -> datetime:
        if self._check("now") is not None:
            raise Suspended
        return moment(self.attempt.journal.time)

    def seed(self, label: str) -> str:
        if self._check(label.partition(":")[0]) is not None:
            raise Suspended
        return self.attempt.identity.derived(self.key(f":{label}"))


def _in_task_or_thread() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return True
