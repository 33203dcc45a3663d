"""Loops: what of a run's last calls shows that it goes round in circles, and what is shown to people. No I/O.

A tail holds the steps of one place of a run, in the order in which their outcomes came: one asyncio task, or the
scopes that an integration opens there (`place:call`, of which the colon begins what tells the calls apart). Two calls are
the same if their names, inputs and outcomes are. So code that polls until something changes is not in a loop when it does. A call
of a model, which is a step that has spent tokens, is passed over unless just that was asked before: what it is asked
grows with every turn, and would hide that it brings about the same actions again and again.

Only a call that would go on with the pattern is one too many: `Tail.next` asks before it begins.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.errors import BadArguments
from holdfast.words.people import checked_names

LONGEST_CYCLE: Final = 8
_MOST: Final = 100
_PLACES: Final = 64  # that are remembered; of more, the ones silent for longest are forgotten


@dataclass(frozen=True, slots=True)
class Loops:
    """The rule by which a run counts as being in a loop, so that a person is asked before it goes on.

    Attributes:
        same: One call with the same input and outcome, so many times in a row; None: not looked for.
        cycle: A cycle of up to eight calls, so many times; None: not looked for.
        to: The people who are asked; anybody if there is none.

    Raises:
        BadArguments: A number cannot be used.

    Example:
        ```python
        @holdfast.agent(loops=holdfast.Loops(same=5, cycle=3))
        async def wander(topic: str) -> list[str]:
            return await search(topic)
        ```
    """

    same: int | None = 5
    cycle: int | None = 3
    to: str | Sequence[str] = ()  # whom to ask; nobody in particular: anybody

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", tuple(checked_names(self.to)))
        for name, value in (("same", self.same), ("cycle", self.cycle)):
            if value is not None and (type(value) is not int or not 2 <= value <= _MOST):
                raise BadArguments(f"Loops({name}={value!r}): use a whole number from 2 to {_MOST}, or None")

    @property
    def tail(self) -> int:
        """The number of calls that must be remembered."""
        return max(self.same or 0, (self.cycle or 0) * LONGEST_CYCLE)


def checked_loops(loops: object) -> Loops | None:
    """Check the option `loops=`; `BadArguments` if it is something else."""
    if loops is not None and not isinstance(loops, Loops):
        raise BadArguments(f"loops={loops!r}: use Loops(), or Loops(same=5, cycle=3)")
    return loops


class Step(NamedTuple):
    """A call and its outcome, as far as they are remembered."""

    name: str
    input: str  # its digest
    outcome: int  # a hash of it
    shown: str  # the call and its outcome for people
    seen: int  # which outcome of the run it was

    def is_like(self, other: Step) -> bool:
        return self[:3] == other[:3]


class Loop(NamedTuple):
    """A pattern, and how often it came."""

    steps: list[Step]
    times: int

    def __str__(self) -> str:
        return f"{' -> '.join(step.name for step in self.steps)}, {self.times} times with the same outcome"


class Tail:
    """The last steps of one run, by place. It grows neither with them nor with the places."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self._places: OrderedDict[str, deque[Step]] = OrderedDict()

    def add(self, place: str, step: Step, asked: int, *, model: bool) -> None:
        """An outcome came; `asked` is how many had come when its call was made."""
        tail = self._places.setdefault(place, deque(maxlen=self.loops.tail))
        self._places.move_to_end(place)
        if len(self._places) > _PLACES:
            self._places.popitem(last=False)
        if model and not any((each.name, each.input) == (step.name, step.input) for each in tail):
            return
        if tail and tail[-1].is_like(step) and asked < tail[-1].seen:
            return  # they were made together: that is no repetition
        tail.append(step)

    def forget(self, place: str) -> None:
        """Counting begins anew: a person has looked at it."""
        self._places.pop(place, None)

    def next(self, place: str, name: str, digest: str) -> Loop | None:
        """The loop that this call would go on with, if there is one."""
        tail = self._places.get(place)
        if not tail:
            return None
        steps = list(tail)
        for length in range(1, LONGEST_CYCLE + 1):
            times = self.loops.same if length == 1 else self.loops.cycle
            if times is None or len(steps) < length * times:
                continue
            last = steps[-length:]
            if (last[0].name, last[0].input) != (name, digest):
                continue
            before = steps[-length * times :]
            if all(step.is_like(last[at % length]) for at, step in enumerate(before)):
                return Loop(last, times)
        return None


def place_of(key: str) -> str:
    """Return the place in which a call was made, by its key."""
    return key.rpartition("/")[0].partition(":")[0]
