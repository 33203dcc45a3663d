"""A run's events as a tree of what it did: events in, nodes out, no I/O. It can grow while the run goes on.

A call's key is its path: `deepen#0/summarise#1` is a node `summarise` in the branch `deepen#0`. What has no key (messages,
interruptions, warnings) stands at the top, in the order in which it was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.codec import preview
from holdfast.durations import spoken
from holdfast.model import Event

PREVIEW_CHARACTERS: Final = 160


@dataclass(frozen=True, slots=True)
class Remark:
    """A line under a node. `tone` is 'plain', 'bad' or 'warn'."""

    at: int
    text: str
    tone: str = "plain"


@dataclass(slots=True, eq=False)
class Node:
    """One thing a run did, or a branch (an asyncio task or a scope) of such things.

    `sort` is step, timer, child, branch, message, note, checkpoint, patch, warning or mark; `state` is done, failed,
    running, waiting, cancelled, doubt or said.
    """

    sort: str
    name: str
    seq: int = 0
    input: str = ""
    state: str = "done"
    began: int | None = None
    ended: int | None = None
    due: int | None = None
    attempts: int = 1
    result: str | None = None
    remarks: list[Remark] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    child: str | None = None  # the id of the run that this node is
    dropped: bool = False  # taken out of the history by a retry


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that is going on right now and may not have left any trace in the journal yet."""

    key: str
    name: str
    input: str
    began: int | None


def error_line(error: dict[str, Any] | None) -> str:
    """An error record in one line."""
    error = error or {}
    message = " ".join(str(error.get("message", "")).split())
    return f"{error.get('type', 'error')}: {message}" if message else str(error.get("type", "error"))


def value_preview(event: Event) -> str | None:
    """The payload of an event in one line, if it has one."""
    if event.blob is not None:
        return "a large value"
    return None if event.value is None else preview(event.value, PREVIEW_CHARACTERS)


