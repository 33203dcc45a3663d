"""A run's events as a tree of what it did: events in, nodes out, no I/O. It can grow while the run goes on.

A call's key is its path: `deepen#0/summarise#1` is a node `summarise` in the branch `deepen#0`. What has no key
(messages, interruptions, warnings) stands at the top.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from holdfast.values.codec import preview
from holdfast.words.announcements import event_of
from holdfast.words.calls import OpenBody
from holdfast.words.events import (
    OF_A_STEP,
    PREVIEW_CHARACTERS,
    error_line,
    is_own_patch,
    is_request,
    said_by_model,
    told,
    turn,
    value_preview,
    waited,
    words_of,
)
from holdfast.words.model import Event, RunRow
from holdfast.words.progress import Progress
from holdfast.words.spent import NOTHING, Spent


@dataclass(frozen=True, slots=True)
class Remark:
    """A line under a node. `tone` is 'plain', 'bad' or 'warn'."""

    text: str
    tone: str = "plain"


@dataclass(slots=True, eq=False)
class Node:
    """One thing a run did, or a branch (an asyncio task or a scope) of such things. `seq` is that of its last event.

    `sort` is step, timer, child, question, branch, message, note, checkpoint, patch, warning or mark; `state` is done, failed,
    running, waiting, cancelled, doubt or said.
    """

    sort: str
    name: str
    seq: int = 0
    input: str = ""
    state: str = "done"
    began: int | None = None
    ended: int | None = None
    last: int | None = None  # when its last event was recorded
    due: int | None = None
    attempts: int = 1
    result: str | None = None
    remarks: list[Remark] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    child: str | None = None  # the id of the run that this node is
    dropped: bool = False  # taken out of the history by a retry
    key: str | None = None  # of the call that this node is
    spent: Spent = NOTHING
    held: Event | None = None  # it waits for its turn, and nothing was recorded of it since

    def warn(self, text: str) -> None:
        """Add a remark of the kind people should read."""
        self.remarks.append(Remark(text, "warn"))


def in_order(items: Iterable[Node]) -> list[Node]:
    """Sort by the last record, so that all above an interruption was recorded before it; open nodes come last."""
    return sorted(items, key=lambda node: (_is_open(node), node.seq))


def _is_open(node: Node) -> bool:
    in_doubt = node.state == "doubt" and node.sort != "warning"
    return node.ended is None and not node.dropped and (in_doubt or node.state in ("running", "waiting"))


class History:
    """The tree. `items` are its top nodes; `in_order` says in which order nodes are read."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.items: list[Node] = []
        self.marks: list[Node] = []
        self.next_seq = 0
        self.steps_failed = 0  # for good, and not taken out since
        self.interruptions = 0
        self.progress: Progress | None = None  # how far the run says it has come
        self.plan: Progress | None = None  # and how much of its plan is done
        self._calls: dict[tuple[str, int | None], Node] = {}
        self._branches: dict[str, Node] = {}
        self._agents: set[str] = set()  # branches that are runs of agents of Pydantic AI
        self._children: dict[str, Node] = {}
        self._stand_ins: dict[str, str] = {}  # of a fork: by a child that its code knows, the one it has
        self._questions: dict[str, Node] = {}  # by id: a retry takes out what was asked, and not what was said to it
        self._passing: list[tuple[list[Node], Node]] = []
        for event in events:
            self.add(event)

    @property
    def children(self) -> list[str]:
        """The ids of the runs this one has started."""
        return list(self._children)

    def add(self, event: Event) -> Node | None:
        """Take in one event; they come in order. Of one that came from outside: the node that tells it."""
        take = self.TAKERS.get(event.kind)
        node = None if take is None else take(self, event)
        self.next_seq = event.seq + 1
        return node

    def add_untaken(self, events: Iterable[Event]) -> None:
        """Take in signals that wait for a worker to take them; each is shown as such."""
        for event in events:
            node = self.add(event)
            if node is not None and node.sort == "mark":
                node.name += f"; {_UNTAKEN}"
            elif node is not None:
                node.warn(_UNTAKEN)

    def show_children(self, rows: Mapping[str, RunRow]) -> None:
        """Show the runs that it has started as they are, also those of whose end it never heard."""
        for child, node in self._children.items():
            row = rows.get(child)
            if row is not None and node.ended is None:
                node.state, node.ended = _STATES.get(row.status, "waiting"), row.finished_at

    def show_gone(self, row: RunRow) -> None:
        """Show as over what was open when the run was moved to another store, or cut short: nothing of it goes on here."""
        if row.status not in _GONE:
            return
        for node in self._within(self.items):
            if _is_open(node) and node.child is None:
                node.state, node.ended, node.due = _STATES[row.status], row.finished_at or row.updated_at, None
                if row.status == "moved":
                    node.remarks.append(Remark(_ASKED_THERE if node.sort == "question" else _GOES_ON_THERE))

    def _within(self, items: list[Node]) -> Iterator[Node]:
        for node in items:
            yield node
            yield from self._within(node.items)

    def show_open(self, calls: Iterable[OpenBody]) -> None:
        """Show these calls as going on, until the next time this is called."""
        for siblings, passing in self._passing:
            siblings.remove(passing)
        self._passing.clear()
        for call in calls:
            known = self._calls.get((call.key, None))
            if known is None:
                passing = Node("step", call.name, self.next_seq, call.input, "running", call.began)
                if is_request(call.key, call.name):
                    passing.sort = passing.name = "model"
                siblings = self._siblings(call.key)
                siblings.append(passing)
                self._passing.append((siblings, passing))
            elif known.ended is None:
                known.state, known.began = "running", call.began

    # Placing

    def _siblings(self, key: str) -> list[Node]:
        """The list a key's node belongs to; its branches are made as they are needed."""
        era, slash, rest = key.partition("/")
        path = (rest if slash and era.startswith("@") else key).split("/")[:-1]
        items, place = self.items, era if era.startswith("@") else ""
        for part in path:
            agent, colon, _ = part.rpartition(":")
            if colon and (part.endswith(":model") or f"{place}/{agent}" in self._agents):
                # One run of an agent of Pydantic AI: all that it does stands together, in the order of time.
                place, name = f"{place}/{agent}", _agent_name(agent)
                self._agents.add(place)
            else:
                place, name = f"{place}/{part}", part
            branch = self._branches.get(place)
            if branch is None:
                branch = self._branches[place] = Node("branch", name)
                items.append(branch)
            branch.seq = self.next_seq
            items = branch.items
        return items

    def _call(self, event: Event, sort: str) -> Node:
        """The node of the call that an event belongs to; its place is that of its last event."""
        key, data = event.key or "", event.data
        self.next_seq = event.seq
        siblings = self._siblings(key)
        node = self._calls.get((key, event.dropped))
        if node is None:
            node = Node(
                sort, data.get("name", ""), input=data.get("input", ""), dropped=event.dropped is not None, key=key
            )
            if sort == "step" and is_request(key, node.name):
                node.sort = node.name = "model"
            self._calls[key, event.dropped] = node
            siblings.append(node)
        if node.held is not None:
            node.remarks.append(Remark(f"waited {waited(node.held, event.at)} {turn(node.held)}"))
            node.held = None
        node.seq, node.last = event.seq, event.at
        if "spent" in data:
            node.spent += Spent.of(data["spent"])
        return node

    def _top(self, event: Event, sort: str, name: str, state: str = "said") -> Node:
        node = Node(sort, name, event.seq, "", state, event.at, dropped=event.dropped is not None)
        self.items.append(node)
        return node

    # Steps

    def _step_started(self, event: Event) -> None:
        node = self._call(event, "step")
        if node.state == "running" and node.began is not None:
            node.warn(f"whether attempt {node.attempts} had its effect was not known; it ran again")
        node.state, node.began, node.attempts = "running", event.at, event.data.get("attempt", 1)

    def _step_progress(self, event: Event) -> None:
        if event.dropped is None:
            self.progress = Progress.of(event.data)

    def _step_held(self, event: Event) -> None:
        node = self._call(event, "step")
        node.held, node.state, node.due = event, "waiting", event.data["at"]

    def _step_retrying(self, event: Event) -> None:
        node, data = self._call(event, "step"), event.data
        node.remarks.append(Remark(_said(event), "bad"))
        node.state, node.due = "waiting", event.at + data.get("wait_ms", 0)
        node.attempts = data.get("attempt", 1) + 1

    def _step_ended(self, event: Event) -> None:
        node, data = self._call(event, "step"), event.data
        was_asked = node.state == "doubt"
        if not data.get("began") and node.began is not None and not was_asked and event.kind == "step.completed":
            node.warn("its outcome was not known; its probe found it done, so it was not done again")
        node.began, node.ended = data.get("began") or node.began, event.at
        node.attempts, node.due = data.get("attempts", node.attempts), None
        if data.get("replaced"):
            node.remarks.append(Remark(_REPLACED))
        if event.kind == "step.completed":
            node.state, node.result = "done", said_by_model(event) or value_preview(event)
        elif event.kind == "step.failed":
            node.state = "failed"
            self.steps_failed += event.dropped is None
            node.remarks.append(Remark(error_line(data.get("error")), "bad"))
        else:
            node.state = "cancelled"
            if data.get("in_doubt"):
                node.warn("its body had begun; whether it had its effect is not known")

    # People

    def _asked(self, event: Event) -> None:
        data = event.data
        if data.get("kind") in OF_A_STEP:
            node = self._call(event, "step")
            node.state = "doubt"
            node.warn(_said(event))
            return
        if event.key is None:  # about a budget, whichever run's call met its limit
            node = self._calls[data.get("key", ""), None] = self._top(event, "question", "")
        else:
            node = self._call(event, "question")
        node.name, node.state, node.began = _said(event), "waiting", event.at
        self._questions[data.get("approval", "")] = node
        if data.get("to"):
            node.remarks.append(Remark(f"for {', '.join(data['to'])}"))
        if data.get("not_by") == "starter":
            node.remarks.append(Remark("not by who started the run"))

    def _told(self, event: Event) -> Node | None:
        """Remark what happened to a question besides its answer: a reminder, a delegation, a vote or a withdrawal."""
        node = self._question_of(event)
        if node is None:
            return None
        node.remarks.append(Remark(_said(event)))
        if event.kind == "approval.withdrawn" and node.sort == "question":
            node.state, node.ended = "cancelled", event.at
        return node

    def _question_of(self, event: Event) -> Node | None:
        """The node of the question, or of the step, that something was said to."""
        asked = self._questions.get(event.data.get("approval", ""))
        return asked or self._calls.get((event.key or event.data.get("key", ""), None))

    def _decided(self, event: Event) -> Node:
        data = event.data
        node, said = self._question_of(event), _said(event)
        if node is None:
            return self._top(event, "note", said)
        if node.sort == "question":
            good = event.kind == "approval.decided" and data.get("yes")
            node.state, node.ended, node.seq = "done" if good else "failed", event.at, event.seq
            node.result = said + (f": {value_preview(event)}" if value_preview(event) and good else "")
            if data.get("replaced"):
                node.remarks.append(Remark(_REPLACED))
        else:
            value = value_preview(event)
            node.warn(f"{said}: {value}" if value else said)
            node.last = event.at
        return node

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

    def _child_ended(self, event: Event) -> Node | None:
        node = self._children.get(event.data["child"])
        if node is not None:
            node.state = _STATES.get(str(event.data.get("status")), "cancelled")
            node.ended, node.result, node.seq = event.at, value_preview(event), event.seq
            if event.data.get("replaced"):
                node.remarks.append(Remark(_REPLACED))
        return node

    def _tell(self, event: Event, sort: str, name: str) -> Node:
        """A node that is a sentence."""
        node = self._call(event, sort) if event.key is not None else self._top(event, sort, "")
        node.name, node.state, node.began, node.input = name, "said", event.at, ""
        return node

    def _note(self, event: Event) -> None:
        node = self._tell(event, "note", _said(event))
        stored = json.loads(event.value) if event.value else {}
        if isinstance(stored, dict) and stored.get("data"):
            node.result = preview(json.dumps(stored["data"]), PREVIEW_CHARACTERS)

    def _progress(self, event: Event) -> None:
        if event.dropped is None and event.kind == "plan":
            self.plan = Progress.of(event.data)
        elif event.dropped is None:
            self.progress = Progress.of(event.data)
        self._tell(event, event.kind, _said(event))

    def _talk(self, event: Event) -> None:
        self._tell(event, "note", told(event))

    def _checkpoint(self, event: Event) -> None:
        node = self._call(event, "checkpoint")
        node.name = _said(event)
        node.began, node.result = event.at, value_preview(event)

    # What has no key

    def _low(self, event: Event) -> None:
        self._top(event, "note", _said(event))

    def _message(self, event: Event) -> Node:
        topic = str(event.data.get("topic", ""))
        node = self._top(event, "message", event_of(topic) or topic)
        node.result = value_preview(event)
        return node

    def _patched(self, event: Event) -> None:
        if not is_own_patch(event):
            self._top(event, "patch", str(event.data.get("patch", "")))

    def _foreign(self, event: Event) -> None:
        node = self._top(event, "warning", _said(event), "doubt")
        node.warn("it is done again whenever the run resumes; put it into a step")

    def _mark(self, event: Event) -> Node | None:
        if event.kind == "run.failed" and event.dropped is None:
            return None  # how the run ended is said below the tree
        self.interruptions += event.kind == "run.interrupted"
        text = told(event, error=not self._is_told(event))
        mark = self._top(event, "mark", text, "failed" if event.kind == "run.failed" else "said")
        self.marks.append(mark)
        if event.kind == "run.forked":
            self._stand_in(event.data.get("children", {}))
        if event.data.get("instead"):  # on a line of its own, or it would be cut
            mark.name, _, replaced = text.partition("; replaced: ")
            self.marks.append(self._top(event, "mark", f"replaced: {replaced}"))
        return mark

    def _stand_in(self, children: Mapping[str, str]) -> None:
        """Show a fork's own children where its code knows the children of the other run."""
        for known, own in children.items():
            node = self._children.pop(self._stand_ins.get(known, known), None)
            self._stand_ins[known] = own
            if node is not None:
                node.child, self._children[own] = own, node

    def _is_told(self, event: Event) -> bool:
        """Does a step in the tree say the error that a retry took out with it?"""
        error = event.data.get("error") or {}
        keys = [source.get("key") for source in error.get("from", ()) if not source.get("child")]
        nodes = [self._calls[key, event.dropped] for key in keys if (key, event.dropped) in self._calls]
        return any(node.remarks and error_line(error).endswith(node.remarks[-1].text) for node in nodes)

    # The kinds that are shown in the tree, each with what takes it in. How a run ended is said below the tree.
    TAKERS: ClassVar[dict[str, Callable[[History, Event], Node | None]]] = {
        "run.interrupted": _mark,
        "run.pausing": _mark,
        "run.paused": _mark,
        "run.resumed": _mark,
        "run.retried": _mark,
        "run.forked": _mark,
        "run.cancelling": _mark,
        "run.unwinding": _mark,
        "run.failed": _mark,
        "step.started": _step_started,
        "step.held": _step_held,
        "step.progress": _step_progress,
        "step.retrying": _step_retrying,
        "step.completed": _step_ended,
        "step.failed": _step_ended,
        "step.cancelled": _step_ended,
        "timer.set": _timer,
        "timer.fired": _timer,
        "message.received": _message,
        "child.started": _child,
        "child.spawned": _child,
        "child.ended": _child_ended,
        "approval.asked": _asked,
        "approval.reminded": _told,
        "approval.delegated": _told,
        "approval.voted": _told,
        "approval.withdrawn": _told,
        "approval.decided": _decided,
        "approval.expired": _decided,
        "budget.low": _low,
        "conversation.entered": _talk,
        "conversation.refused": _talk,
        "conversation.read": _talk,
        "conversation.added": _talk,
        "announcement.published": _talk,
        "announcement.awaited": _talk,
        "patched": _patched,
        "note": _note,
        "progress": _progress,
        "plan": _progress,
        "checkpoint": _checkpoint,
        "stream.opened": _talk,
        "stream.closed": _talk,
        "stream.read": _talk,
        "foreign": _foreign,
    }


def _agent_name(agent: str) -> str:
    name, _, nth = agent.rpartition("-")
    if not name or not nth.isdecimal() or nth == "0":
        return name or agent
    return f"{name}, run {int(nth) + 1}"


_REPLACED: Final = "replaced when the run was forked"
_UNTAKEN: Final = "no worker has taken this yet"
_ASKED_THERE: Final = "asked in the store that has the run"
_GOES_ON_THERE: Final = "goes on in the store that has the run"
_GONE: Final = ("moved", "cancelled")  # states of a run in which what its history leaves open does not go on here
_STATES: Final = {
    "completed": "done", "failed": "failed", "cancelled": "cancelled", "running": "running", "moved": "said",
}  # fmt: skip


def _said(event: Event) -> str:
    return words_of(event).says(event)


UNSHOWN: Final = frozenset({
    "run.completed", "run.cancelled", "tick", "conversation.asked", "conversation.withdrawn", "conversation.left",
})  # fmt: skip
