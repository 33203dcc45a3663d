"""The door for mail: each letter that comes for us starts a run, once, and the sender is told when it is kept.

    python receive.py

It needs `pip install aiosmtpd`. A letter is taken when its run is committed, and not before: if this process dies in between, the
sender's server sends it again, and the same letter is the same run.
"""

import asyncio
import os
from typing import Any

from aiosmtpd.smtp import SMTP

import holdfast
from agents import answer, read_letter

PORT = int(os.environ.get("INBOX_PORT", "8726"))


class Door:
    """What aiosmtpd calls for a mail."""

    def __init__(self, hf: holdfast.Client) -> None:
        self.hf = hf

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it so
        letter = read_letter(envelope.content)
        if not letter.sender:
            return "554 a letter needs a sender"
        try:
            run = await self.hf.start(answer, letter, id=f"letter-{letter.id}", labels={"from": letter.sender})
        except holdfast.StoreUnavailable:
            return "451 try again later"
        return f"250 kept as {run.id}" if run.created else f"250 known as {run.id}"


async def main() -> None:
    async with holdfast.open() as hf:
        server = await asyncio.get_running_loop().create_server(lambda: SMTP(Door(hf)), "127.0.0.1", PORT)
        print(f"letters are taken at port {PORT}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
