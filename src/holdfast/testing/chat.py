"""The chat-completions protocol as JSON: what a request says, and the forms an answer takes, whole and in a stream.

A token here is a word with the space before it, so that a test can count them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


def tokens(text: str) -> list[str]:
    """The text in pieces that join to the whole: one for each word."""
    return re.findall(r"\s*\S+|\s+", text)


class Tool:
    """A tool call as the model makes it. A text given instead of the arguments is sent as it is.

    Example:
        ```python
        from holdfast.testing.provider import Tool

        call = Tool("search", q="otters")
        ```
    """

    def __init__(self, name: str, text: str | None = None, /, **arguments: Any) -> None:
        self.name = name
        self.arguments = json.dumps(arguments, ensure_ascii=False) if text is None else text

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, {self.arguments!r})"


@dataclass(eq=False)
class Request:
    """A request to the fake provider, and what became of it.

    Attributes:
        number: From 1 on, in the order of arrival.
        body: The document that the client sent.
        headers: Its headers, with names in lower case.
        at: When it came, in seconds: to be compared with others.
        given: The item of the script.
        status: The status of the answer.
        paid: Whether it was paid for.
        input_tokens: Tokens that were paid for, of the prompt.
        output_tokens: Tokens that were paid for, of the answer.
        ended: "answered", "refused", "broken" off by the server, the client "left"; empty while it is under way.

    Example:
        ```python
        from holdfast.testing.provider import Request, provider


        def answer(request: Request) -> str:
            return f"About {request.prompt}: turn {request.turn}"


        fake = provider(answer)
        ```
    """

    number: int  # from 1, in the order of arrival
    body: Json
    headers: Mapping[str, str] = field(repr=False)  # names in lower case
    at: float = field(default_factory=time.monotonic)  # when it came, in seconds: to be compared with others
    given: object = None  # of the script
    status: int | None = None
    paid: bool = False
    input_tokens: int = 0  # paid
    output_tokens: int = 0
    ended: str = ""  # "answered", "refused", "broken" off by the server, the client "left"; "" while it is under way

    @property
    def model(self) -> str:
        """Name the model that was asked."""
        return str(self.body["model"])

    @property
    def messages(self) -> list[Json]:
        """Give the messages that were sent."""
        found: list[Json] = self.body["messages"]
        return found

    @property
    def stream(self) -> bool:
        """Tell whether the client wants the answer as a stream."""
        return bool(self.body.get("stream"))

    @property
    def prompt(self) -> str:
        """Give the last thing the user said."""
        said = [text_of(message) for message in self.messages if message.get("role") == "user"]
        return said[-1] if said else ""

    @property
    def turn(self) -> int:
        """Count the answers since then: 0 for the first, 1 when the results of its tools came back."""
        roles = [message.get("role") for message in self.messages]
        users = [place for place, role in enumerate(roles) if role == "user"]
        return roles[users[-1] if users else 0 :].count("assistant")

    @property
    def results(self) -> list[str]:
        """Give the results of the tools that the last answer called, in order."""
        found: list[str] = []
        for message in reversed(self.messages):
            if message.get("role") != "tool":
                break
            found.insert(0, text_of(message))
        return found


def text_of(message: Json) -> str:
    """A message's text, written as one string or in parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def prompt_tokens(request: Request) -> int:
    """The tokens of all messages; arguments of tool calls are text too."""
    calls = [call for message in request.messages for call in message.get("tool_calls") or ()]
    arguments = [call.get("function", {}).get("arguments", "") for call in calls]
    return sum(len(tokens(text)) for text in [*map(text_of, request.messages), *arguments])


def request_of(number: int, body: bytes, headers: Mapping[str, str]) -> Request:
    """The request in these bytes; `ValueError` says what is wrong with them."""
    match json.loads(body):
        case {"model": str(), "messages": [{}, *_] as messages} as asked:
            _check_calls(messages)
            return Request(number, asked, headers)
        case {"model": str()}:
            raise ValueError("messages must be a list of at least one message")
        case _:
            raise ValueError("you must provide a model parameter")


def _check_calls(messages: list[Json]) -> None:
    """Check, as real providers do, that the results of all calls follow the answer that made them, and no others do."""
    waited_for: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waited_for:
                raise ValueError(f"messages[{place}] is the result of a call that the answer before it did not make")
            waited_for.remove(message["tool_call_id"])
            continue
        if waited_for:
            raise ValueError(f"messages[{place}] comes before the results of the calls {', '.join(waited_for)}")
        waited_for = [call["id"] for call in message.get("tool_calls") or ()]
    if waited_for:
        raise ValueError(f"there are no results of the calls {', '.join(waited_for)}")


def deltas(request: Request, text: str, calls: tuple[Tool, ...]) -> list[Json]:
    """An answer in pieces of a stream, one for each token; the name of a tool counts as one."""
    parts: list[Json] = [{"content": piece} for piece in tokens(text)]
    for index, (tool, name) in enumerate(zip(calls, _names(request, calls), strict=True)):
        function = {"name": tool.name, "arguments": ""}
        parts.append({"tool_calls": [{"index": index, "id": name, "type": "function", "function": function}]})
        pieces = [{"index": index, "function": {"arguments": piece}} for piece in tokens(tool.arguments)]
        parts += [{"tool_calls": [piece]} for piece in pieces]
    return parts


def message(request: Request, text: str, calls: tuple[Tool, ...]) -> Json:
    """An answer as one message."""
    whole: Json = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if calls:
        whole["tool_calls"] = [
            {"id": name, "type": "function", "function": {"name": tool.name, "arguments": tool.arguments}}
            for tool, name in zip(calls, _names(request, calls), strict=True)
        ]
    return whole


def _names(request: Request, calls: tuple[Tool, ...]) -> list[str]:
    """Ids for an answer, equal for equal questions: one may be asked again after a crash, and users' tests compare ids."""
    asked = hashlib.sha256(json.dumps(request.messages, sort_keys=True).encode()).hexdigest()[:8]
    return [f"call_{asked}_{index}" for index in range(len(calls))]


def completion(request: Request, answer: Json, finish: str) -> Json:
    """A whole answer."""
    choice = {"index": 0, "message": answer, "logprobs": None, "finish_reason": finish}
    return {**_envelope(request, "chat.completion"), "choices": [choice], "usage": usage(request)}


def chunk(request: Request, delta: Json, finish: str | None = None) -> Json:
    """Make one event of a stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_envelope(request, "chat.completion.chunk"), "choices": [choice]}


def usage_chunk(request: Request) -> Json | None:
    """The last chunk of a stream, if the request asked for it."""
    if not (request.body.get("stream_options") or {}).get("include_usage"):
        return None
    return {**_envelope(request, "chat.completion.chunk"), "choices": [], "usage": usage(request)}


def usage(request: Request) -> Json:
    """The usage that has been paid for so far."""
    given, taken = request.output_tokens, request.input_tokens
    return {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}


def _envelope(request: Request, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
    }


def error(text: str, kind: str, code: str | None = None) -> Json:
    """The body of a refusal."""
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def models(names: tuple[str, ...]) -> Json:
    """The list of models."""
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "holdfast"} for name in names]
    return {"object": "list", "data": listed}
