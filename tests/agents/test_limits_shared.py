"""The governor: what one body is told by a provider holds for all who share its key, in every worker."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from contextvars import ContextVar
from itertools import pairwise

import pytest
from tests.agents.runs import history, with_client

import holdfast
import holdfast.testing
from holdfast import Rate, Retry, Settings
from holdfast.engine import limits
from holdfast.store.limits import Limits
from holdfast.words.retry import pause_s

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_refusal_holds_for_all_who_share_the_key",
    "test_tokens_that_were_spent_put_off_later_turns",
}

CLOCKS_MS = 10  # ours and that of a database may differ by so much


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return f"sqlite:{tmp_path / 'runs.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


class Refused(Exception):
    """As HTTP clients raise it."""

    def __init__(self, status_code, after=None, number=0):
        super().__init__(f"refused with {status_code} {number}")
        self.status_code, self.headers = status_code, {} if after is None else {"retry-after": str(after)}


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (Refused(429, 30), 30),
        (Refused(503, 5), 5),
        (Refused(529, 5), 5),
        (Refused(429, 86_400), 3_600),  # in an hour somebody asks again
        (Refused(429), None),  # it does not say when
        (Refused(500, 5), None),  # about this request only
        (holdfast.RetryAfter("5s"), None),  # the step's own, about this call
        (ConnectionResetError(), None),
    ],
)
def test_which_failures_pause_a_rate(error, pause):
    """Those that say that the server has too much to do, and until when."""
    assert pause_s(error) == pause


def test_what_a_failure_was_raised_from_counts():
    """A library wraps the client's error in its own: the status and the header are found all the same."""
    error = ValueError("no answer")
    error.__cause__ = Refused(429, 7)
    assert (pause_s(error), Retry.model.wants(error), Retry.model.delay_s(1, error)) == (7, True, 7)


class Asked:
    """What stores are asked before bodies begin, written down: the task that asks is the one that begins the body."""

    def __init__(self, monkeypatch):
        self.last, self.turn = ContextVar("asked last"), ContextVar("the turn, and was it waited for")
        self.pauses = []  # in the store from, until
        self.began = []  # and when asked last, and the turn
        take_turn, closed, pause_rate, doze = Limits.take_turn, Limits.closed, Limits.pause_rate, limits.doze

        async def hear_turn(store, *args):
            self.last.set(time.time() * 1000)
            got = await take_turn(store, *args)
            self.turn.set((got.at, False))
            return got

        async def hear_closed(store, key, turn=None, every_ms=0):
            self.last.set(time.time() * 1000)
            if turn is not None:
                self.turn.set((turn.at, True))
            return await closed(store, key, turn, every_ms)

        async def hear_doze(call, waits_for, due, *args):
            await doze(call, waits_for, due, *args)
            self.turn.set((due, True))

        async def hear_pause(store, *args):
            until = await pause_rate(store, *args)
            self.pauses.append((time.time() * 1000, until))
            return until

        monkeypatch.setattr(Limits, "take_turn", hear_turn)
        monkeypatch.setattr(Limits, "closed", hear_closed)
        monkeypatch.setattr(Limits, "pause_rate", hear_pause)
        monkeypatch.setattr(limits, "doze", hear_doze)

    def begin(self):
        """A body begins."""
        self.began.append((time.time() * 1000, self.last.get(), *self.turn.get()))

    def begun_in_a_pause(self):
        """Those that asked once the pause was written, and began in it nevertheless."""
        return [
            each for written, until in self.pauses for each in self.began
            if each[1] > written and each[0] < until - CLOCKS_MS
        ]  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    return Asked(monkeypatch)


def playing(script):
    """An agent `one` and an agent `several`, whose steps share a key and do what the script says; and what they did."""
    began, steps = [], iter(script)

    def act(name):
        began.append((name, time.time()))
        if (after := next(steps, None)) is not None:
            raise Refused(429, after)
        return name

    @holdfast.step(retry=Retry.model, rate=Rate("20/s", name="provider"))
    async def write(name: str) -> str:
        return act(name)

    @holdfast.step(retry=Retry.model, rate=Rate(name="provider"))
    async def read(name: str) -> str:
        return act(name)

    @holdfast.step(rate="20/s")
    async def free(name: str) -> str:
        return name

    @holdfast.agent
    async def several(name: str) -> list[str]:
        return list(await asyncio.gather(*[step(f"{name}{n}") for n, step in enumerate([write, read, write, write])]))

    @holdfast.agent
    async def other() -> str:
        return await free("other")

    return several, other, began


