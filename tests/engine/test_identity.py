"""Identity: a call's key is its path of tasks, its name and its number, whatever the timing; and plain asyncio works."""

import asyncio
import contextvars

import pytest
from tests.engine.lives import history

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.step
async def slow(what: str) -> str:
    await asyncio.sleep(0.005)
    return what


class Tool:
    @holdfast.step
    async def use(self, what: str) -> str:
        return what


def keys_of(agent, *kinds, **options):
    """Run the agent to its end: its result, and the keys of its outcomes in order."""

    async def main():
        async with holdfast.testing.open(agents=[agent], **options) as hf:
            run = await hf.start(agent, id="r")
            result = await run.result(timeout=20)
            return result, [event.key for event in await history(run, *(kinds or ("step.completed",)))]

    return asyncio.run(main())


def crash_everywhere(agent, expected):
    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == expected
            assert not await history(run, "foreign")

    asyncio.run(main())


def test_keys_are_paths_of_tasks():
    """A key names the tasks that lead to the call, numbered as created, and the call, numbered as made."""

    async def summarise_all() -> None:
        await work("a")
        await asyncio.gather(inner(), inner(), work("b"))

    async def inner() -> None:
        await work("c")
        await Tool().use("d")

    @holdfast.agent
    async def agent() -> None:
        await work("first")
        async with asyncio.TaskGroup() as group:
            group.create_task(summarise_all())
            group.create_task(summarise_all())
        await work("last")

    _, keys = keys_of(agent)
    tree = [
        f"summarise_all#{n}/{tail}"
        for n in (0, 1)
        for tail in ("work#0", "work#1", "inner#0/work#0", "inner#0/use#0", "inner#1/work#0", "inner#1/use#0")
    ]
    assert sorted(keys) == sorted(["work#0", *tree, "work#1"])


def test_a_key_is_taken_at_the_call():
    """The order of the calls counts, not the order in which they are awaited or end."""

    @holdfast.agent
    async def agent() -> list[str]:
        first, second, third = slow("first"), work("second"), slow("third")
        return [await third, await second, await first]

    result, _ = keys_of(agent)
    assert result == ["third", "second", "first"]

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            await run.result(timeout=20)
            return {event.key: event.data["input"] for event in await history(run, "step.completed")}

    inputs = asyncio.run(main())
    assert {key: text for key, text in inputs.items() if "first" in text or "third" in text} == {
        "slow#0": "what='first'", "slow#1": "what='third'",
    }  # fmt: skip


def test_verbs_belong_to_their_task():
    """A verb called in a callback or a thread is refused, and the run goes on."""

    @holdfast.agent
    async def agent() -> list[str]:
        loop, out = asyncio.get_running_loop(), []

        def attempt(where: str) -> None:
            try:
                holdfast.uuid4()
            except holdfast.NotInRun as error:
                out.append(where if "belongs to" in str(error) else str(error))

        loop.call_soon(attempt, "callback")
        await work("a turn for the callback")
        await asyncio.to_thread(attempt, "thread")
        return out

    assert keys_of(agent)[0] == ["callback", "thread"]


def test_a_task_keeps_its_identity_when_the_context_of_another_is_copied_into_it():
    """A framework that copies context variables between tasks moves no key: steps, scopes and tasks are the task's own."""

    @holdfast.agent
    async def agent() -> None:
        async def copied_from() -> contextvars.Context:
            with holdfast.scope("elsewhere"):
                return contextvars.copy_context()

        context = await asyncio.create_task(copied_from())
        with holdfast.scope("mine"):
            for variable, value in context.items():
                variable.set(value)
            await work("step")
            await asyncio.create_task(two())
            with holdfast.scope("inner"):
                await work("step")
            await asyncio.sleep(0.001)

    async def two() -> None:
        await work("in a task")

    assert keys_of(agent)[1] == ["mine/work#0", "mine/two#0/work#0", "mine/inner/work#0"]


def test_a_call_made_in_one_task_may_be_awaited_in_another():
    """A call has its key from where it was made, and may be handed to another task to be awaited, once."""

    @holdfast.agent
    async def agent() -> list[str]:
        call = work("handed over")

        async def other() -> str:
            return await call

        out = [await asyncio.create_task(other())]
        try:
            await call
        except RuntimeError as error:
            out.append("twice" if "awaited before" in str(error) else str(error))
        return out

    result, keys = keys_of(agent)
    assert result == ["handed over", "twice"]
    assert keys == ["work#0"]


