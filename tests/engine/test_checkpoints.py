"""`restore` and `checkpoint`: a resumed run starts from its last checkpoint and replays only what came after it."""

import asyncio
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel
from tests.engine.lives import counted, history, lives

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


@dataclass
class Tally:
    done: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)


class Model(BaseModel):
    pairs: dict[str, tuple[int, ...]] = {}
    note: str | None = None


def finish(agent, *, expected=None, agents=(), crashes=False, **options):
    """Run the agent to its end, with a crash at each commit if asked; the last result and history."""

    async def one(hf):
        run = await hf.start(agent, id="r")
        result = await run.result(timeout=20)
        if expected is not None:
            assert result == expected
        return result, await history(run)

    async def main():
        if not crashes:
            async with holdfast.testing.open(agents=[agent, *agents], **options) as hf:
                return await one(hf)
        async for hf in holdfast.testing.crash_everywhere(agents=[agent, *agents], **options):
            end = await one(hf)
        return end

    return asyncio.run(main())


async def test_a_resumed_run_replays_only_the_tail():
    """After a checkpoint nothing before it is read, called or run again; the state alone is what is known of it."""
    calls: list[str] = []

    @holdfast.agent
    async def agent() -> int:
        state = await holdfast.restore({"n": 0})
        while state["n"] < 20:
            if state["n"] % 5 == 4:
                await holdfast.sleep("1h")  # parked: the next life is a resumed one
            for part in range(5):
                calls.append(f"{state['n']}.{part}")
                await work(f"{state['n']}.{part}")
            state = await holdfast.checkpoint({"n": state["n"] + 1})
        return state["n"]

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=20) == 20
        assert hf.bodies[work] == 100
        assert await counted(run, "checkpoint") == 20
    assert len(calls) == 100


def test_keys_carry_the_era():
    """Keys start again after a checkpoint and carry its number, live and resumed alike."""

    @holdfast.agent
    async def agent() -> None:
        state = await holdfast.restore({"n": 0})
        while state["n"] < 3:
            await asyncio.gather(work("a"), work("b"))
            await holdfast.sleep("1h")
            await work("c")
            state = await holdfast.checkpoint({"n": state["n"] + 1})

    for park in (True, False):
        _, events = finish(agent, park=park)
        keys = [event.key for event in events if event.kind == "step.completed"]
        assert keys == [f"{era}work#{nth}" for era in ("", "@1/", "@2/") for nth in range(3)]


