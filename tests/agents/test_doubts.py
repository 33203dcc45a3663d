"""In doubt: a crash, the step's own timeout or `raise InDoubt` in mid-body, and what each policy makes of it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest
from tests.agents.runs import Gate, finish, history, kinds, nothing_in_memory

import holdfast
import holdfast.testing
from holdfast import NOT_DONE, InDoubt, StepFailed


class World:
    """What is outside: a ledger that never forgets, and how the next bodies behave."""

    def __init__(self) -> None:
        self.ledger: list[str] = []  # the idempotency keys of the effects that happened
        self.bodies: list[tuple[str, int, str]] = []
        self.probes: list[tuple[str, int, str]] = []
        self.troubles: list[str] = []  # what the next bodies do instead of returning, after or before their effect
        self.probe_failures = 0
        self.gate = Gate()
        self.seen: list[list[str]] = []
        self.hf: holdfast.testing.TestClient | None = None

    async def act(self, what: str) -> str:
        key = holdfast.idempotency_key()
        self.bodies.append((key, holdfast.this_step().attempt, what))
        if self.hf is not None:
            self.seen.append(await kinds(self.hf, holdfast.this_run().id))
        trouble = self.troubles.pop(0) if self.troubles else ""
        if "effect" in trouble or not trouble:
            self.ledger.append(key)
        if "timeout" in trouble or "crash" in trouble:
            await self.gate()
        if "doubt" in trouble:
            raise InDoubt("the line went dead")
        return f"{what} as {key[-4:]}"

    async def look(self, what: str) -> object:
        key = holdfast.idempotency_key()
        self.probes.append((key, holdfast.this_step().attempt, what))
        if self.probe_failures:
            self.probe_failures -= 1
            raise ConnectionError("the ledger is down")
        return f"{what} as {key[-4:]}" if key in self.ledger else NOT_DONE


world = World()


@pytest.fixture(autouse=True)
def fresh():
    globals()["world"] = World()


async def probe(what: str) -> object:
    return await world.look(what)


async def pay(what: str) -> str:
    return await world.act(what)


POLICIES = {"retry": "retry", "probe": probe, "ask": "ask", "fail": "fail"}
PAY = {name: holdfast.step(retry=2, in_doubt=policy)(pay) for name, policy in POLICIES.items()}
PAY_IN_TIME = {name: holdfast.step(retry=2, in_doubt=policy, timeout=1.0)(pay) for name, policy in POLICIES.items()}


@holdfast.agent
async def buy(policy: str, in_time: bool = False) -> str:
    try:
        paid = await (PAY_IN_TIME if in_time else PAY)[policy]("tea")
    except StepFailed as failure:
        paid = f"{type(failure).__name__} {failure.type}: {failure.message}"
    await holdfast.sleep("1h")
    return paid


async def into_trouble(hf, policy, trouble):
    """Start a run and bring its first body into trouble; returns when the policy has its say."""
    in_time = "timeout" in trouble
    world.hf, world.troubles = None if in_time else hf, [trouble]
    run = await hf.start(buy, policy, in_time, id="r")
    if "crash" in trouble:
        await asyncio.wait_for(world.gate.reached.wait(), 10)
        await hf.crash()
    return run


def assert_one_key():
    """Every body and every probe saw the same key and the same arguments."""
    assert len({(key, what) for key, _, what in [*world.bodies, *world.probes]}) == 1


TROUBLES = [f"{trouble} {effect}" for trouble in ("crash", "timeout", "doubt") for effect in ("effect", "nothing")]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_retry_runs_the_body_again_with_the_same_key(trouble):
    """The default: no intent is written, the body runs again, and whoever gets the key can tell that it is the same."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await into_trouble(hf, "retry", trouble)
        assert (await run.result()).startswith("tea as ")
        assert len(world.bodies) == 2
        assert all("step.started" not in seen for seen in world.seen)
        assert_one_key()


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_probe_decides(trouble):
    """It sees the key and the arguments; what it returns is the result; NOT_DONE means that the body must run."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await into_trouble(hf, "probe", trouble)
        assert (await run.result()).startswith("tea as ")
        assert len(world.probes) == 1
        assert world.probes[0][1] == 1  # it asks about this attempt
        assert len(world.bodies) == (1 if "effect" in trouble else 2)
        assert len(world.ledger) == 1
        assert_one_key()


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_fail_fails(trouble):
    """Nothing is tried again, whatever `retry=` says; a timeout stays a StepTimeout."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await into_trouble(hf, "fail", trouble)
        told = await run.result()
        kind = "StepTimeout StepTimeout" if "timeout" in trouble else "StepFailed InDoubt: whether the effect happened"
        assert told.startswith(kind)
        assert len(world.bodies) == 1


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_ask_asks_a_person(trouble):
    """The run waits for a person; the question names step and arguments; a truthful answer makes it right."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await into_trouble(hf, "ask", trouble)
        info = await run.wait("waiting")
        assert info.waits_for == "person"
        await nothing_in_memory(hf)
        (question,) = await run.approvals()
        assert (question.run, question.key, question.kind, question.status) == ("r", "pay#0", "in_doubt", "open")
        assert "Did pay(what='tea') happen?" in question.question
        happened = bool(world.ledger)
        decided = await hf.answer("r", {"result": "by ana"} if happened else "run", by="ana", note="looked")
        assert (decided.decided_by, decided.note, decided.status) == ("ana", "looked", "decided")
        result = await run.result()
        assert result == "by ana" if happened else result.startswith("tea as ")
        assert len(world.ledger) == 1
        assert_one_key()


@pytest.mark.parametrize("policy", ["probe", "ask", "fail"])
async def test_the_intent_is_written_before_the_body(policy):
    """All policies but the default: when the body runs, the journal says so."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        world.hf = hf
        await hf.run(buy, policy, id="r")
        assert world.seen == [["step.started"]]
        assert (await kinds(hf, "r"))[:2] == ["step.started", "step.completed"]


