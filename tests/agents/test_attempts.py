"""A body knows whether it may have run before: `this_step().attempt` and `.again`, across crashes."""

import asyncio

import pytest

import holdfast
import holdfast.testing

SEEN: list[tuple[str, int, bool]] = []


def saw(what: str) -> None:
    step = holdfast.this_step()
    SEEN.append((what, step.attempt, step.again))


@holdfast.step
async def plain(what: str) -> str:
    saw(what)
    return what


@holdfast.step(in_doubt="fail")
async def doubted(what: str) -> str:
    saw(what)
    return what


@holdfast.step(retry=holdfast.Retry(3, first="1ms"))
async def fails_once(what: str) -> str:
    saw(what)
    if sum(seen[0] == what for seen in SEEN) == 1:
        raise ConnectionError
    return what


class Held:
    """A body that waits until the test lets it end."""

    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()


held: list[Held] = []


@holdfast.step
async def waits(what: str) -> str:
    saw(what)
    held[-1].began.set()
    await held[-1].may_end.wait()
    return what


@holdfast.agent(name="again-after-a-crash")
async def after_a_crash() -> str:
    await plain("before")
    await waits("cut off")
    await plain("behind")
    return "done"


@pytest.mark.parametrize("crashes", [1, 2])
async def test_a_body_that_a_crash_cut_off_knows_it(crashes):
    """It may have run before, and says so; the bodies before and behind it run for the first time."""
    SEEN.clear()
    held.append(Held())
    async with holdfast.testing.open(agents=[after_a_crash]) as hf:
        run = await hf.start(after_a_crash, id="r")
        for _ in range(crashes):
            await held[-1].began.wait()
            held[-1].began.clear()
            await hf.crash()
        held[-1].may_end.set()
        assert await run.result(timeout=20) == "done"
    cut_off = [("cut off", 1, False), *[("cut off", 1, True)] * crashes]
    assert [("before", 1, False), *cut_off, ("behind", 1, False)] == SEEN


@holdfast.agent(name="again-woken")
async def woken() -> str:
    await plain("first")
    await holdfast.receive("go", str)
    await plain("after a message")
    await holdfast.sleep("1h")
    await plain("after a sleep")
    return "done"


async def test_a_run_that_waited_does_nothing_again():
    """A run that was parked and comes back begins its next bodies for the first time, and they know that as well."""
    SEEN.clear()
    async with holdfast.testing.open(agents=[woken]) as hf:
        run = await hf.start(woken, id="r")
        await run.wait("waiting", timeout=20)
        await run.send("go", "now")
        assert await run.result(timeout=20) == "done"
    assert [(what, 1, False) for what in ("first", "after a message", "after a sleep")] == SEEN


@holdfast.agent(name="again-failing")
async def failing() -> str:
    await fails_once("fails")
    return await doubted("after")


@holdfast.step(in_doubt="ask")
async def intended(what: str) -> str:
    saw(what)
    held[-1].began.set()
    await held[-1].may_end.wait()
    return what


@holdfast.agent(name="again-intended")
async def intending() -> str:
    return await intended("deed")


async def test_with_an_intent_the_number_is_exact():
    """An attempt that was recorded before it began counts although a crash cut it off."""
    SEEN.clear()
    held.append(Held())
    async with holdfast.testing.open(agents=[intending]) as hf:
        run = await hf.start(intending, id="r")
        await held[-1].began.wait()
        await hf.crash()
        held[-1].may_end.set()
        await run.wait("waiting", timeout=20)
        (question,) = await hf.approvals()
        await hf.answer(question.id, "run", by="ana")
        assert await run.result(timeout=20) == "deed"
    assert SEEN == [("deed", 1, False), ("deed", 2, True)]


async def test_an_attempt_after_a_failure_is_one_that_ran_before():
    """An attempt that follows a failed one says so without any crash."""
    SEEN.clear()
    async with holdfast.testing.open(agents=[failing]) as hf:
        assert await hf.run(failing, id="r") == "after"
    assert SEEN == [("fails", 1, False), ("fails", 2, True), ("after", 1, False)]


@holdfast.agent(name="again-beside")
async def beside() -> str:
    await asyncio.gather(plain("one"), waits("two"))
    return "done"


async def test_whatever_runs_twice_knows_it():
    """Wherever the crash comes, a body that runs for the second time has `again`."""
    async for hf in holdfast.testing.crash_everywhere(agents=[beside]):
        SEEN.clear()
        held.append(Held())
        held[-1].may_end.set()
        await hf.run(beside, id="b")
        for what in ("one", "two"):
            again = [again for name, _, again in SEEN if name == what]
            assert again in ([False], [True], [False, True])
