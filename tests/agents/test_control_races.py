"""Pause and cancel where they meet: each other, crashes, messages, children, people, limits, and code that cannot go on."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.agents.runs import Gate, kinds

import holdfast
import holdfast.testing
from holdfast import RunActive, RunCancelled, RunFinished
from holdfast.engine import gate

LOG: list[str] = []
GATES: dict[str, Gate] = {}
CHANGED: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    LOG.clear()
    GATES.clear()
    CHANGED.clear()


@holdfast.step
async def act(what: str) -> str:
    if what in GATES:
        await GATES[what]()
    LOG.append(what)
    return what


@holdfast.agent
async def works() -> list[str]:
    """Three steps, then what was sent meanwhile; tidies up."""
    try:
        done = [await act("one"), await act("two"), await act("three")]
        return [*done, *holdfast.receive_nowait("more", str)]
    except asyncio.CancelledError:
        await act("tidy")
        await holdfast.sleep("1m")
        await act("tidied")
        raise


@holdfast.agent
async def below(name: str) -> None:
    try:
        await holdfast.sleep("1 day")
    finally:
        await act(f"{name} tidies")
        await holdfast.sleep("1m")
        await act(f"{name} is tidy")


@holdfast.agent
async def above() -> None:
    try:
        await below("child")
    finally:
        await act("parent tidies")


async def until(holds) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.005)


def waiting(hf, count):
    async def holds():
        return len(await hf.runs(status="waiting")) == count

    return holds


def actions(deeds):
    return sorted((deed.run, deed.action) for deed in deeds)


async def test_a_pause_outlives_its_owner_whatever_arrives_after_it():
    """A message that is taken in behind the request does not hide it from the next owner."""
    async with holdfast.testing.open(agents=[works]) as hf:
        gate = GATES["two"] = Gate()
        run = await hf.start(works, id="r")
        await gate.reached.wait()
        await run.pause(by="ana", reason="lunch")
        receipt = await run.send("more", "four")

        async def taken_in():
            return await receipt.seen_at() is not None

        await until(taken_in)
        await hf.crash()
        gate.open.set()
        assert (await run.wait("paused", timeout=20)).reason == "paused by ana: lunch"
        assert "three" not in LOG
        await run.resume()
        assert await run.result() == ["one", "two", "three", "four"]
        assert (await kinds(hf, "r")).count("run.pausing") == 1


@pytest.mark.parametrize("crash", [False, True])
async def test_a_cancel_comes_before_a_pause(crash):
    """A run that was about to pause and is asked to stop tidies up and ends; it does not lie there paused."""
    async with holdfast.testing.open(agents=[works]) as hf:
        gate, _ = GATES["two"], GATES["three"] = Gate(), Gate()
        run = await hf.start(works, id="r")
        await gate.reached.wait()
        await run.pause(by="ana")
        await run.cancel(by="ben", grace="1h")
        if crash:
            await hf.crash()
        gate.open.set()
        assert (await run.wait(timeout=20)).reason == "cancelled by ben"
        assert LOG[-2:] == ["tidy", "tidied"]
        assert "run.paused" not in await kinds(hf, "r")
        assert actions(await hf.audit()) == [("r", "cancel"), ("r", "pause"), ("r", "start")]


async def test_a_run_that_is_to_stop_cannot_be_paused():
    """It could not tidy up; that is said, and it ends in its time."""
    async with holdfast.testing.open(agents=[above]) as hf:
        gate = GATES["tidy"] = Gate()
        run = await hf.start(above, id="r")
        await until(waiting(hf, 2))
        await run.cancel(grace="1h")
        with pytest.raises(RunActive, match="was told to stop and cannot be paused"):
            await run.pause()
        gate.open.set()
        assert (await run.wait()).status == "cancelled"


async def test_children_that_were_cancelled_themselves_tidy_up_all_the_same():
    """What a parent passes on is no second request: cancelled by a label that all of them have, each tidies up once."""
    async with holdfast.testing.open(agents=[above]) as hf:
        await hf.start(above, id="r", labels={"team": "x"})
        await until(waiting(hf, 2))
        assert len(await hf.cancel(labels={"team": "x"}, grace="1h", by="ana")) == 2
        with pytest.raises(RunCancelled):
            await hf.get("r").result()
        assert LOG == ["child tidies", "child is tidy", "parent tidies"]
        assert len(await hf.audit(action="cancel")) == 2


@holdfast.agent
async def breeds() -> None:
    """Starts children all the time; the cancellation finds it in between."""
    for number in range(12):
        await holdfast.spawn(below, str(number))
        await act(f"next {number}")


async def test_children_that_are_started_meanwhile_are_told_too():
    """Nobody is left behind by a parent that goes on starting children while the first ones are told."""
    async with holdfast.testing.open(agents=[breeds, below]) as hf:
        gate = GATES["next 3"] = Gate()
        run = await hf.start(breeds, id="r")
        await gate.reached.wait()
        await run.cancel(grace="1h")
        gate.open.set()
        await run.wait()
        assert {info.status for info in await hf.runs(parent="r")} == {"cancelled"}


@holdfast.agent
async def deaf() -> None:
    """Never ends by itself, and has a child of the same kind."""
    with contextlib.suppress(BaseException):
        await holdfast.spawn(deaf_child)
    while True:
        try:
            await holdfast.receive("never")
        except asyncio.CancelledError:
            await act("parent: no")


@holdfast.agent
async def deaf_child() -> None:
    while True:
        try:
            await holdfast.receive("never")
        except asyncio.CancelledError:
            await act("child: no")


@pytest.mark.parametrize("how", ["second", "grace"])
async def test_whoever_ends_a_run_ends_its_children(how):
    """At a second request, and when the grace is over, also if it is none at all."""
    async with holdfast.testing.open(agents=[deaf, deaf_child]) as hf:
        run = await hf.start(deaf, id="r")
        await until(waiting(hf, 2))
        await run.cancel(grace="1 day" if how == "second" else 0)
        if how == "second":
            await until(lambda: _has_said("child: no"))
            await run.cancel(grace="1 day")
        before = hf.clock.now()
        await run.wait()
        child = (await hf.runs(parent="r"))[0]
        await hf.get(child.id).wait()
        assert {info.status for info in await hf.runs()} == {"cancelled"}
        assert hf.clock.now() - before < 3_600_000


async def _has_said(what):
    return what in LOG


@holdfast.agent
async def one_at_a_time(name: str) -> str:
    try:
        return await act(name)
    finally:
        await act(f"{name} tidies")


async def test_a_run_that_waits_for_a_slot_is_cancelled_at_once():
    """It never began; the one that has the slot is not touched."""
    limited = holdfast.agent(limit=1, name="limited")(one_at_a_time.fn)

    async with holdfast.testing.open(agents=[limited]) as hf:
        gate = GATES["first"] = Gate()
        first = await hf.start(limited, "first", id="first")
        await gate.reached.wait()
        second = await hf.start(limited, "second", id="second")

        async def held():
            return (await second.info()).waits_for == "slot"

        await until(held)
        await second.cancel()
        assert (await second.info()).status == "cancelled"
        gate.open.set()
        assert await first.result() == "first"
        third = await hf.start(limited, "third", id="third")
        assert await third.result() == "third"
        assert "second" not in LOG


async def test_a_cancelled_run_leaves_its_slot():
    """Whoever waits for it goes on."""
    limited = holdfast.agent(limit=1, name="limited-too")(one_at_a_time.fn)

    async with holdfast.testing.open(agents=[limited]) as hf:
        gate = GATES["first"] = Gate()
        first = await hf.start(limited, "first", id="first")
        await gate.reached.wait()
        second = await hf.start(limited, "second", id="second")
        await first.cancel(grace="1h")
        with pytest.raises(RunCancelled):
            await first.result()
        assert await second.result() == "second"
        assert LOG == ["first tidies", "second", "second tidies"]


@holdfast.agent
async def asks_for_leave() -> bool:
    return bool(await holdfast.approve("May I?"))


async def test_the_question_of_a_cancelled_run_is_withdrawn():
    """Whoever answers too late is told so."""
    async with holdfast.testing.open(agents=[asks_for_leave]) as hf:
        run = await hf.start(asks_for_leave, id="r")
        await run.wait("waiting")
        (question,) = await hf.approvals()
        await run.cancel(grace="1h")
        await run.wait()
        assert await hf.approvals() == []
        (late,) = await hf.approvals(open=False)
        assert late.status == "withdrawn"
        with pytest.raises(holdfast.HoldfastError, match="withdrawn"):
            await hf.approve(question.id, by="ana")


async def test_a_paused_child_keeps_its_parent_waiting():
    """The parent goes on when the child was resumed and has ended."""
    async with holdfast.testing.open(agents=[above]) as hf:
        run = await hf.start(above, id="r")
        await until(waiting(hf, 2))
        child = hf.get((await hf.runs(parent="r"))[0].id)
        await child.pause(by="ana")
        await hf.advance("2 days")
        assert ((await child.info()).status, (await run.info()).status) == ("paused", "waiting")
        await child.resume()
        await run.result()
        assert LOG == ["child tidies", "child is tidy", "parent tidies"]


async def test_a_paused_child_is_cancelled_with_its_parent():
    """It goes on in order to tidy up, and ends first."""
    async with holdfast.testing.open(agents=[above]) as hf:
        run = await hf.start(above, id="r")
        await until(waiting(hf, 2))
        await hf.get((await hf.runs(parent="r"))[0].id).pause()
        await run.cancel(grace="1h")
        await run.wait()
        assert LOG == ["child tidies", "child is tidy", "parent tidies"]


async def test_what_is_cancelled_stays_cancelled():
    """It cannot be retried, resumed or paused; it can be deleted."""
    async with holdfast.testing.open(agents=[works]) as hf:
        run = await hf.start(works, id="r", after="1h")
        await run.cancel()
        for again in (run.retry, run.resume, run.pause):
            with pytest.raises(RunFinished, match="is cancelled"):
                await again()
        assert await run.delete() == 1


@holdfast.agent
async def changes() -> None:
    await act(CHANGED[0] if CHANGED else "as recorded")
    await holdfast.receive("go")


async def test_a_run_whose_code_cannot_go_on_ends_all_the_same():
    """Asked to stop, a run that diverges has nobody who could tidy up: it does not lie there paused."""
    async with holdfast.testing.open(agents=[changes]) as hf:
        run = await hf.start(changes, id="r")
        await run.wait("waiting")
        CHANGED.append("otherwise")
        await run.cancel(by="ana", grace="1h")
        info = await run.wait(timeout=20)
        assert info.status == "cancelled"
        assert "its code cannot go on" in info.reason


async def test_a_run_that_ends_its_process_again_and_again_is_cancelled_at_once():
    """It was stopped because it cannot go on; nobody carries it once more to tell it."""
    async with holdfast.testing.open(agents=[works]) as hf:
        gate = GATES["one"] = Gate()
        run = await hf.start(works, id="r")
        for _ in range(5):
            await gate.reached.wait()
            gate.reached.clear()
            await hf.crash()
        info = await run.wait("paused")
        assert info.crashes == 5
        await run.cancel(by="ana")
        assert (await run.info()).status == "cancelled"
        assert LOG == []


# Code that never waits


@holdfast.agent
async def spins(first: bool, deaf: bool) -> None:
    """A loop around `asyncio.sleep(0)`, from its first line or after a step."""
    if not first:
        await act("begins")
    while True:
        try:
            while True:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await act("tidies")
            if not deaf:
                raise


@pytest.fixture
def impatient(monkeypatch):
    """What takes seconds takes less."""
    monkeypatch.setattr(gate, "UNSETTLED_LIMIT_S", 0.2)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_loop_that_never_waits_is_cancelled(impatient, first, crash):
    """It is told wherever it is, and tidies up; after a crash it does not begin to tidy up again."""
    async with holdfast.testing.open(agents=[spins]) as hf:
        tidies = GATES["tidies"] = Gate()
        run = await hf.start(spins, first, False, id="r")
        await run.wait("running")
        await run.cancel(by="ana", grace="1h")
        await asyncio.wait_for(tidies.reached.wait(), 10)
        if crash:
            await hf.crash()
        tidies.open.set()
        assert (await run.wait(timeout=10)).reason == "cancelled by ana"
        assert [*([] if first else ["begins"]), "tidies"] == LOG


@pytest.mark.parametrize("first", [True, False])
async def test_a_loop_that_never_waits_and_never_listens_ends_at_the_second_request(impatient, first):
    """Whatever its code does."""
    async with holdfast.testing.open(agents=[spins]) as hf:
        run = await hf.start(spins, first, True, id="r")
        await run.wait("running")
        await run.cancel(grace="1h")
        await until(lambda: _has_said("tidies"))
        await run.cancel()
        assert (await run.wait(timeout=10)).status == "cancelled"
        assert LOG.count("tidies") == 1


@pytest.mark.parametrize("first", [True, False])
async def test_a_loop_that_never_waits_is_paused_and_given_back(impatient, first):
    """It is paused, resumed, taken over after a crash, paused again, and lets its worker go."""
    async with holdfast.testing.open(agents=[spins]) as hf:
        run = await hf.start(spins, first, False, id="r")
        await run.wait("running")
        await run.pause(by="ana")
        await run.wait("paused", timeout=10)
        await run.resume()
        await run.wait("running", timeout=10)
        await hf.crash()
        await run.wait("running", timeout=10)
        await run.pause(by="ana", now=True)
        assert (await run.wait("paused", timeout=10)).reason == "paused by ana"
        await run.resume()
        await run.wait("running", timeout=10)
        before = asyncio.get_running_loop().time()
        await hf._worker.stop(60.0)
        assert asyncio.get_running_loop().time() - before < 30  # it is not waited for
        assert (await run.info()).status == "ready"
