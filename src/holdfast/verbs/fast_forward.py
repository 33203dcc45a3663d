"""For integrations that keep in their records all they need: `ahead` and `skip` go on from them without replaying each call.

What is skipped does not run again, on this replay or any later one, so it may have changed nothing in memory but what the
integration rebuilds from the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.errors import BadArguments
from holdfast.runtime import Called, current
from holdfast.words.model import Recorded


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
