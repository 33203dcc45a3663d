"""Outlines: a long history folded to groups of calls, with how many ended when. Events in, groups out; no database and no loop.

Look here for what becomes of a hundred thousand calls in a picture. `Fold` takes events in order and keeps a few numbers of each
call that has ended, in columns, and the events of calls that are open; so it can go on where it was when the history has grown.
What a retry has taken out is not in it: a history that was retried is folded anew.

A group is a name in one place: the calls `summarise#0`, `summarise#1` of one task are the group `summarise`. A place is the path of
tasks; tasks of one name beside each other are groups of their own (`reader#3/`) up to a number, and one group (`reader/`) above it.
The eras of checkpoints are no places: a turn is the same turn in each of them.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.words.calls import Call, Passing
from holdfast.words.model import Event
from holdfast.words.spent import NANOS

_LAST: Final = re.compile(r"(.*)#(\d{1,15})", re.DOTALL)
_ERA: Final = re.compile(r"@\d+")
_APART: Final = 50  # tasks of one name that are told apart
_GROUPS: Final = 300
_SAMPLES: Final = 5
_OTHERS: Final = "…"


@dataclass(slots=True)
class Sample:
    """One call of a group that is worth a look."""

    key: str
    seq: int
    ms: int
    attempts: int


@dataclass(slots=True)
class Grouped:
    """Calls of one name in one place."""

    key: str  # of calls `task#1/name`, of tasks `task#1/` or `task/`; empty: what is left over
    name: str
    kind: str
    density: list[int]
    count: int = 0
    began: int | None = None
    ended: int | None = None  # when the last of them ended, if all have
    failed: int = 0
    running: int = 0
    attempts: int = 0
    nanos: int = 0
    failures: set[int] = field(default_factory=set)  # pieces of the time in which some failed
    slowest: list[tuple[int, int]] = field(default_factory=list)  # milliseconds and the number of the call
    again: list[tuple[int, int]] = field(default_factory=list)  # attempts and the number of the call


class Fold:
    """The calls of a history so far."""

    def __init__(self) -> None:
        self.next_seq = 0
        self._passing = Passing()
        self._scopes: dict[str, int] = {}
        self._names: dict[tuple[str, str], int] = {}  # with what sort of call it is
        # A row for each call that has ended, in the order in which they ended.
        self._scope, self._name, self._nth = array("l"), array("l"), array("q")
        self._seq, self._began, self._ended = array("q"), array("q"), array("q")
        self._attempts, self._failed, self._nanos = array("l"), array("b"), array("q")

    def __len__(self) -> int:
        return len(self._seq)

    @property
    def calls(self) -> int:
        """Count the calls, open calls too."""
        return len(self) + len(self._passing.open.made)

    def add(self, events: Sequence[Event]) -> None:
        """Take in the next events, which are in order."""
        for call in self._passing.ended(events):
            self._end(call)
        self.next_seq = events[-1].seq + 1 if events else self.next_seq

    def skip(self, to: int) -> None:
        """Note that there is nothing more before a place."""
        self.next_seq = max(self.next_seq, to)

    def _end(self, call: Call) -> None:
        scope, name, nth = self._numbers(call)
        self._scope.append(scope)
        self._name.append(name)
        self._nth.append(nth)
        self._seq.append(call.seq)
        self._began.append(call.began)
        self._ended.append(call.ended or call.began)
        self._attempts.append(min(call.attempts, 1 << 30))
        self._failed.append(call.state == "failed")
        self._nanos.append(min(round(call.spent.usd * NANOS), 1 << 62))

    def _numbers(self, call: Call) -> tuple[int, int, int]:
        """Number the place of a call and its name with its kind; and how often that name was called there before."""
        scope, name, nth = _parts(call.key)
        named = (name, _kind(call))
        return self._scopes.setdefault(scope, len(self._scopes)), self._names.setdefault(named, len(self._names)), nth

    # Looking

    def groups(self, first: int, last: int, buckets: int, under: str | None = None) -> list[Grouped]:
        """Group the calls below a place by the order of their beginnings; densities are of the time from `first` to `last`."""
        going_on = [(call, *self._numbers(call)[:2]) for call in self._passing.open.made]
        looked = tuple(part for part in (under or "").split("/") if part)
        at_calls, of_tasks = self._sorted(looked)
        span, made = max(last - first, 1), dict[str, Grouped]()
        by_name: dict[tuple[int, int], Grouped] = {}
        names = list(self._names)
        prefix = "".join(f"{part}/" for part in looked)

        def group_of(scope: int, name: int) -> Grouped | None:
            key = of_tasks.get(scope)
            if key is not None:
                task = key[len(prefix) : -1]
                return made.setdefault(key, Grouped(key, task, "branch", [0] * buckets))
            if scope not in at_calls:
                return None
            called, kind = names[name]
            return made.setdefault(f"{kind} {called}", Grouped(prefix + called, called, kind, [0] * buckets))

        for row in range(len(self)):
            place = (self._scope[row], self._name[row])
            group = by_name.get(place)
            if group is None:
                group = group_of(*place)
                if group is None:
                    continue
                by_name[place] = group
            ended = self._ended[row]
            bucket = min(max((ended - first) * buckets // span, 0), buckets - 1)
            group.density[bucket] += 1
            failed = self._failed[row]
            if failed:
                group.failed += 1
                group.failures.add(bucket)
            _count(group, self._began[row], ended, self._attempts[row], self._nanos[row])
            _keep(group.slowest, (ended - self._began[row], row))
            if self._attempts[row] > 1:
                _keep(group.again, (self._attempts[row], row))
        for call, scope, name in going_on:
            group = group_of(scope, name)
            if group is not None:
                group.running += 1
                _count(group, call.began, None, call.attempts, round(call.spent.usd * NANOS))
        for group in made.values():
            group.ended = None if group.running else group.ended
        return _fewer(sorted(made.values(), key=lambda group: group.began or 0), buckets)

    def samples(self, rows: Iterable[int]) -> dict[int, Sample]:
        """Tell of single calls, by their numbers."""
        scopes, names, made = list(self._scopes), list(self._names), dict[int, Sample]()
        for row in rows:
            nth = self._nth[row]
            key = scopes[self._scope[row]] + names[self._name[row]][0] + (f"#{nth}" if nth >= 0 else "")
            made[row] = Sample(key, self._seq[row], self._ended[row] - self._began[row], self._attempts[row])
        return made

    def _sorted(self, looked: Sequence[str]) -> tuple[set[int], dict[int, str]]:
        """Tell which scopes hold calls of this place, and of which tasks of it the others are."""
        here, inside = set[int](), dict[int, str]()
        tasks: dict[str, set[str]] = {}
        for scope, number in self._scopes.items():
            parts = [part for part in scope.split("/") if part and not _ERA.fullmatch(part)]
            if len(parts) < len(looked) or any(
                want not in (part, _named(part)) for want, part in zip(looked, parts, strict=False)
            ):
                continue
            if len(parts) == len(looked):
                here.add(number)
            else:
                inside[number] = parts[len(looked)]
                tasks.setdefault(_named(parts[len(looked)]), set()).add(parts[len(looked)])
        prefix = "".join(f"{part}/" for part in looked)
        apart = {name for name, found in tasks.items() if len(found) <= _APART}
        keys = {
            number: f"{prefix}{task if _named(task) in apart else _named(task)}/" for number, task in inside.items()
        }
        return here, keys


def _parts(key: str) -> tuple[str, str, int]:
    """Split a key: the path with its last slash, the name, and the count, which is -1 if there is none."""
    scope, slash, last = key.rpartition("/")
    counted = _LAST.fullmatch(last)
    return scope + slash, last if counted is None else counted[1], -1 if counted is None else int(counted[2])


def _named(part: str) -> str:
    counted = _LAST.fullmatch(part)
    return part if counted is None else counted[1]


def _kind(call: Call) -> str:
    return "model" if call.sort == "step" and call.is_model else call.sort


def _count(group: Grouped, began: int, ended: int | None, attempts: int, nanos: int) -> None:
    group.count += 1
    group.began = began if group.began is None else min(group.began, began)
    if ended is not None:
        group.ended = ended if group.ended is None else max(group.ended, ended)
    group.attempts += attempts
    group.nanos += nanos


def _keep(most: list[tuple[int, int]], one: tuple[int, int]) -> None:
    if len(most) < _SAMPLES:
        heapq.heappush(most, one)
    elif one > most[0]:
        heapq.heapreplace(most, one)


def _fewer(found: list[Grouped], buckets: int) -> list[Grouped]:
    """Put the smallest of very many groups together."""
    if len(found) <= _GROUPS:
        return found
    kept = {id(group) for group in sorted(found, key=lambda group: -group.count)[: _GROUPS - 1]}
    rest = Grouped("", _OTHERS, "others", [0] * buckets)
    for group in found:
        if id(group) in kept:
            continue
        rest.count += group.count
        rest.began = group.began if rest.began is None else min(rest.began, group.began or rest.began)
        rest.ended = max(rest.ended or 0, group.ended or 0) or None
        rest.failed, rest.running = rest.failed + group.failed, rest.running + group.running
        rest.attempts, rest.nanos = rest.attempts + group.attempts, rest.nanos + group.nanos
        rest.failures |= group.failures
        for bucket, many in enumerate(group.density):
            rest.density[bucket] += many
        for one in group.slowest:
            _keep(rest.slowest, one)
        for one in group.again:
            _keep(rest.again, one)
    rest.ended = None if rest.running else rest.ended
    return [*(group for group in found if id(group) in kept), rest]
