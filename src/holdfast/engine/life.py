"""The life of one attempt at a run: replaying, live, leaving. Look here for how a run comes to act, and how it leaves memory.

Replay reads what earlier attempts recorded, and does nothing. Once all of it is through, the run goes live (`go_live`): from
then on bodies run and events are written.

Leaving has one door, `close`, and is for good: nothing is recorded any more, results and exceptions are ignored, every task is
unwound and every verb refuses. A run is parked, released, paused, lost to another worker and ended that way alike.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Protocol

from holdfast.engine.journal import Divergence
from holdfast.store.appends import Transition
from holdfast.words.model import Event, RunRow


class Living(Protocol):
    """The owner of a life: one attempt at a run."""

    def went_live(self) -> None:
        """Everything recorded is through."""

    def let_go(self) -> None:
        """The run leaves memory."""


class Life:
    """The stage that one attempt at a run has reached, and how it left memory."""

    __slots__ = (
        "_owner", "closing", "ended", "finishing", "found", "left", "live", "loop", "misfit", "outside", "run",
        "unfit",
    )  # fmt: skip

    def __init__(
        self, run: RunRow, loop: asyncio.AbstractEventLoop, outside: contextvars.Context, owner: Living
    ) -> None:
        self.run, self.loop, self.outside, self._owner = run, loop, outside, owner
        self.live = False
        self.finishing = False  # its end is recorded, and on its way to the store
        self.closing: str | None = None  # how it leaves, once it does
        self.left: Transition | None = None  # how it was parked, paused or ended
        self.unfit = ""  # why its records do not fit this code
        self.misfit: Divergence | None = None  # the record that does not, and what was found in its place
        self.found = ""
        self.ended: asyncio.Future[str] = loop.create_future()

    def go_live(self) -> None:
        """Everything recorded is through: from here on the run acts."""
        self.live = True
        self._owner.went_live()

    def leaves(self, transition: Transition) -> Transition:
        """Remember how the run is being given back, paused or ended."""
        self.left = transition
        return transition

    def finish(self, transition: Transition) -> Transition:
        """Finish: the agent has ended, or its time is over."""
        self.finishing = True
        return self.leaves(transition)

    def diverges(self, record: Divergence, found: str) -> None:
        """Remember which record does not fit the code, and what the code does in its place."""
        if not self.closing:
            self.misfit, self.found = record, found

    def does_not_fit(self, reason: str, event: Event | None = None) -> None:
        """Leave, because a record does not fit the types of this code: perhaps it fits the types of another worker.

        The run leaves without a write to its journal, and the host gives it back, or pauses it if no worker is left.
        """
        if not self.closing:
            self.unfit, self.misfit = reason, None if event is None else Divergence.of(event)
            self.close("unfit")

    def close(self, outcome: str) -> None:
        """Leave memory, for good: 'ended', 'parked', 'released', 'paused', 'unfit' or 'lost'."""
        if self.closing:
            return
        self.closing = outcome
        self._owner.let_go()
        if not self.ended.done():
            self.ended.set_result(outcome)
