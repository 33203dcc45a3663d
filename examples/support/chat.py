"""The front desk: what a customer says goes to the run that talks with them, or to a new one; its answer is printed.

    python chat.py ana "Where is order 101?"

It is worker and client in one. Kill it whenever you like, and type the same again with the same --key: it goes on.
"""

import argparse
import asyncio
import contextlib
import secrets

import holdfast
from agents import Said, support


async def say(hf: holdfast.Client, customer: str, text: str, key: str) -> str:
    """The answer to this. Whoever has the conversation gets it as a message; if nobody has, a run begins."""
    said, own = Said(key, text), f"{customer}-{key}"
    while True:
        info = await hf.conversation(customer).info()
        if info is None or info.run in (None, own):
            run = await hf.start(support, customer, said, id=own)
        else:
            run = hf.get(info.run, support)
            with contextlib.suppress(holdfast.RunFinished):
                await run.send("said", said, key=key)
        reply = await run.result()
        if key in reply.heard:  # else it ended just before it could hear this
            return reply.text


async def desk(customer: str, text: str, key: str) -> None:
    """Serve the chat until this is answered."""
    async with holdfast.open(agents=[support]) as hf:
        print(await say(hf, customer, text, key))


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Say something to the support of the shop.")
    parser.add_argument("--key", help="the same again is the same message")
    parser.add_argument("customer")
    parser.add_argument("text")
    given = parser.parse_args()
    asyncio.run(desk(given.customer, given.text, given.key or secrets.token_hex(4)))


if __name__ == "__main__":
    main()
