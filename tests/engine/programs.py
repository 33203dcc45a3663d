"""Random agents: any mixture of asyncio's tools and durable calls, made from a number, the same in every life."""

import asyncio
import contextlib
import contextvars
import random

from tests.engine.schedules import begin_life, see, work

import holdfast
from holdfast.errors import Suspended

scale = 1.0  # of all times of a program
LEAVES = (
    "step", "tick", "turns", "sleep", "note", "callback", "chain", "look", "receive", "put", "get", "set", "wait", "fact",
    "child", "offspring", "thread",
)  # fmt: skip
BLOCKS = (
    "gather", "race", "group", "spawn", "limit", "deadline", "lock", "tidy", "shield", "scope", "as_completed", "queue_up",
    "orphans",
)  # fmt: skip


def plan(dice, depth, names):
    """A block of a program: a list of [what, name, parameter, blocks inside]."""
    block = []
    for _ in range(dice.randint(1, 4)):
        names[0] += 1
        if depth and dice.random() < 0.5:
            inside = [plan(dice, depth - 1, names) for _ in range(dice.randint(2, 3))]
            block.append([dice.choice(BLOCKS), f"n{names[0]}", dice.random(), inside])
        else:
            block.append([dice.choice(LEAVES), f"n{names[0]}", dice.random(), []])
    return block


@holdfast.step
def threaded(what: str) -> str:
    return what


