"""Values that are the same on every replay, and facts about where code is: no write, no wait."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, overload

from holdfast.errors import BadArguments, NotInRun
from holdfast.runtime import Called, RunFacts, StepContext, current, here
from holdfast.words.harmless import logger
from holdfast.words.loops import Loops, checked_loops
from holdfast.words.model import Recorded

_log = logger("holdfast")


def now() -> datetime:
    """The time of the last outcome this run has seen: the same on every replay, and never going back."""
    return current("now").now()


def uuid4() -> uuid.UUID:
    """A random UUID that is the same on every replay."""
    return uuid.UUID(hex=current("uuid4").seed("uuid4")[:32], version=4)


def rng(name: str = "") -> random.Random:
    """A random generator that gives the same numbers on every replay."""
    return random.Random(current("rng").seed(f"rng:{name}"))


def patched(patch: str) -> bool:
    """True when the run first reaches this line with the new code, and ever after; False when it had passed here before."""
    if not isinstance(patch, str) or not patch:
        raise BadArguments(f"{patch!r}: patched takes the name of a change, for example patched('two-reviewers')")
    return current("patched").patched(patch)


def scope(name: str) -> AbstractContextManager[None]:
    """Pin the identity of the calls inside to this name, whatever tasks and frames a framework puts around them."""
    return current("scope").scope(name)


def place(name: str) -> str:
    """For integrations: a name for what begins here, such as `branch#1/name#0`: unlike any other in the scope around it."""
    return current("place").place(name)


@overload
def note(text: str, /, **data: Any) -> Called[None]: ...
@overload
def note(*, text: str, **data: Any) -> Called[None]: ...
def note(*texts: str, **data: Any) -> Called[None]:
    """A line in the run's history, `note("asked again", times=2)`, with fields of any name; outside a run it goes to the log."""
    if len(texts) != 1 and (texts or "text" not in data):
        raise BadArguments('note takes one text, and fields by name: note("asked again", times=2)')
    text = texts[0] if texts else data.pop("text")
    if not isinstance(text, str):
        raise BadArguments(f"note({text!r}): give a text")
    place = here()
    if place is None or (isinstance(place, StepContext) and place.run is None):
        return _logged(text, data)
    return current("note").note(text, data)


async def _logged(text: str, data: dict[str, Any]) -> None:
    _log.info("%s%s", text, f" {data}" if data else "")


def this_run() -> RunFacts:
    """The run this code belongs to, in agents and in steps."""
    place = here()
    facts = None if place is None else place.run if isinstance(place, StepContext) else place.facts
    if facts is None:
        raise NotInRun("this_run() works only inside a running agent or one of its steps")
    return facts


def this_step() -> StepContext:
    """The step this code belongs to: its key, idempotency key, attempt, and whether it may have run before (`again`)."""
    place = here()
    if not isinstance(place, StepContext):
        raise NotInRun("this_step() works only inside the body of a step")
    return place


def connection() -> Any:
    """The database connection of the step's transaction: what is written through it is committed with the step's record.

    An `apsw.Connection` when the store is a SQLite file, an `asyncpg.Connection` when it is PostgreSQL.
    """
    place = here()
    found = place.connection if isinstance(place, StepContext) else None
    if found is None:
        where = f"the step at {place.key!r} has none" if isinstance(place, StepContext) else "there is none here"
        raise NotInRun(f"connection() is that of a step's transaction, and {where}; declare it @step(transaction=True)")
    return found


def idempotency_key() -> str:
    """The same string for every attempt of this call, in every process, for ever; different for every other call."""
    place = here()
    if not isinstance(place, StepContext):
        raise NotInRun("idempotency_key() works only inside the body of a step")
    return place.idempotency_key


# For integrations that keep in their records all they need: `ahead` and `skip` go on from them without replaying each call.
#
# What is skipped does not run again, on this replay or any later one, so it may have changed nothing in memory but what the
# integration rebuilds from the records.


def task_label() -> str:
    """The name of the task that runs, among those beside it: what `skip` needs to know of the place that it goes to."""
    return current("task_label").label


def ahead(names: str) -> Iterator[Recorded]:
    """The completed steps that the journal holds next, in scopes whose names begin so; nothing when the run is live.

    They end before the first outcome that skipped code may have used otherwise: what came from outside, what is in these
    scopes and is no completed step, and what belongs to the task around this one.
    """
    return current("ahead").ahead(names)


def skip(records: Sequence[Recorded], task: str) -> Called[None]:
    """Pass over the first of what is ahead. From here on this task has the name that it had when it got so far."""
    if not records:
        raise BadArguments("skip(): there is nothing to pass over; give it one or more of the records that are ahead")
    return current("skip").skip([record.key for record in records], task)


# `watch_loops`: for integrations, which know that what an agent does next is up to a model.


def watch_loops(loops: Loops) -> None:
    """Look for loops in the steps of this run from here on, unless its agent says itself what a loop is (`@agent(loops=)`)."""
    if checked_loops(loops) is None:
        raise BadArguments("watch_loops takes Loops(), or Loops(same=5, cycle=3)")
    current("watch_loops").watch(loops)
