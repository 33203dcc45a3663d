"""Waits that nothing records: reported with task and line, in the log and the history, and resumed right all the same."""

import asyncio
import concurrent.futures
import logging
import socket
import threading
import time

import pytest
from tests.engine.lives import counted, history

import holdfast
import holdfast.testing
from holdfast.engine import execute, gate, parking


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.step
async def hang() -> None:
    await asyncio.Event().wait()


async def in_thread() -> str:
    return await asyncio.to_thread(lambda: time.sleep(0.02) or "thread")


async def in_executor() -> str:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, lambda: "executor")


async def on_socket() -> str:
    mine, other = socket.socketpair()
    with mine, other:
        mine.setblocking(False)
        other.sendall(b"socket")
        return (await asyncio.get_running_loop().sock_recv(mine, 100)).decode()


async def on_stream() -> str:
    server = await asyncio.start_server(lambda _, writer: (writer.write(b"stream"), writer.close()), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        text = await reader.read()
        writer.close()
        await writer.wait_closed()
        return text.decode()


async def in_process() -> str:
    process = await asyncio.create_subprocess_exec("echo", "process", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode().strip()


async def of_another_loop() -> str:
    future: concurrent.futures.Future[str] = concurrent.futures.Future()
    threading.Timer(0.05, future.set_result, ["another loop"]).start()
    return await asyncio.wrap_future(future)


FOREIGN = [in_thread, in_executor, on_socket, on_stream, in_process, of_another_loop]


@pytest.mark.parametrize("wait", FOREIGN)
@pytest.mark.parametrize("first", [True, False])
def test_a_foreign_wait_is_reported_and_resumed(caplog, wait, first):
    """Raw I/O in a task is told with its path and line, once in the history, and done again in each life."""
    lives = []

    async def reader() -> str:
        return await wait()

    @holdfast.agent
    async def agent() -> list[str]:
        lives.append(1)
        out = [] if first else [await work("before")]
        out.append(await asyncio.create_task(reader()))
        out.append(await work("between"))
        await holdfast.sleep("1h")
        out.append(await reader())
        return [*out, await work("after")]

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            result = await run.result(timeout=20)
            assert hf.bodies[work] == 2 if first else 3
            return result, await history(run, "foreign")

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        result, events = asyncio.run(main())
    text = wait.__name__.split("_", 1)[1].replace("_", " ")
    assert [part for part in result if part == text] == [text] * 2
    assert len(lives) == 2
    assert {"reader#0", "root"} <= {event.data["task"] for event in events}
    assert len({(event.data["task"], event.data["line"]) for event in events}) == len(events)
    assert all("test_unrecorded.py:" in event.data["line"] for event in events)
    assert any(f"in {wait.__name__}" in event.data["line"] for event in events)
    told = [record.getMessage() for record in caplog.records]
    assert any("'reader#0'" in line and "test_unrecorded.py:" in line and "Put it into a step" in line for line in told)


async def test_a_slow_foreign_wait_does_not_count_as_a_divergence(monkeypatch):
    """A replay waits for raw I/O that takes longer than a divergence would be given, once it is known to do such things."""
    monkeypatch.setattr(execute, "STALL_GRACE_S", 0.01)

    @holdfast.agent
    async def agent() -> list[str]:
        out = [await asyncio.to_thread(lambda: time.sleep(0.1) or "slow")]
        await holdfast.sleep("1h")
        out.append(await of_another_loop())
        return [*out, await work("after"), await holdfast.receive("go", str)]

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.wait("waiting")
        while await counted(run, "step.completed") < 1:
            await hf.advance("1h")
        await hf.crash()
        await run.send("go", "on")
        assert await run.result(timeout=20) == ["slow", "another loop", "after", "on"]


async def test_a_run_is_not_parked_while_a_foreign_wait_is_outstanding():
    """A run that waits for a thread and for a message stays in memory: parked, the thread's result would never come."""

    @holdfast.agent
    async def agent() -> str:
        thread = asyncio.create_task(asyncio.to_thread(lambda: time.sleep(0.1) or "thread"))
        message = asyncio.create_task(holdfast.receive("never", str))
        done, pending = await asyncio.wait({thread, message}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return done.pop().result()

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=5) == "thread"


def test_a_stalled_run_is_reported(caplog, monkeypatch):
    """A run that waits for an event nobody sets is told with task and line."""
    monkeypatch.setattr(parking, "_STALL_NOTICE_S", 0.02)

    @holdfast.agent
    async def agent() -> None:
        async def forgotten() -> None:
            await asyncio.Event().wait()

        await work("before")
        await asyncio.create_task(forgotten())

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            while not (events := await history(run, "foreign")):
                await asyncio.sleep(0.005)
            return events

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        (event,) = asyncio.run(main())
    assert event.data["task"] == "forgotten#0"
    assert event.data["what"] == "nothing durable is pending"
    assert "in forgotten" in event.data["line"]
    assert any("forgotten#0" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("replayed", [True, False])
async def test_a_run_that_never_settles_is_paused(monkeypatch, replayed):
    """A run that spins around asyncio.sleep(0) while an outcome waits is paused, with the line."""
    monkeypatch.setattr(gate, "UNSETTLED_LIMIT_S", 0.2)

    @holdfast.agent
    async def agent() -> None:
        async def spinner() -> None:
            while not task.done():
                await asyncio.sleep(0)

        if not replayed:
            await work("before")
        task = asyncio.create_task(work("beside"))
        await spinner()

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        with pytest.raises(holdfast.RunPaused, match=r"never settles.*test_unrecorded.py:\d+ in spinner"):
            await run.result(timeout=10)


async def test_code_that_takes_long_is_not_taken_for_a_run_that_never_settles(monkeypatch, tmp_path):
    """Outcomes wait while agent code computes, or its process stands still, for longer than the limit. It moves a few times."""
    monkeypatch.setattr(gate, "UNSETTLED_LIMIT_S", 0.05)

    @holdfast.agent
    async def agent() -> list[str]:
        tasks = [asyncio.create_task(work(f"beside {n}")) for n in range(3)]
        for _ in range(4):
            time.sleep(0.1)
            await asyncio.sleep(0)
        found = await asyncio.gather(*tasks)
        return [*found, await holdfast.receive("go", str)]

    async with holdfast.testing.open(agents=[agent], path=tmp_path / "a.db") as hf:
        await (await hf.start(agent, id="r")).wait("waiting", waits_for="message")
    async with holdfast.testing.open(agents=[agent], path=tmp_path / "a.db") as hf:  # and when it is replayed
        await hf.get("r").send("go", "now")
        assert len(await hf.get("r").result(timeout=20)) == 4


async def test_a_long_replay_is_not_taken_for_a_run_that_never_settles(monkeypatch, tmp_path):
    """A run of one task is handed outcome after outcome without coming to rest. However long that takes, it gets on."""

    @holdfast.agent
    async def agent() -> str:
        for n in range(300):
            await work(str(n))
        return await holdfast.receive("go", str)

    async with holdfast.testing.open(agents=[agent], path=tmp_path / "a.db") as hf:
        await (await hf.start(agent, id="r")).wait("waiting", waits_for="message")
    monkeypatch.setattr(gate, "UNSETTLED_LIMIT_S", 0.0)
    monkeypatch.setattr(gate, "UNSETTLED_TURNS", 20)
    async with holdfast.testing.open(agents=[agent], path=tmp_path / "a.db") as hf:
        await hf.get("r").send("go", "on")
        assert await hf.get("r").result(timeout=20) == "on"


async def test_a_busy_run_is_not_taken_for_one_that_never_settles(monkeypatch):
    """A run that is busy for longer than the limit goes on, if it rests soon after an outcome has come."""
    monkeypatch.setattr(gate, "UNSETTLED_LIMIT_S", 0.3)
    turns = []

    @holdfast.step
    async def slow() -> str:
        await asyncio.sleep(0.55)
        return "slow"

    @holdfast.agent
    async def agent() -> str:
        await work("live from here on")
        task = asyncio.create_task(slow())
        began = time.monotonic()
        while time.monotonic() - began < 0.65:
            turns.append(1)
            await asyncio.sleep(0)
        return await task

    async with holdfast.testing.open(agents=[agent]) as hf:
        assert await (await hf.start(agent, id="r")).result(timeout=10) == "slow"
    assert len(turns) > 100


async def test_what_is_open_when_the_agent_returns_is_cancelled_and_shown():
    """An agent that returns with open tasks and calls cancels them, and the history says so, the same in every life."""
    ends = []

    @holdfast.agent
    async def agent() -> str:
        async def open_task() -> None:
            try:
                await hang()
            except asyncio.CancelledError:
                ends.append("cancelled")
                await work("last words")
                raise

        asyncio.create_task(open_task())  # noqa: RUF006 - left open on purpose
        asyncio.create_task(holdfast.receive("never"))  # noqa: RUF006
        await work("beside")
        return "returned"

    async with holdfast.testing.open(agents=[agent], park=False) as hf:
        run = await hf.start(agent, id="r")
        assert await run.result(timeout=10) == "returned"
        events = await history(run)
        assert [event.key for event in events if event.kind == "step.cancelled"] == ["open_task#0/hang#0"]
        assert [event.key for event in events if event.kind == "step.completed"][-1] == "open_task#0/work#0"
    assert ends == ["cancelled"]


async def test_a_call_that_is_never_awaited_fails_the_run():
    """An agent that calls a step and never awaits it fails with its name: nothing may look done and not be."""

    @holdfast.agent
    async def agent() -> str:
        work("forgotten")
        return "returned"

    async with holdfast.testing.open(agents=[agent]) as hf:
        with pytest.raises(holdfast.RunFailed, match=r"work.*await"):
            await (await hf.start(agent, id="r")).result(timeout=10)
        assert not hf.bodies


def test_the_limits_are_what_they_say():
    """What is waited for, and how long, before a run is taken for stalled, diverged or restless."""
    assert execute.Loop.restless.__doc__
    assert 0 < execute.STALL_GRACE_S < execute.FOREIGN_GRACE_S
    assert gate.UNSETTLED_LIMIT_S >= 5
