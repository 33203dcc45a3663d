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
- A history that ends in calls without results gets results that say what is known of them (`valid_history`), and one that
  has become long can be made shorter, in a recorded step.
- A call that needs approval is a question in the inbox; its arguments may be edited, and the reason of a denial reaches the
  model. What a person enters is checked by the tool's schema, and counts once the tool's own validation has accepted it.
  A call that is to be executed elsewhere is a question for its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic_ai import models as framework_models
from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler, WrapToolExecuteHandler
from pydantic_ai.durable_exec import (
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import KnownModelName, Model, ModelRequestContext, ModelResolutionContext
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

import holdfast
from holdfast import (
    BadArguments,
    BudgetExceeded,
    LeafError,
    LoopDetected,
    Loops,
    NotInRun,
    NotStorable,
    Retry,
    Salvaged,
)
from holdfast.integrations.pydantic_ai import records
from holdfast.integrations.pydantic_ai.approval import closed, refused_by_tool
from holdfast.integrations.pydantic_ai.history import Compaction, Summarise, Trim, best_so_far, valid_history, with_note
from holdfast.integrations.pydantic_ai.names import pinned, scopes_of, step_name
from holdfast.integrations.pydantic_ai.override import Instances, model_in_place, watch
from holdfast.integrations.pydantic_ai.resume import Names, by_run, resume, turn_of, unobserved
from holdfast.integrations.pydantic_ai.steps import KEY, STEP, Options, Steps, threads
from holdfast.integrations.pydantic_ai.stream import Streamed
from holdfast.verbs.replay import task_label
from holdfast.words.salvage import attach

__all__ = ["HoldfastDurability", "Streamed", "Summarise", "Trim", "valid_history"]

_APPROVAL: Final = frozenset({"to", "needs", "expires", "default", "remind"})


_MISTAKES: Final = (UserError, AssertionError, AttributeError, NameError, NotImplementedError, TypeError)


def _may_pass(error: Exception) -> bool:
    """May another try succeed? A mistake in the code is the same next time; so is a forbidden request, as in tests."""
    mistake = isinstance(error, _MISTAKES) or (
        type(error) is RuntimeError and not framework_models.ALLOW_MODEL_REQUESTS
    )
    return not mistake and Retry.model.wants(error)


_REQUEST: Final = {
    "retry": Retry(Retry.model.attempts, first="2s", factor=2, max="2m", on=_may_pass),
    "effects": False,  # a fork asks again, and needs nobody's leave
}
_CALL: Final = {"retry": Retry.tool}
_LOOPS: Final = Loops()


class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability that makes a Pydantic AI agent durable inside a `@holdfast.agent`.

    Args:
        models: Models by name, as in the framework's own durability capabilities.
        event_stream_handler: As there.
        name: As there.
        model: What `@holdfast.step` takes, for every model request: `retry` (`Retry.model` unless given), `timeout`, `limit`,
            `rate`, and `inputs`: requests are kept whole unless it is "digest", or the agent or the store says so.
        tools: What `@holdfast.step` takes, for every tool (`retry` is `Retry.tool` unless given; `in_doubt` too),
            and what `holdfast.approve` takes, for tools that need approval. A tool's own metadata comes first.
        compact: Keeps the history short: `Trim(...)` or `Summarise(...)`.
        loops: Before the agent goes on in a loop a person is asked; None: never.
        stream: The name of a stream of the run to which answers are written while they come, or a `Streamed`.
        fallback: Names of `models` in the order in which they are asked ("default" is the agent's own): the next one when
            one fails for good or says nothing. The one that answered is asked first from then on.
        at_limit: "raise" raises `BudgetExceeded`, which carries the best answer so far (`holdfast.partial(error)`); with
            "hand on" that is the answer, which says that it is not whole.

    Raises:
        BadArguments: An option cannot be used.

    Example:
        ```python
        from holdfast.integrations.pydantic_ai import HoldfastDurability
        from pydantic_ai import Agent

        clerk = Agent("openai-chat:gpt-5-mini", name="clerk", capabilities=[HoldfastDurability()], defer_model_check=True)


        @holdfast.agent
        async def answer(question: str) -> str:
            return (await clerk.run(question)).output
        ```
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=records.Codec(),
        serialization_failure=lambda error: NotStorable(f"result: {error}"),
        # A run may leave memory between any two steps and go on elsewhere, so a session belongs to the step that uses it.
        # A program that enters an MCP server around the worker has one session for all.
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-never", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=KEY,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: Options | None = None,
        tools: Options | None = None,
        compact: Compaction | None = None,
        loops: Loops | None = _LOOPS,
        stream: Streamed | str | None = None,
        fallback: Sequence[str] = (),
        at_limit: Literal["raise", "hand on"] = "raise",
    ) -> None:
        records.prepare()
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self.model_options = _REQUEST | _checked(model or {}, STEP - {"in_doubt"}, "HoldfastDurability(model=...)")
        self.tool_options = _CALL | _checked(tools or {}, STEP | _APPROVAL, "HoldfastDurability(tools=...)")
        self.compaction, self.loops = compact, loops
        if at_limit not in ("raise", "hand on"):
            raise BadArguments(f"HoldfastDurability(at_limit={at_limit!r}): use 'raise' or 'hand on'")
        self.hands_on = at_limit == "hand on"
        self.fallback = _registered(fallback, models or {})
        self.streamed = Streamed(name=stream) if isinstance(stream, str) else stream
        self._backend = Steps(self)
        self._instances = Instances()

    def for_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> AbstractCapability[AgentDepsT]:
        watch(agent)
        return super().for_agent(agent)

    def get_durable_operation_backend(self) -> DurableOperationBackend[Options]:
        if self._backend.capability is not self:  # the framework binds a copy to each agent
            self._backend = Steps(self)
        return self._backend

    @property
    def has_wrap_run_event_stream(self) -> bool:
        return self.streamed is not None or super().has_wrap_run_event_stream

    def _model_stream_event_handler(self) -> EventStreamHandler[AgentDepsT] | None:
        own = super()._model_stream_event_handler()
        return own if self.streamed is None else self.streamed.handler(own)

    # Models that are given

    def _find_model_id(self, model: Model) -> str | None:
        try:
            return super()._find_model_id(model)
        except UserError:  # it has no name, and needs none here
            return self._instances.name(model)

    def _registered_model_id(self, model: Model) -> tuple[bool, str | None]:
        found, model_id = super()._registered_model_id(model)
        if not found and (given := self._instances.named(model)) is not None:
            return True, given  # its maker opens and closes it
        return found, model_id

    async def resolve_model_id(
        self, ctx: ModelResolutionContext[AgentDepsT], *, model_id: KnownModelName | str
    ) -> Model | None:
        given = self._instances.get(model_id)
        return await super().resolve_model_id(ctx, model_id=model_id) if given is None else given

    def models_for(self, model_id: str | None) -> tuple[str, ...]:
        """List the models to ask in turn. A model given for this request, or as an override of all, is asked alone."""
        own = model_id is None or model_id == self.default_model_id
        return self.fallback if own and model_in_place(self.agent) is None else ()

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
                f"would not be recorded one by one. If a tool ran it, give that tool metadata={{{KEY!r}: False}}: then it "
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
        # Where, and in which run of ours.
        run_id = f"{holdfast.place(step_name(self.name))}@{holdfast.uuid4().hex[:12]}"
        records.remember()
        if by_run():
            records.known().unseen.add(run_id)
        return run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_run_clock(self) -> Callable[[], datetime] | None:
        if not self.in_durable_context:
            return None
        records.remember()  # here: this is asked in the task that has called `agent.run`, so its next one knows too
        if self.loops is not None:
            holdfast.watch_loops(self.loops)
        return holdfast.now

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        # Instructions, validators and the like that are plain functions: a thread in agent code would not be recorded.
        with threads(allowed=False):
            try:
                return await super().wrap_run(ctx, handler=handler)
            except (BudgetExceeded, LoopDetected) as error:
                best = best_so_far(turn_of(ctx).said())
                if best:
                    attach(error, holdfast.partial(error) | {self.name: Salvaged(best, "failed", 1)})
                raise
            finally:
                records.known().turns.pop(ctx.run_id, None)  # an agent that is run for ever must not remember all of it
                records.known().unseen.discard(ctx.run_id)

    async def before_run(self, ctx: RunContext[AgentDepsT]) -> None:
        if ctx.prompt is not None:  # without one the calls that have no result are made now
            ctx.messages[:] = valid_history(ctx.messages)
        await super().before_run(ctx)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        records.date(request_context.messages, ctx.run_id)
        turn = turn_of(ctx)
        turn.model_id, turn.task = request_context.model_id or request_context.model.model_id, task_label()
        if ctx.run_id in records.known().unseen and unobserved(ctx) and not records.is_noticing():
            name = step_name(self.name)
            await resume(ctx, turn, Names(scopes_of(ctx), f"{name}.model", f"{name}.events"))
            request_context.messages = list(ctx.messages)
        if self.compaction is not None and self.compaction.due(ctx.messages):
            compaction, model = self.compaction, model_in_place(self.agent)
            if model is not None and isinstance(compaction, Summarise):
                compaction = replace(compaction, model=model)
            await self._backend.compact(ctx, ctx.messages, compaction)
            request_context.messages = list(ctx.messages)
        left = holdfast.remaining()
        if left.soft:  # this request alone says so: what was left then is no part of the conversation
            note = f"[Budget: {left}. Come to an end: use no more tools than you must, and give your best answer.]"
            request_context.messages = with_note(request_context.messages, note)
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
        records.known().begun.add((ctx.run_id, call.tool_call_id))
        with pinned(ctx, call.tool_call_id):
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
        shown, definition = call.args_as_dict(), ctx.tools.get(call.tool_name)
        schema = True if definition is None else closed(definition.parameters_json_schema)
        question = asked = f"Agent {self.name!r} wants to call the tool {call.tool_name!r}. May it?"
        with pinned(ctx, call.tool_call_id):
            while True:
                decision = await holdfast.approve(asked, show=shown, edit=schema, **self._asking(ctx, call))
                refused = (
                    await refused_by_tool(ctx, call, decision.data) if decision and decision.data != shown else None
                )
                if refused is None:
                    break
                asked = f"{question} (What {decision.by} made of it is not what the tool takes, and was not done: {refused})"
        if decision:
            return ToolApproved(override_args=decision.data if decision.data != shown else None)
        unsaid = "Nobody approved it in time." if decision.expired else "The tool call was denied."
        return ToolDenied(decision.note or unsaid)

    async def _elsewhere(self, ctx: RunContext[AgentDepsT], call: ToolCallPart) -> Any:
        options = {key: value for key, value in self._asking(ctx, call).items() if key != "needs"}
        question = (
            f"Agent {self.name!r} called the tool {call.tool_name!r}, which is executed elsewhere. What is its result?"
        )
        with pinned(ctx, call.tool_call_id):
            return await holdfast.ask(question, Any, show=call.args_as_dict(), **options)

    def _asking(self, ctx: RunContext[AgentDepsT], call: ToolCallPart) -> Options:
        definition = ctx.tools.get(call.tool_name)
        options = self.options_of(call.tool_name, definition.metadata if definition else None)
        return {key: value for key, value in (options or {}).items() if key in _APPROVAL}

    def options_of(self, tool: str, metadata: Mapping[str, Any] | None) -> Options | Literal[False]:
        """The options by which a tool is run and asked about; False if it runs in the agent."""
        own = (metadata or {}).get(KEY)
        if own is False:
            return False
        return self.tool_options | _checked(own or {}, STEP | _APPROVAL, f"the metadata of tool {tool!r}")


def _registered(names: Sequence[str], models: Mapping[str, Model]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in {"default", *models}] if not isinstance(names, str) else [names]
    if unknown:
        raise BadArguments(
            f"HoldfastDurability(fallback={names!r}): {unknown[0]!r} is not known; give a list of names that are in models="
            f"({', '.join(models) or 'there are none'}), and 'default' for the agent's own model"
        )
    return tuple(names)


def _checked(options: Any, known: frozenset[str], where: str) -> Options:
    if not isinstance(options, Mapping) or not known.issuperset(options):
        raise BadArguments(
            f"{where}: found {options!r}; expected False or a dict with any of {', '.join(sorted(known))}"
        )
    return dict(options)
