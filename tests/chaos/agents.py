"""What the fleet runs while it is being broken: parallel steps, races, timers, children and messages.

Every body says in the ledger, a file that all processes append to, that it began and that it ended. It returns a token of
its own, so that the token in the journal names the one body whose outcome was recorded.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import time
import uuid

import holdfast


def explain(*_: object) -> None:
    """Say what every task waits for: asked for by SIGUSR1 when a run does not end."""
    for task in asyncio.all_tasks():
        waits, place = [], task.get_coro()
        while place is not None:
            frame = getattr(place, "cr_frame", None) or getattr(place, "gi_frame", None)
            waits.append(f"{frame.f_code.co_name}:{frame.f_lineno}" if frame is not None else repr(place))
            place = (
                getattr(place, "_coro", None)
                or getattr(place, "cr_await", None)
                or getattr(place, "gi_yieldfrom", None)
            )
        os.write(2, f"TASK {os.getpid()} {task.get_name()} {' > '.join(waits)}\n".encode())


signal.signal(signal.SIGUSR1, explain)
_LEDGER = os.open(os.environ["CHAOS_LEDGER"], os.O_APPEND | os.O_WRONLY | os.O_CREAT)


def say(what: str, **facts: object) -> None:
    run, step = holdfast.this_run(), holdfast.this_step()
    line = {
        "what": what,
        "run": run.id,
        "key": step.key,
        "idempotency": step.idempotency_key,
        "at": time.time(),
        **facts,
    }
    os.write(_LEDGER, json.dumps(line).encode() + b"\n")  # one write: lines of several processes do not mix


@holdfast.step
async def work(name: str, ms: int) -> str:
    token = uuid.uuid4().hex
    say("begin", token=token)
    await asyncio.sleep(ms / 1000)
    say("end", token=token)
    return f"{name}:{token}"


@holdfast.step
def work_in_thread(name: str, ms: int) -> str:
    token = uuid.uuid4().hex
    say("begin", token=token)
    time.sleep(ms / 1000)
    say("end", token=token)
    return f"{name}:{token}"


async def branch(name: str, rng: random.Random) -> list[str]:
    """Steps one after the other; each must get its own outcome and no other's."""
    found = []
    for turn in range(rng.randrange(1, 4)):
        step = work_in_thread if rng.random() < 0.2 else work
        said = await step(f"{name}.{turn}", rng.randrange(1, 40))
        if not said.startswith(f"{name}.{turn}:"):
            raise AssertionError(f"{name}.{turn} was handed {said}")
        found.append(said)
    return found


@holdfast.agent
async def part(number: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    await holdfast.sleep(rng.uniform(0.05, 0.8))
    return await branch(f"part{number}", rng)


@holdfast.agent
async def order(seed: int) -> dict[str, list[str]]:
    """A tree of everything, the same for the same seed."""
    rng = random.Random(seed)
    seeds = [rng.randrange(1 << 30) for _ in range(8)]
    parallel = await asyncio.gather(*[branch(f"b{n}", random.Random(seeds[n])) for n in range(3)])
    await holdfast.sleep(rng.uniform(0.05, 1.0))
    children = await asyncio.gather(part(0, seeds[3]), part(1, seeds[4]))
    racers = [asyncio.create_task(branch(f"r{n}", random.Random(seeds[5 + n]))) for n in range(2)]
    done, pending = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
    for loser in pending:
        loser.cancel()
    messages = [str(await holdfast.receive("news", int)) for _ in range(3)]
    first = next(task for task in racers if task in done)
    last = await branch("last", random.Random(seeds[7]))
    return {
        "parallel": [*itertools.chain(*parallel)],
        "children": [*itertools.chain(*children)],
        "raced": first.result(),
        "messages": messages,
        "last": last,
    }
