"""A store in trouble: commits whose fate is unknown, disks that are full or fail, writers that die."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.store.places import TTL, Place, finish, new, owned, park, python, recovered, step, write

from holdfast.errors import StoreUnavailable
from holdfast.store.approvals import NewApproval
from holdfast.store.operations import Crash
from holdfast.store.sqlite import connection
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.words.people import Actor, Ballot


class Hooks:
    """Fault hooks that do what a test says at the next commits."""

    def __init__(self) -> None:
        self.before: list[BaseException] = []
        self.after: list[BaseException] = []

    def before_commit(self, writes: list[str]) -> None:
        if self.before:
            raise self.before.pop(0)

    def after_commit(self, writes: list[str]) -> None:
        if self.after:
            raise self.after.pop(0)


async def test_unknown_commits_are_recognised(place: Place) -> None:
    """When the acknowledgement of a commit is lost, every kind of write is done once and answered as if nothing was."""
    hooks = Hooks()
    async with place.open(faults=hooks) as store:

        def lose() -> None:
            hooks.after.append(OSError("lost"))

        lose()
        _, was_created = await store.create(new("a"), by="eve")
        assert was_created
        lose()
        (row,) = await store.claim(["agent"], 5, TTL)
        assert row.lease_epoch == 1
        lose()
        approvals = [NewApproval("q", "k", "in_doubt", "?")]
        await store.append(
            write(row, step(), step(), children=[new("a.c", parent_id="a", agent="c")], approvals=approvals)
        )
        lose()
        assert await store.send("a", "s", "message.received", "t", None, {}, by="eve") == 1
        lose()
        assert (await store.decide("q", Ballot("1", Actor("eve")))).decided_by == "eve"
        lose()
        await park(store, row, seen=2)
        lose()
        assert await store.send("a", "s2", "message.received", "t", None, {}) == 3
        (row,) = await store.claim(["agent"], 5, TTL)
        assert (row.lease_epoch, row.crash_count) == (2, 0)
        lose()
        await finish(store, row, "failed", error="{}")
        lose()
        await store.resume("a", by="eve", retry=True)
        (child,) = await store.claim(["c"], 5, TTL)
        lose()
        await finish(store, child)
        assert len(await store.inbox("a", 0)) == 4
        (row,) = await store.claim(["agent"], 5, TTL)
        await finish(store, row)
        lose()
        assert await store.delete("a", by="eve") >= 1
        assert not hooks.after
        assert await store.runs() == []
        assert [noted["action"] for noted in await store.audit()] == ["delete", "retry", "answer", "send", "start"]


async def test_failing_commits_are_tried_again(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that fails for a while delays appends and loses none; one line says so, and one when it is over."""
    hooks = Hooks()
    caplog.set_level(logging.INFO, "holdfast.store")
    async with place.open(faults=hooks) as store:
        rows = [await owned(store, f"run-{number}") for number in range(5)]
        hooks.before += [OSError("no space")] * 2
        hooks.after += [OSError("lost")]
        await asyncio.gather(*[store.append(write(row, step())) for row in rows for _ in range(4)])
        assert [len(await store.journal(row.id)) for row in rows] == [4] * 5
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith("the store cannot be written, trying again ")
    assert "injected" in messages[0]
    assert messages[1] == "the store can be written again"


