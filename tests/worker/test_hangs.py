"""Hangs: the thread that watches a worker's loop. What it tells of a loop that hangs is in `processes/`."""

import asyncio

from holdfast.worker.hangs import Hangs
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings


def test_a_loop_that_was_closed_is_not_watched_any_more(monkeypatch):
    """Whoever runs a worker may end its loop without a word. That is not a loop that hangs."""
    monkeypatch.setattr("holdfast.worker.hangs._LOOK_S", 0.001)

    async def begin():
        hangs = Hangs(Settings(), Measures(), {})
        hangs._asked_at = 1.0  # it owes a sign
        hangs.start()
        return hangs

    hangs = asyncio.run(begin())
    hangs._thread.join(10)
    assert not hangs._thread.is_alive()
