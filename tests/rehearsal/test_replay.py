"""Replays: the code of an agent against a recorded run, up to where one wants to look. Nothing runs and nothing is written."""

import asyncio
import dataclasses
import hashlib
import linecache
import sys
import types
from pathlib import Path

import apsw
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from tests.docs.pages import module
from tests.rehearsal import agents
from tests.rehearsal.agents import Order, both, look, parent, pay, rounds, shop, stumbles

import holdfast
import holdfast.testing
from holdfast import BadArguments, NondeterminismError, UnknownRun
from holdfast.integrations.pydantic_ai import HoldfastDurability
from holdfast.rehearsal.frames import LONGEST_VALUE, shown

ALL = [shop, both, rounds, stumbles, parent]


@pytest.fixture
def ledger(tmp_path):
    """A file in which every body that runs writes a line."""
    file = tmp_path / "ledger"
    file.touch()
    agents.LEDGER.append(file)
    yield file
    agents.LEDGER.remove(file)


async def ended(hf, run, status="waiting"):
    await run.wait(status)
    return run


def named(code, name="shop"):
    """An agent of that name, with this code."""
    return holdfast.agent(name=name)(code)


# Looking inside


async def test_variables_of_the_agent_where_it_waits():
    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
        found = await hf.replay("k", [shop])
    assert (found.verdict, found.seen, found.of) == ("fits", 2, 2)
    (frame,) = found.frames
    assert (frame.task, frame.function, Path(frame.file).name) == ("", "shop", "agents.py")
    assert frame.variables == {
        "item": "'kettle'",
        "order": "Order(item='kettle', price=6, tags=['new'])",
        "receipt": "'paid 6'",
    }
    assert linecache.getline(frame.file, frame.line).strip().startswith("answer = await")


async def test_a_replay_stops_at_an_event_or_at_a_call():
    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
        seen = {
            to: set((await hf.replay("k", [shop], to=to)).frames[0].variables) for to in (0, "pay#0", "pay", "look#0")
        }
    assert seen == {0: {"item", "order"}, "pay#0": {"item", "order"}, "pay": {"item", "order"}, "look#0": {"item"}}


async def test_every_task_has_its_frames():
    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(both, "cup", id="b"))
        found = await hf.replay("b", [both], to="one#1/look#0")
        later = await hf.replay("b", [both])
    assert {frame.task for frame in found.frames} == {"", "one#0", "one#1", "one#2"}
    assert [frame.variables["n"] for frame in found.frames if frame.task == "one#1"] == ["1"]
    held = [frame.variables.get("order") for frame in later.frames if frame.task == "one#1"]
    assert held == ["Order(item='cup 1', price=5, tags=['new'])"]


async def test_an_earlier_era_is_looked_at_too():
    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(rounds, 3, id="r"))
        first, second, last = [(await hf.replay("r", [rounds], to=to)) for to in ("look#0", "@1/look#0", None)]
    assert "price=0" in first.frames[0].variables["state"]
    assert "price=1" in second.frames[0].variables["state"]
    assert "price=3" in last.frames[0].variables["state"]
    assert first.fits and second.fits and last.fits


async def test_what_is_not_there_is_said_with_what_is():
    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
        for to, told in (
            (99, "from 0 to"),
            (-1, "no event -1"),
            ("pey#0", "did you mean 'pay#0'"),
            (True, "give the number"),
        ):
            with pytest.raises(BadArguments, match=told):
                await hf.replay("k", [shop], to=to)
        with pytest.raises(UnknownRun):
            await hf.replay("nobody", [shop])
        with pytest.raises(BadArguments, match="takes agents"):
            await hf.replay("k", [look])
        unknown = await hf.replay("k", [both])
    assert (unknown.verdict, unknown.fits) == ("unknown", False)


def test_values_are_shown_without_running_their_code():
    class Bomb:
        def __repr__(self):
            raise AssertionError

        __str__ = __getattr__ = __iter__ = __len__ = __eq__ = __hash__ = __repr__

    @dataclasses.dataclass
    class Holder:
        bomb: object

        def __repr__(self):
            raise AssertionError

    loop: list = []
    loop.append(loop)
    assert "Bomb" in shown(Bomb())
    assert shown(Holder(Bomb())).startswith("Holder(bomb=<")
    assert len(shown(loop)) < 60
    huge = shown(dict.fromkeys(range(100000), "x" * 1000000))
    assert len(huge) <= LONGEST_VALUE
    assert shown(10**5000).startswith("0x")
    assert shown("\x1b[2J") == repr("\x1b[2J")


