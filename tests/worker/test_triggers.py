"""Mappings, called by a worker: several in one go, and none held to account for what another does."""

import asyncio
import contextlib
import inspect
import threading

import pytest

import holdfast
from holdfast import Delivery
from holdfast.errors import LeaseLost
from holdfast.store.triggers import NewDelivery
from holdfast.worker.mappings import Mapper, Raised, told_of

TIMEOUT = "Give what it waits for a timeout of its own"
BEARER = holdfast.Verify.bearer("env:TOKEN")


def declared(fn):
    return holdfast.on.webhook("t", verify=BEARER)(fn).spec


async def until(there):
    async with asyncio.timeout(20):
        while not (await result if inspect.isawaitable(result := there()) else result):
            await asyncio.sleep(0.005)


async def test_several_are_mapped_in_one_go_each_with_its_own_outcome():
    def mapping(delivery):
        if delivery.body == b"1":
            raise KeyError("one")
        return delivery.body

    found = await Mapper().some(declared(mapping), [Delivery(b"%d" % number) for number in range(3)])
    assert [found[0], found[2]] == [b"0", b"2"]
    assert isinstance(found[1], Raised) and isinstance(found[1].error, KeyError)


async def test_one_that_hangs_is_the_last_of_those_mapped(monkeypatch):
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.05)
    go_on, called = threading.Event(), []

    def mapping(delivery):
        called.append(delivery.body)
        if delivery.body == b"1":
            go_on.wait()
        return delivery.body

    mapper = Mapper()
    found = await mapper.some(declared(mapping), [Delivery(b"%d" % number) for number in range(4)])
    assert mapper.hung("t") == 1
    assert found[0] == b"0" and isinstance(found[1].error, TimeoutError) and len(found) == 2
    go_on.set()
    await until(lambda: not mapper.hung("t"))
    assert called == [b"0", b"1"]  # what is left is mapped by another call


async def test_the_time_of_a_mapping_counts_from_when_a_thread_has_it(monkeypatch):
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.2)
    monkeypatch.setattr("holdfast.worker.mappings._MOST_THREADS", 1)
    begun, go_on, mapper = threading.Event(), threading.Event(), Mapper()

    def mapping(delivery):
        begun.set()
        assert delivery.body != b"first" or go_on.wait(20)
        return delivery.body

    spec = declared(mapping)
    first = asyncio.ensure_future(mapper.one(spec, Delivery(b"first")))
    await until(begun.is_set)
    second = asyncio.ensure_future(mapper.one(spec, Delivery(b"second")))
    with pytest.raises(TimeoutError):
        await first
    assert await second == b"second"  # although it waited for as long as one may take
    go_on.set()


async def test_what_a_plain_function_returns_may_be_awaited():
    async def later(body):
        return body

    assert await Mapper().one(declared(lambda delivery: later(delivery.body)), Delivery(b"x")) == b"x"
    assert await Mapper().one(declared(_coroutine), Delivery(b"y")) == b"y"


async def _coroutine(delivery):
    return delivery.body


class Mute(Exception):
    def __str__(self):
        raise SystemExit(3)


def _raising(error):
    def mapping(delivery):
        raise error

    async def later(delivery):
        raise error

    return [mapping, later, lambda delivery: later(delivery)]  # noqa: PLW0108 - a plain function


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("x"), GeneratorExit(), LeaseLost()], ids=repr)
async def test_whatever_a_mapping_raises_is_its_failure(error):
    for mapping in _raising(error):
        with pytest.raises(RuntimeError, match=f"the mapping raised .*{type(error).__name__}"):
            await Mapper().one(declared(mapping), Delivery(b"x"))


async def test_a_mapping_that_we_cancel_is_cancelled():
    mapping = asyncio.ensure_future(Mapper().one(declared(_forever), Delivery(b"x")))
    await asyncio.sleep(0)
    mapping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await mapping


async def _forever(delivery):
    await asyncio.Event().wait()