class Program:
    """One life of one program."""

    def __init__(self, depth):
        self.depth, self.over = depth, False
        self.queue, self.mutex, self.event = asyncio.Queue(), asyncio.Lock(), asyncio.Event()
        self.left = []  # tasks that were started and not waited for

    async def run(self, block):
        for what, name, size, inside in block:
            try:
                see(f"{name} {what} {await getattr(self, what)(name, size, inside)}")
            except (TimeoutError, holdfast.HoldfastError) as error:
                see(f"{name} {what} {type(error).__name__}")
            except asyncio.CancelledError:
                see(f"{name} {what} cancelled")
                raise
        return block[0][1]

    # Leaves

    async def step(self, name, size, inside):
        return await work(name)

    async def tick(self, name, size, inside):
        return await asyncio.sleep(size * 0.003 * scale, name)

    async def turns(self, name, size, inside):
        for _ in range(int(size * 5)):
            await asyncio.sleep(0)

    async def sleep(self, name, size, inside):
        await holdfast.sleep(size * 0.003 * scale)

    async def note(self, name, size, inside):
        await holdfast.note(name)

    async def fact(self, name, size, inside):
        return holdfast.rng().random(), holdfast.now()

    async def callback(self, name, size, inside):
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def hop(left):
            loop.call_soon(hop, left - 1) if left else done.set()

        hop(int(size * 4))
        if size < 0.5:
            await done.wait()
        return await work(name)

    async def chain(self, name, size, inside):
        """A result that reaches its task by up to 200 callbacks, or goes on while the task does something else."""
        loop, depth, carried = asyncio.get_running_loop(), int(size * 200), asyncio.ensure_future(work(name))
        if depth % 3 == 0:
            for _ in range(depth):
                carried = asyncio.shield(carried)
        elif depth % 3 == 1:
            for _ in range(depth):
                carried = asyncio.gather(carried)
        else:
            seen = contextvars.copy_context()

            def hop(left):
                if left:
                    loop.call_soon(hop, left - 1)
                elif not self.over:  # no task is in this chain: nothing stops it when the run leaves memory
                    seen.run(see, f"{name} hopped")

            loop.call_soon(hop, depth, context=contextvars.Context() if depth % 2 else None)
        await carried

    async def thread(self, name, size, inside):
        return await threaded(name)

    async def child(self, name, size, inside):
        return await program(int(size * 10**9), self.depth - 1) if self.depth > 1 else await work(name)

    async def offspring(self, name, size, inside):
        """A child that is waited for later, or never."""
        if self.depth < 2:
            return await work(name)
        spawned = await holdfast.spawn(program, int(size * 10**9), self.depth - 1)
        return await spawned if size < 0.5 else "left alone"

    async def look(self, name, size, inside):
        return holdfast.receive_nowait("mail", str)

    async def receive(self, name, size, inside):
        return await holdfast.receive("mail", str, timeout=size * 0.003 * scale)

    async def put(self, name, size, inside):
        self.queue.put_nowait(await work(name) if size < 0.5 else name)

    async def get(self, name, size, inside):
        return await asyncio.wait_for(self.queue.get(), size * 0.003 * scale)

    async def set(self, name, size, inside):
        self.event.set() if size < 0.5 else self.event.clear()

    async def wait(self, name, size, inside):
        async with asyncio.timeout(size * 0.003 * scale):
            return await self.event.wait()

    # Blocks

    async def orphans(self, name, size, inside):
        """A child that is started while the block, or the run, is being stopped."""
        try:
            return await self.run(inside[0])
        finally:
            if self.depth > 1:
                see(await program(int(size * 10**9), 1))

    async def gather(self, name, size, inside):
        ends = await asyncio.gather(*map(self.run, inside), return_exceptions=size < 0.7)
        return [end if isinstance(end, str) else type(end).__name__ for end in ends]

    async def race(self, name, size, inside):
        tasks = {asyncio.create_task(self.run(block)) for block in inside}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel() if size < 0.6 else self.left.append(task)
        return sorted(task.result() for task in done if not task.cancelled())

    async def group(self, name, size, inside):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.run(block)) for block in inside]
            if size < 0.3:
                await work(name)
                tasks[0].cancel()
        return [task.cancelled() for task in tasks]

    async def spawn(self, name, size, inside):
        self.left += [asyncio.create_task(self.run(block)) for block in inside]
        if len(self.left) > 2:
            self.left.pop(0).cancel()

    async def limit(self, name, size, inside):
        async with asyncio.timeout(size * 0.006 * scale):
            return await self.run(inside[0])

    async def deadline(self, name, size, inside):
        async with holdfast.timeout(size * 0.006 * scale):
            return await self.run(inside[0])

    async def lock(self, name, size, inside):
        async with asyncio.timeout((0.05 + size * 0.003) * scale):  # a lock inside a lock waits for itself
            await self.mutex.acquire()
        try:
            return await self.run(inside[0])
        finally:
            self.mutex.release()

    async def tidy(self, name, size, inside):
        try:
            return await self.run(inside[0])
        finally:
            see(await work(f"{name} tidy"))

    async def shield(self, name, size, inside):
        task = asyncio.create_task(self.run(inside[0]))
        try:
            return await asyncio.wait_for(asyncio.shield(task), size * 0.003 * scale)
        except TimeoutError:
            return await task

    async def scope(self, name, size, inside):
        with holdfast.scope(name):
            return await self.run(inside[0])

    async def as_completed(self, name, size, inside):
        out = []
        for end in asyncio.as_completed([asyncio.create_task(self.run(block)) for block in inside]):
            with contextlib.suppress(asyncio.CancelledError):
                out.append(await end)
        return out

    async def queue_up(self, name, size, inside):
        queue, limit = asyncio.Queue(1), asyncio.Semaphore(1 + int(size * 2))

        async def produce(block):
            async with limit:
                await queue.put(await self.run(block))

        tasks = [asyncio.create_task(produce(block)) for block in inside]
        try:
            return [await queue.get() for _ in tasks]
        finally:
            for task in tasks:
                task.cancel()
            self.left += tasks  # Python 3.11's wait_for may have swallowed that: at the end they are told again


@holdfast.agent
async def program(seed: int, depth: int = 3) -> str:
    begin_life()
    life = Program(depth)
    names = [0]
    try:
        async with asyncio.timeout((5 + seed % 997 / 997) * scale):  # it may be made so that it waits for itself
            await life.run(plan(random.Random(seed), depth, names))
    except TimeoutError:
        pass
    except BaseException as error:
        if isinstance(error, Suspended) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Suspended)):
            life.over = True  # and must see no more
            raise
        if not isinstance(error, BaseExceptionGroup):
            raise
    for task in life.left:
        task.cancel()
    see([str(type(end)) for end in await asyncio.gather(*life.left, return_exceptions=True)])
    return see(await work("end"))  # so that no program ends in the moment in which it begins
