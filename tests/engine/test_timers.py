"""`sleep`, `timeout`, `note` and the facts: time that outlives the process, and values that are the same on replay."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.engine.lives import counted, history

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.step
async def hang() -> None:
    await asyncio.Event().wait()


@holdfast.agent
async def sleeps(duration: str) -> None:
    await holdfast.sleep(duration)


@holdfast.agent
async def sleeps_until(moment: datetime) -> None:
    await holdfast.sleep(until=moment)


def run_once(agent, *args, **options):
    """One run to its end: its result, and its history."""

    async def main():
        async with holdfast.testing.open(agents=[agent], **options) as hf:
            run = await hf.start(agent, *args, id="r")
            return await run.result(timeout=20), await history(run)

    return asyncio.run(main())


def timers(events):
    (was_set,) = [event for event in events if event.kind == "timer.set"]
    (fired,) = [event for event in events if event.kind == "timer.fired"]
    return was_set, fired


@pytest.mark.parametrize("park", [True, False])
def test_sleep_never_ends_early(park):
    """A sleep is over no earlier than its duration after it was set, parked or not."""
    _, events = run_once(sleeps, "90m", park=park)
    was_set, fired = timers(events)
    assert fired.at - was_set.at >= timedelta(minutes=90)


async def test_sleep_until_a_moment_ends_at_it():
    """A sleep until a moment is over at that moment or later, and one in the past is over at once."""
    async with holdfast.testing.open(agents=[sleeps_until]) as hf:
        for name, offset in (("future", timedelta(days=2)), ("past", -timedelta(days=2))):
            now = datetime.fromtimestamp(hf.clock.now() / 1000, UTC)
            run = await hf.start(sleeps_until, now + offset, id=name)
            await run.result(timeout=20)
            _, fired = timers(await history(run))
            assert fired.at >= now + offset - timedelta(milliseconds=1)
            assert fired.at - now < offset + timedelta(minutes=1) if offset > timedelta() else True


async def test_sleep_keeps_its_due_time_across_a_crash():
    """After a crash a sleep ends when it would have ended without one."""
    async with holdfast.testing.open(agents=[sleeps]) as hf:
        run = await hf.start(sleeps, "10h", id="r")
        before = (await run.wait("waiting")).due_at
        await hf.advance("6h")
        await hf.crash()
        assert (await run.wait("waiting")).due_at == before
        await hf.advance("3h")
        assert (await run.info()).status == "waiting"
        await hf.advance("61m")
        assert (await run.wait()).status == "completed"
        assert await counted(run, "timer.set") == 1


async def test_sleep_that_fell_due_while_nobody_ran_ends_at_once():
    """A sleep whose time passed while no process was there is over when one comes."""
    async with holdfast.testing.open(agents=[sleeps], park=False) as hf:
        run = await hf.start(sleeps, "1h", id="r")
        while not await counted(run, "timer.set"):
            await asyncio.sleep(0.001)
        hf.clock._ahead_ms += 7_200_000
        await hf.crash()
        await run.result(timeout=20)


@pytest.mark.parametrize("bad", [("",), (-1,), ("soon",), (None,)])
def test_sleep_refuses_what_is_no_duration(bad):
    """A duration that is none is an error at the call that names it."""

    @holdfast.agent
    async def agent() -> str:
        try:
            await holdfast.sleep(*bad)
        except holdfast.BadArguments as error:
            return str(error)
        return ""

    result, events = run_once(agent)
    assert result
    assert not [event for event in events if event.kind.startswith("timer")]


@pytest.mark.parametrize("park", [True, False])
async def test_timeout_fires(park):
    """A block that takes longer than its timeout ends with TimeoutError, and the step in it is cancelled."""

    @holdfast.agent
    async def agent() -> str:
        try:
            async with holdfast.timeout("10m") as limit:
                await hang()
        except TimeoutError:
            return f"late {limit.expired}"
        return "in time"

    async with holdfast.testing.open(agents=[agent], park=park) as hf:
        run = await hf.start(agent, id="r")
        while not (hf.bodies[hang] and await counted(run, "timer.set")):
            await asyncio.sleep(0.001)
        await hf.advance("9m")
        assert (await run.info()).status == "running"
        await hf.advance("2m")
        assert await run.result(timeout=20) == "late True"
        assert [event.key for event in await history(run, "step.cancelled")] == ["hang#0"]


async def test_timeout_fires_after_a_restart():
    """A timeout counts from where it was entered, also when the process died in between."""

    @holdfast.agent
    async def agent() -> str:
        try:
            async with holdfast.timeout("10h"):
                await holdfast.receive("never")
        except TimeoutError:
            return await work("late")
        return "in time"

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.wait("waiting")
        await hf.advance("9h")
        await hf.crash()
        await run.wait("waiting")
        await hf.advance("59m")
        assert (await run.info()).status == "waiting"
        await hf.advance("2m")
        assert await run.result(timeout=20) == "late"


@pytest.mark.slow
async def test_timeouts_nest():
    """Of nested timeouts the one that fires ends its own block only."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        try:
            async with holdfast.timeout("10h"):
                try:
                    async with holdfast.timeout("1h"):
                        await holdfast.sleep("5h")
                except TimeoutError:
                    out.append("inner")
                await holdfast.sleep("1h")
                out.append("between")
                try:
                    async with holdfast.timeout("20h"):
                        await holdfast.sleep("15h")
                except TimeoutError:
                    out.append("never")
        except TimeoutError:
            out.append("outer")
        return [*out, await work("after")]

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=20) == ["inner", "between", "outer", "after"]


