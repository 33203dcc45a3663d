"""Synchronous effects in agent code: noticed with their line, left alone in steps, and refused to a strict agent."""

import _thread
import asyncio
import contextlib
import contextvars
import importlib
import json
import logging
import mimetypes
import multiprocessing
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.engine.lives import history

import holdfast
import holdfast.testing


@holdfast.step
async def work(what: str) -> str:
    return what


def opens(folder: Path) -> None:
    with open(folder / "opened", "w") as file:  # noqa: PTH123 - as users write it
        file.write("x")


def writes(folder: Path) -> None:
    (folder / "written").write_text("x")


def reads(folder: Path) -> None:
    (folder / "given").read_text()


def removes(folder: Path) -> None:
    os.remove(folder / "given")  # noqa: PTH107


def makes(folder: Path) -> None:
    os.makedirs(folder / "a" / "b", exist_ok=True)  # noqa: PTH103


def copies(folder: Path) -> None:
    shutil.copy(folder / "given", folder / "copied")


def keeps(folder: Path) -> None:
    tempfile.mkstemp(dir=folder)


def fetches(folder: Path) -> None:
    with contextlib.suppress(OSError):
        urllib.request.urlopen("http://127.0.0.1:9/", timeout=1)


def connects(folder: Path) -> None:
    with socket.socket() as wire:
        wire.connect_ex(("127.0.0.1", 9))


def resolves(folder: Path) -> None:
    socket.getaddrinfo("127.0.0.1", 9)


def runs(folder: Path) -> None:
    subprocess.run(["true"], check=True)


def commands(folder: Path) -> None:
    os.system("true")


def queries(folder: Path) -> None:
    sqlite3.connect(folder / "base.db").close()


def sleeps(folder: Path) -> None:
    time.sleep(0.001)


def threads(folder: Path) -> None:
    thread = threading.Thread(target=lambda: (folder / "by a thread").write_text("x"))
    thread.start()
    thread.join()


