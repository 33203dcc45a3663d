"""Mistakes that a type checker must find: each line has a mark for its error, and a mark too many fails."""

from collections.abc import Iterator

from tests.typing.declaring import Shop, charge, fetch, measure, pay, research, research_again

import holdfast
from holdfast import NOT_DONE, Local, NotDone, Run


async def steps() -> None:
    await fetch(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await fetch("a", "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await fetch("a", attempts=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await fetch()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await pay(1, "note")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    length: str = await measure("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await Shop().sell(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await Shop.sell("tea")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    words: list[str] = fetch("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert length
    assert words


def flow() -> None:
    holdfast.agent(limit="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    holdfast.step(rate=60)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def clients(hf: holdfast.Client) -> None:
    await hf.start(research, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await hf.start(research)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await hf.start(research, "a", deep=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await hf.start(research, topic=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await hf.start(research, "a", labels=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    many = ("a", 1, 2)
    await hf.start(research, *many)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await hf.start("name", id=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await hf.start(7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    number: int = await hf.run(research, "a")  # type: ignore[call-overload]  # pyright: ignore[reportAssignmentType]
    run: Run[int] = hf.get("a", research)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    await hf.answer("a", "run")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert [number, run]


@holdfast.agent
async def verbs() -> None:
    message = await holdfast.receive("topic", Shop)
    del message.headline  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    await holdfast.spawn(research, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    child = await holdfast.spawn(research_again, "a")
    text: str = await child  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert text


@holdfast.agent  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def not_async() -> None: ...


@holdfast.agent(retry=3)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def no_such_option() -> None: ...


@holdfast.step(retries=3)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def no_such_option_either() -> None: ...


@holdfast.step(in_doubt="maybe")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportArgumentType, reportUntypedFunctionDecorator]
async def no_such_policy() -> None: ...


@holdfast.step(transaction=True, in_doubt="ask")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def no_doubt_about_a_transaction() -> None: ...


@holdfast.step(transaction="maybe")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
async def no_such_transaction() -> None: ...


async def probe_of_another(amount: str) -> str | NotDone:
    return NOT_DONE


@holdfast.step(in_doubt=probe_of_another)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def probed(amount: int) -> str:
    return f"{amount}"


@holdfast.resource  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def not_an_async_generator() -> Iterator[int]:
    yield 1


@holdfast.step
async def local(client: Local[Shop]) -> None: ...


async def passes_wrong() -> None:
    await local("shop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def asks_wrong() -> None:
    await holdfast.approve("Go on?", needs=len)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await holdfast.approve("Go on?", show=1, default="no")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def streams_wrong() -> None:
    async with holdfast.stream("answer") as out:
        await out.write(b"bytes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
