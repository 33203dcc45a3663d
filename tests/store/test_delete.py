from __future__ import annotations

import pytest
from tests.store.places import TTL, ManualClock, Place, fed, finish, new, owned, step, write

from holdfast.errors import RunActive, StoreUnavailable, UnknownRun
from holdfast.store.appends import Transition
from holdfast.store.approvals import NewApproval
from holdfast.store.store import Store
from holdfast.words.model import Event


async def present(store: Store, *digests: str) -> list[str]:
    found = []
    for digest in digests:
        try:
            await store.blob(digest)
        except StoreUnavailable:
            continue
        found.append(digest)
    return found


async def test_delete_takes_everything_of_a_run(place: Place) -> None:
    """A deleted run's events, signals and questions are gone, and so are its children's; others' stay."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.c", parent_id="a", root_id="a")],
                                 approvals=[NewApproval("q", "k", "in_doubt", "?")]))  # fmt: skip
        (child,) = await store.claim(["agent"], 1, TTL)
        await store.send("a", "s", "message.received", "t", None, {})
        with pytest.raises(RunActive, match="running"):
            await store.delete("a")
        await finish(store, row)
        with pytest.raises(RunActive, match=r"a\.c"):
            await store.delete("a")
        await finish(store, child)
        other = await owned(store, "b")
        await store.append(write(other, step()))
        assert await store.delete("a") == 2
        assert [found.id for found in await store.runs()] == ["b"]
        assert (await store.journal("a"), await store.inbox("a", 0), await store.approvals(run="a")) == ([], [], [])
        assert [event.run for event in await fed(store, 0, 1)] == ["b"]
        with pytest.raises(UnknownRun):
            await store.delete("a")


async def test_a_child_of_an_unfinished_parent_stays(place: Place) -> None:
    """A finished child can be deleted only once its parent has ended, for the parent may still look at it."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.c", parent_id="a", root_id="a")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        await finish(store, child)
        with pytest.raises(RunActive, match="belongs to run 'a'"):
            await store.delete("a.c")
        await finish(store, row)
        assert await store.delete("a.c") == 1


async def test_blobs_live_as_long_as_someone_names_them(place: Place) -> None:
    """A large value goes with the last run that names it, be it in an event, an input, a result or a signal."""
    async with place.open() as store:
        named = ["in-event", "in-value", "in-input", "in-result", "in-signal", "shared"]

        async def naming(run: str, *digests: str) -> None:
            def text(name: str) -> str:
                return f'{{"$blob": "{name}"}}' if name in digests else "{}"

            await store.create(new(run, input=text("in-input")), {"in-input": b"x"} if "in-input" in digests else None)
            (row,) = await store.claim(["agent"], 1, TTL)
            blobs = dict.fromkeys(digests, b"x")
            events = [Event(0, "note", f"n{number}#0", blob=digest) for number, digest in enumerate(digests)
                      if digest in ("in-event", "shared")]  # fmt: skip
            await store.append(write(row, *events, step(key="s#0", value=text("in-value")), blobs=blobs))
            await store.send(run, "s", "message.received", "t", text("in-signal"), {}, dict.fromkeys(digests, b"x"))
            await store.append(write(row, transition=Transition("completed", result=text("in-result"))))

        for digest in named[:5]:
            await naming(f"keeps-{digest}", digest)
        await naming("all", *named)
        assert await present(store, *named) == named
        await store.delete("all")
        assert await present(store, *named) == named[:5]
        for number, digest in enumerate(named[:5]):
            assert await store.delete(f"keeps-{digest}") == 1
            assert await present(store, *named) == named[number + 1 : 5]


async def test_prune_takes_old_finished_trees(place: Place) -> None:
    """Prune deletes roots that ended before a time in one of the states, the oldest first, up to a limit."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(120):
            row = await owned(store, f"run-{number:03}")
            await finish(store, row, "failed" if number % 10 == 0 else "completed")
            clock.time += 1
        parent = await owned(store, "parent")
        await store.append(write(parent, step(), children=[new("child", parent_id="parent", root_id="parent")]))
        await finish(store, parent)
        clock.time += 1
        assert await store.prune(clock.time - 21, ["completed"], limit=60) == 60
        left = [found.id for found in reversed(await store.runs(limit=1000)) if found.status == "completed"]
        assert left[0] == "run-067"
        assert await store.prune(clock.time, ["completed", "failed", "cancelled"]) == 60
        assert sorted(found.id for found in await store.runs(limit=1000)) == ["child", "parent"]
        (child,) = await store.claim(["agent"], 1, TTL)
        await finish(store, child)
        assert await store.prune(clock.time, ["completed", "running", "ready"]) == 1
        assert await store.runs() == []


async def test_prune_is_narrowed_and_says_before_what_it_would_delete(place: Place) -> None:
    """By agent and labels; trees with an unfinished run are neither deleted nor told."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(4):
            agent = "reader" if number % 2 else "writer"
            await finish(store, await owned(store, f"run-{number}", agent=agent, labels=f'{{"team":"x{number // 2}"}}'))
            clock.time += 1
        parent = await owned(store, "parent", agent="writer")
        await store.append(write(parent, step(), children=[new("child", parent_id="parent", root_id="parent")]))
        await finish(store, parent)
        clock.time += 1
        for narrowed, told in (
            ({}, ["run-0", "run-1", "run-2", "run-3"]),
            ({"agent": "reader"}, ["run-1", "run-3"]),
            ({"agent": "reader", "labels": {"team": "x1"}}, ["run-3"]),
            ({"labels": {"team": "x2"}}, []),
        ):
            assert await store.would_prune(clock.time, ["completed"], **narrowed) == told
        assert await store.would_prune(clock.time, ["failed"]) == []
        assert await store.prune(clock.time, ["completed"], agent="reader", labels={"team": "x1"}) == 1
        assert await store.prune(clock.time, ["completed"], agent="writer") == 2
        assert sorted(found.id for found in await store.runs()) == ["child", "parent", "run-1"]