def test_a_refusal_holds_for_all_who_share_the_key(url):
    """Two workers and two steps: after a Retry-After nobody begins before its end, but those of another key; all end."""
    several, other, began = playing([3])

    async def main():
        async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
            hf = await stack.enter_async_context(holdfast.open(url))
            for _ in range(2):
                await stack.enter_async_context(
                    holdfast.open(url, agents=[several, other], settings=Settings(park_grace_s=0.0))
                )
            first = await hf.start(several, "a", id="a")
            async for event in first.events():
                if event.kind == "step.retrying":
                    break
            assert event.data["pauses"] == "provider"
            ((key, until),) = await hf.store.paused_rates()
            assert (key, until > time.time() * 1000) == ("rate:provider", True)
            late = await hf.start(several, "b", id="b")
            free = await hf.start(other)
            assert await free.result() == "other"
            assert [event async for event in free.events(follow=False) if event.kind == "step.held"] == []
            assert await first.result() == ["a0", "a1", "a2", "a3"]
            assert await late.result() == ["b0", "b1", "b2", "b3"]
            held = [event async for event in late.events(follow=False) if event.kind == "step.held"]
            return until, held

    until, held = asyncio.run(main())
    paused = [at for name, at in began[1:] if name.startswith("b") or name == began[0][0]]
    assert len(paused) == 5
    assert min(paused) * 1000 >= until - CLOCKS_MS
    assert {(event.data["rate"], event.data["paused"]) for event in held} == {("provider", True)}


async def test_turns_reserved_before_a_pause_are_put_off(url, asked):
    """Calls that have their turns already, half a second apart, begin after the pause that comes between."""
    refusals = iter([1])

    @holdfast.step(retry=2, rate=Rate(4, every="2s", name="provider"))
    async def call(number: int) -> int:
        asked.begin()
        if next(refusals, None):
            raise Refused(503, 1)
        return number

    @holdfast.agent
    async def calls() -> list[int]:
        return list(await asyncio.gather(*[call(number) for number in range(4)]))

    async with asyncio.timeout(30), holdfast.open(url, agents=[calls]) as hf:
        run = await hf.start(calls)
        assert await run.result() == [0, 1, 2, 3]
        events = [event async for event in run.events(follow=False)]
    assert len(asked.pauses) == 1
    assert asked.begun_in_a_pause() == []
    assert all(late[0] - early[0] >= 20 for early, late in pairwise(asked.began))
    held = Counter(event.key for event in events if event.kind == "step.held")
    assert len(held) == 4
    assert sum(held.values()) > 4  # those that had a turn before the pause took another one


def test_a_held_run_is_in_no_workers_memory():
    """It waits for the rate until the pause is over, parked; a crash in the pause changes nothing; the clock jumps there."""
    several, *_ = playing([90])

    async def test(hf):
        run = await hf.start(several, "a", id="r")
        await run.wait("waiting")
        info = await run.info()
        assert info.waits_for in ("retry", "rate")
        assert info.due_at is not None
        waits = hf.clock.now()  # whoever had its turn before the pause has begun
        await hf.crash()
        assert await hf.get("r").result() == ["a0", "a1", "a2", "a3"]
        events = await history(hf, "r")
        (refused,) = [event for event in events if event.kind == "step.retrying"]
        ended = [event for event in events if event.kind == "step.completed"]
        assert len(ended) == 4
        over = refused.at.timestamp() * 1000 + 89_000
        assert [event for event in ended if waits < event.data["began"] < over] == []
        assert [event for event in ended if event.data["began"] >= over] != []

    with_client(test, agents=[several])


@pytest.mark.slow
def test_after_a_pause_they_come_one_after_the_other():
    """A hundred ask a provider that takes ten and refuses the others: those have their turns one by one, not at once."""

    @holdfast.step(retry=Retry(4, first=0.1), rate=Rate(name="provider"))
    async def call(number: int) -> int:
        if number >= 10 and holdfast.this_step().attempt == 1:
            raise Refused(429, 5)
        return number

    @holdfast.agent
    async def calls() -> list[int]:
        return list(await asyncio.gather(*[call(number) for number in range(100)]))

    async def test(hf):
        assert await hf.run(calls, id="r") == list(range(100))
        return await history(hf, "r")

    events = with_client(test, agents=[calls])
    assert len([event for event in events if event.kind == "step.retrying"]) == 90
    turns = {event.key: event.data["at"] for event in events if event.kind == "step.held"}
    assert len(turns) >= 50  # whoever finds that its turn is now is not held: on a busy machine that is often
    assert all(late - early >= 49 for early, late in pairwise(sorted(turns.values())))


