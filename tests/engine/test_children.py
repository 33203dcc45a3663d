"""Child runs: started once, awaited now or later, here or in another process."""

import asyncio
from dataclasses import dataclass

import pytest
from tests.engine.lives import counted, history, lives

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.agent
async def greet(name: str) -> str:
    return await work(f"hello {name}")


@holdfast.agent
async def slow(name: str) -> str:
    await holdfast.sleep("5h")
    return await work(f"slow {name}")


@holdfast.agent
async def broken() -> str:
    raise ValueError("no luck")


@holdfast.agent
async def waits_for_news() -> str:
    return await holdfast.receive("news", str)


def crash_everywhere(agent, check, expected, *others):
    """Run the agent with a crash at each commit; `check(hf, run)` after each."""
    agents = [agent, greet, slow, broken, waits_for_news, *others]

    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=agents):
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == expected
            if check is not None:
                await check(hf, run)

    asyncio.run(main())


@pytest.mark.slow
def test_an_awaited_agent_is_a_child_run():
    """Calling an agent inside an agent starts one child, with its own history, whatever crashes."""

    @holdfast.agent
    async def parent() -> list[str]:
        return [await greet("ana"), await greet("bo")]

    async def check(hf, run):
        children = await hf.runs(parent="r")
        assert len(children) == 2
        assert {child.status for child in children} == {"completed"}
        assert {child.root for child in children} == {"r"}
        assert await counted(run, "child.started") == 2
        assert hf.bodies[work] >= 2

    crash_everywhere(parent, check, ["hello ana", "hello bo"])


@pytest.mark.slow
def test_a_spawned_child_is_awaited_later():
    """A spawned child runs beside its parent, and awaiting it gives its result, as often as one likes."""

    @holdfast.agent
    async def parent() -> list[str]:
        child = await holdfast.spawn(slow, "x")
        out = [await work("meanwhile")]
        out += [await child, await child]
        return out

    async def check(hf, run):
        assert len(await hf.runs(parent="r")) == 1

    crash_everywhere(parent, check, ["meanwhile", "slow x", "slow x"])


@dataclass
class State:
    stage: int = 0
    child: holdfast.Child[str] | None = None


@holdfast.agent
async def over_checkpoints() -> str:
    state = await holdfast.restore(State())
    if state.stage == 0:
        child = await holdfast.spawn(greet, "x")
        state = await holdfast.checkpoint(State(1, child))
    if state.stage == 1:
        await holdfast.sleep("2h")  # the child ends in this era
        state = await holdfast.checkpoint(State(2, state.child))
    assert state.child is not None
    return await state.child


@pytest.mark.slow
def test_a_child_is_awaited_after_a_checkpoint():
    """A child kept in the state is awaited in a later era, although it ended in an earlier one."""

    async def check(hf, run):
        (child,) = await hf.runs(parent="r")
        assert child.status == "completed"
        ended, *_ = await history(run, "child.ended")  # once more where the last era begins anew
        first, second = await history(run, "checkpoint")
        assert first.seq < ended.seq < second.seq

    crash_everywhere(over_checkpoints, check, "hello x")


def test_a_child_is_awaited_in_another_life(tmp_path):
    """A parent that is opened again in another process finds the child it spawned in the first."""

    @holdfast.agent
    async def parent() -> str:
        child = await holdfast.spawn(waits_for_news)
        await holdfast.sleep("1h")
        return await child

    async def act(hf, life):
        if life == 0:
            run = await hf.start(parent, id="r")
            await run.wait("waiting")
            return None
        run = hf.get("r", parent)
        (child,) = await hf.runs(parent="r")
        await hf.get(child.id).send("news", "at last")
        return await run.result(timeout=20)

    assert lives(tmp_path / "a.db", [parent, waits_for_news], [parent, waits_for_news], act=act)[1] == "at last"


@pytest.mark.slow
@pytest.mark.parametrize("spawned", [True, False])
def test_a_failed_child_raises_in_its_parent(spawned):
    """A failed child is RunFailed in its parent, with type and message, and the parent may go on."""

    @holdfast.agent
    async def parent() -> list[str]:
        try:
            await (await holdfast.spawn(broken) if spawned else broken())
        except holdfast.RunFailed as error:
            return [error.type, error.message, await work("went on")]
        return []

    crash_everywhere(parent, None, ["ValueError", "no luck", "went on"])


async def test_a_child_outlives_the_return_of_its_parent():
    """A spawned child goes on after its parent has returned."""

    @holdfast.agent
    async def parent() -> str:
        child = await holdfast.spawn(slow, "x")
        return child.id

    async with holdfast.testing.open(agents=[parent, greet, slow]) as hf:
        run = await hf.start(parent, id="r")
        child = hf.get(await run.result(timeout=20))
        assert (await child.info()).status != "completed"
        await hf.crash()
        assert await child.result(timeout=20) == "slow x"


