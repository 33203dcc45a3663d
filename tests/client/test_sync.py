"""`holdfast.sync`: the same client for plain code, from any thread, in scripts and in notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

import holdfast
import holdfast.sync
from holdfast import BadArguments, RunEvent, StoreUnavailable

SOURCE = str(Path(holdfast.__file__).parents[1])


@holdfast.step
async def work(text: str) -> str:
    return text * 2


@holdfast.agent
async def echo(text: str, times: int = 1) -> str:
    return await work(text * times)


@holdfast.agent
async def clerk() -> str:
    word = await holdfast.receive("word", str)
    if not await holdfast.approve("Note it?", show=word):
        return "no"
    async with holdfast.stream("answer") as out:
        await out.write(word)
    return word


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'a.db'}"


def test_plain_code_does_what_async_code_does(url):
    """Start, wait, send, decide, iterate, look: with results, handles and errors of the same kinds."""
    with holdfast.sync.open(url, agents=[echo, clerk]) as hf:
        assert hf.run(echo, "a", times=2, id="e") == "aaaa"
        run = hf.start(clerk, id="c", labels={"team": "x"})
        assert (type(run), repr(run), run.created) == (holdfast.sync.Run, "<run c>", True)
        assert not hf.start(clerk, id="c").created
        with pytest.raises(TimeoutError, match="did not come so far within 50 ms"):
            run.result(timeout=0.05)
        receipt = run.send("word", "tea")
        question = run.wait_for_question()
        assert (question.shown, receipt.position, receipt.run.id) == ("tea", 1, "c")
        assert hf.approve(question, by="ana").status == "decided"
        assert hf.get("c", clerk).result() == "tea"
        assert receipt.seen_at() == 0
        events = list(run.events())
        assert all(isinstance(event, RunEvent) for event in events)
        assert [event.kind for event in events][-1] == "run.completed"
        assert [chunk.data for chunk in run.stream("answer") if chunk.kind == "data"] == ["tea"]
        assert [info.id for info in hf.runs(labels={"team": "x"})] == ["c"]
        assert next(hf.events(follow=False)).run == "e"
        assert hf.conversation("nobody").messages() == []
        assert [deed.by for deed in hf.acting_as("bo").audit(run="c") if deed.action == "approve"] == ["ana"]
        with hf.deadline("5s"):
            hf.start(echo, "b", id="b")
        with pytest.raises(holdfast.UnknownRun):
            hf.get("nobody").info()
        with pytest.raises(BadArguments, match="takes"):
            hf.start(echo)
    with pytest.raises(BadArguments, match="this client is closed"):
        hf.runs()
    hf.close()


def test_every_method_of_the_async_client_is_there():
    """With its name, parameters and docstring; none of them is a coroutine."""
    for name in ("Client", "Run", "Receipt"):
        made, of = getattr(holdfast.sync, name), getattr(holdfast, name)
        for method in [each for each in dir(of) if not each.startswith("_") and inspect.isfunction(getattr(of, each))]:
            waits = getattr(made, method)
            assert waits.__doc__ == getattr(of, method).__doc__
            assert list(inspect.signature(waits).parameters) == list(inspect.signature(getattr(of, method)).parameters)
            assert not inspect.iscoroutinefunction(waits)


def test_threads_share_a_client(url):
    """As those of a web server do: each call waits for its own result, and a deadline is that of its thread."""
    with holdfast.sync.open(url, agents=[echo]) as hf, ThreadPoolExecutor(16) as threads:

        def request(number):
            with hf.deadline(5 + number):
                run = hf.start(echo, f"{number} ", id=f"r{number}")
                kinds = [event.kind for event in run.events()]
            return run.result(), kinds[-1]

        found = list(threads.map(request, range(64)))
        assert found == [(f"{number} {number} ", "run.completed") for number in range(64)]
        assert len(hf.runs(limit=100)) == 64


def test_a_plain_step_may_use_it_and_code_on_its_loop_may_not(url):
    """A plain function runs in a thread. Async code would wait for itself, and is told so."""
    clients = []

    @holdfast.step
    def plain() -> str:
        return clients[0].start(echo, "x", id="from-a-step").id

    @holdfast.step
    async def on_the_loop() -> str:
        return clients[0].start(echo, "x").id

    @holdfast.agent
    async def starter() -> str:
        started = await plain()
        with contextlib.suppress(holdfast.StepFailed):
            await on_the_loop()
        return started

    with holdfast.sync.open(url, agents=[echo, starter]) as hf:
        clients.append(hf)
        run = hf.start(starter)
        assert run.result() == "from-a-step"
        failed = [event.data for event in run.events() if event.kind == "step.failed"]
        assert "would wait for itself" in str(failed)


def test_a_notebook_has_a_loop_of_its_own(url):
    """Plain code that is called while a loop runs in its thread, as every cell of a notebook is."""

    async def cell():
        hf = holdfast.sync.open(url, agents=[echo])
        try:
            return hf.run(echo, "a"), [event.kind for event in hf.get(hf.runs()[0].id).events()]
        finally:
            hf.close()

    assert asyncio.run(cell()) == ("aa", ["step.completed", "run.completed"])


WAITS = {
    "result": lambda run: run.result(),
    "wait": lambda run: run.wait("completed"),
    "events": lambda run: list(run.events()),
    "stream": lambda run: list(run.stream("answer")),
    "asks on": lambda run: [run.info() for _ in iter(int, 1)],
}


@pytest.mark.parametrize("way", WAITS)
def test_closing_ends_what_other_threads_wait_for(url, way):
    """Whoever waits, iterates or asks when the client is closed is told that it was, and no thread of it is left."""
    hf = holdfast.sync.open(url, agents=[clerk])
    run = hf.start(clerk)
    waiting, problems = threading.Event(), []

    def wait():
        waiting.set()
        try:
            WAITS[way](run)
        except Exception as problem:
            problems.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    hf.close()
    thread.join(20)
    assert not thread.is_alive()
    (problem,) = problems
    assert isinstance(problem, StoreUnavailable | BadArguments)
    assert re.search("this client (was|is) closed", str(problem))
    assert not [each for each in threading.enumerate() if each.name == "holdfast-sync"]


def test_a_client_that_cannot_be_opened_leaves_nothing(tmp_path):
    """The error is that of opening, and the thread has ended."""
    with pytest.raises(StoreUnavailable, match="no folder"):
        holdfast.sync.open(f"sqlite:{tmp_path / 'nowhere' / 'a.db'}")
    assert not [each for each in threading.enumerate() if each.name == "holdfast-sync"]


def test_an_iteration_can_be_left(url):
    """A `for` that is broken out of lets go of what it follows."""
    with holdfast.sync.open(url, agents=[clerk]) as hf:
        run = hf.start(clerk)
        run.send("word", "a")
        for event in run.events():
            assert event.kind == "message.received"
            break
        events = hf.events()
        assert next(events).run == run.id
        events.close()
        assert list(events) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_opens_its_own(url):
    """A client does not survive a fork, and says so at once instead of waiting for a thread that is not there.

    An iterator of before says the same, and one that is only deleted says nothing.
    """
    hf = holdfast.sync.open(url, agents=[clerk])
    hf.start(clerk).send("word", "x")
    used, unused = hf.events(), hf.events()
    assert next(used).kind == next(unused).kind
    child = os.fork()
    if not child:
        sys.unraisablehook, told = lambda _: os._exit(2), []
        for use in (hf.runs, lambda: next(used)):
            try:
                use()
            except BadArguments as problem:
                told.append("before the process was forked" in str(problem))
        del use, used, unused
        os._exit(0 if told == [True, True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert next(used).position > 0
    assert len(hf.runs()) == 1
    hf.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_what_is_forked_while_a_store_is_open_opens_none(url):
    """It is told so at once, whatever the parent is doing just then; when the parent has closed its own it may open one.

    Else it would hang now and then, and lose commits: SQLite takes the locks of the parent for those of the child.
    """

    def opens() -> int:
        child = os.fork()
        if not child:
            signal.alarm(20)
            try:
                with holdfast.sync.open(url) as own:
                    os._exit(len(own.runs()))
            except BadArguments as problem:
                os._exit(100 if "get_context('spawn')" in str(problem) else 101)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def uses() -> None:
        while not done.is_set():
            hf.runs()

    gc.collect()
    for left in apsw.connections():  # by other tests in this process
        left.close()
    done, threads = threading.Event(), [threading.Thread(target=uses) for _ in range(4)]
    with holdfast.sync.open(url, agents=[clerk]) as hf:
        hf.start(clerk)
        for thread in threads:
            thread.start()
        assert {opens() for _ in range(10)} == {100}
        done.set()
        for thread in threads:
            thread.join()
    assert opens() == 1


FORKING = """
import os, sys
import holdfast.sync
from holdfast.store.sqlite.connection import connect

