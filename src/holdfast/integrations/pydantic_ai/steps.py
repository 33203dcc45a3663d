"""Steps for all that the framework asks to be durable: model requests, tool calls, and whatever else reaches out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Literal, Protocol

from pydantic_ai import FunctionToolset, _utils
from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperation,
    DurableOperationBackend,
    EventStreamHandlerId,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    durable_unit_scope,
)
from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import RunContext
from pydantic_core import to_jsonable_python

import holdfast
from holdfast import LeafError, Local
from holdfast.integrations.pydantic_ai import records
from holdfast.integrations.pydantic_ai.history import Compaction, middle, shortened, unfinished
from holdfast.integrations.pydantic_ai.names import pinned, step_name
from holdfast.integrations.pydantic_ai.resume import Turn, since, turn_of
from holdfast.integrations.pydantic_ai.stream import Streamed
from holdfast.values.parts import Growing

KEY: Final = "holdfast"  # in the metadata of tools
STEP: Final = frozenset({"retry", "timeout", "in_doubt", "limit", "rate", "inputs", "effects"})
Options = dict[str, Any]
# Set while the framework may not run plain functions in threads. It has `disable_threads()`, which no step could take back;
# in a version without the variable such threads are reported as what they are.
_no_threads: ContextVar[bool] = getattr(_utils, "_disable_threads", ContextVar("no_threads"))


class Durable(Protocol):
    """A capability, as its steps see it."""

    model_options: Options
    streamed: Streamed | None
    hands_on: bool

    @property
    def name(self) -> str: ...
    def models_for(self, model_id: str | None) -> tuple[str, ...]: ...
    def options_of(self, tool: str, metadata: Mapping[str, Any] | None) -> Options | Literal[False]: ...


class Steps(DurableOperationBackend[Options]):
    """Runs each operation of the framework as a step."""

    def __init__(self, capability: Durable) -> None:
        self.capability = capability
        self._declared: dict[Any, tuple[holdfast.Step[..., Any], Options]] = {}

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> Any:
        return _Bound(operation, self)

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: Any, tool_name: str
    ) -> Options | Literal[False]:
        if isinstance(getattr(tool, "toolset", None), FunctionToolset):
            declared = tool.toolset.tools.get(tool_name)
            if declared is not None and isinstance(declared.function, holdfast.Step | holdfast.Agent):
                return False
        return self.capability.options_of(tool_name, tool.tool_def.metadata if tool is not None else None)

    async def request(self, operation: DurableOperation[Any, Any, Any], params: ModelRequestParams) -> Any:
        """Make one request to a model, or to the models in their order until one answers."""
        ctx = params.run_context
        turn = turn_of(ctx)
        step = self._step(f"{self.capability.name}.model", self.capability.model_options, _request)

        async def ask(model: str | None) -> dict[str, Any]:
            asked = params if model is None else replace(params, model_id=model)
            name = model or getattr(operation.operation_id, "model_name", None)
            with pinned(ctx, "model"):
                work = functools.partial(self._asked, operation, asked, name, turn)
                answer: dict[str, Any] = await step(work, prompt=records.last_words(ctx.messages))
            return answer

        models = self.capability.models_for(params.model_id)
        asking = holdfast.fallback(ask, models, check=_answers, name=step.name)() if models else ask(None)
        try:
            answer = await asking
        except holdfast.BudgetExceeded as error:
            if not self.capability.hands_on or not params.model_request_parameters.allow_text_output:
                raise
            return unfinished(ctx.messages, error)
        own = None if models else getattr(operation.operation_id, "model_name", None)
        records.notice(self.capability.name, answer, own, params)
        response = operation.result_codec.load(records.unstamped(answer))
        turn.messages, turn.response, turn.returned = list(ctx.messages), answer["response"], {}
        records.known().asked_for.update((ctx.run_id, call.tool_call_id) for call in response.tool_calls)
        return response

    async def _asked(
        self, operation: DurableOperation[Any, Any, Any], params: ModelRequestParams, model: str | None, turn: Turn
    ) -> dict[str, Any]:
        """The body of a request's step."""
        with durable_unit_scope(), threads(allowed=True):
            streamed = self.capability.streamed
            ask = operation.handler if streamed is None else functools.partial(streamed.ask, operation.handler)
            response = await ask(params)
        records.account(response)
        stamp = records.stamped(operation.result_codec.dump(response), model, params)
        came = since(params.run_context, turn)
        return stamp if came is None else {**stamp, "since": came, "task": turn.task}

    async def compact(self, ctx: RunContext[Any], messages: list[ModelMessage], compaction: Compaction) -> None:
        """Take the middle out of a history that has become long. What goes, and what is put there, is recorded."""
        cut = middle(messages, compaction)
        if cut is None:
            return

        async def work() -> dict[str, Any]:
            with durable_unit_scope(), threads(allowed=True):
                return {"cut": cut, "text": await compaction.text(messages[slice(*cut)])}

        step = self._step(f"{self.capability.name}.compact", self.capability.model_options)
        with pinned(ctx, "compact"):
            found = await step(work, messages=len(messages))
        start, end = found["cut"]
        messages[:] = shortened(messages, start, end, found["text"])

    async def call(self, operation: DurableOperation[Any, Any, Any], params: Any, options: Options | None) -> Any:
        """Make one call of a tool, in the scope that `wrap_tool_execute` has opened."""
        step = self._step(params.name, options or {})
        work = functools.partial(_called, operation, params)
        try:
            stored = await step(work, **records.arguments(params.tool_args))
        except holdfast.BudgetExceeded as error:
            if not self.capability.hands_on:
                raise
            return operation.result_codec.load(f"Not run: {error}")  # the next request ends the run of the agent
        result = operation.result_codec.load(stored)
        ctx: RunContext[Any] = params.ctx
        if result.kind == "tool_return" and ctx.tool_call_id is not None:
            turn_of(ctx).returned[ctx.tool_call_id] = result.result
        return result

    async def other(self, operation: DurableOperation[Any, Any, Any], params: Any) -> Any:
        """Run all else that reaches out: tools and instructions of a server, event handlers, operations of other capabilities."""
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
        with pinned(ctx, f"{name}:{ctx.tool_call_id}" if ctx.tool_call_id else name):
            work = functools.partial(_performed, operation, params)
            return operation.result_codec.load(await self._step(name, {})(work, **given))

    def _step(self, name: str, options: Options, inputs: Callable[..., Any] | None = None) -> holdfast.Step[..., Any]:
        """Declare a step, once. `inputs` makes what is kept of its input, unless the options say that nothing is."""
        used = {key: value for key, value in options.items() if key in STEP}
        mark = (name, *((key, id(value)) for key, value in used.items()))
        if mark not in self._declared:
            made = _declared(step_name(name), used)
            if inputs is not None and used.get("inputs") != "digest":
                made = holdfast.Step(replace(made.spec, inputs=inputs))
            self._declared[mark] = made, used  # which keeps the ids from being used again
        return self._declared[mark][0]


