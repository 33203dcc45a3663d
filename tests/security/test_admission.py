"""Who may do what: people who would decide about their own runs, names that look like groups, tokens past their time."""

import asyncio
import getpass
import json
import time
from unittest import mock

import pytest
from tests.security.conftest import with_store
from tests.workers import Worker, ask

import holdfast
from holdfast.words.people import Actor


@holdfast.agent(name="admission.pay")
async def pay(euros: int) -> str:
    said = await holdfast.approve("Pay?", show=euros, to=["ana", "bob", "group:payers"], not_by="starter")
    return f"paid, says {said.by}" if said else "kept"


@holdfast.agent(name="admission.errand")
async def errand(euros: int) -> str:
    return await pay(euros)


@holdfast.agent(name="admission.publish")
async def publish() -> bool:
    return bool(await holdfast.approve("Publish?", to="group:editors"))


AGENTS = [pay, errand, publish]


def at(url, main):
    async def opened():
        async with holdfast.open(url, agents=AGENTS) as hf:
            await asyncio.wait_for(main(hf), 50)

    asyncio.run(opened())


async def asked(hf, run):
    await run.wait("waiting", timeout="20s")
    while not (found := await hf.approvals(run=run.id)):
        await asyncio.sleep(0.01)
    return found[0]


@pytest.mark.by_day("sqlite-*")
@pytest.mark.parametrize("agent", ["admission.pay", "admission.errand"])
async def test_who_started_a_run_does_not_decide_it(commands, tmp_path, store_url, agent):
    """Neither by name, nor in another's from the same command line, nor by passing it on; also for what a child asks."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.acting_as(Actor("ana", via="cli:anita")).start(agent, 10)
        question = await asked(hf, run)
        assert question.not_by == ("ana", "anita")
        user = getpass.getuser()
        own = await asked(hf, await hf.acting_as(Actor(user, via=f"cli:{user}")).start(agent, 10))
        for words, said in (
            (("show", question.run), "started by ana"),
            (("approvals",), "not by ana, anita"),
            (("approvals",), "You started its run: another person decides it"),  # instead of commands that are refused
            (
                ("approve", own.id, "--by", "bob"),
                "another person is to decide, with a token or from an account of their own",
            ),
        ):
            told = Worker(commands.start([*words, "--db", store_url], tmp_path, {}))
            await asyncio.to_thread(told.ended)
            assert said in told.said()
        for by in ("ana", Actor("eve", ["payers"], via="cli:anita"), Actor("ana", ["payers"])):
            for attempt in (
                hf.approve(question, by=by),
                hf.deny(question, by=by),
                hf.delegate(question, to="carl", by=by),
            ):
                with pytest.raises(holdfast.NotAllowed, match="ana, anita started the run"):
                    await attempt
        with pytest.raises(holdfast.NotAllowed, match="'ana' started the run"):
            await hf.delegate(question, to="ana", by="bob")
        assert not question.is_for("ana") and question.is_for("bob")
        assert await hf.approvals(run=run.id, to="ana") == [] and len(await hf.approvals(run=run.id, to="bob")) == 1
        await hf.approve(question, by="bob")
        assert await run.result() == "paid, says bob"
        (started,) = await hf.audit(run=run.id, action="start")
        assert (started.by, started.via) == ("ana", "cli:anita")


async def test_where_nobody_knows_who_started_a_run_its_owner_decides(store_url):
    """A program that named nobody may have acted for anybody: only the command line of the store's owner is not left out."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        run = await hf.start("admission.pay", 10)
        question = await asked(hf, run)
        assert question.not_by == ("someone",)
        with pytest.raises(holdfast.NotAllowed, match=r"nobody knows who that was.*acting_as"):
            await hf.approve(question, by="bob")
        await hf.approve(question, by=Actor("bob", via="cli:bob"))
        assert await run.result() == "paid, says bob"


