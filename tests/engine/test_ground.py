"""The engine on two grounds: a worker over SQLite, and lists and dicts. What it records is the same, to the letter.

Both are carried in a time that stands still while anything is left to do (`virtual_time`), so that nothing but the engine decides
what happens when. A body takes a time that its key tells, never none: what takes no time at all races with commits, on any
ground. For the same reason the one step that runs in a thread has another body here.
"""

import asyncio
import contextlib
import inspect
import random
from collections import Counter

import apsw
import pytest
from tests.engine import programs, schedules, virtual_time
from tests.engine.ground import Ground, MemoryStore
from tests.engine.programs import program
from tests.engine.test_schedules import check

import holdfast
from holdfast.engine.host import Host
from holdfast.errors import RunFinished
from holdfast.store.contract import EngineStore
from holdfast.store.runs import NewRun
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.worker import scheduler
from holdfast.worker import worker as workers
from holdfast.worker.settings import Settings
from holdfast.worker.worker import Worker

SCALE = 1000  # so that hardly two timers of different runs are due in the same millisecond


@pytest.mark.parametrize(("protocol", "here"), [(Host, Ground), (EngineStore, MemoryStore)])
def test_the_ground_has_all_that_the_engine_may_ask_for(protocol, here):
    """What it has takes the same arguments; what no program needs is there, and refuses."""
    ground = virtual_time.run(_made()) if here is Ground else None
    for name in (name for name in dir(protocol) if not name.startswith("_")):
        wanted, found = inspect.getattr_static(protocol, name), inspect.getattr_static(here, name, None)
        if isinstance(wanted, property):
            assert hasattr(ground, name), name
        elif not getattr(found, "absent", False) and name != "perform":
            assert [*inspect.signature(wanted).parameters] == [*inspect.signature(found).parameters], name


async def _made():
    ground = Ground(virtual_time.VirtualClock(asyncio.get_running_loop()), [])
    await ground.close()
    return ground


class Sqlite:
    """The runs of one file, carried by a worker."""

    def __init__(self, clock, specs, *, path, park_s):
        self._clock, self._specs, self._path, self._loop = clock, specs, path, asyncio.get_running_loop()
        self._settings = Settings(replace={programs.threaded: _threaded}, park_grace_s=park_s, lease_ttl_s=36_000)

    async def open(self):
        self.store = store = SQLiteStore(self._path, durability="none", clock=self._clock)
        self._loop.watched[:] = [lambda: store._on_its_way]
        with self._loop.standing_still():
            await store.open()
        self._worker = Worker(store, self._specs, self._settings)
        await self._worker.start()

    async def start(self, new):
        await self.store.create(new)

    async def drop(self):
        self.store.abandon()
        await self._worker.abandon()
        # A run that crashed twice without progress in between would be carried apart from others, by the worker's rules.
        apsw.Connection(str(self._path)).execute("UPDATE runs SET crash_count = 0")
        await self.open()

    async def ended(self):
        while await self.store.runs(statuses=["ready", "running", "waiting"], limit=1):
            await asyncio.sleep(SCALE)

    async def close(self):
        await self._worker.stop()
        rows = await self.store.runs(limit=100_000)
        journals = {row.id: await self.store.journal(row.id) for row in rows}
        await self.store.close()
        return rows, journals


class InMemory:
    """The runs of a ground."""

    def __init__(self, clock, specs, *, seed, park_s):
        self._ground = Ground(clock, specs, seed=seed, park_s=park_s, replace={programs.threaded.spec: _threaded})
        self.store, self.drop, self.ended = self._ground.store, self._ground.drop, self._ground.ended

    async def open(self):
        pass

    async def start(self, new):
        self._ground.start(new)

    async def close(self):
        await self._ground.close()
        return self.store.runs.values(), {run: self.store.read(run) for run in self.store.runs}


def told(rows, journals):
    """What must be the same: of each run how it ended, and of each event all there is but three things.

    `position`, the place in the order of all events of a store: a database gives it, and the engine never sees it. The
    workers that events name: their names are random. And the calls that a dead worker had said were open: only workers say so.
    """

    def line(event):
        data = {
            name: value for name, value in event.data.items() if name not in ("owner", "by", "worker", "open", "seen")
        }
        return event.seq, event.kind, event.key, data, event.value, event.blob, event.at, event.epoch

    ends = {
        row.id: (row.status, row.result, row.error, row.reason, row.steps, row.inbox_seen, row.lease_epoch)
        for row in rows
    }
    return ends, {run: list(map(line, events)) for run, events in journals.items()}


