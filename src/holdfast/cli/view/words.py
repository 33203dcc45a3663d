"""What events say, in words."""

from __future__ import annotations

import json
from typing import Any, Final

from holdfast.client.run import Progress
from holdfast.values.codec import preview
from holdfast.words.budget import remaining
from holdfast.words.durations import spoken
from holdfast.words.model import Event
from holdfast.words.spent import NOTHING

PREVIEW_CHARACTERS: Final = 160


def said_talk(event: Event) -> str:
    """What a run did in a conversation."""
    data = event.data
    many = data.get("end", 0) - data.get("first", 0)
    told = {
        "conversation.asked": "asked for",
        "conversation.entered": f"entered, {data.get('length')} messages",
        "conversation.refused": f"refused, run {data.get('by')} has it",
        "conversation.withdrawn": "no longer waited for",
        "conversation.read": f"read {many} messages from {data.get('first')} on",
        "conversation.added": f"added {many} messages: {data.get('input')}",
        "conversation.left": "left",
    }
    return f"conversation {data.get('conversation')}: {told.get(event.kind, event.kind)}"


def said_stream(event: Event) -> str:
    """What agent code did with a stream."""
    data = event.data
    if "held_by" in data:
        return f"stream {data.get('name')}: {data['held_by']} has it"
    reason = f", {data['reason']}" if data.get("reason") else ""
    told = {"stream.opened": "begins", "stream.closed": f"ends{reason}", "stream.read": "what was left is looked at"}
    return f"stream {data.get('name')}: {told.get(event.kind, event.kind)}"


def said_progress(event: Event) -> str:
    """What a run says of how far it has come."""
    return f"{event.kind.rpartition('.')[2]}: {Progress.of(event.data)}"


def said_low(event: Event) -> str:
    """That the soft limit of a budget was passed."""
    return f"most of the budget is spent: {remaining(event.data['left'], NOTHING, event.at).told()}"


def turn(event: Event) -> str:
    """What a body that is held waits for: the words behind 'waits'."""
    data = event.data
    of = f" of {data['rate']}" if data.get("rate") else ""
    why = ", which is paused" if data.get("paused") else ""
    return f"for its turn{of}{why}"


def waited(event: Event, until: int | None = None) -> str:
    """For how long a body was held; `until` is when the next thing was recorded of it, if that is known."""
    at = event.data["at"] if until is None else min(event.data["at"], until)
    return spoken(max(at - event.at, 0) / 1000)


def error_line(error: dict[str, Any] | None) -> str:
    """An error record in one line."""
    error = error or {}
    message = " ".join(str(error.get("message", "")).split())
    return f"{error.get('type', 'error')}: {message}" if message else str(error.get("type", "error"))


def said_by_model(event: Event) -> str | None:
    """What a model said in a request of Pydantic AI: its text, and the tools it asks for; None for any other event."""
    if event.value is None or not is_request(event.key or "", event.data.get("name", "")):
        return None
    response = json.loads(event.value).get("response", {})
    parts = response.get("parts") if isinstance(response, dict) else None
    if not isinstance(parts, list):
        return None
    text = " ".join(str(part.get("content", "")) for part in parts if part.get("part_kind") == "text").strip()
    tools = [str(part.get("tool_name")) for part in parts if part.get("part_kind") == "tool-call"]
    said = [f"asks for {', '.join(tools)}"] if tools else []
    said += [preview(json.dumps(text), PREVIEW_CHARACTERS)] if text else []
    return ": ".join(said) or "nothing"


def is_own_patch(event: Event) -> bool:
    """Is this a change of Holdfast itself, which users know nothing of?"""
    return event.kind == "patched" and str(event.data.get("patch", "")).startswith("holdfast.")


def is_request(key: str, name: str) -> bool:
    """Is this the step of a request that an agent of Pydantic AI made?"""
    place = key.split("/")
    return name.endswith(".model") and len(place) > 1 and place[-2].endswith(":model")


def value_preview(event: Event) -> str | None:
    """The payload of an event in one line, if it has one."""
    if event.blob is not None:
        return "a large value"
    return None if event.value is None else preview(event.value, PREVIEW_CHARACTERS)
