"""The idempotency key: one per call, for ever, in every process. Resources: shared by steps, recorded by nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from tests.agents.runs import Gate, finish

import holdfast
import holdfast.testing
from holdfast import Retry

KEYS: list[str] = []
SOURCE = str(Path(holdfast.__file__).parents[1])


@pytest.fixture(autouse=True)
def fresh():
    KEYS.clear()
    LIFE.clear()


@holdfast.step(retry=Retry(3, first="1h", max="1h"))
async def send(n: int) -> str:
    KEYS.append(holdfast.idempotency_key())
    if KEYS.count(KEYS[-1]) < 3:
        raise ConnectionError("again")
    return KEYS[-1]


@holdfast.agent
async def sends_one() -> str:
    return await send(1)


async def test_every_attempt_has_the_same_key():
    """Across attempts, parks and crashes."""
    async with holdfast.testing.open(agents=[sends_one]) as hf:
        run = await hf.start(sends_one)
        for _ in range(2):
            await run.wait("waiting")
            await hf.crash()
            await hf.advance("1h")
        assert await run.result() == KEYS[0]
        assert len(KEYS) == 3
        assert len(set(KEYS)) == 1
        assert KEYS[0].startswith("hf_")
        assert len(KEYS[0]) == 35


SCRIPT = """
    import asyncio, os, sys
    import holdfast

    @holdfast.step
    async def send(n: int) -> str:
        with open(sys.argv[2], "a") as file:
            print(holdfast.idempotency_key(), flush=True, file=file)
        if sys.argv[3] == "die":
            os._exit(9)
        return holdfast.idempotency_key()

    @holdfast.agent
    async def sends(n: int) -> str:
        await asyncio.sleep(0)
        return await send(n)

    async def main():
        async with holdfast.open(f"sqlite:{sys.argv[1]}", agents=[sends]) as hf:
            print(await hf.run(sends, 1, id="r"))

    asyncio.run(main())
