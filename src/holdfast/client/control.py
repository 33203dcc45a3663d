"""Pause, resume, cancel and retry all runs that fit: by state, agent and labels. One run by its id is `hf.get(id)`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.client.base import Base
from holdfast.client.filter import filter_of
from holdfast.client.info import RunInfo
from holdfast.client.run import Run, new_pause
from holdfast.declare import Agent
from holdfast.errors import (
    BadArguments,
    Changed,
    HoldfastError,
    RunActive,
    RunFinished,
    StoreUnavailable,
    Unconfirmed,
    UnknownRun,
)
from holdfast.store.runs import Filter
from holdfast.values.text import cut, is_whole, short
from holdfast.words.budget import Budget, checked_budget
from holdfast.words.durations import Duration, milliseconds, seconds
from holdfast.words.model import checked_run_id
from holdfast.words.people import checked_note
from holdfast.words.statuses import code_of

_MOST_IDS: Final = 1_000
_MOST_FIT: Final = 10_000
_AT_ONCE: Final = 16
_SAID: Final = 400  # characters of why one was refused
_GOING: Final = ("ready", "running", "waiting")
_PAGE: Final = 500
BULK_PAGE: Final = 500  # runs that are listed together to be acted upon


Action = Literal["pause", "resume", "cancel", "retry", "delete"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A run to which something was not done, and why.

    Attributes:
        id: The run.
        code: The name of the error as the HTTP server writes it, such as "run_finished".
        message: Its text.

    Example:
        ```python
        done = await hf.bulk("retry", ids=["r-1"])
        print([(refusal.id, refusal.code) for refusal in done.refused])
        ```
    """

    id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Bulk:
    """Outcome of something that was asked of many runs at once.

    Attributes:
        done: To how many runs it was done.
        refused: Those to which it was not done, and why.
        left: How many there was no time for; asking again does those.

    Example:
        ```python
        done = await hf.bulk("pause", agent="report", reason="lunch")
        assert (done.done, done.refused, done.left) == (1, (), 0)
        ```
    """

    done: int
    refused: tuple[Refusal, ...]
    left: int


