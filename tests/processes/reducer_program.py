"""A worker that folds the events of counters; killed with -9 by the test."""

import asyncio
import os
import sys
from dataclasses import dataclass, replace

import holdfast
from holdfast import After, Command, Do, Done, Outcome


@dataclass(frozen=True)
class Counted:
    sender: str
    number: int


@dataclass(frozen=True)
class Late:
    number: int


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Counter:
    last: tuple[tuple[str, int], ...] = ()  # by sender
    total: int = 0
    count: int = 0
    marked: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    wrong: tuple[str, ...] = ()  # what came twice, or out of order


@holdfast.step
async def mark(name: str, number: int) -> int:
    """Write a line that outlives every kill."""
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{name} {number}\n".encode())
    finally:
        os.close(file)
    return number


@holdfast.reducer(Counter, every=10)
def counter(state: Counter, event: Counted | Late | Closed | Outcome) -> Counter | tuple[Counter, list[Command]]:
    match event:
        case Counted(sender, number):
            last = dict(state.last)
            wrong = () if last.get(sender, -1) == number - 1 else (f"{sender} {number} after {last.get(sender)}",)
            last[sender] = number
            made = replace(
                state, last=tuple(sorted(last.items())), total=state.total + number, count=state.count + 1,
                wrong=state.wrong + wrong,
            )  # fmt: skip
            commands: list[Command] = []
            if number % 5 == 0:
                commands.append(Do(mark, sender, number))
            if number % 7 == 0:
                commands.append(After("200ms", Late(number)))
            return made, commands
        case Outcome(_, value, error):
            return replace(state, marked=(*state.marked, value if error is None else -1))
        case Late(number):
            return replace(state, late=(*state.late, number))
        case Closed():
            return state, [Done()]


async def main() -> None:
    async with holdfast.open(sys.argv[1], agents=[counter]):
        print("ready", flush=True)  # noqa: T201 - the test reads it
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
