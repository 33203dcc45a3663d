"""Files of cells that are older than the set, or were changed by hand: no slot gets a second owner by one."""

import asyncio

import pytest
from tests.cells import cell_urls, cells_url, written  # noqa: F401 - fixtures
from tests.grounds.test_cells_sets import child

import holdfast
from holdfast.backends.cells import inventory, moves
from holdfast.backends.cells.plan import path_of
from holdfast.backends.cells.settlement import give_up, settle
from holdfast.backends.cells.slots import SLOTS, slot_of

pytestmark = pytest.mark.slow
IN_B = next(f"run-{n}" for n in range(99) if slot_of(f"run-{n}") >= SLOTS // 2)
QUIET = {"grace_s": 5.0, "tell": lambda *_: None, "done": lambda _: None}


@pytest.fixture
def old(request, cells_url, cell_urls, tmp_path):  # noqa: F811
    """A file that lacks cell b: one that somebody changed, or one from before b was added and got a slot."""
    asyncio.run(_founded(request.param, cells_url, cell_urls))
    return written(tmp_path / "old.toml", {"a": cell_urls["a"]}, {"a": "0-1023"})


async def _founded(how, url, urls):
    if how == "added":
        path_of(url).unlink()
        await inventory.add(url, "a", urls["a"])
        await inventory.add(url, "b", urls["b"])
        await inventory.move(url, [slot_of(IN_B)], "b", **QUIET)
    async with holdfast.open(url, agents=[child]) as hf:
        await hf.run(child, 1, id=IN_B)


both = pytest.mark.parametrize("old", ["founded", "added"], indirect=True)


@both
async def test_no_slot_is_settled_with_a_file_that_lacks_its_cell(old, cells_url):  # noqa: F811
    slot = slot_of(IN_B)
    async with inventory.opened(old) as store:
        said = " ".join((await inventory.check(store)).wrong)
        assert "cell 'b' is of this set, and it is not in" in said
        assert "use the newer file" in said
        assert "--lost b` gives them to another cell" in said
        with pytest.raises(holdfast.BadArguments, match=r"it lacks cell 'b'.* Use the newer file"):
            await settle(store, slot, "a")
        with pytest.raises(holdfast.StoreUnavailable, match=r"in cell 'b', which is not in .*: use the newer file"):
            await moves.move(store, slot, "a")
        cells = await inventory.cells_of(store)
        assert (cells[0].name, slot in cells[0].slots) == ("a", False)
        assert (cells[1].name, cells[1].url, slot in cells[1].slots) == ("b", "", True)
        assert "use the newer file" in cells[1].down
    async with holdfast.open(old, agents=[child]) as hf:
        with pytest.raises(holdfast.StoreUnavailable, match="use the newer file"):
            await hf.start(child, 2, id=IN_B)
    async with inventory.opened(cells_url) as store:
        assert (await inventory.check(store)).wrong == []
        assert store.owners[slot] == "b"


@both
async def test_a_set_of_an_older_version_is_not_settled_with_an_old_file_either(old, cells_url):  # noqa: F811
    """What its databases do not say of the set, they say of the slots."""
    async with inventory.opened(cells_url) as store:
        for cell in store.up:
            forget = f'ALTER TABLE "{cell.schema}_cells".cell DROP COLUMN members, DROP COLUMN lost'
            await cell.ask(lambda db, forget=forget: db.execute(forget))
    async with inventory.opened(old) as store:
        assert "use the newer file" in " ".join((await inventory.check(store)).wrong)
        with pytest.raises(holdfast.BadArguments, match="Use the newer file"):
            await settle(store, slot_of(IN_B), "a")
    async with inventory.opened(cells_url) as store:
        assert (await inventory.check(store)).wrong == []
    async with inventory.opened(old) as store:
        assert store.missing == ["b"]


@pytest.mark.by_day("added")
@both
async def test_a_cell_that_is_lost_for_good_is_given_up_and_never_comes_back(old, cells_url, cell_urls):  # noqa: F811
    slot = slot_of(IN_B)
    async with inventory.opened(old, ["c"]) as store:
        with pytest.raises(holdfast.BadArguments, match=r"has no cell 'c'.* lacks b"):
            await give_up(store, ["c"])
    async with inventory.opened(old, ["b"]) as store:
        await give_up(store, ["b"])
    async with inventory.opened(old) as store:
        (wrong,) = (await inventory.check(store)).wrong
        assert "are owned by no cell" in wrong
        for each in [each for each in range(SLOTS) if each not in (await inventory.cells_of(store))[0].slots][:3]:
            await settle(store, each, "a")
        await settle(store, slot, "a")
        assert store.owners[slot] == "a"
    async with holdfast.open(old, agents=[child]) as hf:
        assert await hf.run(child, 2, id=IN_B) == 2
    with pytest.raises(holdfast.BadArguments, match=r"cell 'b' of .* was given up as lost for good"):
        async with holdfast.open(cells_url):
            pass
    with pytest.raises(holdfast.BadArguments, match="has, or had, a cell 'b' in another database"):
        await inventory.add(old, "b", f"{cell_urls['b']}_new")


@both
async def test_nothing_is_added_with_a_file_that_lacks_a_cell(old, cell_urls):  # noqa: F811
    with pytest.raises(holdfast.StoreUnavailable, match="cell 'b': it is not in"):
        await inventory.add(old, "c", f"{cell_urls['a']}_c")
    with pytest.raises(holdfast.BadArguments, match="has, or had, a cell 'b' in another database"):
        await inventory.add(old, "b", f"{cell_urls['b']}_new")
    path_of(old).unlink()
    with pytest.raises(holdfast.BadArguments, match="is cell 'a' of a set, which has also 'b'"):
        await inventory.add(old, "a", cell_urls["a"])


async def test_two_operators_with_copies_of_a_file_give_no_number_twice(cells_url, cell_urls, tmp_path):  # noqa: F811
    async with holdfast.open(cells_url):
        pass
    copy = written(tmp_path / "copy.toml", cell_urls)
    await inventory.add(cells_url, "c", f"{cell_urls['a']}_c")
    with pytest.raises(holdfast.StoreUnavailable, match="cell 'c': it is not in"):
        await inventory.add(copy, "d", f"{cell_urls['a']}_d")
    await inventory.add(cells_url, "d", f"{cell_urls['a']}_d")
    async with inventory.opened(cells_url) as store:
        assert sorted(cell.number for cell in store.said.values()) == [1, 2, 3, 4]
        assert {tuple(sorted(cell.members)) for cell in store.said.values()} == {("a", "b", "c", "d")}


async def test_a_process_that_runs_hears_that_its_file_is_old(cells_url, cell_urls, caplog):  # noqa: F811
    """What must be in every cell is not done by one that does not know them all."""
    async with holdfast.open(cells_url) as hf:
        await inventory.add(cells_url, "c", f"{cell_urls['a']}_c")
        await hf.store.cells.look()
        assert hf.store.cells.missing == ["c"]
        assert sum("cell 'c' is left out" in message for message in caplog.messages) == 1
        with pytest.raises(holdfast.StoreUnavailable, match="kept in every cell, and one cannot be asked: cell 'c'"):
            await hf.store.delete_notification("none", by="", via="")


async def test_an_announcement_waits_for_a_cell_that_the_file_lacks(cells_url, cell_urls, tmp_path):  # noqa: F811
    copy = written(tmp_path / "copy.toml", cell_urls)
    async with holdfast.open(copy, agents=[child]) as hf:
        await inventory.add(cells_url, "c", f"{cell_urls['a']}_c")
        await hf.store.cells.look()
        await hf.publish("news", 1)
    async with holdfast.open(cells_url, agents=[child]) as hf:
        cell = hf.store.cells.made["c"]
        for _ in range(200):
            await hf.store.cells.look()
            if await cell.ask(lambda db: db.fetchval("SELECT count(*) FROM announcements")):
                break
        else:
            pytest.fail("the announcement is not in the new cell")


async def test_a_file_in_another_order_is_refused(cells_url, cell_urls, tmp_path):  # noqa: F811
    """Tokens and sessions are in the first cell."""
    async with holdfast.open(cells_url):
        pass
    halves = {"a": "0-511", "b": "512-1023"}
    turned = written(tmp_path / "turned.toml", {name: cell_urls[name] for name in "ba"}, halves)
    with pytest.raises(
        holdfast.BadArguments, match=r"the first of the set is 'a'.* put \[cells\.a\] before all others"
    ):
        async with holdfast.open(turned):
            pass
    without = written(tmp_path / "without.toml", {"b": cell_urls["b"]}, {"b": "0-1023"})
    with pytest.raises(holdfast.BadArguments, match=r"lacks cell 'a', the first of the set.* --lost a"):
        async with holdfast.open(without):
            pass
    async with inventory.opened(without, ["a"]) as store:
        await give_up(store, ["a"])
        await settle(store, 7, "b")
    async with holdfast.open(without):
        pass
