"""Records of Pydantic AI's values: results as JSON, requests as a few words, and each version once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.durable_exec import JSON_CODEC, CallToolResult, ModelRequestParams
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.values.text import cut
from holdfast.words.notices import Notice, notices

EPOCH = datetime.fromtimestamp(0, UTC)
_OURS = ("run_id", "conversation_id", "model_id")  # of a message: what the framework keeps for itself


@dataclass(frozen=True)
class Known:
    """Events so far, as this task and those made from it know them."""

    # Versions in the journal; to store one twice does no harm.
    stored: set[tuple[str, str]] = field(default_factory=set)
    asked_for: set[tuple[str | None, str]] = field(default_factory=set)  # tool calls, by run of the agent and id
    begun: set[tuple[str | None, str]] = field(default_factory=set)  # those of them that began
    unseen: set[str | None] = field(default_factory=set)  # runs of agents whose turns no code of the user's sees
    turns: dict[str | None, Any] = field(default_factory=dict)  # the last request of each run of an agent
    versions: dict[tuple[str, str], Any] = field(default_factory=dict)  # in a replay: what requests were made with


_known: ContextVar[Known] = ContextVar("holdfast_pydantic_ai")


def known() -> Known:
    """Events known here; none if no agent was run here or above."""
    return _known.get(None) or Known()


class Codec:
    """Values as JSON: the wire form is the framework's own, without what says nothing."""

    def dump(self, tp: Any, value: Any) -> Any:
        if isinstance(value, ModelResponse):
            plain = _adapter(tp).dump_python(value, mode="json", exclude_none=True)
            return {**plain, "usage": {what: amount for what, amount in plain["usage"].items() if amount}}
        plain = _adapter(tp).dump_python(value, mode="json")
        return returned(plain) if tp == CallToolResult else plain

    def load(self, tp: Any, payload: Any) -> Any:
        return JSON_CODEC.load(tp, _marked(payload) if tp == CallToolResult else payload)


def prepare() -> None:
    """Build what reads and writes values: it takes a while, and is better done before a run waits for it."""
    codec = Codec()
    for kind, plain in ((ModelResponse, {"parts": []}), (CallToolResult, {"kind": "tool_return", "result": None})):
        codec.dump(kind, codec.load(kind, plain))


@functools.cache
def _adapter(tp: Any) -> TypeAdapter[Any]:
    return TypeAdapter(tp)


def returned(payload: Any) -> Any:
    """The value that a tool returned, by itself: so people read it in the history, and enter it when a call is in doubt."""
    own = payload.get("result")
    bare = payload.keys() == {"kind", "result"} and payload["kind"] == "tool_return"
    return payload if not bare or (isinstance(own, dict) and "kind" in own) else own


def _marked(payload: Any) -> Any:
    marked = isinstance(payload, dict) and "kind" in payload
    return payload if marked else {"kind": "tool_return", "result": payload}


def arguments(given: Any) -> dict[str, Any]:
    """The arguments of a tool, as plain data."""
    plain: dict[str, Any] = _plain(_adapter(Any).dump_python(given))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(each) for each in value), key=repr)  # equal ones are the same text
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return to_jsonable_python(value, fallback=_type_name)


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def last_words(messages: list[ModelMessage]) -> str:
    """Say what the model is asked now, for readers of the history: the prompt, or which tools' results it is given."""
    words = [
        part.content
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
        else getattr(part, "tool_name", None)
        for part in (messages[-1].parts if messages else ())
    ]
    return " ".join(word for word in words if word)[:200]


