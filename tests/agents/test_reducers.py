"""Reducers: agents that are one pure function from a state and an event to the next state and commands."""

import asyncio
import datetime as dt
import json
import math
import os
import random
import re
import socket
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
import holdfast.testing
from holdfast import After, Ask, BadArguments, Command, Do, Done, Outcome, Spawn


@dataclass(frozen=True)
class Ledger:
    total: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placed:
    cents: int


@dataclass(frozen=True)
class Reminder:
    cents: int


@dataclass(frozen=True)
class Closed:
    pass


@holdfast.step
async def charge(cents: int) -> int:
    if cents < 0:
        raise ValueError("too little")
    return cents * 2


@holdfast.agent
async def ship(cents: int) -> str:
    await holdfast.sleep("1m")
    return f"shipped {cents}"


Events = Placed | Reminder | Closed | Outcome


def folded(state: Ledger, event: Events) -> Ledger | tuple[Ledger, list[Command]]:
    match event:
        case Placed(cents):
            commands = [
                Do(charge, cents),
                Spawn(ship, cents),
                After("5m", Reminder(cents)),
                Ask("All right?", bool, expires="3m", default=True, tag="asked"),
            ]
            return replace(state, total=state.total + cents), commands
        case Reminder(cents):
            return replace(state, lines=(*state.lines, f"reminder {cents}"))
        case Outcome(tag, value, error):
            return replace(state, lines=(*state.lines, f"{tag} {value if error is None else error}"))
        case Closed():
            return state, [Done()]


ledger = holdfast.reducer(Ledger, every=3, name="ledger")(folded)


def lines_of(*cents: int) -> list[str]:
    kinds = ("charge {double}", "ship shipped {cents}", "reminder {cents}", "asked True")
    return sorted(kind.format(cents=each, double=2 * each) for each in cents for kind in kinds)


async def heard(run, children):
    """Wait until so many children have told how they ended: what is sent from then on comes behind that."""
    while sum([event.kind == "child.ended" async for event in run.events(follow=False)]) < children:
        await asyncio.sleep(0.005)


async def test_commands_come_back_as_events():
    async with holdfast.testing.open(agents=[ledger]) as hf:
        run = await hf.start(ledger, id="r")
        for cents in (5, 7):
            await run.send(Placed(cents))
        await hf.advance("10m")
        await heard(run, 4)
        await run.wait("waiting")
        await run.send(Closed())
        end = await run.result(timeout=10)
        assert end.total == 12
        assert sorted(end.lines) == lines_of(5, 7)
        assert hf.bodies[charge] == 2


@pytest.mark.slow
async def test_a_crash_anywhere_changes_nothing():
    async for hf in holdfast.testing.crash_everywhere(agents=[ledger]):
        run = await hf.start(ledger, id="r")
        for cents in (5, 7):
            await run.send(Placed(cents), key=str(cents))
        await run.wait("waiting")
        await hf.advance("10m")
        await heard(run, 4)
        await run.wait("waiting")
        await run.send(Closed(), key="closed")
        end = await run.result(timeout=10)
        assert end.total == 12
        assert sorted(end.lines) == lines_of(5, 7)


# Declaring


def declared(fn, state=Ledger, **options):
    return holdfast.reducer(state, **options)(fn)


def test_it_is_the_plain_function():
    assert ledger(Ledger(1), Reminder(2)) == Ledger(1, ("reminder 2",))
    state, commands = ledger(Ledger(), Placed(3))
    assert state == Ledger(3)
    assert commands[:3] == [Do(charge, 3), Spawn(ship, 3), After("5m", Reminder(3))]


def aloud() -> float:
    return time.time()


def through_another(state: Ledger, event: Placed) -> Ledger:
    return replace(state, total=int(aloud()))


def by_date(state: Ledger, event: Placed) -> Ledger:
    return replace(state, lines=(str(datetime.now(tz=UTC)),))


def by_module(state: Ledger, event: Placed) -> Ledger:
    return replace(state, lines=(str(dt.date.today()),))  # noqa: DTZ011


def by_chance(state: Ledger, event: Placed) -> Ledger:
    return replace(state, total=random.randint(1, 6))


def by_uuid(state: Ledger, event: Placed) -> Ledger:
    return replace(state, lines=(str(uuid.uuid4()),))


def by_environment(state: Ledger, event: Placed) -> Ledger:
    return replace(state, lines=(os.environ["HOME"],))


def by_file(state: Ledger, event: Placed) -> Ledger:
    with open("/tmp/x") as file:  # noqa: PTH123
        return replace(state, lines=(file.read(),))


