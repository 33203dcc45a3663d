"""Announcements as agents use them: published once with their record, waited for, kept between two waits, replayed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
from tests.agents.runs import Gate, history, kinds

import holdfast
import holdfast.testing
from holdfast import Announcement, Batch, NotInRun, NotStorable, On
from holdfast.words.announcements import topic_of
from holdfast.words.events import told


@dataclass
class Order:
    number: int
    to: str = "ana"


@holdfast.step
async def sell(number: int) -> int:
    await holdfast.publish("sold", {"number": number, "by": "step"})
    return number


@holdfast.agent
async def seller(number: int) -> str:
    id = await holdfast.publish("sold", {"number": number, "by": "agent"})
    await sell(number)
    return id


@holdfast.agent
async def hearer(count: int) -> list[tuple[int, str]]:
    heard = []
    for _ in range(count):
        event = await holdfast.next_event("sold")
        await holdfast.note(f"heard {event.value['number']}")
        heard.append((event.value["number"], event.value["by"]))
    return heard


async def subscribed(hf, run: str, count: int = 1) -> None:
    """Wait until a run hears of announcements."""
    async for event in hf.get(run).events():
        count -= event.kind == "announcement.awaited"
        if not count:
            return


async def test_what_an_agent_and_its_steps_publish_is_heard_in_order():
    async with holdfast.testing.open(agents=[seller, hearer]) as hf:
        listener = await hf.start(hearer, 2, id="h")
        await subscribed(hf, "h")
        id = await hf.run(seller, 7, id="s")
        assert await listener.result() == [(7, "agent"), (7, "step")]
        published = [event for event in await history(hf, "s") if event.kind == "announcement.published"]
        assert [event.data["announcement"] for event in published] == [id]
        (completed,) = [event for event in await history(hf, "s") if event.kind == "step.completed"]
        assert list(completed.data["published"].values()) == ["sold"]
        assert (await kinds(hf, "h")).count("announcement.awaited") == 1


async def test_the_announcement_tells_its_id_time_and_publisher():
    @holdfast.agent
    async def waits() -> tuple[str, str, str | None, bool]:
        event = await holdfast.next_event("sold", Order)
        assert isinstance(event, Announcement) and event.at is not None
        return event.name, event.id, event.run, event.value == Order(7, "bo")

    @holdfast.agent
    async def sells() -> str:
        return await holdfast.publish("sold", Order(7, "bo"))

    async with holdfast.testing.open(agents=[waits, sells]) as hf:
        run = await hf.start(waits, id="w")
        await subscribed(hf, "w")
        id = await hf.run(sells, id="s")
        assert await run.result() == ("sold", id, "s", True)
        again = await hf.start(waits, id="w2")
        await subscribed(hf, "w2")
        id = await hf.publish("sold", Order(7, "bo"))
        assert await again.result() == ("sold", id, None, True)


@pytest.mark.slow
async def test_a_crash_between_each_two_writes_publishes_nothing_twice():
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[seller, hearer]):
        listener = await hf.start(hearer, 2, id="h")
        await subscribed(hf, "h")
        await hf.run(seller, 7, id="s")
        assert await listener.result() == [(7, "agent"), (7, "step")]
        topic = topic_of("sold", {})
        heard = [event for event in await history(hf, "h") if event.data.get("topic") == topic]
        assert len(heard) == 2
        passes += 1
    assert passes > 10


async def test_what_comes_between_two_waits_is_kept_and_what_came_before_the_first_is_not():
    gate = Gate()

    @holdfast.step
    async def pause() -> None:
        await gate()

    @holdfast.agent
    async def slow() -> list[int]:
        first = await holdfast.next_event("sold")
        await pause()
        return [first.value["n"]] + [(await holdfast.next_event("sold")).value["n"] for _ in range(2)]

    async with holdfast.testing.open(agents=[slow]) as hf:
        await hf.publish("sold", {"n": 0})
        run = await hf.start(slow, id="r")
        await subscribed(hf, "r")
        await hf.publish("sold", {"n": 1})
        await gate.reached.wait()
        for n in (2, 3):
            await holdfast.Client.publish(hf, "sold", {"n": n})
        gate.open.set()
        assert await run.result() == [1, 2, 3]


async def test_matches_are_waited_for_apart():
    @holdfast.agent
    async def picky() -> list[str]:
        async def next_of(**match) -> str:
            return (await holdfast.next_event("sold", match=match)).value["what"]

        return list(await asyncio.gather(next_of(number=7), next_of(number=8), next_of(number=7, to="bo"), next_of()))

    async with holdfast.testing.open(agents=[picky]) as hf:
        run = await hf.start(picky, id="r")
        await subscribed(hf, "r", 4)
        await hf.publish("refunded", {"number": 7, "what": "another name"})
        await hf.publish("sold", {"number": 9, "what": "a"})
        await hf.publish("sold", {"number": 7, "to": "bo", "what": "b"})
        await hf.publish("sold", {"number": 8, "what": "c"})
        assert await run.result() == ["b", "c", "b", "a"]


async def test_an_announcement_that_does_not_match_costs_the_run_nothing():
    @holdfast.agent
    async def picky() -> int:
        return (await holdfast.next_event("sold", match={"number": 7})).value["number"]

    async with holdfast.testing.open(agents=[picky]) as hf:
        run = await hf.start(picky, id="r")
        await subscribed(hf, "r")
        before = (await hf.store.run("r")).lease_epoch
        for number in range(5):
            await hf.publish("sold", {"number": number})
        row = await hf.store.run("r")
        assert (row.inbox_count, row.lease_epoch) == (0, before)
        await hf.publish("sold", {"number": 7})
        assert await run.result() == 7


async def test_no_announcement_in_time():
    @holdfast.agent
    async def impatient() -> str:
        try:
            await holdfast.next_event("sold", timeout="1h")
        except TimeoutError as error:
            return str(error)
        return "came"

    async with holdfast.testing.open(agents=[impatient]) as hf:
        assert await hf.run(impatient) == "no announcement 'sold' came in time"


@holdfast.agent
async def typed(timeout: str | None = None) -> int:
    try:
        return (await holdfast.next_event("sold", Order, timeout=timeout)).value.number
    except TimeoutError:
        return -1


async def notes(hf, run):
    return [event.data["text"] for event in await history(hf, run) if event.kind == "note"]


async def test_one_that_is_not_of_the_type_is_passed_over_and_told(caplog):
    async with holdfast.testing.open(agents=[typed]) as hf:
        run = await hf.start(typed, id="r")
        await subscribed(hf, "r")
        bad = await hf.publish("sold", {"number": "seven"})
        await hf.publish("sold", None)
        await hf.publish("sold", Order(7))
        assert await run.result() == 7
        first, second = await notes(hf, "r")
        assert first.startswith(f"announcement 'sold', {bad}, was passed over: ") and "number" in first
        assert "was passed over" in second
        assert caplog.text.count("was passed over, and the next one is waited for") == 2


@pytest.mark.slow
async def test_a_crash_at_any_time_passes_the_same_ones_over():
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[typed]):
        run = await hf.start(typed, "1h", id="r")
        await subscribed(hf, "r")
        await hf.publish("sold", "bad", key="1")
        await hf.publish("sold", Order(7), key="2")
        await hf.publish("sold", "bad", key="3")
        assert await run.result() == 7
        assert len(await notes(hf, "r")) == 1
        passes += 1
    assert passes > 5


async def test_one_that_was_passed_over_stays_so_for_code_that_could_read_it():
    @holdfast.agent(name="changes")
    async def before() -> list[Any]:
        return [(await holdfast.next_event("sold", int)).value, await holdfast.receive("go")]

    @holdfast.agent(name="changes")
    async def after() -> list[Any]:
        return [(await holdfast.next_event("sold")).value, await holdfast.receive("go")]

    async with holdfast.testing.open(agents=[before]) as hf:
        run = await hf.start(before, id="r")
        await subscribed(hf, "r")
        for value in ("text", 3):
            await hf.publish("sold", value)
        await run.wait("waiting", waits_for="message")
        assert len(await notes(hf, "r")) == 1
        hf.deploy([after])
        await hf.crash()
        await hf.get("r").send("go", 1)
        assert await hf.get("r").result() == [3, 1]


async def test_the_time_to_wait_goes_on_while_some_are_passed_over():
    async with holdfast.testing.open(agents=[typed]) as hf:
        run = await hf.start(typed, "1h", id="r")
        await subscribed(hf, "r")
        began = hf.clock.now()
        for minutes in ("40m", "15m"):
            await hf.advance(minutes)
            await hf.publish("sold", "bad")
        assert await run.result() == -1
        assert len(await notes(hf, "r")) == 2
        assert hf.clock.now() - began < 65 * 60_000
        fired = [event for event in await history(hf, "r") if event.kind == "timer.set"]
        assert len(fired) == 1


async def test_one_that_does_not_fit_an_agent_fails_none_of_those_gathered_with_it():
    @holdfast.agent(on=On("sold", batch=Batch(10, "5s")))
    async def lists(orders: list[Order]) -> list[int]:
        return [order.number for order in orders]

    @holdfast.agent(on=On("sold", debounce="5s"))
    async def last(order: Order) -> int:
        return order.number

    async with holdfast.testing.open(agents=[lists, last]) as hf:
        for value in (Order(1), {"number": "x"}, Order(2), "nonsense"):
            await hf.publish("sold", value)
        await hf.advance("10s")
        assert await hf.get((await hf.runs(agent="lists"))[0].id).result() == [1, 2]
        assert await hf.get((await hf.runs(agent="last"))[0].id).result() == 2
        assert [len(await hf.deliveries(trigger=name, status="dead")) for name in ("lists", "last")] == [2, 2]


async def test_a_message_that_is_not_of_the_type_is_received_and_the_agent_may_go_on():
    """A message has an address, so its agent hears of it; unlike an announcement, which is for whoever can read it."""

    @holdfast.agent
    async def patient() -> int:
        while True:
            try:
                return await holdfast.receive("order", int)
            except holdfast.BadArguments:
                await holdfast.note("no number")

    async with holdfast.testing.open(agents=[patient]) as hf:
        run = await hf.start(patient, id="r")
        for value in ("text", None, 3):
            await run.send("order", value)
        assert await run.result() == 3
        assert await notes(hf, "r") == ["no number", "no number"]


async def test_a_message_that_failed_its_run_is_read_again_by_a_retry():
    @holdfast.agent(name="strict")
    async def strict() -> int:
        return await holdfast.receive("order", int)

    @holdfast.agent(name="strict")
    async def lenient() -> str:
        return await holdfast.receive("order", str)

    async with holdfast.testing.open(agents=[strict]) as hf:
        run = await hf.start(strict, id="r")
        await run.send("order", "text")
        with pytest.raises(holdfast.RunFailed, match="has another form than expected"):
            await run.result()
        hf.deploy([lenient])
        await hf.crash()
        await hf.get("r").retry()
        assert await hf.get("r").result() == "text"


async def test_checkpoints_carry_what_is_waited_for_and_what_came():
    @holdfast.agent
    async def counts() -> list[int]:
        state = await holdfast.restore([])
        while len(state) < 4:
            state.append((await holdfast.next_event("sold")).value["n"])
            state = await holdfast.checkpoint(state)
        return state

    async for hf in holdfast.testing.crash_everywhere(agents=[counts]):
        run = await hf.start(counts, id="r")
        await subscribed(hf, "r")
        for n in range(4):
            await hf.publish("sold", {"n": n}, key=str(n))
        assert await run.result() == [0, 1, 2, 3]
        assert (await kinds(hf, "r")).count("announcement.awaited") == 1


async def test_a_waiter_that_is_cancelled_before_it_subscribed_subscribes_the_next_time():
    @holdfast.agent
    async def fickle() -> int:
        task = asyncio.create_task(holdfast.next_event("sold"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            async with holdfast.timeout("1s"):
                await holdfast.next_event("sold")
        except TimeoutError:
            pass
        return (await holdfast.next_event("sold")).value

    async with holdfast.testing.open(agents=[fickle]) as hf:
        run = await hf.start(fickle, id="r")
        await subscribed(hf, "r")
        await hf.advance("2s")
        await hf.publish("sold", 7)
        assert await run.result() == 7


# Steps


async def test_an_attempt_that_fails_publishes_nothing():
    attempts = []

    @holdfast.step(retry=3)
    async def flaky() -> int:
        attempts.append(await holdfast.publish("sold", {"number": len(attempts), "by": "step"}))
        await holdfast.publish("sold", {"number": 10 + len(attempts), "by": "step"})
        if len(attempts) < 3:
            raise OSError("not yet")
        return len(attempts)

    @holdfast.step
    async def fails() -> None:
        await holdfast.publish("sold", {"number": 99, "by": "step"})
        raise ValueError("no")

    @holdfast.agent
    async def tries() -> int:
        with contextlib.suppress(ValueError):
            await fails()
        return await flaky()

    async with holdfast.testing.open(agents=[tries, hearer]) as hf:
        listener = await hf.start(hearer, 2, id="h")
        await subscribed(hf, "h")
        assert await hf.run(tries, id="t") == 3
        assert await listener.result() == [(2, "step"), (13, "step")]
        assert len(set(attempts)) == 1  # the id is that of the call


async def test_plain_functions_publish_without_await_and_threads_do_too():
    @holdfast.step
    def in_thread(count: int) -> int:
        for number in range(count):
            holdfast.publish("sold", {"number": number, "by": "thread"})
        return count

    @holdfast.step(transaction=True)
    def in_transaction() -> int:
        holdfast.publish("sold", {"number": 7, "by": "transaction"})
        return 1

    @holdfast.agent
    async def threads() -> int:
        return await in_thread(2) + await in_transaction()

    async with holdfast.testing.open(agents=[threads, hearer]) as hf:
        listener = await hf.start(hearer, 3, id="h")
        await subscribed(hf, "h")
        assert await hf.run(threads, id="t") == 3
        assert await listener.result() == [(0, "thread"), (1, "thread"), (7, "transaction")]


async def test_a_transaction_that_fails_publishes_nothing():
    tried = []

    @holdfast.step(transaction=True, retry=2)
    async def moves() -> int:
        await holdfast.publish("sold", {"number": len(tried), "by": "transaction"})
        tried.append(1)
        if len(tried) == 1:
            raise OSError("no")
        return 1

    @holdfast.agent
    async def mover() -> int:
        return await moves()

    async with holdfast.testing.open(agents=[mover, hearer]) as hf:
        listener = await hf.start(hearer, 1, id="h")
        await subscribed(hf, "h")
        assert await hf.run(mover) == 1
        assert await listener.result() == [(1, "transaction")]


async def test_a_probe_publishes_with_the_outcome_that_it_finds():
    async def was_sold(number: int) -> int | holdfast.NotDone:
        await holdfast.publish("sold", {"number": number, "by": "probe"})
        return number

    gate = Gate()

    @holdfast.step(in_doubt=was_sold)
    async def sells(number: int) -> int:
        await holdfast.publish("sold", {"number": number, "by": "lost"})
        await gate()
        return number

    @holdfast.agent
    async def doubtful() -> int:
        return await sells(7)

    async with holdfast.testing.open(agents=[doubtful, hearer]) as hf:
        listener = await hf.start(hearer, 1, id="h")
        await subscribed(hf, "h")
        run = await hf.start(doubtful, id="d")
        await gate.reached.wait()
        await hf.crash()
        assert await run.result() == 7
        assert await listener.result() == [(7, "probe")]


# One key is one


async def test_a_key_is_one_announcement_whoever_publishes_it():
    @holdfast.agent
    async def tells(number: int) -> str:
        return await holdfast.publish("sold", {"number": number, "by": "key"}, key="k")

    async with holdfast.testing.open(agents=[tells, hearer]) as hf:
        listener = await hf.start(hearer, 2, id="h")
        await subscribed(hf, "h")
        ids = {await hf.run(tells, 1), await hf.run(tells, 2), await hf.publish("sold", {"number": 3}, key="k")}
        await hf.advance("29 days")
        ids.add(await hf.publish("sold", {"number": 4}, key="k"))
        assert len(ids) == 1
        await hf.publish("sold", {"number": 5, "by": "last"}, key="other")
        assert await listener.result() == [(1, "key"), (5, "last")]


# Where it cannot be


async def test_bad_input_is_refused_and_nothing_is_published():
    @holdfast.agent
    async def bad() -> list[str]:
        told = []
        for name, value in (("a b", 1), ("a", object()), ("a", "x" * 70_000)):
            try:
                await holdfast.publish(name, value)
            except (holdfast.BadArguments, NotStorable) as error:
                told.append(type(error).__name__)
        return told

    async with holdfast.testing.open(agents=[bad]) as hf:
        assert await hf.run(bad, id="b") == ["BadArguments", "NotStorable", "NotStorable"]
        assert await kinds(hf, "b") == ["run.completed"]
        for name, value in (("a b", 1), ("a", object()), ("a", "x" * 70_000)):
            with pytest.raises((holdfast.BadArguments, NotStorable)):
                await hf.publish(name, value)
        assert await hf.store.next_announcement() == (None, None)


async def test_places_where_nothing_can_be_published_say_where_it_can():
    with pytest.raises(NotInRun, match=r"await hf.publish\('a', ...\)"):
        await holdfast.publish("a")
    with pytest.raises(NotInRun, match="next_event works only inside"):
        await holdfast.next_event("a")

    @holdfast.step
    async def outside() -> None:
        await holdfast.publish("a")

    with pytest.raises(NotInRun, match="no outcome that it could go out with"):
        await outside()

    @holdfast.step
    async def waits() -> None:
        await holdfast.next_event("a")

    @holdfast.agent
    async def leaf() -> str:
        try:
            await waits()
        except holdfast.StepFailed as error:
            return str(error)
        return "no"

    left = []

    @holdfast.step
    async def leaves_a_task() -> None:
        gate = asyncio.Event()

        async def later() -> None:
            await gate.wait()
            try:
                await holdfast.publish("a")
            except NotInRun as error:
                left.append(str(error))

        left.extend([asyncio.create_task(later()), gate])

    @holdfast.agent
    async def late() -> None:
        await leaves_a_task()

    async with holdfast.testing.open(agents=[leaf, late]) as hf:
        assert "LeafError: next_event was called inside the step" in await hf.run(leaf)
        await hf.run(late)
        task, gate = left[:2]
        gate.set()
        await task
        assert "after the body of its step had ended" in left[2]
        assert await hf.store.next_announcement() == (None, None)

    with pytest.raises(holdfast.BadArguments, match=r"is not pure: .* uses holdfast.publish"):

        @holdfast.reducer(int)
        def fold(state: int, event: int) -> int:
            holdfast.publish("a")
            return state


# Agents that are started


async def test_agents_are_started_with_the_value_once_through_crashes():
    @holdfast.agent(on=On("sold", if_=lambda event: event.value["number"] > 1))
    async def ship(order: Order) -> str:
        return f"{order.number} to {order.to}"

    async with holdfast.testing.open(agents=[ship]) as hf:
        ids = [await hf.publish("sold", {"number": number}) for number in (1, 2)]
        ids.append(await hf.publish("sold", Order(3, "bo")))
        await hf.crash()
        runs = await hf.runs(agent="ship")
        assert {run.id for run in runs} == {f"ship@{id}" for id in ids[1:]}
        assert sorted([await hf.get(run.id).result() for run in runs]) == ["2 to ana", "3 to bo"]
        (info,) = await hf.triggers()
        assert (info.name, info.kind, info.config["event"], info.done, info.workers) == ("ship", "event", "sold", 3, 1)


async def test_a_condition_that_fails_is_the_failure_of_its_own():
    @holdfast.agent(on=On("sold", if_=lambda event: event.value["missing"]))
    async def broken(order: Order) -> None: ...

    @holdfast.agent(on=On("sold"))
    async def typed(order: int) -> int:
        return order

    @holdfast.agent(on=On("sold"))
    async def well(order: dict[str, Any]) -> int:
        return order["number"]

    async with holdfast.testing.open(agents=[broken, typed, well, hearer]) as hf:
        listener = await hf.start(hearer, 1, id="h")
        await subscribed(hf, "h")
        await hf.publish("sold", {"number": 7, "by": "hand"})
        for _ in range(5):
            await hf.advance("1h")
        assert await listener.result() == [(7, "hand")]
        (run,) = await hf.runs(agent="well")
        assert await hf.get(run.id).result() == 7
        dead = {info.trigger: info.error for info in await hf.deliveries(status="dead")}
        assert "KeyError: 'missing'" in dead["broken"]
        assert "agent 'typed' takes no such value" in dead["typed"]
        assert len(dead) == 2


async def test_a_run_is_started_when_it_is_quiet_with_the_last_value():
    @holdfast.agent(on=On("edited", debounce="10s", by="page"))
    async def index(edit: dict[str, str]) -> str:
        return f"{edit['page']}: {edit['text']}"

    async with holdfast.testing.open(agents=[index]) as hf:
        for text in ("one", "two", "three"):
            await hf.publish("edited", {"page": "a", "text": text})
            await hf.advance("6s")
            assert await hf.runs(agent="index") == []
        await hf.publish("edited", {"page": "b", "text": "other"})
        await hf.crash()
        await hf.advance("5s")
        (run,) = await hf.runs(agent="index")
        assert await hf.get(run.id).result() == "a: three"
        await hf.advance("5s")
        runs = await hf.runs(agent="index")
        assert sorted([await hf.get(run.id).result() for run in runs]) == ["a: three", "b: other"]


async def test_a_run_gets_a_list_that_is_full_or_late():
    @holdfast.agent(on=On("sold", batch=Batch(3, "5s")))
    async def load(orders: list[Order]) -> list[int]:
        return [order.number for order in orders]

    async with holdfast.testing.open(agents=[load]) as hf:
        for number in range(5):
            await hf.publish("sold", {"number": number})
        (run,) = await hf.runs(agent="load")
        assert await hf.get(run.id).result() == [0, 1, 2]
        await hf.advance("4s")
        assert len(await hf.runs(agent="load")) == 1
        await hf.crash()
        await hf.advance("1s")
        runs = await hf.runs(agent="load")
        assert sorted([await hf.get(run.id).result() for run in runs]) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (On("sold"), [0, 1, 2]),
        (On("sold", debounce="1s"), [2]),
        (On("sold", batch=Batch(2, "5s")), [[0, 1], [2]]),
        (On("other", batch=Batch(9, "5s")), [[0, 1, 2]]),
    ],
)
async def test_a_list_that_was_gathered_starts_what_is_declared_now(now, expected):
    """A deploy changes how they are gathered while a list waits."""

    @holdfast.agent(name="load", on=On("sold", batch=Batch(10, "5s")))
    async def before(orders: list[int]) -> list[int]:
        return orders

    @holdfast.agent(name="load", on=now)
    async def after(orders: Any) -> Any:
        return orders

    async with holdfast.testing.open(agents=[before]) as hf:
        for number in range(3):
            await hf.publish("sold", number)
        hf.deploy([after])
        await hf.crash()
        await hf.advance("5s")
        results = [await hf.get(run.id).result() for run in await hf.runs(agent="load")]
        assert sorted(results) == expected
        assert await hf.deliveries(status="dead") == []


async def test_a_last_one_that_was_gathered_starts_a_list():
    @holdfast.agent(name="load", on=On("sold", debounce="5s"))
    async def before(order: int) -> int:
        return order

    @holdfast.agent(name="load", on=On("sold", batch=Batch(10, "5s")))
    async def after(orders: list[int]) -> list[int]:
        return orders

    async with holdfast.testing.open(agents=[before]) as hf:
        for number in range(3):
            await hf.publish("sold", number)
        hf.deploy([after])
        await hf.crash()
        await hf.advance("5s")
        (run,) = await hf.runs(agent="load")
        assert await hf.get(run.id).result() == [2]


async def test_a_condition_is_told_under_which_name_it_was_published():
    """Also of one that waited while the agent came to be started by others."""
    names: list[str] = []

    def fails(event: Announcement[Any]) -> bool:
        raise OSError("not yet")

    def notes(event: Announcement[Any]) -> bool:
        names.append(event.name)
        return True

    @holdfast.agent(name="ship", on=On("sold", if_=fails))
    async def before(order: int) -> int:
        return order

    @holdfast.agent(name="ship", on=On("other", if_=notes))
    async def after(order: int) -> int:
        return order

    async with holdfast.testing.open(agents=[before]) as hf:
        await hf.publish("sold", 1)
        hf.deploy([after])
        await hf.crash()
        await hf.advance("1h")
        assert names == ["sold"]


async def test_an_agent_may_be_served_without_on_and_is_started_no_more():
    @holdfast.agent(name="ship", on=On("sold"))
    async def ships(order: dict[str, int]) -> int:
        return order["number"]

    @holdfast.agent(name="ship")
    async def by_hand(order: dict[str, int]) -> int:
        return order["number"]

    async with holdfast.testing.open(agents=[ships]) as hf:
        await hf.publish("sold", {"number": 1})
        hf.deploy([by_hand])
        await hf.crash()
        await hf.advance("1s")
        await hf.publish("sold", {"number": 2})
        assert len(await hf.runs(agent="ship")) == 1
        assert await hf.triggers() == []
        hf.deploy([ships])
        await hf.crash()
        await hf.advance("1s")
        await hf.publish("sold", {"number": 3})
        assert len(await hf.runs(agent="ship")) == 2


async def test_a_trigger_and_an_agent_of_one_name_are_refused():
    @holdfast.agent(on=On("sold"))
    async def ship(order: int) -> None: ...

    @holdfast.on.webhook("ship", verify=holdfast.Verify.bearer("env:TOKEN"))
    def hook(delivery):
        return None

    with pytest.raises(holdfast.BadArguments, match="both named 'ship'"):
        async with holdfast.testing.open(agents=[ship, hook]):
            pass


# History, forks, replay


async def test_a_fork_publishes_anew_and_waits_for_itself():
    @holdfast.agent
    async def both() -> str:
        id = await holdfast.publish("sold", {"number": 1, "by": "fork"})
        await holdfast.next_event("go")
        await holdfast.publish("sold", {"number": 2, "by": "fork"})
        return id

    async with holdfast.testing.open(agents=[both, hearer]) as hf:
        listener = await hf.start(hearer, 3, id="h")
        await subscribed(hf, "h")
        run = await hf.start(both, id="r")
        await subscribed(hf, "r")
        await hf.publish("go")
        first = await run.result()
        seq = next(e.seq for e in await history(hf, "r") if e.data.get("topic") == topic_of("go", {}))
        fork = await run.fork(at=seq, id="f")
        await hf.publish("go")
        assert await fork.result() == first
        assert await listener.result() == [(1, "fork"), (2, "fork"), (2, "fork")]
        other = await run.fork(replace={f"message:{seq}": "another"}, id="g")
        assert await other.result() == first


async def test_a_rehearsal_publishes_nothing_and_hears_what_was_heard():
    @holdfast.agent
    async def talks_to_itself() -> int:
        first = asyncio.create_task(holdfast.next_event("said"))
        await holdfast.sleep("1s")
        await holdfast.publish("said", {"n": 1})
        heard = (await first).value["n"]
        return heard + (await holdfast.next_event("said")).value["n"]

    async with holdfast.testing.open(agents=[talks_to_itself]) as hf:
        run = await hf.start(talks_to_itself, id="r")
        await subscribed(hf, "r")
        async for event in run.events():
            if event.kind == "message.received":
                break
        await hf.publish("said", {"n": 10})
        assert await run.result() == 11
        before = await hf.store.next_announcement()
        replayed = await hf.replay("r", [talks_to_itself])
        assert replayed.fits, replayed.reason
        assert (await hf.check([talks_to_itself], runs=["r"])).fits
        (rehearsed,) = await holdfast.testing.rehearse(hf, ["r"], [talks_to_itself])
        assert rehearsed.difference.same, rehearsed
        assert await hf.store.next_announcement() == before


async def test_a_run_says_what_it_waits_for():
    async with holdfast.testing.open(agents=[hearer]) as hf:
        run = await hf.start(hearer, 1, id="h")
        await run.wait("waiting", waits_for="message")
        (waits,) = (await run.snapshot()).pending
        assert (waits.kind, waits.what) == ("announcement", "sold")
        with pytest.raises(
            TimeoutError,
            match=r"waits for an announcement 'sold'; `hf.publish\('sold', ...\)` or `holdfast publish sold",
        ):
            await run.result(timeout=0.01)


async def test_the_history_tells_it_in_words():
    async with holdfast.testing.open(agents=[seller, hearer]) as hf:
        listener = await hf.start(hearer, 2, id="h")
        await subscribed(hf, "h")
        await hf.run(seller, 7, id="s")
        await listener.result()
        events = [*await hf.store.journal("s"), *await hf.store.journal("h")]
        text = "\n".join(told(event) for event in events)
        assert "published sold, {'number': 7, 'by': 'agent'}" in text
        assert "waits for announcements of sold from here on" in text
        assert "announcement sold: " in text
        assert ", published sold" in text
