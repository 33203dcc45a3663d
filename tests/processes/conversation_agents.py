"""Agents that talk, for workers in processes of their own. Each says three things in one turn, with waits between them."""

from pathlib import Path

import holdfast

TURNS = 3


@holdfast.step
async def think(text: str) -> str:
    return f"thought {text}"


@holdfast.agent
async def chat(conversation: str, text: str) -> list[str]:
    """What it heard before, and what it said: a prefix of the conversation in the end."""
    async with holdfast.conversation(conversation, str) as talk:
        await talk.add(f"{text} 0")
        await think(text)
        await holdfast.sleep(0.01)
        await talk.add(f"{text} 1")
        heard = await talk.messages()
        await talk.add(f"{text} 2")
        return [*heard, *await talk.messages(last=1)]


@holdfast.agent
async def listen(conversation: str) -> str:
    """A turn that waits for a word from outside."""
    async with holdfast.conversation(conversation, str) as talk:
        heard = await talk.messages(last=2)
        await talk.add(f"{holdfast.this_run().id} asks")
        answer = await holdfast.receive("answer", str)
        await talk.add(f"{answer} after {len(heard)}")
        return "; ".join(await talk.messages(last=4))


@holdfast.step
def chore(folder: str, who: str) -> str:
    """Leaves a line where the test can see it."""
    if Path(folder, "broken").exists():
        raise holdfast.Permanent("told to fail")
    with Path(folder, "ran").open("a") as ran:
        ran.write(f"{who}\n")
    return f"{who} did"


@holdfast.agent
async def serve(conversation: str, folder: str) -> list[str]:
    """A turn with a step that may fail in its middle."""
    async with holdfast.conversation(conversation, str) as talk:
        who = holdfast.this_run().id
        await talk.add(f"{who} asks")
        await talk.add(await chore(folder, who))
        return await talk.messages()