class Control(Base):
    """The part of a client that stops many runs and lets them go on."""

    async def _some(self, which: Mapping[str, Any], after: str | None) -> list[RunInfo]:
        """List some runs that fit, as `hf.runs` does."""
        raise NotImplementedError

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
        """Pause every run that fits all that is given, with all runs below it; returns the ids of the runs that fit.

        Runs that are about to stop are left alone. `family` and `now` are as for one run.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.

        Example:
            ```python
            paused = await hf.pause(agent="report", by="ana", reason="lunch")
            ```
        """
        request = new_pause()  # one for all: resuming a run undoes it below that run too
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

    async def bulk(
        self,
        action: Action,
        *,
        ids: Iterable[str] | None = None,
        expect: int | None = None,
        reason: str = "",
        by: str = "",
        within: Duration = "20s",
        **which: Any,
    ) -> Bulk:
        """Pause, resume, cancel, retry or delete many runs: these, or all that fit. What one of them refuses stops no other.

        Args:
            action: What is to be done to each: "pause", "resume", "cancel", "retry" or "delete".
            ids: The runs, at most 1,000.
            expect: How many are expected to fit; nothing is done if more than a tenth more do.
            reason: Why, for a pause or a cancel.
            by: The person who does it.
            within: How long it may take; `left` says for how many there was no time.
            which: The filters of `hf.runs`, instead of `ids`; at most 10,000 runs may fit.

        Raises:
            BadArguments: Nothing says which, too many fit, or a filter cannot be used.
            Changed: More fit than was expected. Nothing was done.

        Example:
            ```python
            done = await hf.bulk("cancel", agent="report", expect=1, reason="no budget left", by="ana")
            ```
        """
        act = self._deed(action, checked_note(reason), by)
        ends = asyncio.get_running_loop().time() + seconds(within)
        if ids is not None:
            if which:
                raise BadArguments("give ids= or filters, not both")
            found = list(dict.fromkeys(checked_run_id(id) for id in ids))
            if len(found) > _MOST_IDS:
                raise BadArguments(f"ids= names {len(found)} runs; give at most {_MOST_IDS}, or filters that fit them")
            there = {id for id in found if await self._is_there(id)} if action == "delete" else set[str]()
        else:
            found = await self._fitting(which, expect)
            there = set(found) if action == "delete" else set[str]()
        return await self._all(found, act, ends, there)

    async def _is_there(self, run: str) -> bool:
        return await self.store.run(run) is not None and (
            self._only is None or await self.store.sees_run(run, self._only)
        )

    def _deed(self, action: str, reason: str, by: str) -> Callable[[Run[Any]], Awaitable[object]]:
        request = new_pause()  # one for all, as for `pause`
        acts: dict[str, Callable[[Run[Any]], Awaitable[object]]] = {
            "pause": lambda run: run._pause(request, reason, by, family=True, now=False),
            "resume": lambda run: run.resume(by=by),
            "cancel": lambda run: run.cancel(reason=reason, by=by),
            "retry": lambda run: run.retry(by=by),
            "delete": lambda run: run.delete(),
        }
        if action not in acts:
            raise BadArguments(f"{action!r} is nothing that can be done to many runs; there are: {', '.join(acts)}")
        return acts[action]

    async def _fitting(self, which: Mapping[str, Any], expect: int | None) -> list[str]:
        """List the runs that fit, the newest first; `Changed` if they are more than was expected."""
        if all(value is None for value in which.values()):
            raise BadArguments("say which runs: ids=, or a filter such as status=, agent= or labels=")
        if expect is not None and not is_whole(expect, 0):
            raise BadArguments(f"expect={short(expect)}: give a whole number from 0 on")
        most = _MOST_FIT if expect is None else min(_MOST_FIT, expect + expect // 10)
        found = list[str]()
        page = await self._some(which, None)
        while page and len(found) <= most:
            found += [info.id for info in page]
            page = await self._some(which, page[-1].id) if len(page) == BULK_PAGE else []
        if expect is not None and len(found) > most:
            more = "more" if len(found) > _MOST_FIT else str(len(found))
            raise Changed(f"{expect} runs were expected to fit, and {more} do by now; nothing was done",
                          details={"expect": expect, "fit": len(found)})  # fmt: skip
        if len(found) > _MOST_FIT:
            raise BadArguments(f"more than {_MOST_FIT} runs fit; narrow the filter, by since= for example")
        return found

    async def _all(
        self, runs: Sequence[str], act: Callable[[Run[Any]], Awaitable[object]], ends: float, there: set[str]
    ) -> Bulk:
        """Do it to some at a time, because they are committed together. One that was `there` went with the one above it."""
        refused, done, clock, ahead = list[Refusal](), 0, asyncio.get_running_loop().time, iter(runs)

        async def some() -> None:
            nonlocal done
            while clock() < ends and (run := next(ahead, None)) is not None:
                try:
                    await self._check_sees(run)
                    await act(self.get(run))
                    done += 1
                except (StoreUnavailable, Unconfirmed):
                    raise
                except UnknownRun as error:
                    if run in there:
                        done += 1
                    else:
                        refused.append(_refusal(run, error))
                except HoldfastError as error:
                    refused.append(_refusal(run, error))

        working = [asyncio.ensure_future(some()) for _ in range(min(_AT_ONCE, len(runs)))]
        try:
            await asyncio.gather(*working)
        finally:
            for each in working:
                each.cancel()
        order = {run: nth for nth, run in enumerate(runs)}
        refused.sort(key=lambda refusal: order[refusal.id])
        return Bulk(done, tuple(refused), len(runs) - done - len(refused))

    async def _each(
        self, possible: tuple[str, ...], status: str | Iterable[str] | None, agent: str | Agent[..., Any] | None,
        labels: Mapping[str, str] | None, act: Callable[[Run[Any]], Awaitable[None]], *, every: bool = False,
        roots: bool = False,
    ) -> list[str]:  # fmt: skip
        if status is None and agent is None and not labels and not every:
            raise BadArguments("say which runs: status=, agent= or labels=; one run by its id is hf.get(id)")
        fits = filter_of(self.store.clock.now(), possible if status is None else status, agent, labels)
        fits["statuses"] = [each for each in fits["statuses"] or () if each in possible]
        fits["only"] = self._only
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


def _refusal(run: str, error: HoldfastError) -> Refusal:
    return Refusal(run, code_of(type(error).__name__), cut(str(error), _SAID))