async def test_a_mapping_that_does_not_let_itself_be_cancelled_has_failed_too(monkeypatch):
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.05)
    monkeypatch.setattr("holdfast.worker.mappings._LET_GO_S", 0.05)
    over, mapper = asyncio.Event(), Mapper()

    async def stubborn(delivery):
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()
        return holdfast.Start("any")

    try:
        async with asyncio.timeout(10):
            for mapping in (stubborn, lambda delivery: stubborn(delivery)):  # noqa: PLW0108 - a plain function
                with pytest.raises(TimeoutError):
                    await mapper.one(declared(mapping), Delivery(b"x"))
            assert mapper.hung("t") == 2
            ours = asyncio.ensure_future(mapper.one(declared(stubborn), Delivery(b"x")))
            await asyncio.sleep(0.01)
            ours.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ours
    finally:
        over.set()
    await until(lambda: mapper.hung("t") == 0)


def test_what_an_error_says_can_be_written_and_raises_nothing():
    assert told_of(ValueError("a\ud800b\0c")) == "ValueError: a\ufffdb\ufffdc"
    assert "its text cannot be told: SystemExit" in told_of(Mute())


# In whole: one trigger hangs, and others go on


@holdfast.step
def plain(number: int) -> int:
    return 2 * number


@holdfast.agent
async def doubled(number: int) -> int:
    return await plain(number)


@holdfast.agent
async def waits() -> None:
    await holdfast.receive("never")


@holdfast.on.webhook("fine", verify=BEARER)
def fine(delivery: Delivery) -> holdfast.Start:
    return holdfast.Start(doubled, delivery.json())


async def come(hf, trigger, *keys):
    for key in keys:
        await hf._store.receive(NewDelivery(trigger, key, "webhook", {}, b"3"))


async def row(hf, trigger, key):
    return (await hf._store.delivery(trigger, key))[0]


async def becomes(hf, trigger, key, status):
    async def look():
        return (await row(hf, trigger, key)).status == status

    await until(look)


async def test_a_function_that_hangs_takes_no_thread_from_other_triggers_nor_from_steps(tmp_path):
    go_on, begun = threading.Event(), []

    @holdfast.on.webhook("hangs", verify=BEARER)
    def hangs(delivery):
        begun.append(delivery.id)
        assert go_on.wait(30)

    settings = holdfast.Settings(threads=2)
    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[hangs, fine], settings=settings) as hf:
        await come(hf, "hangs", *(f"h{number}" for number in range(5)))
        await until(lambda: len(begun) == 5)
        await come(hf, "fine", "f")
        await becomes(hf, "fine", "f", "done")
        assert await hf.get("fine@f").result(timeout=20) == 6
        go_on.set()
        for number in range(5):
            await becomes(hf, "hangs", f"h{number}", "done")


async def test_triggers_that_hang_leave_room_for_one_that_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.worker.triggers._AT_ONCE", 4)
    monkeypatch.setattr("holdfast.worker.triggers._LONG_S", 0.1)
    go_on, begun = threading.Event(), []

    def hangs(delivery):
        begun.append(delivery.id)
        assert go_on.wait(30)

    hanging = [holdfast.on.webhook(f"hangs-{number}", verify=BEARER)(hangs) for number in range(3)]
    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[*hanging, fine]) as hf:
        for each in range(3):
            await come(hf, f"hangs-{each}", *(f"h{each}-{number}" for number in range(4)))
        await until(lambda: len(begun) >= 6)  # which is more than all room
        await come(hf, "fine", "f")
        await becomes(hf, "fine", "f", "done")
        go_on.set()


async def test_one_that_hangs_each_time_is_a_dead_letter(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.05)
    go_on, called = threading.Event(), []

    @holdfast.on.webhook("hangs", verify=BEARER, retry=holdfast.Retry(attempts=3, first="10ms"))
    def hangs(delivery):
        called.append(delivery.id)
        if delivery.id == "bad":
            go_on.wait(30)

    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[hangs]) as hf:
        await come(hf, "hangs", "bad", "good")
        await becomes(hf, "hangs", "bad", "dead")
        await becomes(hf, "hangs", "good", "done")
        info = await row(hf, "hangs", "bad")
        assert (info.attempts, info.error) == (3, f"TimeoutError: the mapping took longer than 0.05 s. {TIMEOUT}")
        assert called.count("bad") == 3
        go_on.set()