def test_idempotency_keys_differ_between_eras():
    """The same call in two eras has two idempotency keys."""
    keys = []

    @holdfast.step
    async def keyed() -> None:
        keys.append(holdfast.idempotency_key())

    @holdfast.agent
    async def agent() -> None:
        state = await holdfast.restore({"n": 0})
        while state["n"] < 3:
            await keyed()
            state = await holdfast.checkpoint({"n": state["n"] + 1})

    finish(agent)
    assert len(set(keys)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("first", [Tally(), Model()])
def test_the_state_is_typed(first):
    """A state that is a dataclass or a pydantic model comes back as one, and live code gets the stored copy."""

    @holdfast.agent
    async def agent() -> list[str]:
        state = await holdfast.restore(first)
        assert type(state) is type(first)
        if not (state.done if isinstance(state, Tally) else state.pairs):
            if isinstance(state, Tally):
                new = Tally([await work("x")], {"b", "a"})
            else:
                new = Model(pairs={"p": (1, 2)}, note=await work("x"))
            state = await holdfast.checkpoint(new)
            assert state == new
            assert state is not new
        await holdfast.sleep("1h")
        return [type(state).__name__, repr(state.done if isinstance(state, Tally) else state.pairs)]

    kind, inside = finish(agent, crashes=True)[0]
    assert kind == type(first).__name__
    assert inside in ("['x']", "{'p': (1, 2)}")


def test_build_runs_once():
    """The function that builds the first state makes durable calls, and is not run again once there is a checkpoint."""
    built: list[str] = []

    async def build() -> Tally:
        built.append("once")
        return Tally([await work("built")])

    @holdfast.agent
    async def agent() -> list[str]:
        state = await holdfast.restore(build)
        if len(state.done) == 1:
            state = await holdfast.checkpoint(Tally([*state.done, "checkpointed"]))
        await holdfast.sleep("1h")
        await holdfast.sleep("1h")
        return state.done

    result, _ = finish(agent)
    assert result == ["built", "checkpointed"]
    assert built == ["once"]


async def test_restore_must_be_first_and_once():
    """Restore after any other durable call, or a second time, is an error that says so, live and resumed alike."""

    @holdfast.agent
    async def late() -> str:
        await work("first")
        return await problem()

    @holdfast.agent
    async def after_message() -> str:
        await holdfast.receive("news")
        return await problem()

    @holdfast.agent
    async def twice() -> str:
        await holdfast.restore({})
        return await problem()

    async def problem() -> str:
        try:
            await holdfast.restore({})
        except holdfast.HoldfastError as error:
            await holdfast.sleep("1h")
            return str(error)
        return ""

    async with holdfast.testing.open(agents=[late, after_message, twice]) as hf:
        for agent in (late, after_message, twice):
            run = await hf.start(agent, id=agent.name)
            await run.send("news", 1)
            assert "first durable call" in await run.result(timeout=20)


async def test_a_checkpoint_says_what_is_open():
    """A checkpoint while something is open is an error that names it, and the run may go on."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []

        async def attempt() -> None:
            try:
                await holdfast.checkpoint({})
            except holdfast.HoldfastError as error:
                out.append(str(error))

        await attempt()
        await holdfast.restore({})

        other = asyncio.create_task(holdfast.receive("never"))
        await attempt()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        async with holdfast.timeout("1h"):
            await attempt()
        async with asyncio.timeout(3600):
            await attempt()
        with holdfast.scope("pinned"):
            await attempt()
        pending = work("not awaited")
        await attempt()
        await pending
        await asyncio.gather(attempt())
        await holdfast.sleep("1h")
        state = await holdfast.checkpoint({"fine": True})
        return out if state else []

    # After the checkpoint a resumed run would begin again at the top: this one ends in its first life after it.
    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        returned = await run.result(timeout=20), await counted(run, "checkpoint")
    (no_restore, task, timeout, tick, scope, pending, other), checkpoints = returned
    assert "restore" in no_restore
    assert "receive" in task
    assert ":timeout#0" in timeout
    assert ":tick#0" in tick
    assert "'pinned'" in scope
    assert "work" in pending
    assert "attempt#0" in other
    assert checkpoints == 1


@pytest.mark.slow
def test_a_state_that_cannot_be_stored_is_an_error_live_and_resumed():
    """A state that cannot be stored raises in the agent at that line, in every life."""

    @holdfast.agent
    async def agent() -> list[str]:
        await holdfast.restore({})
        out = []
        for n in range(2):
            try:
                await holdfast.checkpoint({"connection": object()})
            except holdfast.NotStorable as error:
                out.append(str(error))
            await work(f"{n}")
        await holdfast.sleep("1h")
        return out

    result, events = finish(agent, crashes=True)
    assert len(result) == 2
    assert "connection" in result[0]
    assert not [event for event in events if event.kind == "checkpoint"]


@pytest.mark.slow
async def test_unread_messages_are_carried():
    """Messages that nobody has received are there after the checkpoint, in order, in every life, each once."""

    @holdfast.agent
    async def agent() -> list[str]:
        state = await holdfast.restore({"got": []})
        while len(state["got"]) < 6:
            got = [*state["got"], await holdfast.receive("news", str)]
            state = await holdfast.checkpoint({"got": got})
        return state["got"]

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        for n in range(6):
            await run.send("news", f"m{n}", key=str(n))
        assert await run.result(timeout=20) == [f"m{n}" for n in range(6)]


def test_code_that_lost_its_restore_is_paused(tmp_path):
    """Code without restore does not go on with a run that has a checkpoint: it is paused, and nothing is done."""

    @holdfast.agent(name="agent")
    async def old() -> str:
        state = await holdfast.restore({"n": 0})
        if state["n"] == 0:
            state = await holdfast.checkpoint({"n": 1})
        await holdfast.receive("go")
        return "old"

    def changed(body):
        @holdfast.agent(name="agent")
        async def new() -> str:
            return await body()

        return new

    async def returns() -> str:
        return "new"

    async def works() -> str:
        return await work("new")

    async def receives() -> str:
        return await holdfast.receive("go", str)

    async def act(hf, life):
        run = await hf.start(old, id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            await run.send("go", "x")
            return None
        if life < 4:
            with pytest.raises(holdfast.NondeterminismError, match="restore"):
                await run.result(timeout=20)
            assert not hf.bodies
            await run.resume()
            return None
        return await run.result(timeout=20)

    agents = [old, changed(returns), changed(works), changed(receives), old]
    assert lives(tmp_path / "a.db", *agents, act=act)[-1] == "old"


def test_sets_of_calls_iterate_alike_in_a_resumed_era():
    """Sets of tasks and calls made after a checkpoint iterate the same way whether the run was resumed or not."""
    orders: list[list[str]] = []

    @holdfast.agent
    async def agent() -> None:
        state = await holdfast.restore({"n": 0})
        if state["n"] == 0:
            await asyncio.gather(*(work(str(n)) for n in range(28)))
            state = await holdfast.checkpoint({"n": 1})
        tasks = {asyncio.create_task(work(f"t{n}"), name=f"t{n}") for n in range(7)}
        calls = {work(f"c{n}") for n in range(7)}
        orders.append([task.get_name() for task in tasks])
        await asyncio.gather(*calls)
        await asyncio.gather(*tasks)
        await holdfast.sleep("1h")

    finish(agent)
    assert len(orders) == 2
    assert orders[0] == orders[1]


def test_tasks_that_are_done_are_not_in_the_way():
    """A task that tells of its end in its last line is done when the one who waits for that goes on."""

    @holdfast.agent
    async def agent() -> int:
        state = await holdfast.restore(0)
        if state:
            await work("after")
            return int(state)
        told = asyncio.Event()

        async def last_line() -> None:
            await work("before")
            told.set()

        task = asyncio.create_task(last_line())
        await told.wait()
        assert task.done()
        await holdfast.checkpoint(state + 1)
        return await work("after") and 1

    finish(agent, expected=1, crashes=True)


def test_a_child_that_ended_before_a_checkpoint_is_awaited_behind_it():
    """Its end is not carried over, so it is looked for and recorded again: live, and so on every replay."""

    @holdfast.agent
    async def child() -> str:
        return "grown"

    @holdfast.agent
    async def agent() -> str:
        state = await holdfast.restore({"child": ""})
        if not state["child"]:
            started = await holdfast.spawn(child)
            await holdfast.sleep("1h")  # it ends meanwhile
            state = await holdfast.checkpoint({"child": started.id})
        said = await work(await holdfast.Child(state["child"], "child"))
        await holdfast.sleep("1h")
        return said

    for park in (True, False):
        finish(agent, agents=[child], expected="grown", crashes=True, park=park)
