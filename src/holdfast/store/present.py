"""The present of runs: what lists say beyond their rows, read for a whole page at once.

Each part is found by an index and bounded: the open calls that owners told, the last events of a run, requests to stop or pause,
and where a fork comes from. What happened longer ago than the last events is not looked for: a list is no history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.store.calls import Told
from holdfast.store.work import Feature, rows, to_json
from holdfast.words.calls import ARRIVALS, BEGUN, OpenBody
from holdfast.words.model import Event

_CLOSES = ("step.completed", "step.failed", "step.cancelled", "timer.fired", "child.spawned", "approval.withdrawn",
           "conversation.withdrawn")  # fmt: skip
_STOPS = ("run.pausing", "run.paused", "run.resumed", "run.retried")
_KINDS = to_json(sorted({*BEGUN, *ARRIVALS, *_CLOSES, *_STOPS}))


@dataclass(slots=True)
class Present:
    """The present of one run. `events` are the last ones that begin, end or stop something, without their values."""

    calls: Told | None = None
    last_sign: int | None = None  # of its owner, which is gone
    events: list[Event] = field(default_factory=list)
    stops: list[tuple[int, str]] = field(default_factory=list)  # where in the inbox a request lies, and its kind
    fork: tuple[str, int, str | None] | None = None  # from which run, at which of its events, by whom


class Presents(Feature):
    """The present of runs, read."""

    async def present(self, runs: Sequence[str] | Iterable[str]) -> dict[str, Present]:
        """Read the present of these runs; one of which there is nothing to say is not among the answers."""
        ids = list(runs)
        if not ids:
            return {}
        found: dict[str, Present] = {}
        read = await self._glance(rows, "present", ids=to_json(ids), kinds=_KINDS, now=self.clock.now())
        for part, run, place, kind, key, data, at in read:
            here = found.setdefault(run, Present())
            if part == 0:
                here.last_sign = at
            elif part == 1:
                here.calls = Told(at, place, [OpenBody(*call) for call in json.loads(data)])
            elif part == 2:
                here.events.append(Event(place, kind, key, json.loads(data) if data else {}, at=at, run=run))
            elif part == 3:
                here.stops.append((place, kind))
            else:
                here.fork = kind, place, json.loads(data).get("by") if data else None
        return found
