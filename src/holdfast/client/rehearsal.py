"""Rehearsals from outside: code against the runs of a store, and runs against each other. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.base import Base
from holdfast.client.comparison import Comparison, compare
from holdfast.client.info import RunInfo, infos_of
from holdfast.declare import Agent
from holdfast.errors import BadArguments
from holdfast.rehearsal import LIMIT_S
from holdfast.store.blobs import unspilled
from holdfast.values.text import is_whole, short
from holdfast.words.calls import Calls
from holdfast.words.durations import Duration, seconds
from holdfast.words.events import error_line
from holdfast.words.model import FINISHED, TRANSITIONS, RunRow, checked_run_id
from holdfast.worker.agents import specs_of

if TYPE_CHECKING:  # what tries code is loaded when code is tried: every client would pay for it, and few use it
    from holdfast.rehearsal.difference import Difference, Told
    from holdfast.rehearsal.replay import Replay, Source

_PAGE: Final = 200
_UNFINISHED: Final = tuple(status for status in TRANSITIONS if status not in FINISHED)
_OVER: Final = tuple(FINISHED - {"moved"})  # a moved run goes on elsewhere, with the code that is there
_SAMPLE: Final = 100


@dataclass(frozen=True, slots=True)
class Checked:
    """Runs of a store, each replayed against the code of its agent.

    Attributes:
        replays: One for each run, the newest first; unfinished runs before finished ones.

    Example:
        ```python
        checked = await hf.check([report])
        assert checked.fits, [replayed.reason for replayed in checked.found]
        ```
    """

    replays: tuple[Replay, ...]

    @property
    def found(self) -> tuple[Replay, ...]:
        """List the runs that would not go on with the code, or of which that cannot be told."""
        return tuple(each for each in self.replays if each.stops)

    @property
    def fits(self) -> bool:
        """Would every run go on with the code, as far as it is not over?"""
        return not self.found


class Rehearsals(Base):
    """Code against the runs of a store."""

    async def replay(
        self,
        run: str,
        agents: Iterable[Agent[..., Any] | ModuleType],
        *,
        to: int | str | None = None,
        full: bool = False,
        debug: bool = False,
        timeout: Duration = LIMIT_S,
    ) -> Replay:
        """Replay a run with this code and tell whether it fits: no body runs, and nothing is written.

        Args:
            run: The run.
            agents: Its agent, and those it calls, or modules with agents.
            to: Stop when the run has seen this event, or where it makes the call of this key; `frames` then has what the
                variables of the agent's functions held at that moment.
            full: Show variables whole, up to 100,000 characters each, and not by their beginnings.
            debug: Open Python's debugger in this terminal where the replay would stop, or at the agent's first line. Calls get
                their recorded results while one steps on.
            timeout: How long the code may take, or keep the event loop; it is stopped then, and `line` says where it was.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: The run has no such event or call, or an agent or the timeout cannot be used.

        Example:
            ```python
            replayed = await hf.replay("r-1", [report], to=1)
            print(replayed.frames[-1].place, replayed.frames[-1].variables)
            ```
        """
        row = await self._run_row(checked_run_id(run))
        if to is not None and type(to) not in (int, str):
            raise BadArguments(f"to={short(to)}: give the number of an event, or the key of a call")
        from holdfast.rehearsal.debugger import Debugger  # noqa: PLC0415 - see above
        from holdfast.rehearsal.frames import BRIEF, WHOLE  # noqa: PLC0415
        from holdfast.rehearsal.replay import Ground  # noqa: PLC0415

        debugger = Debugger() if debug else None
        ground = Ground(self.store, specs_of(agents), limit_s=seconds(timeout), debugger=debugger)
        at = to if isinstance(to, str) else None
        try:
            return await ground.replay(
                row, to=to if isinstance(to, int) else None, at=at, look=WHOLE if full else BRIEF
            )
        finally:
            await ground.close()

    async def check(
        self,
        agents: Iterable[Agent[..., Any] | ModuleType],
        *,
        runs: Iterable[str] | None = None,
        finished: int = _SAMPLE,
        timeout: Duration = LIMIT_S,
    ) -> Checked:
        """Replay every unfinished run with this code, and the newest finished ones, and tell which would not go on, and where.

        Runs that were moved to another store are left out.

        Args:
            agents: The agents, or modules with agents, that are about to serve the store.
            runs: Only these runs.
            finished: So many finished runs too.
            timeout: How long the code may take for one run, or keep the event loop. It is stopped then, and `line` says where it
                was; the other runs of an agent whose code has kept the loop get a tenth of that.

        Raises:
            UnknownRun: One of `runs` is not there.
            BadArguments: A number, a time or an agent cannot be used.

        Example:
            ```python
            checked = await hf.check([report])
            for replayed in checked.found:
                print(replayed.run, replayed.line, replayed.recorded, replayed.present)
            ```
        """
        if not is_whole(finished, 0):
            raise BadArguments(f"finished={short(finished)}: give a whole number from 0 on")
        from holdfast.rehearsal.replay import Ground  # noqa: PLC0415 - see above

        ground = Ground(self.store, specs_of(agents), limit_s=seconds(timeout))
        try:
            rows = self._named(runs) if runs is not None else self._sampled(finished)
            return Checked(tuple([await ground.replay(row) async for row in rows]))
        finally:
            await ground.close()

    async def diff(self, one: str, other: str) -> Difference:
        """Compare two runs: where they part, then their calls, results, times and costs side by side.

        Args:
            one: A run.
            other: Another run: a fork of it, the same again, a run of another version.

        Raises:
            UnknownRun: One of them is not there.

        Example:
            ```python
            await hf.start(report, "bees", id="r-2")
            difference = await hf.diff("r-1", "r-2")
            print(difference.parted.key if difference.parted else "the same calls")
            ```
        """
        rows = [await self._run_row(checked_run_id(run)) for run in (one, other)]
        now = self.store.clock.now()
        first, second = [await told(self.store, row, now) for row in rows]
        from holdfast.rehearsal.difference import compare  # noqa: PLC0415 - see above

        return compare(first, second)

    async def compare(
        self, a: str, b: str, *, after: int = 0, limit: int = 100, differences: bool = False
    ) -> Comparison:
        """Compare two runs call by call, a page at a time, however long they are; `diff` compares short ones in one piece.

        Args:
            a: A run.
            b: Another run: a fork of it, the same again, a run of another version.
            after: The `next` of the page before.
            limit: How many calls at most.
            differences: Whether calls that are the same are left out.

        Raises:
            UnknownRun: One of them is not there.
            BadArguments: A run has more than 200,000 events, or a number cannot be used.

        Example:
            ```python
            await hf.start(report, "bees", id="r-2")
            found = await hf.compare("r-1", "r-2", differences=True)
            print(found.shared, found.parts)
            ```
        """
        rows = await self._run_row(checked_run_id(a)), await self._run_row(checked_run_id(b))

        async def info(row: RunRow) -> RunInfo:
            (found,) = await infos_of(self.store, [row])
            return found

        return await compare(self, rows, info, after, limit, differences)

    async def _named(self, runs: Iterable[str]) -> AsyncIterator[RunRow]:
        for run in dict.fromkeys(runs):
            row = await self._run_row(checked_run_id(run))
            if row.status != "moved":
                yield row

    async def _sampled(self, finished: int) -> AsyncIterator[RunRow]:
        """Yield every unfinished run, then some finished ones; the newest first."""
        for statuses, most in ((_UNFINISHED, None), (_OVER, finished)):
            after, left = None, most
            while left is None or left > 0:
                page = await self.store.runs(
                    statuses=statuses, limit=_PAGE if left is None else min(_PAGE, left), after=after
                )
                for row in page:
                    yield row
                if not page:
                    break
                after, left = page[-1].id, None if left is None else left - len(page)


async def told(source: Source, row: RunRow, now: int) -> Told:
    """A run with its calls, read from where it is kept, for a comparison."""
    calls = Calls(await source.journal(row.id)).made
    error = "" if row.error is None else error_line(json.loads(row.error))
    given, result = await unspilled(source, row.input), await unspilled(source, row.result)
    from holdfast.rehearsal.difference import Told  # noqa: PLC0415 - see above

    return Told(row, given or "", result or "", error, calls, now)
