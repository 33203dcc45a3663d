"""`lively`: a stream that falls silent fails, and is tried again."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.runs import finish

import holdfast
from holdfast import Retry


async def said(*pieces):
    """A stream: numbers are silences in seconds."""
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        else:
            await asyncio.sleep(piece)


def heard(pieces, idle="3s"):
    async def listen():
        return [piece async for piece in holdfast.lively(pieces, idle)]

    return asyncio.run(listen())


def test_what_comes_is_passed_on():
    """All pieces, in order; many short pauses may take longer than the longest silence."""
    assert heard(said("a", *[0.4, "b"] * 8)) == ["a", *["b"] * 8]
    assert heard(said()) == []


def test_the_silence_is_limited_and_not_the_listener():
    """What the one who listens does with a piece does not count."""

    async def slowly():
        found = []
        async for piece in holdfast.lively(said("a", "b"), "500ms"):
            await asyncio.sleep(0.6)
            found.append(piece)
        return found

    assert asyncio.run(slowly()) == ["a", "b"]


def test_a_silence_fails_the_attempt_and_is_tried_again():
    """It is a failure like others: the step's retry applies, and in the end the agent gets a StepTimeout."""
    attempts = []

    @holdfast.step(retry=Retry(3, first=0))
    async def read(ends: int) -> str:
        attempts.append(1)
        silence = 0.0 if len(attempts) >= ends else 60.0
        return "".join([piece async for piece in holdfast.lively(said("a", silence, "b"), "500ms")])

    @holdfast.agent
    async def reads(ends: int) -> str:
        try:
            return await read(ends)
        except holdfast.StepTimeout as error:
            return f"{error.attempts}: {error.message}"

    assert finish(reads, 2) == "ab"
    attempts.clear()
    assert finish(reads, 9) == "3: nothing came for 0.5 s"


def test_what_came_before_the_silence_is_salvaged():
    """A body that streams while it listens goes on behind it at the next attempt."""

    @holdfast.step(retry=Retry(2, first=0))
    async def read() -> str:
        async with holdfast.stream("answer") as out:
            kept = out.keep()
            pieces = said("Otters ", "sleep", 60.0) if not kept else said(" a lot.")
            async for piece in holdfast.lively(pieces, "50ms"):
                await out.write(piece)
                kept += piece
        return kept

    @holdfast.agent
    async def reads() -> str:
        return await read()

    assert finish(reads) == "Otters sleep a lot."


def test_a_timeout_of_the_source_is_its_own():
    """Only the silence is told as one."""

    async def broken():
        yield "a"
        raise TimeoutError("the gateway gave up")

    with pytest.raises(TimeoutError, match="the gateway gave up"):
        heard(broken())


def test_a_silence_must_have_a_length():
    """Nothing could ever come in no time."""
    with pytest.raises(holdfast.BadArguments, match="give the longest silence"):
        heard(said(), 0)
