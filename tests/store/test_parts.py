"""Parts of inputs: kept with the event that names them, once, and as long as a run names them; on both stores."""

import asyncio
import random

import pytest
from tests.store.places import LosesAnswers, Place, finish, new, owned, step, write

from holdfast.errors import LeaseLost
from holdfast.store.appends import Transition
from holdfast.store.operations import Crash
from holdfast.store.store import Store
from holdfast.values.parts import digest_of

TEXTS = [f'"{"x" * 300} {n}"' for n in range(8)]
PARTS = {digest_of(text): text for text in TEXTS}
NAMES = list(PARTS)


def some(*which: int) -> dict[str, str]:
    return {NAMES[n]: TEXTS[n] for n in which}


async def test_parts_are_kept_once_and_go_with_the_last_run_that_names_them(place: Place) -> None:
    async with place.open() as store:
        for run, which in {"a": (0, 1), "b": (1, 2), "c": (2, 3)}.items():
            row = await owned(store, run)
            await store.append(write(row, step(), parts=some(*which)))
            await store.append(write(row, step(), parts=some(*which)))
            await finish(store, row)
        assert await store.parts(NAMES) == some(0, 1, 2, 3)
        assert await store.parts_of(["a", "c"]) == set(some(0, 1, 2, 3))
        await store.delete("a")
        assert await store.parts(NAMES) == some(1, 2, 3)
        now = store.clock.now() + 1000
        assert await store.prune(now, ["completed"]) == 2
        assert await store.parts(NAMES) == {}
        assert await store.parts_of(["a", "b", "c"]) == set()


async def test_a_stale_owner_leaves_no_part(place: Place) -> None:
    """The fence holds for parts as for all that an append writes."""
    async with place.open() as store:
        row = await owned(store, "a")
        row.lease_epoch -= 1
        with pytest.raises(LeaseLost):
            await store.append(write(row, step(), parts=some(0)))
        assert await store.parts(NAMES) == {}
        assert await store.parts_of(["a"]) == set()


async def test_an_append_whose_commit_is_unknown_is_recognised_with_its_parts(place: Place) -> None:
    faults = LosesAnswers()
    async with place.open(faults=faults) as store:
        row = await owned(store, "a")
        faults.lose = True
        await store.append(write(row, step(), parts=some(0, 1)))
        assert [event.seq for event in await store.journal("a")] == [0]
        assert await store.parts(NAMES) == some(0, 1)


class CrashAt:
    """The writer is killed at the n-th commit, before or after it."""

    def __init__(self, commit: int, after: bool) -> None:
        self.left, self.after = commit, after

    def _hook(self, after: bool) -> None:
        if after == self.after:
            self.left -= 1
            if self.left < 0:
                raise Crash

    def before_commit(self, writes: list[str]) -> None:
        self._hook(after=False)

    def after_commit(self, writes: list[str]) -> None:
        self._hook(after=True)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("commit", range(2, 6))
async def test_a_crash_at_any_commit_leaves_a_part_exactly_if_an_event_names_it(
    place: Place, commit: int, after: bool
) -> None:
    """While two runs are written, and while one of them is deleted."""
    store = place.connect(place.url, faults=CrashAt(commit, after))
    await store.open()

    async def work() -> None:
        row = await owned(store, "a")
        await store.append(write(row, step(names=NAMES[:2]), parts=some(0, 1)))
        await finish(store, row)
        await store.delete("a")

    working = asyncio.ensure_future(work())
    await asyncio.wait([working], timeout=20)
    working.cancel()
    store.abandon()
    await asyncio.gather(working, return_exceptions=True)
    async with place.open() as again:
        named = {name for event in await again.journal("a") for name in event.data.get("names", ())}
        assert set(await again.parts(NAMES)) == named == await again.parts_of(["a"])


async def renamed(store: Store, n: int, dice: random.Random) -> None:
    """A run that names some parts, ends, and is deleted."""
    await store.create(new(f"r{n}", agent=f"agent{n}"))
    (row,) = await store.claim([f"agent{n}"], 1, 30_000)
    for _ in range(3):
        which = dice.sample(range(8), 4)
        await store.append(write(row, step(), parts=some(*which)))
        assert await store.parts(some(*which)) == some(*which)
    await finish(store, row)
    assert some(*which).items() <= (await store.parts(NAMES)).items()
    await store.delete(row.id)


async def test_naming_and_deleting_at_once_loses_nothing_and_leaves_nothing(place: Place) -> None:
    """From two stores, which on PostgreSQL are two sessions: a part that a run names is there, and in the end none is."""
    async with place.open() as one, place.open() as two:
        dice = random.Random(7)
        await asyncio.gather(*[renamed((one, two)[n % 2], n, dice) for n in range(16)])
        assert await one.parts(NAMES) == {}


async def test_a_backup_has_the_parts(place: Place, tmp_path) -> None:
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), parts=some(0, 1)))
        await finish(store, row)
        await store.backup(tmp_path / "copy", by="ana", via="python")
    async with Place(place.connect, f"sqlite:{tmp_path / 'copy'}").open() as copy:
        assert await copy.parts(NAMES) == some(0, 1)


async def test_outlines_have_no_values_and_find_calls_by_key(place: Place) -> None:
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, *[step(key=f"k{n}#0", value="1" * 300, worker="w") if not n else step(key=f"k{n}#0")
                                        for n in range(20)]))  # fmt: skip
        page = await store.outline("a", 5, 3)
        assert [(event.seq, event.key, event.value) for event in page] == [(n, f"k{n}#0", None) for n in (5, 6, 7)]
        found = await store.outline_of("a", ["k9#0", "k2#0", "k6#0"], from_seq=5)
        assert [event.seq for event in found] == [6, 9]
        assert [event.seq for event in await store.outline_of("a", [], ["step.completed"], from_seq=18)] == [18, 19]
        before = await store.begun_before("a", 5, ["k2#0", "k9#0"], ["step.completed"])
        assert before == {("k2#0", None)}
        assert await store.begun_before("a", 5, ["k2#0"], ["step.started"]) == set()
        assert [(event.seq, event.value) for event in await store.events_at("a", [0, 19, 99])] == [
            (0, "1" * 300),
            (19, "1"),
        ]
        assert await store.last_of_kind("a", "step.completed", 7) == 7
        assert await store.last_of_kind("a", "checkpoint", 7) is None


async def test_the_worker_of_an_event_is_that_of_its_claim(place: Place) -> None:
    """Whichever of the first events of a claim says it, and however many claims there were; None if none says it."""
    async with place.open() as store:
        await store.create(new("a"))
        expected: list[str | None] = []
        for claim, (named, length) in enumerate([(0, 3), (2, 3), (1, 9), (0, 1), (None, 4), (0, 6)], 1):
            (row,) = await store.claim(["agent"], 1, 30_000)
            events = [step(worker=f"w{claim}") if n == named else step() for n in range(length)]
            await store.append(write(row, *events, transition=Transition("ready")))
            expected += [None if named is None or n < named else f"w{claim}" for n in range(length)]
        found = [await store.worker_at("a", event.seq, event.epoch) for event in await store.journal("a")]
        assert found == expected
