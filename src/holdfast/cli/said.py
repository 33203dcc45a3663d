"""What a run says of itself, in words."""

from __future__ import annotations

from holdfast.model import Event
from holdfast.run import Progress


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
    return f"stream {data.get('name')}: {'begins' if event.kind == 'stream.opened' else 'ends'}{reason}"


def said_progress(event: Event) -> str:
    """What a run says of how far it has come."""
    return f"{event.kind}: {Progress.of((event.kind, event.data))}"
