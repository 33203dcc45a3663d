"""Agents for servers in processes of their own: what they do is told to them by messages, so the test sets the pace."""

import holdfast


@holdfast.agent
async def scribe(words: int) -> str:
    """Writes each word it hears to its stream and into its history."""
    heard = []
    async with holdfast.stream("answer") as out:
        while len(heard) < words:
            word = await holdfast.receive("word", str)
            await out.write(word)
            await holdfast.note(word)
            heard.append(word)
    return "".join(heard)


@holdfast.step
async def write(megabytes: int) -> None:
    async with holdfast.stream("answer") as out:
        for _ in range(megabytes * 64):
            await out.write("x" * 16_384)


@holdfast.agent
async def flood(megabytes: int) -> None:
    """Writes much, at once."""
    await write(megabytes)