def by_socket(state: Ledger, event: Placed) -> Ledger:
    socket.create_connection(("localhost", 1))
    return state


def by_import(state: Ledger, event: Placed) -> Ledger:
    import random as dice

    return replace(state, total=dice.randint(1, 6))


def in_a_lambda(state: Ledger, event: Placed) -> Ledger:
    return replace(state, total=max([1, 2], key=lambda _: time.monotonic()))


def by_verb(state: Ledger, event: Placed) -> Ledger:
    return replace(state, lines=(str(holdfast.now()),))


count = 0


def by_global(state: Ledger, event: Placed) -> Ledger:
    global count  # noqa: PLW0603
    count += 1
    return replace(state, total=count)


IMPURE = {
    through_another: "time.time",
    by_date: "datetime.now",
    by_module: "date.today",
    by_chance: "random.",
    by_uuid: "uuid.uuid4",
    by_environment: "os.",
    by_file: "open()",
    by_socket: "socket.create_connection",
    by_import: "imports random",
    in_a_lambda: "time.monotonic",
    by_verb: "holdfast.now",
    by_global: "'count'",
}


@pytest.mark.parametrize("fn", IMPURE)
def test_what_is_not_pure_is_refused_with_its_line(fn):
    with pytest.raises(BadArguments) as error:
        declared(fn)
    assert re.search(r"test_reducers\.py:\d+ ", str(error.value))
    assert IMPURE[fn] in str(error.value)
    first = (aloud if fn is through_another else fn).__code__.co_firstlineno
    line = int(re.search(r"\.py:(\d+)", str(error.value))[1])
    assert first < line <= first + 5


def pure(state: Ledger, event: Placed) -> Ledger:
    made = timedelta(days=1) + datetime(2026, 1, 1, tzinfo=UTC)
    sizes = [len(str(each)) for each in sorted({1, 2, 3})]
    return replace(state, total=sum(sizes) + math.floor(1.5), lines=(json.dumps({"at": made.isoformat()}),))


def test_what_only_computes_is_taken():
    assert declared(pure)(Ledger(), Placed(1)).total == 4


async def not_plain(state: Ledger, event: Placed) -> Ledger:
    return state


def alone(state: Ledger) -> Ledger:
    return state


def nameless(state: Ledger, event) -> Ledger:
    return state


def of_text(state: Ledger, event: str | Placed) -> Ledger:
    return state


@pytest.mark.parametrize(
    ("fn", "state", "options", "told"),
    [
        (not_plain, Ledger, {}, "a reducer is a plain function"),
        (alone, Ledger, {}, "two parameters"),
        (nameless, Ledger, {}, "annotate its parameter 'event'"),
        (of_text, Ledger, {}, "str cannot be the type of an event"),
        (folded, tuple, {}, "a tuple cannot be told"),
        (folded, Ledger, {"every": 0}, "1 or more"),
        (ledger, Ledger, {}, "plain function"),
    ],
)
def test_what_cannot_be_declared_is_told(fn, state, options, told):
    with pytest.raises((BadArguments, holdfast.NotStorable)) as error:
        declared(fn, state, **options)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Do(print, 1),
        lambda: Do(charge, 1, tag=""),
        lambda: Spawn(charge, 1),
        lambda: After("soon", Placed(1)),
        lambda: Ask("", bool),
        lambda: Ask("Well?", bool, tag=3),
    ],
)
def test_a_bad_command_is_refused_where_it_is_made(make):
    with pytest.raises(BadArguments):
        make()


# Bad input


async def test_an_event_of_no_known_type_is_refused_or_kept_apart(caplog):
    async with holdfast.testing.open(agents=[ledger]) as hf:
        run = await hf.start(ledger, id="r")
        for sent in (3, Ledger(), Outcome("charge", 5)):
            with pytest.raises(BadArguments, match=r"Placed \| Reminder \| Closed"):
                await run.send(sent)
        with pytest.raises(BadArguments):
            await run.send(Placed(1), "more")
        for value in (
            {"Nothing": {}},
            {"Placed": {"cents": "\x1b[31m"}},
            7,
            {"Placed": {"cents": 1}, "x": 2},
            {},
            None,
        ):
            await run.send("event", value)
        await run.send("event", {"Reminder": {"cents": 4}})
        await run.send(Closed())
        assert await run.result(timeout=10) == Ledger(0, ("reminder 4",))
        notes = [event.data["text"] async for event in run.events(follow=False) if event.kind == "note"]
        assert len(notes) == 6
        assert all(
            note.startswith("a message was kept apart, because it is no event of this reducer: ") for note in notes
        )
        assert not any("\x1b" in note for note in notes)
        told = [record.getMessage() for record in caplog.records if "kept apart" in record.getMessage()]
        assert len(told) == 6
        assert all("Placed | Reminder | Closed" in each and "send it again" in each for each in told)