# Nothing runs, and nothing is written


def contents(path):
    """Every row of every table of ours."""
    db = apsw.Connection(str(path))
    tables = [
        name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1").fetchall()
    ]
    made = {
        name: hashlib.sha256(repr(db.execute(f'SELECT * FROM "{name}"').fetchall()).encode()).hexdigest()
        for name in tables
    }
    db.close()
    return made


async def test_no_body_runs_and_nothing_is_written(tmp_path, ledger):
    """The bodies that would run next, and all others, would write a file; every table stays as it is."""
    file = tmp_path / "runs.db"
    async with holdfast.testing.open(agents=ALL, path=file) as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
        await ended(hf, await hf.start(both, "cup", id="b"))
        await ended(hf, await hf.start(parent, "pot", id="p"))
        async for _ in hf.events(kinds="approval.asked"):
            if len(await hf.approvals()) == 2:
                break
        await ended(hf, await hf.start(stumbles, "no", id="s"), "failed")
    before, bodies = contents(file), ledger.read_text()
    async with holdfast.open(f"sqlite:{file}") as hf:
        hf.store.refuses = "it is only looked at"
        checked = await hf.check(ALL)
        for run in ("k", "b", "p", "s"):
            for to in (0, None):
                assert (await hf.replay(run, ALL, to=to)).fits
    assert checked.fits
    assert len(checked.replays) == 5
    assert ledger.read_text() == bodies != ""
    assert contents(file) == before


async def test_a_replay_never_acts_at_the_edge(ledger):
    """The run was killed before its first body: the replay comes to that call, and does not make it."""

    @named
    async def waits(item: str) -> str:
        await holdfast.receive("go", str)
        return "never"

    async with holdfast.testing.open(agents=[waits]) as hf:
        await ended(hf, await hf.start(waits, "kettle", id="k"))
        await (hf.get("k")).send("go", "on")
        await hf.get("k").wait("completed")
        again = await hf.replay("k", [shop])
    assert again.verdict == "diverges"
    assert ledger.read_text() == ""


# What does not fit


async def test_a_finished_run_ends_as_it_ended():
    @named
    async def polite(item: str) -> str:
        order = await look(item)
        receipt = await pay(order)
        answer = await holdfast.approve("Send it?", show=receipt)
        return f"{receipt}, {'sent' if answer else 'kept'}, thank you"

    @named
    async def longer(item: str) -> str:
        order = await look(item)
        receipt = await pay(order)
        answer = await holdfast.approve("Send it?", show=receipt)
        await pay(order)
        return f"{receipt}, {'sent' if answer else 'kept'}"

    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(shop, "kettle", id="k")
        await hf.approve(await run.wait_for_question(), by="ana")
        assert await run.result() == "paid 6, sent"
        same, other, more = [await hf.replay("k", [code]) for code in (shop, polite, longer)]
    assert (same.verdict, same.result) == ("fits", "paid 6, sent")
    assert (other.verdict, other.result) == ("differs", "paid 6, sent, thank you")
    assert "paid 6, sent" in other.recorded and "thank you" in other.present
    assert more.verdict == "diverges"
    assert "pay" in more.present


async def test_a_failed_run_fails_as_it_failed():
    @named
    async def mended(text: str) -> str:
        try:
            await agents.fails(text)
        except ValueError as error:
            await pay(Order(str(error)))
        return "mended"

    mended = holdfast.agent(name="stumbles")(mended.fn)
    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(stumbles, "no", id="s"), "failed")
        same, other = [await hf.replay("s", [code]) for code in (stumbles, mended)]
    assert (same.verdict, same.error) == ("fits", "ValueError: no")
    assert (other.verdict, other.result) == ("differs", "mended")


async def test_arguments_that_no_longer_fit_are_told():
    @named
    async def other(item: str, many: int) -> str:
        return item * many

    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
        found = await hf.replay("k", [other])
    assert found.verdict == "unfit"
    assert "many" in found.present
    assert found.line.startswith("tests/rehearsal/test_replay.py:")


