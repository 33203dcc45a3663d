"""Readers: a few connections, each opened when it is first needed.

Each belongs to a task of the store. A run's own task could not read by itself: what it does with the loop is watched, and a
socket in agent code is something foreign.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.contract import looks_again
from holdfast.store.postgres import connection
from holdfast.store.postgres.connection import LOST, TROUBLE, Connection, goodbye, insist
from holdfast.store.postgres.execute import Answers
from holdfast.store.work import Asking, settle
from holdfast.words.durations import spoken

T = TypeVar("T")
P = ParamSpec("P")
Questions = collections.deque[tuple[Callable[[], Asking[Any]], asyncio.Future[Any]]]
_MOST: Final = 4


async def _answered(db: Connection, work: Callable[[], Asking[T]]) -> T:
    async with asyncio.timeout(connection.ANSWER_S):
        return await Answers(db).do(work())


class Readers:
    """Connections that see the last commit. `limit_s` tells how long the caller that reads now waits; None: until it knows."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], check_open: Callable[[], None],
                 limit_s: Callable[[], float | None]) -> None:  # fmt: skip
        self._connect, self._check_open, self._limit_s = connect, check_open, limit_s
        self._context = contextvars.copy_context()
        self._asked: Questions = collections.deque()
        self._asked_again: Questions = collections.deque()  # by callers that look again: they have every other turn
        self._idle: list[Connection] = []
        self._tasks: dict[asyncio.Task[None], asyncio.Future[Any] | None] = {}  # and what each is about to answer

    async def read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a piece of work that changes nothing; once more if its connection was dropped."""
        self._check_open()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        asked = self._asked_again if looks_again.get() else self._asked
        asked.append((lambda: read(*arguments, **named), answer))
        if len(self._tasks) < _MOST:
            self._tasks[self._context.run(loop.create_task, self._serve())] = None
        limit_s = self._limit_s()
        if limit_s is None:
            return await answer
        told = f"the store did not answer within {spoken(limit_s)}; what was asked changes nothing: ask again"
        late = StoreUnavailable(told, told=told)
        timer = loop.call_later(limit_s, settle, answer, None, late, context=self._context)
        try:
            return await answer
        finally:
            timer.cancel()

    async def _serve(self) -> None:
        """Answer until there is no question left; then the connection waits for the next task."""
        db, task = self._idle.pop() if self._idle else None, asyncio.current_task()
        assert task is not None
        try:
            turn = 0
            while self._asked or self._asked_again:
                turn += 1
                first, other = (self._asked, self._asked_again) if turn % 2 else (self._asked_again, self._asked)
                work, answer = (first or other).popleft()
                if answer.done():
                    continue
                self._tasks[task] = answer
                try:
                    for last in (False, True):
                        try:
                            if db is None or db.is_closed():
                                db = await self._connect()
                            settle(answer, await insist(partial(_answered, db, work)), None)
                            break
                        except TROUBLE as error:
                            if isinstance(error, LOST) and db is not None:
                                db.terminate()
                            if last or answer.done():
                                raise StoreUnavailable(
                                    f"the store cannot be read: {str(error) or repr(error)}"
                                ) from None
                except Exception as error:  # noqa: BLE001 - it is given to the caller
                    settle(answer, None, error)
                except BaseException:
                    settle(answer, None, StoreUnavailable("the store is not open"))
                    raise
        finally:
            if db is not None and not db.is_closed():
                self._idle.append(db)
            # At once: a caller that asks now must not think that this task still serves.
            self._tasks.pop(task, None)

    async def close(self) -> None:
        """Let go of the connections when the last read has ended that a caller waits for."""
        for task, answer in self._tasks.items():
            if answer is not None and answer.done():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(goodbye, self._idle))

    def abort(self) -> None:
        """Drop them."""
        for task in list(self._tasks):
            task.cancel()
        for db in self._idle:
            db.terminate()
        for asked in (self._asked, self._asked_again):
            while asked:
                settle(asked.popleft()[1], None, StoreUnavailable("the store is not open"))
