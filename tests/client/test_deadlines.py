"""What a client writes while the store cannot be written: refused in time, and never done later without a word."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, contextmanager

import apsw
import pytest

import holdfast
from holdfast import Settings, StoreUnavailable, Unconfirmed
from holdfast.store.sqlite.store import SQLiteStore


@holdfast.step
async def note(text: str) -> str:
    return text * 1000


@holdfast.agent
async def clerk(name: str) -> str:
    word = await holdfast.receive("word", str)
    return (await note(word))[: len(word)] if await holdfast.approve(f"Note it, {name}?") else "no"


@contextmanager
def locked(path):
    """Nobody can write to the file, as while a process that stands still has its lock."""
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("COMMIT")


@pytest.mark.slow
async def test_what_a_client_writes_is_refused_in_time_and_never_done(tmp_path):
    """Start, send, decide and stop end at the deadline, the client's or the block's; none of it happens later."""
    settings = Settings(deadline_s=0.3)
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with holdfast.open(url, settings=settings) as hf, holdfast.open(url, agents=[clerk]):
        asked, waits = await hf.start(clerk, "ana", id="asked"), await hf.start(clerk, "bo", id="waits")
        await asked.send("word", "tea")
        question = await asked.wait_for_question()
        await waits.wait("waiting", waits_for="message")
        token, _ = await hf.create_token("ana")
        with locked(tmp_path / "a.db"):
            for write in (
                lambda: hf.start(clerk, "late", id="late"),
                lambda: hf.run(clerk, "late"),
                lambda: waits.send("word", "late"),
                lambda: hf.deny(question, by="ana"),
                lambda: hf.delegate(question, to="bo", by="ana"),
                waits.cancel,
                waits.pause,
                lambda: hf.cancel(agent=clerk),
                lambda: hf.create_token("late"),
                lambda: hf.revoke_token(token.id),
            ):
                with pytest.raises(StoreUnavailable, match=r"was not written within 300 ms.*nothing was done"):
                    await asyncio.wait_for(write(), 20)
            with hf.deadline("20ms"), pytest.raises(StoreUnavailable, match="within 20 ms"):
                await hf.start(clerk, "late", id="late")
        await hf.approve(question, by="ana")
        assert await asked.result() == "tea"
        assert {run.id for run in await hf.runs(limit=1000)} == {"asked", "waits"}
        assert [each.name for each in await hf.tokens() if each.revoked_at is None] == ["ana"]
        info = await waits.info()
        assert (info.status, info.waits_for) == ("waiting", "message")
        assert [event async for event in waits.events(follow=False) if event.kind == "message.received"] == []


class Lost:
    """Fault hooks: the next commit succeeds unseen, and after it nothing can be written."""

    def __init__(self):
        self.armed = self.broken = False

    def before_commit(self, writes):
        if self.broken:
            raise OSError("gone")

    def after_commit(self, writes):
        if self.armed:
            self.armed, self.broken = False, True
            raise OSError("lost")


@pytest.mark.parametrize(
    ("act", "look"),
    [
        ("start", r"hf.get\('b'\).info\(\).*starting it again with id='b' is safe"),
        ("send with a key", "Sending it again with the same key is safe"),
        ("send", "Its history says whether it came"),
        ("cancel", r"hf.get\('a'\).info\(\)"),
        ("deny", r"hf.approval\('q-.*says how the question stands"),
    ],
)
async def test_a_write_in_doubt_says_where_to_look(tmp_path, act, look):
    """A commit whose answer was lost may have happened: the error is another one, and says how to find out."""
    lost = Lost()

    class Client(holdfast.Client):
        def _make_store(self):
            return SQLiteStore(tmp_path / "a.db", faults=lost)

    async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=[clerk]) as other:
        await (await other.start(clerk, "ana", id="a")).send("word", "tea")
        await other.get("a").wait_for_question()
    async with Client(settings=Settings(deadline_s=0.3)) as hf:
        run, (question,) = hf.get("a"), await hf.approvals()
        acts = {
            "start": lambda: hf.start(clerk, "bo", id="b"),
            "send with a key": lambda: run.send("word", "x", key="k"),
            "send": lambda: run.send("word", "x"),
            "cancel": run.cancel,
            "deny": lambda: hf.deny(question, by="ana"),
        }
        lost.armed = True
        with pytest.raises(Unconfirmed, match=rf"did not confirm a write within 300 ms .*may have happened.*{look}"):
            await acts[act]()
        lost.broken = False


def test_a_deadline_is_some_time():
    with pytest.raises(holdfast.BadArguments, match="a write needs some time"):
        Settings(deadline_s=0)


@pytest.mark.parametrize("form", ["async", "sync"])
def test_a_client_whose_write_was_withdrawn_closes_at_once(tmp_path, form):
    """Nothing is left to write, so leaving does not wait for the lock that the write waited for."""
    url, settings = f"sqlite:{tmp_path / 'a.db'}", Settings(deadline_s=0.3)

    async def main():
        async with holdfast.open(url, settings=settings) as hf:
            with pytest.raises(StoreUnavailable, match="nothing was done"):
                await hf.start("clerk", "late")

    def plain():
        with (
            holdfast.sync.open(url, settings=settings) as hf,
            pytest.raises(StoreUnavailable, match="nothing was done"),
        ):
            hf.start("clerk", "late")

    async def make():
        async with holdfast.open(url, agents=[clerk]):
            pass

    asyncio.run(make())
    with locked(tmp_path / "a.db"):
        began = time.monotonic()
        asyncio.run(main()) if form == "async" else plain()
        assert time.monotonic() - began < 5


async def test_a_worker_that_cannot_say_that_it_leaves_closes_within_its_deadline(tmp_path):
    client = holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=[clerk], settings=Settings(deadline_s=0.3))
    await client.__aenter__()
    with locked(tmp_path / "a.db"):
        began = time.monotonic()
        await client.__aexit__(None, None, None)
        assert time.monotonic() - began < 5


@pytest.mark.slow
async def test_a_client_of_a_server_that_does_not_answer(own_server, tmp_path):
    """Its writes and its reads end at the deadline, and leaving does not wait for the answers to them."""
    async with holdfast.open(own_server.url, agents=[clerk]) as hf:
        await hf.start(clerk, "ana", id="a")
    client = holdfast.open(own_server.url, settings=Settings(deadline_s=1))
    hf = await client.__aenter__()
    assert [run.id for run in await hf.runs()] == ["a"]
    with own_server.halted():
        async with asyncio.timeout(20):
            with pytest.raises(StoreUnavailable, match=r"the store did not answer within 1.0 s"):
                await hf.runs()
            with hf.deadline("20ms"), pytest.raises(StoreUnavailable, match="did not answer within 20 ms"):
                await hf.get("a").info()
            with pytest.raises(StoreUnavailable, match=r"did not answer within 1\.0 s"):
                await hf.start("clerk", "bo")
            with pytest.raises(StoreUnavailable):
                await hf.get("a").send("word", "tea")
            with pytest.raises(StoreUnavailable):
                await hf.backup(tmp_path / "copy.backup")
        began = time.monotonic()
        await client.__aexit__(None, None, None)
        assert time.monotonic() - began < 10


@pytest.mark.slow
async def test_a_server_that_answers_again_is_read_again(own_server):
    async with holdfast.open(own_server.url, settings=Settings(deadline_s=0.3)) as hf:
        with own_server.halted():
            for _ in range(6):
                with pytest.raises(StoreUnavailable, match="did not answer"):
                    await hf.runs()
        with hf.deadline("20s"):
            assert await hf.runs() == []