@pytest.mark.slow
async def test_without_trouble_no_policy_is_asked():
    """An exception from the body means not done: `retry` applies, and neither probe nor person is asked."""
    async for hf in holdfast.testing.crash_everywhere(agents=[buy]):
        globals()["world"] = World()
        assert (await hf.run(buy, "probe")).startswith("tea as ")
        assert len(world.probes) <= (hf.crashes > 0)


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_probe_that_raises_is_tried_again_like_a_step(failures):
    """When it cannot tell in the end, the step fails as in doubt; the body never runs again on a guess."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        world.probe_failures = failures
        run = await into_trouble(hf, "probe", "crash nothing")
        told = await run.result()
        assert len(world.probes) == 2
        if failures == 1:
            assert told.startswith("tea as ")
            assert len(world.bodies) == 2
        else:
            assert told.startswith("StepFailed InDoubt: the probe failed")
            assert "the ledger is down" in told
            assert len(world.bodies) == 1
        assert_one_key()


async def test_after_the_last_attempt_not_done_is_a_failure():
    """A timeout whose probe says NOT_DONE counts as a failed attempt; when none is left the step fails with it."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        world.troubles = ["timeout nothing", "timeout nothing"]
        assert (await hf.run(buy, "probe", True)).startswith("StepTimeout StepTimeout: no end within 1 s")
        assert (len(world.bodies), len(world.probes), world.ledger) == (2, 2, [])
        assert_one_key()


@dataclass
class NotDone:
    """Not ours, whatever it is called."""

    tasks: int


async def finds_tasks() -> NotDone:
    return NotDone(3)


@holdfast.step(in_doubt=finds_tasks)
async def count_tasks() -> NotDone:
    raise InDoubt("x")


@holdfast.agent
async def counts() -> int:
    return (await count_tasks()).tasks


def test_only_our_own_not_done_means_not_done():
    """A class of the user's with the same name is a result like any other."""
    assert finish(counts) == 3


