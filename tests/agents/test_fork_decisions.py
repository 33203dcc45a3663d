"""Decisions that forks are given, what forks of forks have from them, and requests that cannot be met, on both stores."""

from __future__ import annotations

import pytest
from tests.agents.runs import history, kinds

import holdfast
from holdfast import BadArguments, NotAllowed, RunExists, RunFailed

RAN: list[str] = []
BROKEN: set[str] = set()
HALF = "\ud800"

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_an_id_means_one_request",
    "test_text_that_no_database_takes_names_nothing",
}


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()
    BROKEN.clear()


@pytest.fixture
def opened(store_url):
    return lambda *agents: holdfast.open(store_url, agents=agents)


@holdfast.step
async def price() -> int:
    RAN.append("price")
    return 30


@holdfast.step
async def work(what: str) -> str:
    RAN.append(what)
    if what in BROKEN:
        raise ValueError(what)
    return what


# Decisions


async def test_a_fork_gets_round_no_rule_of_a_question(opened):
    """What deciding the question itself would refuse, a fork is refused too."""

    @holdfast.agent
    async def scaled() -> object:
        return (await holdfast.approve("pay?", show={"n": 1}, edit=True, needs=lambda v: 1 if v["n"] < 9 else 2)).data

    @holdfast.agent
    async def fixed() -> bool:
        return bool(await holdfast.approve("pay?", show={"n": 1}, to=["boss"]))

    @holdfast.agent
    async def both() -> bool:
        return bool(await holdfast.approve("pay?", needs=2))

    @holdfast.agent
    async def number() -> int:
        return await holdfast.ask("how many?", int, to=["boss"])

    def edited(value):
        return {":approve#0": {"yes": True, "value": value}}

    async with opened(scaled, fixed, both, number) as hf:
        run = await hf.start(scaled, id="scaled")
        await run.wait_for_question()
        for value in ({"n": 5000}, {"n": 2}):  # how many must agree to these only the run knows
            with pytest.raises(BadArguments, match=r"more than one person.*at=':approve#0'; the fork then asks"):
                await run.fork(replace=edited(value), by="ana")
        for replace in ({":approve#0": True}, edited({"n": 1})):
            assert await (await run.fork(replace=replace, by="ana")).result() == {"n": 1}

        run = await hf.start(fixed, id="fixed")
        question = await run.wait_for_question()
        await hf.delegate(question, to="deputy", by="boss")
        await hf.deny(question, by="deputy")
        assert await run.result() is False
        with pytest.raises(NotAllowed, match="passed question"):
            await run.fork(replace={":approve#0": True}, by="boss")
        with pytest.raises(BadArguments, match="cannot be edited"):
            await run.fork(replace=edited({"n": 2}), by="deputy")
        for bad in ("yes", {"yes": False, "value": {"n": 1}}, {"yes": True, "more": 1}):
            with pytest.raises(BadArguments, match="does not decide"):
                await run.fork(replace={":approve#0": bad}, by="deputy")
        with pytest.raises(BadArguments, match="a note is text"):
            await run.fork(replace={":approve#0": {"yes": True, "note": 5}}, by="deputy")
        assert await (await run.fork(replace={":approve#0": True}, by="deputy")).result() is True

        run = await hf.start(both, id="both")
        await run.wait_for_question()
        with pytest.raises(BadArguments, match="more than one person"):
            await run.fork(replace={":approve#0": True}, by="ana")
        assert await (await run.fork(replace={":approve#0": False}, by="ana")).result() is False  # one may deny it

        run = await hf.start(number, id="number")
        await run.wait_for_question()
        with pytest.raises(NotAllowed):
            await run.fork(replace={":ask#0": "many"}, by="eve")
        with pytest.raises(BadArguments, match="expected integer"):
            await run.fork(replace={":ask#0": "many"}, by="boss")
        assert await (await run.fork(replace={":ask#0": 7}, by="boss")).result() == 7


