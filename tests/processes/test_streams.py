"""kill -9 in the middle of a stream, on both stores: a reader in another process comes back by its offset."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from tests.processes.stream_program import TOKENS, talk

import holdfast

ROOT = Path(__file__).parents[2]
STORES = {
    "sqlite": lambda request: f"sqlite:{request.getfixturevalue('tmp_path') / 'runs.db'}",
    "postgres": lambda request: request.getfixturevalue("postgres_url"),
}


@pytest.fixture(params=STORES)
def url(request):
    return STORES[request.param](request)


@contextmanager
def worker(url, lease_s=10.0):
    """A real process that serves; its pid is for signals."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.processes.stream_program", url, str(lease_s)]
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def follow(url, run, after, enough):
    """Read in a client of its own until `enough` says so; what was seen, and the offset behind it."""
    seen = []
    async with holdfast.open(url) as hf:
        async for chunk in hf.get(run).stream("answer", after):
            seen.append(chunk)
            after = chunk.offset
            if enough(seen):
                break
    return seen, after


@pytest.mark.by_day("sqlite-True")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_reader_sees_every_token_once_up_to_the_mark_and_then_the_continuation(url, keeps):
    """The worker is killed twice in mid-stream; the reader, which goes away each time, misses nothing, sees nothing twice."""

    async def main():
        async with holdfast.open(url) as hf:
            run = await hf.start(talk, keeps, id="r")
        seen, after = [], 0
        for life in range(3):
            with worker(url) as process:
                assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
                enough = [lambda new: sum(len(chunk.data) for chunk in new) > 40, lambda _: False][life == 2]
                new, after = await asyncio.wait_for(follow(url, "r", after, enough), 40)
                seen += new
                if life < 2:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                    continue
                async with holdfast.open(url) as hf:
                    run = hf.get("r", talk)
                    said = await run.result(timeout=40)
                    stored = [chunk async for chunk in run.stream("answer")]
        return seen, stored, said

    seen, stored, said = asyncio.run(main())
    assert [(chunk.offset, chunk.kind) for chunk in seen] == [(chunk.offset, chunk.kind) for chunk in stored]
    assert "".join(chunk.data for chunk in seen) == "".join(chunk.data for chunk in stored)
    lives = "".join(chunk.data if chunk.kind == "data" else f"<{chunk.kind}>" for chunk in seen)
    assert lives.endswith("<end>")
    texts = lives.removesuffix("<end>").split("<restart>")
    whole = "".join(TOKENS)
    assert texts[-1] == whole
    assert all(whole.startswith(text) and len(text) > 10 for text in texts)
    assert len(texts) == (1 if keeps else 3)
    assert (said > 10) == keeps


def stopped(url, process):
    """SIGSTOP between two commits: a file's lock has no lease, and a process stopped inside one would keep it."""
    path = url.removeprefix("sqlite:")
    while True:
        process.send_signal(signal.SIGSTOP)
        if path == url:
            return
        db = apsw.Connection(path)
        try:
            db.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            process.send_signal(signal.SIGCONT)
        else:
            return
        finally:
            db.close()


@pytest.mark.by_day("postgres")
async def test_a_worker_that_was_stopped_cannot_write_behind_its_successor(url):
    """A stopped worker wakes up when another has told the whole story: what it still writes is nowhere in the stream."""
    async with holdfast.open(url) as hf:
        run = await hf.start(talk, False, id="r")
        with worker(url, 2.0) as old:
            assert await asyncio.to_thread(old.stdout.readline) == "ready\n"
            await asyncio.wait_for(follow(url, "r", 0, lambda new: len(new) > 1), 40)
            await asyncio.to_thread(stopped, url, old)
            with worker(url) as young:
                assert await asyncio.to_thread(young.stdout.readline) == "ready\n"
                await run.result(timeout=40)
                before = [chunk async for chunk in run.stream("answer")]
                old.send_signal(signal.SIGCONT)
                other = await hf.start(talk, False, id="s")  # somebody does this one; both write
                await other.result(timeout=40)
            old.stdin.close()  # it ends by itself, and tries to write what it has
            assert await asyncio.to_thread(old.wait) == 0
            assert [chunk async for chunk in run.stream("answer")] == before
            returned = before
    kinds = "".join(chunk.data or f"<{chunk.kind} {chunk.reason}>" for chunk in returned)
    first, last = kinds.split("<restart crashed>")
    assert "".join(TOKENS).startswith(first)
    assert last == "".join(TOKENS) + "<end None>"