@pytest.mark.slow
async def test_a_crash_anywhere_keeps_the_pause():
    """With a crash before and after every write, also that of the pause: once it is written nobody begins inside it."""

    @holdfast.step(retry=Retry.model, rate=Rate("50/s", name="provider"))
    async def call(name: str) -> str:
        if name == "a" and holdfast.this_step().attempt == 1:
            raise Refused(429, 30)
        return name

    @holdfast.agent
    async def both() -> list[str]:
        return list(await asyncio.gather(call("a"), call("b")))

    lives = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[both]):
        lives += 1
        assert await hf.run(both, id="r") == ["a", "b"]
        events = await history(hf, "r")
        (refused,) = [event for event in events if event.kind == "step.retrying"]
        written = refused.at.timestamp() * 1000
        assert refused.data["pauses"] == "provider"
        ends = [event.data["began"] for event in events if event.kind == "step.completed"]
        # A call that had its turn when the pause was written begins, as soon as a busy machine lets it.
        assert [at for at in ends if written + 5_000 < at < written + 29_000] == []
    returned = lives
    assert returned > 10


async def test_a_pause_counts_for_agents_of_the_same_rate(url):
    """Runs of an agent that names the key begin after the pause too."""

    @holdfast.step(retry=2, rate=Rate(name="provider"))
    async def call(ok: bool) -> bool:
        if not ok and holdfast.this_step().attempt == 1:
            raise Refused(429, 3)
        return ok

    @holdfast.agent
    async def asks() -> bool:
        return await call(False)

    @holdfast.agent(rate=Rate(name="provider"))
    async def begins() -> float:
        return time.time()

    async with asyncio.timeout(30), holdfast.open(url, agents=[asks, begins]) as hf:
        run = await hf.start(asks)
        async for event in run.events():
            if event.kind == "step.retrying":
                break
        ((_, until),) = await hf.store.paused_rates()
        late = await hf.start(begins)
        async with asyncio.timeout(20):
            while (info := await late.info()).waits_for != "rate":
                assert info.status == "ready"
                await asyncio.sleep(0.005)
        began = await late.result()
        assert await run.result() is False
        returned = began * 1000 >= until - CLOCKS_MS
    assert returned


@pytest.mark.slow
async def test_at_random_nobody_begins_in_a_pause(url, asked):
    """Sixty calls in two workers, one in four refused for a random while: who asks once a pause is written begins after it.

    And who waited for its turn asks again when it has come.
    """
    chance = random.Random(5)

    @holdfast.step(retry=Retry(20, first=0.01), rate=Rate("200/s", name="provider"))
    async def call(number: int) -> int:
        asked.begin()
        if chance.random() < 0.25:
            raise Refused(429, chance.choice([0.05, 0.15, 0.4]))
        return number

    @holdfast.agent
    async def calls(first: int) -> list[int]:
        return [await call(first), *await asyncio.gather(*[call(first + n) for n in range(1, 10)])]

    async with asyncio.timeout(40), contextlib.AsyncExitStack() as stack:
        hf = await stack.enter_async_context(holdfast.open(url))
        runs = [await hf.start(calls, first) for first in range(0, 60, 10)]
        for _ in range(2):
            await stack.enter_async_context(holdfast.open(url, agents=[calls], settings=Settings(park_grace_s=0.01)))
        results = [await hf.get(run.id).result() for run in runs]
        assert sorted(number for numbers in results for number in numbers) == list(range(60))
    assert len(asked.pauses) > 5
    assert asked.begun_in_a_pause() == []
    late = [(last, at) for _, last, at, waited in asked.began if waited]
    assert len(late) > 5
    assert [each for each in late if each[0] < each[1] - CLOCKS_MS] == []


async def test_tokens_that_were_spent_put_off_later_turns(url):
    """A token a millisecond: five calls of three hundred, in two workers, take a second at least, also if one fails."""
    began = []

    @holdfast.step(retry=Retry(2, first=0), rate=Rate(tokens="1000/s", name="provider"))
    async def call(number: int) -> int:
        began.append(time.time())
        holdfast.spend(0.01, input_tokens=200, output_tokens=100)
        if number == 2 and holdfast.this_step().attempt == 1:
            raise ConnectionResetError
        return number

    @holdfast.agent
    async def calls(numbers: list[int]) -> list[int]:
        return list(await asyncio.gather(*[call(number) for number in numbers]))

    async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
        hf = await stack.enter_async_context(holdfast.open(url, agents=[calls]))
        await stack.enter_async_context(holdfast.open(url, agents=[calls]))
        assert await hf.run(calls, [1]) == [1]
        runs = [await hf.start(calls, [2, 3]), await hf.start(calls, [4])]
        assert [await run.result() for run in runs] == [[2, 3], [4]]
        (closed,) = [await hf.store.closed("rate:provider")]
        owed = closed.owed
    assert len(began) == 5
    assert began[-1] - began[0] >= 4 * 0.3 - 0.25  # a turn may be a little early, for a later one pays
    assert owed >= (began[0] + 5 * 0.3) * 1000 - 250  # counted from the first turn, which was a little earlier