class _Bound:
    """One operation of the framework, which runs as a step when it is called."""

    def __init__(self, operation: DurableOperation[Any, Any, Any], steps: Steps) -> None:
        self.operation, self._steps = operation, steps

    async def __call__(self, params: Any, *, config: Any = None) -> Any:
        match self.operation.operation_id:
            case ModelRequestId():
                return await self._steps.request(self.operation, params)
            case ToolsetCallToolId():
                return await self._steps.call(self.operation, params, config)
            case _:
                return await self._steps.other(self.operation, params)


def _request(work: functools.partial[Any], **_: Any) -> Growing:
    """Say what a model is asked with, for the history: the arguments of the step that asks are only what people read there."""
    turn: Turn = work.args[3]
    return turn.written.request(work.args[1])


def _request_version(work: functools.partial[Any], **_: Any) -> str:
    """Name what a model is asked with besides messages, as the record of its answer does."""
    return records.version_of(work.args[2], work.args[1])


_request.version = _request_version  # type: ignore[attr-defined]


def _answers(answer: dict[str, Any]) -> dict[str, Any]:
    if not answer["response"].get("parts"):
        raise ValueError("the answer was empty")
    return answer


_Work = Callable[[], Awaitable[Any]]


def _declared(name: str, options: Options) -> holdfast.Step[..., Any]:
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
    # Code that catches exceptions of the framework, of its models or of tools finds them to be what they were.
    return holdfast.step(name=name, raises=(Exception,), **options)(perform)


async def _performed(operation: DurableOperation[Any, Any, Any], params: Any) -> Any:
    with durable_unit_scope(), threads(allowed=True):
        return operation.result_codec.dump(await operation.handler(params))


async def _called(operation: DurableOperation[Any, Any, Any], params: Any) -> Any:
    try:
        return await _performed(operation, params)
    except LeafError as error:
        raise LeafError(
            f"tool {params.name!r} is a step, and a step's body is a leaf: {error}. Or give the tool "
            f"metadata={{{KEY!r}: False}}: then it runs in the agent and may use verbs, steps and other agents"
        ) from error


@contextlib.contextmanager
def threads(*, allowed: bool) -> Iterator[None]:
    """Tell whether the framework runs plain functions in threads."""
    token = _no_threads.set(not allowed)
    try:
        yield
    finally:
        _no_threads.reset(token)
