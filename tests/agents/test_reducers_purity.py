"""Where it is found that a reducer does more than compute: when it is declared, when it runs, or by the test kit."""

import asyncio
import builtins
import functools
import logging
import operator
import os
import random
import re
import secrets
import socket
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime as moment
from email.utils import formatdate
from pathlib import Path
from time import monotonic as clock

import pytest
from tests.agents import impure

import holdfast
import holdfast.testing


@dataclass(frozen=True)
class State:
    total: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Came:
    number: int


@dataclass(frozen=True)
class Stamped:
    at: float = field(default_factory=time.time)


@dataclass
class Marked:
    at: float = 0.0

    def __post_init__(self) -> None:
        self.at = time.perf_counter()


class Config:
    limit = 3


cache: dict[int, int] = {}
seen: list[int] = []
counts: Counter[int] = Counter()
config = Config()
stamp = functools.partial(lambda _: time.time_ns(), 1)
TABLE = {1: "one"}
log = logging.getLogger("reducers")


def under_another_name(state: State, event: Came) -> State:
    return replace(state, total=int(clock()))


def in_another_module(state: State, event: Came) -> State:
    return replace(state, lines=(impure.stamp(),))


def in_a_default(state: State, event: Came) -> State:
    return replace(state, total=int(Stamped().at))


def in_a_class(state: State, event: Came) -> State:
    return replace(state, total=int(Marked().at))


def in_a_partial(state: State, event: Came) -> State:
    return replace(state, total=stamp())


def of_a_type(state: State, event: Came) -> State:
    return replace(state, lines=(moment.utcnow().isoformat(),))  # noqa: DTZ003


def in_a_comprehension(state: State, event: Came) -> State:
    return replace(state, lines=tuple(str(random.random()) for _ in range(3)))


def in_an_inner_function(state: State, event: Came) -> State:
    def inner() -> str:
        return secrets.token_hex()

    return replace(state, lines=(inner(),))


def by_system(state: State, event: Came) -> State:
    return replace(state, lines=(os.urandom(3).hex(),))


def by_path(state: State, event: Came) -> State:
    return replace(state, lines=(Path("/etc/hostname").read_text(),))


def by_process(state: State, event: Came) -> State:
    subprocess.run(["true"], check=True)
    return state


def by_thread(state: State, event: Came) -> State:
    threading.Thread(target=print).start()
    return state


def by_loop(state: State, event: Came) -> State:
    asyncio.get_event_loop()
    return state


def by_element(state: State, event: Came) -> State:
    cache[event.number] = 1
    return replace(state, total=len(cache))


def by_method(state: State, event: Came) -> State:
    seen.append(event.number)
    return replace(state, total=len(seen))


def by_count(state: State, event: Came) -> State:
    counts[event.number] += 1
    return replace(state, total=counts[event.number])


def by_attribute(state: State, event: Came) -> State:
    config.limit = event.number
    return state


def by_deletion(state: State, event: Came) -> State:
    del cache[event.number]
    return state


def outer():
    many = 0

    def by_cell(state: State, event: Came) -> State:
        nonlocal many
        many += 1
        return replace(state, total=many)

    return by_cell


class Watch:
    """An object of the user's that knows the time, and others that have it."""

    __slots__ = ("_now", "count", "inner")

    def __init__(self, inner: object = None) -> None:
        self.inner, self._now, self.count = inner, time.time, 0

    def now(self) -> int:
        return self._read()

    def _read(self) -> int:
        return int(time.time())

    def held(self) -> int:
        return int(self._now())

    def __call__(self) -> int:
        return self.now()

    @classmethod
    def of_class(cls) -> int:
        return cls.plain()

    @staticmethod
    def plain() -> int:
        return int(time.time())

    @property
    def today(self) -> int:
        return self.now()

    @functools.cached_property
    def __dict__(self):
        raise AssertionError("no code of the user's is run to read it")

    def bump(self) -> int:
        self.count += 1
        return self.count


