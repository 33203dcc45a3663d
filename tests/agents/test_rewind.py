"""`run.retry()`: a failed run goes on from its failure; what was recorded stays, what failed runs again."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.broken_steps import ATTEMPTS, BROKEN, GATES, KEYS, act, acted, bodies, fails, forget, mended
from tests.agents.runs import Gate, history, kinds

import holdfast
import holdfast.testing
from holdfast import InDoubt, Retry, RunActive, RunFinished


@pytest.fixture(autouse=True)
def fresh():
    forget()


@holdfast.step(retry=Retry(2, first="1ms"))
async def twice(what: str) -> str:
    ATTEMPTS.append(holdfast.this_step().attempt)
    return await acted(what)


@holdfast.step(in_doubt="ask")
async def doubtful(what: str) -> str:
    if f"{what} in doubt" in BROKEN:
        KEYS.append((what, holdfast.idempotency_key()))
        raise InDoubt(what)
    return await acted(what)


@holdfast.agent
async def in_order() -> list[str]:
    first = await act("a")
    await holdfast.sleep("1h")
    return [first, await twice("b"), await act("c")]


async def test_only_the_failed_step_runs_again():
    """Its key is kept, its attempts count from one, recorded steps do not run again, the history shows it."""
    BROKEN.add("b")

    async with holdfast.testing.open(agents=[in_order]) as hf:
        run = await hf.start(in_order, id="r")
        assert (await fails(run)).message == "b is broken"
        assert await mended(run, "b") == ["a done", "b done", "c done"]
        assert (bodies("a"), bodies("b"), bodies("c")) == (1, 3, 1)
        assert ATTEMPTS == [1, 2, 1]
        assert "run.failed" not in await kinds(hf, "r")
        (retried,) = [event for event in await history(hf, "r") if event.kind == "run.retried"]
        assert retried.data["by"] == "ana"
        info = await run.info()
        assert (info.status, info.error, info.steps) == ("completed", None, 3)


async def test_a_retry_may_fail_again_and_be_retried_again():
    """As often as it takes; a crash in between changes nothing."""
    BROKEN.add("b")

    async with holdfast.testing.open(agents=[in_order]) as hf:
        run = await hf.start(in_order, id="r")
        for _ in range(3):
            await fails(run)
            await run.retry()
            await hf.crash()
        await fails(run)
        assert await mended(run, "b") == ["a done", "b done", "c done"]
        assert (bodies("a"), bodies("c")) == (1, 1)


@holdfast.agent
async def beside(grouped: bool) -> list[str]:
    if not grouped:
        return list(await asyncio.gather(act("quick"), twice("x"), act("slow"), twice("y")))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in (act("quick"), twice("x"), act("slow"), twice("y"))]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("grouped", [False, True])
async def test_siblings_that_were_done_stay_done(grouped):
    """One that was cancelled in mid-body runs again; so do all that failed, each with all its attempts."""
    BROKEN.update("xy")

    async with holdfast.testing.open(agents=[beside]) as hf:
        GATES["slow"] = Gate()
        run = await hf.start(beside, grouped, id="r")
        await fails(run)
        del GATES["slow"]
        BROKEN.discard("x")
        await run.retry()
        await fails(run)
        assert await mended(run, "y") == ["quick done", "x done", "slow done", "y done"]
        assert bodies("quick") == 1
        assert bodies("slow") <= 3
        assert max(ATTEMPTS) == 2


@holdfast.agent
async def handles() -> list[str]:
    try:
        first = await act("optional")
    except ValueError:
        first = await act("instead")
    return [first, await act("needed")]


async def test_a_failure_that_was_handled_stays_handled():
    """The agent took another way there; a retry of a later failure keeps to it."""
    BROKEN.update(("optional", "needed"))

    async with holdfast.testing.open(agents=[handles]) as hf:
        run = await hf.start(handles, id="r")
        assert (await fails(run)).message == "needed is broken"
        assert await mended(run, "optional", "needed") == ["instead done", "needed done"]
        assert (bodies("optional"), bodies("instead"), bodies("needed")) == (1, 1, 2)


class Wrapped(Exception):
    pass


@holdfast.agent
async def wraps(how: str) -> str:
    try:
        return await act("a")
    except ValueError as error:
        await undo()
        if how == "from":
            raise Wrapped("wrapped") from error
        if how == "none":
            raise Wrapped("wrapped") from None
        raise Wrapped("wrapped")  # noqa: B904 - the context tells too
    finally:
        await act("finally")


@holdfast.step
async def undo() -> None:
    KEYS.append(("undo", holdfast.idempotency_key()))


@holdfast.agent
async def other_way() -> list[str]:
    try:
        return [await act("a"), await act("go on")]
    except ValueError:
        await act("clean up")
        raise


async def test_a_call_in_the_place_of_another_has_a_key_of_its_own():
    """After the retry the agent goes another way: what now stands where `clean up` stood is not taken for it."""
    BROKEN.add("a")

    async with holdfast.testing.open(agents=[other_way]) as hf:
        run = await hf.start(other_way, id="r")
        await fails(run)
        assert await mended(run, "a") == ["a done", "go on done"]
        keys = dict(KEYS)
        assert len(set(keys.values())) == len(keys) == 3
        events = await hf.store.journal("r", dropped=True)
        places = [event.key for event in events if event.kind == "step.completed"]
        assert places == ["act#1", "act#0", "act#1"]  # the same place, twice


@pytest.mark.parametrize("how", ["from", "none", "context"])
async def test_the_cause_is_found_behind_the_agents_own_exception(how):
    """Raised from it, in its handler, or with its context hidden: the step that began it runs again."""
    BROKEN.add("a")

    async with holdfast.testing.open(agents=[wraps]) as hf:
        run = await hf.start(wraps, how, id="r")
        assert (await fails(run)).type.endswith("Wrapped")
        assert await mended(run, "a") == "a done"
        assert (bodies("a"), bodies("undo"), bodies("finally")) == (2, 1, 2)


@holdfast.agent
async def own_fault() -> str:
    await act("a")
    if "agent" in BROKEN:
        raise LookupError("the agent's own")
    return await act("b")


async def test_a_failure_of_the_agent_itself_is_replayed_with_the_code_as_it_is_now():
    """There is no step to run again: with mended code the run goes on, with the old one it fails again."""
    BROKEN.add("agent")

    async with holdfast.testing.open(agents=[own_fault]) as hf:
        run = await hf.start(own_fault, id="r")
        await fails(run)
        await run.retry()
        assert (await fails(run)).type == "LookupError"
        assert await mended(run, "agent") == "b done"
        assert bodies("a") == 1


@holdfast.agent
async def asks() -> list[str]:
    return list(await asyncio.gather(doubtful("d"), act("x")))


async def test_a_question_is_asked_anew_after_a_retry():
    """The first one went with the run that failed; its answer, or its withdrawal, is not taken for the new one's."""
    async with holdfast.testing.open(agents=[asks]) as hf:
        BROKEN.update(("d in doubt", "x"))
        GATES["x"] = Gate()
        run = await hf.start(asks, id="r")
        async for event in run.events():
            if event.kind == "approval.asked":
                break
        GATES["x"].open.set()  # x fails while the question is open
        await fails(run)
        assert await hf.approvals() == []
        BROKEN.clear()
        await run.retry()
        await run.wait("waiting")
        await hf.answer("r", "fail", by="ana")
        assert "ana decided to fail" in (await fails(run)).message
        BROKEN.add("d in doubt")
        await run.retry()
        await run.wait("waiting")  # in doubt once more: nobody takes ana's old answer
        await hf.answer("r", {"result": "by hand"}, by="bob")
        assert await run.result() == ["by hand", "x done"]


