"""Questions of a run to the database beside the cluster, as its engine asks them inside the workflow.

Each is an activity and no local one: a workflow task that is lost would lose what local ones were told, and a run that
asks again is told something else when it has written meanwhile. Writes to streams, what is done in conversations and
questions about budgets come before what is recorded behind them, in order. What was spent under a budget is counted
there before the engine goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final, Protocol

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from holdfast.backends.temporal.address import SIDE
from holdfast.backends.temporal.budgets import purse_of
from holdfast.backends.temporal.loads import Load, weight
from holdfast.backends.temporal.performer import Performer
from holdfast.backends.temporal.records import Start, State
from holdfast.backends.temporal.side import piece_of
from holdfast.backends.temporal.side import told as line_of
from holdfast.backends.temporal.talks import asked_of
from holdfast.errors import LeaseLost
from holdfast.store.appends import Append, Told
from holdfast.store.conversations import MessageRow
from holdfast.store.limits import Closed, Turn
from holdfast.store.streams import Piece
from holdfast.store.work import settle
from holdfast.words.budget import Purse
from holdfast.words.clock import Clock
from holdfast.words.model import RunRow
from holdfast.words.spent import Spent

ASKED: Final = frozenset(
    {"take_turn", "closed", "use_late", "pause_rate", "charge", "said", "pieces", "purses", "spent_by"}
)


def _who(row: RunRow) -> list[Any]:
    return [row.agent, json.loads(row.labels), row.parent_id, row.root_id]


def _asked_in(append: Append) -> list[dict[str, Any]]:
    """Tell the questions about budgets that are asked with it, as they travel."""
    return [asdict(new) for new in append.approvals if new.about is not None]


class Place(Protocol):
    """The ground of a run, as what it does beside the cluster sees it."""

    row: RunRow
    state: State
    loop: asyncio.AbstractEventLoop
    outside: contextvars.Context
    perform: Performer
    load: Load

    @property
    def clock(self) -> Clock: ...
    def errand(self, work: Coroutine[Any, Any, None]) -> None: ...
    def accept(self, append: Append, told: Told, *, alone: bool = False) -> None: ...
    def arrive(self, said: Mapping[str, Any]) -> None: ...
    async def feed(self) -> None: ...


class Beside:
    """The database beside the cluster, as one run uses it."""

    def __init__(
        self, ground: Place, start: Start, *, talked: bool, whole: Callable[[str, Mapping[str, bytes]], str]
    ) -> None:
        self._ground, self._start, self._whole = ground, start, whole
        self._line: list[tuple[Append, Told]] = []  # writes that wait, in order
        self._is_writing = False
        self._sums = asyncio.Lock()  # sums are read, or added to
        self._turns: list[tuple[list[Any], asyncio.Future[Turn]]] = []  # that calls wait to reserve, in order
        self.talked = talked  # in a conversation, which it may have or wait for

    def takes(self, append: Append) -> bool:
        """Is this to be written there, or behind what is?"""
        return self._start.side and (bool(self._line) or self._asks(append) or self._counts(append))

    def _asks(self, append: Append) -> bool:
        """Is something to be done there before it is accepted?"""
        return bool(append.pieces or append.talks or _asked_in(append) or self._left_in(append))

    def _left_in(self, append: Append) -> list[str]:
        """Name the questions about budgets for which the run waits no longer."""
        if self._ground.row.budget is None:
            return []
        return [gone for gone in append.withdraws if gone not in self._ground.state.questions]

    def post(self, append: Append, told: Told) -> None:
        """Write this there, and then accept it."""
        self._line.append((append, told))
        if not self._is_writing:
            self._is_writing = True
            self._ground.errand(self._write())

    async def _write(self) -> None:
        ground = self._ground
        while self._line:
            if spent := self._spent_first():
                await self._count(spent)
                del self._line[: len(spent)]
                continue
            append, told = self._line[0]
            answers: list[Any] = []
            try:
                if append.pieces:
                    lines = [line_of(piece) for piece in append.pieces]
                    await self.ask(lines=lines, of=_who(ground.row), mark=ground.row.lease_epoch)
                for talking in append.talks:
                    self.talked = True
                    answers += await self.ask(talk=asked_of(talking, self._whole), above=self._start.above)
                if asked := _asked_in(append):
                    await self.ask(more=asked)
                if left := self._left_in(append):
                    await self.ask(leave=left)
            except ActivityError as error:
                lost = LeaseLost(str(error.cause))  # the engine begins anew, from the journal
                ground.loop.call_soon(told, ground.clock.now(), lost, context=ground.outside)
            else:
                if self._counts(append):
                    await self._count([(append, told)])
                else:
                    ground.accept(append, told)
            del self._line[0]
            for said in answers:
                ground.arrive(said)
        self._is_writing = False

    def _counts(self, append: Append) -> bool:
        """Does it say that something was spent of a budget?"""
        return self._ground.row.budget is not None and any("spent" in event.data for event in append.events)

    def _spent_first(self) -> list[tuple[Append, Told]]:
        """The writes that come next, as far as they only say that something was spent: they are counted at once."""
        return [*itertools.takewhile(lambda each: self._counts(each[0]) and not self._asks(each[0]), self._line)]

    async def _count(self, spent: Sequence[tuple[Append, Told]]) -> None:
        """Accept what says that something was spent, and have it counted before the engine goes on.

        Budgets are not read meanwhile: the engine counts a body until it is told, and would count it twice.
        """
        ground, ends = self._ground, list[tuple[int, BaseException | None]]()
        async with self._sums:
            for append, _ in spent:
                ground.accept(append, lambda at, error: ends.append((at, error)), alone=True)
            await ground.feed()
            for (_, told), (at, error) in zip(spent, ends, strict=True):
                ground.loop.call_soon(told, at, error, context=ground.outside)

    async def ask(self, **asked: Any) -> list[Any]:
        """Ask until it answers."""
        asked = {"run": self._ground.row.id, **asked}
        await self._ground.load.room(weight(asked))
        handle = workflow.start_activity(
            SIDE, asked, result_type=list, start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5)),
        )  # fmt: skip
        found: list[Any] = await self._ground.perform.awaited(handle)
        return found

    async def leave_all(self) -> None:
        """Leave all conversations, and all questions about budgets: the run has ended."""
        await self.ask(over=True)

    # Budgets

    async def purses(self, run: str) -> list[Purse]:
        labels = json.loads(self._ground.row.labels)
        async with self._sums:
            return [purse_of(line) for line in await self.ask(purses=self._start.line(), labels=labels)]

    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]:
        return [(what, Spent.from_row(sums)) for what, sums in await self.ask(spent_by=run, limit=limit)]

    async def decide(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Have counted what a person says to a question about a budget."""
        (answer,) = await self.ask(decide=dict(said))
        return dict(answer)

    # Rates of steps

    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0, every_ms: int = 0) -> Turn:
        """Reserve a turn. Calls that ask at the same time are given theirs in their order, by one activity."""
        ground, given = self._ground, [key, interval_us, tokens_us, every_ms]
        turn: asyncio.Future[Turn] = ground.loop.create_future()
        self._turns.append((given, turn))
        if len(self._turns) == 1:
            ground.errand(self._take_turns())
        return await turn

    async def _take_turns(self) -> None:
        asked, self._turns = self._turns, []
        found = await self.ask(rate="take_turns", given=[given for given, _ in asked])
        for (_, turn), told in zip(asked, found, strict=True):
            settle(turn, Turn(*told), None)

    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed:
        return Closed(*await self.ask(rate="closed", given=[key, turn and [*turn], every_ms]))

    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None:
        await self.ask(rate="use_late", given=[key, [[*each] for each in began.items()], every_ms])

    async def pause_rate(self, key: str, wait_ms: int, because: str | None = None) -> int:
        (until,) = await self.ask(rate="pause_rate", given=[key, wait_ms, because])
        return int(until)

    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None:
        await self.ask(rate="charge", given=[key, tokens, tokens_us, since])

    # Streams and conversations

    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]:
        return [MessageRow(*row) for row in await self.ask(said=conversation, first=first, end=end)]

    async def streams(self) -> list[Piece]:
        return [piece_of(line) for line in await self.ask()] if self._start.side else []

    async def pieces(self, run: str, stream: str, after: int) -> list[Piece]:
        return [piece_of(line) for line in await self.ask(stream=stream, after=after)]
