"""The failure of a run, as `run` and `show` tell it: the error once, and above it how the user's code came there.

The error of a run may be that of a step or of a child run in a new dress (`StepFailed`, `RunFailed`): then its own
traceback ends where the agent waited, and goes on with that of the body or of the child.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from holdfast.client.client import Client
from holdfast.values.failures import own_frames
from holdfast.words.events import error_line
from holdfast.words.forks import was_refused
from holdfast.words.model import Event, RunRow

_DEPTH: Final = 20  # runs below each other that are followed
_HEAD: Final = "Traceback (most recent call last):"
_MARGIN: Final = re.compile(r"^ *\| ?")  # of the parts of a group of exceptions


@dataclass(frozen=True, slots=True)
class Failure:
    """`error` is what went wrong first, `path` the lines that lead to it; `steps` and `runs` are those it tells of."""

    error: str
    path: list[str]
    steps: frozenset[tuple[str, str]]  # (run, key)
    runs: frozenset[str]
    place: str = ""  # the call or the event that brought the run down

    @property
    def again(self) -> tuple[str, ...]:
        """Options of the retry that helps."""
        return ("--at", self.place, "--effects", "new") if self.place and was_refused(self.error) else ()

    @property
    def advice(self) -> str:
        """Advice for before a retry."""
        if self.again:
            return "Do it again, and what follows, with new idempotency keys (--effects ask: a person decides):"
        if self.error.startswith("BudgetExceeded"):
            return "Go on from the failure, with --budget usd=5 for example if it may spend more in all:"
        return "Mend the cause, then go on from the failure:"

    def tells(self, event: Event) -> bool:
        """Need the error of this event not be told where the failure is?"""
        if event.kind == "run.failed":
            return event.run in self.runs
        return event.kind == "step.failed" and (event.run, event.key) in self.steps


async def failure_of(hf: Client, row: RunRow) -> Failure:
    """Find what went wrong first in a failed run."""
    path: list[str] = []
    steps: set[tuple[str, str]] = set()
    error: dict[str, Any] = json.loads(row.error or "{}")
    run, place = row.id, _place(error)
    runs = {run}
    for _ in range(_DEPTH):
        path += own_frames(str(error.get("traceback", ""))).rstrip().splitlines()
        sources = error.get("from", [])
        steps |= {(run, source["key"]) for source in sources if not source.get("child")}
        below = await _below(hf, run, error, sources)
        if below is None:
            break
        said, run, deeper = below
        runs.add(run)
        path = [*_without(path, error), said]
        error = deeper
    told = error_line(error)
    return Failure(_message(error), _once(_without(path, error), told), frozenset(steps), frozenset(runs), place)


def _place(error: dict[str, Any]) -> str:
    """Name the call that an error came from; by its event if it waited for a child, which may have been spawned by another."""
    for source in error.get("from", ()):
        return str(source["seq"] if source.get("child") else source["key"])
    return ""


async def _below(
    hf: Client, run: str, error: dict[str, Any], sources: list[dict[str, Any]]
) -> tuple[str, str, dict[str, Any]] | None:
    """Find what an error is a new dress of: in words, the run, and the error itself."""
    if not sources:
        return None
    source = sources[0]
    if error.get("type") == "RunFailed" and source.get("child"):
        child = await hf.store.run(source["child"])
        if child is None or child.error is None:
            return None
        return f"Run {child.id} failed here:", child.id, json.loads(child.error)
    if error.get("type") == "StepFailed":
        for event in await hf.store.journal(run, source["seq"], 1):
            if event.kind == "step.failed" and event.data.get("error", {}).get("traceback"):
                many = event.data.get("attempts", 1)
                tries = f"after {many} attempts" if many > 1 else "at its only attempt"
                raised = " It was raised here:" if "  File " in event.data["error"]["traceback"] else ""
                said = f"Step {event.data.get('name')!r} failed {tries}.{raised}"
                return said, run, event.data["error"] | {"from": []}
    return None


def _message(error: dict[str, Any]) -> str:
    """Type and message, which may have several lines."""
    kind, message = str(error.get("type", "error")), str(error.get("message", ""))
    return f"{kind}: {message}" if message else kind


def _without(path: list[str], error: dict[str, Any]) -> list[str]:
    """Return the lines without the ones that state this error itself, as a traceback does at its end."""
    told = _message(error).splitlines()
    names = {told[0], f"holdfast.errors.{told[0]}", told[0].removeprefix("__main__.")}
    made: list[str] = []
    at = 0
    while at < len(path):
        if path[at] in names and path[at + 1 : at + len(told)] == told[1:]:
            at += len(told)
        else:
            made.append(path[at])
            at += 1
    return made


def _once(path: list[str], told: str) -> list[str]:
    """Keep each line that says an error once, and frames with their code. Heads and blank lines go: they are empty."""
    made: list[str] = []
    seen = {told, _HEAD, ""}
    for line in path:
        bare = _MARGIN.sub("", line).rstrip()
        if bare in seen:
            continue
        if not bare.startswith(" "):
            seen.add(bare)
        made.append(line)
    return made