async def test_a_worker_in_which_too_many_hang_leaves_what_comes_to_others(tmp_path, monkeypatch, caplog):
    """The trigger waits, with no attempt counted, and others go on; it does too when its calls return."""
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.05)
    monkeypatch.setattr("holdfast.worker.mappings._MOST_HUNG", 2)
    go_on = threading.Event()

    @holdfast.on.webhook("hangs", verify=BEARER, retry=holdfast.Retry(attempts=1))
    def hangs(delivery):
        assert delivery.id == "later" or go_on.wait(30)

    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[hangs, fine]) as hf:
        await come(hf, "hangs", "one", "two")
        for key in ("one", "two"):
            await becomes(hf, "hangs", key, "dead")
        assert "2 calls of the function of trigger 'hangs' have not returned" in caplog.text
        await come(hf, "hangs", "later")
        await come(hf, "fine", "f")
        await becomes(hf, "fine", "f", "done")
        info = await row(hf, "hangs", "later")
        assert (info.status, info.attempts) == ("new", 0)
        go_on.set()
        await becomes(hf, "hangs", "later", "done")


async def test_a_worker_maps_what_a_wrong_clock_made_due_in_a_year(tmp_path):
    url, year_ms = f"sqlite:{tmp_path / 't.db'}", 365 * 86_400_000
    async with holdfast.open(url) as hf:
        for trigger in ("fine", "to ops"):
            late = NewDelivery(trigger, "f", "webhook", {}, b"3", attempts=1, error="no", wait_ms=year_ms)
            await hf._store.receive(late)
        await hf.notify("https://127.0.0.1/x", "run.failed", secret="env:PATH", name="ops")
    async with holdfast.open(url, agents=[fine]) as hf:
        await becomes(hf, "fine", "f", "done")

        async def recalled():
            return (await row(hf, "to ops", "f")).due_at < hf._store.clock.now() + 2 * 86_400_000

        await until(recalled)


async def test_an_error_may_not_ask_for_a_longer_wait_than_an_hour(tmp_path):
    """So that what is due later is known to be written by a wrong clock."""

    @holdfast.on.webhook("busy", verify=BEARER)
    def busy(delivery):
        raise holdfast.RetryAfter("365 days")

    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[busy]) as hf:
        await come(hf, "busy", "b")

        async def failed():
            return (await row(hf, "busy", "b")).attempts == 1

        await until(failed)
        wait_ms = (await row(hf, "busy", "b")).due_at - hf._store.clock.now()
        assert 3_000_000 < wait_ms <= 3_600_000


# The end of a worker


@pytest.mark.parametrize("plainly", [False, True])
async def test_what_is_mapped_when_its_worker_stops_has_time_to_end(tmp_path, plainly):
    begun, go_on = threading.Event(), threading.Event()

    def mapping(delivery):
        begun.set()
        assert go_on.wait(30)
        return holdfast.Start(doubled, 4)

    async def later(delivery):
        begun.set()
        await until(go_on.is_set)
        return holdfast.Start(doubled, 4)

    trigger = holdfast.on.webhook("slow", verify=BEARER)(mapping if plainly else later)
    settings = holdfast.Settings(park_grace_s=60)
    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[trigger, waits], settings=settings) as hf:
        await hf.start(waits)  # it is given back first
        worker = hf._worker
        await until(lambda: worker.attempts)
        await come(hf, "slow", "s")
        await until(begun.is_set)
        ending = asyncio.ensure_future(worker.stop())
        await until(worker._tasks[-2].done)  # the last word to its tasks was said
        go_on.set()
        await ending
        assert (await row(hf, "slow", "s")).status == "done"
        assert (await hf.get("slow@s").info()).status == "ready"


async def test_a_worker_that_is_dropped_applies_nothing_any_more(tmp_path):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @holdfast.on.webhook("slow", verify=BEARER)
    async def slow(delivery):
        begun.set()
        await go_on.wait()

    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[slow]) as hf:
        await come(hf, "slow", "s")
        await until(begun.is_set)
        ending = asyncio.ensure_future(hf._worker.abandon())
        await asyncio.sleep(0)
        go_on.set()
        await ending
        assert (await row(hf, "slow", "s")).status == "new"
