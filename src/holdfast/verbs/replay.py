"""Values that are the same on every replay, and facts about where code is: no write, no wait."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, overload

from holdfast.errors import BadArguments, NotInRun
from holdfast.runtime import Called, Note, RunFacts, Skip, StepContext, current, here
from holdfast.words.harmless import logger
from holdfast.words.loops import Loops, checked_loops
from holdfast.words.model import Recorded

_log = logger("holdfast")


def now() -> datetime:
    """Tell the time of the last outcome this run has seen: the same on every replay, and never going back.

    Example:
        ```python
        today = holdfast.now().date()
        ```
    """
    return current("now").now()


def uuid4() -> uuid.UUID:
    """Make a random UUID that is the same on every replay.

    Example:
        ```python
        reference = str(holdfast.uuid4())
        ```
    """
    return uuid.UUID(hex=current("uuid4").seed("uuid4")[:32], version=4)


def rng(name: str = "") -> random.Random:
    """Make a random generator that gives the same numbers on every replay.

    Example:
        ```python
        dice = holdfast.rng("dice").randint(1, 6)
        ```
    """
    return random.Random(current("rng").seed(f"rng:{name}"))


def patched(patch: str) -> bool:
    """Tell which side of a change this run takes: True with the new code, False if it had passed this line before.

    The answer stays for the run.

    Raises:
        BadArguments: The name of the change is empty.

    Example:
        ```python
        if holdfast.patched("two-searches"):
            await search("more otters")
        ```
    """
    if not isinstance(patch, str) or not patch:
        raise BadArguments(f"{patch!r}: patched takes the name of a change, for example patched('two-reviewers')")
    return current("patched").patched(patch)


def scope(name: str) -> AbstractContextManager[None]:
    """Pin the identity of the calls inside to this name, whatever tasks and frames a framework puts around them.

    Example:
        ```python
        with holdfast.scope("tool:call-7"):
            await search("otters")
        ```
    """
    return current("scope").scope(name)


def place(name: str) -> str:
    """Name what begins here, such as `branch#1/name#0`, unlike any other name in the scope around it. For integrations.

    Example:
        ```python
        name = holdfast.place("request")
        ```
    """
    return current("place").place(name)


@overload
def note(text: str, /, **data: Any) -> Called[None]: ...
@overload
def note(*, text: str, **data: Any) -> Called[None]: ...
def note(*texts: str, **data: Any) -> Called[None]:
    """Write a line into the run's history, with fields of any name; outside a run it goes to the log.

    Raises:
        BadArguments: There is no text.

    Example:
        ```python
        await holdfast.note("asked again", times=2)
        ```
    """
    if len(texts) != 1 and (texts or "text" not in data):
        raise BadArguments('note takes one text, and fields by name: note("asked again", times=2)')
    text = texts[0] if texts else data.pop("text")
    if not isinstance(text, str):
        raise BadArguments(f"note({text!r}): give a text")
    place = here()
    if place is None or (isinstance(place, StepContext) and place.run is None):
        return _logged(text, data)
    return current("note").call(Note(text, data))


async def _logged(text: str, data: dict[str, Any]) -> None:
    _log.info("%s%s", text, f" {data}" if data else "")


def this_run() -> RunFacts:
    """Tell about the run this code belongs to: `id`, `agent`, `labels`, `parent`, `root`, `replaying`. In agents and steps.

    Raises:
        NotInRun: It was called outside a run.

    Example:
        ```python
        name = holdfast.this_run().id
        ```
    """
    place = here()
    facts = None if place is None else place.run if isinstance(place, StepContext) else place.facts
    if facts is None:
        raise NotInRun("this_run() works only inside a running agent or one of its steps")
    return facts


def this_step() -> StepContext:
    """Tell about the step this code belongs to: `key`, `attempt`, `idempotency_key`, and `again` if it may have run before.

    Raises:
        NotInRun: It was called outside the body of a step.

    Example:
        ```python
        if holdfast.this_step().again:
            print("an earlier attempt may have done it")
        ```
    """
    place = here()
    if not isinstance(place, StepContext):
        raise NotInRun("this_step() works only inside the body of a step")
    return place


def connection() -> Any:
    """Give the body of a transactional step its database connection.

    What is written through it is committed with the step's record. It is an `apsw.Connection` when the store is a SQLite
    file, and an `asyncpg.Connection` when it is PostgreSQL.

    Raises:
        NotInRun: The code is in no step with `transaction=True`.

    Example:
        ```python
        db = holdfast.connection()
        db.execute("CREATE TABLE IF NOT EXISTS mails (address TEXT)")
        db.execute("INSERT INTO mails VALUES (?)", ("ana@example.org",))
        ```
    """
    place = here()
    found = place.connection if isinstance(place, StepContext) else None
    if found is None:
        where = f"the step at {place.key!r} has none" if isinstance(place, StepContext) else "there is none here"
        raise NotInRun(f"connection() is that of a step's transaction, and {where}; declare it @step(transaction=True)")
    return found


def idempotency_key() -> str:
    """Give the body of a step its key: the same for every attempt of this call, in every process, different for every other call.

    Raises:
        NotInRun: It was called outside the body of a step.

    Example:
        ```python
        headers = {"Idempotency-Key": holdfast.idempotency_key()}
        ```
    """
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

    They end before the first outcome that skipped code may have used otherwise: an arrival from outside, an outcome in
    these scopes that is no completed step, or an outcome of the task around this one.
    """
    return current("ahead").ahead(names)


def skip(records: Sequence[Recorded], task: str) -> Called[None]:
    """Pass over the first of what is ahead. From here on this task has the name that it had when it got so far."""
    if not records:
        raise BadArguments("skip(): there is nothing to pass over; give it one or more of the records that are ahead")
    return current("skip").call(Skip([record.key for record in records], task))


# `watch_loops`: for integrations, which know that what an agent does next is up to a model.


def watch_loops(loops: Loops) -> None:
    """Look for loops in the steps of this run from here on, unless its agent declares `loops=` itself. For integrations.

    Raises:
        BadArguments: It was given something other than `Loops`.

    Example:
        ```python
        holdfast.watch_loops(holdfast.Loops(same=5))
        ```
    """
    if checked_loops(loops) is None:
        raise BadArguments("watch_loops takes Loops(), or Loops(same=5, cycle=3)")
    current("watch_loops").watch(loops)