async def test_closing_in_trouble(place: Place) -> None:
    """Closing a store that cannot write ends, and whoever waits is told that nothing is sure."""
    hooks = Hooks()
    async with place.open(faults=hooks) as store:
        row = await owned(store, "a")
        hooks.before += [OSError("no space")] * 1000
        waiting = store.append(write(row, step()))
        await store.close()
        with pytest.raises(StoreUnavailable, match="no space"):
            await waiting


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_at_the_commit(place: Place, moment: str) -> None:
    """A writer that dies before its commit wrote nothing, one that dies after it wrote all; neither acknowledges."""

    async def run() -> None:
        hooks = Hooks()
        store = place.connect(place.url, faults=hooks)
        await store.open()
        row = await owned(store, "a")
        getattr(hooks, moment).append(Crash())
        waiting = [store.append(write(row, step())) for _ in range(3)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 3
        with pytest.raises(StoreUnavailable):
            await store.run("a")
        store.abandon()
        async with place.open() as other:
            written = len(await other.journal("a"))
            assert written == 0 if moment == "before" else written >= 1
            assert await recovered(other) == 1
            assert [found.id for found in await other.claim(["agent"], 1, TTL)] == ["a"]

    asyncio.run(asyncio.wait_for(run(), 50))


async def test_a_long_lock_is_waited_for(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock held longer than the store waits at once delays an append and loses nothing."""
    monkeypatch.setattr(connection, "_BUSY_S", 0.05)
    async with file.open() as store:
        row = await owned(store, "a")
        db = apsw.Connection(file.path)
        db.execute("BEGIN IMMEDIATE")
        waiting = store.append(write(row, step()))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        db.execute("ROLLBACK")
        await waiting
        assert len(await store.journal("a")) == 1
        db.close()


def unavailable(what: str) -> None:
    """Skip with the reason; in CI, where it must work, fail instead."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; set up the CI so that this test can run")
    pytest.skip(f"NOT TESTED: {what}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        unavailable("a small file system cannot be mounted (are you root?)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On a full disk nothing is acknowledged and nothing lost; when there is room, everything is written once."""
    caplog.set_level(logging.INFO, "holdfast.store")
    store = SQLiteStore(small_disk / "runs.db")
    await store.open()
    row = await owned(store, "a")
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 300_000))
    waiting = [store.append(write(row, step(value="y" * 5_000))) for _ in range(300)]
    while not caplog.records:
        await asyncio.wait(waiting, timeout=0.05)
    stuck = [future for future in waiting if not future.done()]
    assert stuck
    reader = apsw.Connection(str(small_disk / "runs.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    assert reader.execute("SELECT count(*) FROM events").get >= len(waiting) - len(stuck)
    reader.close()
    filler.unlink()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert [event.seq for event in await store.journal("a")] == list(range(300))
    assert (await store.facts())["integrity"] == "ok"
    assert [each.levelname for each in caplog.records if each.name == "holdfast.store"] == ["WARNING", "INFO"]
    await store.close()


APPENDER = """
import asyncio, sys
from holdfast.words.model import Event
from holdfast.store.appends import Append
from holdfast.store.runs import NewRun
from holdfast.store.sqlite.store import SQLiteStore

async def main():
    store = SQLiteStore.from_url(sys.argv[1])
    await store.open()
    await store.create(NewRun("a", "uid", "agent", "{}"))
    (row,) = await store.claim(["agent"], 1, 600_000)
    for seq in range(int(sys.argv[2])):
        event = Event(seq, "step.completed", f"work#{seq}", {}, "x" * 200)
        await store.append(Append("a", row.lease_epoch, seq, [event]))
        print(seq, flush=True)
    await store.close()
    print("closed", flush=True)

asyncio.run(main())
"""


def strace(inject: str, trace: str = "/dev/null") -> tuple[str, ...]:
    """The command that runs another one with this fault; what was called goes into the file `trace`."""
    if shutil.which("strace") is None:
        unavailable("strace is not installed")
    probe = subprocess.run(["strace", "-f", "true"], capture_output=True, check=False)
    if probe.returncode:
        unavailable("strace may not trace here")
    call = inject.partition(":")[0]
    # Not --seccomp-bpf, although it is quicker: with it `when=` is ignored and nothing fails.
    return ("strace", "-f", "-qqq", "-e", f"trace={call}", "-e", f"inject={inject}", "-o", trace)


def acknowledged(file: Place, inject: str, appends: int) -> tuple[int, bool, str, int]:
    """Run the script under a fault: appends acknowledged, whether it came to its end, its complaints, threads that met it."""
    trace = Path(file.path + ".trace")
    process = python(APPENDER, file.url, str(appends), before=strace(inject, str(trace)), stderr=subprocess.PIPE)
    output, complaints = process.communicate(timeout=40)
    lines = output.split()
    met = {line.split()[0] for line in trace.read_text().splitlines() if "(INJECTED)" in line}
    return len([text for text in lines if text.isdigit()]), "closed" in lines, complaints, len(met)


async def check(file: Place, acknowledged: int) -> None:
    """All that was acknowledged is there, in order, each once, and the file is whole."""
    async with file.open() as store:
        events = [event for event in await store.journal("a") if event.kind == "step.completed"]
        assert [event.key for event in events] == [f"work#{number}" for number in range(len(events))]
        assert len(events) in (acknowledged, acknowledged + 1)
        facts = await store.facts()
        assert facts["integrity"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    "inject",
    ["fdatasync:error=EIO:when=6..8", "pwrite64:error=EIO:when=90..95", "pwrite64:error=ENOSPC:when=90..99",
     "fdatasync:error=ENOSPC:when=9"],
)  # fmt: skip
def test_failing_system_calls(file: Place, inject: str) -> None:
    """After failing flushes or writes everything is acknowledged in the end, and is there once."""

    async def exists() -> None:
        async with file.open() as store:
            await store.runs()

    asyncio.run(exists())
    done, closed, complaints, met = acknowledged(file, inject, 25)
    assert (done, closed) == (25, True)
    # strace counts calls by thread. However often a thread meets the fault in a row, it is told once. A full disk that only
    # the loop's own thread met is left to the writer's, which may find room.
    least = 0 if inject.startswith("pwrite64:error=ENOSPC") else 1
    assert met
    assert least <= complaints.count("the store cannot be written") <= met
    asyncio.run(check(file, 25))


# (system call, first, every, on a new file): a new file is killed during its migration too.
KILLS = [("fdatasync", 1, 1, False), ("fdatasync", 2, 2, True), ("pwrite64", 4, 9, False)]


@pytest.mark.slow
@pytest.mark.by_day("fdatasync-2-*")
@pytest.mark.parametrize(("call", "first", "every", "fresh"), KILLS)
def test_killed_at_every_flush_and_write(
    file: Place, tmp_path: Path, call: str, first: int, every: int, fresh: bool
) -> None:
    """Killed by SIGKILL at one system call after another, a process leaves everything it had acknowledged."""
    deaths = 0

    async def one(when: int) -> bool:
        nonlocal deaths
        own = Place(file.connect, f"sqlite:{tmp_path / f'{when}.db'}")
        if not fresh:
            async with own.open() as store:
                await store.runs()
        done, closed, _, _ = await asyncio.to_thread(acknowledged, own, f"{call}:signal=SIGKILL:when={when}", 6)
        await check(own, done)
        deaths += not closed
        return closed

    async def run() -> None:
        for start in range(first, first + 40 * every, 2 * every):
            if all(await asyncio.gather(one(start), one(start + every))):
                return  # past its last call of this kind: every one was a point of death
        pytest.fail("it never came to its end")

    strace(call)
    asyncio.run(run())
    assert deaths >= 5