@pytest.mark.slow
async def test_children_nest():
    """Children of children of children give their results upwards, across crashes, in one tree."""

    @holdfast.agent
    async def level(depth: int) -> str:
        if depth == 0:
            return await work("ground")
        return f"{depth}({await level(depth - 1)})"

    async for hf in holdfast.testing.crash_everywhere(agents=[level]):
        run = await hf.start(level, 3, id="r")
        assert await run.result(timeout=20) == "3(2(1(ground)))"
        everyone = await hf.runs(agent=level)
        assert len(everyone) == 4
        assert {info.root for info in everyone} == {"r"}


async def test_fifty_children_in_parallel():
    """Fifty children at once give fifty results in their parent's order, after a crash in their midst."""

    @holdfast.agent
    async def parent() -> list[str]:
        return list(await asyncio.gather(*(slow(str(n)) for n in range(50))))

    async with holdfast.testing.open(agents=[parent, greet, slow]) as hf:
        run = await hf.start(parent, id="r")
        while await counted(run, "child.started") < 50:
            await asyncio.sleep(0.001)
        await hf.crash()
        assert await run.result(timeout=40) == [f"slow {n}" for n in range(50)]
        assert len(await hf.runs(parent="r", limit=200)) == 50


async def test_a_childs_id_is_the_same_in_every_life():
    """The id of a child is known from its place in the run, and is another one for another place or run."""
    seen: list[str] = []

    @holdfast.agent
    async def parent() -> list[str]:
        first, second = await holdfast.spawn(greet, "x"), await holdfast.spawn(greet, "x")
        seen.append(first.id)
        await holdfast.sleep("1h")
        return [first.id, second.id]

    async with holdfast.testing.open(agents=[parent, greet, slow]) as hf:
        results = [await (await hf.start(parent, id=name)).result(timeout=20) for name in ("a", "b")]
    assert len({child for result in results for child in result}) == 4
    assert len(seen) == 4
    assert set(seen) == {results[0][0], results[1][0]}


@pytest.mark.slow
def test_a_wait_for_a_child_can_be_given_up():
    """A timeout around a child ends the wait, not the child; awaiting it again later gives its result."""

    @holdfast.agent
    async def parent() -> list[str]:
        child = await holdfast.spawn(slow, "x")
        out = []
        try:
            async with holdfast.timeout("1h"):
                await child
        except TimeoutError:
            out.append(await work("too slow"))
        try:
            async with holdfast.timeout("1h"):
                await slow("y")
        except TimeoutError:
            out.append("again")
        return [*out, await child]

    async def check(hf, run):
        assert await counted(run, "child.spawned") == await counted(run, "child.started") == 1
        awaited, given_up = sorted(await hf.runs(parent="r"), key=lambda child: child.created_at)
        assert awaited.status == "completed"
        assert given_up.status != "cancelled"
        assert await hf.get(given_up.id).result(timeout=20) == "slow y"

    crash_everywhere(parent, check, ["too slow", "again", "slow x"])


@pytest.mark.slow
def test_a_large_result_of_a_child():
    """A child's result too large for the journal's row reaches its parent, twice, and over a checkpoint."""

    @holdfast.agent
    async def large() -> str:
        return "x" * 300_000

    @holdfast.agent
    async def parent() -> list[int]:
        state = await holdfast.restore(State())
        if state.stage == 0:
            child = await holdfast.spawn(large)
            sizes = [len(await child), len(await large())]
            assert sizes == [300_000] * 2
            state = await holdfast.checkpoint(State(1, child))
        assert state.child is not None
        return [len(await state.child)]

    crash_everywhere(parent, None, [300_000], large)


async def test_only_an_agent_can_be_spawned():
    """Spawning what is no agent, or with arguments that do not fit, is an error at the call, and nothing is started."""

    @holdfast.agent
    async def parent() -> list[str]:
        problems = []
        for attempt in (lambda: holdfast.spawn(work, "x"), lambda: holdfast.spawn(greet), lambda: greet(3)):
            try:
                await attempt()
            except holdfast.BadArguments as error:
                problems.append(str(error))
        return problems

    async with holdfast.testing.open(agents=[parent, greet, slow]) as hf:
        run = await hf.start(parent, id="r")
        assert len(await run.result(timeout=20)) == 3
        assert not await hf.runs(parent="r")
        assert [event.kind for event in await history(run)] == ["run.completed"]


@pytest.mark.slow
def test_two_children_with_one_name_are_told_apart():
    """Calling another agent under a name that is taken is an error in the agent, live and resumed alike."""

    def other(name):
        @holdfast.agent(name=name)
        async def impostor() -> str:
            return "impostor"

        return impostor

    impostor = other("greet")

    @holdfast.agent
    async def parent() -> list[str]:
        out = [await greet("x")]
        try:
            await impostor()
        except holdfast.BadArguments as error:
            out.append("two agents" if "two agents" in str(error) else str(error))
        await holdfast.sleep("1h")
        return out

    crash_everywhere(parent, None, ["hello x", "two agents"])
