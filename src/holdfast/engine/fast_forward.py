"""Going on from a record without making the calls again: what the journal holds next, and passing over it.

An integration that keeps in its records all it needs can rebuild its state from them, and then it need not ask for each
outcome in turn. Identity must come out the same, or the next replay would not recognise what is recorded from here on: so
counters move on as if the calls had been made, and the task takes the name that it had when it got there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.engine.calls import Call
from holdfast.words.model import KINDS, Event, Recorded

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.identity import Scope


def ahead(scope: Scope, names: str) -> Iterator[Recorded]:
    """The completed steps in scopes with names that begin so, up to the first outcome that could mean something else.

    That is whatever came from outside, any other outcome of one of these scopes, and any of the task around this one: code
    that is passed over may have used it. Outcomes of other tasks are not counted.
    """
    execution = scope.execution
    if execution.live:
        return
    era = f"@{execution.era}/" if execution.era else ""
    ours = f"{era}{scope.named}/{names}" if scope.named else f"{era}{names}"
    home = f"{era}{_home(scope)}"
    start = execution.delivered - execution.journal.turn
    for turn in range(execution.journal.turn, len(execution.journal.outcomes)):
        event = execution.journal.outcomes[turn]
        key = event.key or ""
        if key.startswith(ours) and event.kind == "step.completed":
            asked, text = event.data["asked"], execution.text_of(event)
            yield Recorded(key, key.removeprefix(ours), event.data["name"], asked, start + turn, text)
        elif KINDS[event.kind].arrives or key.startswith((ours, home)):
            return


def _home(scope: Scope) -> str:
    """Where the tasks beside this one have their paths."""
    parent, slash, _ = scope.path.rpartition("/")
    return f"{parent}{slash}"


def skip(scope: Scope, keys: Sequence[str], task: str) -> Generator[Any, Any, None]:
    """Pass over these outcomes, which are next; from here on this task is the one with that name."""
    passing = Passing(scope.execution, keys[-1], "skip", "", "")
    yield from scope.execution.enter(passing)
    _count(scope.execution, keys)
    _rename(scope, task)
    passing.take(keys)
    yield from scope.execution.rest(passing)


class Passing(Call):
    """Takes outcomes in place of the calls that were made the first time. It wakes its task with the last one."""

    of = "step"
    __slots__ = ("_left",)

    def take(self, keys: Sequence[str]) -> None:
        self._left = set(keys)
        for key in keys:
            self.execution.journal.unclaimed.pop(key, None)
            self.execution.journal.unasked.pop(key, None)
            self.execution.calls[key] = self
        self.execution.gate.activity += 1

    def settle(self, event: Event) -> None:
        """Nobody stirs before the last one, so those that follow it at once need not wait for the run to settle."""
        execution, journal = self.execution, self.execution.journal
        self._left.discard(event.key or "")
        self._tell(event)
        while self._left and (following := journal.outcomes[journal.turn + 1]).key in self._left:
            assert following.key is not None
            journal.turn += 1
            self._left.discard(following.key)
            del execution.calls[following.key]
            execution._saw(following)
            self._tell(following)
        if not self._left:
            super().settle(event)

    def _tell(self, event: Event) -> None:
        """What a step tells when it is delivered: what is left of budgets, and that it was made."""
        execution, data = self.execution, event.data
        execution.means = data.get("left", execution.means)
        if execution.watch is not None:
            made = Call(execution, event.key or "", data["name"], data["digest"], data["input"])
            execution.watch.saw(made, event)


def _count(execution: Execution, keys: Iterable[str]) -> None:
    era = f"@{execution.era}/" if execution.era else ""
    for key in keys:
        place, _, number = key.removeprefix(era).rpartition("#")
        execution.counters[place] = max(execution.counters.get(place, 0), int(number) + 1)


def _rename(scope: Scope, task: str) -> None:
    old, counters = scope.path, scope.execution.counters
    new = _home(scope) + task
    if new == old:
        return
    scope.path = new
    for place in [place for place in counters if place.startswith(f"{old}/")]:
        counters[new + place.removeprefix(old)] = counters.pop(place)
    label, _, number = new.rpartition("#")
    counters[label] = max(counters.get(label, 0), int(number) + 1)
