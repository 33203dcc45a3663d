"""Overrides: replacements of parts of an agent by a framework's context variables, for as long as a block lasts.

Look here when a run uses what it was declared with although the caller had replaced it. A run does not begin in the context of
the call that starts it: any worker may carry it, and after a crash another process does. So an override around a `start`, or
around the call of a child, would not hold in the run. The testing kit carries it over, because there one process carries all
lives of a run; everywhere else the start is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from typing import Any, NamedTuple

from holdfast.errors import BadArguments


class Override(NamedTuple):
    """One part of one agent that is replaced here."""

    part: str
    agent: str
    variable: ContextVar[Any]
    value: Any


_finders: list[Callable[[], Iterable[Override]]] = []
_makers: list[Callable[[str, str | None, Any], Iterable[Override]]] = []
_namers: list[Callable[[], Iterable[str]]] = []


def find_with(finder: Callable[[], Iterable[Override]]) -> None:
    """Have this function tell which overrides of its framework hold in the context in which it is called."""
    _finders.append(finder)


def make_with(maker: Callable[[str, str | None, Any], Iterable[Override]], namer: Callable[[], Iterable[str]]) -> None:
    """Have functions make overrides of a framework, and name its agents.

    The maker takes a part, the name of an agent or None for all of them, and a value.
    """
    _makers.append(maker)
    _namers.append(namer)


def agents() -> list[str]:
    """List the names of the agents of frameworks in this process."""
    return sorted({name for namer in _namers for name in namer()})


def made(part: str, agent: str | None, value: Any) -> tuple[Override, ...]:
    """Make overrides that hold where they are entered; `BadArguments` if no framework here has such an agent."""
    found = tuple(override for maker in _makers for override in maker(part, agent, value))
    if not found:
        which = f"named {agent!r} " if agent is not None else ""
        listed = f"; there are: {', '.join(names)}" if (names := agents()) else ""
        raise BadArguments(
            f"there is no agent of a model framework {which}in this code whose {part} could be replaced{listed}"
        )
    return found


def active() -> tuple[Override, ...]:
    """The overrides that hold here."""
    return tuple(found for finder in _finders for found in finder()) if _finders else ()


def enter(overrides: Iterable[Override], context: Context) -> None:
    """Have these hold in a context."""
    for override in overrides:
        context.run(override.variable.set, override.value)


def check_seen(seen: Iterable[Override], what: str) -> None:
    """`BadArguments` if something is overridden here that `what`, which sees these overrides, would not see."""
    here = active()
    if not here:
        return
    known = {(override.variable, id(override.value)) for override in seen}
    unseen = [override for override in here if (override.variable, id(override.value)) not in known]
    if unseen:
        agent = unseen[0].agent
        parts = " and ".join(f"the {each.part}" for each in unseen if each.agent == agent)
        verb = "is" if parts.count("the ") == 1 else "are"
        raise BadArguments(
            f"{parts} of agent {agent!r} {verb} overridden here, but {what} does not see that: it is carried by a worker, "
            "perhaps in another process. Override inside the function marked @holdfast.agent, around the agent's own "
            "run(...); in tests start the run with `holdfast.testing.open(...)`, which carries overrides into its runs, or "
            "open the client inside the block"
        )
