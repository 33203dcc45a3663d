"""Words of a model, written to a stream of the run while they come; and what becomes of words that a crash cut off."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import ModelRequestParams
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.tools import RunContext

import holdfast
from holdfast import BadArguments, Salvaged
from holdfast.integrations.pydantic_ai import records
from holdfast.words.durations import Duration, seconds

_GO_ON = "Your answer broke off here. Go on exactly where it ends, without repeating any of it and without a preface."

_out: ContextVar[holdfast.Stream | None] = ContextVar("holdfast_pydantic_ai_stream", default=None)


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """Write the text of answers to the run's stream of this name while it is generated.

    Attributes:
        name: The stream.
        salvage: What becomes of text that a crash cut off. "restart" asks anew, "continue" has the model go on from it, and
            "hand on" takes it for the answer, which says so: `result.response.metadata["holdfast"]["partial"]`.
        idle: The longest silence between two tokens: a model that is silent for longer has failed, and is asked again.

    Raises:
        BadArguments: An option cannot be used.

    Example:
        ```python
        from holdfast.integrations.pydantic_ai import HoldfastDurability, Streamed

        streamed = HoldfastDurability(stream=Streamed(name="answer", salvage="continue", idle="20s"))
        ```
    """

    name: str = "answer"
    salvage: Literal["restart", "continue", "hand on"] = "restart"
    idle: Duration | None = None

    def __post_init__(self) -> None:
        if self.idle is not None and seconds(self.idle) <= 0:
            raise BadArguments(f"Streamed(idle={self.idle!r}): give the longest silence, for example '10s'")
        if self.salvage not in ("restart", "continue", "hand on"):
            raise BadArguments(f"Streamed(salvage={self.salvage!r}): use 'restart', 'continue' or 'hand on'")

    async def ask(
        self, request: Callable[[ModelRequestParams], Awaitable[ModelResponse]], params: ModelRequestParams
    ) -> ModelResponse:
        """Make a request, in its step, with the stream open."""
        async with holdfast.stream(self.name) as out:
            salvaged = out.salvaged
            if salvaged is None or not salvaged.text or self.salvage == "restart":
                return await _writing(out, request, params)
            said = out.keep()
            if self.salvage == "hand on":
                return _partial(said, salvaged)
            return _joined(said, await _writing(out, request, _going_on(params, said)))

    def handler(self, own: EventStreamHandler[Any] | None) -> EventStreamHandler[Any]:
        """Make a handler that writes what comes to the open stream, and passes it on."""
        return functools.partial(_handle, own, self.idle)


async def _writing(
    out: holdfast.Stream, request: Callable[[ModelRequestParams], Awaitable[ModelResponse]], params: ModelRequestParams
) -> ModelResponse:
    token = _out.set(out)
    try:
        return await request(params)
    finally:
        _out.reset(token)


async def _handle(
    own: EventStreamHandler[Any] | None, idle: Duration | None, ctx: RunContext[Any], events: AsyncIterable[Any]
) -> None:
    written = _written(events if idle is None or _out.get() is None else holdfast.lively(events, idle))
    if own is not None:
        await own(ctx, written)
    async for _ in written:  # a handler may leave some
        pass


async def _written(events: AsyncIterable[Any]) -> AsyncIterator[Any]:
    out = _out.get()
    async for event in events:
        text = _text_of(event)
        if out is not None and text:
            await out.write(text)
        yield event


def _text_of(event: Any) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    return (
        event.delta.content_delta
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta)
        else ""
    )


def _partial(said: str, salvaged: Salvaged) -> ModelResponse:
    mark = {"holdfast": {"partial": salvaged.reason}}
    return ModelResponse(parts=[TextPart(said)], metadata=mark, timestamp=records.EPOCH)


def _going_on(params: ModelRequestParams, said: str) -> ModelRequestParams:
    asked: list[ModelMessage] = [ModelResponse(parts=[TextPart(said)]), ModelRequest(parts=[UserPromptPart(_GO_ON)])]
    return replace(params, messages=[*params.messages, *asked])


def _joined(said: str, response: ModelResponse) -> ModelResponse:
    *_, first = [part for part in response.parts[:1] if isinstance(part, TextPart)] or [TextPart("")]
    rest = [part for part in response.parts if part is not first]
    return replace(response, parts=[replace(first, content=said + first.content), *rest])
