"""What conversations cost: a message is stored once, whoever reads it and however often, and loaded once."""

import asyncio
import json

import pytest

import holdfast
import holdfast.testing
from holdfast.engine.conversations import joined, recollect

RUNS, TURNS, WORDS = 50, 20, "x" * 2000


@holdfast.agent
async def chat(number: int) -> int:
    """Twenty turns that read the last twenty messages each."""
    async with holdfast.conversation("user-42", str) as talk:
        for turn in range(TURNS):
            assert len(await talk.messages(last=20)) == min(20, number * TURNS + turn)
            await talk.add(f"{number} {turn} {WORDS}")
        return len(talk)


@pytest.mark.slow
def test_a_thousand_turns():
    """A thousand turns of 2 KB in 50 runs take the room of what was said and a little for each turn, at every length."""

    async def main():
        async with holdfast.testing.open(agents=[chat], park=False) as hf:
            sizes = []
            for number in range(RUNS):
                run = await hf.start(chat, number)
                assert await run.result() == (number + 1) * TURNS
                sizes.append(
                    sum([len(json.dumps(event.data)) + len(event.value or "") async for event in written(hf, run)])
                )
            payload = sum(len(each.value) for each in await hf.conversation("user-42").messages())
            return sizes, payload, (await hf.store.facts())["blobs"]

    async def written(hf, run):
        for event in await hf.store.journal(run.id):
            yield event

    sizes, payload, blobs = asyncio.run(main())
    assert payload > RUNS * TURNS * 2000
    assert blobs == 0
    assert max(sizes) < 1.1 * min(sizes)  # the last run costs what the first does
    assert sum(sizes) < payload / 3, (sum(sizes), payload)


def test_slices_are_joined():
    """Slices that touch or overlap are read once; gaps are not read."""
    assert joined([(5, 9), (0, 3), (3, 4), (6, 7), (20, 30), (9, 12)]) == [(0, 4), (5, 12), (20, 30)]
    assert joined([]) == []


async def test_loading_reads_each_message_once():
    """A run that has read its last twenty messages many times loads each of them once when it resumes."""

    @holdfast.agent
    async def rereads() -> int:
        async with holdfast.conversation("c", str) as talk:
            total = 0
            for turn in range(30):
                await talk.add(f"{turn}")
                total += len(await talk.messages(last=20))
            await holdfast.sleep("1m")
            return total

    async with holdfast.testing.open(agents=[rereads], park=False) as hf:
        run = await hf.start(rereads)
        async for event in run.events():
            if event.kind == "timer.set":
                break
        loaded = await recollect(hf.store, await hf.store.journal(run.id))
        assert list(loaded.values()) == [f'"{turn}"' for turn in range(30)]
        await hf.crash()
        assert await run.result() == sum(min(20, turn + 1) for turn in range(30))