async def test_a_state_with_a_field_that_is_gone_is_refused_and_migrated(ledger):
    """Before any effect: a field that the new type lacks, or does not know, stops the run; `migrate=` carries it over."""

    @dataclasses.dataclass
    class Slim:
        item: str = ""

    @dataclasses.dataclass
    class Renamed:
        item: str = ""
        cost: int = 0

    def version(kind, migrate=None):
        @holdfast.agent(name="rounds")
        async def code(count: int) -> int:
            state = await holdfast.restore(kind(), migrate=migrate)
            await look("y")
            await holdfast.checkpoint(state)
            return 0

        return code

    def carried(old):
        return {"item": old["item"], "cost": old["price"]}

    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(rounds, 2, id="r"))
        bodies = ledger.read_text()
        slim, renamed = [await hf.replay("r", [version(kind)]) for kind in (Slim, Renamed)]
        migrated = await hf.replay("r", [version(Renamed, carried)])
        assert ledger.read_text() == bodies
    assert (slim.verdict, renamed.verdict) == ("unfit", "unfit")
    assert slim.present.endswith("Slim has no field 'price'; the fields are: item")
    assert renamed.present.endswith("Renamed has no field 'price'; the fields are: item, cost")
    assert migrated.fits
    assert migrated.frames[0].variables["state"] == "Renamed(item='none', cost=2)"


async def test_a_child_is_replayed_by_itself_and_in_its_parent():
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(parent, "pot", id="p")
        async for _ in hf.events(kinds="approval.asked"):
            break
        checked = await hf.check([parent])
        assert sorted(found.agent for found in checked.replays) == ["parent", "shop"]
        assert checked.fits
        await hf.approve((await hf.approvals())[0], by="ana")
        assert await run.result() == "paid 3, sent!"
        assert (await hf.replay("p", [parent])).result == "paid 3, sent!"


async def test_a_cancelled_run_is_replayed_to_its_end():
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await ended(hf, await hf.start(shop, "kettle", id="k"))
        await run.cancel(by="ana")
        await run.wait("cancelled")
        assert (await hf.replay("k", [shop])).fits


async def test_code_that_waits_for_raw_things_cannot_be_told():
    """A wait for what no journal has: the replay does not wait for ever, and says where the code is."""
    never = asyncio.Event()

    @named
    async def raw(item: str) -> str:
        await look(item)
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        await never.wait()
        return "never"

    async with holdfast.testing.open(agents=ALL) as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
        found = await hf.replay("k", [raw])
    assert found.verdict in ("diverges", "unsure")
    assert "test_replay.py" in found.line


async def test_patched_code_is_accepted_before_and_behind_its_line():
    @named
    async def guarded(item: str) -> str:
        order = await look(item)
        receipt = await pay(order)
        answer = await holdfast.approve("Send it?", show=receipt)
        if holdfast.patched("twice"):
            await pay(order)
        return f"{receipt}, {'sent' if answer else 'kept'}"

    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(shop, "kettle", id="k")
        await run.wait_for_question()
        assert (await hf.replay("k", [guarded])).fits


# In tests


def test_a_run_is_a_regression_test_in_three_lines(tmp_path):
    async def recorded():
        async with holdfast.testing.open(agents=ALL, path=tmp_path / "prod.db") as hf:
            run = await hf.start(shop, "kettle", id="k")
            await hf.approve(await run.wait_for_question(), by="ana")
            await run.result()

    @named
    async def changed(item: str) -> str:
        await pay(await look(f"{item}!"))
        return "sent"

    asyncio.run(recorded())
    store = f"sqlite:{tmp_path}/prod.db"
    assert holdfast.testing.replay(store, "k", [shop]).result == "paid 6, sent"
    with pytest.raises(
        NondeterminismError, match=r"test_replay.py:\d+: run 'k': the journal has step.completed of look"
    ):
        holdfast.testing.replay(store, "k", [changed])


