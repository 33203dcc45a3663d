"""How the attempts of a step went: what the journal knows of those before, and how one ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.words.model import Event


@dataclass(slots=True)
class Past:
    """What the journal knows of the attempts so far."""

    attempt: int = 0
    failures: int = 0
    due: int | None = None
    in_doubt: bool = False
    started: Event | None = None  # the last start of a body that was recorded
    probes: int = 0  # of this attempt, that failed
    undone: int = 0  # attempts in a row that the database undid
    turn: int | None = None  # the place of the turn of the step's rate that this attempt has reserved
    given: Event | None = None  # has the arguments of the call, as far as its digest does not tell them
    question: str | None = None
    loop: bool = False  # the question is whether to go on with a loop

    @classmethod
    def of(cls, events: Sequence[Event]) -> Past:
        past = cls()
        for event in events:
            if past.given is None and _gives(event):
                past.given = event
            if event.kind == "step.started":
                past.attempt, past.in_doubt, past.started = event.data["attempt"], True, event
                past.question, past.loop = None, False
                past.probes, past.due, past.turn = 0, None, None
            elif event.kind == "step.retrying":
                past.attempt, past.failures = event.data["attempt"], event.data["failures"]
                past.probes, past.undone = event.data.get("probes", 0), event.data.get("undone", 0)
                past.due, past.in_doubt, past.turn = event.at + event.data["wait_ms"], past.probes > 0, None
            elif event.kind == "step.held":
                past.turn = event.data.get("place", event.data["at"] * 1000)
            elif event.kind == "approval.asked":
                past.question, past.loop = event.data["approval"], event.data["kind"] == "loop"
            elif event.kind == "approval.withdrawn":
                past.question, past.loop = None, False
        return past


def _gives(event: Event) -> bool:
    has_text = event.value is not None or event.blob is not None
    return has_text and (event.kind.startswith("step.") or bool(event.data.get("given")))


@dataclass(slots=True)
class Ended:
    """How an attempt ended. `doubt`: the body may or may not have had its effect. `final`: whatever `retry` says."""

    value: Any = None
    error: Exception | None = None
    doubt: bool = False
    final: bool = False
    pauses: str | None = None  # the rate that nobody has a turn of now, because of this failure


RUN_IT: Final = Ended()