def pools(folder: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit((folder / "by a pool").write_text, "x").result()


def waits(folder: Path) -> None:
    timer = threading.Timer(0, (folder / "by a timer").write_text, ["x"])
    timer.start()
    timer.join()


def bare(folder: Path) -> None:
    ended = threading.Event()
    _thread.start_new_thread(ended.set, ())
    ended.wait()


EFFECTS = [
    opens, writes, reads, removes, makes, copies, keeps, fetches, connects, resolves, runs, commands, queries, sleeps,
    threads, pools, waits, bare,
]  # fmt: skip
WRITES = {
    threads: "by a thread",
    pools: "by a pool",
    waits: "by a timer",
    opens: "opened",
    writes: "written",
    makes: "a",
    copies: "copied",
    queries: "base.db",
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_in_agent_code_is_told_with_its_line(effect, tmp_path, caplog):
    """It is told once for its line, however often it is done and resumed, and the run ends as if nothing was."""
    lines = effect.__code__.co_firstlineno, effect.__code__.co_firstlineno + 4

    @holdfast.agent
    async def agent() -> str:
        for n in range(2):
            if effect is not removes or n == 0:
                effect(tmp_path)
        return await work("done")

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == "done"
            told = await history(run, "foreign")
        assert len(told) == 1
        file, _, where = told[0].data["line"].partition(":")
        assert file == __file__
        assert lines[0] <= int(where.split()[0]) <= lines[1]
        assert where.endswith(f"in {effect.__name__}")
        assert told[0].data["task"] == "root"

    (tmp_path / "given").write_text("x")
    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(main())
    assert caplog.text.count("is not recorded") == 1


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_strict_agent_is_paused_before_the_effect(effect, tmp_path):
    """The run of a strict agent stops with the line, before anything was done, whatever the agent catches."""
    caught = []

    @holdfast.agent(strict=True)
    async def agent() -> str:
        try:
            effect(tmp_path)
        except BaseException as error:
            caught.append(error)
        if effect in WRITES:
            try:
                effect(tmp_path)
            except BaseException as error:
                caught.append(error)
        return await work("done")

    (tmp_path / "given").write_text("x")
    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.wait("paused", timeout=20)
        reason = (await run.info()).reason
        assert f"{__file__}:" in reason
        assert "strict" in reason
        assert hf.bodies[work] == 0
    assert caught
    assert not any(isinstance(error, Exception) for error in caught)
    assert (tmp_path / "given").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given"]


def test_a_strict_agent_is_paused_before_a_thread_a_process_or_a_connection(tmp_path, caplog):
    """What waits for a thread or a socket is refused to a strict agent as well, and a thread that is refused is not counted."""
    began = []

    @holdfast.agent(strict=True)
    async def aside() -> None:
        await asyncio.to_thread(began.append, "thread")

    @holdfast.agent(strict=True)
    async def starts() -> None:
        threading.Thread(target=began.append, args=["thread"]).start()

    @holdfast.agent(strict=True)
    async def pools() -> None:
        with ThreadPool(1) as pool:
            pool.apply(began.append, ["thread of a pool"])

    @holdfast.agent(strict=True)
    async def forks(method: str) -> None:
        multiprocessing.get_context(method).Process(target=opens, args=[tmp_path]).start()

    @holdfast.agent(strict=True)
    async def processes() -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            pool.submit(opens, tmp_path).result()

    @holdfast.agent(strict=True)
    async def wires() -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    async def main():
        agents = [aside, starts, pools, forks, processes, wires]
        async with holdfast.testing.open(agents=agents) as hf:
            methods = [(forks, method) for method in ("fork", "spawn", "forkserver")]
            for agent in ((aside,), (starts,), (pools,), *methods, (processes,), (wires,)):
                run = await hf.start(*agent)
                await run.wait("paused", timeout=20)
                assert f"{__file__}:" in (await run.info()).reason

    alive = threading.enumerate()
    asyncio.run(main())
    assert caplog.text.count("never retrieved") == 0
    assert began == list(tmp_path.iterdir()) == []
    left = set(threading.enumerate()) - set(alive)
    for thread in left:
        thread.join(20)  # that of the leases was told to end, and nobody waits for it
    assert not [thread for thread in left if thread.is_alive()]


@pytest.mark.parametrize("where", ["task", "callback", "timer"])
async def test_a_strict_agent_is_paused_before_what_it_does_in_an_empty_context(where, tmp_path):
    """Whatever runs it, of the run or of the loop on its behalf."""

    def inside() -> None:
        contextvars.Context().run(opens, tmp_path)

    @holdfast.agent(strict=True)
    async def agent() -> str:
        loop, context = asyncio.get_running_loop(), contextvars.Context()
        if where == "task":
            inside()
        elif where == "callback":
            loop.call_soon(context.run, loop.call_soon, inside)
        else:
            loop.call_later(0, inside)
        return await holdfast.receive("never")

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.wait("paused", timeout=20)
        assert f"{__file__}:" in (await run.info()).reason
    assert list(tmp_path.iterdir()) == []


def test_what_waits_for_a_thread_is_told_once(caplog):
    """The loop tells of `to_thread` and of executors; that they start a thread is not told beside it."""

    @holdfast.agent
    async def agent() -> str:
        await asyncio.to_thread(int)
        return await work("done")

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == "done"
            assert len(await history(run, "foreign")) == 1

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(main())
    assert caplog.text.count("is not recorded") == 1


def test_what_steps_and_others_do_is_left_alone(tmp_path, caplog):
    """Bodies of steps, async and plain, and code outside of runs do what they like, while a strict run is carried."""
    done = []

    @holdfast.step
    async def asynchronous() -> None:
        for effect in EFFECTS:
            (tmp_path / "given").write_text("x")
            shutil.rmtree(tmp_path / "a", ignore_errors=True)
            effect(tmp_path)

    @holdfast.step
    def plain() -> None:
        for effect in EFFECTS:
            (tmp_path / "given").write_text("x")
            shutil.rmtree(tmp_path / "a", ignore_errors=True)
            effect(tmp_path)

    @holdfast.agent(strict=True)
    async def agent() -> str:
        await asyncio.gather(asynchronous(), plain())
        await asynchronous()
        return "done"

    async def beside():
        while not done:
            (tmp_path / "beside").write_text("x")
            await asyncio.sleep(0)

    def thread():
        while not done:
            (tmp_path / "thread").write_text("x")

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            task = asyncio.create_task(beside())
            aside = threading.Thread(target=thread)
            aside.start()
            run = await hf.start(agent, id="r")
            try:
                assert await run.result(timeout=20) == "done"
            finally:
                done.append(True)
                aside.join()
            await task
            assert not await history(run, "foreign")

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(main())
    assert "is not recorded" not in caplog.text


def test_what_python_does_for_itself_is_left_alone(tmp_path, monkeypatch):
    """Imports, logging, warnings, tracebacks, time zones and data of the standard library are no effects of an agent."""
    (tmp_path / "imported_by_an_agent.py").write_text("with open(__file__) as file:\n    text = file.read()\n")
    monkeypatch.syspath_prepend(tmp_path)
    handler = logging.FileHandler(tmp_path / "log.txt", delay=True)
    logger = logging.getLogger("tests.effects")
    monkeypatch.setattr(mimetypes, "inited", False)
    ZoneInfo.clear_cache()

    class OfOurOwn(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with (tmp_path / "own.txt").open("a") as file:
                file.write(record.getMessage())

    @holdfast.agent(strict=True)
    async def agent() -> str:
        importlib.import_module("imported_by_an_agent")
        logger.error("said")
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=1)
        try:
            raise ValueError
        except ValueError:
            traceback.format_exc()
        ZoneInfo("Europe/Berlin")
        mimetypes.guess_type("a.html")
        Path(json.__file__).read_text()  # noqa: ASYNC240
        return await work("done")

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == "done"

    logger.addHandler(handler)
    logger.addHandler(own := OfOurOwn())
    try:
        asyncio.run(main())
    finally:
        logger.removeHandler(handler)
        logger.removeHandler(own)
        handler.close()
        sys.modules.pop("imported_by_an_agent", None)
    assert "said" in (tmp_path / "log.txt").read_text()
    assert "said" in (tmp_path / "own.txt").read_text()
