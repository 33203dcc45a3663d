"""`holdfast run` on a terminal: what its run asks a person is put to whoever sits there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from holdfast.cli import asking
from holdfast.cli.stopping import Stop
from holdfast.cli.view.console import say
from holdfast.cli.view.live import Display, Watch
from holdfast.client.approvals import Approval

_LOOK_S: Final = 0.2


class Offers:
    """Each question is offered once; one that was skipped can still be decided by a command."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._offered: set[str] = set()
        self._possible = asking.is_at_terminal()

    async def make(self, watch: Watch, display: Display) -> None:
        """Ask about what is new, while the picture stands still; the run goes on meanwhile where it can."""
        new = [each for each in watch.questions if each.id not in self._offered] if self._possible else []
        if not new:
            return
        display.give_way()
        try:
            for question in new:
                self._offered.add(question.id)
                if not self._stop.asked.is_set():
                    await self._ask(watch, question)
        finally:
            display.begin()

    async def _ask(self, watch: Watch, question: Approval) -> None:
        over = asyncio.Event()
        looking = asyncio.ensure_future(self._until_over(watch, question, over))
        try:
            if not await asking.decide(watch.hf, question, None, over) and not over.is_set():
                self._possible = False  # whoever said 'quit' is not asked again
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    async def _until_over(self, watch: Watch, question: Approval, over: asyncio.Event) -> None:
        """Until the question is not open any more, or somebody wants to stop."""
        while not self._stop.asked.is_set():
            if all(each.id != question.id for each in await watch.hf.approvals(run=question.run)):
                say("It was decided elsewhere, or nobody waits for it any more.", "yellow")
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.asked.wait(), _LOOK_S)
        over.set()
