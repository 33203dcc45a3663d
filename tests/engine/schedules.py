"""Agents whose steps take random times: the shapes of concurrency that must resume to the same results and winners.

Each life of an agent, from its first line on, has a list of its own, and `see` adds to it what the code has observed, in
the order in which it did. What one life has seen, the next must see again, before it sees more.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable

import holdfast

noise = random.Random()
longest_s = 0.004  # that a body takes
lives: dict[str, list[list[str]]] = {}  # by run: what each of its lives has seen
new_life: Callable[[], list[str]] = list  # another kind of list where the process is killed
_life: contextvars.ContextVar[list[str]] = contextvars.ContextVar("life")


def begin_life():
    _life.set(new_life())
    lives.setdefault(holdfast.this_run().id, []).append(_life.get())


def see(value):
    _life.get().append(str(value))
    return value


def length_s() -> float:
    """How long a body takes that begins now; another function where that must not depend on chance."""
    return noise.choice([0, 0, noise.random() * longest_s])


async def _nap():
    await asyncio.sleep(length_s())


@holdfast.step
async def search(q: str) -> str:
    await _nap()
    return f"found {q}"


@holdfast.step
async def summarise(text: str) -> str:
    await _nap()
    return f"short {text}"


@holdfast.step
async def save(text: str) -> str:
    await _nap()
    return f"saved {text}"


@holdfast.step
async def work(what: str) -> str:
    await _nap()
    return what


async def branch(q: str) -> str:
    return see(await save(see(await summarise(see(await search(q))))))


@holdfast.agent
async def parallel() -> list[str]:
    begin_life()
    return list(await asyncio.gather(*(branch(q) for q in "xyz")))


async def deep(levels: int, name: str) -> str:
    if levels == 0:
        return see(await work(see(await work(name))))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(deep(levels - 1, name))
        group.create_task(work(f"beside {name}"))
    return see(task.result())


@holdfast.agent
async def nested() -> list[str]:
    begin_life()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(deep(n, f"n{n}")) for n in range(4)]
    return [task.result() for task in tasks]


@holdfast.agent
async def races() -> list[str]:
    begin_life()
    out = []
    for round_ in range(3):
        tasks = [asyncio.create_task(deep(n, f"r{round_}.{n}")) for n in range(3)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        out.append(see(await work("+".join(sorted(task.result() for task in done)))))
    for next_done in asyncio.as_completed([asyncio.create_task(deep(n, f"c{n}")) for n in range(4)]):
        out.append(see(await next_done))
        out.append(see(await work(f"after {out[-1]}")))
    return out


@holdfast.agent
async def queues() -> list[str]:
    begin_life()
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=2)
    limit = asyncio.Semaphore(2)

    async def produce(n: int) -> None:
        for item in range(3):
            async with limit:
                see(f"limit {n}")
                await queue.put(see(await work(f"{n}.{item}")))

    producers = [asyncio.create_task(produce(n)) for n in range(3)]
    out = [see(await work(f"got {see(await queue.get())}")) for _ in range(9)]
    await asyncio.gather(*producers)
    return out


@holdfast.agent
async def cancellation() -> list[str]:
    begin_life()
    out = []

    async def worker(name: str) -> str:
        try:
            see(await work(f"{name} one"))
            see(await work(f"{name} two"))
            see(await work(f"{name} three"))
        except asyncio.CancelledError:
            out.append(see(await work(f"{name} cleaned up")))
            raise
        return name

    for round_ in range(3):
        tasks = [asyncio.create_task(worker(f"{round_}.{n}")) for n in range(3)]
        out.append(see(await work(f"round {round_}")))
        tasks[round_].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        out.append(see(",".join(r if isinstance(r, str) else "cancelled" for r in results)))
        try:
            async with asyncio.timeout(0.002):
                out.append(see(await work("in time")))
        except TimeoutError:
            out.append(see("late"))
    return out


@holdfast.agent
async def locks() -> list[str]:
    begin_life()
    lock, started, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
    out: list[str] = []

    async def one(n: int) -> None:
        await started.wait()
        for turn in range(2):
            async with lock:
                out.append(see(await work(f"lock {n}.{turn}")))
            async with condition:
                condition.notify_all()

    tasks = [asyncio.create_task(one(n)) for n in range(3)]
    see(await work("start"))
    started.set()
    async with condition:
        await asyncio.wait_for(condition.wait_for(lambda: len(out) >= 3), 60)
    see(f"condition {out}")
    see(await asyncio.wait_for(asyncio.shield(work("shielded")), 60))
    await asyncio.gather(*tasks)
    return out


@holdfast.agent
async def mixed() -> list[str]:
    begin_life()
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)

    async def racer(name: str) -> str:
        tasks = {asyncio.create_task(work(f"{name}{n}")) for n in range(3)}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        winners = [see(task.result()) for task in done]
        await queue.put("+".join(winners))
        return see(await work(f"{name} won by {winners[0]}"))

    async def collect() -> list[str]:
        return [see(await queue.get()) for _ in range(3)]

    first, others = await asyncio.gather(collect(), asyncio.gather(*(racer(name) for name in "abc")))
    return [*first, *others]


@holdfast.agent
async def ticking() -> list[str]:
    begin_life()
    dice, out = holdfast.rng(), []
    for round_ in range(4):
        ticks = [asyncio.create_task(asyncio.sleep(dice.random() * 0.004, f"t{n}")) for n in range(2)]
        steps = [asyncio.create_task(work(f"s{round_}.{n}")) for n in range(2)]
        for done in asyncio.as_completed([*ticks, *steps]):
            out.append(see(await done))
        try:
            out.append(see(await asyncio.wait_for(work(f"w{round_}"), dice.random() * 0.003)))
        except TimeoutError:
            out.append(see("late"))
    return out


@holdfast.agent
async def mailing() -> list[str]:
    begin_life()
    out: list[str] = []
    while len(out) < 6:
        letter = asyncio.create_task(holdfast.receive("mail", str))
        step = asyncio.create_task(work(f"s{len(out)}"))
        done, pending = await asyncio.wait({letter, step}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        see(" ".join(sorted(task.result() for task in done)))
        out += [letter.result()] if letter in done else []
        out += [see(text) for text in holdfast.receive_nowait("mail", str)]
        try:
            out.append(see(await holdfast.receive("mail", str, timeout=0.002)))
        except TimeoutError:
            see("no mail")
    return out


@holdfast.agent
async def waiting() -> list[str]:
    begin_life()
    out = []

    async def sleeper(n: int) -> str:
        await holdfast.sleep(0.001 * n)
        return see(await work(f"slept {n}"))

    for round_ in range(2):
        for done in asyncio.as_completed([asyncio.create_task(sleeper(n)) for n in range(3)]):
            out.append(see(await done))
        try:
            async with holdfast.timeout(0.004):
                out.append(see(await deep(1, f"d{round_}")))
        except TimeoutError:
            out.append(see("late"))
    return out


def _same(wanted):
    wanted = sorted(wanted)
    return lambda result: sorted(result) == wanted


CHECKS = {
    "parallel": lambda result: result == [f"saved short found {q}" for q in "xyz"],
    "nested": lambda result: result == [f"n{n}" for n in range(4)],
    "races": lambda result: len(result) == 11,
    "queues": _same(f"got {n}.{i}" for n in range(3) for i in range(3)),
    "cancellation": lambda result: len(result) >= 9,
    "locks": _same(f"lock {n}.{turn}" for n in range(3) for turn in range(2)),
    "mixed": lambda result: len(result) == 6,
    "ticking": lambda result: len(result) == 20,
    "mailing": lambda result: result == [f"m{n}" for n in range(6)],
    "waiting": lambda result: len(result) == 8,
}
ALL = {
    agent.name: agent
    for agent in (parallel, nested, races, queues, cancellation, locks, mixed, ticking, mailing, waiting)
}
# These are what plain asyncio promises of itself; the others are made of the same and have fewer rounds.
_OFTEN = ("parallel", "nested", "races", "queues", "cancellation")


def rounds(name, most):
    """How often a scenario is tried."""
    return most if name in _OFTEN else most // 4
