# pyright: strict, enableTypeIgnoreComments=false, reportUnnecessaryTypeIgnoreComment=true
"""Mistakes that a type checker must find: each line is marked with the error it must have, and a mark too many fails."""

from collections.abc import Iterator

import holdfast
from holdfast import NOT_DONE, Local, NotDone, Run
from tests.typing.declaring import Shop, charge, fetch, measure, pay, research, research_again


async def steps() -> None:
    await fetch(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await fetch("a", "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await fetch("a", attempts=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await fetch()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await pay(1, "note")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    length: str = await measure("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await Shop().sell(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await Shop.sell("tea")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    words: list[str] = fetch("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert length
    assert words


async def clients(hf: holdfast.Client, run: Run[str]) -> None:
    await hf.start(research, 3)  # type: ignore[arg-type]  # pyright: ignore
    await hf.start(research)  # type: ignore[call-overload]  # pyright: ignore
    await hf.start(research, "a", 1, 2)  # type: ignore[arg-type]  # pyright: ignore
    await hf.start(research, "a", id=3)  # type: ignore[call-overload]  # pyright: ignore
    await hf.start(7)  # type: ignore[call-overload]  # pyright: ignore
    number: int = await hf.run(research, "a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await run
    assert number


async def clients_again(hf: holdfast.Client) -> None:
    run: Run[int] = hf.get("a", research)  # type: ignore[arg-type]  # pyright: ignore
    await hf.answer("a", "run")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert run


@holdfast.agent
async def verbs() -> None:
    number: int = await holdfast.receive("topic", str)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await holdfast.spawn(research, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    child = await holdfast.spawn(research_again, "a")
    text: str = await child  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert (number, text)


@holdfast.agent  # type: ignore[arg-type]  # pyright: ignore
def not_async() -> None: ...


@holdfast.agent(retry=3)  # type: ignore[call-overload]  # pyright: ignore
async def no_such_option() -> None: ...


@holdfast.step(retries=3)  # type: ignore[call-overload]  # pyright: ignore
async def no_such_option_either() -> None: ...


@holdfast.step(in_doubt="maybe")  # type: ignore[call-overload]  # pyright: ignore
async def no_such_policy() -> None: ...


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
