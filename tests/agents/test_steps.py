"""Calling steps in a run: what a body gets, what the agent gets back, and a call that is not awaited."""

from __future__ import annotations

import asyncio
import functools
import threading
from dataclasses import dataclass, field

import pytest
from tests.agents.runs import fail, finish, with_client

import holdfast
import holdfast.testing
from holdfast import Local


@dataclass
class Basket:
    things: list[str] = field(default_factory=list)


class Client:
    """Cannot be stored."""

    def __init__(self) -> None:
        self.used: list[str] = []


CLIENT = Client()
KEPT: list[Basket] = []


@holdfast.step
async def fill(basket: Basket, extra: list[str]) -> Basket:
    basket.things.append("changed by the body")
    extra.append("changed too")
    KEPT.append(basket)
    return basket


@holdfast.agent
async def shopping() -> list[list[str]]:
    mine, extra = Basket(["tea"]), ["x"]
    filled = await fill(mine, extra)
    KEPT[-1].things.append("changed later")
    filled.things.append("changed by the agent")
    await fill(mine, extra)
    return [mine.things, extra, filled.things]


def test_arguments_and_results_are_copies():
    """Neither side can change what the other holds: as it is after a resume, so it is live."""
    mine, extra, filled = finish(shopping)
    assert (mine, extra) == (["tea"], ["x"])
    assert filled == ["tea", "changed by the body", "changed by the agent"]


@holdfast.step
async def later(things: list[str]) -> list[str]:
    return things


@holdfast.agent
async def changes_its_mind() -> list[str]:
    things = ["as called"]
    call = later(things)
    things.append("afterwards")
    return await call


def test_arguments_are_those_of_the_call():
    """A call takes its arguments when it is made, not when it is awaited."""
    assert finish(changes_its_mind) == ["as called"]


@holdfast.step(retry=2)
async def spoils(things: list[str]) -> list[str]:
    things.append("spoilt")
    if len(things) != 1 or holdfast.this_step().attempt == 1:
        raise ValueError(things)
    return things


@holdfast.agent
async def tries_twice() -> list[str]:
    return await spoils([])


def test_each_attempt_gets_fresh_arguments():
    """A second attempt is not handed what the first one changed."""
    assert finish(tries_twice) == ["spoilt"]


@holdfast.step
async def pay(client: Local[Client], amount: int, then: Local[object] = None) -> int:
    client.used.append(f"{amount}")
    assert client is CLIENT
    return amount


@holdfast.agent
async def paying() -> int:
    first = await pay(CLIENT, 1)
    await holdfast.sleep("1h")
    return first + await pay(CLIENT, 2, then=print)


async def test_a_local_parameter_is_passed_as_it_is():
    """It is no part of the record, so a resumed run may pass another object; what is stored beside it is kept."""
    CLIENT.used.clear()

    async with holdfast.testing.open(agents=[paying]) as hf:
        assert await hf.run(paying, id="p") == 3
        assert hf.bodies[pay] == 2
        inputs = [event.data["input"] async for event in hf.get("p").events() if event.kind == "step.completed"]
        assert inputs == ["amount=1", "amount=2"]
    assert CLIENT.used == ["1", "2"]


@holdfast.step
async def takes_anything(client: Client) -> None: ...


@holdfast.step
async def takes_untyped(client) -> None: ...


@holdfast.agent
async def passes_a_client(typed: bool) -> None:
    await (takes_anything if typed else takes_untyped)(CLIENT)


@pytest.mark.parametrize("typed", [True, False])
def test_what_cannot_be_stored_names_the_parameter_and_the_way_out(typed):
    """The call itself raises, with the parameter, its type, and Local as the way to pass it."""
    failure = fail(passes_a_client, typed)
    assert failure.type.endswith(("NotStorable", "BadArguments"))
    assert "client" in failure.message
    assert "Client" in failure.message
    assert "Local[" in failure.message


@holdfast.agent
async def with_local(client: Local[Client]) -> None: ...


@holdfast.agent
async def starts_with_local() -> None:
    await with_local(CLIENT)


def test_an_agent_cannot_take_a_local_argument():
    """Its arguments outlive the process: starting it is refused, from outside and from an agent."""

    async def main(hf):
        with pytest.raises(holdfast.BadArguments, match="the arguments of an agent are stored"):
            await hf.start(with_local, CLIENT)

    with_client(main, agents=[with_local])
    assert "the arguments of an agent are stored" in fail(starts_with_local).message


@holdfast.step
def in_a_thread(text: str) -> tuple[bool, str, str, str, int]:
    step = holdfast.this_step()
    here = threading.current_thread() is threading.main_thread()
    return here, text, holdfast.idempotency_key(), holdfast.this_run().id, step.attempt


@holdfast.step
async def on_the_loop() -> bool:
    return threading.current_thread() is threading.main_thread()


@holdfast.agent
async def both() -> list[object]:
    return [await in_a_thread("a"), await on_the_loop()]


