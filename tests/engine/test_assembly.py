"""The engine's table of contents: what `execute.assemble` says of an attempt."""

from __future__ import annotations

import asyncio

import holdfast
import holdfast.testing
from holdfast.engine.scope import CALLS
from holdfast.runtime import Request
from holdfast.words.model import KINDS


@holdfast.agent
async def listener() -> None:
    await holdfast.receive("never")


async def test_every_kind_of_event_that_arrives_is_taken_by_somebody():
    async with holdfast.testing.open(agents=[listener]) as hf:
        run = await hf.start(listener)
        while run.id not in hf._worker.attempts:
            await asyncio.sleep(0.001)
        assert set(hf._worker.attempts[run.id].attempt.arrivals) == {
            name for name, kind in KINDS.items() if kind.arrives
        }
        await run.cancel()


def test_every_request_of_a_verb_becomes_a_call():
    import holdfast.runtime

    requests = [
        each
        for each in vars(holdfast.runtime).values()
        if isinstance(each, type) and hasattr(each, "verb") and each is not Request
    ]
    assert set(requests) == set(CALLS)
