"""A fake model provider: the OpenAI chat protocol over loopback HTTP, answers from a script, failures on order.

    from holdfast.testing.provider import Half, RateLimited, Tool, provider

    async with provider(["Otters sleep.", Tool("search", q="otters"), RateLimited("2s"), Half("The answer is")]) as fake:
        client = openai.AsyncOpenAI(base_url=fake.url, api_key="any")
        ...
        assert (fake.asked, fake.paid) == (4, 3)
        assert fake.requests[0].prompt == "What do otters do?"

A list is answered in the order of arrival. Where several ask at once, answer by a function of the request, for example
`provider(lambda request: SCRIPTS[request.prompt][request.turn])`. One text or one failure alone is the answer to everything.

Any client in any process can ask: `fake.url` is all it needs, or `fake.env` in the environment of a process. An answer is
paid for when it leaves the server, a stream token by token, also if the client is no longer there to read it; errors (429,
500, 503) and silence are not.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from holdfast.errors import BadArguments
from holdfast.testing import chat
from holdfast.testing.answers import (
    Answer,
    Behaviour,
    Exchange,
    Failure,
    Garbage,
    Half,
    Hang,
    Overloaded,
    RateLimited,
    Reset,
    Scripted,
    Trickle,
    WrongShape,
    behaviour_of,
)
from holdfast.testing.chat import Json, Request, Tool
from holdfast.testing.loopback import Call, Loopback, Reply
from holdfast.words.durations import Duration, seconds

__all__ = [
    "Answer",
    "Behaviour",
    "Exchange",
    "Failure",
    "Garbage",
    "Half",
    "Hang",
    "Overloaded",
    "Provider",
    "RateLimited",
    "Request",
    "Reset",
    "Tally",
    "Tool",
    "Trickle",
    "WrongShape",
    "provider",
]

_LOOK_EVERY_S = 0.005

Script = Scripted | Iterable[Scripted] | Callable[[Request], Scripted]


@dataclass
class Tally:
    """Counts of requests: asked, paid for, under way.

    Attributes:
        asked: Requests that came.
        paid: Requests that were paid for.
        left: Requests whose client went away before the end.
        hanging: Requests that wait for `release()` now.
        input_tokens: Tokens that were paid for, of prompts.
        output_tokens: Tokens that were paid for, of answers.

    Example:
        ```python
        from holdfast.testing.provider import provider

        with provider(["Otters sleep."]) as fake:
            assert fake.total.paid == 0
        ```
    """

    asked: int = 0
    paid: int = 0
    left: int = 0  # whose client went away before the end
    hanging: int = 0  # waiting for release() now
    input_tokens: int = 0  # paid
    output_tokens: int = 0


class Provider:
    """A running provider, made by `provider`.

    `requests` has every `Request`; `total` and `by_model` are a `Tally` each.

    Example:
        ```python
        from holdfast.testing.provider import provider

        with provider(["Otters sleep."]) as fake:
            print(fake.url, fake.env)
        ```
    """

    def __init__(self, script: Script, *, models: tuple[str, ...] = ("fake",), port: int = 0) -> None:
        self.requests: list[Request] = []
        self.total = Tally()
        self.by_model: dict[str, Tally] = {}
        self._next = _reader_of(script)
        self._models = models
        self._server = Loopback(self._serve, port)
        self._release = asyncio.Event()  # replaced by each release(): a request that hangs later waits for the next one

    # Coming and going

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    @property
    def url(self) -> str:
        """Give the base URL for clients.

        Raises:
            BadArguments: It is not running.
        """
        if not self._server.port:
            raise BadArguments("the fake provider is not running; use its url inside `with provider(...) as fake:`")
        return f"http://127.0.0.1:{self._server.port}/v1"

    @property
    def env(self) -> dict[str, str]:
        """Give the environment variables by which clients in another process find it."""
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "fake"}

    # What was asked and paid for

    @property
    def asked(self) -> int:
        """Count the requests that came."""
        return self.total.asked

    @property
    def paid(self) -> int:
        """Count the requests that were paid for."""
        return self.total.paid

    # Steering

    def release(self) -> None:
        """Let all requests that hang now go on.

        Example:
            ```python
            from holdfast.testing.provider import Hang, provider

            with provider([Hang("late")]) as fake:
                fake.release()
            ```
        """

        def swap() -> None:
            self._release.set()
            self._release = asyncio.Event()

        self._server.call(swap)

    def wait_for(self, timeout: Duration = "10s", **at_least: int) -> None:
        """Block until the tally has come so far: `wait_for(asked=3, hanging=1)`.

        Raises:
            TimeoutError: It has not within the time.

        Example:
            ```python
            from holdfast.testing.provider import provider

            with provider(["Otters sleep."]) as fake:
                fake.wait_for(asked=0)
            ```
        """
        end = time.monotonic() + seconds(timeout)
        while not self._reached(at_least, end):
            time.sleep(_LOOK_EVERY_S)

    async def until(self, timeout: Duration = "10s", **at_least: int) -> None:
        """Wait until the tally has come so far, without blocking the loop.

        Raises:
            TimeoutError: It has not within the time.

        Example:
            ```python
            from holdfast.testing.provider import provider


            async def test() -> None:
                async with provider(["Otters sleep."]) as fake:
                    await fake.until(asked=0)


            asyncio.run(test())
            ```
        """
        end = time.monotonic() + seconds(timeout)
        while not self._reached(at_least, end):  # noqa: ASYNC110 - the tally changes on another thread
            await asyncio.sleep(_LOOK_EVERY_S)

    def _reached(self, at_least: dict[str, int], end: float) -> bool:
        reached = all(getattr(self.total, name) >= number for name, number in at_least.items())
        if not reached and time.monotonic() > end:
            raise TimeoutError(f"waited for at least {at_least}; there is {self.total}")
        return reached

    # Serving, on the server's loop

    async def _serve(self, call: Call, reply: Reply) -> None:
        if (call.method, call.path) == ("GET", "/v1/models"):
            _send(reply, 200, chat.models(self._models))
        elif (call.method, call.path) != ("POST", "/v1/chat/completions"):
            told = f"{call.method} {call.path} is not served; the base URL of a client is {self.url}"
            _send(reply, 404, chat.error(told, "invalid_request_error", "unknown_url"))
        else:
            try:
                request = chat.request_of(len(self.requests) + 1, call.body, call.headers)
            except ValueError as problem:
                _send(reply, 400, chat.error(str(problem), "invalid_request_error"))
            else:
                await self._answer(request, reply)

    async def _answer(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        tallies = (self.total, self.by_model.setdefault(request.model, Tally()))
        _add(tallies, asked=1)

        def pay(request: Request, input_tokens: int, output_tokens: int) -> None:
            if not request.paid:
                request.paid, request.input_tokens = True, input_tokens
                _add(tallies, paid=1, input_tokens=input_tokens)
            request.output_tokens += output_tokens
            _add(tallies, output_tokens=output_tokens)

        async def released() -> None:
            _add(tallies, hanging=1)
            try:
                await self._release.wait()
            finally:
                _add(tallies, hanging=-1)

        exchange = Exchange(request, reply, pay, released)
        try:
            request.given = self._next(request)
            behaviour = behaviour_of(request.given)
        except Exception as problem:  # 400: clients do not try it again, so the test hears of it at once
            told = f"the script of the fake provider failed: {type(problem).__name__}: {problem}"
            exchange.refuse(400, chat.error(told, "script_error"))
            return
        try:
            await behaviour.give(exchange)
        finally:
            if not request.ended:
                request.ended = "left"
                _add(tallies, left=1)


def provider(script: Script, *, models: tuple[str, ...] = ("fake",), port: int = 0) -> Provider:
    """Make a fake model provider that answers from a script. Use it with `with` or `async with`.

    Args:
        script: A list, a function of the request, or one answer for everything. The function is called on the provider's
            own thread, one request at a time; it must not block.
        models: The names that `GET /v1/models` lists; requests may name any.
        port: The port; any free one unless given.

    Raises:
        BadArguments: The script cannot be used.

    Example:
        ```python
        from holdfast.testing.provider import RateLimited, Tool, provider

        with provider([RateLimited("2s"), Tool("search", q="otters"), "Otters sleep."]) as fake:
            print(fake.url)
        ```
    """
    return Provider(script, models=models, port=port)


def _reader_of(script: Script) -> Callable[[Request], object]:
    """The script as a function of the request."""
    if isinstance(script, type) or not (callable(script) or isinstance(script, Iterable | Tool | Behaviour)):
        raise BadArguments(f"a script is a list of answers, a function of the request or one answer, not {script!r}")
    if isinstance(script, str | Tool | Behaviour):
        return lambda _: script
    if callable(script):
        return script
    for item in script if isinstance(script, list | tuple) else ():
        behaviour_of(item)  # a mistake shows where it was made, not at the request
    items = iter(script)

    def next_one(request: Request) -> object:
        try:
            return next(items)
        except StopIteration:
            used = f"it has {request.number - 1} answers, and this is request {request.number}"
            raise IndexError(f"{used} ({request.prompt!r} to {request.model!r})") from None

    return next_one


def _add(tallies: Iterable[Tally], **plus: int) -> None:
    for tally in tallies:
        for name, number in plus.items():
            setattr(tally, name, getattr(tally, name) + number)


def _send(reply: Reply, status: int, body: Json) -> None:
    reply.whole(status, {"Content-Type": "application/json"}, json.dumps(body, ensure_ascii=False).encode())