async def test_a_plain_function_runs_in_a_thread():
    """It does not hold the loop, and knows its step, key and run all the same."""
    async with holdfast.testing.open(agents=[both]) as hf:
        (here, text, key, run, attempt), on_loop = await hf.run(both, id="b")
        assert (here, text, run, attempt, on_loop) == (False, "a", "b", 1, True)
        assert key.startswith("hf_")


def _wrapped(fn):
    @functools.wraps(fn)
    def plain(*args):
        return fn(*args)

    return plain


@holdfast.step(timeout="1h")
@_wrapped
async def hidden(text: str) -> str:
    assert holdfast.idempotency_key()
    return f"<{text}>"


@holdfast.agent
async def calls_hidden() -> str:
    return await hidden("x")


def test_an_async_function_behind_a_plain_decorator_is_awaited():
    """A decorator that only passes the call on hides the `async`; the coroutine is awaited nevertheless."""
    assert finish(calls_hidden) == "<x>"
    assert asyncio.run(hidden("x")) == "<x>"


class Shop:
    def __init__(self, name: str) -> None:
        self.name, self.lock = name, threading.Lock()

    @holdfast.step
    async def sell(self, what: str) -> str:
        return f"{self.name}:{what}"

    @classmethod
    @holdfast.step
    async def open(cls, what: str) -> str:
        return f"{cls.__name__}:{what}"

    @staticmethod
    @holdfast.step
    async def price(what: str) -> int:
        return len(what)


@holdfast.agent
async def trade() -> list[object]:
    shop = Shop("a")
    sold = [await shop.sell("tea"), await Shop.sell(shop, "ale"), await shop.sell(what="pie")]
    with pytest.raises(holdfast.BadArguments, match="'sell' is a method; call it on an object"):
        Shop.sell()
    await holdfast.sleep(1)
    return [*sold, await Shop.open("x"), await shop.open("y"), await Shop.price("z")]


async def test_methods_are_steps_whose_self_is_not_recorded():
    """The object is passed as it is, need not be storable, and is no part of identity or record."""
    async with holdfast.testing.open(agents=[trade]) as hf:
        assert await hf.run(trade, id="t") == ["a:tea", "a:ale", "a:pie", "Shop:x", "Shop:y", 1]
        keys = [
            (event.key, event.data["input"]) async for event in hf.get("t").events() if event.kind == "step.completed"
        ]
        assert keys[:3] == [("sell#0", "what='tea'"), ("sell#1", "what='ale'"), ("sell#2", "what='pie'")]


@holdfast.step
async def ping() -> str:
    return "pong"


@holdfast.agent
async def forgets(what: str) -> str:
    {"step": ping, "sleep": lambda: holdfast.sleep(1), "note": lambda: holdfast.note("x"), "child": both}[what]()
    return "done"


@pytest.mark.parametrize(("what", "named"), [("step", "ping"), ("sleep", "sleep"), ("note", "note"), ("child", "both")])
def test_a_call_that_is_never_awaited_fails_the_run(what, named):
    """The run would look right and not be: it fails at its end and names the call."""
    failure = fail(forgets, what)
    assert f"called {named} without awaiting it" in failure.message
    assert f"await {named}(...)" in failure.message


@holdfast.agent
async def takes_it_for_true() -> str:
    return "yes" if ping() else "no"


def test_a_call_is_no_truth_value():
    """`if step(...)` without await would always hold: it is an error that shows the missing word."""
    assert "write `if await ping(...)`" in fail(takes_it_for_true).message


@holdfast.agent
async def awaits_twice() -> list[str]:
    call = ping()
    first = await call
    with pytest.raises(RuntimeError, match="ping: this call was awaited before; call it again for another one"):
        await call
    return [first, await ping()]


def test_a_call_is_awaited_once():
    """It is one recorded action; a second await is an error, and changes nothing for later calls."""
    assert finish(awaits_twice) == ["pong", "pong"]


@holdfast.agent
async def closes_one() -> str:
    ping().close()
    call = ping()
    task = asyncio.create_task(call)
    return await task + repr(call)


def test_a_call_that_is_closed_was_not_forgotten():
    """`close()` says that it is not wanted, as it does for a coroutine; a call can be the coroutine of a task."""
    assert finish(closes_one) == "pong<durable call ping>"


@holdfast.agent
async def wrong_arguments() -> list[str]:
    out = []
    for call in (later, lambda: later([], 1), lambda: later(["a"], more=1), lambda: later("text")):
        with pytest.raises(holdfast.BadArguments) as caught:
            call()
        out.append(str(caught.value))
    return out


def test_wrong_arguments_are_told_at_the_call():
    """Before anything is recorded, with what the step takes and what it got."""
    for message in finish(wrong_arguments):
        assert "'later'" in message
        assert "things" in message


def test_fakes_may_be_of_any_kind():
    """A replacement may be async, plain, a lambda or a step; a key that is no step or resource is refused."""

    @holdfast.step
    async def fake() -> str:
        return "fake"

    for replacement in (fake, fake.fn, lambda: "fake", _wrapped(fake.fn)):
        assert finish(awaits_twice, replace={ping: replacement}) == ["fake", "fake"]
    with pytest.raises(holdfast.BadArguments, match="takes steps and resources as keys"):
        finish(awaits_twice, replace={ping.fn: fake})
