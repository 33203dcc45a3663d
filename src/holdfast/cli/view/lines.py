"""One event as one line: what `tail`, a worker, and a run in a pipe say."""

from __future__ import annotations

import time
from typing import Any, Final

from holdfast.cli.view.draw import clean, clock, when
from holdfast.cli.view.screen import Text
from holdfast.cli.view.words import (
    error_line,
    is_own_patch,
    is_request,
    said_by_model,
    said_low,
    said_progress,
    said_stream,
    said_talk,
    turn,
    value_preview,
    waited,
)
from holdfast.values.text import cut
from holdfast.words.durations import spoken
from holdfast.words.model import Event
from holdfast.words.spent import Spent

_QUIET: Final = ("tick",)
_INPUT_CHARACTERS: Final = 80


def line(event: Event, *, width: int | None = None, run: bool = True, error: bool = True) -> Text:
    """Time, run, and what happened; without the error of a failure that is told elsewhere."""
    style, told = spoken_event(event, error=error)
    made = Text(f"{clock(event.at)}  ", "dim")
    if run:
        made.append(f"{event.run}  ", "cyan")
    made.append(clean(told), style)
    if width is not None:
        made.truncate(width, overflow="ellipsis")
    return made


def told_now(run: str, told: str, style: str = "yellow") -> Text:
    """A line of the same form for what is no event."""
    return Text(f"{time.strftime('%H:%M:%S')}  ", "dim").append(f"{run}  ", "cyan").append(clean(told), style)


def spoken_event(event: Event, *, error: bool = True) -> tuple[str, str]:
    """A style, and what happened in words."""
    family = event.kind.partition(".")[0]
    if family == "step":
        return _step(event, error=error)
    if family == "run":
        return _run(event, error=error)
    if family in ("conversation", "stream"):
        return "", said_talk(event) if family == "conversation" else said_stream(event)
    data = event.data
    value = cut(value_preview(event) or "", 80)
    if event.kind == "timer.set":
        until = data.get("until")
        span = spoken((data.get("ms") or 0) / 1000) if until is None else f"until {when(until)}"
        return "", f"{_timer_name(data)} {span} begins"
    told = {
        "timer.fired": lambda: f"{_timer_name(data)} is over",
        "tick": lambda: f"asyncio timer {event.key} fired",
        "message.received": lambda: f"message on {data.get('topic')}: {value}",
        "child.started": lambda: f"child run {data.get('child')} started: {call(data)}",
        "child.spawned": lambda: f"child run {data.get('child')} spawned: {call(data)}",
        "child.ended": lambda: f"child run {data.get('child')} {data.get('status')}",
        "approval.asked": lambda: _asked(data),
        "approval.reminded": lambda: f"question {data.get('approval')} waits still: {data.get('question')}",
        "approval.delegated": lambda: (
            f"question {data.get('approval')}: {data.get('by')} passed it on to {data.get('to')}"
        ),
        "approval.voted": lambda: f"question {data.get('approval')}: {data.get('by')} agreed",
        "approval.decided": lambda: f"question {data.get('approval')}: {data.get('decision')} by {data.get('by')}",
        "approval.expired": lambda: f"question {data.get('approval')}: nobody decided in time",
        "approval.withdrawn": lambda: f"question {data.get('approval')} was withdrawn",
        "budget.low": lambda: said_low(event),
        "patched": lambda: f"takes the new side of {data.get('patch')}",
        "note": lambda: f"note: {data.get('text')}",
        "progress": lambda: said_progress(event),
        "plan": lambda: said_progress(event),
        "checkpoint": lambda: f"checkpoint {data.get('era')}",
        "foreign": lambda: (
            f"{'does' if data.get('effect') else 'waits for'} something that is not recorded ({data.get('what')}) at "
            f"{data.get('line')}"
        ),
    }.get(event.kind, lambda: event.kind)()
    style = {"foreign": "yellow", "approval.asked": "yellow", "budget.low": "yellow", "note": "italic"}.get(
        event.kind, ""
    )
    return style, told


def _asked(data: dict[str, Any]) -> str:
    if data.get("kind") == "in_doubt":
        return f"{call(data)} is in doubt; question {data.get('approval')} asks a person"
    if data.get("kind") == "loop":
        return f"{call(data)} would go on with a loop; question {data.get('approval')} asks a person"
    return f"question {data.get('approval')}: {data.get('question')}"


def call(data: dict[str, Any]) -> str:
    """A call as people write it."""
    return f"{data.get('name', '')}({cut(str(data.get('input', '')), _INPUT_CHARACTERS)})"


def _timer_name(data: dict[str, Any]) -> str:
    return str(data.get("name", "timer")).lstrip(":").replace("receive.timeout", "time to wait for a message")


def _step(event: Event, *, error: bool) -> tuple[str, str]:
    data = event.data
    what, attempts = call(data), data.get("attempts", 1)
    took = f" in {spoken((event.at - data['began']) / 1000)}" if data.get("began") else ", found done and not run again"
    again = f" at attempt {attempts}" if attempts > 1 else ""
    spent = Spent.of(data.get("spent", {})).cost
    cost = f", {spent}" if spent else ""
    if is_request(event.key or "", data.get("name", "")):
        what = f"{data['name'].removesuffix('.model')}: model"
        if event.kind == "step.completed" and (said := said_by_model(event)) is not None:
            return "green", f"{what} -> {said}{took}{again}{cost}"
    if event.kind == "step.completed":
        return "green", f"{what} done{took}{again}{cost}"
    if event.kind == "step.started":
        return "", f"{what} begins, attempt {data.get('attempt', 1)}"
    if event.kind == "step.progress":
        return "", f"{what} {said_progress(event)}"
    if event.kind == "step.held":
        return "", f"{what} waits {waited(event)} {turn(event)}"
    if event.kind == "step.retrying":
        wait = spoken(data.get("wait_ms", 0) / 1000)
        others = f"; {data['pauses']} is paused for everybody" if data.get("pauses") else ""
        failed = f"{what} failed at attempt {data.get('attempt')}: {error_line(data.get('error'))}"
        return "yellow", f"{failed}; again in {wait}{others}"
    if event.kind == "step.failed":
        return "red", f"{what} failed for good{again}{cost}" + (f": {error_line(data.get('error'))}" if error else "")
    return "dim", f"{what} is no longer waited for"


def _run(event: Event, *, error: bool) -> tuple[str, str]:
    data, by = event.data, event.data.get("by")
    if event.kind == "run.failed":
        return "bold red", "failed" + (f": {error_line(data.get('error'))}" if error else "")
    if event.kind == "run.interrupted":
        return "yellow", "was interrupted: its process is gone; goes on from its record"
    verb = {
        "run.pausing": "asked to pause",
        "run.cancelling": "asked to stop",
        "run.unwinding": "told to stop",
    }.get(event.kind, event.kind[4:])
    told = verb + (f" by {by}" if by else "") + (f": {data['reason']}" if data.get("reason") else "")
    style = {"run.completed": "bold green", "run.paused": "bold yellow", "run.cancelled": "dim"}.get(event.kind, "cyan")
    return style, told


def is_quiet(event: Event) -> bool:
    """Is this of interest only to whoever asks for every event?"""
    return event.kind in _QUIET or is_own_patch(event)
