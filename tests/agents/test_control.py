"""Pause, resume and cancel: from outside, at safe points, with children first, and across crashes."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.runs import Gate, history, kinds, nothing_in_memory

import holdfast
import holdfast.testing
from holdfast import RunCancelled, RunFinished

LOG: list[str] = []
GATES: dict[str, Gate] = {}


@pytest.fixture(autouse=True)
def fresh():
    LOG.clear()
    GATES.clear()


@holdfast.step
async def act(what: str) -> str:
    if what in GATES:
        await GATES[what]()
    LOG.append(what)
    return what


@holdfast.agent
async def waits() -> str:
    """Tidies up with two steps when it is cancelled."""
    try:
        await act("begin")
        return str(await holdfast.receive("go", str))
    except asyncio.CancelledError:
        await act("tidy 1")
        await holdfast.sleep("1m")
        await act("tidy 2")
        raise


@holdfast.agent
async def works() -> list[str]:
    return [await act("one"), await act("two"), await act("three")]


@holdfast.agent
async def below(name: str) -> None:
    try:
        await holdfast.sleep("1 day")
    finally:
        await act(f"{name} tidies")


@holdfast.agent
async def middle() -> None:
    try:
        await asyncio.gather(below("left"), below("right"))
    finally:
        await act("middle tidies")


@holdfast.agent
async def top() -> None:
    try:
        await holdfast.spawn(below, "spawned")
        await middle()
    finally:
        await act("top tidies")


@holdfast.agent
async def beside() -> None:
    try:
        await holdfast.spawn(below, "spawned")
        await below("called")
    finally:
        await act("it tidies")


@holdfast.agent
async def single() -> None:
    try:
        await below("only")
    finally:
        await act("single tidies")


@holdfast.agent
async def above() -> None:
    try:
        await single()
    finally:
        await act("above tidies")


@holdfast.agent
async def timed() -> None:
    """Tidies up with asyncio's timers, as a library does."""
    await holdfast.spawn(below, "spawned")
    try:
        await holdfast.receive("never")
    finally:
        await asyncio.sleep(0.001)
        await act("first")
        async with asyncio.timeout(5):
            await asyncio.sleep(0.001)
        await act("last")


@holdfast.agent
async def stubborn() -> None:
    while True:
        try:
            await holdfast.receive("never")
        except asyncio.CancelledError:
            await act("no")


async def test_a_waiting_run_is_paused_at_once_and_goes_on_when_resumed():
    """It holds no worker; what is sent meanwhile is received after the resume."""
    async with holdfast.testing.open(agents=[waits]) as hf:
        run = await hf.start(waits, id="r")
        await run.wait("waiting")
        await run.pause(reason="lunch", by="ana")
        info = await run.info()
        assert (info.status, info.reason) == ("paused", "paused by ana: lunch")
        await run.send("go", "now")
        await hf.advance("1 day")
        assert (await run.info()).status == "paused"
        with pytest.raises(holdfast.RunPaused, match="paused by ana: lunch"):
            await run.result()
        await run.resume(by="ben")
        assert await run.result() == "now"
        assert LOG == ["begin"]
        assert [(row["actor"], row["action"]) for row in reversed(await hf.store.audit("r"))] == [
            ("someone", "start"),
            ("ana", "pause"),
            ("someone", "send"),
            ("ben", "resume"),
        ]


async def test_a_running_run_is_paused_when_its_body_has_ended():
    """The body that runs ends and is recorded, the next one does not begin; resumed, nothing runs twice."""
    async with holdfast.testing.open(agents=[works]) as hf:
        gate = GATES["two"] = Gate()
        run = await hf.start(works, id="r")
        await gate.reached.wait()
        await run.pause(by="ana")
        await run.pause(by="ana")  # it is asked for already
        assert (await run.info()).status == "running"
        gate.open.set()
        await run.wait("paused")
        assert LOG == ["one", "two"]
        assert (await kinds(hf, "r"))[-1] == "run.paused"
        await nothing_in_memory(hf)
        await run.resume()
        assert await run.result() == LOG == ["one", "two", "three"]


