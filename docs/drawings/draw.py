"""Draws the pictures of the design page: `python docs/drawings/draw.py`. Readable on a light page and on a dark one.

The picture of states is made from the table of the code; where a state stands, and how far an arrow bends, is said here.
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from holdfast.words.model import TRANSITIONS

HERE = Path(__file__).parent
BOX, END, NOTE, LINE = "#12606d", "#5b6f76", "#c4622d", "#7d9198"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Noto Sans, DejaVu Sans, sans-serif'"
PLACES = {
    "ready": (110, 150), "running": (360, 150), "waiting": (360, 320), "paused": (110, 320),
    "completed": (640, 40), "failed": (640, 150), "cancelled": (640, 320), "moved": (360, 490),
}  # fmt: skip
ENDED = ("completed", "failed", "cancelled", "moved")
BENDS = {
    ("failed", "ready"): -230, ("ready", "cancelled"): 0, ("paused", "cancelled"): -200, ("running", "completed"): -10,
    ("running", "failed"): 0, ("running", "cancelled"): -25, ("waiting", "cancelled"): 0,
    ("failed", "moved"): 160, ("moved", "failed"): -190, ("waiting", "moved"): 16, ("moved", "waiting"): 16,
}  # fmt: skip
WIDE, HIGH = 64, 20  # half of a box


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' {FONT} font-size='15'>"
    point = f"<path d='M0 0L10 5L0 10z' fill='{LINE}'/>"
    size = "viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7'"
    tip = f"<marker id='tip' {size} orient='auto'>{point}</marker>"
    return "\n".join([head, f"<title>{escape(title)}</title><defs>{tip}</defs>", *parts, "</svg>", ""])


def box(x: float, y: float, text: str, *, fill: str = BOX, wide: float = WIDE, high: float = HIGH) -> str:
    lines = text.split("\n")
    first = y + 5 - 9.5 * (len(lines) - 1)
    words = "".join(f"<tspan x='{x}' y='{first + 19 * n}'>{escape(line)}</tspan>" for n, line in enumerate(lines))
    shape = f"<rect x='{x - wide}' y='{y - high}' width='{2 * wide}' height='{2 * high}' rx='8' fill='{fill}'/>"
    return f"{shape}<text text-anchor='middle' fill='#fff'>{words}</text>"


def arrow(path: str, *, dashed: bool = False) -> str:
    dash = " stroke-dasharray='5 4'" if dashed else ""
    return f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='1.8' marker-end='url(#tip)'{dash}/>"


def said(x: float, y: float, text: str, *, fill: str = LINE, anchor: str = "middle") -> str:
    words = "".join(
        f"<tspan x='{x}' dy='{18 if n else 0}'>{escape(line)}</tspan>" for n, line in enumerate(text.split("\n"))
    )
    return f"<text x='{x}' y='{y}' text-anchor='{anchor}' fill='{fill}' font-size='14'>{words}</text>"


def border(at: tuple[float, float], toward: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box leaves it."""
    dx, dy = toward[0] - at[0], toward[1] - at[1]
    part = min(WIDE / abs(dx) if dx else math.inf, HIGH / abs(dy) if dy else math.inf)
    return at[0] + dx * part, at[1] + dy * part


def bent(start: str, end: str) -> str:
    """Draw an arrow that bends to its left, so that the one that comes back stands beside it."""
    (x1, y1), (x2, y2) = PLACES[start], PLACES[end]
    length, bend = math.hypot(x2 - x1, y2 - y1), BENDS.get((start, end), 34)
    middle = ((x1 + x2) / 2 + bend * (y2 - y1) / length, (y1 + y2) / 2 - bend * (x2 - x1) / length)
    (ax, ay), (bx, by) = border((x1, y1), middle), border((x2, y2), middle)
    return arrow(f"M{ax:.0f} {ay:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {bx:.0f} {by:.0f}")


def states() -> str:
    edges = [(start, end) for start, following in TRANSITIONS.items() for end in following]
    parts = [f"<g data-edge='{start} {end}'>{bent(start, end)}</g>" for start, end in edges]
    parts += [box(*place, name, fill=END if name in ENDED else BOX) for name, place in PLACES.items()]
    return svg(740, 530, "The states of a run", parts)