def test_sets_of_tasks_iterate_in_order_of_creation():
    """Tasks and calls hash by creation, so a set of them iterates the same way in every life."""
    orders = []

    @holdfast.agent
    async def agent() -> list[str]:
        tasks = {asyncio.create_task(slow(f"{n}"), name=f"{n}") for n in range(40)}
        orders.append([task.get_name() for task in tasks])
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        orders[-1] += [task.get_name() for task in done] + [task.get_name() for task in pending]
        out = [task.result() for task in done]
        for task in pending:  # an order that code depends on
            out.append(await work(await task))
        await holdfast.sleep("1h")
        return out

    keys_of(agent)
    assert len(orders) == 2
    assert orders[0] == orders[1]


@pytest.mark.parametrize("of", ["tasks", "steps"])
def test_as_completed(of):
    """as_completed over tasks or steps gives the same winners in every life."""
    seen: list[list[str]] = []

    @holdfast.agent
    async def agent() -> list[str]:
        seen.append([])
        calls = [slow("a"), work("b"), slow("c"), work("d")]
        for done in asyncio.as_completed([asyncio.create_task(call) for call in calls] if of == "tasks" else calls):
            seen[-1].append(await done)
            await holdfast.sleep("1h")
        return seen[-1]

    result, _ = keys_of(agent)
    assert sorted(result) == list("abcd")
    assert len(seen) == 5
    for life in seen:
        assert life == result[: len(life)]


@pytest.mark.slow
def test_the_tools_of_asyncio():
    """wait_for, shield, Event, Lock, Condition, Barrier, Semaphore and Queue work across a crash at every commit."""

    @holdfast.agent
    async def agent() -> list[str]:
        out: list[str] = []
        lock, event, condition, barrier = asyncio.Lock(), asyncio.Event(), asyncio.Condition(), asyncio.Barrier(3)

        async def one(n: int) -> None:
            async with lock:
                out.append(await slow(f"locked {n}"))
            await barrier.wait()
            async with condition:
                await condition.wait_for(lambda: len(out) >= 4)
                out.append(f"condition {n}")
                condition.notify_all()
            await event.wait()

        tasks = [asyncio.create_task(one(n)) for n in range(3)]
        shielded = asyncio.shield(tasks[0])
        out.append(await asyncio.wait_for(slow("waited"), 60))
        async with condition:
            condition.notify_all()
        await work("more")
        event.set()
        await asyncio.gather(shielded, *tasks[1:])
        return sorted(out)

    conditions, locked = [f"condition {n}" for n in range(3)], [f"locked {n}" for n in range(3)]
    crash_everywhere(agent, [*conditions, *locked, "waited"])


def test_a_scope_pins_keys():
    """Calls in a scope have its name as their path, whatever tasks are around them."""

    @holdfast.agent
    async def agent() -> None:
        async def framework(depth: int) -> None:
            if depth:
                await asyncio.create_task(framework(depth - 1))
                return
            with holdfast.scope("tool:42"):
                await work("inside")
                await asyncio.gather(work("beside"), private())
                with holdfast.scope("part"):
                    await work("nested")

        async def private() -> None:
            await work("in a task inside")

        await framework(2)
        with holdfast.scope("tool:42"):
            await work("again")

    _, keys = keys_of(agent)
    assert sorted(keys) == sorted(
        ["tool:42/work#0", "tool:42/work#1", "tool:42/private#0/work#0", "tool:42/part/work#0", "tool:42/work#2"]
    )


def test_a_place_names_what_begins_there():
    """The name tells the tasks and the number, as a key does; in a scope it is told from the scope on."""

    @holdfast.agent
    async def agent() -> list[str]:
        async def branch() -> list[str]:
            with holdfast.scope("pinned"):
                return [holdfast.place("talk"), await asyncio.create_task(inner())]

        async def inner() -> str:
            return holdfast.place("talk")

        first = await asyncio.gather(inner(), inner())
        return [holdfast.place("talk"), holdfast.place("talk"), *first, *await asyncio.create_task(branch())]

    assert keys_of(agent)[0] == ["talk#0", "talk#1", "inner#0/talk#0", "inner#1/talk#0", "talk#0", "inner#0/talk#0"]


