"""`patched`: new code in old runs, decided once and for all."""

import asyncio

import pytest
from tests.engine.lives import counted, lives

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


def agent_of(body):
    """An agent of one name, whatever its code is in this life."""

    @holdfast.agent(name="agent")
    async def agent() -> list[str]:
        return await body()

    return agent


async def old_code() -> list[str]:
    first = await work("first")
    await holdfast.receive("go")
    return [first, await work("last")]


async def new_code() -> list[str]:
    first = await work("first")
    if holdfast.patched("between"):
        first = await work("between")
    await holdfast.receive("go")
    return [first, await work("last")]


@pytest.mark.slow
async def test_a_new_run_takes_the_new_side():
    """A run that first reaches the line with the new code gets True, writes it down once, and keeps it across crashes."""
    agent = agent_of(new_code)

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        await run.send("go", key="1")
        assert await run.result(timeout=20) == ["between", "last"]
        assert await counted(run, "patched") == 1


def test_an_old_run_that_passed_the_line_keeps_the_old_side(tmp_path):
    """A run that had gone past the line with the old code gets False, in this life and every later one."""

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            await run.send("go")  # received with the old code, and worked on with the new one
            while await counted(run, "step.completed") < 2:
                await asyncio.sleep(0.001)
            await run.wait("waiting")
            return None
        if life == 1:
            await run.wait("waiting")
            assert hf.bodies[work] == 0
            await run.send("more")
            await run.wait("waiting")
            return None
        await run.send("more")
        return await run.result(timeout=20)

    async def more(start) -> list[str]:
        out = await start()
        return [
            *out,
            await holdfast.receive("more", str | None) or "",
            await holdfast.receive("more", str | None) or "",
        ]

    old, new = agent_of(lambda: more(old_code)), agent_of(lambda: more(new_code))
    assert lives(tmp_path / "a.db", old, new, new, act=act)[-1] == ["first", "last", "", ""]


def test_an_old_run_that_has_not_passed_the_line_takes_the_new_side(tmp_path):
    """A run whose journal ends before the line gets True there, although it began with the old code."""

    async def short() -> list[str]:
        await holdfast.receive("begin")
        return await old_code()

    async def longer() -> list[str]:
        await holdfast.receive("begin")
        return await new_code()

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        await run.wait("waiting")
        if life == 0:
            return None
        await run.send("begin")
        await run.send("go")
        return await run.result(timeout=20)

    assert lives(tmp_path / "a.db", agent_of(short), agent_of(longer), act=act)[-1] == ["between", "last"]


async def test_the_answer_is_one_for_the_run():
    """Asked again, in other tasks and later, a patch has the same answer."""
    answers = []

    async def body() -> list[str]:
        answers.append(holdfast.patched("x"))

        async def inner() -> None:
            await work("inner")
            answers.append(holdfast.patched("x"))

        await asyncio.gather(inner(), inner())
        await holdfast.sleep("1h")
        answers.append(holdfast.patched("x"))
        return []

    agent = agent_of(body)

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.result(timeout=20)
        assert await counted(run, "patched") == 1
    assert len(answers) > 4
    assert all(answers)


@pytest.mark.parametrize("passed", [True, False])
def test_the_answer_is_carried_over_checkpoints(tmp_path, passed):
    """Both answers outlive checkpoints: the era after one knows what the run decided before it."""
    answers = []

    def code(new):
        async def body() -> list[str]:
            if new:
                answers.append(holdfast.patched("early"))  # before restore: the same as after it
            state = await holdfast.restore({"n": 0})
            while state["n"] < 3:
                if passed:
                    await work("passes the line")
                await holdfast.receive("go")
                if new:
                    answers.append(holdfast.patched("early"))
                state = await holdfast.checkpoint({"n": state["n"] + 1})
            return []

        return agent_of(body)

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        await run.wait("waiting")
        if life == 0:
            return
        for n in range(1, 3):
            await run.send("go")
            while await counted(run, "checkpoint") < n:
                await asyncio.sleep(0.001)
        await hf.crash()
        await run.send("go")
        await run.result(timeout=20)

    lives(tmp_path / "a.db", code(new=False), code(new=True), act=act)
    assert len(answers) >= 5
    assert set(answers) == {not passed}


def test_a_removed_line_is_nondeterminism(tmp_path):
    """Code that lost a patched line the run took the new side of does not go on; with the line back it does."""

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            return None
        if life == 1:
            await run.send("go")
            with pytest.raises(holdfast.NondeterminismError, match="between"):
                await run.result(timeout=20)
            assert not hf.bodies
            return None
        await run.resume()
        return await run.result(timeout=20)

    async def removed() -> list[str]:
        await work("first")
        first = await work("between")
        await holdfast.receive("go")
        return [first, await work("last")]

    agents = [agent_of(new_code), agent_of(removed), agent_of(new_code)]
    assert lives(tmp_path / "a.db", *agents, act=act)[-1] == ["between", "last"]


async def test_a_patch_reached_just_before_the_end_is_written():
    """A patch that is the last thing a run does is in its history like any other."""

    async def body() -> list[str]:
        return [str(holdfast.patched("at the end"))]

    agent = agent_of(body)

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=20) == ["True"]
        assert await counted(run, "patched") == 1


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_patch_needs_a_name(name):
    """Patched without a name is an error that shows how to write it."""
    with pytest.raises(holdfast.BadArguments, match="patched"):
        holdfast.patched(name)


def test_what_comes_from_outside_does_not_pass_a_line(tmp_path):
    """A message that lies behind the last step in the journal is no sign that the run had passed the line in between."""

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            await run.send("other")
            while not await counted(run, "message.received"):
                await asyncio.sleep(0.001)
            await run.wait("waiting")
            return None
        await run.send("go")
        return await run.result(timeout=20)

    async def waits(answer: str) -> list[str]:
        await asyncio.gather(holdfast.receive("other"), holdfast.receive("go"))
        return [answer]

    async def old() -> list[str]:
        await work("first")
        return await waits("")

    async def new() -> list[str]:
        await work("first")
        return await waits(str(holdfast.patched("between")))

    assert lives(tmp_path / "a.db", agent_of(old), agent_of(new), act=act)[-1] == ["True"]