def step() -> str:
    wide, x = 150, 290
    parts = [
        box(x, 40, "agent code calls a step", wide=wide),
        arrow(f"M{x} 60V92"),
        box(x, 118, "the call takes its key, from\nits task, its name and a count", wide=wide, high=26),
        arrow(f"M{x} 144V178"),
        box(x, 202, "is its outcome in the journal?", wide=wide, fill=END),
        arrow(f"M{x + wide} 202H546"),
        said(492, 192, "yes: replay"),
        arrow(f"M{x} 222V268"),
        said(x + 12, 250, "no: at the edge it begins", anchor="start"),
        box(x, 294, "intent, if a crash must be\nnoticed: step.started", wide=wide, high=26),
        arrow(f"M{x} 320V350"),
        box(x, 374, "the body runs", wide=wide),
        arrow(f"M{x} 394V446"),
        box(x, 472, "its outcome gets a number:\nstep.completed, step.failed", wide=wide, high=26),
        arrow(f"M{x} 498V546"),
        box(x, 570, "commit: it is durable", wide=wide),
        arrow(f"M{x + wide} 570H670V228"),
        box(670, 202, "the gate delivers it, in\nthe order of the journal", wide=120, high=26),
        arrow("M670 176V66"),
        box(670, 40, "agent code goes on", wide=120),
        arrow(f"M{x - wide} 374H115V294H{x - wide - 2}", dashed=True),
        said(104, 322, "an exception:\nretry, after\na durable\nwait", anchor="end"),
        said(x + 12, 424, "a crash here: in doubt, its policy decides", fill=NOTE, anchor="start"),
        said(x + 12, 527, "a crash here: nobody has seen it; in doubt too", fill=NOTE, anchor="start"),
        said(682, 400, "a crash here:\nit never runs again", fill=NOTE, anchor="start"),
    ]
    return svg(830, 610, "The life of a step", parts)


def move() -> str:
    left, right, wide = 170, 650, 140
    parts = [
        said(left, 26, "the source", fill=BOX),
        said(410, 26, "the file", fill=NOTE),
        said(right, 26, "the destination", fill=BOX),
        box(left, 70, "runs at work come\nto a safe point", wide=wide, high=26),
        arrow(f"M{left} 96V130"),
        box(left, 156, "all that is there of the\nfamily is read at one moment", wide=wide, high=26),
        arrow(f"M{left + wide} 156H334"),
        box(410, 156, "written, flushed,\nnot released", wide=74, high=26, fill=END),
        arrow("M410 182V232H312"),
        box(left, 232, "one transaction: unchanged?\nthen 'moved', and the file kept", wide=wide, high=26),
        arrow(f"M{left + wide} 290H334"),
        arrow(f"M{left} 258V290H{left + wide}", dashed=True),
        box(410, 308, "released", wide=74, fill=NOTE),
        arrow("M484 308H508"),
        box(right, 308, "one transaction: for this store,\nnot here before? then it is here", wide=wide, high=26),
        arrow(f"M{right} 334V374"),
        box(right, 398, "it goes on", wide=wide),
        said(left, 322, "a crash above: the source goes on.", fill=NOTE),
        said(left, 342, "A crash below: the same command", fill=NOTE),
        said(left, 362, "writes the same file again.", fill=NOTE),
    ]
    return svg(830, 430, "A run moves from one store to another", parts)


def fork() -> str:
    """Three journals in rows: the events that a fork shares stand above it, its own begin behind the point."""
    wide, high, first, step_ = 40, 18, 150, 92

    def events(y: float, names: list[str], begin: int, fill: str) -> list[str]:
        return [
            box(first + step_ * (begin + n), y, name, fill=fill, wide=wide, high=high) for n, name in enumerate(names)
        ]

    def shared(y: float, count: int) -> list[str]:
        x, end = first - wide, first + step_ * (count - 1) + wide
        style = f"fill='none' stroke='{LINE}' stroke-width='1.6' stroke-dasharray='5 4'"
        return [f"<rect x='{x}' y='{y - high}' width='{end - x}' height='{2 * high}' rx='8' {style}/>",
                said((x + end) / 2, y + 5, "shared: a pointer, no copy")]  # fmt: skip

    parts = [
        said(52, 65, "shop-1"), *events(60, ["price", "asked", "denied", "end"], 0, BOX),
        said(52, 155, "shop-2"), *shared(150, 2), *events(150, ["forked"], 2, NOTE),
        *events(150, ["asked", "yes", "book", "end"], 3, BOX),
        said(52, 245, "shop-3"), *shared(240, 4), *events(240, ["forked"], 4, NOTE), *events(240, ["no", "end"], 5, BOX),
        arrow(f"M{first + step_ * 1.5} 82V126"), arrow(f"M{first + step_ * 3.5} 172V216"),
        said(first + step_ * 1.5 + 8, 108, "fork at event 2", fill=NOTE, anchor="start"),
        said(first + step_ * 3.5 + 8, 198, "a fork of the fork, at event 4", fill=NOTE, anchor="start"),
        said(first - wide, 290, "before 'forked' all has the identity that it had; behind it, its own", anchor="start"),
    ]  # fmt: skip
    return svg(830, 310, "A fork shares the journal of another run up to a point", parts)


if __name__ == "__main__":
    (HERE / "fork.svg").write_text(fork(), "utf-8")
    (HERE / "states.svg").write_text(states(), "utf-8")
    (HERE / "step.svg").write_text(step(), "utf-8")
    (HERE / "move.svg").write_text(move(), "utf-8")
