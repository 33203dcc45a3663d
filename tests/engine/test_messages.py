"""`receive` and `receive_nowait`: none lost, order kept, the same on replay."""

import asyncio
import contextlib
from dataclasses import dataclass

import apsw
import pytest
from pydantic import BaseModel
from tests.engine.lives import counted, history

import holdfast
import holdfast.testing
from holdfast.engine.inbox import Mailbox
from holdfast.words.model import Event


@dataclass
class Order:
    item: str
    count: int = 1


class Payment(BaseModel):
    cents: int


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.agent
async def listener(count: int) -> list[str]:
    return [await holdfast.receive("news", str) for _ in range(count)]


async def test_messages_sent_before_anyone_listens_are_received_in_order():
    """Messages sent before the agent asks for them are received in the order sent, topic by topic."""

    @holdfast.agent
    async def agent() -> list[str]:
        await holdfast.sleep("1h")
        out = [await holdfast.receive("a", str) for _ in range(3)]
        return out + [await holdfast.receive("b", str) for _ in range(3)]

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        for n in range(3):
            await run.send("b", f"b{n}")
            await run.send("a", f"a{n}")
        assert await run.result(timeout=20) == ["a0", "a1", "a2", "b0", "b1", "b2"]


async def test_a_message_wakes_a_parked_run():
    """A run that waits for a message is parked, and one of its topic makes it go on."""
    async with holdfast.testing.open(agents=[listener]) as hf:
        run = await hf.start(listener, 2, id="r")
        assert (await run.wait("waiting")).waits_for == "message"
        await run.send("other", "not this")
        await run.send("news", "one")
        await run.wait("waiting")
        await run.send("news", "two")
        assert await run.result(timeout=20) == ["one", "two"]