def test_timeout_leaves_another_cancellation_alone():
    """A task that is cancelled from outside while its timeout is open ends cancelled, not timed out."""

    @holdfast.agent
    async def agent() -> list[str]:
        async def limited() -> None:
            async with holdfast.timeout("1h"):
                await holdfast.receive("never")

        task = asyncio.create_task(limited())
        await work("first")
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        return [type(end).__name__, await work("second")]

    assert run_once(agent)[0] == ["CancelledError", "second"]


@pytest.mark.slow
async def test_timeout_in_the_handler_of_its_own_cancellation():
    """Code that a timeout cancelled may use another timeout while it unwinds."""

    @holdfast.agent
    async def agent() -> list[str]:
        out = []
        try:
            async with holdfast.timeout("1h"):
                try:
                    await holdfast.sleep("2h")
                finally:
                    try:
                        async with holdfast.timeout("1h"):
                            await holdfast.sleep("3h")
                    except TimeoutError:
                        out.append("inner")
        except TimeoutError:
            out.append("outer")
        return out

    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=20) == ["inner", "outer"]


def test_timeout_that_does_not_fire_changes_nothing():
    """A block that ends in time leaves no cancellation behind, nothing to wait for, and never fires later."""

    @holdfast.agent
    async def agent() -> list[str]:
        async with holdfast.timeout("1h") as limit:
            await work("inside")
        await holdfast.sleep("3h")
        task = asyncio.current_task()
        assert task is not None
        return [str(limit.expired), str(task.cancelling())]

    result, events = run_once(agent)
    assert result == ["False", "0"]
    assert [event.key for event in events if event.kind == "timer.fired"] == [":sleep#0"]


def test_timeout_can_be_entered_once():
    """A timeout object entered a second time is an error."""

    @holdfast.agent
    async def agent() -> str:
        limit = holdfast.timeout("1h")
        async with limit:
            pass
        try:
            async with limit:
                pass
        except holdfast.BadArguments as error:
            return str(error)
        return ""

    assert "once" in run_once(agent)[0]


def test_note_is_a_line_in_the_history():
    """A note is written once, with its text and data, however often the run is resumed."""

    @holdfast.agent
    async def agent() -> None:
        await holdfast.note("half way", done=3)
        await holdfast.sleep("1h")

    _, events = run_once(agent)
    (note,) = [event for event in events if event.kind == "note"]
    assert note.data["text"] == "half way"


