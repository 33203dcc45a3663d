"""Cells: where a run lives, what is put together, and what is refused."""

import asyncio

import pytest
from tests.cells import cell_urls, cells_url, written  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.cells import ownership
from holdfast.backends.cells.plan import read_plan
from holdfast.backends.cells.slots import SLOTS, key_slot, parsed, placed, slot_of, spelled
from holdfast.backends.cells.store import CellsStore
from holdfast.store.store import Store
from holdfast.words.limits import Lane

pytestmark = pytest.mark.slow


@holdfast.step
async def double(n: int) -> int:
    return n * 2


@holdfast.agent
async def child(n: int) -> int:
    return await double(n)


@holdfast.agent
async def parent(n: int) -> int:
    if n == 7:
        await holdfast.approve("go on?")
    return await child(n) + await double(n)


@holdfast.agent
async def waits() -> str:
    return await holdfast.receive("go", str)


def names(n):
    return [f"run-{each}" for each in range(n)]


# Slots


def test_a_family_its_forks_and_a_schedule_have_one_slot():
    assert {slot_of(f"acme{rest}") for rest in ("", ".child-1", ".fork-2.child-9", "@2026-11-15T07:00:00Z")} == {
        slot_of("acme")
    }
    assert len({slot_of(name) for name in names(200)}) > 150


def test_a_generated_id_says_its_slot_and_follows_the_key_that_counts_it():
    assert slot_of(placed("report-0123abcd", Lane())) == slot_of(placed("report-0123abcd", Lane()))
    lane = Lane(singleton_key="report alone.7")
    assert slot_of(placed("my.report-0123abcd", lane)) == key_slot("report alone.7")
    assert placed("report-0123abcd", lane).endswith("-0123abcd")


def test_ranges_are_read_and_written():
    assert parsed("0-2, 7") == [0, 1, 2, 7]
    assert spelled([7, 0, 1, 2]) == "0-2, 7"
    for wrong in ("9-1", "1024", "a", "1,1"):
        with pytest.raises(holdfast.BadArguments):
            parsed(wrong)


async def test_a_database_computes_the_slots_that_we_compute(cells_url):  # noqa: F811
    tried = [
        *names(300),
        "a.b",
        "@x",
        ".x",
        "report-x1ff-0123abcd",
        "report-x1ff-0123abcd.c-1",
        "report-x4ff-0123abcd",
        "ü",
    ]
    async with holdfast.open(cells_url) as hf:
        cell = hf.store.cells.made["a"]
        slots = f'SELECT "{ownership.schema_of(cell.schema)}".slot_of(name)'
        asked = f"{slots} FROM unnest($1::text[]) WITH ORDINALITY AS tried (name, n) ORDER BY n"
        found = await cell.ask(lambda db: db.fetch(asked, tried))
    assert [row[0] for row in found] == [slot_of(name) for name in tried]


def test_every_method_of_a_store_goes_somewhere():
    """One that was left out would read a database that a set of cells has not."""
    own = {"check_agent", "is_backup", "on_change", "refusal"}
    public = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))} - own
    assert {name for name in public if getattr(CellsStore, name) is getattr(Store, name)} == set()


# Runs


