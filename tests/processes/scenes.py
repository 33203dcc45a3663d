"""The canonical scenarios: one agent for each shape of durable work, and the process that carries one through."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from tests.engine import schedules
from tests.processes.ledger import Place

import holdfast
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SQLiteStore

place = Place("")  # of this process; set anew in every child

# Steps: each has its effect once per attempt


@holdfast.step
async def act(what: str) -> str:
    place.effect(what)
    return f"did {what}"


@holdfast.step
def act_in_thread(what: str) -> str:
    place.effect(what)
    return f"did {what}"


@holdfast.step(retry=holdfast.Retry(4, first="20ms", factor=1))
async def fails_twice(what: str) -> str:
    place.effect(what)
    if holdfast.this_step().attempt < 3:
        raise ConnectionError("not yet")
    return f"did {what}"


async def look(what: str) -> str | holdfast.NotDone:
    token = holdfast.idempotency_key()
    return f"did {what}" if token in {line.idempotency_key for line in place.lines()} else holdfast.NOT_DONE


@holdfast.step(in_doubt=look)
async def probed(what: str) -> str:
    place.effect(what)
    return f"did {what}"


@holdfast.step(in_doubt="fail")
async def fragile(what: str) -> str:
    place.effect(what)
    return f"did {what}"


@holdfast.step(in_doubt="ask")
async def delicate(what: str) -> str:
    place.effect(what)
    return f"did {what}"


@holdfast.step(timeout="20ms", retry=holdfast.Retry(2, first="5ms"))
async def slow_at_first(what: str) -> str:
    place.effect(what)
    if holdfast.this_step().attempt == 1:
        await asyncio.Event().wait()
    return f"did {what}"


# Agents


@holdfast.agent
async def sequential() -> list[str]:
    return [await act("one"), await act_in_thread("two"), await act("three")]


async def chain(name: str) -> str:
    first = await act(f"{name}1")
    second = await act(f"{name}2 after {first}")
    return await act(f"{name}3 after {second}")


@holdfast.agent
async def parallel() -> list[str]:
    return list(await asyncio.gather(*(chain(name) for name in "abc")))


@holdfast.agent
async def retry() -> list[str]:
    return [await act("before"), await fails_twice("it"), await act("after")]


@holdfast.agent
async def sleep() -> list[str]:
    before = await act("before")
    began = holdfast.now()
    await holdfast.sleep("30ms")
    assert (holdfast.now() - began).total_seconds() >= 0.03, "a timer fired early"
    return [before, await act("after")]


@holdfast.agent
async def grandchild(name: str) -> str:
    return await act(f"{name} below")


@holdfast.agent
async def middle(name: str) -> str:
    first = await act(f"{name} first")
    return f"{first}, {await grandchild(name)}, {await act(f'{name} last')}"


@holdfast.agent
async def child() -> list[str]:
    spawned = await holdfast.spawn(middle, "spawned")
    called = await middle("called")
    return [called, await spawned, await act("after")]


@holdfast.agent
async def messages() -> list[str]:
    out = [await act(f"got {await holdfast.receive('a', str)}")]
    out.append(await act(f"then {await holdfast.receive('b', str)} {await holdfast.receive('a', str)}"))
    return [*out, *holdfast.receive_nowait("never", str)]


@holdfast.agent
async def checkpoints() -> list[str]:
    state = await holdfast.restore([])
    while len(state) < 4:
        state = await holdfast.checkpoint([*state, await act(f"round {len(state)}")])
    return [*state, await act("after")]


async def cautious(step) -> list[str]:
    before = await act("before")
    try:
        middle = await step("it")
    except (holdfast.StepFailed, holdfast.InDoubt):
        middle = "in doubt"
    return [before, middle, await act("after")]


@holdfast.agent
async def doubt_retry() -> list[str]:
    return await cautious(act)


@holdfast.agent
async def doubt_probe() -> list[str]:
    return await cautious(probed)


@holdfast.agent
async def doubt_fail() -> list[str]:
    return await cautious(fragile)


@holdfast.agent
async def doubt_ask() -> list[str]:
    return await cautious(delicate)


@holdfast.agent
async def timeout() -> list[str]:
    out = [await slow_at_first("slow")]
    async with holdfast.timeout("1h"):
        out.append(await act("inside"))
    try:
        async with holdfast.timeout("20ms"):
            await holdfast.receive("never")
    except TimeoutError:
        out.append("late")
    try:
        await holdfast.receive("never", timeout="10ms")
    except TimeoutError:
        out.append(await act("after"))
    return out


@holdfast.agent
async def notes() -> list[str]:
    await holdfast.note("begins", at=1)
    out = [await act("new" if holdfast.patched("new way") else "old")]
    await holdfast.note("goes on")
    out.append(str(holdfast.patched("new way")))
    return [*out, str(holdfast.uuid4() == holdfast.uuid4()), await act("after")]


ALL = [sequential, parallel, retry, sleep, child, messages, checkpoints, doubt_retry, doubt_probe, doubt_fail,
       doubt_ask, timeout, notes]  # fmt: skip
AGENTS = {agent.name: agent for agent in ALL}


def warm_up():
    """In the fork server: what every process would do first, done once."""
    for agent in (*ALL, middle, grandchild, *schedules.ALL.values()):
        agent.spec.signature.schema()


# What the world does meanwhile, in every process that carries the run: all of it may be done again


async def send_messages(hf, run):
    with contextlib.suppress(holdfast.RunFinished):
        await run.send("a", "first", key="1")
        await place.effect_of("got first")
        await run.send("a", "second", key="2")
        await run.send("b", "third", key="3")


async def answer_truthfully(hf, run):
    while True:
        for question in await hf.approvals():
            token = f"{question.run}\t{question.key}\t"
            happened = any("\t".join(map(str, line)).startswith(token) for line in place.lines())
            with contextlib.suppress(holdfast.AlreadyDecided):
                await hf.answer(question, {"result": "did it"} if happened else "run", by="ana")
        await asyncio.sleep(0.005)


WORLD = {"messages": send_messages, "doubt_ask": answer_truthfully}


def kill():
    """By the signal that cannot be caught."""
    os.kill(os.getpid(), signal.SIGKILL)


class Fatal:
    """Ends this process before or after its n-th commit to the journal."""

    def __init__(self, commit=None, when="", end=kill):
        self._fatal, self._end, self.commits = (commit, when), end, 0

    def before_commit(self, writes):
        self._at("before")

    def after_commit(self, writes):
        self._at("after")
        self.commits += 1

    def _at(self, when):
        if self._fatal == (self.commits, when):
            self._end()


class Client(holdfast.Client):
    """A client whose store has these faults. Flushing is left out: it matters when the power goes, not the process."""

    def __init__(self, agents=(), faults=None, durability="process", **settings):
        url = place.url or f"sqlite:{place.store}"
        super().__init__(url, agents=agents, settings=holdfast.Settings(**settings))
        self._faults, self._durability = faults, durability

    def _make_store(self):
        if place.url is not None:
            return PostgresStore.from_url(place.url, faults=self._faults)
        return SQLiteStore(place.store, durability=self._durability, faults=self._faults)


def play(parent, folder, agent, commit=None, effect=None, when="", grace_s=0.0, kindly=False, url=None):
    """Start the run or go on with it, until it has its result; die at one point, or close there, if one is named."""
    global place  # noqa: PLW0603 - one per process, and this is its beginning
    place = Place(folder, url=url)
    place.kill_at = None if effect is None else (effect, when)

    async def main():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        faults = Fatal(commit, when, (lambda: loop.call_soon_threadsafe(task.cancel)) if kindly else kill)
        try:
            async with Client([AGENTS[agent]], faults, park_grace_s=grace_s) as hf:
                run = await hf.start(AGENTS[agent], id="run")
                world = asyncio.create_task(WORLD[agent](hf, run)) if agent in WORLD else None
                try:
                    result = await run.result(timeout=20)
                finally:
                    if world is not None:
                        world.cancel()
                        await asyncio.gather(world, return_exceptions=True)
                parent.say(result=result, commits=faults.commits, effects=place.effects)
        except asyncio.CancelledError:
            parent.say(closed=True)

    asyncio.run(main())


class Lives:
    """Writes down what each life of a schedule's agent sees, the moment it sees it."""

    def __init__(self):
        self._numbers = {}
        # Opened here and not in agent code, where that would be told.
        self._file = os.open(place.folder / "lives", os.O_APPEND | os.O_WRONLY | os.O_CREAT)
        self._begin, self._see = schedules.begin_life, schedules.see
        schedules.begin_life, schedules.see = self.begin_life, self.see

    def begin_life(self):
        self._begin()
        self._numbers[id(schedules._life.get())] = len(self._numbers)
        self._write("begins")

    def see(self, value):
        self._write(f"sees {value}")
        return self._see(value)

    def _write(self, text):
        line = f"{os.getpid()}.{self._numbers[id(schedules._life.get())]} {text}\n"
        os.write(self._file, line.encode())


async def send_mail(run):
    with contextlib.suppress(holdfast.RunFinished):
        for number in range(6):
            await run.send("mail", f"m{number}", key=str(number))
            await asyncio.sleep(schedules.noise.random() * 0.01)


def carry_schedule(parent, folder, name, seed):
    """Start or go on with one of the random schedules; every body that begins leaves a line in the ledger."""
    global place  # noqa: PLW0603 - one per process, and this is its beginning
    place = Place(folder)
    schedules.noise.seed(seed)
    Lives()

    def observe(spec, key):
        place.write(f"run\t{key}\t{key}\t1\t{os.getpid()}\t{spec.name}")

    async def main():
        grace_s = 0.0 if seed < 0.5 else 60.0
        async with Client([schedules.ALL[name]], park_grace_s=grace_s, observe=observe) as hf:
            parent.say(begun=True)
            run = await hf.start(schedules.ALL[name], id="run")
            sender = asyncio.create_task(send_mail(run)) if name == "mailing" else None
            result = await run.result(timeout=20)
            if sender is not None:
                await sender
            parent.say(result=result)

    asyncio.run(main())