class Later(Watch):
    """Has it from the class above it."""

    __slots__ = ()


@dataclass(frozen=True)
class Timed:
    total: int = 0

    def touched(self) -> "Timed":
        return replace(self, total=int(time.time()))


@dataclass(frozen=True)
class Ticked:
    number: int

    @property
    def due(self) -> int:
        return self.number + int(time.time())


watch, wrapped = Watch(), Watch(Watch())
bound, later = watch.now, Later()


def by_own_object(state: State, event: Came) -> State:
    return replace(state, total=watch.now())


def by_what_it_holds(state: State, event: Came) -> State:
    return replace(state, total=watch.held())


def by_own_object_in_another(state: State, event: Came) -> State:
    return replace(state, total=wrapped.inner.now())


def by_bound_method(state: State, event: Came) -> State:
    return replace(state, total=bound())


def by_calling_it(state: State, event: Came) -> State:
    return replace(state, total=watch())


def by_class_method(state: State, event: Came) -> State:
    return replace(state, total=later.of_class())


def by_own_property(state: State, event: Came) -> State:
    return replace(state, total=later.today)


def by_counting(state: State, event: Came) -> State:
    return replace(state, total=watch.bump())


def by_state(state: Timed, event: Came) -> Timed:
    return state.touched()


def by_event(state: State, event: Came | Ticked) -> State:
    return replace(state, total=sum(event.due for _ in range(1)) if isinstance(event, Ticked) else 0)


def around(own):
    def by_closure(state: State, event: Came) -> State:
        return replace(state, total=own.now())

    return by_closure


DECLARED = {
    by_own_object: "uses time.time",
    by_what_it_holds: "uses time.time",
    by_own_object_in_another: "uses time.time",
    by_bound_method: "uses time.time",
    by_calling_it: "uses time.time",
    by_class_method: "uses time.time",
    by_own_property: "uses time.time",
    by_counting: "changes 'self'",
    by_state: "uses time.time",
    by_event: "uses time.time",
    around(Later()): "uses time.time",
    under_another_name: "time.monotonic",
    in_another_module: "impure.py:7 uses time.time",
    in_a_default: "__init__ uses time.time",
    in_a_class: "time.perf_counter",
    in_a_partial: "time.time_ns",
    of_a_type: "datetime.utcnow",
    in_a_comprehension: "random.",
    in_an_inner_function: "secrets.token_hex",
    by_system: "os.urandom",
    by_path: "pathlib.Path",
    by_process: "subprocess.run",
    by_thread: "threading.Thread",
    by_loop: "asyncio.",
    by_element: "changes 'cache'",
    by_method: "changes 'seen'",
    by_count: "changes 'counts'",
    by_attribute: "changes 'config'",
    by_deletion: "changes 'cache'",
    outer(): "'many'",
}


@pytest.mark.parametrize("fn", DECLARED, ids=lambda fn: fn.__name__)
def test_it_is_refused_where_it_is_declared(fn):
    with pytest.raises(holdfast.BadArguments, match=re.escape(DECLARED[fn])):
        holdfast.reducer(State)(fn)


def computing(state: State, event: Came) -> State:
    """What looks like it, and is none."""
    cache = {}  # its own
    cache[event.number] = TABLE.get(event.number, "many")
    lines = [*state.lines]
    lines.append(cache[event.number])
    lines.sort()
    numbers = Counter(lines)
    numbers.update(lines)
    at = moment.fromisoformat("2026-01-01T00:00:00")
    where = [os.path.join("a", each) for each in lines]  # noqa: PTH118 - a text
    log.warning("logging reads a clock, and nothing comes of it")
    total = at.year + sum(numbers.values()) + len(where) + table.sizes["one"] + table.longest()
    return replace(state, lines=tuple(lines), total=total)


class Table:
    """An object of the user's that only computes, and knows the time elsewhere."""

    def __init__(self) -> None:
        self.sizes = {"one": 3}

    def __call__(self) -> float:
        return time.time()

    def longest(self) -> int:
        return max(self.sizes.values())

    def now(self) -> float:
        return time.time()


