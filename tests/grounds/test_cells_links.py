"""A link to a question works wherever the question is, and goes with it: by it one person decides once, and its session lasts."""

import asyncio

import pytest
from tests.cells import cell_urls, cells_url, own_cells_url, own_servers  # noqa: F401 - fixtures
from tests.grounds.test_cells_moves import family, other
from tests.http.site import served
from tests.http.test_links import asked, browser, opened

import holdfast
from holdfast.backends.cells import inventory, moves
from holdfast.backends.cells.slots import slot_of
from holdfast.store.links import Links

pytestmark = pytest.mark.slow
ANA = holdfast.Actor("ana", groups=["editors"])


@holdfast.agent
async def above() -> str:
    return await below()


@holdfast.agent
async def below() -> str:
    return str((await holdfast.approve("really?", show={"n": 1})).by)


async def asked_in(site, cell, nth=0):
    """A question of a run in a cell, and a link to it."""
    cells = site.hf.store.cells
    names = [name for name in (f"run-{n}" for n in range(999)) if cells.owners[slot_of(name)] == cell]
    question = await asked(site, names[nth])
    return question, await site.hf.approval_link(question, by=ANA)


async def decided(web, question, decision="approve", **more):
    return await web.post(
        f"/api/approvals/{question.id}", json={"decision": decision, "digest": question.digest, **more}
    )


async def move(url, slot):
    async with inventory.opened(url) as store:
        await moves.move(store, slot, await other(store, slot))


@pytest.mark.by_day("b")  # not the first cell, where sessions are
@pytest.mark.parametrize("cell", ["a", "b"])
async def test_a_link_decides_once_in_every_cell(cell, cells_url):  # noqa: F811
    async with served(cells_url) as site, browser(site) as web, browser(site) as again:
        question, link = await asked_in(site, cell)
        await opened(web, link)
        assert (await web.get("/api/me")).json()["question"] == question.id
        done = await decided(web, question)
        assert (done.status_code, done.json()["approval"]["decided_by"]) == (200, "ana")
        assert (await web.get("/api/me")).status_code == 401  # it is used up
        refused = await again.post("/session", json={"link": link.partition("#link=")[2]})
        assert (refused.status_code, "this link was used on " in refused.text) == (401, True)


@pytest.mark.by_day("b")  # not the first cell, where sessions are
@pytest.mark.parametrize("cell", ["a", "b"])
async def test_of_two_sessions_of_a_link_one_decides(cell, cells_url):  # noqa: F811
    async with served(cells_url) as site, browser(site) as one, browser(site) as two:
        for nth in range(3):
            question, link = await asked_in(site, cell, nth)
            await opened(one, link)
            await opened(two, link)
            said = await asyncio.gather(decided(one, question), decided(two, question, "deny", note="no"))
            assert sorted(each.status_code for each in said) in ([200, 401], [200, 409])
            won = "approved" if said[0].status_code == 200 else "denied"
            assert (await site.hf.approval(question.id)).decision == won


@pytest.mark.by_day("b")  # not the first cell, where sessions are
@pytest.mark.parametrize("cell", ["a", "b"])
async def test_a_link_outlives_moves_of_its_question(cell, cells_url):  # noqa: F811
    """Whoever is in by it stays in, and whoever opens it later comes in, there and back again."""
    async with served(cells_url) as site, browser(site) as before, browser(site) as between, browser(site) as after:
        question, link = await asked_in(site, cell)
        await opened(before, link)
        for web in (between, after):
            await move(cells_url, slot_of(question.run))
            assert (await before.get("/api/me")).json()["question"] == question.id
            await opened(web, link)
        assert (await decided(between, question)).status_code == 200
        await move(cells_url, slot_of(question.run))  # and so does that it was used
        for web in (before, between, after):
            assert (await web.get("/api/me")).status_code == 401


async def test_a_link_to_a_question_of_a_child_is_in_the_slot_of_its_family(cells_url):  # noqa: F811
    """Also if the child's id is too long to begin with its family's name, and says another slot."""
    (name,) = family(300, 1)
    async with served(cells_url, agents=[above, below]) as site, browser(site) as web:
        run = await site.hf.start(above, id=f"{name}{'x' * (195 - len(name))}")
        while not await site.hf.approvals():
            await asyncio.sleep(0.05)
        (child,) = await site.hf.runs(parent=run.id)
        cells = site.hf.store.cells
        while cells.owners[slot_of(child.id)] == cells.owners[slot_of(run.id)]:
            await move(cells_url, slot_of(child.id))
            await cells.look()
        (question,) = await site.hf.approvals()
        await opened(web, await site.hf.approval_link(question, by=ANA))
        assert (await decided(web, question)).status_code == 200
        assert await run.result() == "ana"


async def test_a_link_is_not_left_behind_by_a_move_that_overtakes_it(cells_url, monkeypatch):  # noqa: F811
    """Who makes a link while its slot goes away makes it where the slot went, and there alone."""
    async with served(cells_url) as site, browser(site) as web:
        question, _ = await asked_in(site, "a")
        a, b = site.hf.store.cells.made.values()
        write, moved = a.add_link, []

        async def late(*args, **named):
            if not moved:
                moved.append(1)
                await move(cells_url, slot_of(question.run))
            return await write(*args, **named)

        a.add_link = late
        link = await site.hf.approval_link(question, by=ANA)
        id = link.partition("#link=")[2].partition("_")[0]
        assert (moved, await Links.link(a, id)) == ([1], None)
        assert await Links.link(b, id) is not None
        await opened(web, link)
        await move(cells_url, slot_of(question.run))  # a row that was left there would be in the way
        assert (await decided(web, question)).status_code == 200


async def test_a_link_into_a_cell_that_is_down_is_not_over(own_cells_url, own_servers):  # noqa: F811
    """Its holder hears that a cell is down, and decides when it is back."""
    async with served(own_cells_url) as site, browser(site) as web, browser(site) as late:
        question, link = await asked_in(site, "b")
        await opened(web, link)
        own_servers["b"].kill()
        told = [await web.get("/api/me"), await decided(web, question)]
        told.append(await late.post("/session", json={"link": link.partition("#link=")[2]}))
        for each in told:
            assert (each.status_code, each.json()["error"]["code"]) == (503, "store_unavailable"), each.text
        own_servers["b"].start(("shared_buffers=32MB",))
        async with asyncio.timeout(30):
            while (await web.get("/api/me")).status_code == 503:
                await asyncio.sleep(0.1)
        assert (await decided(web, question)).status_code == 200