async def test_a_person_is_no_group(store_url):
    """A question to a group is not for one who is called so; new names that could be mistaken for a group are refused."""
    async with holdfast.open(store_url, agents=AGENTS) as hf:
        question = await asked(hf, await hf.start("admission.publish"))
        for by in ("editors", "group:editors", Actor("eve", ["group:editors"])):
            with pytest.raises(holdfast.NotAllowed):
                await hf.approve(question, by=by)
        assert await hf.approvals(to="editors") == []
        assert [each.id for each in await hf.approvals(to="group:editors")] == [question.id]
        await hf.create_token("ana", groups=["editors"])
        refused = [("editors", []), ("bob", ["ana"]), ("group:editors", []), ("bob", ["group:editors"])]
        refused += [
            ("ana ", []),
            (" ana", []),
            ("bob", ["editors\t"]),
        ]  # looks like another
        for name, groups in refused:
            with pytest.raises(holdfast.BadArguments):
                await hf.create_token(name, groups=groups)
        await hf.revoke_token("ana")
        await hf.create_token("editors")
        await hf.approve(question, by=Actor("ana", ["editors"]))


async def aged_token(hf, name, days, expires="90d"):
    """The secret of a token that was made so many days ago."""
    then = hf.store.clock.now() - int(days * 86_400_000)
    with mock.patch.object(type(hf.store.clock), "now", return_value=then):
        return (await hf.create_token(name, expires=expires))[1]


@pytest.mark.parametrize(
    ("expires", "days", "soon"),
    [
        ("90d", 75.9, False), ("90d", 76.1, True), ("57d", 42.9, False), ("57d", 43.1, True), ("13d", 0, False),
        ("40d", 29, False), ("40d", 31, True), ("1h", 0, False), ("1h", 0.7 / 24, False), ("1h", 0.8 / 24, True),
        ("10d", 11, False),
    ],
)  # fmt: skip
def test_a_token_is_warned_of_in_its_last_days(tmp_path, expires, days, soon):
    """Fourteen, or a quarter of its life: one that was made for an hour is not warned of all its life."""

    async def main(hf):
        await aged_token(hf, "ana", days, expires)
        (token,) = await hf.tokens()
        assert token.ends_soon() is soon

    ask(f"sqlite:{tmp_path}/runs.db", main)


def test_a_token_ends_by_itself(commands, store_url, tmp_path):
    """A new one after 90 days or when it was told to, and then it opens nothing; before that it is warned of."""

    def holdfast_says(*words):
        process = Worker(commands.start([*words, "--db", store_url], tmp_path, {}))
        process.ended()
        return process.said()

    made = json.loads(holdfast_says("token", "ana", "--expires", "400ms", "--json"))

    async def good(hf):
        return await hf.token_of(made["secret"]) is not None

    async def main(hf):
        _, usual = await hf.create_token("bob")
        soon = await aged_token(hf, "carl", days=77)
        _, always = await hf.create_token("dora", expires=None)
        found = [await hf.token_of(secret) for secret in (usual, soon, always)]
        assert [each and each.ends_soon() for each in found] == [False, True, False]
        days = [each.expires_at and (each.expires_at - each.created_at).days for each in found]
        assert days == [90, 90, None]
        await asyncio.sleep(0.4)

    ask(store_url, main)
    assert not ask(store_url, good)
    listed = holdfast_says("token", "--list")
    assert [word in listed for word in ("expired 20", "expires 20", "never expires")] == [True] * 3
    assert "of carl expires soon" in listed
    assert "of carl expires at" in holdfast_says("doctor")


def test_a_token_shows_its_last_use_and_its_end(server):
    """About when, so that not every request writes; the log of a server warns of one that ends soon, once."""
    secret = with_store(server, lambda hf: aged_token(hf, "carl", days=77))

    def used():
        return next(each.used_at for each in with_store(server, lambda hf: hf.tokens()) if each.name == "carl")

    assert used() is None
    assert server.ask("/api/runs", token=secret)[0] == 200
    server.process.until("of carl expires at")
    while (first := used()) is None:
        time.sleep(0.02)
    for _ in range(5):
        assert server.ask("/api/runs", token=secret)[0] == 200
    assert used() == first
    assert server.process.said().count("of carl expires at") == 1
