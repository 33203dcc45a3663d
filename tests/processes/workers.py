"""Processes that serve, hold, watch and send: what the tests of ownership, waiting and shutdown are made of."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from pathlib import Path

from tests.processes import scenes
from tests.processes.ledger import Place

import holdfast
from holdfast.errors import LeaseLost
from holdfast.store.appends import Append
from holdfast.store.sqlite import writer
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.words.model import Event
from holdfast.worker import suspects

parent = None  # the test, as this process sees it
LONG_S = 60.0


def here():
    return scenes.place


async def wait_for_file(name):
    """A body waits for the test: it makes this file in the place's folder."""
    while not (here().folder / name).exists():
        await asyncio.sleep(0.003)


# Agents


@holdfast.step
async def held(what: str) -> str:
    """Has its effect, says so, and ends when the test allows it."""
    here().effect(what)
    parent.say(body=what, pid=os.getpid())
    await wait_for_file(f"go-{what}")
    return f"did {what}"


@holdfast.step(in_doubt="fail")
async def held_fragile(what: str) -> str:
    here().effect(what)
    parent.say(body=what, pid=os.getpid())
    await wait_for_file(f"go-{what}")
    return f"did {what}"


@holdfast.step(in_doubt="fail")
def held_in_thread(what: str) -> str:
    here().effect(what)
    parent.say(body=what, pid=os.getpid())
    while not (here().folder / f"go-{what}").exists():
        time.sleep(0.003)
    return f"did {what}"


@holdfast.step(retry=holdfast.Retry(2, first="400ms", factor=1))
async def fails_once(what: str) -> str:
    here().effect(what)
    if holdfast.this_step().attempt == 1:
        raise ConnectionError("not yet")
    return f"did {what}"


@holdfast.agent
async def worked(what: str) -> list[str]:
    return [await scenes.act(f"{what}-1"), await held(what), await scenes.act(f"{what}-3")]


@holdfast.agent
async def worked_fragile(what: str) -> list[str]:
    return [await scenes.act(f"{what}-1"), await held_fragile(what), await scenes.act(f"{what}-3")]


@holdfast.agent
async def worked_in_thread(what: str) -> list[str]:
    return [await scenes.act(f"{what}-1"), await held_in_thread(what), await scenes.act(f"{what}-3")]


@holdfast.agent
async def hogging(what: str) -> list[str]:
    """Keeps the loop to itself until the test allows it to turn, the first time only."""
    first = await scenes.act(f"{what}-1")
    if not (here().folder / f"hogged-{what}").exists():
        (here().folder / f"hogged-{what}").touch()
        while not (here().folder / f"turn-{what}").exists():
            time.sleep(0.01)
    return [first, await scenes.act(f"{what}-2")]


@holdfast.agent
async def leaving(nap_s: float) -> str:
    await holdfast.spawn(napping, nap_s)
    return "left"


@holdfast.agent
async def tried_again(what: str) -> list[str]:
    both = await asyncio.gather(fails_once(f"{what}-a"), fails_once(f"{what}-b"))
    return [*both, await scenes.act(f"{what}-3")]


@holdfast.agent
async def quick(steps: int) -> list[str]:
    return [await scenes.act(str(number)) for number in range(steps)]


@holdfast.agent
async def napping(nap_s: float) -> list[str]:
    before = await scenes.act("before")
    await holdfast.sleep(nap_s)
    return [before, await scenes.act("after")]


@holdfast.agent
async def listening(messages: int = 1) -> list[str]:
    before = await scenes.act("before")
    return [before, *[await scenes.act(await holdfast.receive("topic", str)) for _ in range(messages)]]


@holdfast.agent
async def deaf() -> None:
    await holdfast.receive("never")


@holdfast.agent
async def limited() -> list[str]:
    try:
        async with holdfast.timeout(0.6):
            await holdfast.receive("never")
    except TimeoutError:
        return ["late", await scenes.act("after")]
    return []


@holdfast.agent
async def trying() -> list[str]:
    return [await fails_once("it")]


@holdfast.agent
async def parenting(nap_s: float) -> list[str]:
    return [*await napping(nap_s), await scenes.act("parent")]


@holdfast.step(retry=holdfast.Retry(2, first="1h", factor=1, max="1h"))
async def fails_for_long(what: str) -> str:
    here().effect(what)
    raise ConnectionError("not yet")


@holdfast.agent
async def several(nap_s: float) -> list[str]:
    return [*await asyncio.gather(fails_for_long("it"), after_a_while(nap_s)), "never"]


async def after_a_while(nap_s):
    await scenes.act("before")
    await holdfast.sleep(0.2)  # while the other branch waits for its next attempt
    await scenes.act("then")
    await holdfast.sleep(nap_s)
    return "never"


@holdfast.agent
async def asking() -> list[str]:
    return [await scenes.delicate("it")]


@holdfast.step
async def fill(number: int) -> str:
    here().effect(str(number))
    await asyncio.sleep(0.003)
    return "x" * 20_000


@holdfast.agent
async def bulky(steps: int) -> int:
    return sum([len(await fill(number)) for number in range(steps)])


@holdfast.step
async def read_all() -> str:
    here().effect("read")
    return "x" * 100_000  # too large for a row


