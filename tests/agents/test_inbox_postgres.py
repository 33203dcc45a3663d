"""A run in memory on PostgreSQL, into whose journal the store itself puts what came: meanwhile its owner numbers nothing."""

import asyncio
import threading

from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

import holdfast
from holdfast.client.client import Client
from holdfast.store.postgres.store import PostgresStore

IN_MEMORY = holdfast.Settings(park_grace_s=60.0, stop_grace_s=20.0)


class Holds:
    """Keeps what is taken from an inbox from being committed until it may be, or loses the answer."""

    def __init__(self):
        self.opened, self.loses = threading.Event(), False

    def before_commit(self, writes):
        if writes == ["take"]:
            assert self.opened.wait(20)

    def after_commit(self, writes):
        if writes == ["take"] and self.loses:
            self.loses = False
            raise OSError("lost")


class Held(Client):
    """A client whose store has this hook."""

    def __init__(self, url, hook, agent):
        super().__init__(url, agents=[agent], settings=IN_MEMORY)
        self.hook = hook

    def _make_store(self):
        return PostgresStore.from_url(self._url, faults=self.hook)


@holdfast.step
async def act(value: object) -> object:
    return value


@holdfast.agent(name="taking-both")
async def both() -> list[object]:
    async def rings() -> str:
        await holdfast.sleep("1h")
        return "rang"

    async def hears() -> int:
        return await holdfast.receive("mail", int)

    return [await act(each) for each in await asyncio.gather(rings(), hears())]


@holdfast.agent(name="taking-listener")
async def listener() -> object:
    return await act(await holdfast.receive("mail", int))


async def waits(hf, agent):
    """A run that only waits, in memory: it would be parked if the grace were over."""
    run = await hf.start(agent)
    while True:
        carried = hf._worker.attempts.get(run.id)
        if carried and carried.attempt.parking.timer is not None and not carried.attempt.tasks.gate.pumping:
            return run, carried.attempt
        await asyncio.sleep(0.002)


async def told(hf, agent):
    """A run whose message is being taken by the store. Now and then a poll is quicker, and its owner reads it: then another."""
    while True:
        run, attempt = await waits(hf, agent)
        await run.send("mail", 7)
        if attempt.pen.is_held:
            return run, attempt


async def kinds(run):
    return [event.kind async for event in run.events(follow=False)]


async def test_a_timer_that_fires_meanwhile_comes_behind(postgres_url):  # noqa: F811
    """It has a number and nobody has seen it: it moves behind the message, and another life sees the same order."""
    hook = Holds()
    async with Held(postgres_url, hook, both) as hf:
        run, attempt = await told(hf, both)
        (timer,) = (call for call in attempt.calls.values() if call.of == "timer")
        attempt.life.outside.run(timer._fire)  # its time has come
        assert [append.expected_seq for append in attempt.pen.held()] == [1]
        hook.opened.set()
        assert await run.result(timeout=20) == ["rang", 7]
        found = await kinds(run)
        assert found[:3] == ["timer.set", "message.received", "timer.fired"]
        assert [event.seq async for event in run.events(follow=False)] == list(range(len(found)))


async def test_a_worker_that_stops_meanwhile_gives_the_run_back(postgres_url):  # noqa: F811
    """It waits for what is on its way; the next worker goes on with the message, which came once, and not after a lease."""
    hook = Holds()
    async with Held(postgres_url, hook, listener) as hf:
        run, attempt = await told(hf, listener)
        stopping = asyncio.ensure_future(hf._worker.stop(0.0))
        while not attempt.life.closing:
            await asyncio.sleep(0)
        assert attempt.pen.is_held
        hook.opened.set()
        await stopping
        assert (await hf.store.run(run.id)).status == "ready"  # before the store gives back what is left
    async with holdfast.open(postgres_url, agents=[listener]) as other:
        assert await other.get(run.id).result(timeout=20) == 7
        assert (await kinds(other.get(run.id))).count("message.received") == 1


async def test_a_message_whose_answer_was_lost_comes_once(postgres_url):  # noqa: F811
    """The commit happened and nobody was told: the run finds it in its journal and goes on in the same life."""
    hook = Holds()
    hook.loses = True
    async with Held(postgres_url, hook, listener) as hf:
        run, attempt = await told(hf, listener)
        hook.opened.set()
        assert await run.result(timeout=20) == 7
        assert not hook.loses
        assert (await hf.store.run(run.id)).lease_epoch == attempt.run.lease_epoch
        assert await kinds(run) == ["message.received", "step.completed", "run.completed"]
