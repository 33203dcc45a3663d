"""Code that is tried and does not give its loop back, or wants to end the process: each run has a finding, and the others go on."""

import asyncio
import contextlib
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.rehearsal.agents import look, pay, shop

import holdfast
import holdfast.testing
from holdfast.rehearsal import quarantine

HERE = "tests/rehearsal/test_quarantine.py"


def version(between):
    """The code of `shop`, with something between its steps."""

    @holdfast.agent(name="shop")
    async def code(item: str) -> str:
        order = await look(item)
        between()
        receipt = await pay(order)
        answer = await holdfast.approve("Send it?", show=receipt)
        return f"{receipt}, {'sent' if answer else 'kept'}"

    return code


@holdfast.agent
async def other(item: str) -> str:
    order = await look(item)
    return str(await holdfast.receive(order.item, str))


class Keeping:
    """Code that keeps its loop. It ends with its test, or every later one would share the process with it."""

    over = threading.Event()


@pytest.fixture(autouse=True)
def end_of_keeping(monkeypatch):
    monkeypatch.setattr(quarantine, "_STOP_S", 0.2)
    Keeping.over.clear()
    yield
    Keeping.over.set()


def spins():
    while True:
        time.sleep(0.001)


def swallows():
    while not Keeping.over.is_set():
        with contextlib.suppress(BaseException):
            time.sleep(0.001)


def blocks():
    Keeping.over.wait()


def exits():
    sys.exit(0)


def leaves():
    os._exit(0)


def interrupts():
    raise KeyboardInterrupt


def line_of(function, text):
    """The place of a line of a function here."""
    first = function.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()
    return f"{HERE}:{next(n for n, line in enumerate(lines, 1) if n >= first and text in line)}"


@contextlib.asynccontextmanager
async def recorded(*agents):
    """A store in which runs of two agents wait."""
    async with holdfast.testing.open(agents=[shop, other]) as hf:
        for agent in agents:
            run = await hf.start(agent, "kettle", id=f"{agent.name}-{len(await hf.runs())}")
            await run.wait("waiting")
        yield hf


@pytest.mark.parametrize("between", [spins, swallows, blocks])
async def test_code_that_keeps_its_loop_is_told_with_its_line_and_the_other_runs_go_on(between):
    async with recorded(other, shop) as hf:
        checked = await hf.check([version(between), other], timeout=0.3)
        assert [found.verdict for found in checked.replays] == ["unsure", "fits"]
        kept = checked.replays[0]
        assert "has kept the event loop for 0.3 s" in kept.reason
        assert kept.line.startswith(HERE)
        assert between is not blocks or kept.line == line_of(blocks, "wait()")


@pytest.mark.parametrize(
    ("between", "told"), [(exits, "the agent raised SystemExit: 0"), (leaves, "SystemExit: os._exit(0)")]
)
async def test_code_that_ends_the_process_ends_itself(between, told):
    async with recorded(other, shop) as hf:
        checked = await hf.check([version(between), other])
        assert [found.verdict for found in checked.replays] == ["diverges", "fits"]
        assert told in checked.replays[0].present
        assert checked.replays[0].line.startswith(HERE)


async def test_a_thread_of_the_loop_ends_only_the_code_too():
    @holdfast.agent(name="shop")
    async def code(item: str) -> str:
        await look(item)
        await asyncio.to_thread(leaves)
        return "never"

    async with recorded(other, shop) as hf:
        checked = await hf.check([code, other])
        assert [found.verdict for found in checked.replays] == ["diverges", "fits"]
        assert "SystemExit: os._exit(0)" in checked.replays[0].present


async def test_processes_that_the_code_forks_end_as_ever():
    ended = []

    def forks():
        child = os.fork()
        if child == 0:
            os._exit(3)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        worker = multiprocessing.get_context("fork").Process(target=int)
        worker.start()
        worker.join()
        ended.append(worker.exitcode)

    async with recorded(shop) as hf:
        assert (await hf.check([version(forks)])).fits
    assert ended == [3, 0]


async def stops_loop():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


async def cancels_all():
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("rude", [stops_loop, cancels_all])
async def test_code_that_tampers_with_its_loop_cancels_nobody_else(rude):
    @holdfast.agent(name="shop")
    async def code(item: str) -> str:
        await look(item)
        await rude()
        return "never"

    async with recorded(other, shop) as hf:
        checked = await hf.check([code, other])
        (found,) = await holdfast.testing.rehearse(hf, ["shop-1"], [code])
    assert [each.verdict for each in checked.replays] == ["unsure", "fits"]
    for told in (checked.replays[0].reason, found.stopped):
        assert "has stopped its event loop, or cancelled tasks" in told


async def test_code_that_interrupts_ends_its_own_loop():
    async with recorded(other, shop) as hf:
        checked = await hf.check([version(interrupts), other])
        assert [found.verdict for found in checked.replays] == ["unsure", "fits"]
        assert "KeyboardInterrupt" in checked.replays[0].reason


async def test_a_rehearsal_of_code_that_keeps_its_loop_is_told_as_far_as_it_came():
    async with recorded(shop, other) as hf:
        first, last = await holdfast.testing.rehearse(hf, ["shop-0", "other-1"], [version(blocks), other], timeout=1)
        assert "has kept the event loop for 1 s at " + HERE in first.stopped
        assert [pair.key for pair in first.difference.pairs if pair.one and pair.other] == ["look#0"]
        assert first.difference.parted.key == "pay#0"
        assert (last.stopped, last.difference.same) == ("", True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_replay_that_is_given_up_leaves_no_thread_that_works(monkeypatch):
    """What stops it may hit the thread while it forgets an object: there nobody can raise it, so it is raised again."""
    monkeypatch.setattr("holdfast.rehearsal.replay._CLOSE_S", 0.2)
    async with recorded(shop) as hf:
        task = asyncio.create_task(hf.replay("shop-0", [version(spins)]))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(20):
            while any(frame.f_code is spins.__code__ for frame in sys._current_frames().values()):
                await asyncio.sleep(0.01)


async def test_a_waiting_run_that_the_code_would_fail_is_a_finding():
    async with recorded(shop, other) as hf:

        @holdfast.agent(name="other")
        async def fails(item: str) -> str:
            await look(item)
            raise LookupError("gone")

        @holdfast.agent(name="other")
        async def returns(item: str) -> str:
            return (await look(item)).item

        (failing,) = (await hf.check([fails, shop])).found
        assert (failing.verdict, failing.present) == ("differs", "the code fails with LookupError: gone")
        assert failing.line == line_of(test_a_waiting_run_that_the_code_would_fail_is_a_finding, "raise LookupError")
        assert (await hf.check([returns, shop])).fits
        assert (await hf.replay("other-1", [returns])).verdict == "differs"