async def test_a_question_that_is_not_here_is_not_decided_by_a_fork(opened, tmp_path):
    """Its rules went with its run. The fork from before it asks."""

    @holdfast.agent
    async def pays() -> bool:
        return bool(await holdfast.approve("pay?", to=["boss"]))

    ring = holdfast.Keys(tmp_path / "keys")
    ring.new("ops")
    async with opened(pays) as hf, holdfast.open(f"sqlite:{tmp_path}/there.db", agents=[pays]) as there:
        run = await hf.start(pays, id="r")
        await hf.deny(await run.wait_for_question(), by="boss")
        assert await run.result() is False
        fork = await run.fork(id="f", by="eve")
        given = await run.fork(id="given", replace={":approve#0": True}, by="boss")
        assert (await fork.result(), await given.result()) == (False, True)
        await run.export(tmp_path / "copy", keys=ring)
        await there.import_run(tmp_path / "copy", keys=ring, id="c")
        await run.delete()
        for client, name in ((hf, "f"), (there, "c")):
            with pytest.raises(BadArguments, match=r"not in this store.*at=':approve#0'; the fork then asks"):
                await client.get(name).fork(replace={":approve#0": True}, by="boss")
            again = await client.get(name).fork(at=":approve#0", by="eve")
            with pytest.raises(NotAllowed):
                await client.approve(await again.wait_for_question(), by="eve")
        with pytest.raises(BadArguments, match="at=1; the fork then asks"):
            await given.fork(replace={":approve#0": False}, by="boss")
        asks = await given.fork(at=1, by="boss")
        assert (await asks.wait_for_question()).to == ("boss",)


async def test_a_decision_holds_for_what_was_shown_alone(opened):
    """What a fork asks otherwise, or asks others, is put to people, in a fork of the fork too."""

    @holdfast.agent
    async def pays(to: str = "ana") -> str:
        cost = await price()
        await holdfast.receive("go", str)
        return f"{cost} {bool(await holdfast.approve('pay?', show=cost, to=[to]))}"

    async with opened(pays) as hf:
        run = await hf.start(pays, id="r")
        await run.wait("waiting", waits_for="message")
        await run.send("go", "now")
        await hf.deny(await run.wait_for_question(), by="ana")
        assert await run.result() == "30 False"
        first = await run.fork(at=1, replace={":approve#0": True}, by="ana", id="f", effects="new")
        await first.wait("waiting", waits_for="message")
        same = await first.fork(by="eve", effects="new")  # the decision is carried on, for the same
        dearer = await run.fork(replace={"price": 9000, ":approve#0": True}, by="ana", effects="new")
        others = await run.fork(replace={"arguments": {"to": "boss"}, ":approve#0": True}, by="ana", effects="new")
        for each in (first, same, dearer, others):
            await each.send("go", "now")
        assert (await first.result(), await same.result()) == ("30 True", "30 True")
        assert (await dearer.wait_for_question()).shown == 9000
        assert (await others.wait_for_question()).to == ("boss",)


# Forks of forks


async def test_what_a_fork_has_not_come_to_yet_is_carried_on(opened, tmp_path):
    """A step's result, a message and the end of a child, to a fork of the fork and to a copy of it."""

    @holdfast.agent
    async def adds(n: int) -> int:
        RAN.append("adds")
        return n + 1

    @holdfast.agent
    async def shop() -> list[object]:
        child = await holdfast.spawn(adds, 1)
        first = await holdfast.receive("go", str)
        return [first, await price(), await holdfast.receive("news", str), await child]

    ring = holdfast.Keys(tmp_path / "keys")
    ring.new("ops")
    async with opened(shop, adds) as hf, holdfast.open(f"sqlite:{tmp_path}/there.db", agents=[shop, adds]) as there:
        run = await hf.start(shop, id="r")
        await run.send("go", "x")
        await run.send("news", "old")
        assert await run.result() == ["x", 30, "old", 2]
        news = next(each.seq for each in await history(hf, "r") if each.data.get("topic") == "news")
        instead = {"price": 10, f"message:{news}": "put", ":spawn.adds#0": 70}
        spawned = next(each.seq for each in await history(hf, "r") if each.kind == "child.spawned")
        fork = await run.fork(at=spawned + 1, replace=instead, id="f", effects="new")
        made = [fork]
        for name in ("g", "h"):  # before any of it came
            await made[-1].wait("waiting", waits_for="message")
            forked = max(each.seq for each in await history(hf, made[-1].id) if each.kind == "run.forked")
            made.append(await made[-1].fork(at=forked + 1, id=name, effects="new"))
        made.append(await fork.fork(id="i", effects="new"))  # behind what came
        await fork.export(tmp_path / "copy", keys=ring, effects="new")
        await there.import_run(tmp_path / "copy", keys=ring, id="c")
        for each in (*made, there.get("c")):
            await each.send("go", "y")
            assert await each.result(timeout=20) == ["y", 10, "put", 70], each.id
        assert (RAN.count("price"), RAN.count("adds")) == (1, 1)


