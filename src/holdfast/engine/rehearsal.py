"""A run that is only tried: its code is replayed against its journal, and where it would act, it is over.

Look here for why a replay has no effects. Everything new is held back from the first moment, so that no call begins; and the
attempt is closed at its edge, where one that is carried would begin to act. The host of such an attempt performs nothing and its
store takes no write, so that neither depends on this module alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from holdfast.engine.attempt import Attempt
from holdfast.engine.execute import Loop, how_it_ended, load, start
from holdfast.engine.host import Host
from holdfast.engine.loop import running_frames, suspended_frames
from holdfast.runtime import AgentSpec
from holdfast.words.model import RunRow

# The tasks of a run where it stopped: the path of each, and its frames, the outermost first.
Stacks = list[tuple[str, list[FrameType]]]


@dataclass(slots=True)
class Tried:
    """The end of a replay: how far it came, and what did not fit."""

    how: str = "unsure"  # 'edge': all that is recorded is through; 'paused', 'unfit', or 'unsure': it waited too long
    seen: int = 0  # outcomes that the code has seen
    of: int = 0  # and how many there are
    reason: str = ""  # why it stopped before the edge
    key: str = ""  # the record that does not fit: its key, what it is,
    recorded: str = ""
    found: str = ""  # and what the code does in its place; empty if the value is what does not fit
    asks: str = ""  # the calls that the code has made and the journal does not have
    ended: bool = False  # the agent's code came to its end:
    value: Any = None
    error: BaseException | None = None


async def tried(
    host: Host,
    run: RunRow,
    spec: AgentSpec,
    *,
    limit_s: float | None,
    look: Callable[[Stacks], None],
    begins: Callable[[], None] = lambda: None,
) -> Tried:
    """Replay a run without effects; `look` is shown the frames of its tasks at the moment it stops.

    `begins` is called before the first line of the code.
    """
    made = Tried()
    attempt = await load(host, run, spec, _Trying(made, look))
    made.of, life = len(attempt.journal.outcomes), attempt.life
    attempt.bodies.hold("rehearsal")
    begins()
    try:
        await start(attempt)
        async with asyncio.timeout(limit_s):
            made.how = await asyncio.shield(life.ended)
    except TimeoutError:
        pass
    finally:
        life.close("lost")
        _tell(attempt, made)
        await attempt.unwound()
    return made


class _Trying(Loop):
    """Carries an attempt up to its edge, where it is over."""

    __slots__ = ("_look", "_made")

    def __init__(self, made: Tried, look: Callable[[Stacks], None]) -> None:
        self._made, self._look = made, look

    def went_live(self) -> None:
        attempt, made, root = self.attempt, self._made, self.attempt.tasks.root
        made.ended, made.asks = root is not None and root.done(), attempt.asks_instead()
        if made.ended and root is not None:
            made.error = how_it_ended(attempt)
            made.value = root.result() if made.error is None else None
        attempt.life.close("edge")

    def let_go(self) -> None:
        self._look(_stacks(self.attempt))
        super().let_go()


def _tell(attempt: Attempt, made: Tried) -> None:
    life, record = attempt.life, attempt.life.misfit
    made.seen = attempt.journal.turn
    root = attempt.tasks.root
    if made.error is None and root is not None and root.done() and not root.cancelled():
        made.error = root.exception()
    made.reason = life.unfit or (life.left.reason if life.left is not None else None) or ""
    if record is not None:
        made.key, made.recorded, made.found = record.key, record.recorded, life.found


def _stacks(attempt: Attempt) -> Stacks:
    try:
        running = asyncio.current_task()
    except RuntimeError:
        running = None
    return [
        (task.scope.path, running_frames() if task is running else list(suspended_frames(task.get_coro())))
        for task in list(attempt.tasks.alive)
    ]