class Till:
    async def _probe(self, amount: int) -> object:
        assert isinstance(self, Till)
        world.probes.append((holdfast.idempotency_key(), 1, str(amount)))
        return amount * 100

    @holdfast.step(in_doubt=_probe)
    async def ring(self, amount: int) -> int:
        raise InDoubt(str(amount))


@holdfast.agent
async def at_the_till() -> int:
    return await Till().ring(amount=3)


def test_a_method_has_its_probe_called_with_self():
    """The probe of a method is a method: it gets the object and the arguments."""
    assert finish(at_the_till) == 300
    assert [what for _, _, what in world.probes] == ["3"]


LET_GO = threading.Event()


@holdfast.step(timeout="20ms", in_doubt=probe, retry=2)
def threaded(what: str) -> str:
    world.bodies.append((holdfast.idempotency_key(), 1, what))
    world.hf._loop.call_soon_threadsafe(world.gate.reached.set)
    LET_GO.wait(10)
    if what == "doubt":
        raise InDoubt("x")
    if what == "error" and len(world.bodies) == 1:
        raise ValueError("not done")
    world.ledger.append(holdfast.idempotency_key())
    return f"{what} returned"


@holdfast.agent
async def buys_in_a_thread(what: str) -> str:
    return await threaded(what)


@pytest.mark.parametrize(("what", "bodies", "probes"), [("late", 1, 0), ("error", 2, 0), ("doubt", 2, 2)])
async def test_the_policy_waits_until_the_thread_has_returned(what, bodies, probes):
    """A thread cannot be stopped: past its timeout it is waited for, and what it did is known after all."""
    LET_GO.clear()

    async with holdfast.testing.open(agents=[buys_in_a_thread]) as hf:
        world.hf = hf
        hf._loop = asyncio.get_running_loop()
        run = await hf.start(buys_in_a_thread, what, id="r")
        await asyncio.wait_for(world.gate.reached.wait(), 10)
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.1)  # five times its timeout
        assert (len(world.bodies), world.probes) == (1, [])
        LET_GO.set()
        if what == "doubt":
            with pytest.raises(holdfast.RunFailed):
                await run.result()
        else:
            assert await run.result() == f"{what} returned"
        assert (len(world.bodies), len(world.probes)) == (bodies, probes)


@pytest.mark.parametrize("policy", ["retry", "ask"])
async def test_a_cancelled_step_is_recorded_as_in_doubt(policy):
    """The agent stopped waiting in mid-body: the record says that the effect is unknown; no replay runs it again."""

    @holdfast.agent
    async def stops() -> str:
        try:
            async with holdfast.timeout("1h"):
                await PAY[policy]("tea")
        except TimeoutError:
            await holdfast.sleep("1h")
            return "gave up"
        return "paid"

    async with holdfast.testing.open(agents=[stops]) as hf:
        world.troubles = ["crash effect"]
        run = await hf.start(stops, id="r")
        await asyncio.wait_for(world.gate.reached.wait(), 10)
        await hf.advance("2h")
        assert await run.result() == "gave up"
        (cancelled,) = [event for event in await history(hf, "r") if event.kind == "step.cancelled"]
        assert cancelled.data["in_doubt"] is True
        assert len(world.bodies) == 1


async def test_a_step_cancelled_between_attempts_is_not_in_doubt():
    """While it waits for its next attempt nothing runs, so nothing is unknown."""

    @holdfast.step(retry=holdfast.Retry(2, first="3h", max="3h"))
    async def fails() -> None:
        raise ValueError("not done")

    @holdfast.agent
    async def stops() -> str:
        try:
            async with holdfast.timeout("1h"):
                await fails()
        except TimeoutError:
            return "gave up"
        return "paid"

    async with holdfast.testing.open(agents=[stops]) as hf:
        assert await hf.run(stops, id="r") == "gave up"
        (cancelled,) = [event for event in await history(hf, "r") if event.kind == "step.cancelled"]
        assert cancelled.data["in_doubt"] is False
