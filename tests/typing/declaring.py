"""Declarations as users write them: the types of their functions pass through."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, assert_type

import holdfast
from holdfast import NOT_DONE, Agent, Limit, Local, NotDone, Rate, Retry, Step


class Declined(Exception): ...


class Client:
    async def post(self, amount: int) -> str:
        return f"{amount}"


@holdfast.step
async def fetch(url: str, tries: int = 3) -> list[str]:
    return [url] * tries


@holdfast.step
def measure(text: str) -> int:
    return len(text)


@holdfast.step(name="pay.card", retry=Retry(5, first="1s", on=(ConnectionError,)), timeout="30s", raises=(Declined,))
async def pay(amount: int, *, note: str = "") -> str | None:
    return note or None


@holdfast.step(retry=3, timeout=1.5, in_doubt="ask")
def plain(amount: int) -> str:
    return f"{amount}"


@holdfast.step(transaction=True, retry=2, timeout="2s")
async def transfer(amount: int) -> list[int]:
    holdfast.connection().execute("UPDATE accounts SET amount = amount - ?", (amount,))
    return [amount]


@holdfast.step(transaction="serializable")
def transfer_in_thread(amount: int) -> int:
    return amount


@holdfast.step(retry=Retry.model)
async def ask_model(prompt: str) -> dict[str, float]:
    return {prompt: 1.0}


async def was_paid(amount: int) -> str | NotDone:
    return "receipt" if amount else NOT_DONE


@holdfast.step(in_doubt=was_paid)
async def charge(amount: int) -> str:
    return f"{amount}"


@holdfast.step(in_doubt=was_paid)
def charge_plainly(amount: int) -> str:
    return f"{amount}"


@holdfast.step
async def with_client(client: Local[Client], amount: int) -> str:
    assert_type(client, Client)
    return await client.post(amount)


class Shop:
    @holdfast.step
    async def sell(self, what: str, count: int = 1) -> tuple[str, int]:
        return what, count

    @holdfast.step(retry=2)
    def counted(self) -> int:
        return 1

    @staticmethod
    @holdfast.step
    async def price(what: str) -> int:
        return len(what)


@holdfast.agent
async def research(topic: str, depth: int = 1) -> str:
    return topic * depth


@holdfast.agent(name="research.v2", version="2")
async def research_again(topic: str, *, depth: int = 1) -> list[str]:
    return [topic] * depth


@holdfast.agent
async def nothing() -> None: ...


@holdfast.agent(queue="mail", priority=7, limit=Limit(2, per="customer"), rate="60/m", singleton="customer")
async def mail(customer: str, text: str = "") -> int:
    return len(text)


@holdfast.agent(budget=holdfast.Budget(usd=2.5, tokens=1000, wall="1h", at_limit="fail"), loops=holdfast.Loops(same=3))
async def frugal(topic: str) -> int:
    try:
        return await slow(topic)
    except holdfast.BudgetExceeded as error:
        assert_type(error.spent.usd, float)
        assert_type(holdfast.remaining(), holdfast.Remaining)
        assert_type(holdfast.remaining().usd, float | None)
        return 0


@holdfast.agent(limit=3, rate=Rate(10, every="15m", per="topic"), singleton=True)
async def limited(topic: str) -> None: ...


@holdfast.step(limit=Limit(5), rate=Rate("5/s", per="text"))
def slow(text: str) -> int:
    return len(text)


@holdfast.resource
async def http() -> AsyncIterator[Client]:
    yield Client()


async def calls() -> None:
    """A step is awaited in a run and outside, and gives what its function returns."""
    assert_type(await fetch("a"), list[str])
    assert_type(await fetch("a", tries=2), list[str])
    assert_type(await measure("a"), int)
    assert_type(await pay(1, note="x"), str | None)
    assert_type(await plain(1), str)
    assert_type(await slow("a"), int)
    assert_type(await ask_model("x"), dict[str, float])
    assert_type(await charge(1), str)
    assert_type(await charge_plainly(1), str)
    assert_type(await transfer(1), list[int])
    assert_type(await transfer_in_thread(1), int)
    assert_type(await with_client(Client(), 1), str)
    assert_type(await http(), Client)
    coroutine: Coroutine[Any, Any, list[str]] = fetch("a")
    assert_type(await coroutine, list[str])
    assert_type(fetch.name, str)


async def methods() -> None:
    """A method loses its `self` when it is bound, and only then."""
    shop = Shop()
    assert_type(await shop.sell("tea"), tuple[str, int])
    assert_type(await shop.sell("tea", count=2), tuple[str, int])
    assert_type(await Shop.sell(shop, "tea", 2), tuple[str, int])
    assert_type(await shop.counted(), int)
    assert_type(await Shop.price("tea"), int)


async def agents() -> None:
    """Inside another agent an agent is called like a function."""
    assert_type(await research("otters"), str)
    assert_type(await research("otters", depth=2), str)
    assert_type(await research_again("otters", depth=2), list[str])
    await nothing()
    assert_type(await mail("ana", text="b"), int)
    assert_type(research.name, str)


async def frameworks() -> None:
    """Steps and agents go where coroutine functions go."""
    tools: list[Callable[..., Coroutine[Any, Any, object]]] = [fetch, measure, research, Shop().sell]
    assert tools
    later: Callable[[str], Coroutine[Any, Any, int]] = measure
    assert_type(await later("a"), int)
    bound = functools.partial(fetch, "a")
    assert_type(await bound(tries=1), list[str])
    lists, number = await asyncio.gather(fetch("a"), measure("b"))
    assert_type(lists, list[str])
    assert_type(number, int)
    many = await asyncio.gather(*[measure(word) for word in ("a", "b")])
    assert_type(many, list[int])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(fetch("a"))
    assert_type(task.result(), list[str])
    anything: list[Step[..., Any] | Agent[..., Any]] = [fetch, Shop.sell, research, nothing]
    assert anything