async def test_an_event_needs_a_reducer():
    async with holdfast.testing.open(agents=[ship]) as hf:
        run = await hf.start(ship, 1, id="r")
        with pytest.raises(BadArguments, match="no reducer"):
            await run.send(Placed(1))


async def test_a_sender_needs_none_of_the_code():
    async with holdfast.testing.open(agents=[ledger]) as hf:
        await hf.start(ledger, id="r")
        async with holdfast.open(hf.store.url.partition("?")[0]) as other:
            await other.get("r").send(Reminder(8))
            await other.get("r").send(Closed())
        assert (await hf.get("r").result(timeout=10)).lines == ("reminder 8",)


@dataclass(frozen=True)
class Bad:
    pass


def breaking(state: Ledger, event: Placed | Bad | Closed | Outcome) -> Ledger | tuple[Ledger, list[Command]]:
    match event:
        case Placed(cents):
            return replace(state, total=state.total + cents), [Do(charge, cents)]
        case Outcome(value=value, error=error):
            return replace(state, lines=(*state.lines, str(value or error)))
        case Closed():
            return state, [Done()]
        case Bad():
            raise ZeroDivisionError("bad")


def mended(state: Ledger, event: Placed | Bad | Closed | Outcome) -> Ledger | tuple[Ledger, list[Command]]:
    if isinstance(event, Bad):
        return replace(state, lines=(*state.lines, "mended"))
    return breaking(state, event)


async def test_a_function_that_raises_fails_the_run_and_a_retry_goes_on_with_mended_code():
    first, second = declared(breaking, name="r"), declared(mended, name="r")
    async with holdfast.testing.open(agents=[first]) as hf:
        run = await hf.start(first, id="r")
        for event in (Placed(1), Placed(-1), Bad(), Placed(2)):
            await run.send(event)
        with pytest.raises(holdfast.RunFailed, match="bad"):
            await run.result(timeout=10)
        hf.deploy([second])
        await hf.crash()
        await run.retry()
        await run.wait("waiting")
        await run.send(Closed())
        end = await run.result(timeout=10)
        assert end.total == 2
        assert sorted(end.lines) == ["2", "4", "ValueError: too little", "mended"]
        assert hf.bodies[charge] == 3


def forgetful(state: Ledger, event: Placed) -> Ledger:
    return None  # type: ignore[return-value]


def wordless(state: Ledger, event: Placed) -> Ledger | tuple[Ledger, list[Command]]:
    return state, [Do(charge, 1)]


def odd(state: Ledger, event: Placed | Outcome) -> Ledger | tuple[Ledger, list[Command]]:
    return state, ["charge"]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("fn", "told"),
    [(forgetful, "returned None"), (wordless, "add `| holdfast.Outcome`"), (odd, "'charge' among its commands")],
)
async def test_a_function_that_returns_nonsense_is_told_so(fn, told):
    agent = declared(fn)
    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.send(Placed(1))
        with pytest.raises(holdfast.RunFailed) as error:
            await run.result(timeout=10)
        assert told in str(error.value)


# The test kit


def mutating(state: dict[str, int], event: Placed) -> dict[str, int]:
    state["total"] = state.get("total", 0) + event.cents
    return state


class Hidden:
    """A clock that no reading of the code sees."""

    def __getitem__(self, name: str) -> float:
        return time.time()


hidden = Hidden()


def sly(state: Ledger, event: Placed) -> Ledger:
    return replace(state, total=int(hidden["now"]))


def test_fold_finds_what_reading_does_not():
    end = holdfast.testing.fold(ledger, [Placed(1), Outcome("charge", 2), Reminder(3)])
    assert end.state == Ledger(1, ("charge 2", "reminder 3"))
    assert len(end.commands) == 4
    with pytest.raises(AssertionError, match="changed what it was given"):
        holdfast.testing.fold(declared(mutating, dict[str, int]), [Placed(1)])
    with pytest.raises(AssertionError, match=r"event 0, .* not pure"):
        holdfast.testing.fold(declared(sly), [Placed(1)])
    with pytest.raises(BadArguments):
        holdfast.testing.fold(folded, [])  # type: ignore[arg-type]
