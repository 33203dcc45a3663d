"""Requests to pause that hold a run of a cluster: which ones, after all that came. Look here when a run stays paused, or does not.

A family is many workflows. A request to pause or to go on is a signal to the run that was named, which passes it on to its open
children, and they to theirs. The cluster keeps the order of what people send to one run. It does not keep the order of what one run
sends to another. So below the named run the last signal does not decide. Each request to pause has a name, and a resume names the
requests that it undoes. A pause that comes behind the resume that names it does nothing. Whatever the order was, a run is held in
the end by the requests that nobody has undone.

A run decides so in its workflow, and a client decides the same from the history before a worker has taken it up (`history.asked`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.backends.temporal.records import State
from holdfast.words.model import Event

_MOST: Final = 100  # requests that are remembered because they were undone before they came


def is_stopping(state: State) -> bool:
    """Was the run asked to stop? It does not pause any more then."""
    if any(signal.kind == "run.cancelling" and signal.data for signal in state.signals):
        return True
    return any(
        event.kind == "run.cancelling" or (event.kind == "checkpoint" and event.data.get("cancelling"))
        for event in state.events
    )


def is_closing(state: State) -> bool:
    """Was the run asked to stop, and its agent not told yet? Nothing is decided in it meanwhile; tidying up may ask again."""
    return is_stopping(state) and not is_told(state.events)


def is_told(events: Iterable[Event]) -> bool:
    """Was the agent told that its run is to stop?"""
    return any(
        event.kind == "run.unwinding"
        or (event.kind == "checkpoint" and (event.data.get("cancelling") or {}).get("unwinding", False))
        for event in events
    )


def hold(state: State, request: Mapping[str, Any]) -> bool:
    """Count a request to pause; False: it came behind the resume that undid it."""
    name = request.get("request", "")
    if request.get("depth", 0) and name in state.called_off:
        state.called_off.remove(name)
        return False
    state.pauses.append(name)
    return True


def undo(state: State, resume: Mapping[str, Any]) -> list[str]:
    """Count a resume; returns the requests that it undoes: all there are, or those it names if a run above passed it on.

    A request that it names and that was not passed on to this run yet is remembered, because it will be.
    """
    if resume.get("direct", False):
        undone = [*state.pauses]
    else:
        named = resume["requests"]
        undone = [name for name in state.pauses if name in named]
        early = [name for name in named if not any(known.startswith(f"{name}:") for known in state.known)]
        state.called_off = [*state.called_off, *early][-_MOST:]
    state.pauses = [name for name in state.pauses if name not in undone]
    return undone


def forgive(state: State, undone: list[str]) -> None:
    """Let requests do nothing that the engine has not taken yet: it has left the run, and would find them when it takes it up."""
    for signal in state.signals:
        if signal.kind == "run.pausing" and signal.data.get("request", "") in undone:
            signal.data = {}


def is_held_by_request(state: State) -> bool:
    """Does a request hold the run, which is paused? Else the engine does, and only a resume of this very run lets it go on."""
    return bool(state.events) and state.events[-1].kind == "run.paused"
