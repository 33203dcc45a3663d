"""Answers of a fake provider: what it can be told to do with a request, also to fail in the ways real providers do.

Each is a value with one method, `give`; whatever has one can stand in a script.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Protocol, runtime_checkable

from holdfast.errors import BadArguments
from holdfast.testing import chat
from holdfast.testing.chat import Json, Request, Tool
from holdfast.testing.loopback import Reply
from holdfast.words.durations import Duration, seconds

_JSON = {"Content-Type": "application/json"}
_EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Exchange:
    """One request on its way to an answer: writes the protocol, and pays for what leaves."""

    def __init__(
        self,
        request: Request,
        reply: Reply,
        pay: Callable[[Request, int, int], None],
        released: Callable[[], Awaitable[None]],
    ) -> None:
        self.request, self.reply, self.released = request, reply, released
        self._pay = pay

    async def say(self, answer: Answer, *, left_off: int = 0) -> None:
        """Stream an answer's tokens, all but the last `left_off`; what follows is up to the caller."""
        parts = chat.deltas(self.request, answer.text, answer.tools)
        if self.request.status is None:
            self.pay(answer, answer.price(0))
            self.begin()
            self._event(chat.chunk(self.request, {"role": "assistant", "content": ""}))
        for place, part in enumerate(parts[: len(parts) - left_off]):
            await asyncio.sleep(answer.pause_s)
            self.pay(answer, answer.price(place + 1) - answer.price(place))
            self._event(chat.chunk(self.request, part))

    def finish(self, answer: Answer) -> None:
        """The end of a stream."""
        self._event(chat.chunk(self.request, {}, answer.finish))
        if (last := chat.usage_chunk(self.request)) is not None:
            self._event(last)
        self.request.ended = "answered"
        self.reply.chunk(b"data: [DONE]\n\n")
        self.reply.end()

    def whole(self, answer: Answer, *, half: bool = False) -> None:
        """The answer in one piece, or the first half of its bytes."""
        self.pay(answer, answer.price(answer.words))
        message = chat.message(self.request, answer.text, answer.tools)
        body = json.dumps(chat.completion(self.request, message, answer.finish), ensure_ascii=False).encode()
        self.request.status = 200
        self.request.ended = "" if half else "answered"
        self.reply.whole(200, _JSON, body, left_off=len(body) // 2 if half else 0)

    def refuse(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        """A failure that costs nothing."""
        self.request.status, self.request.ended = status, "refused"
        self.reply.whole(status, _JSON | (headers or {}), json.dumps(body, ensure_ascii=False).encode())

    def begin(self) -> None:
        self.request.status = 200
        self.reply.begin(200, _EVENTS)

    def pay(self, answer: Answer, output_tokens: int) -> None:
        """Count an answer before it is sent, so that its receiver finds it counted."""
        self.reply.check()
        asked = chat.prompt_tokens(self.request) if answer.input_tokens is None else answer.input_tokens
        self._pay(self.request, asked, output_tokens)

    def _event(self, data: Json) -> None:
        self.reply.chunk(b"data: %s\n\n" % json.dumps(data, ensure_ascii=False).encode())


@runtime_checkable
class Behaviour(Protocol):
    """One item of a script."""

    async def give(self, exchange: Exchange) -> None: ...


class Answer:
    """A right answer: text, tool calls or both.

    Args:
        text: What the model says.
        tools: The tools it calls.
        finish: The reason it stops; "stop" or "tool_calls" unless given.
        input_tokens: Tokens of the prompt; the words are counted unless given.
        output_tokens: Tokens of the answer; the words are counted unless given.
        pause: A pause before every token.

    Example:
        ```python
        from holdfast.testing.provider import Answer, Tool, provider

        fake = provider([Answer("Let me look.", Tool("search", q="otters"), output_tokens=900)])
        ```
    """

    def __init__(
        self,
        text: str = "",
        *tools: Tool,
        finish: str = "",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        pause: Duration = 0,
    ) -> None:
        self.text, self.tools, self.pause_s = text, tools, seconds(pause)
        self.finish = finish or ("tool_calls" if tools else "stop")
        self.input_tokens, self.output_tokens = input_tokens, output_tokens

    @property
    def words(self) -> int:
        return len(chat.tokens(self.text)) + sum(1 + len(chat.tokens(tool.arguments)) for tool in self.tools)

    def price(self, said: int) -> int:
        """Output tokens to pay for the first words: their number, or that share of what the whole was said to cost."""
        whole = self.words if self.output_tokens is None else self.output_tokens
        return math.ceil(whole * said / self.words) if self.words else whole

    async def give(self, exchange: Exchange) -> None:
        if exchange.request.stream:
            await exchange.say(self)
            exchange.finish(self)
        else:
            await asyncio.sleep(self.pause_s * self.words)
            exchange.whole(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, (self.text, *self.tools)))})"


class Trickle(Answer):
    """A slow answer: a pause before every token; if it is not streamed, the sum of the pauses before the whole.

    Example:
        ```python
        from holdfast.testing.provider import Trickle, provider

        fake = provider([Trickle("Otters sleep.", pause="100ms")])
        ```
    """

    def __init__(self, text: str, *tools: Tool, pause: Duration = "100ms", **more: Any) -> None:
        super().__init__(text, *tools, pause=pause, **more)