def date(messages: list[ModelMessage], run_id: str | None) -> None:
    """Give what the run added since the last response the run's own time: its messages are the same on every replay."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse) or message.run_id != run_id:
            return
        message.timestamp = holdfast.now()
        for part in message.parts:
            if hasattr(part, "timestamp"):
                part.timestamp = message.timestamp


def account(response: ModelResponse) -> None:
    """Tell the run, in the step that made the request, what the response has cost."""
    used = response.usage
    if used.cost is None:
        with contextlib.suppress(LookupError, ValueError, AssertionError):  # not known to the list of prices
            used.cost = response.cost().total_price
    holdfast.spend(
        None if used.cost is None else float(used.cost),
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        model=response.model_name,
        provider=response.provider_name,
    )


# What a request was made with


def remember() -> None:
    """Begin to remember, here and in tasks that are made from here."""
    if _known.get(None) is None:
        _known.set(Known())


def tools_of(params: ModelRequestParams) -> list[dict[str, Any]]:
    """List the tools that a request offers."""
    asked = params.model_request_parameters
    return [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
        for tool in (*asked.function_tools, *asked.output_tools)
    ]


def message(asked: ModelMessage) -> dict[str, Any]:
    """A message without what is ours. A response is told as it was recorded, so that it need not be kept again."""
    if isinstance(asked, ModelResponse):
        plain = Codec().dump(ModelResponse, asked)
        return {name: value for name, value in plain.items() if name not in _OURS}
    plain = _adapter(ModelRequest).dump_python(asked, mode="json", exclude_none=True)
    parts = [{name: value for name, value in part.items() if name != "timestamp"} for part in plain.get("parts", ())]
    return {name: value for name, value in plain.items() if name not in (*_OURS, "timestamp")} | {"parts": parts}


def stamped(response: Any, model: str | None, params: ModelRequestParams) -> dict[str, Any]:
    """The response with the hash of what it was asked with, and that itself if this run has not stored it yet."""
    version, tools = _version(model, params)
    run = holdfast.this_run().id
    found = {_hash(version): version, _hash(tools): tools}
    new = {mark: value for mark, value in found.items() if (run, mark) not in known().stored}
    stamp = {"version": _hash(version), "response": response}
    return {**stamp, "new": new} if new else stamp


def version_of(model: str | None, params: ModelRequestParams) -> str:
    """Hash what a request is made with besides its messages."""
    return _hash(_version(model, params)[0])


def _version(model: str | None, params: ModelRequestParams) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All that a request is made with besides its messages, and its tools."""
    tools = tools_of(params)
    settings: dict[str, Any] = dict(params.model_settings or {})
    if settings.get("extra_headers"):
        settings["extra_headers"] = sorted(settings["extra_headers"])  # their names: among the values there are keys
    last = next((each for each in reversed(params.messages) if isinstance(each, ModelRequest)), None)
    version = {
        "model": model,
        "settings": to_jsonable_python(settings, fallback=_type_name),
        "instructions": last.instructions if last else None,
        "tools": _hash(tools),
    }
    return version, tools


def unstamped(answer: dict[str, Any]) -> Any:
    """Return the response of a recorded answer, and note that what came with it is stored."""
    run = holdfast.this_run().id
    known().stored.update((run, mark) for mark in answer.get("new", ()))
    return answer["response"]


def is_noticing() -> bool:
    """Is this a replay that wants to see every request?"""
    return notices.get() is not None


def notice(agent: str, answer: dict[str, Any], model: str | None, params: ModelRequestParams) -> None:
    """Tell a replay what a request is made with now, where that is not what it was made with when it was recorded."""
    heard = notices.get()
    if heard is None:
        return
    run, versions = holdfast.this_run().id, known().versions
    versions.update({(run, mark): value for mark, value in answer.get("new", {}).items()})
    then = versions.get((run, answer["version"]))
    if then is None:
        return  # the request that has it was made before a checkpoint
    now, tools = _version(model or then["model"], params)
    for part in ("model", "settings", "instructions"):
        if then[part] != now[part]:
            heard.append(Notice(f"{part} of {agent}", _text(then[part]), _text(now[part])))
    before, after = _by_name(versions.get((run, then["tools"]), tools)), _by_name(tools)
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            heard.append(Notice(f"tool {name} of {agent}", _text(before.get(name)), _text(after.get(name))))


def _by_name(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {tool["name"]: {"description": tool["description"], "parameters": tool["parameters"]} for tool in tools}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_type_name), 500)


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_type_name)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