async def at(when_s):
    await asyncio.sleep(max(0.0, when_s - asyncio.get_running_loop().time()))


async def play(place, news, mails, drops):
    """Start runs, send messages and drop all at these times; returns what is told of them, and what the lives saw."""
    schedules.lives.clear()
    await place.open()
    for new in news:
        await place.start(new)

    async def send():
        for n, (when, run) in enumerate(mails):
            await at(when)
            with contextlib.suppress(RunFinished):
                await place.store.send(run, f"key:{n}", "message.received", "mail", f'"m{n}"', {})

    sending = asyncio.create_task(send())
    for when in drops:
        await at(when)
        await place.drop()
    await sending
    await place.ended()
    return told(*await place.close()), {run: list(map(list, lives)) for run, lives in schedules.lives.items()}


@pytest.fixture
def timely(monkeypatch):
    """Bodies take a time of their own, programs are slow, and a worker looks for what is due at once and for the dead never."""
    monkeypatch.setattr(programs, "scale", SCALE)
    monkeypatch.setattr(scheduler, "_BEGIN_S", 0.0)
    monkeypatch.setattr(workers, "_RECOVER_EVERY_S", 10.0**9)

    def begin(span_s):
        begun = Counter()

        def length_s():
            step = holdfast.this_step()
            name = f"{step.run.id} {step.key}"
            begun[name] += 1
            return (0.01 + random.Random(f"{name} {begun[name]}").random()) * span_s

        monkeypatch.setattr(schedules, "length_s", length_s)

    return begin


async def _threaded(what: str) -> str:
    await schedules._nap()
    return what


def new_run(name, agent, *args):
    given = agent.spec.signature.bind(args, {}).input
    uid = random.Random(name).randbytes(16).hex()
    return NewRun(name, uid, agent.spec.name, given.text, identity=given.digest)


def scene(agent, first, together, *args, span_s, drops):
    """Some runs of an agent, when they get mail, and when all are dropped."""
    rng = random.Random(f"{agent.spec.name} {first}")
    news = [new_run(f"r{n}", agent, *(arg(n) for arg in args)) for n in range(first, first + together)]
    mails = sorted((rng.random() * 10 * span_s, new.id) for new in news for _ in range(6))
    return news, mails, sorted(rng.random() * 6 * span_s for _ in range(drops))


def compare(timely, tmp_path, agent, first, together, *args, span_s, park_s=0.0, drops=0):
    """Carry some runs on each ground; returns how they ended."""
    news, mails, falls = scene(agent, first, together, *args, span_s=span_s, drops=drops)

    async def on(make, **more):
        timely(span_s)
        clock = virtual_time.VirtualClock(asyncio.get_running_loop())
        return await play(make(clock, [agent.spec], park_s=park_s, **more), news, mails, falls)

    path = tmp_path / f"{agent.spec.name}-{first}.db"
    (ends, journals), seen = virtual_time.run(on(Sqlite, path=path))
    (other_ends, other_journals), other_seen = virtual_time.run(on(InMemory, seed=first))
    for run, journal in journals.items():
        assert other_journals.get(run) == journal, run
    assert other_ends == ends
    assert other_seen == seen
    return ends


def compare_programs(timely, tmp_path, first, together, *, depth=2, drops=0):
    """Random programs, and their families."""
    args, span_s = (lambda n: n, lambda _: depth), 0.004 * SCALE
    ends = compare(timely, tmp_path, program, first, together, *args, span_s=span_s, drops=drops)
    assert {end[0] for end in ends.values()} == {"completed"}


@holdfast.agent
async def patient(seed: int, depth: int = 1) -> list[str]:
    """Waits for long: for time, for mail, for a child; and leaves memory meanwhile."""
    schedules.begin_life()
    dice, out = random.Random(seed), []
    for n in range(4):
        out.append(schedules.see(await schedules.work(f"{n}")))
        what = dice.choice(["sleep", "mail", "child", "both"] if depth else ["sleep", "mail"])
        length_s = 0.01 + dice.random()
        if what == "sleep":
            await holdfast.sleep(length_s)
        elif what == "mail":
            with contextlib.suppress(TimeoutError):
                out.append(schedules.see(await holdfast.receive("mail", str, timeout=length_s)))
        elif what == "child":
            out += schedules.see(await patient(seed + n + 1, depth - 1))
        else:
            child = await holdfast.spawn(patient, seed + n + 1, depth - 1)
            await holdfast.sleep(length_s)
            out += schedules.see(await child)
        schedules.see(what)
    return out