async def test_a_step_in_doubt_at_the_failure_stays_in_doubt():
    """It was cancelled in mid-body when its sibling failed: a retry asks before it runs it again."""
    async with holdfast.testing.open(agents=[asks]) as hf:
        BROKEN.add("x")
        GATES["d"] = Gate()
        run = await hf.start(asks, id="r")
        await fails(run)
        BROKEN.clear()
        GATES["d"].open.set()
        await run.retry()
        await run.wait("waiting")
        assert bodies("d") == 1
        await hf.answer("r", "run", by="ana")
        assert await run.result() == ["d done", "x done"]
        assert bodies("d") == 2


@holdfast.agent
async def hurries(how: str) -> object:
    if how == "receive":
        return await holdfast.receive("news", timeout="1h")
    async with holdfast.timeout("1h"):
        return await act("slow")


@pytest.mark.parametrize("how", ["receive", "timeout"])
async def test_a_deadline_that_passed_is_set_anew(how):
    """A run that failed because of a durable deadline gets the whole time again, not the same failure at once."""
    async with holdfast.testing.open(agents=[hurries]) as hf:
        GATES["slow"] = Gate()
        run = await hf.start(hurries, how, id="r")
        await (hf.advance("2h") if how == "receive" else GATES["slow"].reached.wait())
        await hf.advance("2h")
        assert (await fails(run)).type == "TimeoutError"
        GATES.clear()
        await run.retry()
        await hf.advance("30m")
        await run.send("news", "slow done") if how == "receive" else None
        assert await run.result() == "slow done"


async def test_what_cannot_be_retried_is_refused():
    """A run that has not ended, and one that ended well, with the state it is in."""
    async with holdfast.testing.open(agents=[in_order]) as hf:
        run = await hf.start(in_order, id="r")
        await run.wait("waiting")
        with pytest.raises(RunActive, match="run 'r' is waiting; only a failed or paused run can be retried"):
            await run.retry()
        await run.result()
        with pytest.raises(RunFinished, match="run 'r' is completed; only a failed"):
            await run.retry()
