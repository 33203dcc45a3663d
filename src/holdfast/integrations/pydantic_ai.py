"""Pydantic AI: `Agent(..., capabilities=[HoldfastDurability()])`, then `await agent.run(...)` inside a `@holdfast.agent`.

Model requests, tool calls, MCP calls and event handlers are steps of the run. Everything else of the framework is agent
code, which is replayed. What is promised:

- Keys are pinned. The requests of the first `clerk.run(...)` are `clerk-0:model/clerk.model#0` and so on, a call of a tool is
  `clerk-0:<id of the call>/<tool>#0`, whatever tasks and functions the framework puts around them.
- A message is stored once, as the result of the step that made it. What a request was given is not stored with it.
- The model, its settings, the instructions and the tools are stored with the first request that they served, under a hash
  that later requests name. They are part of a result and not of an identity: a new prompt stops no run.
- A tool with `metadata={"holdfast": False}`, and one that is a `@step` or `@agent` itself, runs in the agent. There it may
  use verbs, steps and other agents. Any other tool is a step, and `metadata={"holdfast": {"retry": 3, ...}}` configures it.
- A call that needs approval is a question in the inbox; its arguments may be edited, and the reason of a denial reaches the
  model. A call that is to be executed elsewhere is a question for its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Literal

from pydantic_ai import FunctionToolset, _utils
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler, WrapToolExecuteHandler
from pydantic_ai.durable_exec import (
    BaseDurabilityCapability,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    EventStreamHandlerId,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
    durable_unit_scope,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import (
    AgentDepsT,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_core import to_jsonable_python

import holdfast
from holdfast import BadArguments, LeafError, Local, NotInRun, NotStorable
from holdfast.integrations import pydantic_ai_records as records

__all__ = ["HoldfastDurability"]

_KEY: Final = "holdfast"  # in the metadata of tools
_STEP: Final = frozenset({"retry", "timeout", "in_doubt", "limit", "rate"})
_APPROVAL: Final = frozenset({"to", "needs", "expires", "default", "remind"})
_Options = dict[str, Any]
# Set while the framework may not run plain functions in threads. It has `disable_threads()`, which no step could take back;
# in a version without the variable such threads are reported as what they are.
_no_threads: ContextVar[bool] = getattr(_utils, "_disable_threads", ContextVar("no_threads"))


class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes a Pydantic AI agent durable inside a `@holdfast.agent`.

    `model` and `tools` are what `@holdfast.step` takes, for every model request (`retry`, `timeout`, `limit`, `rate`) and for
    every tool (`in_doubt` too; and what `holdfast.approve` takes, if it needs approval). A tool's own metadata comes first.
    `models`, `event_stream_handler` and `name` are as in the framework's own durability capabilities.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=records.Codec(),
        serialization_failure=lambda error: NotStorable(f"result: {error}"),
        # A run may leave memory between any two steps and go on elsewhere, so a session belongs to the step that uses it.
        # Whoever enters an MCP server around the worker has one session for all.
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-never", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=_KEY,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: _Options | None = None,
        tools: _Options | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self.model_options = _checked(model or {}, _STEP - {"in_doubt"}, "HoldfastDurability(model=...)")
        self.tool_options = _checked(tools or {}, _STEP | _APPROVAL, "HoldfastDurability(tools=...)")
        self._backend = _Steps(self)

    def get_durable_operation_backend(self) -> DurableOperationBackend[_Options]:
        if self._backend.capability is not self:  # the framework binds a copy to each agent
            self._backend = _Steps(self)
        return self._backend

    # Where and when

    @property
    def in_durable_context(self) -> bool:
        try:
            holdfast.now()
        except NotInRun:
            return False
        return True

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:
        try:
            holdfast.now()
        except LeafError as error:
            raise LeafError(
                f"agent {self.name!r} has HoldfastDurability and was run inside the body of a step, where its requests "
                f"would not be recorded one by one. If a tool ran it, give that tool metadata={{{_KEY!r}: False}}: then it "
                "runs in the agent"
            ) from error
        except NotInRun as error:
            raise NotInRun(
                f"agent {self.name!r} has HoldfastDurability and was run outside a run, where nothing would be durable. "
                "Call it in a function marked @holdfast.agent, and start that with `await hf.start(...)` inside `async "
                "with holdfast.open(...) as hf`, or with `holdfast run`; to use it without, leave the capability out"
            ) from error
        return self

    def get_default_run_id(self) -> str | None:
        if not self.in_durable_context:
            return None
        return f"{holdfast.place(_name(self.name))}@{holdfast.uuid4().hex[:12]}"  # where, and in which run of ours

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_run_clock(self) -> Callable[[], datetime] | None:
        if not self.in_durable_context:
            return None
        records.remember()  # here: this is asked in the task that has called `agent.run`, so its next one knows too
        return holdfast.now

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        # Instructions, validators and the like that are plain functions: a thread in agent code would not be recorded.
        with _threads(allowed=False):
            return await super().wrap_run(ctx, handler=handler)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        records.date(request_context.messages, ctx.run_id)
        return await super().before_model_request(ctx, request_context)

    async def after_run(self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        records.date(result.all_messages(), ctx.run_id)
        return await super().after_run(ctx, result=result)

    # Tools and people

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        with _pinned(ctx, call.tool_call_id):
            return await handler(args)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        approvals = [self._approval(ctx, call) for call in requests.approvals]
        results = [self._elsewhere(ctx, call) for call in requests.calls]
        answers = await asyncio.gather(*approvals, *results)
        asked = [call.tool_call_id for call in (*requests.approvals, *requests.calls)]
        given = list(zip(asked, answers, strict=True))
        cut = len(approvals)
        return DeferredToolResults(approvals=dict(given[:cut]), calls=dict(given[cut:]))

    async def _approval(self, ctx: RunContext[AgentDepsT], call: ToolCallPart) -> ToolApproved | ToolDenied:
        shown = call.args_as_dict()
        with _pinned(ctx, call.tool_call_id):
            decision = await holdfast.approve(
                f"Agent {self.name!r} wants to call the tool {call.tool_name!r}. May it?",
                show=shown,
                edit=True,
                **self._asking(ctx, call),
            )
        if decision:
            return ToolApproved(override_args=decision.data if decision.data != shown else None)
        unsaid = "Nobody approved it in time." if decision.expired else "The tool call was denied."
        return ToolDenied(decision.note or unsaid)

    async def _elsewhere(self, ctx: RunContext[AgentDepsT], call: ToolCallPart) -> Any:
        options = {key: value for key, value in self._asking(ctx, call).items() if key != "needs"}
        question = (
            f"Agent {self.name!r} called the tool {call.tool_name!r}, which is executed elsewhere. What is its result?"
        )
        with _pinned(ctx, call.tool_call_id):
            return await holdfast.ask(question, Any, show=call.args_as_dict(), **options)

    def _asking(self, ctx: RunContext[AgentDepsT], call: ToolCallPart) -> _Options:
        definition = ctx.tools.get(call.tool_name)
        options = self.options_of(call.tool_name, definition.metadata if definition else None)
        return {key: value for key, value in (options or {}).items() if key in _APPROVAL}

    def options_of(self, tool: str, metadata: Mapping[str, Any] | None) -> _Options | Literal[False]:
        """How a tool is run and asked about; False if it runs in the agent."""
        own = (metadata or {}).get(_KEY)
        if own is False:
            return False
        return self.tool_options | _checked(own or {}, _STEP | _APPROVAL, f"the metadata of tool {tool!r}")


class _Steps(DurableOperationBackend[_Options]):
    """Runs each operation of the framework as a step."""

    def __init__(self, capability: HoldfastDurability[Any]) -> None:
        self.capability = capability
        self._declared: dict[Any, tuple[holdfast.Step[..., Any], _Options]] = {}

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> Any:
        return _Bound(operation, self)

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: Any, tool_name: str
    ) -> _Options | Literal[False]:
        if isinstance(getattr(tool, "toolset", None), FunctionToolset):
            declared = tool.toolset.tools.get(tool_name)
            if declared is not None and isinstance(declared.function, holdfast.Step | holdfast.Agent):
                return False
        return self.capability.options_of(tool_name, tool.tool_def.metadata if tool is not None else None)

    async def request(self, operation: DurableOperation[Any, Any, Any], params: ModelRequestParams) -> Any:
        """One request to a model."""
        model = getattr(operation.operation_id, "model_name", None)

        async def work() -> Any:
            return records.stamped(await _performed(operation, params), model, params)

        step = self._step(f"{self.capability.name}.model", self.capability.model_options)
        with _pinned(params.run_context, "model"):
            answer = await step(work, prompt=records.last_words(params.messages))
        return operation.result_codec.load(records.unstamped(answer))

    async def call(self, operation: DurableOperation[Any, Any, Any], params: Any, options: _Options | None) -> Any:
        """One call of a tool, in the scope that `wrap_tool_execute` has opened."""
        step = self._step(params.name, options or {})
        work = functools.partial(_called, operation, params)
        return operation.result_codec.load(await step(work, **records.arguments(params.tool_args)))

    async def other(self, operation: DurableOperation[Any, Any, Any], params: Any) -> Any:
        """What else reaches out: tools and instructions of a server, event handlers, operations of other capabilities."""
        ctx: RunContext[Any] = getattr(params, "run_context", None) or params.ctx
        given: dict[str, Any] = {}
        match operation.operation_id:
            case ToolsetValidateToolArgumentsId():
                name = f"{params.name}.check"
            case ToolsetGetToolsId(toolset_id=toolset):
                name = f"{toolset}.tools"
            case ToolsetGetInstructionsId(toolset_id=toolset):
                name = f"{toolset}.instructions"
            case CapabilityOperationId(capability_id=capability, operation=what):
                name = f"{capability}.{what}"
            case EventStreamHandlerId():
                name, given = f"{self.capability.name}.events", {"event": params.event.event_kind}
            case kind:
                name = f"{self.capability.name}.{type(kind).__name__.removesuffix('Id')}"
        with _pinned(ctx, f"{name}:{ctx.tool_call_id}" if ctx.tool_call_id else name):
            work = functools.partial(_performed, operation, params)
            return operation.result_codec.load(await self._step(name, {})(work, **given))

    def _step(self, name: str, options: _Options) -> holdfast.Step[..., Any]:
        used = {key: value for key, value in options.items() if key in _STEP}
        mark = (name, *((key, id(value)) for key, value in used.items()))
        if mark not in self._declared:
            self._declared[mark] = _declared(_name(name), used), used  # which keeps the ids from being used again
        return self._declared[mark][0]


class _Bound:
    """One operation of the framework, which runs as a step when it is called."""

    def __init__(self, operation: DurableOperation[Any, Any, Any], steps: _Steps) -> None:
        self.operation, self._steps = operation, steps

    async def __call__(self, params: Any, *, config: Any = None) -> Any:
        match self.operation.operation_id:
            case ModelRequestId():
                return await self._steps.request(self.operation, params)
            case ToolsetCallToolId():
                return await self._steps.call(self.operation, params, config)
            case _:
                return await self._steps.other(self.operation, params)


_Work = Callable[[], Awaitable[Any]]


def _declared(name: str, options: _Options) -> holdfast.Step[..., Any]:
    async def perform(_work: Local[_Work], /, **_: Any) -> Any:
        return await _work()

    probe = options.get("in_doubt")
    if callable(probe):

        async def look(_work: Local[_Work], /, **arguments: Any) -> Any:
            found = await probe(**arguments)
            if isinstance(found, holdfast.NotDone):
                return found
            return records.returned({"kind": "tool_return", "result": to_jsonable_python(found)})

        options = options | {"in_doubt": look}
    # Whoever catches exceptions of the framework, of its models or of tools finds them to be what they were.
    return holdfast.step(name=name, raises=(Exception,), **options)(perform)


async def _performed(operation: DurableOperation[Any, Any, Any], params: Any) -> Any:
    with durable_unit_scope(), _threads(allowed=True):
        return operation.result_codec.dump(await operation.handler(params))


async def _called(operation: DurableOperation[Any, Any, Any], params: Any) -> Any:
    try:
        return await _performed(operation, params)
    except LeafError as error:
        raise LeafError(
            f"tool {params.name!r} is a step, and a step's body is a leaf: {error}. Or give the tool "
            f"metadata={{{_KEY!r}: False}}: then it runs in the agent and may use verbs, steps and other agents"
        ) from error


@contextlib.contextmanager
def _threads(*, allowed: bool) -> Iterator[None]:
    """Whether the framework runs plain functions in threads."""
    token = _no_threads.set(not allowed)
    try:
        yield
    finally:
        _no_threads.reset(token)


def _pinned(ctx: RunContext[Any], call: str) -> contextlib.AbstractContextManager[None]:
    """A scope that is named by where the agent was run, without the mark that tells it from those of other runs."""
    name = f"{re.sub('@[0-9a-f]{12}$', '', ctx.run_id or '')}:{call}".replace("/", ".").replace("#", "-")
    if len(name) > 200:
        name = f"{name[:160]}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return holdfast.scope(name)


def _name(name: str) -> str:
    """A name as steps have them."""
    return re.sub(r"^\W+|[^\w.:@-]", "_", name.strip("<>"))[:100] or "agent"


def _checked(options: Any, known: frozenset[str], where: str) -> _Options:
    if not isinstance(options, Mapping) or not known.issuperset(options):
        raise BadArguments(
            f"{where}: found {options!r}; expected False or a dict with any of {', '.join(sorted(known))}"
        )
    return dict(options)