@holdfast.agent
async def large() -> list[str]:
    text = await read_all()
    return [str(len(text)), await scenes.act(await holdfast.receive("topic", str))]


@holdfast.step
async def deadly(deaths: int) -> str:
    """Kills its process until it did so this often."""
    with (here().folder / "deaths").open("a") as file:
        file.write("x")
    if (here().folder / "deaths").stat().st_size <= deaths:
        await wait_for_file("die")
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@holdfast.agent
async def poison(deaths: int) -> str:
    return await deadly(deaths)


@holdfast.step
async def crash_here(what: str) -> str:
    """Kills its process as long as the test does not allow it to go on."""
    parent.say(body=what, pid=os.getpid())
    if not (here().folder / f"go-{what}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    await wait_for_file(f"end-{what}")
    return f"did {what}"


@holdfast.agent
async def suspect(what: str) -> str:
    return await crash_here(what)


AGENTS = {
    agent.name: agent
    for module in (scenes, sys.modules[__name__])
    for agent in vars(module).values()
    if isinstance(agent, holdfast.Agent)
}


def warm_up():
    """In the fork server: what every process would do first, done once."""
    for agent in AGENTS.values():
        agent.spec.signature.schema()


# Processes


def _settle(own_parent, folder, disk=None):
    global parent  # noqa: PLW0603 - one per process, and this is its beginning
    parent = own_parent
    scenes.place = Place(folder, disk)


def _memory():
    """What this process holds: blocks of Python's memory, and pages."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"blocks": sys.getallocatedblocks(), "kib": pages * os.sysconf("SC_PAGE_SIZE") // 1024}


def serve(
    own_parent, folder, agents, runs=(), disk=None, durability="process", suspect_wait_s=None, poll_s=None, **settings
):
    """A worker. It starts `runs` (agent, arguments, id), says that it is ready, and answers until it is told to end.

    SIGTERM ends it as a supervisor would; so does the word "close". `disk` is where the store is, if not in the folder.
    """
    writer.POLL_S = poll_s or writer.POLL_S
    _settle(own_parent, folder, disk)
    settings = {"park_grace_s": 0.0, "lease_ttl_s": LONG_S} | settings
    suspects.LONGEST_WAIT_S = suspect_wait_s or suspects.LONGEST_WAIT_S

    async def main():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop():
            parent.say(stopping=True)
            task.cancel()

        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            async with scenes.Client([AGENTS[name] for name in agents], durability=durability, **settings) as hf:
                for agent, arguments, run in runs:
                    await hf.start(AGENTS[agent], *arguments, id=run)
                parent.say(ready=True, pid=os.getpid())
                while (word := await parent.told(loop)) not in (None, "close"):
                    if word == "executions":
                        parent.say(executions=sorted(hf._worker.attempts))
                    elif word == "memory":
                        parent.say(**_memory())
        except asyncio.CancelledError:
            pass
        parent.say(closed=True)

    asyncio.run(main())


def hold(own_parent, folder, ttl_ms):
    """Claims a run by hand, says so, and when told appends one event to it under the epoch it has."""
    _settle(own_parent, folder)

    async def main():
        store = SQLiteStore(here().store, durability="process")
        await store.open()
        (row,) = await store.claim(["quick"], 1, ttl_ms)
        parent.say(claimed=row.id, epoch=row.lease_epoch)
        await parent.told(asyncio.get_running_loop())
        event = Event(row.next_seq, "step.completed", "act#0", {}, '"by hand"')
        try:
            await store.append(Append(row.id, row.lease_epoch, row.next_seq, [event]))
            parent.say(written=True)
        except LeaseLost as error:
            parent.say(refused=str(error))
        await store.close()

    asyncio.run(main())


def watch(own_parent, folder, run, allow):
    """A client that follows a run's events; `allow` is the kind on which it makes a file, and the file's name."""
    _settle(own_parent, folder)

    async def main():
        async with scenes.Client() as hf:
            parent.say(ready=True)
            async for event in hf.get(run).events():
                parent.say(kind=event.kind, at=time.time())
                if event.kind == allow[0]:
                    (here().folder / allow[1]).touch()

    asyncio.run(main())


def converse(own_parent, folder, run, messages, poll_s):
    """A client that sends one message after the other, each when the effect of the one before can be seen."""
    writer.POLL_S = poll_s
    _settle(own_parent, folder)

    async def main():
        async with scenes.Client() as hf:
            for number in range(messages):
                await hf.get(run).send("topic", f"message {number}")
                await here().effect_of(f"message {number}")
                parent.say(answered=number, at=time.monotonic())

    asyncio.run(main())


def start_and_send(own_parent, folder, runs):
    """Starts runs, one after the other, and sends each a message at once. Leases are prolonged every 200 s only."""
    _settle(own_parent, folder)

    async def main():
        async with scenes.Client([listening], park_grace_s=LONG_S, lease_ttl_s=10 * LONG_S) as hf:
            results = []
            for number in range(runs):
                run = await hf.start(listening, id=f"run-{number}")
                await run.send("topic", run.id)
                results.append(await run.result(timeout=30))
            parent.say(results=results)

    asyncio.run(main())