async def test_a_pause_survives_the_death_of_the_owner():
    """The request lies in the inbox: whoever takes the run over pauses it."""
    async with holdfast.testing.open(agents=[works]) as hf:
        gate = GATES["two"] = Gate()
        run = await hf.start(works, id="r")
        await gate.reached.wait()
        await run.pause(by="ana")
        gate.open.set()
        await hf.crash()
        await run.wait("paused")
        await run.resume()
        assert await run.result() == ["one", "two", "three"]


async def test_a_cancelled_agent_tidies_up_with_further_steps():
    """`CancelledError` comes where it waits; its cleaning up is recorded, may wait, and the run ends cancelled."""
    async with holdfast.testing.open(agents=[waits]) as hf:
        run = await hf.start(waits, id="r")
        await run.wait("waiting")
        await run.cancel(reason="not needed", by="ana", grace="1h")
        with pytest.raises(RunCancelled, match="cancelled by ana: not needed"):
            await run.result()
        assert LOG == ["begin", "tidy 1", "tidy 2"]
        assert [kind for kind in await kinds(hf, "r") if kind.startswith("run.")] == [
            "run.cancelling",
            "run.unwinding",
            "run.cancelled",
        ]
        await run.cancel()  # it is
        with pytest.raises(RunFinished):
            await run.pause()


async def test_a_run_that_never_began_is_cancelled_at_once():
    """No line of its code runs."""
    async with holdfast.testing.open(agents=[waits]) as hf:
        run = await hf.start(waits, id="r", after="1h")
        await run.cancel(by="ana")
        assert (await run.info()).status == "cancelled"
        assert await kinds(hf, "r") == ["run.cancelled"]
        assert LOG == []


async def test_children_end_before_their_parent():
    """Deepest first, spawned ones too; each tidies up once, and the parent's code is told once."""
    async with holdfast.testing.open(agents=[top]) as hf:
        run = await hf.start(top, id="r")
        await run.wait("waiting")
        while len(await hf.runs(status="waiting")) < 5:
            await asyncio.sleep(0.01)
        await run.cancel(reason="enough", by="ana", grace="10m")
        with pytest.raises(RunCancelled):
            await run.result()
        assert {info.status for info in await hf.runs()} == {"cancelled"}
        assert sorted(LOG) == sorted(["left tidies", "right tidies", "spawned tidies", "middle tidies", "top tidies"])
        assert LOG.index("middle tidies") > max(LOG.index("left tidies"), LOG.index("right tidies"))
        assert LOG[-1] == "top tidies"
        assert await hf.store.audit("r") == await hf.store.audit()  # of the whole tree
        stopped = {(row["run"], row["actor"], row["via"]) for row in await hf.store.audit(actions=["cancel"])}
        assert ("r", "ana", "python") in stopped and len(stopped) == 5
        assert {via for run, _, via in stopped if run != "r"} == {"run"}


async def test_the_grace_ends_what_does_not_end_by_itself():
    """An agent that swallows the cancellation is ended when its grace is over; its steps until then are recorded."""
    async with holdfast.testing.open(agents=[stubborn]) as hf:
        run = await hf.start(stubborn, id="r")
        await run.wait("waiting")
        await run.cancel(by="ana", grace="1m")
        with pytest.raises(RunCancelled):
            await run.result()
        assert LOG == ["no"]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_second_cancel_ends_the_run_at_once(crash):
    """Also when the worker dies in between."""
    async with holdfast.testing.open(agents=[stubborn]) as hf:
        run = await hf.start(stubborn, id="r")
        await run.wait("waiting")
        await run.cancel(by="ana", grace="1 day")
        while LOG != ["no"]:
            await asyncio.sleep(0.01)
        if crash:
            await hf.crash()
        before = hf.clock.now()
        await run.cancel(by="ana")
        with pytest.raises(RunCancelled):
            await run.result()
        assert hf.clock.now() - before < 3_600_000  # not because the grace was over


async def test_a_paused_run_can_be_cancelled():
    """It goes on in order to tidy up."""
    async with holdfast.testing.open(agents=[waits]) as hf:
        run = await hf.start(waits, id="r")
        await run.wait("waiting")
        await run.pause()
        await run.cancel(by="ana", grace="1h")
        with pytest.raises(RunCancelled):
            await run.result()
        assert LOG == ["begin", "tidy 1", "tidy 2"]