@dataclass(frozen=True)
class Failure:
    """An HTTP error, not paid for.

    Attributes:
        status: The status.
        message: The text of the error.
        after: The time for Retry-After.
        as_date: Write Retry-After as a date, instead of in seconds.

    Example:
        ```python
        from holdfast.testing.provider import Failure, provider

        fake = provider([Failure(500), "Otters sleep."])
        ```
    """

    status: int = 500
    message: str = "The server had an error while processing your request."
    after: Duration | None = None
    as_date: bool = False

    async def give(self, exchange: Exchange) -> None:
        kind = "server_error" if self.status >= 500 else "requests" if self.status == 429 else "invalid_request_error"
        code = "rate_limit_exceeded" if self.status == 429 else None
        exchange.refuse(self.status, chat.error(self.message, kind, code), self._headers())

    def _headers(self) -> dict[str, str]:
        if self.after is None:
            return {}
        wait_s = seconds(self.after)
        if self.as_date:  # a date has no fractions, and to come too early would be wrong
            return {"Retry-After": formatdate(math.ceil(time.time() + wait_s), usegmt=True)}
        whole = {"Retry-After": str(math.ceil(wait_s))}
        return whole if wait_s.is_integer() else whole | {"Retry-After-Ms": str(round(wait_s * 1000))}


class RateLimited(Failure):
    """429: too many requests.

    Example:
        ```python
        from holdfast.testing.provider import RateLimited, provider

        fake = provider([RateLimited("2s"), "Otters sleep."])
        ```
    """

    def __init__(self, after: Duration | None = None, *, as_date: bool = False) -> None:
        super().__init__(429, "Rate limit reached.", after, as_date)


class Overloaded(Failure):
    """503: nobody can be served now.

    Example:
        ```python
        from holdfast.testing.provider import Overloaded, provider

        fake = provider([Overloaded("2s", as_date=True), "Otters sleep."])
        ```
    """

    def __init__(self, after: Duration | None = None, *, as_date: bool = False) -> None:
        super().__init__(503, "The engine is currently overloaded, please try again later.", after, as_date)


@dataclass(frozen=True)
class Garbage:
    """200 with a body that is no JSON, in a stream as the data of its one event; paid for like any answer.

    Example:
        ```python
        from holdfast.testing.provider import Garbage, provider

        fake = provider([Garbage(), "Otters sleep."])
        ```
    """

    body: str = "<html><body>upstream connect error"
    content_type: str = "application/json"

    async def give(self, exchange: Exchange) -> None:
        exchange.pay(Answer(), len(chat.tokens(self.body)))
        exchange.request.ended = "answered"
        if exchange.request.stream:
            exchange.begin()
            exchange.reply.chunk(f"data: {self.body}\n\n".encode())
            exchange.reply.end()
        else:
            exchange.request.status = 200
            exchange.reply.whole(200, {"Content-Type": self.content_type}, self.body.encode())


class WrongShape(Garbage):
    """200 with JSON that is no chat completion.

    Example:
        ```python
        from holdfast.testing.provider import WrongShape, provider

        fake = provider([WrongShape(), "Otters sleep."])
        ```
    """

    def __init__(self, body: str = '{"object": "chat.completion", "choices": null}') -> None:
        super().__init__(body)


@dataclass(frozen=True)
class Half:
    """The beginning of an answer, then a closed connection. Of a tool call the end of the arguments is missing.

    Example:
        ```python
        from holdfast.testing.provider import Half, provider

        fake = provider([Half("Otters"), "Otters sleep."])
        ```
    """

    said: str | Tool | Answer

    async def give(self, exchange: Exchange) -> None:
        answer = as_answer(self.said)
        if exchange.request.stream:
            await exchange.say(answer, left_off=1 if answer.tools else 0)
        else:
            exchange.whole(answer, half=True)
        exchange.request.ended = "broken"
        exchange.reply.hang_up()


@dataclass(frozen=True)
class Reset:
    """A reset connection, in a stream after these words; how much of them arrives is up to the network.

    Example:
        ```python
        from holdfast.testing.provider import Reset, provider

        fake = provider([Reset(), "Otters sleep."])
        ```
    """

    said: str = ""

    async def give(self, exchange: Exchange) -> None:
        if self.said and exchange.request.stream:
            await exchange.say(Answer(self.said))
        exchange.request.ended = "broken"
        exchange.reply.reset()


@dataclass(frozen=True)
class Hang:
    """Silence until `release()`, then the answer `then`; a stream first says `said`. What has not left is not paid for.

    Example:
        ```python
        from holdfast.testing.provider import Hang, provider

        fake = provider([Hang(said="Otters", then=" sleep.")])
        ```
    """

    then: str = ""
    said: str = ""

    async def give(self, exchange: Exchange) -> None:
        answer = Answer(self.then)
        if exchange.request.stream:
            if self.said:
                await exchange.say(Answer(self.said))
            await exchange.released()
            await exchange.say(answer)
            exchange.finish(answer)
        else:
            await exchange.released()
            exchange.whole(Answer(self.said + self.then))


Scripted = str | Tool | Sequence[Tool] | Behaviour


def as_answer(item: object) -> Answer:
    """Text, a tool call or several, as an answer; `BadArguments` for anything else."""
    if isinstance(item, Answer):
        return item
    if isinstance(item, str):
        return Answer(item)
    tools = [item] if isinstance(item, Tool) else item
    if isinstance(tools, list | tuple) and tools and all(isinstance(tool, Tool) for tool in tools):
        return Answer("", *tools)
    raise BadArguments(
        f"{item!r} is no answer; give a text, a Tool, a list of Tools, or an Answer, Trickle, Half, Hang, Reset, Garbage, "
        "WrongShape, RateLimited, Overloaded or Failure"
    )


def behaviour_of(item: object) -> Behaviour:
    """The behaviour that a script's item stands for."""
    return item if isinstance(item, Behaviour) and not isinstance(item, type) else as_answer(item)
