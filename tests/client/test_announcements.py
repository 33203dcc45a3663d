"""Announcements from outside: by a client, plain code, and in runs that are carried to another store."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

import holdfast
import holdfast.sync
from holdfast import On
from holdfast.words.announcements import topic_of

QUICK = holdfast.Settings(park_grace_s=0.0)


@holdfast.agent
async def waits() -> list[int]:
    heard = [(await holdfast.next_event("sold", match={"shop": "a"})).value["n"]]
    return [*heard, (await holdfast.next_event("sold", match={"shop": "a"})).value["n"]]


@holdfast.agent(on=On("sold"))
async def ship(sale: dict[str, Any]) -> int:
    return sale["n"]


async def began(run: holdfast.Run[Any], kind: str = "announcement.awaited", *, count: int = 1) -> None:
    async for event in run.events():
        count -= event.kind == kind
        if not count:
            return


def sale(n: int, shop: str = "a") -> dict[str, Any]:
    return {"n": n, "shop": shop}


@pytest.mark.slow
@pytest.mark.parametrize("served", [True, False], ids=["a worker was there", "no worker was there"])
async def test_what_a_failed_run_hears_is_decided_when_it_is_passed_on(tmp_path, served):
    """A worker passes on what is published, and a failed run hears nothing. Without one it lies there until a retry."""
    broken = True

    @holdfast.agent
    async def fails() -> list[int]:
        heard = [(await holdfast.next_event("sold")).value["n"]]
        if broken:
            raise ValueError("not yet")
        return [*heard, (await holdfast.next_event("sold")).value["n"]]

    url = f"sqlite:{tmp_path / 'a.db'}"
    async with holdfast.open(url, agents=[fails], settings=QUICK) as hf:
        run = await hf.start(fails, id="r")
        await began(run)
        await hf.publish("sold", sale(1))
        await run.wait("failed")
    broken = False
    async with holdfast.open(url, agents=[ship] if served else ()) as hf:
        await hf.publish("sold", sale(2))
        while served and not await hf.runs(agent="ship"):  # which it starts when it is passed on
            await asyncio.sleep(0.01)
        await hf.get("r").retry()
    async with holdfast.open(url, agents=[fails], settings=QUICK) as hf:
        await hf.get("r").wait("waiting", "completed")
        await hf.publish("sold", sale(3))
        assert await hf.get("r").result() == [1, 3 if served else 2]


@pytest.mark.slow
async def test_a_run_that_was_moved_waits_in_its_new_store(tmp_path):
    """With what came to it before."""
    keys, file = holdfast.Keys(tmp_path / "keys"), tmp_path / "run.bundle"
    keys.new("ana")
    source, destination = f"sqlite:{tmp_path / '0.db'}", f"sqlite:{tmp_path / '1.db'}"
    async with holdfast.open(destination) as there:
        to = await there.store_id()
    async with holdfast.open(source, agents=[waits], settings=QUICK) as hf:
        run = await hf.start(waits, id="r")
        await began(run)
        await hf.publish("sold", sale(1))
        await began(run, "message.received")
        await run.wait("waiting", waits_for="message")
        await run.export(file, move=to, keys=keys)
        await hf.publish("sold", sale(2))  # it went before
    async with holdfast.open(destination, agents=[waits], settings=QUICK) as hf:
        await hf.publish("sold", sale(3))  # it comes later
        await hf.import_run(file, keys=keys)
        await hf.publish("sold", sale(4, "b"))
        await hf.publish("sold", sale(5))
        assert await hf.get("r").result(timeout=20) == [1, 5]


async def test_plain_code_publishes(tmp_path):
    def plain() -> tuple[holdfast.Published, holdfast.Published]:
        with holdfast.sync.open(f"sqlite:{tmp_path / 'runs.db'}", agents=[ship]) as hf:
            first, again = (hf.publish("sold", sale(7), key="k") for _ in range(2))
            with pytest.raises(holdfast.BadArguments, match="cannot name an announcement"):
                hf.publish("a b")
            return first, again

    first, again = await asyncio.to_thread(plain)
    assert first == again
    assert (first.created, first.before) == (True, None)
    assert (again.created, again.differs) == (False, False)
    assert again.before is not None and again.before.tzinfo is not None
    copied = pickle.loads(pickle.dumps(again))
    assert (copied, copied.before, copied.created) == (again, again.before, False)
    async with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}", agents=[ship]) as hf:
        async for event in hf.events():  # the worker before may not have come to it
            if event.kind == "run.completed":
                break
        assert await hf.get(f"ship@{first}").result(timeout=20) == 7
        deeds = [deed for deed in await hf.audit() if deed.action == "publish"]
        assert [deed.data["event"] for deed in deeds] == ["sold"]


async def test_a_sender_cannot_forge_an_announcement(tmp_path):
    async with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}", agents=[waits]) as hf:
        run = await hf.start(waits, id="r")
        with pytest.raises(holdfast.BadArguments, match="Holdfast's own"):
            await run.send(topic_of("sold", {"shop": "a"}), sale(1))