SEEDS, TOGETHER = 200, 20


@pytest.mark.slow
@pytest.mark.by_day("0", "80", "120")
@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_a_program_leaves_the_same_journal_on_every_ground(timely, tmp_path, first):
    compare_programs(timely, tmp_path, first, TOGETHER)


@pytest.mark.slow
@pytest.mark.by_day("0", "100")
@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_a_program_that_is_dropped_leaves_the_same_journal_on_every_ground(timely, tmp_path, first):
    """Dropped on both grounds at the same times, at which nothing is on its way: what began is begun anew."""
    compare_programs(timely, tmp_path, first, TOGETHER, drops=3)


@pytest.mark.nightly
@pytest.mark.parametrize("drops", [0, 1, 4])
@pytest.mark.parametrize("first", range(1000, 2000, 200))
def test_large_programs_leave_the_same_journal_on_every_ground(timely, tmp_path, first, drops):
    for each in range(first, first + 200, TOGETHER):
        compare_programs(timely, tmp_path, each, TOGETHER, depth=3, drops=drops)


@pytest.mark.slow
@pytest.mark.by_day("*-0.0", "races-*", "waiting-*")
@pytest.mark.parametrize("park_s", [0.0, 0.001])
@pytest.mark.parametrize("name", schedules.ALL)
def test_a_schedule_leaves_the_same_journal_on_every_ground(timely, tmp_path, name, park_s):
    for first, drops in ((0, 0), (5, 2)):
        ends = compare(timely, tmp_path, schedules.ALL[name], first, 5, span_s=0.004, park_s=park_s, drops=drops)
        assert {end[0] for end in ends.values()} == {"completed"}


@pytest.mark.slow
@pytest.mark.by_day("0.003")
@pytest.mark.parametrize("park_s", [0.0, 0.003])
def test_a_run_that_waits_out_of_memory_leaves_the_same_journal_on_every_ground(timely, tmp_path, park_s):
    for first, drops in ((0, 0), (8, 3)):
        ends = compare(timely, tmp_path, patient, first, 8, lambda n: n * 100, span_s=0.3, park_s=park_s, drops=drops)
        assert {end[0] for end in ends.values()} == {"completed"}
        assert sum(end[-1] for end in ends.values()) > 2 * len(ends)  # epochs: most came back more than once


async def dropped_anywhere(first, together, *, late_s, drops=6):
    """Programs whose bodies take any time or none, dropped at any turn of the loop; returns how often that was."""
    rng = random.Random(f"anywhere {first}")
    schedules.noise.seed(first)
    schedules.lives.clear()
    loop = asyncio.get_running_loop()
    ground = Ground(virtual_time.VirtualClock(loop), [program.spec], seed=first, late_s=late_s)
    news, mails, _ = scene(program, first, together, lambda n: n, lambda _: 2, span_s=0.004, drops=0)
    for new in news:
        ground.start(new)

    async def send():
        for n, (when, run) in enumerate(mails):
            await at(when)
            with contextlib.suppress(RunFinished):
                ground.store.put_signal(run, f"key:{n}", "message.received", "mail", f'"m{n}"', {})
                ground.store._announce()

    sending, ending = asyncio.create_task(send()), asyncio.create_task(ground.ended())
    for _ in range(drops):
        await asyncio.sleep(rng.choice((0, rng.random() * 0.003)))
        for _ in range(rng.randint(0, 60)):
            await asyncio.sleep(0)
        if not ending.done():
            await ground.drop()
    await sending
    ends = await ending
    await ground.close()
    assert {end[0] for end in ends.values()} == {"completed"}, ends
    for run in ends:
        check(run, ground.store.read(run))
    return ground.drops


@pytest.mark.slow
@pytest.mark.by_day("0.0")
@pytest.mark.parametrize("late_s", [0.0, 0.002])
def test_a_program_goes_on_wherever_it_is_dropped(late_s):
    """In the middle of a commit too: of what was not acknowledged any part may be there."""
    for first in range(0, 60, 10):
        assert virtual_time.run(dropped_anywhere(first, 10, late_s=late_s)) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("late_s", [0.0, 0.002])
@pytest.mark.parametrize("first", [1000, 2000])
def test_programs_go_on_wherever_they_are_dropped(first, late_s):
    for each in range(first, first + 1000, 10):
        assert virtual_time.run(dropped_anywhere(each, 10, late_s=late_s, drops=12)) > 1
