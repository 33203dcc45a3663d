"""A worker that reads a queue; killed with -9 by the test. Each message starts a run of one step and is sent to a listener."""

import asyncio
import os
import sys

import holdfast

LEDGER, URL, QUEUE, ID = sys.argv[1:5] if len(sys.argv) > 4 else ("", "", "nats://unused/unused", "")


@holdfast.step
async def mark(number: int) -> int:
    """Write a line that nothing can take back."""
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ledger, f"{number} {holdfast.this_step().idempotency_key}\n".encode())
    os.close(ledger)
    return number


@holdfast.agent
async def handle(number: int) -> int:
    return await mark(number)


@holdfast.agent
async def listen(count: int) -> list[int]:
    return [await holdfast.receive("number", int) for _ in range(count)]


@holdfast.on.queue(QUEUE, id=ID or None, in_flight=40, redeliver="2s")
def numbers(delivery: holdfast.Delivery) -> list[holdfast.Start | holdfast.Send]:
    number = int(delivery.body)
    return [holdfast.Start(handle, number), holdfast.Send("listener", "number", number)]


async def main() -> None:
    async with holdfast.open(URL, agents=[numbers, listen]):
        print("ready", flush=True)  # noqa: T201 - the test reads it
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
