"""The fast way through a record: what the journal holds next, and passing over it without making the calls again.

An integration that keeps in its records all it needs can rebuild its state from them, and then it need not ask for each
outcome in turn. Identity must come out the same, or the next replay would not recognise what is recorded from here on: so
counters move on as if the calls had been made, and the task takes the name that it had when it got there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from holdfast.engine.attempt import Call, Site
from holdfast.runtime import Skip
from holdfast.words.model import KINDS, Event, Recorded


def ahead(site: Site, names: str) -> Iterator[Recorded]:
    """The completed steps in scopes with names that begin so, up to the first outcome that could mean something else.

    That is whatever came from outside, any other outcome of one of these scopes, and any of the task around this one: code
    that is passed over may have used it. Outcomes of other tasks are not counted.
    """
    attempt = site.attempt
    if attempt.life.live:
        return
    era = attempt.identity.prefix
    ours = f"{era}{site.named}/{names}" if site.named else f"{era}{names}"
    home = f"{era}{_home(site)}"
    start = attempt.journal.delivered - attempt.journal.turn
    for turn in range(attempt.journal.turn, len(attempt.journal.outcomes)):
        event = attempt.journal.outcomes[turn]
        key = event.key or ""
        if key.startswith(ours) and event.kind == "step.completed":
            asked, text = event.data["asked"], attempt.pen.text_of(event)
            yield Recorded(key, key.removeprefix(ours), event.data["name"], asked, start + turn, text)
        elif KINDS[event.kind].arrives or key.startswith((ours, home)):
            return


def _home(site: Site) -> str:
    """Return the prefix that the paths of the tasks beside this one share."""
    parent, slash, _ = site.path.rpartition("/")
    return f"{parent}{slash}"


class SkipCall(Call):
    """Takes outcomes instead of the calls that were made the first time. It wakes its task with the last one."""

    of = "step"
    __slots__ = ("_keys", "_left", "_site", "_task")

    def __init__(self, site: Site, request: Skip) -> None:
        super().__init__(site.attempt, request.keys[-1], "skip", "", "")
        self._site, self._keys, self._task = site, request.keys, request.task

    def wait(self) -> Generator[Any, Any, Any]:
        """Pass over these outcomes, which are next; from here on this task is the one with that name."""
        attempt, site = self.attempt, self._site
        yield from attempt.enter(self)
        attempt.identity.count(self._keys)
        new = _home(site) + self._task
        if new != site.path:
            site.rename(new)
        self._take()
        yield from attempt.rest(self)

    def _take(self) -> None:
        self._left = set(self._keys)
        for key in self._keys:
            self.attempt.journal.passes(key)
            self.attempt.calls[key] = self
        self.attempt.tasks.asked()

    def settle(self, event: Event) -> None:
        """Take an outcome and all that follow at once: no task stirs before the last, so the run need not settle."""
        attempt, journal = self.attempt, self.attempt.journal
        self._left.discard(event.key or "")
        attempt.saw_step(event)
        while self._left and (following := journal.outcomes[journal.turn + 1]).key in self._left:
            assert following.key is not None
            self._left.discard(following.key)
            attempt.passed(following)
            attempt.saw_step(following)
        if not self._left:
            super().settle(event)
