"""Identity: a call's key is the path of asyncio tasks that leads to it, its name, and how often that name came before.

`summarise_all#0/summarise#2` is the third `summarise` in the first task `summarise_all` of the root. Each task is
sequential code, so it has an order of its own that no timing can change; a key is taken when the verb is called, before
anything is awaited. `scope(name)` pins a path, leaving out the private task names of a framework around it.

A scope is the local engine's `Runtime`: one per task of a run, the value of the context variable while agent code runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.approvals import ApprovalCall
from holdfast.engine.calls import Call, NoteCall, PlanCall, ProgressCall, ReceiveCall, Tick, TimerCall, opened
from holdfast.engine.checkpoints import CheckpointCall, restore
from holdfast.engine.children import ChildCall, SpawnCall
from holdfast.engine.conversations import AddCall, EnterCall, LeaveCall, ReadCall, Talk
from holdfast.engine.fast_forward import ahead, skip
from holdfast.engine.loop import RunTask, in_place
from holdfast.engine.loops import Watch
from holdfast.engine.steps import StepCall
from holdfast.engine.streaming import AgentOutlet, UnfinishedCall
from holdfast.engine.transactions import TransactionCall
from holdfast.errors import BadArguments, HoldfastError, NotInRun, NotStorable, Suspended
from holdfast.runtime import UNSET, AgentSpec, Answer, Durable, Question, RunFacts, StepSpec, _here
from holdfast.values.codec import UNTYPED, Migrate, Shape, checked_size, digest, digest_of, preview
from holdfast.values.signature import Input
from holdfast.words.budget import Remaining, remaining
from holdfast.words.durations import moment
from holdfast.words.loops import Loops
from holdfast.words.model import Recorded
from holdfast.words.overrides import check_seen
from holdfast.words.salvage import Salvaged
from holdfast.words.spent import Spent

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution


class Scope:
    """One task of a run, or one named block of it; hands out keys in program order."""

    __slots__ = ("execution", "made_at", "named", "path", "task")
    is_scope: Final = True

    def __init__(self, execution: Execution, path: str, named: str, task: asyncio.Task[Any] | None = None) -> None:
        self.execution, self.path, self.named, self.task = execution, path, named, task
        self.made_at = ""  # the line that made the task, if its own code has none to show

    # Identity

    def key(self, label: str) -> str:
        """The next key for this label; one counter per path and label in a run."""
        execution = self.execution
        place = f"{self.path}/{label}" if self.path else label
        nth = execution.counters.get(place, 0)
        execution.counters[place] = nth + 1
        return f"@{execution.era}/{place}#{nth}" if execution.era else f"{place}#{nth}"

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        if self._check("scope") is not None:
            raise Suspended
        if not isinstance(name, str) or not name or "/" in name or "#" in name or len(name) > 200:
            raise BadArguments(f"{name!r} cannot name a scope; use 1 to 200 characters without '/' and '#'")
        path = f"{self.named}/{name}" if self.named else name
        if path in self.execution.open_scopes:
            raise HoldfastError(
                f"scope {path!r} is open already; two blocks with one name at the same time would mix up their calls. "
                "Give each its own name, such as the tool call's id"
            )
        self.execution.open_scopes.add(path)
        inner, task = Scope(self.execution, path, path, self.task), self.task
        token = _here.set(inner)
        if isinstance(task, RunTask):
            task.scope = inner
        try:
            yield
        finally:
            if isinstance(task, RunTask):
                task.scope = self
            _here.reset(token)
            self.execution.open_scopes.discard(path)

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

    def skip(self, keys: Sequence[str], task: str) -> Durable[None]:
        if (refused := self._check("skip")) is not None:
            return refused
        return self.execution.offered("skip", lambda: skip(self, keys, task))

    def at_home(self) -> Scope:
        """The scope of the task that is running, if it is one of this run.

        Some frameworks copy the context variables of one task into another, and this scope with them. Whose code runs is
        known by the task.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return self
        if task is self.task or not isinstance(task, RunTask) or task.scope.execution is not self.execution:
            return self
        return task.scope

    def _check(self, verb: str) -> Durable[Any] | None:
        """A verb must be called in the task it belongs to: from a thread or a callback its order would be chance.

        While the run leaves memory every verb is refused; the first hundred times by raising `Suspended`, then (code that
        swallows everything must not spin the loop) by a call that never ends.
        """
        if self.execution.closing:
            return self.execution.refused(verb)
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

    def _durable(self, name: str, call: Call) -> Durable[Any]:
        return self.execution.offered(name, call.wait)

    # Verbs

    @property
    def facts(self) -> RunFacts:
        return self.execution.facts()

    def step(self, spec: StepSpec, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Durable[Any]:
        if (refused := self._check(spec.name)) is not None:
            return refused
        if target is None and spec.signature.skip_self:
            if not args:
                raise BadArguments(f"step {spec.name!r} is a method; call it on an object, or pass one first")
            target, args = args[0], args[1:]
        bound, key = spec.signature.identify(args, kwargs), self.key(spec.name)
        if bound.varies and key not in self.execution.journal.closed:
            bound.hold()  # a body may run
        kind = StepCall if spec.transaction is None else TransactionCall
        call = kind(self.execution, key, spec.name, bound.digest, bound.preview)
        call.prepare(spec, target, bound)
        return self._durable(spec.name, call)

    def timer(self, delay_ms: int | None, until_ms: int | None) -> Durable[None]:
        if (refused := self._check("sleep")) is not None:
            return refused
        return self._durable("sleep", self._timer(":sleep", delay_ms, until_ms))

    def _timer(self, label: str, delay_ms: int | None, until_ms: int | None) -> TimerCall:
        text = f'{{"ms": {delay_ms}}}' if until_ms is None else f'{{"until": {until_ms}}}'
        call = TimerCall(self.execution, self.key(label), label, digest(text), text)
        call.prepare(delay_ms, until_ms)
        return call

    def deadline(self, delay_ms: int, callback: Callable[[], None]) -> TimerCall:
        if self._check("timeout") is not None:
            raise Suspended
        call = self._timer(":timeout", delay_ms, None)
        call.calls_back(callback)
        return call

    def time(self) -> float:
        """What the loop's time is to agent code: that of the last outcome, and never before a timer that has fired."""
        return max(self.execution.time / 1000, self.execution.ticked_s)

    def tick(self, delay_s: float, callback: Any, args: tuple[Any, ...], context: Any) -> Tick:
        if _in_task_or_thread():  # a callback of the loop may set a timer too: it runs where an outcome put it
            self._check("an asyncio timer")
        if (_here.get(UNSET) if context is None else context.get(_here, UNSET)) is UNSET:
            callback = in_place(self, callback)
        call = Tick(self.execution, self.key(":tick"), ":tick", "", "")
        call.prepare(delay_s, self.time() + delay_s, callback, args, context)
        return call

    def message(self, topic: str, shape: Shape, timeout_ms: int | None) -> Durable[Any]:
        if (refused := self._check("receive")) is not None:
            return refused
        label = f":receive.{digest(topic)[:8]}"
        call = ReceiveCall(self.execution, self.key(label), label, "", topic)
        call.prepare(topic, shape, None if timeout_ms is None else self._timer(":receive.timeout", timeout_ms, None))
        return self._durable("receive", call)

    def messages(self, topic: str, shape: Shape) -> list[Any]:
        if self._check("receive_nowait") is not None:
            raise Suspended
        mailbox = self.execution.mailbox
        letters = mailbox.take_all(topic)
        found = []
        for place, letter in enumerate(letters):
            try:
                found.append(opened(self.execution, topic, shape, letter))
            except BadArguments:  # only the one that does not fit is gone
                mailbox.put_back(topic, [*letters[:place], *letters[place + 1 :]])
                raise
        return found

    def child(self, spec: AgentSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Durable[Any]:
        if (refused := self._check(spec.name)) is not None:
            return refused
        (given, preview), key = self._fitting(spec, args, kwargs), self.key(spec.name)
        self._check_seen(spec, key)
        call = ChildCall(self.execution, key, spec.name, given.digest, preview)
        call.prepare(spec, given)
        return self._durable(spec.name, call)

    def spawn(self, spec: AgentSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Durable[str]:
        if (refused := self._check("spawn")) is not None:
            return refused
        (given, preview), key = self._fitting(spec, args, kwargs), self.key(f":spawn.{spec.name}")
        self._check_seen(spec, key)
        call = SpawnCall(self.execution, key, spec.name, given.digest, preview)
        call.prepare(spec, given)
        return self._durable("spawn", call)

    def _fitting(self, spec: AgentSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Input, str]:
        bound = spec.signature.bind(args, kwargs)
        given = bound.input
        checked_size(given.text, self.execution.host.value_limit_bytes, "the arguments")
        self.execution.host.serve(spec)  # refused here, live and resumed alike, if another agent has the name
        return given, bound.preview

    def _check_seen(self, spec: AgentSpec, key: str) -> None:
        """A child sees no override that its parent's code has made; one that is on record goes on as it began."""
        journal = self.execution.journal
        if key not in journal.begun and key not in journal.closed:
            check_seen(self.execution.overrides, f"a child run of {spec.name!r}")

    def child_result(self, child: str, agent: str) -> Durable[Any]:
        if (refused := self._check("awaiting a child")) is not None:
            return refused
        call = ChildCall(self.execution, self.key(f":await.{agent}"), agent, digest(f'"{child}"'), child)
        call.awaits(child, agent)
        return self._durable("child", call)

    def ask(self, question: Question) -> Durable[Answer]:
        if (refused := self._check(question.kind)) is not None:
            return refused
        shown, copy = self.execution.stored(question.shown_shape, question.shown, "show")
        needs = question.needed(copy)
        identity = question.shown_shape.identity(copy, "show")
        label, what = f":{question.kind}", digest_of({"question": question.text, "show": identity})
        key = self.key(label)
        hidden = question.shown_shape.hidden(copy, shown)
        if hidden and key not in self.execution.journal.begun and key not in self.execution.journal.closed:
            raise NotStorable(
                f"show: the default of {hidden!r} cannot be stored, so nobody would see it; show a value without that field"
            )
        call = ApprovalCall(self.execution, key, label, what, preview(shown))
        call.prepare(question, shown, copy, needs)
        return self._durable(question.kind, call)

    def enter(self, conversation: str, wait: bool) -> Durable[Talk]:
        if (refused := self._check("conversation")) is not None:
            return refused
        talks, label = self.execution.mailbox.talks, ":conversation"
        if conversation in talks:
            raise HoldfastError(
                f"this run has conversation {conversation!r}, or waits for it, already; hand on the one that was entered"
            )
        talk = talks[conversation] = Talk(self.execution, conversation)
        call = EnterCall(self.execution, self.key(label), label, digest(f'"{conversation}"'), conversation)
        call.prepare(talk, wait)
        return self._durable("conversation", call)

    def recall(self, talk: Talk, shape: Shape, first: int, end: int) -> Durable[list[Any]]:
        if (refused := self._inside(talk, "conversation.messages")) is not None:
            return refused
        label, what = ":conversation.messages", f'{{"first": {first}, "end": {end}}}'
        call = ReadCall(self.execution, self.key(label), label, digest(f'["{talk.conversation}", {what}]'), what)
        call.prepare(talk, shape, first, end)
        return self._durable("messages", call)

    def say(self, talk: Talk, shape: Shape, messages: tuple[Any, ...]) -> Durable[None]:
        if (refused := self._inside(talk, "conversation.add")) is not None:
            return refused
        texts = [self.execution.stored(shape, each, f"messages[{n}]")[0] for n, each in enumerate(messages)]
        named = [shape.identity(each, f"messages[{n}]") for n, each in enumerate(messages)]
        label, what = ":conversation.add", digest(f"[{','.join(named)}]")
        call = AddCall(self.execution, self.key(label), label, what, preview(texts[-1]) if texts else "")
        lean = [shape.lean(each, f"messages[{n}]") for n, each in enumerate(messages)] if shape.telling else named
        call.prepare(talk, texts, texts != named, digest(f"[{','.join(lean)}]") if shape.telling else what)
        return self._durable("add", call)

    def leave(self, talk: Talk) -> Durable[None]:
        if (refused := self._inside(talk, "conversation.leave")) is not None:
            return refused
        label, name = ":conversation.leave", talk.conversation
        call = LeaveCall(self.execution, self.key(label), label, digest(f'"{name}"'), name)
        call.prepare(talk)
        return self._durable("leave", call)

    def _inside(self, talk: Talk, verb: str) -> Durable[Any] | None:
        refused = self._check(verb)
        if refused is None and talk.left:
            raise HoldfastError(
                f"conversation {talk.conversation!r} was left; what belongs to it goes inside its block"
            )
        return refused

    def note(self, text: str, data: dict[str, Any]) -> Durable[None]:
        if (refused := self._check("note")) is not None:
            return refused
        stored, _ = UNTYPED.store({"text": text, "data": data}, "note")
        call = NoteCall(self.execution, self.key(":note"), ":note", digest(stored), preview(stored))
        call.prepare(stored, {"text": text[:2000]})
        return self._durable("note", call)

    def progress(self, data: dict[str, Any]) -> Durable[None]:
        return self._marked("progress", ProgressCall, data)

    def plan(self, items: list[list[Any]]) -> Durable[None]:
        return self._marked("plan", PlanCall, {"items": items})

    def watch(self, loops: Loops) -> None:
        if self._check("watch_loops") is not None:
            raise Suspended
        if self.execution.watch is None:
            self.execution.watch = Watch(self.execution, loops)

    def remaining(self) -> Remaining:
        if self._check("remaining") is not None:
            raise Suspended
        return remaining(self.execution.means, Spent(), self.execution.time)

    @property
    def planned(self) -> list[list[Any]]:
        return self.execution.plan

    @property
    def choices(self) -> dict[str, Any]:
        return self.execution.choices

    def _marked(self, verb: str, kind: type[NoteCall], data: dict[str, Any]) -> Durable[None]:
        if (refused := self._check(verb)) is not None:
            return refused
        text, _ = UNTYPED.store(data, verb)
        call = kind(self.execution, self.key(f":{verb}"), f":{verb}", digest(text), preview(text))
        call.prepare(None, data)
        return self._durable(verb, call)

    def stream(self, name: str) -> AgentOutlet:
        if self._check("stream") is not None:
            raise Suspended
        return AgentOutlet(self, name)

    def unfinished(self, name: str) -> Durable[Salvaged | None]:
        if (refused := self._check("unfinished")) is not None:
            return refused
        call = UnfinishedCall(self.execution, self.key(f":unfinished.{name}"), name, digest(name), name)
        return self._durable("unfinished", call)

    def restore(
        self, first: object, shape: Shape, build: Callable[[], Awaitable[Any]] | None, migrate: Migrate | None
    ) -> Durable[Any]:
        if (refused := self._check("restore")) is not None:
            return refused
        return self.execution.offered("restore", lambda: restore(self, first, shape, build, migrate))

    def checkpoint(self, state: object) -> Durable[Any]:
        if (refused := self._check("checkpoint")) is not None:
            return refused
        call = CheckpointCall(self.execution, self.key(":checkpoint"), ":checkpoint", "", "")
        call.prepare(self, state)
        return self._durable("checkpoint", call)

    def patched(self, patch: str) -> bool:
        if self._check("patched") is not None:
            raise Suspended
        return self.execution.patches.answer(patch)

    def now(self) -> datetime:
        if self._check("now") is not None:
            raise Suspended
        return moment(self.execution.time)

    def seed(self, label: str) -> str:
        if self._check(label.partition(":")[0]) is not None:
            raise Suspended
        return self.execution.derived(self.key(f":{label}"))


def _in_task_or_thread() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return True
