"""The picture of a run: its tree of steps as lines of text, the same for a terminal, a pipe and an SVG file."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import rich.text
from rich.cells import cell_len
from rich.console import Console

from holdfast.cli.view.console import Glyphs, lines_of
from holdfast.cli.view.screen import Text
from holdfast.cli.view.tree import History, Node, Remark, in_order
from holdfast.values.text import cut
from holdfast.words.durations import clock, spoken, when
from holdfast.words.events import turn, waited
from holdfast.words.harmless import harmless
from holdfast.words.model import FINISHED, Event
from holdfast.words.progress import Progress

MARGIN: Final = "  "
STATE_STYLES: Final = {
    "done": "green", "failed": "bold red", "running": "bold cyan", "waiting": "yellow", "cancelled": "dim",
    "doubt": "bold yellow", "said": "dim",
}  # fmt: skip
STATUS_STYLES: Final = {
    "completed": "green", "failed": "bold red", "running": "bold cyan", "waiting": "yellow", "ready": "cyan",
    "paused": "bold yellow", "cancelled": "dim", "moved": "dim",
}  # fmt: skip
TONES: Final = {"plain": "dim", "bad": "red", "warn": "yellow"}
_REMARK_LINES: Final = 4
_PROSE: Final = {"question": 12, "note": 4, "warning": 4}  # sorts whose name is a sentence, and its lines at the most
_BAR_CELLS: Final = 30
_DECIDED_CELLS: Final = 20  # of how a question was decided that are shown however long it is
_UNFOLDED: Final = 30  # nodes of one name in a list; of more, the first and the last are shown
_AT_AN_END: Final = 10


@dataclass(slots=True)
class Row:
    """One line of the picture."""

    at: int | None
    guide: str
    text: Text
    right: str = ""
    rule: bool = False  # filled up with a line to the right edge


@dataclass(slots=True)
class Scene:
    """A picture to draw: `nested` has the histories of runs, `statuses` their states."""

    signs: Glyphs
    width: int
    nested: dict[str, History] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    now: int = field(default_factory=lambda: round(time.time() * 1000))
    last_only: int | None = None  # of each list only so many of the last ones: for a screen that moves, or if asked for
    failed_only: bool = False  # of each list only what failed, or what such a thing is in
    forsaken: frozenset[str] = frozenset()  # runs whose worker is gone
    untold: frozenset[tuple[str, str]] = frozenset()  # steps (run, key) whose last error is told below the picture


def clean(text: str) -> str:
    """Write a text in one line, for people."""
    return harmless(" ".join(text.split()))


def status_text(status: str, signs: Glyphs) -> Text:
    """Write a state with its sign and colour."""
    sign = {
        "completed": signs.done,
        "failed": signs.failed,
        "running": signs.running,
        "cancelled": signs.small,
        "moved": signs.arrow,
    }
    return Text(f"{sign.get(status, signs.waiting)} {status}", STATUS_STYLES.get(status, ""))


# Rows


def rows(scene: Scene, run: str, history: History) -> list[Row]:
    """Draw the whole tree of a run."""
    return list(_level(scene, run, history, history.items, "", flat=True))


def _level(scene: Scene, run: str, history: History, items: Sequence[Node], guide: str, *, flat: bool) -> Iterator[Row]:
    """Draw the rows of one list of nodes. The top of a run is flat: no lines are needed to see what belongs together."""
    status = "" if run in scene.forsaken else scene.statuses.get(run, "")
    shown = [node for node in in_order(items) if _is_shown(node, status)]
    shown = [node for at, node in enumerate(shown) if not _is_outdone(node, shown[at + 1 : at + 2])]
    if scene.failed_only:
        shown = [node for node in shown if _has_failed(node)]
    if scene.last_only is not None and len(shown) > scene.last_only:
        hidden = len(shown) - scene.last_only
        yield Row(None, guide, Text(f"{scene.signs.more} {hidden:,} earlier", "dim"))
        shown = shown[hidden:]
    elif not scene.failed_only:
        shown = _folded(shown)
    for at, node in enumerate(shown):
        last = at == len(shown) - 1
        own = guide if flat else guide + (scene.signs.elbow if last else scene.signs.tee)
        below = guide if flat else guide + ("   " if last else scene.signs.bar)
        if node.sort == "mark":
            yield from _mark(scene, node, own)
            continue
        if node.sort == "fold":
            yield Row(None, own, Text(f"{scene.signs.more} {node.name}", "red" if node.state == "failed" else "dim"))
            continue
        under = below + "  "
        if node.sort in _PROSE and (node.sort != "question" or node.state == "waiting"):
            yield from _sentence(scene, node, status, own, under)
        else:
            yield _row(scene, node, status, own)
        remarks = node.remarks
        if node.key is not None and (run, node.key) in scene.untold and remarks and remarks[-1].tone == "bad":
            remarks = remarks[:-1]
        if node.held is not None:
            remarks = [*remarks, _waits(node.held, scene.now)]
        if node.state == "running" and node.child is None and run in scene.forsaken:
            remarks = [
                *remarks,
                Remark("cut off: its worker is gone, and whether it had its effect is not known", "warn"),
            ]
        yield from _remarks(remarks, under, scene.width - len(under) - 14)
        if node.child is not None:
            yield from _nested(scene, node, under)
        elif node.items:
            inner = _with_marks(history, node)
            yield from _level(scene, run, history, inner, below, flat=False)


def _mark(scene: Scene, node: Node, own: str) -> Iterator[Row]:
    """Draw a line across the list; what finds no room on it goes on below."""
    style = "yellow" if node.state == "said" else "red"
    told = _wrap(clean(node.name), scene.width - len(own) - 24, _REMARK_LINES)
    yield Row(node.began, own, Text(f"{told[0]} ", style), rule=True)
    for line in told[1:]:
        yield Row(None, f"{own}   ", Text(line, style))


def _nested(scene: Scene, node: Node, under: str) -> Iterator[Row]:
    """Draw a child run under the call that started it."""
    assert node.child is not None
    inner = scene.nested.get(node.child)
    status = scene.statuses.get(node.child, "")
    told = f"run {node.child}" + ("" if status in ("completed", "") else f", {status}")
    yield Row(None, under.removesuffix("  ") + "  ", Text(told, "dim"))
    if inner is not None:
        yield from _level(scene, node.child, inner, inner.items, under, flat=False)


def _with_marks(history: History, branch: Node) -> list[Node]:
    """Add to a branch that went on after an interruption where it was interrupted."""
    inside = [node.seq for node in branch.items]
    return [*branch.items, *(mark for mark in history.marks if min(inside) < mark.seq < max(inside))]


def _is_shown(node: Node, status: str) -> bool:
    """A deadline that was never reached says nothing once the run is over."""
    return not (node.sort == "timer" and node.name != ":sleep" and node.ended is None and status in FINISHED)


def _is_outdone(node: Node, after: Sequence[Node]) -> bool:
    """Is this progress that later progress follows? Only the last says something."""
    return node.sort in ("progress", "plan") and any(each.sort == node.sort for each in after)


def _has_failed(node: Node) -> bool:
    return node.state == "failed" or any(_has_failed(each) for each in node.items)


def _like(node: Node) -> tuple[str, str]:
    """Name what nodes must have in common to stand for each other."""
    if node.sort == "branch":
        return node.sort, node.name.rpartition("#")[0]
    return node.sort, node.name if node.sort in ("step", "model", "child", "timer") else ""


def _folded(shown: list[Node]) -> list[Node]:
    """Keep of many nodes of one name the first and the last, and one that says how many are between them."""
    alike: dict[tuple[str, str], list[Node]] = {}
    for node in shown:
        if node.sort not in ("mark", "warning"):
            alike.setdefault(_like(node), []).append(node)
    folds: dict[int, Node] = {}
    hidden: set[int] = set()
    for nodes in alike.values():
        if len(nodes) > _UNFOLDED:
            is_outdone = nodes[0].sort in ("progress", "plan")
            between = nodes[:-1] if is_outdone else nodes[_AT_AN_END:-_AT_AN_END]
            hidden |= {id(node) for node in between}
            if not is_outdone:
                folds[id(between[0])] = _fold(between)
    if not hidden:
        return shown
    return [folds.get(id(node), node) for node in shown if id(node) in folds or id(node) not in hidden]


def _fold(nodes: list[Node]) -> Node:
    counts = {"failed": sum(map(_has_failed, nodes)), "open": sum(node.ended is None and node.state in
              ("running", "waiting") for node in nodes)}  # fmt: skip
    told = "".join(f", {count:,} {word}" for word, count in counts.items() if count)
    more = " (--failed shows them)" if counts["failed"] else ""
    return Node("fold", f"{len(nodes):,} more like this{told}{more}", state="failed" if counts["failed"] else "said")


def _sentence(scene: Scene, node: Node, status: str, own: str, under: str) -> Iterator[Row]:
    """Draw a node whose name is a sentence: it goes on in further lines and is not cut."""
    whole = _row(scene, node, status, own)
    room = max(scene.width - len(under) - 14 - (len(whole.right) + 2 if whole.right else 0), 20)
    if whole.text.cell_len <= room:
        yield whole
        return
    told = _wrap(clean(node.name), room, _PROSE[node.sort])
    style = {"question": "bold", "note": "italic", "warning": "yellow"}[node.sort]
    first = Text(f"{_sign(scene.signs, node)} ", STATE_STYLES[node.state]).append(told[0], style)
    yield Row(whole.at, own, first, whole.right)
    for line in told[1:]:
        yield Row(None, under, Text(line, style))
    for line in _wrap(clean(node.result or ""), room, _REMARK_LINES):
        yield Row(None, under, Text(line, "dim"))


def _wrap(text: str, room: int, most: int) -> list[str]:
    return textwrap.wrap(text, max(room, 20), max_lines=most, placeholder=" …", break_on_hyphens=False)


def _waits(held: Event, now: int) -> Remark:
    """Say until when a step waits for its turn; if that has come, its body may be at work."""
    at = held.data["at"]
    waits = f"waits {turn(held)}, until {when(at)}" if at > now else f"waited {waited(held)} {turn(held)}"
    return Remark(waits)


def _remarks(remarks: Sequence[Remark], guide: str, room: int) -> Iterator[Row]:
    for remark in remarks:
        for line in _wrap(clean(remark.text), room, _REMARK_LINES):
            yield Row(None, guide, Text(line, TONES[remark.tone]))


def _row(scene: Scene, node: Node, status: str, guide: str) -> Row:
    if node.sort == "branch":
        return Row(None, guide, Text(clean(node.name), "cyan"), _span(node))
    sign, text = _sign(scene.signs, node), Text()
    text.append(f"{sign} ", STATE_STYLES[node.state])
    _describe(node, text, scene)
    if node.dropped:
        text.append("  taken out by the retry")
        text.stylize("dim")
    right = "  ".join(filter(None, (node.spent.cost, _took(scene, node, status))))
    return Row(node.ended or node.last or node.began, guide, text, right)


def _sign(signs: Glyphs, node: Node) -> str:
    if node.sort == "warning":
        return signs.warning
    return {
        "done": signs.done, "failed": signs.failed, "running": signs.running, "waiting": signs.waiting,
        "cancelled": signs.small, "doubt": signs.doubt, "said": signs.small,
    }[node.state]  # fmt: skip


def _describe(node: Node, text: Text, scene: Scene) -> None:
    name, result = clean(node.name), clean(node.result or "")
    if node.sort == "timer":
        _describe_timer(node, text)
    elif node.sort == "message":
        text.append("message ", "dim").append(name, "bold").append(f" {scene.signs.arrow} ", "dim").append(result)
    elif node.sort in ("note", "progress", "plan"):
        text.append(name, "italic").append(f"  {result}" if result else "", "dim")
    elif node.sort == "patch":
        text.append("took the new side of ", "dim").append(name)
    elif node.sort == "warning":
        text.append(name, "yellow")
    elif node.sort == "question":
        asked = Text(name, "bold")
        if result:  # what was decided, and by whom, matters more now
            fit(asked, max(scene.width - min(cell_len(result), _DECIDED_CELLS) - 32, 24), scene.signs)
        text.append_text(asked).append(f"  {result}" if result else "", "dim")
    else:
        text.append(name, "bold")
        if node.sort in ("step", "child"):
            text.append(f"({_cut_to_leave_room(clean(node.input), result, scene.width)})", "dim")
        if node.state == "cancelled":
            text.append("  no longer waited for", "dim")
        if node.attempts > 1:
            text.append(f"  attempt {node.attempts}", "yellow")
        if result and result != "None":
            text.append(f"  {scene.signs.arrow} ", "dim").append(result)


def _cut_to_leave_room(input: str, result: str, width: int) -> str:
    """Cut long arguments to leave room for their result."""
    return cut(input, max(width * 2 // 5, 20)) if result and result != "None" else input


def _describe_timer(node: Node, text: Text) -> None:
    asked_s = ((node.due or 0) - (node.began or node.due or 0)) / 1000
    what = {":sleep": "sleep", ":timeout": "timeout", ":receive.timeout": "wait for a message, at most"}
    text.append(what.get(node.name, node.name.lstrip(":")), "bold").append(f" {spoken(max(asked_s, 0))}", "dim")
    if node.state == "waiting" and node.due is not None:
        text.append(f"  until {when(node.due)}", "yellow")


def _first_began(branch: Node) -> int | None:
    return next((at for node in branch.items if (at := node.began or _first_began(node)) is not None), None)


def _last_ended(branch: Node) -> int | None:
    ends = [at for node in branch.items if (at := node.ended or _last_ended(node)) is not None]
    return max(ends, default=None)


def _span(branch: Node) -> str:
    began, ended = _first_began(branch), _last_ended(branch)
    return spoken((ended - began) / 1000) if began is not None and ended is not None and ended >= began else ""


def _took(scene: Scene, node: Node, status: str) -> str:
    if node.sort not in ("step", "model", "child", "timer", "question") or node.began is None:
        return ""
    if node.ended is not None:
        return spoken(max(node.ended - node.began, 0) / 1000)
    if node.state == "running" and status == "running":
        so_far_s = max(scene.now - node.began, 0) / 1000
        return f"{so_far_s:.1f} s" if so_far_s < 60 else spoken(so_far_s)
    return ""


# Lines


def progress_line(progress: Progress, signs: Glyphs) -> Text:
    """Draw how far a run has come, as a bar and in words."""
    share = min(progress.done / progress.total, 1.0) if progress.total else 0.0
    full = round(share * _BAR_CELLS)
    line = Text(MARGIN).append(signs.full * full, "green").append(signs.rule * (_BAR_CELLS - full), "dim")
    return line.append(f"  {share:.0%}", "bold").append(f"  {clean(str(progress))}", "dim")


def lines(found: Sequence[Row], width: int, signs: Glyphs) -> list[Text]:
    """Write rows as lines of this width at most: times at the left, durations at the right edge."""
    days = {clock(row.at, dated=True)[:5] for row in found if row.at is not None}
    dated = len(days) > 1
    made, before = [], ""
    for row in found:
        at = clock(row.at, dated=dated) if row.at is not None else ""
        shown, before = ("" if at == before else at), at or before
        made.append(_line(row, shown.ljust(14 if dated else 8), width, signs))
    return made


def _line(row: Row, at: str, width: int, signs: Glyphs) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis").append(f"{MARGIN}{at}  ", "dim").append(row.guide, "dim")
    room = width - cell_len(line.plain) - len(MARGIN) - (len(row.right) + 2 if row.right else 0)
    text = row.text.copy()
    if row.rule:
        text = Text(signs.rule * 2 + " ", "yellow").append_text(text)
        text.truncate(max(room, 8), overflow="ellipsis")
        text.append(signs.rule * max(room - text.cell_len, 0), "dim yellow")
        return line.append_text(text)
    fit(text, max(room, 8), signs)
    line.append_text(text)
    if row.right:
        line.append(" " * (room - text.cell_len + 2)).append(row.right, "dim")
    return line


def fit(text: rich.text.Text, room: int, signs: Glyphs) -> None:
    """Cut what finds no room, and no word of it in two if it has several."""
    if text.cell_len <= room:
        return
    text.truncate(room - len(signs.more) - 1, overflow="crop")
    space = text.plain.rfind(" ")
    if space > room // 2:
        text.right_crop(len(text.plain) - space)
    text.append(f" {signs.more}", "dim")


def wrapped(text: str, width: int, style: str = "", margin: str = MARGIN) -> list[Text]:
    """Break a text between words into lines, each with a margin."""
    made = []
    for line in lines_of(text) if text else []:
        kept = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(line.strip(), max(width - len(margin) - len(kept), 20), break_on_hyphens=False) or [""]
        made += [Text(f"{margin}{kept}{part}", style) for part in parts]
    return made


def print_lines(on: Console, made: Sequence[Text]) -> None:
    """Print lines as they are."""
    for line in made:
        line.rstrip()
        on.print(line, soft_wrap=True)
