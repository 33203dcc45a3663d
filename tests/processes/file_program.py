"""A worker that looks for files; killed with -9 by the test. Each file starts a run of one step."""

import asyncio
import os
import sys
from pathlib import Path

import holdfast

LEDGER, URL, FOLDER = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "nowhere")


@holdfast.step
async def mark(path: str) -> str:
    """Write a line that nothing can take back."""
    text = Path(path).read_text()  # noqa: ASYNC240 - a few bytes
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ledger, f"{text} {holdfast.this_step().idempotency_key}\n".encode())
    os.close(ledger)
    return text


@holdfast.agent
async def handle(path: str) -> str:
    return await mark(path)


@holdfast.on.files(f"{FOLDER}/**/*.txt", settle="0.2s")
def inbox(delivery: holdfast.Delivery) -> holdfast.Start:
    return holdfast.Start(handle, delivery.headers["path"])


async def main() -> None:
    async with holdfast.open(URL, agents=[inbox]):
        print("ready", flush=True)  # noqa: T201 - the test reads it
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