table = Table()


def test_what_only_computes_is_taken():
    reducer = holdfast.reducer(State)(computing)
    assert holdfast.testing.fold(reducer, [Came(1)]).state == State(2026 + 2 + 1 + 6, ("one",))


def by_open(state: State, event: Came) -> State:
    with getattr(builtins, "open")("/etc/hostname") as file:  # noqa: B009
        return replace(state, lines=(file.read(),))


def by_socket(state: State, event: Came) -> State:
    with getattr(socket, "socket")() as made:  # noqa: B009
        made.connect_ex(("127.0.0.1", 9))
    return state


def by_listing(state: State, event: Came) -> State:
    return replace(state, lines=tuple(getattr(os, "listdir")("/")))  # noqa: B009


def mended(state: State, event: Came) -> State:
    return replace(state, total=state.total + event.number)


@pytest.mark.parametrize("fn", [by_open, by_socket, by_listing], ids=lambda fn: fn.__name__)
async def test_io_that_no_reading_sees_pauses_the_run_before_it_happens_and_mended_code_goes_on(fn):
    first, second = holdfast.reducer(State, name="r")(fn), holdfast.reducer(State, name="r")(mended)
    async with holdfast.testing.open(agents=[first]) as hf:
        run = await hf.start(first, id="r")
        await run.send(Came(4))
        info = await run.wait("paused", timeout=10)
        assert "test_reducers_purity.py" in info.reason
        hf.deploy([second])
        await hf.crash()
        await run.resume()
        await run.wait("waiting", timeout=10)
        assert (await (await run.state(agents=[second])).value())["total"] == 4


class Hidden:
    def __getitem__(self, name: str) -> int:
        return self.now()

    def now(self) -> int:
        return int(time.time())


hidden = Hidden()
WATCHES = [hidden]


def by_operator(state: State, event: Came) -> State:
    return replace(state, total=hidden["now"])


def by_object_that_it_makes(state: State, event: Came) -> State:
    made = Later()
    return replace(state, total=made.now())


def by_object_in_a_list(state: State, event: Came) -> State:
    return replace(state, total=WATCHES[0].now())


def by_name_of_a_method(state: State, event: Came) -> State:
    return replace(state, total=getattr(hidden, "now")())  # noqa: B009


def by_library(state: State, event: Came) -> State:
    return replace(state, total=len(formatdate()))


def by_chance_of_another(state: State, event: Came) -> State:
    return replace(state, total=getattr(random, "randrange")(10**9))  # noqa: B009


def by_day(state: State, event: Came) -> State:
    return replace(state, lines=(getattr(moment, "today")().strftime("%Y"),))  # noqa: B009


FOLDED = {
    by_operator: "time.time() is called at test_reducers_purity.py:",
    by_object_that_it_makes: "time.time() is called",
    by_object_in_a_list: "time.time() is called",
    by_name_of_a_method: "time.time() is called",
    by_library: "time.time() is called at test_reducers_purity.py:",
    by_chance_of_another: "random.getrandbits() is called",
    by_day: "datetime.today() is called",
}


@pytest.mark.parametrize("fn", FOLDED, ids=lambda fn: fn.__name__)
def test_a_clock_or_chance_that_no_reading_sees_is_found_by_folding(fn):
    """Although the outcome would be the same for a second, or a year."""
    with pytest.raises(AssertionError, match=f"not pure, {re.escape(FOLDED[fn])}"):
        holdfast.testing.fold(holdfast.reducer(State)(fn), [Came(1)])


def by_c(state: State, event: Came) -> State:
    return replace(state, total=next(iter(map(operator.methodcaller("__call__"), [getattr(time, "time_ns")]))))  # noqa: B009


def test_a_clock_that_only_c_calls_is_found_by_folding_twice():
    with pytest.raises(AssertionError, match="not pure, the state came out as"):
        holdfast.testing.fold(holdfast.reducer(State)(by_c), [Came(1)])