async def test_runs_of_all_cells_are_listed_counted_and_told_as_one(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[parent, child]) as hf:
        runs = [await hf.start(parent, n, id=f"run-{n}") for n in range(12)]
        assert [await run.result(timeout="60s") for run in runs if run.id != "run-7"] == [
            n * 4 for n in range(12) if n != 7
        ]
        await runs[7].wait("waiting", timeout="60s")
        (question,) = await hf.approvals()
        await hf.approve(question, by="ana")
        assert await runs[7].result(timeout="60s") == 28
        assert await hf.count_runs() == {"parent": {"completed": 12}, "child": {"completed": 12}}
        assert (await hf.run_counts(root=True)).counts["completed"] == 12
        for order in ("newest", "oldest", "updated"):
            page = await hf.runs(limit=5, order=order)
            seen = [info.id for info in page]
            while page:
                page = await hf.runs(limit=5, order=order, after=page[-1])
                seen += [info.id for info in page]
            assert sorted(seen) == sorted(info.id for info in await hf.runs(limit=100))
        told = [event async for event in hf.events(follow=False)]
        assert len([event for event in told if event.kind == "run.completed"]) == 24
        half = told[len(told) // 2]
        rest = [event async for event in hf.events(after=half.position, follow=False)]
        assert [(event.run, event.seq) for event in rest] == [
            (event.run, event.seq) for event in told[len(told) // 2 + 1 :]
        ]
        deeds = await hf.audit(limit=100)
        first = await hf.audit(limit=5)
        then = await hf.audit(limit=100, before=first[-1].id)
        assert [deed.id for deed in first + then] == [deed.id for deed in deeds]
        assert {len(await cell.runs(limit=100)) > 0 for cell in hf.store.cells.made.values()} == {True}
        assert len((await hf.fleet()).workers) == 1


async def test_the_children_of_a_run_are_in_its_cell(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[parent, child]) as hf:
        for n in range(6):
            run = await hf.start(parent, n, id=f"run-{n}")
            await run.result(timeout="60s")
            cell = hf.store.cells.of_slot(slot_of(run.id))
            family = await hf.runs(parent=run.id)
            assert [row.id for row in await cell.these_runs([info.id for info in family])] == [
                info.id for info in family
            ]
            assert (await hf.get(family[0].id).info()).agent == "child"


async def test_a_singleton_is_one_run_over_all_cells(cells_url):  # noqa: F811
    @holdfast.agent(singleton="customer")
    async def alone(customer: str) -> str:
        return await holdfast.receive("go", str)

    async with holdfast.open(cells_url, agents=[alone]) as hf:
        first = {customer: await hf.start(alone, customer) for customer in names(8)}
        again = {customer: await hf.start(alone, customer) for customer in names(8)}
        assert {customer: run.id for customer, run in first.items()} == {
            customer: run.id for customer, run in again.items()
        }
        with pytest.raises(holdfast.Unsupported, match="Leave id= out"):
            await hf.start(alone, "other", id="chosen")


async def test_a_conversation_is_in_the_slot_of_its_name(cells_url):  # noqa: F811
    @holdfast.agent
    async def reply(name: str) -> int:
        async with holdfast.conversation(name, str) as talk:
            await talk.add("hello")
            return len(await talk.messages())

    async with holdfast.open(cells_url, agents=[reply]) as hf:
        assert [await hf.run(reply, "user-42", id=f"user-42.{n}") for n in range(3)] == [1, 2, 3]
        assert [info.id for info in await hf.conversations()] == ["user-42"]
        run = await hf.start(reply, "user-42", id="elsewhere")
        await run.wait("paused", timeout="60s")
        assert "id='user-42.1' is in its slot" in (await run.info()).reason


async def test_a_rate_of_a_step_is_one_over_all_cells(cells_url):  # noqa: F811
    began = []

    @holdfast.step(rate=holdfast.Rate("5/s"))
    async def paced() -> None:
        began.append(asyncio.get_running_loop().time())

    @holdfast.agent
    async def user() -> None:
        await paced()

    async with holdfast.open(cells_url, agents=[user]) as hf:
        runs = [await hf.start(user, id=name) for name in names(8)]
        for run in runs:
            await run.result(timeout="60s")
    assert began[-1] - began[0] >= 1.2  # seven turns of 0.2 s, whatever cells the runs are in


async def test_a_step_with_a_transaction_or_a_limit_is_refused_before_it_runs(cells_url):  # noqa: F811
    @holdfast.step(limit=2)
    async def counted() -> None: ...

    @holdfast.agent
    async def user() -> None:
        await counted()

    with pytest.raises(holdfast.Unsupported, match="limit="):
        async with holdfast.open(cells_url, agents=[user]):
            pass


async def test_an_announcement_reaches_runs_in_all_cells_once(cells_url):  # noqa: F811
    @holdfast.agent
    async def hears() -> str:
        return (await holdfast.next_event("paid", str)).value

    @holdfast.agent
    async def says() -> None:
        await holdfast.publish("paid", "17")

    async with holdfast.open(cells_url, agents=[hears, says]) as hf:
        for nth, publish in enumerate((lambda: hf.publish("paid", "17", key="order-17"), lambda: hf.run(says))):
            runs = [await hf.start(hears, id=f"run-{nth}-{n}") for n in range(6)]
            for run in runs:
                await run.wait("waiting", timeout="60s")
            assert {hf.store.cells.owners[slot_of(run.id)] for run in runs} == {"a", "b"}
            await publish()
            await publish()
            assert [(await run.result(timeout="60s")) for run in runs] == ["17"] * 6


async def test_a_schedule_begins_its_runs_in_the_cell_of_its_name(cells_url):  # noqa: F811
    @holdfast.agent
    async def report() -> str:
        return "told"

    async with holdfast.open(cells_url, agents=[report]) as hf:
        handle = await hf.schedule("nightly", report, "0 3 * * *")
        run = hf.get(await handle.trigger())
        assert await run.result(timeout="60s") == "told"
        assert slot_of(run.id) == slot_of("nightly")
        assert [info.name for info in await hf.schedules()] == ["nightly"]


async def test_a_fork_is_in_the_cell_of_its_run(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[parent, child]) as hf:
        run = await hf.start(parent, 3, id="run-3")
        await run.result(timeout="60s")
        fork = await run.fork()
        assert await fork.result(timeout="60s") == 12
        with pytest.raises(holdfast.Unsupported, match=r"id='run-3\.chosen'"):
            await run.fork(id="chosen")


# The file, and the databases behind it


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no cell"),
        ("[cells.a]\nslots = '0-1023'", "has no url"),
        ("[cells.a]\nurl = 'postgresql://h/d'\nslots = '0-511'", "slots 512-1023 belong to no cell"),
        (
            "[cells.a]\nurl = 'postgresql://h/d'\nslots = '0-1023'\n[cells.b]\nurl = 'postgresql://h/e'\nslots = '7'",
            "slot 7 is given to",
        ),
        ("[cells.a]\nurl = 'sqlite:x.db'\nslots = '0-1023'", "A cell is a PostgreSQL database"),
        ("[cells.a]\nurl = 'postgresql://h/d'\nslots = '0-9999'", "no range of slots"),
        ("[cells.a]\nurl = 'postgresql://h/d'\nslots = '0-1023'\ncolour = 'red'", "'colour'"),
        ("[cells.A]\nurl = 'postgresql://h/d'\nslots = '0-1023'", "no name for a cell"),
        (
            "[cells.a]\nurl = 'postgresql://h/d'\nslots = '0-9'\n[cells.b]\nurl = 'postgresql://h/d'\nslots = '10-1023'",
            "one database",
        ),
        ("nonsense", "no TOML"),
    ],
)
def test_a_file_that_is_wrong_says_how(text, says, tmp_path):
    path = tmp_path / "cells.toml"
    path.write_text(text)
    with pytest.raises(holdfast.BadArguments, match=says):
        read_plan(f"cells:{path}")


