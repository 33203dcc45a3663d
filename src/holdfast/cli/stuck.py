"""`holdfast runs --stuck`: runs that do not go on by themselves, and why, in words. `doctor` says the same of them."""

from __future__ import annotations

from typing import Any, Final

from holdfast.cli.stores import held
from holdfast.cli.view.advice import GOES_ON, after_pause, code_of, command, held_back, how_to_go_on, without_id
from holdfast.cli.view.console import answer, command_line, console, glyphs, print_json
from holdfast.cli.view.draw import clean, status_text
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.documents import plain
from holdfast.client.edge import Edge
from holdfast.client.info import RunInfo, crashes, is_held_back, wants_worker
from holdfast.values.text import cut
from holdfast.words.durations import spoken
from holdfast.words.model import CRASHES_APART, Published, RunRow, is_served
from holdfast.worker.health import LATE_MS

_LOOKED_AT: Final = 10_000
TAKEN_OVER_MS: Final = 5_000  # within which a live worker takes a run whose worker is gone


def why_stuck(
    row: RunRow, served: Published, queues: frozenset[str] | None, now: int, url: str | None
) -> tuple[str, str] | None:
    """Say what keeps an unfinished run, and what to do; None when nothing does."""
    late_ms = now - row.due_at if row.due_at is not None else 0
    late = spoken(late_ms / 1000) if late_ms >= 1000 else "less than 1 s"
    lacks = _lacks(row, served, queues, url)
    nobody, go_on = lacks or ("", " ".join(how_to_go_on(row, url)))
    also = nobody and f", and {nobody}"
    look = "Look at what its step does: memory, a native crash, os._exit"
    if row.status == "paused":
        why = without_id(row.reason or "no reason was given", row.id)
        told = f"it is {why}" if why.startswith("paused by ") else f"it is paused: {why}"
        return cut(told, 500), after_pause(row, url)[1]
    if is_held_back(row, served, now) and not nobody:
        info = RunInfo.of(row, served, now)
        return f"it is {held_back(info)}; a worker serves {code_of(row)}", f"It {GOES_ON}. {look}"
    carried = row.status == "running" or wants_worker(row, now)
    if carried and crashes(row, now) >= CRASHES_APART:  # one that waits meanwhile has done what it had to do
        ends = f"its process has ended {crashes(row, now)} times without progress in between{also}"
        then = "It is carried apart now, and paused at the fifth time if it is alone then"
        return ends, f"{look}. {then}" + (f". {go_on}" if nobody else "")
    if row.status == "running" and row.due_at is not None and late_ms >= 0:
        if not nobody and late_ms < TAKEN_OVER_MS:
            return None
        return (
            f"it is in the middle, and its worker is gone or stands still: nobody has had it for {late}{also}",
            go_on,
        )
    if row.due_at is None or late_ms <= 0:
        return (nobody, go_on) if nobody and wants_worker(row, now) else None
    if nobody:
        return (f"it has been due for {late}{also}", go_on)
    if late_ms > LATE_MS:
        advice = "Look at their logs and at holdfast_backlog_age_seconds, or start another one"
        return (f"it has been due for {late} and no worker took it: those there are are full or hang", advice)
    return None


def _lacks(row: RunRow, served: Published, queues: frozenset[str] | None, url: str | None) -> tuple[str, str] | None:
    """Say what a run needs and no live worker has, its code or its queue, and the command that starts one."""
    if not is_served(row, served):
        return f"no live worker serves {code_of(row)}", " ".join(how_to_go_on(row, url))
    if queues is not None and row.queue not in queues:
        start = command("worker", "FILE.py", "--queues", row.queue, db=url)
        return f"no worker takes queue {row.queue!r}", f"Start one: {start}"
    return None


async def found_stuck(hf: Client, url: str | None) -> list[tuple[RunRow, RunInfo, tuple[str, str]]]:
    """List runs that do not go on by themselves, the longest due first; each with what keeps it and what to do."""
    rows, served, queues, now = await Edge(hf).overdue(_LOOKED_AT)
    kept = [(row, why_stuck(row, served, queues, now, url)) for row in rows]
    return [(row, RunInfo.of(row, served, now), why) for row, why in kept if why is not None]


async def print_stuck(
    hf: Client, url: str | None, statuses: tuple[str, ...], agent: str | None, labels: dict[str, str], limit: int, *, as_json: bool
) -> None:  # fmt: skip
    """Print those of them that fit."""
    rows, asleep = await found_stuck(hf, url), await held(hf, url)
    found = []
    for row, info, why in rows:
        fits = (not statuses or row.status in statuses) and (agent is None or row.agent == agent)
        if fits and labels.items() <= info.labels.items():
            found.append((info, row.queue, *(why if asleep is None else (asleep.what, asleep.advice))))
    if as_json:
        documents: list[dict[str, Any]] = [
            plain(info) | {"queue": queue, "stuck": reason, "advice": advice}
            for info, queue, reason, advice in found[:limit]
        ]
        print_json({"runs": documents, "held": asleep})
        return
    if not found:
        answer(f"No run is stuck in {Edge(hf).url}.")
        if asleep is not None:
            answer(f"But {asleep}", "yellow")
        return
    on = console()
    signs = glyphs(on)
    for info, _, reason, advice in found[:limit]:
        head = Text(info.id, "bold").append(f"  {info.agent}  ", "cyan").append_text(status_text(info.status, signs))
        on.print(head, soft_wrap=True)
        on.print(Text(f"  {clean(reason)}", "yellow"), soft_wrap=True)
        on.print(command_line(clean(advice), "dim"), soft_wrap=True)
    if len(found) > limit:
        answer(f"{limit} of {len(found)} are shown; --limit shows more.", "dim")
