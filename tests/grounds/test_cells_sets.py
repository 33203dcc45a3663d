"""Which set a database is of, and the file that names the databases, while several processes change it."""

import asyncio

import pytest
from tests.cells import cell_urls, cells_url, written  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.cells import inventory, ownership
from holdfast.backends.cells.plan import read_plan

pytestmark = pytest.mark.slow


@holdfast.agent
async def child(n: int) -> int:
    return n


# Which set a database is of


def twin(urls):
    """The URLs of another set, with the same names."""
    return {name: f"{url}_twin" for name, url in urls.items()}


async def founded(path, urls):
    url = written(path, urls)
    async with holdfast.open(url):
        pass
    return url


async def identities(url):
    async with inventory.opened(url) as store:
        return {
            cell.cell: (await cell.ask(lambda db, cell=cell: ownership.told(db, cell.schema))).identity
            for cell in store.up
        }


async def forget(url, *names):
    """Make cells what an older version founded."""
    async with inventory.opened(url) as store:
        for name in names:
            schema = f"{store.made[name].schema}_cells"
            await store.made[name].ask(
                lambda db, schema=schema: db.execute(
                    f'ALTER TABLE "{schema}".cell DROP COLUMN identity; DROP TABLE "{schema}".waste'
                )
            )


async def test_databases_of_two_sets_with_the_same_names_are_refused(cell_urls, tmp_path):  # noqa: F811
    first = await founded(tmp_path / "first.toml", cell_urls)
    second = await founded(tmp_path / "second.toml", twin(cell_urls))
    one, other = (await identities(first))["a"], (await identities(second))["b"]
    assert one != other
    mixed = written(tmp_path / "mixed.toml", {"a": cell_urls["a"], "b": twin(cell_urls)["b"]})
    with pytest.raises(holdfast.BadArguments, match=f"'a' of set {one}, 'b' of set {other}"):
        async with holdfast.open(mixed):
            pass


async def test_a_set_that_many_found_at_once_is_one(cell_urls, tmp_path):  # noqa: F811
    url = written(tmp_path / "cells.toml", cell_urls)

    async def opens():
        async with holdfast.open(url):
            pass

    await asyncio.gather(*(opens() for _ in range(4)))
    assert len(set((await identities(url)).values())) == 1


async def test_a_set_of_an_older_version_opens_and_gets_an_identity(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[child]) as hf:
        await hf.run(child, 1, id="there")
    await forget(cells_url, "a", "b")

    async def opens():
        async with holdfast.open(cells_url) as hf:
            assert (await hf.get("there").info()).status == "completed"

    await asyncio.gather(*(opens() for _ in range(3)))
    assert len(known := set((await identities(cells_url)).values())) == 1
    assert None not in known


async def test_a_set_of_an_older_version_gets_what_was_added(cells_url):  # noqa: F811
    async with holdfast.open(cells_url) as hf:
        (there, _), schema = hf.store.cells.made.values(), hf.store.cells.made["a"].schema
        older = f'ALTER TABLE "{schema}_cells".cell DROP COLUMN added; DROP SEQUENCE "{schema}_cells".readers'
        await there.ask(lambda db: db.execute(f'{older}; DROP FUNCTION "{schema}_cells".fence_name CASCADE'))
    async with holdfast.open(cells_url, agents=[child]) as hf:
        await hf.run(child, 1, id="there")
        assert [event async for event in hf.events(follow=False)]
        fences = "SELECT count(*) FROM pg_trigger WHERE tgname = 'cell_fence' AND tgrelid = ANY ($1::regclass[])"
        fenced = [f'"{schema}".{table}' for table in ("schedules", "triggers", "subscriptions")]
        assert await hf.store.cells.made["a"].ask(lambda db: db.fetchval(fences, fenced)) == 3


async def test_a_process_that_dies_while_a_set_gets_its_identity_is_gone_on_from(cells_url):  # noqa: F811
    """The first cell has it last, so one that has none there tells that it is not done."""
    async with holdfast.open(cells_url):
        pass
    before = await identities(cells_url)
    await forget(cells_url, "a")
    async with holdfast.open(cells_url):
        pass
    assert await identities(cells_url) == before


async def test_a_database_of_an_older_version_is_not_taken_for_one_of_another_set(cell_urls, tmp_path):  # noqa: F811
    await founded(tmp_path / "first.toml", cell_urls)
    await forget(await founded(tmp_path / "second.toml", twin(cell_urls)), "a", "b")
    mixed = written(tmp_path / "mixed.toml", {"a": cell_urls["a"], "b": twin(cell_urls)["b"]})
    with pytest.raises(holdfast.BadArguments, match=r"cell 'b' of .* does not say of which set it is"):
        async with holdfast.open(mixed):
            pass


# The file, while others change it


async def test_what_others_do_while_slots_move_is_not_lost(cells_url, cell_urls, tmp_path):  # noqa: F811
    third = {name: f"{cell_urls['a']}_{name}" for name in "cd"}
    told = []

    async def other():
        await asyncio.gather(*(inventory.add(cells_url, name, url) for name, url in third.items()))
        await inventory.move(cells_url, [600], "c", grace_s=5.0, tell=lambda *_: None, done=told.append)

    busy = []

    def done(moved):
        told.append(moved)
        if moved.slot == 1:
            busy.append(asyncio.ensure_future(other()))

    async with holdfast.open(cells_url):
        pass
    await inventory.move(cells_url, [1, 2], "b", grace_s=5.0, tell=lambda *_: None, done=done)
    await asyncio.gather(*busy)
    assert sorted((moved.slot, moved.destination) for moved in told) == [(1, "b"), (2, "b"), (600, "c")]
    assert sorted(read_plan(cells_url).urls) == ["a", "b", "c", "d"]
    async with inventory.opened(cells_url) as store:
        assert (await inventory.check(store)).wrong == []
        assert {slot: store.owners[slot] for slot in (1, 2, 600, 601)} == {1: "b", 2: "b", 600: "c", 601: "b"}
        assert len({said.number for said in store.said.values()}) == 4


async def test_a_cell_that_was_added_but_not_written_is_added_again(cells_url, cell_urls):  # noqa: F811
    async with holdfast.open(cells_url):
        pass
    file = read_plan(cells_url).path
    before, new = file.read_text(), f"{cell_urls['a']}_c"
    await inventory.add(cells_url, "c", new)
    file.write_text(before)  # as if the process had died before
    assert list((await inventory.add(cells_url, "c", new)).urls) == ["a", "b", "c"]


async def test_a_database_that_answers_late_is_not_told_to_have_another_clock(cells_url):  # noqa: F811
    async with holdfast.open(cells_url), inventory.opened(cells_url) as store, inventory.opened(cells_url) as other:
        hold = "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1.5)"
        late = asyncio.create_task(other.made["b"].ask(lambda db: db.execute(hold)))
        await asyncio.sleep(0.2)
        assert (await inventory.check(store)).wrong == []
        await late
