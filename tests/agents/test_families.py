"""A run and all below it: when it was cancelled, nobody is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading

import pytest
from tests.agents.runs import Gate, with_client

import holdfast
import holdfast.testing
from holdfast import RunCancelled, RunFinished

LOG: list[str] = []
GATES: dict[str, Gate] = {}
OPEN = {"ready", "running", "waiting", "paused"}


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


@holdfast.step
async def takes(seconds: float) -> None:
    await asyncio.sleep(seconds)


@holdfast.agent
async def sleeper(name: str) -> str:
    """Tidies up with a step."""
    try:
        await holdfast.sleep("1 day")
    except asyncio.CancelledError:
        await act(f"{name} tidies")
        raise
    return name


@holdfast.agent
async def worker(name: str) -> str:
    return await act(name)


async def left(hf):
    """Who has not ended."""
    return {info.id: info.status for info in await hf.runs(limit=1000) if info.status in OPEN}


async def until(holds):
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.005)


def waiting(hf, count):
    async def holds():
        return len(await hf.runs(status="waiting")) == count

    return holds


def at_least(hf, count):
    async def holds():
        return len(await hf.runs(status="waiting")) >= count

    return holds


@holdfast.agent
async def breeds(seed: int, crowd: int = 6) -> None:
    """Steps that end at any time, each followed by a child: also in the moment in which the agent is told."""
    chance = random.Random(seed)

    async def line(name: str, takes_s: float, spawns: bool) -> None:
        await takes(takes_s)
        if not spawns:
            await sleeper(name)
            return
        await holdfast.spawn(sleeper, name)
        await holdfast.sleep("1 day")

    await asyncio.gather(*[line(str(n), chance.random() * 0.01, bool(chance.randrange(2))) for n in range(crowd)])


@pytest.mark.slow
@pytest.mark.by_day("0")
@pytest.mark.parametrize("seeds", range(4))
def test_a_child_that_is_started_while_its_parent_is_told_is_not_left_behind(seeds):
    """An outcome that was recorded before the agent was told may start a child after its children were counted."""

    async def one(seed):
        async with holdfast.testing.open(agents=[breeds, sleeper]) as hf:
            run = await hf.start(breeds, seed, id="r")
            await asyncio.sleep(random.Random(f"when {seed}").random() * 0.02)
            await run.cancel(grace="1h")
            await run.wait(timeout=30)
            assert await left(hf) == {}, seed

    for seed in range(seeds * 25, seeds * 25 + 25):
        asyncio.run(one(seed))


@holdfast.agent
async def restarts(how: str) -> None:
    """Starts a child while it tidies up, and does not wait for it."""
    try:
        await holdfast.sleep("1 day")
    finally:
        await act("tidies")
        if how == "spawn":
            await holdfast.spawn(sleeper, "late")
        else:
            waiting = asyncio.ensure_future(sleeper("late"))
            await holdfast.sleep("1m")
            waiting.cancel()


@pytest.mark.parametrize("how", ["spawn", "call"])
async def test_what_is_started_while_tidying_up_ends_first(how):
    """A child that the agent leaves behind is told when the agent has ended; the run ends after it."""
    async with holdfast.testing.open(agents=[restarts, sleeper]) as hf:
        run = await hf.start(restarts, how, id="r")
        await run.wait("waiting")
        await run.cancel(grace="1 day")
        with pytest.raises(RunCancelled):
            await run.result()
        assert await left(hf) == {}
        assert LOG == ["tidies", "late tidies"]


@holdfast.agent
async def swallows() -> str:
    """Goes on as if nothing had been said."""
    try:
        await holdfast.sleep("1 day")
    except asyncio.CancelledError:
        await holdfast.spawn(sleeper, "late")
    return "done"


async def test_an_agent_that_swallows_the_cancellation_leaves_nobody_behind_either():
    """It has completed, and what it started is told and ends before it."""
    async with holdfast.testing.open(agents=[swallows, sleeper]) as hf:
        run = await hf.start(swallows, id="r")
        await run.wait("waiting")
        await run.cancel(grace="1 day")
        assert await run.result() == "done"
        assert await left(hf) == {}
        assert LOG == ["late tidies"]


@holdfast.agent
async def leaves_one(name: str) -> str:
    """Ends before its child does."""
    await holdfast.spawn(sleeper, name)
    return name


@holdfast.agent
async def grandparent() -> None:
    await leaves_one("left")
    await leaves_one("right")
    await holdfast.sleep("1 day")


async def test_children_of_children_that_have_ended_are_told():
    """A child that has completed tells nobody any more: the run above it does, and waits for their ends."""
    async with holdfast.testing.open(agents=[grandparent, leaves_one, sleeper]) as hf:
        run = await hf.start(grandparent, id="r")
        await until(waiting(hf, 3))
        await run.cancel(grace="1 day")
        await run.wait()
        assert await left(hf) == {}
        assert sorted(LOG) == ["left tidies", "right tidies"]


@holdfast.agent
async def above_a_body() -> None:
    await worker("slow")


@pytest.mark.parametrize("how", ["no grace", "second"])
async def test_who_is_ended_without_its_code_ends_together_with_all_below_it(how):
    """A child whose body runs is over in the very moment in which its parent is: nobody sees one without the other."""
    async with holdfast.testing.open(agents=[above_a_body, worker]) as hf:
        gate = GATES["slow"] = Gate()
        run = await hf.start(above_a_body, id="r")
        await gate.reached.wait()
        await until(waiting(hf, 1))
        await run.cancel(grace=0 if how == "no grace" else "1 day")
        if how == "second":
            await run.cancel()
        await run.wait(timeout=20)
        assert await left(hf) == {}
        (child,) = await hf.runs(parent="r")
        assert child.status == "cancelled"

        async def let_go():
            return not hf._worker.attempts

        await until(let_go)  # its owner hears of it, and stops the body
        assert LOG == []


@holdfast.agent
async def fails(name: str) -> None:
    raise ValueError(name)


@holdfast.agent
async def above_a_failure() -> None:
    try:
        await fails("it")
    except holdfast.RunFailed:
        await holdfast.sleep("1 day")


async def test_a_failed_child_of_a_cancelled_run_cannot_be_retried():
    """It would be unfinished below a run that has ended for good."""
    async with holdfast.testing.open(agents=[above_a_failure, fails]) as hf:
        run = await hf.start(above_a_failure, id="r")
        await until(waiting(hf, 1))
        await run.cancel()
        await run.wait()
        (child,) = await hf.runs(parent="r")
        assert child.status == "failed"
        with pytest.raises(RunFinished, match="belongs to run 'r', which was cancelled"):
            await hf.get(child.id).retry()
        assert await left(hf) == {}


@holdfast.agent
async def everything() -> None:
    """Children before, in between and after, spawned and called, with children of their own."""
    try:
        await holdfast.spawn(leaves_one, "spawned")
        await asyncio.gather(leaves_one("called"), act("one"), act("two"))
        await sleeper("last")
    finally:
        await holdfast.spawn(sleeper, "late")


@pytest.mark.nightly
async def test_nobody_is_left_behind_wherever_a_crash_comes():
    """At every commit on the way."""
    async for hf in holdfast.testing.crash_everywhere(agents=[everything, leaves_one, sleeper]):
        run = await hf.start(everything, id="r")
        await until(at_least(hf, 4))
        await run.cancel(grace="1 day")
        await run.wait()
        assert await left(hf) == {}
        assert {info.status for info in await hf.runs()} == {"completed", "cancelled"}


# Pause and resume


@holdfast.agent
async def parent(names: list[str]) -> list[str]:
    return list(await asyncio.gather(*[sleeper(name) for name in names]))


async def states(hf):
    """The state of each run by the last argument of its agent, or its id."""
    found = {}
    for info in await hf.runs(limit=1000):
        arguments = await hf.get(info.id).arguments()
        found[arguments.get("name", info.id)] = info.status
    return found


async def child_of(hf, name):
    for info in await hf.runs(limit=1000):
        if (await hf.get(info.id).arguments()).get("name") == name:
            return hf.get(info.id)
    raise AssertionError(name)


def all_paused(hf):
    async def holds():
        return {info.status for info in await hf.runs(limit=1000)} == {"paused"}

    return holds


async def test_a_pause_takes_the_family_and_the_resume_gives_it_back():
    """Children do not go on and spend while their parent is paused; resumed, all of them end."""
    async with holdfast.testing.open(agents=[parent, sleeper]) as hf:
        run = await hf.start(parent, ["a", "b"], id="r")
        await until(waiting(hf, 3))
        await run.pause(by="ana", reason="lunch")
        assert await states(hf) == {"r": "paused", "a": "paused", "b": "paused"}
        await hf.advance("2 days")
        assert await states(hf) == {"r": "paused", "a": "paused", "b": "paused"}
        child = await child_of(hf, "a")
        assert (await child.info()).reason == "paused by ana: lunch"
        assert [(deed.by, deed.action) for deed in await hf.audit(run=child.id)] == [("ana", "pause")]
        await run.resume(by="ben")
        assert await run.result() == ["a", "b"]
        assert {deed.action for deed in await hf.audit(run=child.id)} == {"pause", "resume"}


async def test_one_run_alone_is_paused_if_asked_so():
    """Its children go on."""
    async with holdfast.testing.open(agents=[parent, sleeper]) as hf:
        run = await hf.start(parent, ["a"], id="r")
        await until(waiting(hf, 2))
        await run.pause(family=False)
        await hf.advance("2 days")
        assert await states(hf) == {"r": "paused", "a": "completed"}
        await run.resume()
        assert await run.result() == ["a"]


CHANGED: list[str] = []


@holdfast.agent
async def changes(name: str) -> str:
    """Diverges when it was changed meanwhile."""
    await act(CHANGED[0] if CHANGED else "as recorded")
    return str(await holdfast.receive("go", str))


@holdfast.agent
async def mixed() -> None:
    await asyncio.gather(changes("diverges"), sleeper("before"), sleeper("after"), sleeper("with it"))


async def test_a_resume_undoes_that_pause_and_no_other():
    """What was paused by divergence, or by a request of its own before or after, stays paused."""
    CHANGED.clear()
    async with holdfast.testing.open(agents=[mixed, changes, sleeper]) as hf:
        run = await hf.start(mixed, id="r")
        await until(waiting(hf, 5))
        CHANGED.append("otherwise")
        await (await child_of(hf, "diverges")).send("go", "on")
        await (await child_of(hf, "diverges")).wait("paused")
        await (await child_of(hf, "before")).pause(by="ben")
        await run.pause(by="ana")
        await (await child_of(hf, "after")).pause(by="ben")
        await run.resume()
        await hf.advance("2 days")
        found = await states(hf)
        assert found == {
            "r": "waiting",
            "diverges": "paused",
            "before": "paused",
            "after": "paused",
            "with it": "completed",
        }
        assert "NondeterminismError" in (await (await child_of(hf, "diverges")).info()).reason
        CHANGED.clear()
        for name in ("diverges", "before", "after"):
            await (await child_of(hf, name)).resume()
        await run.result()


async def test_a_pause_by_the_engine_takes_no_family():
    """A parent that diverges leaves its children alone; a request takes them, and its resume gives them back."""
    CHANGED.clear()
    async with holdfast.testing.open(agents=[above_that_changes, sleeper]) as hf:
        run = await hf.start(above_that_changes, id="r")
        await until(waiting(hf, 2))
        CHANGED.append("otherwise")
        await run.send("go", "on")
        assert "NondeterminismError" in (await run.wait("paused")).reason
        assert (await states(hf))["child"] == "waiting"
        await run.pause(by="ana")
        assert await states(hf) == {"r": "paused", "child": "paused"}
        assert "NondeterminismError" in (await run.info()).reason
        CHANGED.clear()
        await run.resume()
        assert await run.result() == "on"
        assert await (await child_of(hf, "child")).result() == "child"


@holdfast.agent
async def above_that_changes() -> str:
    await holdfast.spawn(sleeper, "child")
    await act(CHANGED[0] if CHANGED else "as recorded")
    return str(await holdfast.receive("go", str))


@holdfast.agent
async def foreman(name: str) -> list[str]:
    return [await worker(name), await worker("after")]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_body_below_may_end_and_nothing_begins_after_it(crash):
    """The child is paused when its body has ended, also by the next owner if the first one dies."""
    async with holdfast.testing.open(agents=[foreman, worker]) as hf:
        gate = GATES["slow"] = Gate()
        run = await hf.start(foreman, "slow", id="r")
        await gate.reached.wait()
        await until(waiting(hf, 1))
        await run.pause()
        if crash:
            await hf.crash()
        gate.open.set()
        await until(all_paused(hf))
        assert ([] if crash else ["slow"]) == LOG  # what a crash has stopped does not begin again before the pause
        await run.resume()
        assert await run.result() == ["slow", "after"]
        assert LOG.count("after") == 1


@pytest.mark.parametrize("crash", [False, True])
async def test_a_resume_calls_off_a_pause_that_was_not_carried_out(crash):
    """A child whose body still ran is not paused later, when its family has long gone on."""
    async with holdfast.testing.open(agents=[foreman, worker]) as hf:
        gate = GATES["slow"] = Gate()
        run = await hf.start(foreman, "slow", id="r")
        await gate.reached.wait()
        await until(waiting(hf, 1))
        await run.pause()
        (child,) = await hf.runs(parent="r")

        async def seen():
            return "run.pausing" in [event.kind async for event in hf.get(child.id).events(follow=False)]

        await until(seen)
        await run.resume()
        if crash:
            await hf.crash()
        gate.open.set()
        assert await run.result(timeout=20) == ["slow", "after"]


async def test_a_pause_that_its_owner_has_not_carried_out_is_resumed():
    """Asked to pause while a body runs, and asked to go on before that has ended: it goes on."""
    async with holdfast.testing.open(agents=[worker]) as hf:
        gate = GATES["slow"] = Gate()
        run = await hf.start(worker, "slow", id="r")
        await gate.reached.wait()
        await run.pause()
        await run.resume()
        gate.open.set()
        assert await run.result(timeout=20) == "slow"
        with pytest.raises(RunFinished):
            await run.resume()


@pytest.mark.slow
@pytest.mark.by_day("0")
@pytest.mark.parametrize("seeds", range(2))
def test_a_child_that_is_started_while_its_family_is_paused_is_paused_too(seeds):
    """Whenever the request comes, in the end all are paused; resumed, they go on as if nothing had been."""

    async def one(seed):
        async with holdfast.testing.open(agents=[breeds, sleeper]) as hf:
            run = await hf.start(breeds, seed, id="r")
            await asyncio.sleep(random.Random(f"when {seed}").random() * 0.02)
            await run.pause()
            await until(all_paused(hf))
            await asyncio.sleep(0.02)
            assert await all_paused(hf)(), seed
            await run.resume()
            await run.result(timeout=20)

    for seed in range(seeds * 20, seeds * 20 + 20):
        asyncio.run(one(seed))


async def test_a_request_to_all_that_fit_is_one_request():
    """Paused by a label that the whole family has, the family goes on when the root is resumed."""
    async with holdfast.testing.open(agents=[parent, sleeper]) as hf:
        run = await hf.start(parent, ["a", "b"], id="r", labels={"team": "x"})
        await until(waiting(hf, 3))
        assert len(await hf.pause(labels={"team": "x"})) == 3
        assert len(await hf.audit(action="pause")) == 3
        await run.resume()
        assert await run.result() == ["a", "b"]


async def test_a_paused_family_that_is_cancelled_tidies_up():
    """And what it starts meanwhile is not paused."""
    async with holdfast.testing.open(agents=[restarts, sleeper]) as hf:
        run = await hf.start(restarts, "call", id="r")
        await until(waiting(hf, 1))
        await run.pause()
        await run.cancel(grace="1 day")
        with pytest.raises(RunCancelled):
            await run.result()
        assert await left(hf) == {}
        assert LOG == ["tidies", "late tidies"]


@pytest.mark.slow
async def test_a_family_is_paused_and_resumed_wherever_a_crash_comes():
    """At every commit on the way."""
    async for hf in holdfast.testing.crash_everywhere(agents=[parent, sleeper]):
        run = await hf.start(parent, ["a", "b"], id="r")
        await until(waiting(hf, 3))
        await run.pause()
        await until(all_paused(hf))
        await run.resume()
        assert await run.result() == ["a", "b"]


# Paused now

KEYS: list[str] = []


@holdfast.step
async def spells(word: str) -> str:
    """Writes to a stream; the first time it hangs in the middle."""
    KEYS.append(holdfast.idempotency_key())
    async with holdfast.stream("out") as out:
        await out.write(word)
        if len(KEYS) == 1:
            await GATES["spell"]()
        await out.write(" and more")
    return word


@holdfast.step(in_doubt="fail")
async def once(word: str) -> str:
    KEYS.append(word)
    await GATES["spell"]()
    return word


@holdfast.agent
async def speller(word: str, step: str) -> str:
    try:
        return await (spells(word) if step == "spells" else once(word))
    except holdfast.StepFailed as error:
        return f"failed: {error}"


@holdfast.agent
async def above_speller(step: str) -> str:
    return await speller("abc", step)


async def test_paused_now_a_body_is_stopped_and_runs_again_with_the_same_key():
    """What it had written to a stream stays readable; after the resume the body begins anew."""
    KEYS.clear()
    async with holdfast.testing.open(agents=[above_speller, speller]) as hf:
        gate = GATES["spell"] = Gate()
        run = await hf.start(above_speller, "spells", id="r")
        await gate.reached.wait()
        await until(waiting(hf, 1))
        await run.pause(now=True, by="ana")
        await until(all_paused(hf))
        (child,) = await hf.runs(parent="r")
        assert child.reason == "paused by ana"
        text = [chunk.data async for chunk in hf.get(child.id).stream("out", follow=False) if chunk.kind == "data"]
        assert text == ["abc"]
        await run.resume()
        assert await run.result() == "abc"
        assert len(KEYS) == 2
        assert len(set(KEYS)) == 1


async def test_paused_now_a_body_is_in_doubt():
    """The policy of the step decides when the run is resumed, as after a crash."""
    KEYS.clear()
    async with holdfast.testing.open(agents=[speller]) as hf:
        gate = GATES["spell"] = Gate()
        run = await hf.start(speller, "abc", "once", id="r")
        await gate.reached.wait()
        await run.pause(now=True)
        await run.wait("paused")
        await run.resume()
        assert (
            "InDoubt: whether the effect happened is not known: it was stopped by a pause while" in await run.result()
        )
        assert KEYS == ["abc"]
        assert (await run.info()).crashes == 0


@holdfast.step(retry=holdfast.Retry(1))
async def breaks_down() -> None:
    raise ValueError("no good")


@holdfast.agent
async def late_looker(looks: bool) -> str:
    task = asyncio.create_task(breaks_down())
    await asyncio.wait([task])
    word = await holdfast.receive("words", str)
    if looks:
        with contextlib.suppress(ValueError, holdfast.StepFailed):
            await task
    return word


@pytest.mark.slow
@pytest.mark.parametrize("looks", [True, False])
def test_a_failure_that_the_agent_has_not_looked_at_is_not_lost_with_a_pause(caplog, looks):
    """The next life meets it again. Only an agent that has returned without a look at it has lost it, and asyncio says so."""

    async def main(hf):
        run = await hf.start(late_looker, looks, id="r")
        await run.wait("waiting", waits_for="message")
        await run.pause()
        await run.wait("paused")
        gc.collect()
        assert "never retrieved" not in caplog.text
        await run.resume()
        await run.send("words", "on")
        assert await run.result() == "on"

    with_client(main, agents=[late_looker])
    gc.collect()
    assert caplog.text.count("never retrieved") == (0 if looks else 1)


THREADS: list[str] = []


async def test_paused_now_a_body_in_a_thread_that_must_not_run_twice_is_waited_for():
    """Nothing can stop a thread: the run is paused when it has returned, and its result is recorded."""
    began, may_end = threading.Event(), threading.Event()

    @holdfast.step(in_doubt="fail")
    def in_thread() -> str:
        began.set()
        assert may_end.wait(20)
        THREADS.append("ran")
        return "ran"

    @holdfast.agent
    async def threaded() -> str:
        return await in_thread()

    THREADS.clear()
    async with holdfast.testing.open(agents=[threaded]) as hf:
        run = await hf.start(threaded, id="r")
        await asyncio.to_thread(began.wait, 20)
        await run.pause(now=True)
        may_end.set()
        await run.wait("paused")
        await run.resume()
        assert await run.result() == "ran"
        assert THREADS == ["ran"]