db = connect(sys.argv[1], "process", writer=True)
db.execute("CREATE TABLE t (x); PRAGMA cache_size = 5; BEGIN IMMEDIATE")
db.executemany("INSERT INTO t VALUES (zeroblob(?))", [(2000,)] * 2000)
child = os.fork()
if not child:
    try:
        holdfast.sync.open(f"sqlite:{sys.argv[1]}")
    except holdfast.BadArguments:
        sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert db.execute("SELECT sum(length(x)) FROM t").get == 4_000_000
db.execute("COMMIT")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_end_of_a_forked_process_leaves_the_store_alone(tmp_path):
    """It does not close what is the parent's: that would roll back, in memory they share, what the parent is writing."""
    line = [sys.executable, "-c", FORKING, str(tmp_path / "x.db")]
    ended = subprocess.run(
        line, env=os.environ | {"PYTHONPATH": SOURCE}, stderr=subprocess.PIPE, timeout=50, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_an_iterator_may_be_collected_in_any_thread(url, monkeypatch):
    """Also in that of the client itself, which cannot wait for itself: the loop lets go of what it follows."""
    problems = []
    monkeypatch.setattr(sys, "unraisablehook", problems.append)

    @holdfast.step
    async def collects() -> None:
        kept.clear()

    @holdfast.agent
    async def agent() -> None:
        await holdfast.receive("go")
        await collects()

    with holdfast.sync.open(url, agents=[agent]) as hf:
        run = hf.start(agent)
        run.send("other")
        kept = [hf.events()]
        next(kept[0])
        run.send("go")
        run.result()
    assert kept == problems == []


SCRIPT = """
import signal, sys
import holdfast, holdfast.sync

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it, and children inherit that

@holdfast.agent
async def clerk() -> str:
    return await holdfast.receive("word", str)

hf = holdfast.sync.open(sys.argv[1], agents=[clerk])
run = hf.start(clerk, id="c")
run.wait("waiting", waits_for="message")
try:
    print("waits", flush=True)
    if sys.argv[2] == "exit":
        sys.exit(0)
    run.result()
except KeyboardInterrupt:
    print("interrupted", hf.runs()[0].status, flush=True)
"""


def script(url, *words):
    environment = os.environ | {"PYTHONPATH": SOURCE}
    line = [sys.executable, "-W", "error", "-c", SCRIPT, url, *words]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_script_that_ends_without_closing_leaves_its_runs_to_others(url):
    """The worker in it stops at a safe point: nothing is said, and nobody has to find out that it died."""
    process = script(url, "exit")
    told, problems = process.communicate(timeout=50)
    assert (process.returncode, told, problems) == (0, "waits\n", "")
    with holdfast.sync.open(url) as hf:
        assert hf.get("c").info().crashes == 0
        assert not any(agent.served for agent in hf.agents())


def test_ctrl_c_interrupts_a_wait_and_the_client_goes_on(url):
    """KeyboardInterrupt comes out of the call that waits; the next call works, and the program ends as it should."""
    process = script(url, "wait")
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    told, problems = process.communicate(timeout=50)
    assert (process.returncode, told, problems) == (0, "interrupted waiting\n", "")