def test_a_scope_is_open_once():
    """The same scope entered twice at once is an error, and bad names are refused."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []

        async def enter() -> None:
            with holdfast.scope("one"):
                await work("inside")

        ends = await asyncio.gather(enter(), enter(), return_exceptions=True)
        out += [type(end).__name__ for end in ends]
        await enter()
        for name in ("", "a/b", "a#b", "x" * 201, None):
            try:
                with holdfast.scope(name):
                    pass
            except holdfast.BadArguments:
                out.append("bad")
        return out

    assert keys_of(agent)[0] == ["NoneType", "HoldfastError", *["bad"] * 5]


async def test_a_task_factory_from_before_keeps_working():
    """A task factory installed before ours still makes the tasks outside runs."""
    made = []

    def library(loop, coro, **kw):
        task = asyncio.Task(coro, loop=loop, **kw)
        made.append(task)
        return task

    @holdfast.agent
    async def agent() -> list[str]:
        return list(await asyncio.gather(work("a"), work("b")))

    asyncio.get_running_loop().set_task_factory(library)
    async with holdfast.testing.open(agents=[agent]) as hf:
        assert await (await hf.start(agent, id="r")).result(timeout=20) == ["a", "b"]
        count = len(made)

        async def mine() -> int:
            return 7

        task = asyncio.create_task(mine(), name="mine")
        assert await task == 7
        assert made[count:] == [task]


def test_tasks_of_a_run_keep_their_names_and_contexts():
    """A task's name and context variables are what asyncio would give it."""
    variable = contextvars.ContextVar("variable", default="default")

    @holdfast.agent
    async def agent() -> list[str]:
        variable.set("root")
        other = contextvars.copy_context()
        other.run(variable.set, "other")

        async def look() -> str:
            task = asyncio.current_task()
            assert task is not None
            mine = variable.get()
            variable.set("changed")
            return f"{task.get_name()} {mine}"

        out = [await asyncio.create_task(look(), name="a"), await asyncio.create_task(look(), name="b", context=other)]
        return [*out, variable.get()]

    assert keys_of(agent)[0] == ["a root", "b other", "root"]


def test_a_context_given_to_a_task_is_used_by_it():
    """What a task sets in the context it was given is seen by whoever gave it, as in asyncio."""
    variable = contextvars.ContextVar("variable", default="default")

    @holdfast.agent
    async def agent() -> str:
        context = contextvars.copy_context()

        async def change() -> None:
            variable.set("changed")
            await work("in the context")

        await asyncio.create_task(change(), context=context)
        await work("still me")
        return context[variable]

    result, keys = keys_of(agent)
    assert result == "changed"
    assert keys == ["change#0/work#0", "work#0"]


def test_a_task_with_an_empty_context_belongs_to_the_run():
    """A task that is given a context of its own is one of the run: a step in it is recorded, not merely run."""

    @holdfast.agent
    async def agent() -> list[str]:
        async def inner() -> str:
            with holdfast.scope("pinned"):
                await work("one")
                return await work("two")

        given = contextvars.Context()
        first = asyncio.create_task(inner(), context=given)
        second = asyncio.create_task(work("three"), context=given)
        return [await first, await second, str(len(given))]

    result, keys = keys_of(agent)
    assert result[:2] == ["two", "three"]
    assert sorted(keys) == ["pinned/work#0", "pinned/work#1", "work#0"]


def test_what_is_called_in_an_empty_context_belongs_to_the_run():
    """A step, a verb or a task that agent code makes in there is recorded, not merely run. In a step's body it is no agent code."""

    @holdfast.step
    def plain(what: str) -> str:
        return what

    @holdfast.step
    async def body() -> str:
        context = contextvars.Context()
        with pytest.raises(holdfast.NotInRun):
            context.run(holdfast.now)
        return await context.run(asyncio.ensure_future, asyncio.sleep(0, "body"))

    @holdfast.agent
    async def agent() -> list[str]:
        context = contextvars.Context()

        async def inner() -> str:
            await contextvars.Context().run(work, "one")
            return await work("two")

        first = context.run(asyncio.ensure_future, inner())
        second = context.run(asyncio.get_running_loop().create_task, work("three"))
        assert context.run(holdfast.now) == holdfast.now()
        return [await first, await second, await context.run(plain, "plain"), await body()]

    result, keys = keys_of(agent)
    assert result == ["two", "three", "plain", "body"]
    assert sorted(keys) == ["body#0", "inner#0/work#0", "inner#0/work#1", "plain#0", "work#0"]