# The point, and the request


async def test_a_conversation_that_was_entered_is_a_point(opened):
    @holdfast.agent
    async def talks() -> str:
        async with holdfast.conversation("c", str) as talk:
            await talk.add("one")
            return await work("in")

    async with opened(talks) as hf:
        BROKEN.add("in")
        run = await hf.start(talks, id="r")
        with pytest.raises(RunFailed):
            await run.result()
        BROKEN.clear()
        entered = next(each.seq for each in await history(hf, "r") if each.kind == "conversation.entered")
        fork = await run.fork(at=":conversation#0", id="f", effects="new")
        assert {each.id: each.at for each in await run.forks()}["f"] == entered
        assert await fork.result() == "in"
        await run.retry(at=":conversation#0", effects="new", by="ana")
        assert await run.result() == "in"
        assert (await kinds(hf, "r")).count("conversation.entered") == 1
        assert RAN == ["in", "in", "in"]


async def test_an_id_means_one_request(opened):
    """The same again is the same fork, however far the other run has gone; another request is told how it differs."""

    @holdfast.agent
    async def shop() -> int:
        cost = await price()
        await holdfast.receive("go", str)
        return cost

    async with opened(shop) as hf:
        run = await hf.start(shop, id="r")
        await run.wait("waiting", waits_for="message")
        fork = await run.fork(id="f", effects="new")
        cheap = await run.fork(replace={"price": 10}, id="cheap", effects="new")
        await run.send("go", "x")
        await run.result()
        for again in (
            await run.fork(id="f", effects="new"),
            await run.fork(replace={"price": 10}, id="cheap", effects="new"),
        ):
            assert not again.created
        for request, told in (
            ({"at": 0, "effects": "new"}, "made with at=None, before event 1, and not with at=0"),
            ({"replace": {"price": 20}, "effects": "new"}, "replaces nothing, and not price: 20"),
            ({}, "effects='new', and not with 'ask'"),
        ):
            with pytest.raises(RunExists, match=told):
                await run.fork(id=fork.id, **request)
        with pytest.raises(RunExists, match="replaces price#0: 10, and not price: 11"):
            await run.fork(replace={"price": 11}, id=cheap.id, effects="new")
        with pytest.raises(BadArguments, match="no fork of"):
            await fork.fork(id=cheap.id)


async def test_text_that_no_database_takes_names_nothing(opened):
    @holdfast.agent
    async def shop() -> int:
        return await price()

    async with opened(shop) as hf:
        run = await hf.start(shop, id="r")
        await run.result()
        for name in (HALF, "\0", f"price{HALF}", "pri\0ce", "price#0\0"):
            with pytest.raises(BadArguments, match="no database takes"):
                await run.fork(at=name)
            with pytest.raises(BadArguments, match="no database takes"):
                await run.fork(replace={name: 1})
            with pytest.raises(BadArguments, match="no database takes"):
                await run.retry(at=name)
            with pytest.raises(BadArguments, match="no database takes"):
                await run.step(name)
        for place in (-1, True, 2**70):
            with pytest.raises(BadArguments):
                await run.state(at=place)
        assert await run.state(at=0) is None
