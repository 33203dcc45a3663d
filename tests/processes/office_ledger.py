"""What runs did, in a file outside of anything Holdfast knows, and bodies that end when the test allows it."""

import asyncio
import os
from pathlib import Path

import holdfast

FOLDER = Path(os.environ.get("PEOPLE", "."))


def effect(what):
    """One line, written in one call so that lines of several processes do not mix: root run, what, the call's key."""
    line = f"{holdfast.this_run().root} {what} {holdfast.idempotency_key()}\n"
    ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ledger, line.encode())
    os.close(ledger)


async def allowed(what):
    """Wait until the test allows it."""
    while not (FOLDER / f"allowed {what}").exists():
        await asyncio.sleep(0.005)