@pytest.mark.slow
@pytest.mark.by_day("middle")
@pytest.mark.parametrize("family", [beside, middle, above])
async def test_cancelling_is_the_same_with_a_crash_at_every_point(family):
    """Each step of the cleaning up is recorded once, in the same place, and children end first; in families of three."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[family]):
        LOG.clear()
        run = await hf.start(family, id="r")
        while len(await hf.runs(status="waiting")) < 3:
            await asyncio.sleep(0.01)
        await run.cancel(by="ana", grace="1 day")
        await run.wait()
        assert {info.status for info in await hf.runs()} == {"cancelled"}
        for info in await hf.runs():
            steps = [event.key for event in await history(hf, info.id) if event.kind == "step.completed"]
            assert len(steps) == 1
        passes += 1
    assert passes > 20


async def test_the_grace_is_no_timer_of_the_agent(tmp_path):
    """Workers come and go between the request and its end: timers that the agent itself sets meanwhile keep their names."""
    brief = holdfast.Settings(park_grace_s=0, stop_grace_s=0.1)

    for name in ("spawned tidies", "first", "last"):
        GATES[name] = Gate()
    for name in ("spawned tidies", "first", "last", ""):  # at each of them a worker leaves, and another one comes
        async with holdfast.open(f"sqlite:{tmp_path}/x.db", agents=[timed, below], settings=brief) as hf:
            run = await hf.start(timed, id="r")
            if name == "spawned tidies":
                while len(await hf.runs(status="waiting")) < 2:
                    await asyncio.sleep(0.01)
                await run.cancel(by="ana", grace="1 day")
            if name:
                await GATES[name].reached.wait()
                del GATES[name]
            else:
                with pytest.raises(RunCancelled):
                    await run.result(timeout=20)
                assert [event.key for event in await history(hf, "r") if event.kind == "tick"] == [
                    ":tick#0",
                    ":tick#2",
                ]
    assert LOG == ["spawned tidies", "first", "last"]


@pytest.mark.slow
async def test_pausing_is_the_same_with_a_crash_at_every_point():
    """Whatever dies, the run is paused until it is resumed, and ends as if nothing had been."""
    async for hf in holdfast.testing.crash_everywhere(agents=[works]):
        LOG.clear()
        gate = GATES["two"] = Gate()
        run = await hf.start(works, id="r")
        await gate.reached.wait()
        await run.pause(by="ana")
        gate.open.set()
        await run.wait("paused")
        assert "three" not in LOG
        await run.resume()
        assert await run.result() == ["one", "two", "three"]


@holdfast.agent
async def undoes(fail: bool) -> None:
    """The undo list of the recipes."""
    async with AsyncUndo() as undo:
        for name in ("a", "b"):
            await act(f"do {name}")
            undo(act, f"undo {name}")
        if fail:
            raise ValueError("no")
        await holdfast.receive("go")


class AsyncUndo:
    """Undoes on failure and on cancel; on a park or crash its steps are refused, so nothing is undone."""

    def __init__(self):
        self._undo = []

    async def __aenter__(self):
        return lambda step, *args: self._undo.append((step, args))

    async def __aexit__(self, kind, *_):
        if kind is not None:
            for step, args in reversed(self._undo):
                await step(*args)


@pytest.mark.parametrize("how", ["fail", "cancel"])
async def test_undo_once_in_reverse_on_failure_and_cancel_never_on_a_park_or_crash(how):
    """The park and the crash leave the deeds as they are."""
    async with holdfast.testing.open(agents=[undoes]) as hf:
        run = await hf.start(undoes, how == "fail", id="r")
        if how == "cancel":
            await run.wait("waiting")
            await hf.crash()
            await run.wait("waiting")
            assert LOG == ["do a", "do b"]
            await run.cancel(grace="1h")
        info = await run.wait()
        assert info.status == ("failed" if how == "fail" else "cancelled")
        assert LOG == ["do a", "do b", "undo b", "undo a"]
