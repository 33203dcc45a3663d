"""Events in words: one row for each kind says how people read it, in a line, in a tree, on a page.

Look here when a kind is added to `holdfast.words.model.KINDS`, or when two places tell the same event differently: they must
not. A row says what happened, and apart from that what it happened to, because a tree shows that by where a node stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.values.codec import preview
from holdfast.values.text import cut
from holdfast.words.announcements import event_of
from holdfast.words.budget import remaining
from holdfast.words.durations import spoken, when
from holdfast.words.model import Event
from holdfast.words.people import deciders
from holdfast.words.progress import Progress
from holdfast.words.spent import NOTHING, Spent

_LATE_MS: Final = 60_000

PREVIEW_CHARACTERS: Final = 160
_INPUT_CHARACTERS: Final = 80
_VALUE_CHARACTERS: Final = 80
_INSTEAD: Final = 5  # replacements of a fork, in a line
_WORKER: Final = re.compile("(.+)-[0-9a-f]{16}")  # a name, and what is random at each opening of a store

Says = Callable[[Event], str]


@dataclass(frozen=True, slots=True)
class Words:
    """A kind of event for people.

    `tone` is plain, said, good, warn, bad, faint or control; of the end of a run completed, failed or paused. `error`: the
    event has an error, which is told behind the words. `quiet`: only a reader that asks for every event wants it.
    """

    says: Says
    about: Says = lambda _: ""  # with the joint between it and the words
    tone: str = "plain"
    error: bool = False
    quiet: bool = False


def told(event: Event, *, error: bool = True) -> str:
    """Tell an event in a line, with its error or without."""
    words = words_of(event)
    behind = f": {error_line(event.data.get('error'))}" if words.error and error else ""
    return words.about(event) + words.says(event) + behind


def words_of(event: Event) -> Words:
    """Find the words of an event; one that a later version wrote is told by the name of its kind."""
    return WORDS.get(event.kind) or Words(lambda each: each.kind)


def is_quiet(event: Event) -> bool:
    """Is this of interest only to a reader that asks for every event?"""
    return words_of(event).quiet or is_own_patch(event)


# Parts of sentences


def call(event: Event) -> str:
    """Write a call as people do: `fetch(url='...')`; a request of Pydantic AI by its agent."""
    data = event.data
    name = str(data.get("name", ""))
    if is_request(event.key or "", name):
        return f"{name.removesuffix('.model')}: model"
    return f"{name}({cut(str(data.get('input', '')), _INPUT_CHARACTERS)})"


def turn(event: Event) -> str:
    """Say what a body that is held waits for: the words behind 'waits'."""
    data = event.data
    of = f" of {data['rate']}" if data.get("rate") else ""
    why = ", which is paused" if data.get("paused") else ""
    return f"for its turn{of}{why}"


def waited(event: Event, until: int | None = None) -> str:
    """Say for how long a body was held; `until` is when the next thing was recorded of it, if that is known."""
    at = event.data["at"] if until is None else min(event.data["at"], until)
    return spoken(max(at - event.at, 0) / 1000)


def error_line(error: dict[str, Any] | None) -> str:
    """Write an error record in one line."""
    error = error or {}
    message = " ".join(str(error.get("message", "")).split())
    return f"{error.get('type', 'error')}: {message}" if message else str(error.get("type", "error"))


def value_preview(event: Event) -> str | None:
    """Write the payload of an event in one line, if it has one."""
    if event.blob is not None:
        return "a large value"
    return None if event.value is None else preview(event.value, PREVIEW_CHARACTERS)


def said_by_model(event: Event) -> str | None:
    """Say what a model answered in a request of Pydantic AI: its text and the tools it asks for; None for other events."""
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
    return name.endswith(".model") and len(place) > 1 and place[-2].rpartition(":")[1:] == (":", "model")


def _noted(data: dict[str, Any]) -> str:
    return f": {data['note']}" if data.get("note") else ""


# Runs


def _by(verb: str) -> Says:
    """Say what was done, by whom, and why."""

    def says(event: Event) -> str:
        data = event.data
        by = f" by {data['by']}" if data.get("by") else ""
        return verb + by + (f": {data['reason']}" if data.get("reason") else "")

    return says


# Steps


def _of_call(event: Event) -> str:
    return f"{call(event)} "


def _outcome(verb: str) -> Says:
    """Say how a step ended, how long it took, at which attempt, and what it cost."""

    def says(event: Event) -> str:
        data = event.data
        took = ""
        if event.kind == "step.completed":
            took = (
                f" in {spoken((event.at - data['began']) / 1000)}"
                if data.get("began")
                else ", found done and not run again"
            )
        again = f" at attempt {data['attempts']}" if data.get("attempts", 1) > 1 else ""
        cost = Spent.of(data.get("spent", {})).cost
        said = said_by_model(event)
        names = ", ".join(dict.fromkeys(map(str, data.get("published", {}).values())))
        published = f", published {names}" if names else ""
        return (verb if said is None else f"-> {said}") + took + again + (f", {cost}" if cost else "") + published

    return says


def _retrying(event: Event) -> str:
    data = event.data
    wait = spoken(data.get("wait_ms", 0) / 1000)
    others = f", and {data['pauses']} is paused for everybody" if data.get("pauses") else ""
    return f"attempt {data.get('attempt')}: {error_line(data.get('error'))}; again after {wait}{others}"


def _progress(event: Event) -> str:
    return f"{event.kind.rpartition('.')[2]}: {Progress.of(event.data)}"


# Waits


def _timer(event: Event) -> str:
    name = str(event.data.get("name", "timer")).lstrip(":")
    return f"{name.replace('receive.timeout', 'time to wait for a message')} "


def _timer_set(event: Event) -> str:
    until = event.data.get("until")
    span = spoken((event.data.get("ms") or 0) / 1000) if until is None else f"until {when(until)}"
    return f"{span} begins"


def _message(event: Event) -> str:
    topic = str(event.data.get("topic"))
    name = event_of(topic)
    return f"message on {topic}: " if name is None else f"announcement {name}: "


# Questions

OF_A_STEP: Final = {"in_doubt": "its outcome is not known", "loop": "it would go on with a loop"}


def _question(event: Event) -> str:
    """Name the question, or the step that it is about."""
    data = event.data
    if event.kind == "approval.asked" and data.get("kind") in OF_A_STEP:
        return f"{call(event)}: "
    return f"question {data.get('approval')}: "


def _asked(event: Event) -> str:
    data = event.data
    question, doubt = str(data.get("question", "")), OF_A_STEP.get(data.get("kind", ""))
    if doubt and question.startswith("Do "):  # it again?
        doubt = "its body ran before"
    return question if doubt is None else f"{doubt}; question {data.get('approval')} asks a person"


def _voted(event: Event) -> str:
    data = event.data
    changed = " and changed what is shown" if data.get("changed") else ""
    return f"{data.get('by')} agreed{changed}{_said_at(event)}" + _noted(data)


def _decided(event: Event) -> str:
    data = event.data
    note = f" ({data['note']})" if data.get("note") else ""
    who = deciders(
        data.get("decision"), [vote["by"] for vote in data.get("votes", ()) if vote["yes"]], str(data.get("by"))
    )
    return f"{data.get('decision')} by {who}{_said_at(event)}{note}"


def _said_at(event: Event) -> str:
    """Tell when a person said it, if that was long before the run heard of it: in a bundle, or while nobody carried the run."""
    at = event.data.get("at")
    return f" at {when(at)}" if type(at) is int and event.at - at >= _LATE_MS else ""


# Conversations and streams


def _conversation(event: Event) -> str:
    return f"conversation {event.data.get('conversation')}: "


def _messages(event: Event) -> int:
    return int(event.data.get("end", 0) - event.data.get("first", 0))


def _stream(event: Event) -> str:
    return f"stream {event.data.get('name')}: "


def _of_stream(what: str) -> Says:
    def says(event: Event) -> str:
        data = event.data
        if "held_by" in data:
            return f"{data['held_by']} has it"
        return what + (f", {data['reason']}" if data.get("reason") else "")

    return says


def _child(event: Event) -> str:
    return f"child run {event.data.get('child')} "


def _foreign(event: Event) -> str:
    data = event.data
    did = "did" if data.get("effect") else "waited for"
    return f"{data.get('line')} {did} something that is not recorded ({data.get('what')})"


def _forked(event: Event) -> str:
    data = event.data
    what = f"forked from run {data.get('of')} before event {data.get('at')}" if data.get("of") else "begun in a fork"
    instead = data.get("instead") or {}
    told = ", ".join(f"{key} = {value}" for key, value in list(instead.items())[:_INSTEAD])
    more = f" and {len(instead) - _INSTEAD} more" if len(instead) > _INSTEAD else ""
    return _by(what)(event) + (f"; replaced: {told}{more}" if told else "")


def _interrupted(event: Event) -> str:
    """Name the worker that was gone and the one that went on; earlier versions recorded only the former."""
    by, owner = name_of(event.data.get("by")), name_of(event.data.get("owner"))
    gone = f"the process of {owner}" if owner and by else "its process"
    if event.data.get("how") == "lease":
        what = f"{owner or 'its worker'} stood still for longer than its lease"
    else:
        what = f"{gone} was gone"
    return f"interrupted: {what}; {by or 'another'} went on"


def name_of(worker: object) -> str:
    """The name that a worker was given, out of its id; empty if it was given none."""
    found = _WORKER.fullmatch(worker) if isinstance(worker, str) else None
    return found[1] if found else ""


def _retried(event: Event) -> str:
    cut = event.data.get("cut")
    return _by(f"retried from before event {cut}" if "effects" in event.data else "retried from its failure")(event)


WORDS: Final[dict[str, Words]] = {
    # when it ended is recorded nowhere
    "run.interrupted": Words(_interrupted, tone="warn"),
    "run.pausing": Words(_by("asked to pause"), tone="control"),
    "run.paused": Words(_by("paused"), tone="paused"),
    "run.resumed": Words(_by("resumed"), tone="control"),
    "run.retried": Words(_retried, tone="control"),
    "run.forked": Words(_forked, tone="control"),
    "run.cancelling": Words(_by("asked to stop"), tone="control"),
    "run.unwinding": Words(_by("told to stop"), tone="control"),
    "run.completed": Words(_by("completed"), tone="completed"),
    "run.failed": Words(lambda _: "failed", tone="failed", error=True),
    "run.cancelled": Words(_by("cancelled"), tone="faint"),
    "step.started": Words(lambda event: f"begins, attempt {event.data.get('attempt', 1)}", _of_call),
    "step.held": Words(lambda event: f"waits {waited(event)} {turn(event)}", _of_call),
    "step.progress": Words(_progress, _of_call),
    "step.retrying": Words(_retrying, _of_call, "warn"),
    "step.completed": Words(_outcome("done"), _of_call, "good"),
    "step.failed": Words(_outcome("failed for good"), _of_call, "bad", error=True),
    "step.cancelled": Words(lambda _: "is no longer waited for", _of_call, "faint"),
    "timer.set": Words(_timer_set, _timer),
    "timer.fired": Words(lambda _: "is over", _timer),
    "tick": Words(lambda event: f"asyncio timer {event.key} fired", quiet=True),
    "message.received": Words(lambda event: cut(value_preview(event) or "", _VALUE_CHARACTERS), _message),
    "child.started": Words(lambda event: f"started: {call(event)}", _child),
    "child.spawned": Words(lambda event: f"spawned: {call(event)}", _child),
    "child.ended": Words(lambda event: str(event.data.get("status")), _child),
    "approval.asked": Words(_asked, _question, "warn"),
    "approval.reminded": Words(lambda event: f"reminded ({event.data.get('nth')})" + _noted(event.data), _question),
    "approval.delegated": Words(
        lambda event: f"{event.data.get('by')} passed it on to {event.data.get('to')}" + _noted(event.data), _question
    ),
    "approval.voted": Words(_voted, _question),
    "approval.decided": Words(_decided, _question),
    "approval.expired": Words(lambda _: "nobody decided in time", _question),
    "approval.withdrawn": Words(lambda event: "withdrawn" + _noted(event.data), _question),
    "budget.low": Words(
        lambda event: f"most of the budget is spent: {remaining(event.data['left'], NOTHING, event.at).told()}",
        tone="warn",
    ),
    "conversation.asked": Words(lambda _: "asked for", _conversation),
    "conversation.entered": Words(lambda event: f"entered, {event.data.get('length')} messages", _conversation),
    "conversation.refused": Words(lambda event: f"refused, run {event.data.get('by')} has it", _conversation),
    "conversation.withdrawn": Words(lambda _: "no longer waited for", _conversation),
    "conversation.read": Words(
        lambda event: f"read {_messages(event)} messages from {event.data.get('first')} on", _conversation
    ),
    "conversation.added": Words(
        lambda event: f"added {_messages(event)} messages: {event.data.get('input')}", _conversation
    ),
    "conversation.left": Words(lambda _: "left", _conversation),
    "announcement.published": Words(lambda event: f"published {event.data.get('input')}"),
    "announcement.awaited": Words(lambda event: f"waits for announcements of {event.data.get('input')} from here on"),
    "patched": Words(lambda event: f"took the new side of {event.data.get('patch')}"),
    "note": Words(lambda event: str(event.data.get("text", "")), lambda _: "note: ", "said"),
    "progress": Words(_progress),
    "plan": Words(_progress),
    "checkpoint": Words(lambda event: f"checkpoint {event.data.get('era', '')}".strip()),
    "stream.opened": Words(_of_stream("begins"), _stream),
    "stream.closed": Words(_of_stream("ends"), _stream),
    "stream.read": Words(_of_stream("what was left is looked at"), _stream),
    "foreign": Words(_foreign, tone="warn"),
}
