"""Mappings, called by a worker: several in one go, and none held to account for what another does."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import Delivery
from holdfast.errors import LeaseLost
from holdfast.worker.triggers import Mapper, Raised, told_of

BEARER = holdfast.Verify.bearer("env:TOKEN")


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def declared(fn):
    return holdfast.on.webhook("t", verify=BEARER)(fn).spec


async def test_several_are_mapped_in_one_go_each_with_its_own_outcome(threads):
    def mapping(delivery):
        if delivery.body == b"1":
            raise KeyError("one")
        return delivery.body

    found = await Mapper(threads).some(declared(mapping), [Delivery(b"%d" % number) for number in range(3)])
    assert [found[0], found[2]] == [b"0", b"2"]
    assert isinstance(found[1], Raised) and isinstance(found[1].error, KeyError)


async def test_one_that_hangs_is_the_last_of_those_mapped(threads, monkeypatch):
    monkeypatch.setattr("holdfast.worker.triggers._MAPPING_S", 0.05)
    go_on, called = threading.Event(), []

    def mapping(delivery):
        called.append(delivery.body)
        if delivery.body == b"1":
            go_on.wait()
        return delivery.body

    found = await Mapper(threads).some(declared(mapping), [Delivery(b"%d" % number) for number in range(4)])
    assert found[0] == b"0" and isinstance(found[1].error, TimeoutError) and len(found) == 2
    go_on.set()
    await asyncio.get_running_loop().run_in_executor(threads, int)
    assert called == [b"0", b"1"]  # what is left is mapped by another call


async def test_the_time_of_a_mapping_counts_from_when_a_thread_has_it(threads, monkeypatch):
    monkeypatch.setattr("holdfast.worker.triggers._MAPPING_S", 0.05)
    go_on = threading.Event()
    busy = threads.submit(go_on.wait)
    mapping = asyncio.ensure_future(Mapper(threads).one(declared(lambda delivery: delivery.body), Delivery(b"x")))
    done, _ = await asyncio.wait([mapping], timeout=0.2)
    assert not done
    go_on.set()
    assert await mapping == b"x" and busy.result()


async def test_what_a_plain_function_returns_may_be_awaited(threads):
    async def later(body):
        return body

    assert await Mapper(threads).one(declared(lambda delivery: later(delivery.body)), Delivery(b"x")) == b"x"
    assert await Mapper(threads).one(declared(_coroutine), Delivery(b"y")) == b"y"


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
async def test_whatever_a_mapping_raises_is_its_failure(threads, error):
    for mapping in _raising(error):
        with pytest.raises(RuntimeError, match=f"the mapping raised .*{type(error).__name__}"):
            await Mapper(threads).one(declared(mapping), Delivery(b"x"))


async def test_a_mapping_that_we_cancel_is_cancelled(threads):
    mapping = asyncio.ensure_future(Mapper(threads).one(declared(_forever), Delivery(b"x")))
    await asyncio.sleep(0)
    mapping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await mapping


async def _forever(delivery):
    await asyncio.Event().wait()


def test_what_an_error_says_can_be_written_and_raises_nothing():
    assert told_of(ValueError("a\ud800b\0c")) == "ValueError: a\ufffdb\ufffdc"
    assert "its text cannot be told: SystemExit" in told_of(Mute())
