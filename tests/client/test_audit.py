"""The audit: every deed from outside, over every door, with what was approved; and how values are taken out of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.store.migrate import known, migrate
from holdfast.words.people import Actor
from holdfast.worker.settings import Settings

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_every_deed_from_outside_is_in_the_audit",
    "test_the_audit_comes_in_pages_and_by_who_and_what",
    "test_values_are_erased_while_the_row_stays",
}


@dataclass
class Transfer:
    to: str
    euros: int


@holdfast.agent(name="audited.pay")
async def pay(transfer: Transfer) -> str:
    decision = await holdfast.approve("Pay this?", show=transfer, edit=True)
    return f"paid {decision.data.euros}" if decision else f"kept: {decision.note}"


@holdfast.agent(name="audited.listens")
async def listens() -> Any:
    return await holdfast.receive("word")


@holdfast.agent(name="audited.asks")
async def asks() -> int:
    return await holdfast.ask("How many?", int)


@holdfast.agent(name="audited.family")
async def family() -> Any:
    return await listens()


@holdfast.agent(name="audited.large")
async def large() -> bool:
    return bool(await holdfast.approve("All of this?", show="x" * 200_000))


AGENTS = [pay, listens, asks, family, large]


def at(url, main, **options):
    async def opened():
        async with holdfast.open(url, agents=AGENTS, **options) as hf:
            await asyncio.wait_for(main(hf), 50)

    asyncio.run(opened())


def told(deeds):
    return [(deed.run, deed.by, deed.via, deed.action) for deed in reversed(deeds)]


async def test_every_deed_from_outside_is_in_the_audit(store_url):
    """Starts, messages, deletions and tokens as well as what is done to runs; each names who and the door."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        bot = hf.acting_as("bot")
        run = await bot.start(listens, id="r")
        assert not (await bot.start(listens, id="r")).created  # the same run: nobody started another
        await run.wait("waiting")
        await run.pause(by="ana", reason="lunch")
        await run.resume()
        await bot.get("r").send("word", "hello", key="k")
        await bot.get("r").send("word", "hello", key="k")
        assert await run.result() == "hello"
        await hf.acting_as(Actor("cy", via="chat")).get("r").delete()
        token, _ = await bot.create_token("dashboard", scopes=["read"])
        await hf.revoke_token("dashboard")
        await hf.revoke_token("dashboard")
        assert told(await hf.audit()) == [
            ("r", "bot", "python", "start"),
            ("r", "ana", "python", "pause"),
            ("r", "bot", "python", "resume"),
            ("r", "bot", "python", "send"),
            ("r", "cy", "chat", "delete"),
            ("", "bot", "python", "create_token"),
            ("", "someone", "python", "revoke_token"),
        ]
        start, _, _, send, _, made, revoked = reversed(await hf.audit())
        assert start.data == {"agent": "audited.listens"}
        assert send.data == {"topic": "word", "position": 1}
        assert made.data == {
            "token": token.id,
            "name": "dashboard",
            "groups": [],
            "scopes": ["read"],
            "expires_at": round(token.expires_at.timestamp() * 1000),
        }
        assert revoked.data == {"token": token.id, "name": "dashboard"}


async def test_a_run_that_another_run_starts_is_in_its_journal_and_not_in_the_audit(store_url):
    """Nobody from outside did it."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.start(family, id="r")
        await run.wait("waiting")
        assert told(await hf.audit()) == [("r", "someone", "python", "start")]


async def test_runs_that_are_pruned_leave_a_row_each(store_url):
    """With how many runs went, so that an id that is not there any more can be explained."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        for name in ("a", "b"):
            run = await hf.start(family, id=name)
            await run.wait("waiting")
            (child,) = await hf.runs(parent=name)
            await hf.get(child.id).send("word", 1)
            await run.result()
        gone = 0
        while gone < 2:  # what ended in this very millisecond is not older than no time
            gone += await hf.acting_as("cron").prune(0)
        pruned = await hf.audit(action="prune")
        assert sorted((deed.run, deed.by, deed.data["runs"]) for deed in pruned) == [("a", "cron", 2), ("b", "cron", 2)]


async def test_a_decision_says_what_was_approved_or_denied(store_url):
    """The value itself, as edited, also when the run is gone; and the door in a column of its own."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        for name in ("yes", "edited", "no"):
            await (await hf.start(pay, Transfer("bo", 30), id=name)).wait("waiting")
        await hf.approve("yes", by="cli:root")  # a name that looks like a door
        await hf.approve("edited", by=Actor("ana", via="cli:root"), data={"to": "bo", "euros": 5})
        await hf.deny("no", by="ben", note="too much")
        for name in ("yes", "edited", "no"):
            await hf.get(name).result()
            await hf.get(name).delete()
        found = {deed.run: deed for deed in await hf.audit(action=["approve", "deny"])}
        assert [(deed.by, deed.via, deed.action) for deed in (found["yes"], found["edited"], found["no"])] == [
            ("cli:root", "python", "approve"), ("ana", "cli:root", "approve"), ("ben", "python", "deny"),
        ]  # fmt: skip
        values = [found[name].value for name in ("yes", "edited", "no")]
        assert values == [{"to": "bo", "euros": 30}, {"to": "bo", "euros": 5}, {"to": "bo", "euros": 30}]
        assert found["no"].data["note"] == "too much"


async def test_an_answer_is_in_the_audit_with_its_value(store_url):
    """A question to a person is answered, and not approved."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.start(asks, id="r")
        await run.wait("waiting")
        await hf.answer("r", 7, by="ana")
        await run.result()
        (deed,) = await hf.audit(action="answer")
        assert (deed.by, deed.value, deed.data["question"]) == ("ana", 7, "How many?")


