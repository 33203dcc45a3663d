"""Pause, resume, cancel and retry all runs that fit: by state, agent and labels. One run by its id is `hf.get(id)`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from holdfast.client.base import Base
from holdfast.client.filter import filter_of
from holdfast.client.run import Run, new_pause
from holdfast.declare import Agent
from holdfast.errors import BadArguments, RunActive, RunFinished, UnknownRun
from holdfast.store.runs import Filter
from holdfast.words.budget import Budget, checked_budget
from holdfast.words.durations import Duration, milliseconds

_GOING: Final = ("ready", "running", "waiting")
_PAGE: Final = 500


class Control(Base):
    """The part of a client that stops many runs and lets them go on."""

    def get(self, id: str, /) -> Run[Any]:
        """A handle to a run."""
        raise NotImplementedError

    async def pause(
        self,
        *,
        status: str | Iterable[str] | None = None,
        agent: str | Agent[..., Any] | None = None,
        labels: Mapping[str, str] | None = None,
        reason: str = "",
        by: str = "",
        family: bool = True,
        now: bool = False,
    ) -> list[str]:
        """Pause every run that fits all that is given, with all runs below it; returns the ids of those that fit.

        Runs that are about to stop are left alone. `family` and `now` are as for one run.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.

        Example:
            ```python
            paused = await hf.pause(agent="report", by="ana", reason="lunch")
            ```
        """
        request = new_pause()  # one for all: who resumes a run undoes it below that run too
        return await self._each(
            _GOING,
            status,
            agent,
            labels,
            lambda run: run._pause(request, reason, by, family=family, now=now),
        )

    async def resume(
        self,
        *,
        agent: str | Agent[..., Any] | None = None,
        labels: Mapping[str, str] | None = None,
        by: str = "",
        family: bool = True,
    ) -> list[str]:
        """Let every paused run that fits go on, with the runs below it that the same request paused; returns the ids.

        Example:
            ```python
            resumed = await hf.resume(agent="report", by="ana")
            ```
        """
        return await self._each(
            ("paused",), None, agent, labels, lambda run: run.resume(by=by, family=family), every=True
        )

    async def cancel(
        self,
        *,
        status: str | Iterable[str] | None = None,
        agent: str | Agent[..., Any] | None = None,
        labels: Mapping[str, str] | None = None,
        reason: str = "",
        by: str = "",
        grace: Duration = "30s",
    ) -> list[str]:
        """Cancel every run that fits all that is given; returns their ids.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.

        Example:
            ```python
            cancelled = await hf.cancel(labels={"team": "docs"}, by="ana", reason="no budget left")
            ```
        """
        milliseconds(grace)  # refused before the first run is touched
        return await self._each(
            (*_GOING, "paused"), status, agent, labels, lambda run: run.cancel(reason=reason, by=by, grace=grace)
        )

    async def retry(
        self,
        *,
        status: str | Iterable[str] | None = None,
        agent: str | Agent[..., Any] | None = None,
        labels: Mapping[str, str] | None = None,
        by: str = "",
        budget: Budget | None = None,
    ) -> list[str]:
        """Let every failed run that fits go on from its failure; returns their ids. All of them: `status="failed"`.

        Children go on with the runs that they brought down. By themselves they are retried only if `agent=` names theirs,
        because a parent may have dealt with the failure of a child.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.

        Example:
            ```python
            retried = await hf.retry(agent="report")
            ```
        """
        checked_budget(budget)  # refused before the first run is touched
        act = functools.partial(Run.retry, by=by, budget=budget)
        return await self._each(("failed",), status, agent, labels, act, roots=agent is None)

    async def _each(
        self, possible: tuple[str, ...], status: str | Iterable[str] | None, agent: str | Agent[..., Any] | None,
        labels: Mapping[str, str] | None, act: Callable[[Run[Any]], Awaitable[None]], *, every: bool = False,
        roots: bool = False,
    ) -> list[str]:  # fmt: skip
        if status is None and agent is None and not labels and not every:
            raise BadArguments("say which runs: status=, agent= or labels=; one run by its id is hf.get(id)")
        fits = filter_of(self.store.clock.now(), possible if status is None else status, agent, labels)
        fits["statuses"] = [each for each in fits["statuses"] or () if each in possible]
        done = []
        for run in await self._found(fits, roots=roots) if fits["statuses"] else ():
            try:
                await act(self.get(run))
            except (RunFinished, RunActive, UnknownRun):
                continue  # it has moved on since it was found
            done.append(run)
        return done

    async def _found(self, fits: Filter, *, roots: bool) -> list[str]:
        """List their ids, the newest first: so children come before their parents."""
        found: list[str] = []
        last: str | None = None
        while True:
            page = await self.store.runs(**fits, limit=_PAGE, after=last)
            found += [row.id for row in page if row.parent_id is None or not roots]
            if len(page) < _PAGE:
                return found
            last = page[-1].id