"""


@pytest.mark.slow
def test_every_process_has_the_same_key(tmp_path):
    """A process dies in mid-body, twice; the third one goes on, and all three saw one key."""
    script, log = tmp_path / "sends.py", tmp_path / "keys"
    script.write_text(textwrap.dedent(SCRIPT))
    codes, out = [], ""
    for how in ("die", "die", "live"):
        command = [sys.executable, str(script), str(tmp_path / "a.db"), str(log), how]
        done = subprocess.run(
            command, env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, timeout=30, check=False
        )
        codes.append(done.returncode)
        out = done.stdout.strip()
    assert codes == [9, 9, 0], done.stderr
    assert log.read_text().split() == [out] * 3


@holdfast.step
async def key_of(n: int) -> str:
    return holdfast.idempotency_key()


@holdfast.step(name="other")
async def other_key_of(n: int) -> str:
    return holdfast.idempotency_key()


@holdfast.agent
async def child(n: int) -> str:
    return await key_of(n)


@holdfast.agent
async def many() -> list[str]:
    state = await holdfast.restore({"keys": [], "round": 0})
    while state["round"] < 3:
        keys = [await key_of(1), await key_of(1), await other_key_of(1)]
        keys += await asyncio.gather(key_of(1), key_of(1), key_of(2))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_inner()) for _ in range(2)]
        keys += [key for task in tasks for key in task.result()]
        with holdfast.scope("named"):
            keys.append(await key_of(1))
        keys += [await child(1), await child(1)]
        state = await holdfast.checkpoint({"keys": state["keys"] + keys, "round": state["round"] + 1})
    return state["keys"]


async def _inner() -> list[str]:
    return [await key_of(1), await key_of(1)]


async def test_every_other_call_has_another_key():
    """Other calls with the same step and arguments, other tasks, scopes, children, eras and runs: all differ."""
    async with holdfast.testing.open(agents=[many, child]) as hf:
        runs = [await hf.start(many, id=f"r{n}") for n in range(3)]
        keys = [key for run in runs for key in await run.result()]
        assert len(keys) == len(set(keys)) == 3 * 3 * 13


async def test_a_run_of_the_same_name_in_another_store_has_other_keys():
    """Keys come from the run's random uid, not from its id: a deleted run's name can be used again."""
    async with holdfast.testing.open(agents=[child]) as hf:
        first = await hf.run(child, 1, id="r")
        await hf.get("r").delete()
        assert await hf.run(child, 1, id="r") != first


# Resources

LIFE: list[str] = []
FAILURES: list[Exception] = []


@holdfast.resource
async def base():
    """What another resource needs."""
    LIFE.append("open base")
    yield "base"
    LIFE.append("close base")


@holdfast.resource
async def client():
    """A client that notes its life."""
    under = await base()
    LIFE.append(f"open client on {under}")
    await asyncio.sleep(0)
    if FAILURES:
        raise FAILURES.pop(0)
    async with asyncio.TaskGroup():  # must be left by the task that entered it
        yield Counter()
    LIFE.append("close client")


@holdfast.step(retry=Retry(2, first="1ms"))
async def use(n: int) -> int:
    counter = await client()
    counter[n] += 1
    return id(counter)


@holdfast.agent
async def uses() -> int:
    ids = await asyncio.gather(use(1), use(2), use(3))
    await holdfast.sleep("1h")
    return len({*ids, await use(4)})


@holdfast.agent
async def uses_nothing() -> None: ...


async def test_a_resource_lives_as_long_as_its_worker():
    """Opened once, at its first use, for all runs; closed at the stop, in the reverse order of opening."""
    async with holdfast.testing.open(agents=[uses, uses_nothing]) as hf:
        await hf.run(uses_nothing)
        assert LIFE == []
        assert [await hf.run(uses) for _ in range(3)] == [1, 1, 1]
        assert LIFE == ["open base", "open client on base"]
    assert LIFE[2:] == ["close client", "close base"]


def test_a_resource_that_fails_to_open_is_tried_again():
    """All who waited for it fail with its error, and the next use opens it anew."""
    FAILURES[:] = [ConnectionError("no server")]
    assert finish(uses) == 1  # each step had a second attempt
    assert LIFE == ["open base", "open client on base", "open client on base", "close client", "close base"]


@holdfast.step(timeout="20ms")
async def impatient() -> None:
    await slow_to_open()


@holdfast.step
async def patient() -> str:
    return await slow_to_open()


@holdfast.resource
async def slow_to_open():
    """Opens when the test lets it."""
    LIFE.append("opening")
    await GATE[0]()
    yield "opened"
    LIFE.append("closed")


GATE: list[Gate] = []


@holdfast.agent
async def opens_slowly() -> str:
    waiting = asyncio.create_task(impatient())
    other = asyncio.create_task(patient())
    with pytest.raises(TimeoutError):
        await waiting
    return await other


async def test_a_step_that_gives_up_does_not_stop_the_opening():
    """The first user times out while the resource opens; the second, who waits for the same one, gets it."""
    GATE[:] = [Gate()]

    async with holdfast.testing.open(agents=[opens_slowly]) as hf:
        run = await hf.start(opens_slowly, id="r")
        async for event in run.events():
            if event.kind == "step.failed":
                GATE[0].open.set()
        assert await run.result() == "opened"
    assert LIFE == ["opening", "closed"]


async def test_a_worker_that_stops_while_a_resource_opens_does_not_wait_for_it(tmp_path):
    """The opening is cancelled: nothing hangs, and nothing is left open."""
    GATE[:] = [Gate()]

    settings = holdfast.Settings(stop_grace_s=0.0)
    async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=[opens_slowly], settings=settings) as hf:
        await hf.start(opens_slowly, id="r")
        await asyncio.wait_for(GATE[0].reached.wait(), 10)
    assert LIFE == ["opening"]


@pytest.mark.parametrize("how", ["function", "resource"])
def test_a_resource_is_replaced_in_tests(how):
    """`replace=` takes another generator, or another resource, and the real one is never opened."""

    async def fake():
        LIFE.append("open fake")
        yield Counter()
        LIFE.append("close fake")

    assert finish(uses, replace={client: fake if how == "function" else holdfast.resource(fake)}) == 1
    assert LIFE == ["open fake", "close fake"]


@holdfast.resource
async def connection():
    """A connection with a task of its own, which may break."""
    LIFE.append("connect")
    broken = asyncio.Event()

    async def listen() -> None:
        await broken.wait()
        raise ConnectionError("the other side hung up")

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        yield broken


@holdfast.step
async def use_connection(breaks: bool) -> None:
    broken = await connection()
    if breaks:
        broken.set()


@holdfast.agent
async def reconnects() -> None:
    for _ in range(3):
        await use_connection(True)
        await holdfast.sleep("1s")


def test_a_resource_that_breaks_is_opened_anew(caplog):
    """Its own task failed: that is reported, and the next step gets a fresh one."""
    finish(reconnects)
    assert LIFE == ["connect"] * 3
    assert "resource 'connection' broke" in caplog.text


@holdfast.resource
async def yields_nothing():
    """A generator that gives nothing."""
    if LIFE:
        yield


@holdfast.resource
async def yields_twice():
    """A generator that does not end."""
    yield 1
    yield 2


@holdfast.step
async def use_wrong(name: str) -> int:
    return await {"nothing": yields_nothing, "twice": yields_twice}[name]()


@holdfast.agent
async def uses_wrong(name: str) -> str:
    try:
        return str(await use_wrong(name))
    except holdfast.StepFailed as failure:
        return failure.message


def test_a_resource_yields_once(caplog):
    """One that yields nothing fails the step with the reason; one that yields again is reported when it is closed."""
    assert finish(uses_wrong, "nothing") == "resource 'yields_nothing' ended without yielding anything"
    assert finish(uses_wrong, "twice") == "1"
    assert "resource 'yields_twice' yielded more than once" in caplog.text


async def test_workers_share_nothing(tmp_path):
    """Two clients in one process have each their own resource, whatever their runs are called."""
    urls = [f"sqlite:{tmp_path / name}.db" for name in "ab"]
    async with holdfast.open(urls[0], agents=[uses]) as one, holdfast.open(urls[1], agents=[uses]) as two:
        runs = [await hf.start(uses, id="same") for hf in (one, two)]
        await asyncio.gather(*[run.wait("waiting") for run in runs])
        returned = [(await run.info()).steps for run in runs]
    assert returned == [3, 3]
    assert LIFE.count("open base") == LIFE.count("close base") == 2
