"""A long conversation, resumed: its messages are put together from the records, without the framework's loop over them.

The framework looks at every message before every request, so to replay a conversation takes time with the square of its
length. But most turns are alike: an answer with calls of tools that are steps, and a request with their results. Both are in
the journal. So a request's record says if it came about in this way (`since`, the time of the results), and a resumed run
begins with the messages of the last such request. They were compared with the real ones when it was recorded. Any other turn
(a tool that ran in the agent, a person who was asked, an error) is replayed as ever, and after it the rest is put together.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import is_
from typing import Any, NamedTuple

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.durable_exec import CallToolResult
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.tools import RunContext

from holdfast.integrations.pydantic_ai import records
from holdfast.integrations.pydantic_ai.names import scope_part, step_name
from holdfast.integrations.pydantic_ai.requests import Written
from holdfast.values.codec import UNTYPED
from holdfast.verbs.replay import ahead, skip
from holdfast.words.durations import moment
from holdfast.words.model import Recorded

_CODEC = records.Codec()


class Names(NamedTuple):
    """The names of the steps of one run of an agent."""

    scopes: str  # what the names of their scopes begin with
    model_step: str
    event_step: str


@dataclass
class Turn:
    """The last request in one run of an agent: what it was given, what came back, and what the tools returned since."""

    model_id: str | None = None
    task: str = ""  # in which the framework makes the request
    messages: list[ModelMessage] = field(default_factory=list)
    response: Any = None  # as it is stored
    returned: dict[str, Any] = field(default_factory=dict)  # by the id of the call, what steps returned
    written: Written = field(default_factory=Written)

    def said(self) -> list[ModelMessage]:
        """All messages up to the response."""
        return [*self.messages, *([_CODEC.load(ModelResponse, self.response)] if self.response is not None else [])]


def turn_of(ctx: RunContext[Any]) -> Turn:
    """The turn of the run which asks."""
    found: Turn = records.known().turns.setdefault(ctx.run_id, Turn())
    return found


def by_run() -> bool:
    """Is it `agent.run(...)` that asks? `agent.iter(...)` and `run_stream` show their turns to code that may keep them."""
    frame = sys._getframe(1)  # noqa: SLF001 - the framework does not say
    while frame.f_back is not None and frame.f_code is not AbstractAgent.run.__code__:
        frame = frame.f_back
    return frame.f_code is AbstractAgent.run.__code__


def unobserved(ctx: RunContext[Any]) -> bool:
    """Are there no capabilities but ours and those of the framework itself? Others may keep what they see of a turn."""
    modules = [type(each).__module__ for each in ctx.capabilities.values()]
    return all(module.startswith(("holdfast.integrations.", "pydantic_ai.capabilities._")) for module in modules)


def since(ctx: RunContext[Any], turn: Turn) -> int | None:
    """Return the time of the results that are new in this request, if they and the last answer are all that is new."""
    known = len(turn.messages)
    if turn.response is None or len(ctx.messages) != known + 2 or not all(map(is_, ctx.messages, turn.messages)):
        return None
    answer, results = ctx.messages[known:]
    if results.timestamp is None:
        return None
    at = round(results.timestamp.timestamp() * 1000)
    rebuilt = _answer(ctx, turn.response, turn.model_id)
    instructions = getattr(turn.messages[-1], "instructions", None)
    same = answer == rebuilt and results == _results(ctx, rebuilt, at, instructions, turn.returned)
    return at if same else None


def _answer(ctx: RunContext[Any], stored: Any, model_id: str | None) -> ModelResponse:
    response: ModelResponse = _CODEC.load(ModelResponse, stored)
    response.run_id, response.conversation_id = ctx.run_id, ctx.conversation_id
    response.model_id = response.model_id or model_id
    return response


def _results(
    ctx: RunContext[Any], answer: ModelResponse, at_ms: int, instructions: str | None, returned: Mapping[str, Any]
) -> ModelRequest | None:
    at, calls = moment(at_ms), answer.tool_calls
    if not calls or not all(call.tool_call_id in returned for call in calls):
        return None
    parts = [ToolReturnPart(c.tool_name, returned[c.tool_call_id], c.tool_call_id, timestamp=at) for c in calls]
    about: dict[str, Any] = {"run_id": ctx.run_id, "conversation_id": ctx.conversation_id}
    return ModelRequest(parts=parts, timestamp=at, instructions=instructions, **about)


async def resume(ctx: RunContext[Any], turn: Turn, agent: Names) -> None:
    """Add the messages of the turns that are in the journal, up to one that must be replayed, or to the last."""
    requests, answers, passed = _plain_turns(agent)
    if len(requests) < 2:
        return
    skipped = [record for record in passed if record.place < requests[-1].asked]
    messages = _messages(ctx, turn, answers, _returned(skipped, agent))
    if messages is None:
        return
    await skip(skipped, answers[-1]["task"])
    ctx.messages.extend(messages)
    known = records.known()
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = {(ctx.run_id, call.tool_call_id) for call in message.tool_calls}
            known.asked_for.update(calls)
            known.begun.update(calls)
            ctx.usage.incr(message.usage)
            ctx.usage.requests += 1
            ctx.usage.tool_calls += len(message.tool_calls)


def _plain_turns(agent: Names) -> tuple[list[Recorded], list[Any], list[Recorded]]:
    """The requests recorded from here on, as long as each came about by results alone; what they say; and all records."""
    requests: list[Recorded] = []
    answers: list[Any] = []
    passed: list[Recorded] = []
    for record in ahead(agent.scopes):
        if record.name == agent.model_step:
            answer = UNTYPED.load(record.text)
            if requests and "since" not in answer:
                break
            requests.append(record)
            answers.append(answer)
        passed.append(record)
    return requests, answers, passed


def _returned(skipped: Sequence[Recorded], agent: Names) -> dict[tuple[str, str], deque[Recorded]]:
    """Calls to be passed over besides requests and events: by scope and name, in order."""
    found: dict[tuple[str, str], deque[Recorded]] = defaultdict(deque)
    for record in skipped:
        if record.name not in (agent.model_step, agent.event_step):
            found[record.where.partition("/")[0], record.name].append(record)
    return found


def _messages(
    ctx: RunContext[Any], turn: Turn, answers: Sequence[Any], returned: dict[tuple[str, str], deque[Recorded]]
) -> list[ModelMessage] | None:
    """Answers and results in turn. None if something is missing, or there is more than that."""
    asked = ctx.messages[-1]
    made: list[ModelMessage] = []
    for answer, following in pairwise(answers):
        response = _answer(ctx, answer["response"], turn.model_id)
        values = {}
        for call in response.tool_calls:
            waiting = returned.get((scope_part(call.tool_call_id), step_name(call.tool_name)))
            if not waiting:
                return None
            values[call.tool_call_id] = _CODEC.load(CallToolResult, UNTYPED.load(waiting.popleft().text)).result
        results = _results(ctx, response, following["since"], getattr(asked, "instructions", None), values)
        if results is None:
            return None
        made += [response, results]
    return None if any(returned.values()) else made
