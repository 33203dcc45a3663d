"""Identity: a call's key is the path of asyncio tasks that leads to it, its name, and how often that name came before.

`summarise_all#0/summarise#2` is the third `summarise` in the first task `summarise_all` of the root. Each task is
sequential code, so it has an order of its own that no timing can change; a key is taken when the verb is called, before
anything is awaited. `scope(name)` pins a path, leaving out the private task names of a framework around it.

A checkpoint opens a new era: counters start again, and keys, seeds and idempotency keys carry its number.

A fork has its past from another run, and that past was made under the other's identity. So it begins as that run, by its uid and
its name, and becomes itself where its history says so (`run.forked`): live and on every replay at the same place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.words.model import RunRow


class Identity:
    """The names and numbers that one attempt has given out. The same code gets the same ones on every replay."""

    __slots__ = ("_base", "_calls", "_counters", "_tasks", "_uid", "era", "names", "open_scopes", "salts")

    def __init__(self, run: RunRow, was: Iterable[Any] | None = None) -> None:
        self._uid = run.uid
        # Of the run, the one that started it and the one above all, as its code is told; `was`: those of a fork's past.
        self.names: tuple[Any, ...] = (run.id, run.parent_id, run.root_id) if was is None else tuple(was)
        self.salts: Mapping[str, int] = {}  # calls that a retry is to make as if they had never been made
        self._base = int(run.uid[:8], 16) << 20  # of what tasks and calls hash by
        self.era = self._tasks = self._calls = 0
        self._counters: dict[str, int] = {}
        self.open_scopes: dict[str, None] = {}  # no set: the garbage collector leaves this alone

    def nth(self, place: str) -> int:
        """Count a place: returns how often it was named before."""
        nth = self._counters.get(place, 0)
        self._counters[place] = nth + 1
        return nth

    def key(self, path: str, label: str) -> str:
        """The next key for this label; one counter per path and label in a run."""
        place = f"{path}/{label}" if path else label
        nth = self._counters.get(place, 0)
        self._counters[place] = nth + 1
        return f"@{self.era}/{place}#{nth}" if self.era else f"{place}#{nth}"

    def coming(self, path: str, label: str) -> str:
        """The key that `key` would give next."""
        place = f"{path}/{label}" if path else label
        return f"{self.prefix}{place}#{self._counters.get(place, 0)}"

    def next_task(self) -> int:
        """The number of the next task."""
        self._tasks += 1
        return self._base + self._tasks

    def next_call(self) -> int:
        """The number of the next call."""
        self._calls += 1
        return self._base + self._calls

    def become(self, uid: str, names: Iterable[Any]) -> None:
        """Go on as another run: what is derived from here on is its own. The order of sets stays as it was."""
        self._uid, self.names = uid, tuple(names)

    def begin_anew(self, salts: Mapping[str, int]) -> None:
        """Have these calls get other idempotency keys, and other children, than the first time."""
        self.salts = salts

    def derived(self, label: str) -> str:
        """A hex string that only this run and label have."""
        return hashlib.sha256(f"{self._uid}\0{label}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def idempotency_key(self, key: str, digest: str) -> str:
        """A call's place and its input: after a retry of the run another call may come to stand in that place."""
        salt = self.salts.get(key)
        return f"hf_{self.derived(f'{key}:{digest}' if salt is None else f'{key}:{digest}:{salt}')}"

    def open(self, path: str) -> None:
        """Enter a named scope."""
        if path in self.open_scopes:
            raise HoldfastError(
                f"scope {path!r} is open already; two blocks with one name at the same time would mix up their calls. "
                "Give each its own name, such as the tool call's id"
            )
        self.open_scopes[path] = None

    def close(self, path: str) -> None:
        """Leave a named scope."""
        self.open_scopes.pop(path, None)

    # Eras, and going on from a record without making the calls again

    @property
    def prefix(self) -> str:
        """The text with which keys of this era begin."""
        return f"@{self.era}/" if self.era else ""

    def enter_era(self, era: int) -> None:
        """Keys and the order of sets start again, live and resumed alike: only the root is there, and no call is open."""
        self.era, self._tasks, self._calls = era, 1, 0
        self._counters.clear()

    def count(self, keys: Iterable[str]) -> None:
        """Move the counters on as if the calls of these keys had been made."""
        for key in keys:
            place, _, number = key.removeprefix(self.prefix).rpartition("#")
            self._counters[place] = max(self._counters.get(place, 0), int(number) + 1)

    def rename(self, old: str, new: str) -> None:
        """A task has another path from now on, and its places move with it."""
        for place in [place for place in self._counters if place.startswith(f"{old}/")]:
            self._counters[new + place.removeprefix(old)] = self._counters.pop(place)
        label, _, number = new.rpartition("#")
        self._counters[label] = max(self._counters.get(label, 0), int(number) + 1)