class History:
    """The tree. `items` are its top nodes in the order of their first record."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.items: list[Node] = []
        self.marks: list[Node] = []
        self.next_seq = 0
        self.last_at: int | None = None
        self.steps_done = 0
        self.interruptions = 0
        self._calls: dict[tuple[str, int | None], Node] = {}
        self._branches: dict[str, Node] = {}
        self._children: dict[str, Node] = {}
        self._passing: list[tuple[list[Node], Node]] = []
        for event in events:
            self.add(event)

    @property
    def children(self) -> list[str]:
        """The ids of the runs this one has started."""
        return list(self._children)

    def add(self, event: Event) -> None:
        """Take in one event; they come in order."""
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)
        self.next_seq = event.seq + 1
        self.last_at = event.at

    def show_open(self, calls: Iterable[OpenCall]) -> None:
        """Show these calls as going on, until the next time this is called."""
        for siblings, node in self._passing:
            siblings.remove(node)
        self._passing.clear()
        for call in calls:
            node = self._calls.get((call.key, None))
            if node is None:
                node = Node("step", call.name, self.next_seq, call.input, "running", call.began)
                siblings = self._siblings(call.key)
                siblings.append(node)
                self._passing.append((siblings, node))
            elif node.ended is None:
                node.began = call.began or node.began
                node.state = "running" if call.began else node.state

    # Placing

    def _siblings(self, key: str) -> list[Node]:
        """The list a key's node belongs to; its branches are made as they are needed."""
        era, slash, rest = key.partition("/")
        path = (rest if slash and era.startswith("@") else key).split("/")[:-1]
        items, place = self.items, era if era.startswith("@") else ""
        for part in path:
            place = f"{place}/{part}"
            branch = self._branches.get(place)
            if branch is None:
                branch = self._branches[place] = Node("branch", part, self.next_seq)
                items.append(branch)
            items = branch.items
        return items

    def _call(self, event: Event, sort: str) -> Node:
        """The node of the call that an event belongs to."""
        key = event.key or ""
        node = self._calls.get((key, event.dropped))
        if node is None:
            self.next_seq = event.seq
            data = event.data
            node = Node(sort, data.get("name", ""), event.seq, data.get("input", ""), dropped=event.dropped is not None)
            self._calls[key, event.dropped] = node
            self._siblings(key).append(node)
        return node

    def _top(self, event: Event, sort: str, name: str, state: str = "said") -> Node:
        node = Node(sort, name, event.seq, "", state, event.at, dropped=event.dropped is not None)
        self.items.append(node)
        return node

    # Steps

    def _step_started(self, event: Event) -> None:
        node = self._call(event, "step")
        if node.state == "running" and node.began is not None:
            node.remarks.append(Remark(event.at, f"whether attempt {node.attempts} had its effect was not known; ran again", "warn"))
        node.state, node.began, node.attempts = "running", event.at, event.data.get("attempt", 1)

    def _step_retrying(self, event: Event) -> None:
        node, data = self._call(event, "step"), event.data
        wait_ms = data.get("wait_ms", 0)
        text = f"attempt {data.get('attempt')} failed: {error_line(data.get('error'))}; again after {spoken(wait_ms / 1000)}"
        node.remarks.append(Remark(event.at, text, "bad"))
        node.state, node.due, node.attempts = "waiting", event.at + wait_ms, data.get("attempt", 1) + 1

    def _step_ended(self, event: Event) -> None:
        node, data = self._call(event, "step"), event.data
        was_asked = node.state == "doubt"
        if not data.get("began") and node.began is not None and not was_asked and event.kind == "step.completed":
            node.remarks.append(Remark(event.at, "its outcome was not known; its probe found it done, so it was not done again", "warn"))
        node.began, node.ended = data.get("began") or node.began, event.at
        node.attempts, node.due = data.get("attempts", node.attempts), None
        if event.kind == "step.completed":
            node.state, node.result = "done", value_preview(event)
            self.steps_done += event.dropped is None
        elif event.kind == "step.failed":
            node.state = "failed"
            node.remarks.append(Remark(event.at, error_line(data.get("error")), "bad"))
        else:
            node.state = "cancelled"
            if data.get("in_doubt"):
                node.remarks.append(Remark(event.at, "its body had begun; whether it had its effect is not known", "warn"))

    def _asked(self, event: Event) -> None:
        node = self._call(event, "step")
        node.state = "doubt"
        node.remarks.append(Remark(event.at, f"its outcome is not known; question {event.data.get('approval')} asks a person", "warn"))

    def _decided(self, event: Event) -> None:
        data = event.data
        node = self._calls.get((data.get("key", ""), None))
        said = preview(data.get("decision") or "null", 80)
        text = f"{data.get('by') or 'somebody'} answered {said}" + (f" ({data['note']})" if data.get("note") else "")
        if node is None:
            self._top(event, "note", text)
        else:
            node.remarks.append(Remark(event.at, text, "warn"))

    # Other calls

    def _timer(self, event: Event) -> None:
        node, data = self._call(event, "timer"), event.data
        if event.kind == "timer.set":
            node.state, node.began = "waiting", event.at
            node.due = data["until"] if data.get("until") is not None else event.at + (data.get("ms") or 0)
        else:
            node.state, node.ended = "done", event.at

    def _child(self, event: Event) -> None:
        node = self._call(event, "child")
        node.state, node.began, node.child = "waiting", event.at, event.data["child"]
        self._children[event.data["child"]] = node

    def _child_ended(self, event: Event) -> None:
        node = self._children.get(event.data["child"])
        if node is not None:
            status = event.data.get("status")
            node.state = {"completed": "done", "failed": "failed"}.get(str(status), "cancelled")
            node.ended, node.result = event.at, value_preview(event)

    def _note(self, event: Event) -> None:
        node = self._call(event, "note")
        node.name, node.state, node.began, node.input = event.data.get("text", ""), "said", event.at, ""
        stored = json.loads(event.value) if event.value else {}
        if isinstance(stored, dict) and stored.get("data"):
            node.result = preview(json.dumps(stored["data"]), PREVIEW_CHARACTERS)

    def _checkpoint(self, event: Event) -> None:
        node = self._call(event, "checkpoint")
        node.name, node.began, node.result = f"checkpoint {event.data.get('era', '')}".strip(), event.at, value_preview(event)

    # What has no key

    def _message(self, event: Event) -> None:
        node = self._top(event, "message", str(event.data.get("topic", "")))
        node.result = value_preview(event)

    def _patched(self, event: Event) -> None:
        self._top(event, "patch", str(event.data.get("patch", "")))

    def _foreign(self, event: Event) -> None:
        data = event.data
        text = f"{data.get('line')} waited for something that is not recorded ({data.get('what')})"
        self._top(event, "warning", text, "doubt").remarks.append(
            Remark(event.at, "it is done again whenever the run resumes; put it into a step", "warn")
        )

    def _mark(self, event: Event) -> None:
        data, by = event.data, event.data.get("by")
        if event.kind == "run.interrupted":
            self.interruptions += 1
            quiet = "" if self.last_at is None else f" {spoken((event.at - self.last_at) / 1000)} after its last record"
            text = f"interrupted: its process was gone; went on in another{quiet}"
        elif event.kind == "run.failed":
            if event.dropped is None:
                return  # how the run ended is said below the tree
            text = f"failed: {error_line(data.get('error'))}"
        else:
            verb = {"run.paused": "paused", "run.resumed": "resumed", "run.retried": "retried from its failure"}[event.kind]
            text = verb + (f" by {by}" if by else "") + (f": {data['reason']}" if data.get("reason") else "")
        self.marks.append(self._top(event, "mark", text, "failed" if event.kind == "run.failed" else "said"))


_HANDLERS: Final[dict[str, Callable[[History, Event], None]]] = {
    "step.started": History._step_started,
    "step.retrying": History._step_retrying,
    "step.completed": History._step_ended,
    "step.failed": History._step_ended,
    "step.cancelled": History._step_ended,
    "approval.asked": History._asked,
    "approval.decided": History._decided,
    "timer.set": History._timer,
    "timer.fired": History._timer,
    "child.started": History._child,
    "child.spawned": History._child,
    "child.ended": History._child_ended,
    "note": History._note,
    "checkpoint": History._checkpoint,
    "message.received": History._message,
    "patched": History._patched,
    "foreign": History._foreign,
    "run.interrupted": History._mark,
    "run.paused": History._mark,
    "run.resumed": History._mark,
    "run.retried": History._mark,
    "run.failed": History._mark,
}
