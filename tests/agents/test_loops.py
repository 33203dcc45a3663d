"""Loops: a run that does the same again and again asks a person before it goes on; one that gets somewhere does not."""

import asyncio
import itertools

import pytest
from tests.agents.runs import finish, history, kinds

import holdfast
import holdfast.testing
from holdfast import LoopDetected, Loops
from holdfast.words.loops import Step, Tail


@holdfast.step
async def look(where: str) -> str:
    return f"nothing in {where}"


@holdfast.step
async def turn(way: str) -> str:
    raise OSError(f"{way} is shut")


async def asked(hf, nth=1):
    """The question that is open, once so many were asked; None if the run ends instead."""
    async for event in hf.get("r").events():
        nth -= event.kind == "approval.asked"
        if not nth:
            break
    found = await hf.approvals()
    return found[0] if found else None


@holdfast.agent(loops=Loops(same=3, cycle=2))
async def lost(steps: int) -> str:
    for n in range(steps):
        try:
            await look("box")
        except LoopDetected as error:
            return f"{n} times: {error}"
    return "done"


@pytest.mark.slow
async def test_the_same_call_again_and_again_is_asked_about():
    """The fourth of a kind waits for a person, who is shown the calls; a no is raised in the agent. Asked once in any case."""
    async for hf in holdfast.testing.crash_everywhere(agents=[lost]):
        run = await hf.start(lost, 10, id="r")
        question = await asked(hf)
        assert question.shown == ["look(where='box') -> \"nothing in box\""]
        assert "look, 3 times with the same outcome" in question.question
        await hf.deny("r", by="ana", note="look elsewhere")
        end = "3 times: ana stopped a loop (look elsewhere): look, 3 times with the same outcome"
        assert await run.result() == end
        assert hf.keys["look#3"] == 0
        assert (await kinds(hf, "r")).count("approval.asked") == 1


async def test_who_is_let_go_on_is_asked_again_only_after_as_many_more():
    """A yes lets the call run, and counting begins anew, in every life."""
    async with holdfast.testing.open(agents=[lost]) as hf:
        run = await hf.start(lost, 7, id="r")
        for nth in (1, 2):
            question = await asked(hf, nth)
            assert hf.bodies[look] == nth * 3
            await hf.crash()
            await hf.approve(question, by="ana")
        assert await run.result() == "done"
        assert hf.bodies[look] == 7
        assert sum(event.data.get("loop", False) for event in await history(hf, "r")) == 2


async def test_a_cycle_of_calls_is_asked_about():
    """Also if its steps fail, each time in the same way; the evidence is one round of it."""

    @holdfast.agent(loops=Loops(cycle=3))
    async def circling() -> str:
        for n in itertools.count():
            try:
                await look("box")
                await look("drawer")
                await turn("left")
            except OSError:
                continue
            except LoopDetected as error:
                return f"{n}: {error.calls[2]} x {error.times}"
        return ""

    async with holdfast.testing.open(agents=[circling]) as hf:
        run = await hf.start(circling, id="r")
        question = await asked(hf)
        assert [shown.partition("(")[0] for shown in question.shown] == ["look", "look", "turn"]
        await hf.deny(question, by="ana")
        assert await run.result() == "3: turn(way='left') -> OSError: left is shut x 3"


def test_who_polls_until_something_changes_is_not_in_a_loop():
    """Same calls with other outcomes, other inputs, calls made together, and tasks of their own: nobody is asked."""
    count = itertools.count()

    @holdfast.step
    async def poll(job: str) -> int:
        return next(count)

    @holdfast.agent(loops=Loops(same=2, cycle=2))
    async def patient() -> str:
        for _ in range(12):
            await poll("job")
        for n in range(12):
            await look(f"box {n}")
            await look("always here")
        await asyncio.gather(*[look("together") for _ in range(12)])

        async def one() -> None:
            await look("apart")

        for _ in range(12):
            await asyncio.create_task(one())
        return "done"

    assert finish(patient) == "done"


@pytest.mark.parametrize("watched", [True, False])
async def test_calls_of_models_do_not_hide_a_loop(watched):
    """What a model is asked grows, so its calls are passed over; and what scopes of one place call belongs together."""

    @holdfast.step
    async def model(history: list[str]) -> str:
        holdfast.spend(0.01, input_tokens=len(history), model="made-up")
        return "look into the box"

    @holdfast.agent
    async def driven() -> str:
        if watched:
            holdfast.watch_loops(Loops(same=3))
        messages: list[str] = []
        for n in range(6):
            with holdfast.scope(f"agent-0:request-{n}"):
                messages.append(await model(messages))
            with holdfast.scope(f"agent-0:call-{n}"):
                try:
                    messages.append(await look("box"))
                except LoopDetected:
                    return f"stopped after {n}"
        return "done"

    async with holdfast.testing.open(agents=[driven]) as hf:
        run = await hf.start(driven, id="r")
        question = await asked(hf)
        if question is not None:
            await hf.deny(question, by="ana")
        assert await run.result() == ("stopped after 3" if watched else "done")


def test_a_checkpoint_begins_anew():
    """What came before a checkpoint is no part of a loop, live and resumed alike."""

    @holdfast.agent(loops=Loops(same=3))
    async def weekly() -> int:
        n = await holdfast.restore(0)
        while n < 8:
            await look("box")
            await look("box")
            n = await holdfast.checkpoint(n + 1)
        return n

    assert finish(weekly) == 8


def test_what_is_remembered_does_not_grow():
    """Neither with the steps of a place nor with the number of places."""
    tail = Tail(Loops(same=5, cycle=3))
    for n in range(2000):
        tail.add(f"task#{n}", Step("look", "d", n, "", n), n, model=False)
        tail.add("task", Step("look", "d", n, "", n), n, model=False)
    assert sum(len(steps) for steps in tail._places.values()) < 100
    assert tail.next("task", "look", "d") is None


@pytest.mark.parametrize("wrong", [{"same": 1}, {"cycle": 0}, {"same": 2.5}, {"cycle": 1000}], ids=str)
def test_a_loop_that_is_none_is_refused(wrong):
    """Twice is the least."""
    with pytest.raises(holdfast.BadArguments):
        Loops(**wrong)
