"""Questions of a run to the database beside the cluster, as its engine asks them inside the workflow.

Each is an activity and no local one: a workflow task that is lost would lose what local ones were told, and whoever asks again is
told something else when it has written meanwhile. Writes to streams and what is done in conversations come before what is recorded
behind them, in order.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from holdfast.backends.temporal.address import SIDE
from holdfast.backends.temporal.loads import Load, weight
from holdfast.backends.temporal.performer import Performer
from holdfast.backends.temporal.records import Start
from holdfast.backends.temporal.side import piece_of
from holdfast.backends.temporal.side import told as line_of
from holdfast.backends.temporal.talks import asked_of
from holdfast.errors import LeaseLost
from holdfast.store.appends import Append, Told
from holdfast.store.conversations import MessageRow
from holdfast.store.limits import Closed, Turn
from holdfast.store.streams import Piece
from holdfast.store.work import settle
from holdfast.words.clock import Clock
from holdfast.words.model import RunRow

ASKED: Final = frozenset({"take_turn", "closed", "use_late", "pause_rate", "charge", "said", "pieces"})


def _who(row: RunRow) -> list[Any]:
    return [row.agent, json.loads(row.labels), row.parent_id, row.root_id]


class Place(Protocol):
    """The ground of a run, as what it does beside the cluster sees it."""

    row: RunRow
    loop: asyncio.AbstractEventLoop
    outside: contextvars.Context
    perform: Performer
    load: Load

    @property
    def clock(self) -> Clock: ...
    def errand(self, work: Coroutine[Any, Any, None]) -> None: ...
    def accept(self, append: Append, told: Told, *, alone: bool = False) -> None: ...
    def arrive(self, said: Mapping[str, Any]) -> None: ...


class Beside:
    """The database beside the cluster, as one run uses it."""

    def __init__(
        self, ground: Place, start: Start, *, talked: bool, whole: Callable[[str, Mapping[str, bytes]], str]
    ) -> None:
        self._ground, self._start, self._whole = ground, start, whole
        self._line: list[tuple[Append, Told]] = []  # writes that wait, in order
        self._is_writing = False
        self._turns: list[tuple[list[Any], asyncio.Future[Turn]]] = []  # that calls wait to reserve, in order
        self.talked = talked  # in a conversation, which it may have or wait for

    def takes(self, append: Append) -> bool:
        """Is this to be written there first, or behind what is?"""
        return self._start.side and bool(self._line or append.pieces or append.talks)

    def post(self, append: Append, told: Told) -> None:
        """Write this there, and then accept it."""
        self._line.append((append, told))
        if not self._is_writing:
            self._is_writing = True
            self._ground.errand(self._write())

    async def _write(self) -> None:
        ground = self._ground
        while self._line:
            append, told = self._line[0]
            answers: list[Any] = []
            try:
                if append.pieces:
                    lines = [line_of(piece) for piece in append.pieces]
                    await self.ask(lines=lines, of=_who(ground.row), mark=ground.row.lease_epoch)
                for talking in append.talks:
                    self.talked = True
                    answers += await self.ask(talk=asked_of(talking, self._whole), above=self._start.above)
            except ActivityError as error:
                lost = LeaseLost(str(error.cause))  # the engine begins anew, from the journal
                ground.loop.call_soon(told, ground.clock.now(), lost, context=ground.outside)
            else:
                ground.accept(append, told)
            del self._line[0]
            for said in answers:
                ground.arrive(said)
        self._is_writing = False

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

    async def leave_talks(self) -> None:
        """Leave all conversations: the run has ended."""
        await self.ask(over=True)

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