def test_a_bundle_is_a_regression_test_too(tmp_path, monkeypatch):
    """It needs no store; one that nobody trusted has signed is refused, and a store that is not there is not made."""
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "keys"))
    holdfast.Keys().new("ana")
    file = tmp_path / "k.bundle"

    async def recorded():
        async with holdfast.testing.open(agents=ALL) as hf:
            run = await ended(hf, await hf.start(shop, "kettle", id="k"))
            await run.export(file)

    asyncio.run(recorded())
    before = file.read_bytes()
    assert holdfast.testing.replay(file, agents=[shop]).fits
    assert holdfast.testing.replay(file, agents=[shop], to=0).seen == 1
    with pytest.raises(NondeterminismError):
        holdfast.testing.replay(file, agents=[named(both.fn)])
    with pytest.raises(BadArguments, match="no bundle"):
        holdfast.testing.replay(f"sqlite:{tmp_path}/none.db", agents=[shop])
    with pytest.raises(holdfast.StoreUnavailable, match="there is no store"):
        holdfast.testing.replay(f"sqlite:{tmp_path}/none.db", "k", [shop])
    assert file.read_bytes() == before
    assert not (tmp_path / "none.db").exists()
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "others"))
    with pytest.raises(holdfast.BadBundle):
        holdfast.testing.replay(file, agents=[shop])


async def test_frames_of_a_framework_are_not_shown_beside_the_users():
    """Where tasks of a framework wait for what the agent's own code asked for, its own code is what is looked at."""
    clerk = Agent(TestModel(), name="clerk", capabilities=[HoldfastDurability()])

    @holdfast.agent
    async def desk(question: str) -> list[str]:
        return [each.output for each in await asyncio.gather(clerk.run(question), clerk.run("and?"))]

    async with holdfast.testing.open(agents=[desk]) as hf:
        await (await hf.start(desk, "where?", id="d")).result()
        found = await hf.replay("d", [desk], to="clerk.model")
    assert [frame.function for frame in found.frames] == ["desk"]


def test_the_page_has_such_a_test(tmp_path, monkeypatch):
    @holdfast.agent
    async def orders(item: str) -> str:
        return (await pay(await look(item))).replace("paid 6", "shipped")

    async def recorded():
        async with holdfast.testing.open(agents=[orders], path=tmp_path / "orders.db") as hf:
            await (await hf.start(orders, "kettle", id="order-42")).result()

    asyncio.run(recorded())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "app", types.SimpleNamespace(orders=orders))
    page = module("docs/time-travel.md", "time travel: regression")
    page.test_the_order_of_last_tuesday()


async def test_a_run_that_cannot_be_set_up_keeps_no_other_from_being_checked(tmp_path):
    async with holdfast.testing.open(agents=ALL, path=tmp_path / "runs.db") as hf:
        for name in ("a", "b"):
            await ended(hf, await hf.start(shop, "kettle", id=name))
    db = apsw.Connection(str(tmp_path / "runs.db"))
    db.execute("UPDATE runs SET uid = 'none' WHERE id = 'a'")
    db.close()
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        checked = await hf.check(ALL)
    assert {found.run: found.verdict for found in checked.replays} == {"a": "unsure", "b": "fits"}
    assert "cannot be set up: ValueError" in checked.replays[1].reason + checked.replays[0].reason


async def test_a_regression_test_may_be_async(tmp_path):
    async with holdfast.testing.open(agents=ALL, path=tmp_path / "prod.db") as hf:
        await ended(hf, await hf.start(shop, "kettle", id="k"))
    assert holdfast.testing.replay(f"sqlite:{tmp_path}/prod.db", "k", [shop], to="pay").fits


# Checking


async def test_check_names_runs_pages_through_them_and_samples_the_finished():
    async with holdfast.testing.open(agents=ALL) as hf:
        for n in range(5):
            run = await hf.start(shop, f"item {n}", id=f"done-{n}")
            await hf.approve(await run.wait_for_question(), by="ana")
            await run.result()
        for n in range(3):
            await ended(hf, await hf.start(shop, f"open {n}", id=f"open-{n}"))
        every = await hf.check(ALL)
        some = await hf.check(ALL, finished=2)
        one = await hf.check(ALL, runs=["open-1", "open-1"])
        with pytest.raises(UnknownRun):
            await hf.check(ALL, runs=["nobody"])
        with pytest.raises(BadArguments, match="finished="):
            await hf.check(ALL, finished=-1)
    assert [found.run for found in every.replays] == [
        "open-2",
        "open-1",
        "open-0",
        *(f"done-{n}" for n in (4, 3, 2, 1, 0)),
    ]
    assert [found.run for found in some.replays] == ["open-2", "open-1", "open-0", "done-4", "done-3"]
    assert [found.run for found in one.replays] == ["open-1"]
