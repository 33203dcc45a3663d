"""Comparisons: what `diff` says of two runs, a page at a time, for runs of any length."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.test_outline import grow, reader
from tests.turns import counted_turns

import holdfast
from holdfast import BadArguments, UnknownRun


@holdfast.step
async def look(n: int, big: bool = False) -> str:
    return f"found {n} " + ("x" * 70_000 if big else "")


@holdfast.agent
async def looks(numbers: list[int], big: bool = False) -> int:
    for n in numbers:
        await look(n, big)
    async with asyncio.TaskGroup() as group:
        for n in numbers[:2]:
            group.create_task(look(-n), name="side")
    return len(numbers)


async def all_rows(hf, a, b, limit, **more):
    rows, after, pages = [], 0, 0
    while after is not None:
        page = await hf.compare(a, b, after=after, limit=limit, **more)
        rows += page.rows
        after, pages = page.next, pages + 1
    return page, rows, pages


async def test_a_comparison_is_the_difference_in_pages(store_url):
    """The same pairs in the same order, the same verdict on each, and the same place at which they part."""
    async with holdfast.open(store_url, agents=[looks]) as hf:
        await hf.run(looks, [1, 2, 3, 4], id="a")
        await hf.run(looks, [1, 2, 5], id="b")
        await hf.run(looks, [1, 2, 3, 4], id="same")
        await hf.run(looks, [1, 2, 3], True, id="large")
        for other in ("b", "same", "large", "a"):
            diff = await hf.diff("a", other)
            page, rows, pages = await all_rows(hf, "a", other, 2)
            assert pages == -(-len(rows) // 2)
            assert [(row.key, row.same) for row in rows] == [(pair.key, not pair.parts) for pair in diff.pairs]
            assert (page.parts and page.parts.key) == (diff.parted and diff.parted.key)
            assert page.shared == next((nth for nth, pair in enumerate(diff.pairs) if pair.parts), len(diff.pairs))
            for row, pair in zip(rows, diff.pairs, strict=True):
                for told, made in ((row.a, pair.one), (row.b, pair.other)):
                    assert (told is None) == (made is None)
                    if told is not None:
                        assert (told.status, told.input, told.error or "") == (made.state, made.input, made.error)
                        assert told.preview.strip("'\"").startswith("found") and len(told.preview) <= 160
            _, few, _ = await all_rows(hf, "a", other, 3, differences=True)
            assert few == [row for row in rows if not row.same]
        page = await hf.compare("a", "b")
        assert (page.a.id, page.b.id, page.shared) == ("a", "b", 2)
        assert "arguments" in page.parts.why and page.parts.key == "look#2"
        for wrong in ({"after": "x"}, {"limit": 0}, {"limit": 1_001}):
            with pytest.raises(BadArguments):
                await hf.compare("a", "b", **wrong)
        with pytest.raises(UnknownRun):
            await hf.compare("a", "none")


async def test_a_fork_is_compared_with_the_run_it_comes_from(store_url):
    """What they share is the same, and the call whose result was replaced is where they part."""
    async with holdfast.open(store_url, agents=[looks]) as hf:
        run = await hf.start(looks, [1, 2, 3], id="a")
        await run.result(timeout=20)
        fork = await run.fork(replace={"look#2": "found otters"}, effects="new", by="ana", id="f")
        await fork.result(timeout=20)
        found = await hf.compare("a", "f")
        assert found.shared == 2 and (found.parts.key, found.parts.why) == ("look#2", "result")
        assert found.b.forked is not None and found.b.forked.run == "a"
        assert found.rows[2].b.preview == "'found otters'"


@holdfast.agent
async def pays(amount: int) -> bool:
    return bool(await holdfast.approve("Pay it?", show=amount, edit=True))


async def test_a_comparison_says_who_decided_what(store_url):
    """A decision is told as `diff` tells it, with its value if somebody changed that, and another one is a difference."""
    async with holdfast.open(store_url, agents=[pays]) as hf:
        for id in ("yes", "no", "edited", "again"):
            await (await hf.start(pays, 84, id=id)).wait("waiting", waits_for="person", timeout=20)
            (asked,) = await hf.approvals(run=id)
            if id == "no":
                await hf.deny(asked, by="bo", note="too much")
            else:
                await hf.approve(asked, **({"data": 50} if id == "edited" else {}), by="ana" if id == "again" else "bo")
            await hf.get(id).wait("completed", timeout=20)
        told = {}
        for id in ("no", "edited", "again"):
            (row,) = (await hf.compare("yes", id)).rows
            assert row.same is (id == "again")
            told |= {"yes": row.a.preview, id: row.b.preview}
        assert told == {
            "yes": "approved by bo", "no": "denied by bo (too much)", "edited": "approved by bo: 50", "again": "approved by ana"
        }  # fmt: skip


@pytest.mark.slow
async def test_long_runs_are_compared_without_keeping_the_loop(tmp_path, monkeypatch):
    url = f"sqlite:{tmp_path}/runs.db"
    async with holdfast.open(url, agents=[reader]) as hf:
        for run in "ab":
            await (await hf.start(reader, "x", id=run)).wait("waiting", waits_for="message", timeout=20)
    for run in "ab":
        grow(tmp_path / "runs.db", run, 20_000)
    async with holdfast.open(url) as hf:
        async with counted_turns() as turns:
            found = await hf.compare("a", "b", differences=True)
        assert found.parts is None and found.rows == () and found.shared > 20_000
        assert turns.count > 200 and turns.longest_s < 1  # measured: 40 ms
        monkeypatch.setattr(hf.store, "journal", None)  # the histories are not read again
        assert (await hf.compare("a", "b", after=10_000, limit=100)).next == 10_100


async def test_comparisons_over_http(tmp_path):
    from tests.http.site import served

    async with served(f"sqlite:{tmp_path}/runs.db?durability=process", agents=[looks]) as site:
        await site.hf.run(looks, [1, 2], id="a")
        await site.hf.run(looks, [1, 3], id="b")
        found = await site.get("/api/compare?a=a&b=b&limit=1")
        assert (found["shared"], found["next"], found["parts"]["key"]) == (1, 1, "look#1")
        assert found["rows"][0]["same"] is True and found["rows"][0]["a"]["error"] is None
        differing = await site.get("/api/compare?a=a&b=b&differences=true")
        assert not any(row["same"] for row in differing["rows"])
        await site.get("/api/compare?a=a&b=none", 404)
        for query in ("a=a", "", "a=a&b=b&limit=0", "a=a&b=b&after=-1", "a=%20&b=b"):
            assert (await site.get(f"/api/compare?{query}", 422))["error"]["code"] == "bad_arguments"