def test_a_file_that_is_not_there_says_how_to_begin_one(tmp_path):
    with pytest.raises(holdfast.StoreUnavailable, match="holdfast cells add"):
        read_plan(f"cells:{tmp_path}/none.toml")
    with pytest.raises(holdfast.BadArguments, match="names no file"):
        read_plan("cells:")


async def test_a_database_that_is_another_cell_is_refused(cells_url, cell_urls, tmp_path):  # noqa: F811
    async with holdfast.open(cells_url):
        pass
    swapped = written(tmp_path / "swapped.toml", {"a": cell_urls["b"], "b": cell_urls["a"]})
    with pytest.raises(holdfast.BadArguments, match="says that it is cell"):
        async with holdfast.open(swapped):
            pass


async def test_an_empty_database_in_the_place_of_a_cell_is_refused(cells_url, cell_urls, tmp_path):  # noqa: F811
    async with holdfast.open(cells_url):
        pass
    wrong = written(tmp_path / "wrong.toml", {**cell_urls, "b": f"{cell_urls['b']}_empty"})
    with pytest.raises(holdfast.BadArguments, match="is an empty database"):
        async with holdfast.open(wrong):
            pass


async def test_databases_founded_with_different_files_are_refused(cell_urls, tmp_path):  # noqa: F811
    for name, slots in (("a", "0-1023"), ("b", "0-1023")):
        async with holdfast.open(written(tmp_path / f"{name}.toml", {name: cell_urls[name]}, {name: slots})):
            pass
    with pytest.raises(holdfast.BadArguments, match="different sets"):
        async with holdfast.open(written(tmp_path / "both.toml", cell_urls)):
            pass


async def test_a_store_with_runs_does_not_become_a_cell(cell_urls, tmp_path):  # noqa: F811
    async with holdfast.open(cell_urls["a"], agents=[child]) as hf:
        await hf.run(child, 1, id="there")
    with pytest.raises(holdfast.BadArguments, match="has runs already"):
        async with holdfast.open(written(tmp_path / "cells.toml", {"a": cell_urls["a"]})):
            pass


async def test_a_process_with_an_old_file_writes_nothing_in_a_wrong_cell(cells_url, cell_urls):  # noqa: F811
    """The database itself refuses a run of a slot that it does not own."""
    async with holdfast.open(cells_url) as hf:
        foreign = next(name for name in names(99) if hf.store.cells.owners[slot_of(name)] == "b")
    async with holdfast.open(cell_urls["a"], agents=[child]) as hf:
        with pytest.raises(holdfast.BadArguments, match=r"is not in this cell: .* Open the store as cells:FILE"):
            await hf.start(child, 1, id=foreign)
    async with holdfast.open(cells_url) as hf:
        assert await hf.store.run(foreign) is None


def test_the_slots_of_a_plan_are_all_there(cells_url):  # noqa: F811
    assert sum(len(slots) for slots in read_plan(cells_url).slots.values()) == SLOTS