async def test_a_large_value_that_was_approved_outlives_its_run(store_url):
    """It is kept once, and goes when the audit forgets it too."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.start(large, id="r")
        await run.wait("waiting")
        await hf.approve("r", by="ana")
        assert await run.result() is True
        await run.delete()
        (deed,) = await hf.audit(action="approve")
        assert deed.value == "x" * 200_000
        assert (await hf.store.facts())["blobs"] == 1
        assert await hf.erase_audit(run="r") == 1
        assert (await hf.store.facts())["blobs"] == 0


async def test_values_are_erased_while_the_row_stays(store_url):
    """Who, when and what was done stay, and the digest; what was shown and all free text go, and that is in the audit too."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        for name in ("a", "b"):
            await (await hf.start(pay, Transfer("bo", 30), id=name)).wait("waiting")
            await hf.deny(name, by="ana", note="bo is ill")
            await hf.get(name).result()
        (before,) = await hf.audit(run="a", action="deny")
        assert await hf.acting_as("officer").erase_audit(run="a") == 1
        (after,) = await hf.audit(run="a", action="deny")
        assert (after.id, after.at, after.by, after.via) == (before.id, before.at, before.by, before.via)
        assert (after.value, after.data["digest"]) == (None, before.data["digest"])
        assert before.erased_at is None and after.erased_at is not None
        assert "ill" not in json.dumps(after.data) and "question" not in after.data
        (kept,) = await hf.audit(run="b", action="deny")
        assert kept.value == {"to": "bo", "euros": 30}
        (erasing,) = await hf.audit(action="erase")
        assert (erasing.by, erasing.data) == ("officer", {"deeds": 1, "run": "a"})
        assert await hf.erase_audit(run="a") == 0
        assert await hf.erase_audit(older_than="1d") == 0
        assert await hf.erase_audit(by="ana") == 1
        with pytest.raises(holdfast.BadArguments, match="say which: run=, by= or older_than="):
            await hf.erase_audit()


async def test_a_worker_erases_values_when_their_time_is_over(store_url):
    """The setting names how long they stay; the rows stay for good."""
    async with holdfast.open(store_url, agents=AGENTS, settings=Settings(audit_retention_s=0)) as hf:
        run = await hf.start(pay, Transfer("bo", 30), id="r")
        await run.wait("waiting")
        await hf.approve("r", by="ana")
        while (await hf.audit(action="approve"))[0].erased_at is None:
            await asyncio.sleep(0.01)
        (deed,) = await hf.audit(action="erase")
        assert (deed.by, deed.via) == ("retention", "worker")


async def test_the_audit_comes_in_pages_and_by_who_and_what(store_url):
    """The id of the last deed of a page is where the next one begins."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        for number in range(5):
            await hf.acting_as("ana" if number % 2 else "ben").start(listens, id=f"r{number}")
        pages, before = [], None
        while page := await hf.audit(before=before, limit=2):
            pages.append([deed.run for deed in page])
            before = page[-1].id
        assert pages == [["r4", "r3"], ["r2", "r1"], ["r0"]]
        assert [deed.run for deed in await hf.audit(by="ana")] == ["r3", "r1"]
        assert [deed.run for deed in await hf.audit(by="ben", action="start", limit=1)] == ["r4"]
        assert await hf.audit(action="delete") == []


@pytest.mark.slow
@pytest.mark.by_day("sqlite")
def test_the_command_line_is_a_door(commands, store_url, tmp_path):
    """What is done there says which user of the computer did it, whatever name was given."""
    from tests.processes.office import Office

    office = Office(commands, store_url, tmp_path)

    async def start(hf):
        await hf.acting_as("ana").start("audited.listens", id="r")

    at(store_url, start)
    office.say("send", "r", "word", "1")
    office.say("cancel", "r", "--by", "cy", "--grace", "0s")
    office.say("token", "bo")
    assert office.say("start", "audited.listens", "--id", "s").strip().endswith("s")
    (started,) = office.ask(lambda hf: hf.audit(run="s"))
    assert (started.action, started.via.partition(":")[0]) == ("start", "cli")
    rows = office.ask(lambda hf: hf.audit())
    doors = {deed.action: (deed.by, deed.via.partition(":")[0]) for deed in rows}
    assert doors["cancel"] == ("cy", "cli")
    assert {doors["send"][1], doors["create_token"][1]} == {"cli"}
    assert doors["send"][0] == next(deed.via for deed in rows if deed.action == "send").partition(":")[2]


async def test_rows_of_the_first_schema_are_read_and_erased(tmp_path):
    """A store that was made before doors and values had columns goes on, with what its rows said."""
    path = tmp_path / "old.db"
    db = apsw.Connection(str(path))
    migrate(db, 0, known()[:1])
    said = {"approval": "q", "decision": "denied", "by": "ana", "note": "ill", "votes": [{"by": "ana", "note": "ill"}]}
    row = "INSERT INTO audit (at, run_id, actor, action, data) VALUES (1, 'r', 'cli:root', 'decide', ?)"
    db.execute(row, (json.dumps(said),))
    db.close()

    async with holdfast.open(f"sqlite:{path}", agents=AGENTS) as hf:
        (deed,) = await hf.audit(run="r")
        assert (deed.by, deed.via, deed.action, deed.value, deed.data) == ("cli:root", "", "decide", None, said)
        assert await hf.erase_audit(run="r") == 1
        (deed,) = await hf.audit(run="r")
        assert deed.data == {"approval": "q", "decision": "denied", "by": "ana", "votes": [{"by": "ana"}]}