def test_facts_are_the_same_on_replay():
    """now, uuid4 and rng give each life the same values at the same line, each call another one."""
    seen: list[list[object]] = []

    @holdfast.agent
    async def agent() -> list[str]:
        values: list[object] = []
        seen.append(values)
        for n in range(4):
            values += [holdfast.now(), holdfast.uuid4(), holdfast.rng().random(), holdfast.rng("dice").random()]
            if n % 2:
                await holdfast.sleep("1h")
            else:
                await asyncio.gather(work("a"), work("b"))
        values.append(holdfast.now())
        return [str(value) for value in values]

    result, _ = run_once(agent)
    assert len(seen) == 3
    for earlier, later in zip(seen, seen[1:], strict=False):
        assert later[: len(earlier)] == earlier
    last = seen[-1]
    assert result == [str(value) for value in last]
    times = [value for value in last if isinstance(value, datetime)]
    assert times == sorted(times)
    assert times[-1] - times[0] >= timedelta(hours=2)
    others = [value for value in last if not isinstance(value, datetime)]
    assert len(others) == len(set(others)) == 12


async def test_random_values_differ_between_tasks_eras_and_runs():
    """uuid4 never gives the same value twice: not in two tasks, not after a checkpoint, not in two runs."""

    @holdfast.agent
    async def agent() -> list[str]:
        state = await holdfast.restore([""])
        if len(state) > 1:
            return [*state, str(holdfast.uuid4())]

        async def inner() -> str:
            return str(holdfast.uuid4())

        with holdfast.scope("pinned"):
            pinned = str(holdfast.uuid4())
        found = [str(holdfast.uuid4()), pinned, *await asyncio.gather(inner(), inner())]
        state = await holdfast.checkpoint([*state, *found])
        return [*state, str(holdfast.uuid4())]

    async with holdfast.testing.open(agents=[agent]) as hf:
        results = [await (await hf.start(agent, id=name)).result(timeout=20) for name in ("a", "b")]
    values = [value for result in results for value in result[1:]]
    assert len(values) == len(set(values)) == 10


async def test_this_run_and_this_step_tell_where_code_is():
    """this_run tells id, agent, labels, parent and root in agents and steps; this_step the key and the attempt."""

    @holdfast.step(retry=holdfast.Retry(2, first="1s"))
    async def look() -> list[str]:
        run, step = holdfast.this_run(), holdfast.this_step()
        if step.attempt == 1:
            raise ValueError
        assert step.idempotency_key == holdfast.idempotency_key()
        return [run.id, run.agent, str(step.attempt), step.key]

    @holdfast.agent
    async def inner() -> list[str]:
        run = holdfast.this_run()
        return [run.parent or "", run.root, run.labels["team"], *await look()]

    @holdfast.agent
    async def outer() -> list[str]:
        run = holdfast.this_run()
        assert (run.id, run.agent, run.parent, run.root) == ("r", "outer", None, "r")
        return await inner()

    async with holdfast.testing.open(agents=[outer]) as hf:
        run = await hf.start(outer, id="r", labels={"team": "blue"})
        parent, root, team, child, agent, attempt, key = await run.result(timeout=20)
    assert (parent, root, team, agent, attempt, key) == ("r", "r", "blue", "inner", "2", "look#0")
    assert child.startswith("r.inner-")


@pytest.mark.parametrize(
    "verb",
    [
        "now",
        "uuid4",
        "rng",
        "this_run",
        "this_step",
        "idempotency_key",
        "sleep",
        "receive",
        "patched",
        "restore",
        "scope",
    ],
)
def test_verbs_outside_a_run_say_so(verb):
    """Outside a run every verb but note raises NotInRun, with what to do."""
    arguments = {"sleep": ["1s"], "receive": ["topic"], "patched": ["id"], "restore": [{}], "scope": ["x"]}.get(
        verb, []
    )
    with pytest.raises(holdfast.NotInRun):
        getattr(holdfast, verb)(*arguments)
