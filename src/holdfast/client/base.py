"""The base of a client: what its parts, and the handles it gives out, have in common. Its theory is that of deadlines.

A client waits for the store for so long and no longer. A worker waits until its store can be written again, because its runs
have nothing better to do. A person or a web request has: a write that has not begun when its time is over is withdrawn and
never happens, and `StoreUnavailable` says so. If its commit was on its way, nobody knows whether it happened, and `Unconfirmed`
says that and where to look. A read that a server does not answer ends with `StoreUnavailable`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from holdfast.client.waiters import Waiter, Waiters
from holdfast.errors import Unconfirmed, UnknownRun
from holdfast.runtime import AgentSpec
from holdfast.store.changes import News
from holdfast.store.contract import write_limit
from holdfast.store.runs import NewRun
from holdfast.store.store import Store
from holdfast.store.triggers import DecideAct, StartAct
from holdfast.values.codec import checked_size
from holdfast.values.signature import Input
from holdfast.words.durations import Duration, seconds
from holdfast.words.model import RunRow
from holdfast.words.people import Author
from holdfast.words.triggers import Decide, Start
from holdfast.worker.settings import Settings

T = TypeVar("T")
_chosen: Final[ContextVar[float | None]] = ContextVar("chosen_deadline", default=None)


class Base:
    """A client as its parts see it: a store, an author, a deadline, and news of runs."""

    _settings: Settings
    _only: Mapping[str, str] | None = None  # labels of the runs that the user of this view sees; None: all
    _waiters: Waiters

    @property
    def store(self) -> Store:
        """The store behind this client."""
        raise NotImplementedError

    def _author(self, by: str = "") -> Author:
        """Name the actor and the door, for the audit."""
        raise NotImplementedError

    def _spec(self, agent: str, version: str | None = None) -> AgentSpec | None:
        """Find the code of an agent, if it is here; the newest, unless a version is named."""
        raise NotImplementedError

    async def _export(self, run: str, to: Any, **how: Any) -> Any:
        """Write a run to a file."""
        raise NotImplementedError

    async def _take_back(self, run: str, *, force: bool, by: str) -> None:
        """Make a run that was moved one of this store again."""
        raise NotImplementedError

    async def _confirm_move(self, run: str, receipt: Any, *, keys: Any, by: str) -> None:
        """Note that the destination of a move has the run."""
        raise NotImplementedError

    async def _move_receipt(self, run: str, *, key: str | None, keys: Any) -> Any:
        """Sign that a run was moved here."""
        raise NotImplementedError

    async def _scheduled_run(self, agent: Any, arguments: Mapping[str, Any]) -> NewRun:
        """Make what runs of a schedule are created with."""
        raise NotImplementedError

    async def _start_act(self, start: Start, key: str, author: Author) -> StartAct:
        """Make the work that starts a run."""
        raise NotImplementedError

    async def _decide_act(self, decide: Decide, ballot: str, door: str) -> DecideAct:
        """Make the work that decides a question."""
        raise NotImplementedError

    async def _changed_input(self, row: RunRow, before: str, changed: Mapping[str, Any]) -> Input:
        """Check the arguments of a run, some of them changed, against its agent."""
        raise NotImplementedError

    async def _run_row(self, run: str) -> RunRow:
        """Read a run, or raise `UnknownRun`."""
        row = await self.store.run(run)
        if row is None:
            raise UnknownRun(f"there is no run {run!r} in {self.store.url}")
        return row

    async def _check_sees(self, run: str) -> None:
        """Raise `UnknownRun` if the user of this view may not see a run, in the words of a run that does not exist."""
        if self._only is not None and not await self.store.sees_run(run, self._only):
            raise UnknownRun(f"there is no run {run!r} in {self.store.url}")

    def _sized(self, text: str, what: str) -> str:
        """The text itself, if it is no larger than a value that this client and its store keep."""
        return checked_size(text, min(self._settings.value_limit_bytes, self.store.value_limit_bytes), what)

    # News

    def _listening(self, run: str, least: News = News.MOVED) -> Waiter:
        """Make a waiter that goes up whenever there is such news of this run (or, for "", of any)."""
        return Waiter(self._waiters, run, least)

    def _pause_for(self, waiter: Waiter) -> Awaitable[None]:
        """Wait to be told, or look again after a while."""
        return self._waiters.wait(waiter)

    # Deadlines

    @contextmanager
    def deadline(self, limit: Duration) -> Iterator[None]:
        """Bound, for a block, how long each write and read waits for the store, instead of `Settings.deadline_s`.

        Raises:
            StoreUnavailable: A write or read took longer: nothing was done, and nothing will be.
            Unconfirmed: The commit of a write was on its way: it may have happened.

        Example:
            ```python
            with hf.deadline("5s"):
                await hf.start(research, "otters", id="otters")
            ```
        """
        before = _chosen.set(seconds(limit))
        try:
            yield
        finally:
            _chosen.reset(before)

    async def _written(self, write: Awaitable[T], look: str) -> T:
        """Write, within the deadline; `look` says how to find out what became of it."""
        try:
            with self._limited():
                return await write
        except Unconfirmed as error:
            raise Unconfirmed(f"{error}. {look}", told=error.told and f"{error.told}. {look}") from None

    def _limit_s(self, of_this_client: float) -> float | None:
        """The deadline that holds now: the block's, or else this; None if it is no limit."""
        chosen = _chosen.get()
        limit_s = of_this_client if chosen is None else chosen
        return None if limit_s == math.inf else limit_s

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Give what is written in this block the deadline that holds now."""
        before = write_limit.set(self._limit_s(self._settings.deadline_s))
        try:
            yield
        finally:
            write_limit.reset(before)