async def test_messages_are_typed():
    """A message comes as the type the agent names: a dataclass, a pydantic model, or plain data."""

    @holdfast.agent
    async def agent() -> list[str]:
        order = await holdfast.receive("order", Order)
        payment = await holdfast.receive("payment", Payment)
        many = await holdfast.receive("many", list[Order])
        plain = await holdfast.receive("plain")
        return [repr(value) for value in (order, payment, many, plain)]

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.send("order", Order("tea", 2))
        await run.send("payment", {"cents": 5})
        await run.send("many", [{"item": "x"}])
        await run.send("plain", {"a": [1, (2, 3)]})
        assert await run.result(timeout=20) == [
            "Order(item='tea', count=2)", "Payment(cents=5)", "[Order(item='x', count=1)]", "{'a': [1, (2, 3)]}",
        ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", ["receive", "receive_nowait"])
async def test_a_message_of_another_type_is_a_clear_error(way):
    """A message that does not fit raises an error that names its topic, is taken away, and the next ones are not lost."""

    @holdfast.agent
    async def agent() -> list[str]:
        await holdfast.sleep("1h")
        out = []
        for _ in range(2):
            try:
                if way == "receive":
                    out.append(str(await holdfast.receive("count", int)))
                else:
                    out += map(str, holdfast.receive_nowait("count", int))
            except holdfast.BadArguments as error:
                out.append(str(error))
        await work("after")
        return out

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        await run.send("count", "many", key="1")
        await run.send("count", 7, key="2")
        problem, count = await run.result(timeout=20)
        assert "'count'" in problem
        assert count == "7"


@pytest.mark.parametrize("park", [True, False])
async def test_receive_times_out(park):
    """A receive without a message in time raises TimeoutError, and what comes later is there for the next one."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        try:
            await holdfast.receive("news", str, timeout="2h")
        except TimeoutError as error:
            out.append(str(error))
        out.append(await holdfast.receive("news", str, timeout="2h"))
        await holdfast.sleep("5h")  # past every deadline
        return out

    async with holdfast.testing.open(agents=[agent], park=park) as hf:
        run = await hf.start(agent, id="r")
        while not await counted(run, "timer.fired"):
            await hf.advance("1h")
        await hf.crash()
        await run.send("news", "late")
        problem, late = await run.result(timeout=20)
        assert "'news'" in problem
        assert late == "late"


@pytest.mark.slow
async def test_a_cancelled_receiver_takes_nothing():
    """A receiver that is cancelled leaves the message to the next one, also when it comes at that very moment."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        for _ in range(3):
            task = asyncio.create_task(holdfast.receive("news", str))
            await work("meanwhile")
            if not task.done():
                task.cancel()
            (end,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(end, str):
                out.append(end)
        while len(out) < 5:
            out.append(await holdfast.receive("news", str))
        return out

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        for n in range(5):
            await run.send("news", f"m{n}", key=f"{n}")
        assert await run.result(timeout=20) == [f"m{n}" for n in range(5)]


async def test_a_message_given_to_a_receiver_that_is_gone_goes_to_the_next():
    """A message whose receiver was cancelled before it could look goes to another one that waits already."""
    mailbox, loop = Mailbox(), asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    mailbox.wait("message", "news", first)
    mailbox.wait("message", "news", second)
    message = Event(1, "message.received", data={"topic": "news"})
    mailbox.message(message)
    mailbox.forget("message", "news", first)
    assert second.result() is message
    mailbox.forget("message", "news", second)
    assert mailbox.take("news") is message


@pytest.mark.slow
async def test_two_receivers_share_a_topic():
    """Two receivers of one topic get its messages in the order they asked, across crashes."""

    @holdfast.agent
    async def agent() -> list[str]:
        return list(await asyncio.gather(*(holdfast.receive("news", str) for _ in range(4))))

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        for n in range(4):
            await run.send("news", f"m{n}", key=f"{n}")
        assert await run.result(timeout=20) == ["m0", "m1", "m2", "m3"]


@pytest.mark.slow
async def test_messages_whose_times_are_not_in_their_order_are_taken_in_their_order():
    """Senders' clocks differ: what came first counts, and a crash while they are taken loses and doubles none."""
    async for hf in holdfast.testing.crash_everywhere(agents=[listener]):
        run = await hf.start(listener, 4, id="r")
        await run.wait("waiting", "completed")
        if (await run.info()).status != "completed":
            await run.pause()
            await run.wait("paused", "completed")
            for n in range(4):
                await run.send("news", f"m{n}", key=f"{n}")
            with contextlib.closing(apsw.Connection(hf.store.path)) as db:
                db.set_busy_timeout(5000)
                db.execute("UPDATE signals SET sent_at = sent_at - position * 100")
            await run.resume()
        assert await run.result(timeout=20) == [f"m{n}" for n in range(4)]
        assert await counted(run, "message.received") == 4


@pytest.mark.slow
async def test_no_message_is_lost_or_doubled_in_a_crash():
    """Whatever commit a crash comes at, each message is received once, in order."""
    async for hf in holdfast.testing.crash_everywhere(agents=[listener]):
        run = await hf.start(listener, 5, id="r")
        for n in range(5):
            await run.send("news", f"m{n}", key=f"{n}")
        assert await run.result(timeout=20) == [f"m{n}" for n in range(5)]
        assert await counted(run, "message.received") == 5


async def test_a_message_sent_twice_with_one_key_is_one():
    """The same key twice is one message, whoever sends it; another key is another."""
    async with holdfast.testing.open(agents=[listener]) as hf:
        run = await hf.start(listener, 2, id="r")
        for key in ("k", "k", "k2", "k"):
            await run.send("news", key, key=key)
        assert await run.result(timeout=20) == ["k", "k2"]


async def test_receive_nowait_is_the_same_on_replay():
    """receive_nowait gives what had arrived at that line, and gives it again to every later life."""
    seen: list[list[list[str]]] = []

    @holdfast.agent
    async def agent() -> list[str]:
        looks: list[list[str]] = []
        seen.append(looks)
        while sum(map(len, looks)) < 4:
            looks.append(holdfast.receive_nowait("news", str))
            await holdfast.sleep("1h")
        return [text for look in looks for text in look]

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        for n in range(4):
            await run.wait("waiting")
            await run.send("news", f"m{n}")
            await run.send("other", "not this")
            await hf.advance("61m")
        assert await run.result(timeout=20) == [f"m{n}" for n in range(4)]
    for earlier, later in zip(seen, seen[1:], strict=False):
        assert later[: len(earlier)] == earlier
    assert len(seen) > 3


@pytest.mark.slow
async def test_a_large_message_outlives_a_checkpoint():
    """A message too large for the journal's row is carried over a checkpoint like any other, resumed or not."""
    large = "x" * 200_000

    @holdfast.agent
    async def agent() -> int:
        state = await holdfast.restore({"sleeps": 0})
        if state["sleeps"] == 0:
            await holdfast.sleep("1h")
            state = await holdfast.checkpoint({"sleeps": 1})
        text = await holdfast.receive("news", str)
        return len(text)

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        await run.send("news", large, key="1")
        assert await run.result(timeout=20) == 200_000


@pytest.mark.parametrize("topic", ["", "x" * 201, None, 3])
async def test_what_is_no_topic_is_refused(topic):
    """A topic that is none is an error for sender and receiver, and nothing is written."""

    @holdfast.agent
    async def agent() -> str:
        for verb in (holdfast.receive, holdfast.receive_nowait):
            try:
                verb(topic)
            except holdfast.BadArguments:
                continue
            return f"{verb} took it"
        return "refused"

    async with holdfast.testing.open(agents=[agent, listener]) as hf:
        run = await hf.start(listener, 1, id="l")
        with pytest.raises(holdfast.BadArguments):
            await run.send(topic, "x")
        assert await (await hf.start(agent, id="r")).result(timeout=20) == "refused"
        assert not await history(hf.get("l"), "message.received")
