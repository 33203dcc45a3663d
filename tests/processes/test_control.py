"""Pause, resume and cancel from another process, with the worker that carries the run killed in between."""

import asyncio
import contextlib
import random
import time

import pytest
from tests.processes import fleet_agents as agents

import holdfast

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_children_end_first_whichever_workers_die",
    "test_requests_that_race_with_everything",
}

LONG = ("--lease", "60")  # what waits for the end of a lease does not end within these tests
SEEDS = 50
FINISHED = {"completed", "cancelled"}


CONTROL = ("pause", "resume", "cancel")


def deeds(fleet, run=None):
    """What the audit has of pause, resume and cancel: (action, who), the oldest first."""
    found = fleet.ask(lambda hf: hf.audit(run=run, limit=100_000))
    return [(deed.action, deed.by) for deed in reversed(found) if deed.action in CONTROL]


def wait(fleet, run, *states):
    return fleet.ask(lambda hf: hf.get(run).wait(*states))


def waiting_for(fleet, run, what):
    return lambda: fleet.ask(lambda hf: hf.get(run).info()).waits_for == what


def whats(fleet, run=None):
    return [effect.what for effect in fleet.effects(run)]


def one_of(fleet, pid):
    return next(each for each in fleet.workers if each.pid == pid)


@pytest.mark.by_day("sqlite-True", "postgres-False")
@pytest.mark.parametrize("killed", [False, True])
def test_a_waiting_run_is_paused_and_resumed(fleet, killed):
    """It stops at once and keeps what is sent; whoever serves it after the resume goes on with it."""
    first = fleet.worker(*LONG)
    fleet.start((agents.tidy, ["a"], "r"))
    fleet.until(waiting_for(fleet, "r", "message"))
    fleet.ask(lambda hf: hf.get("r").pause(by="ana", reason="lunch"))
    assert fleet.status("r") == "paused"
    if killed:
        first.kill()
    fleet.ask(lambda hf: hf.get("r").send("go", "on"))
    assert fleet.status("r") == "paused"
    fleet.ask(lambda hf: hf.get("r").resume(by="ben"))
    if killed:
        fleet.worker(*LONG)
    assert fleet.results(["r"]) == {"r": "on"}
    assert deeds(fleet, "r") == [("pause", "ana"), ("resume", "ben")]
    assert whats(fleet) == ["begins"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_running_run_is_paused_when_its_body_has_ended(fleet, killed):
    """If the worker dies between the request and that moment, the next one does it: the body again, nothing after it."""
    first = fleet.worker(*LONG)
    fleet.start((agents.slow, ["it"], "r"))
    fleet.until(fleet.effects)
    fleet.ask(lambda hf: hf.get("r").pause(by="ana"))
    if killed:
        first.kill()
        fleet.worker(*LONG)
    fleet.allow("it")
    assert wait(fleet, "r", "paused").reason == "paused by ana"
    assert set(whats(fleet)) == {"it"}
    fleet.ask(lambda hf: hf.get("r").resume(by="ana"))
    assert fleet.results(["r"]) == {"r": "after"}
    assert whats(fleet)[-1] == "after"
    assert deeds(fleet, "r") == [("pause", "ana"), ("resume", "ana")]


def test_children_end_first_whichever_workers_die(fleet):
    """Three children that tidy up on workers of their own, each killed while they do: each tidies up, then the parent."""
    fleet.worker(*LONG)
    fleet.start((agents.family, ["f"], "r"))
    fleet.until(lambda: whats(fleet).count("begins") == 3)
    fleet.ask(lambda hf: hf.get("r").cancel(by="ana", reason="enough", grace="1h"))
    fleet.until(lambda: len({effect.run for effect in fleet.effects() if effect.what.endswith("-tidy")}) == 3)
    for number in range(3):
        for pid in {each.pid for each in fleet.workers if each.running}:
            one_of(fleet, pid).kill()
        fleet.worker(*LONG)
        fleet.allow(f"f-{number}-tidy")
    assert wait(fleet, "r").reason == "cancelled by ana: enough"
    states = fleet.ask(lambda hf: hf.runs())
    assert {info.status for info in states} == {"cancelled"}
    assert len(states) == 4
    assert whats(fleet)[-1] == "last"
    assert whats(fleet).count("last") == 1
    assert whats(fleet).count("tidies") == 3  # recorded before the first kill
    assert sorted(deeds(fleet)) == [("cancel", "ana"), *[("cancel", "run r")] * 3]


def test_a_family_on_two_workers_is_paused_though_one_is_killed(fleet):
    """All of it stops and spends nothing more, whoever carried whom; after the resume each child ends with what it bought."""
    first, second = (fleet.worker(*LONG, "--concurrency", "2") for _ in range(2))
    fleet.start((agents.buyers, [4], "r"))
    fleet.until(lambda: {effect.pid for effect in fleet.effects()} == {first.pid, second.pid})
    fleet.until(lambda: len({effect.run for effect in fleet.effects()}) == 4)
    fleet.ask(lambda hf: hf.get("r").pause(by="ana"))
    first.kill()
    fleet.until(lambda: [info.status for info in fleet.ask(lambda hf: hf.runs())] == ["paused"] * 5)
    spent, done = fleet.ask(lambda hf: hf.get("r").info()).spent, len(fleet.effects())
    fleet.worker(*LONG)  # one that is new finds nothing to do either
    time.sleep(0.3)
    assert (fleet.ask(lambda hf: hf.get("r").info()).spent, len(fleet.effects())) == (spent, done)
    assert spent.usd == pytest.approx(len(fleet.events("step.completed")) / 100)
    fleet.ask(lambda hf: hf.get("r").resume(by="ana"))
    fleet.until(lambda: len(fleet.effects()) > done + 8)
    fleet.allow("enough")
    ((_, bought),) = fleet.results(["r"]).items()
    assert {info.status for info in fleet.ask(lambda hf: hf.runs())} == {"completed"}
    counts = fleet.counts()
    assert sum(bought) == len(counts) == len(fleet.events("step.completed"))
    assert sum(counts.values()) - len(counts) <= 2  # the bodies that were killed, once more
    assert fleet.ask(lambda hf: hf.get("r").info()).spent.usd == pytest.approx(sum(bought) / 100)
    assert deeds(fleet, "r") == [("pause", "ana")] * 5 + [("resume", "ana")] * 5


@pytest.mark.by_day("sqlite-True-second", "sqlite-True-grace", "postgres-False-second", "postgres-False-grace")
@pytest.mark.parametrize("how", ["second", "grace"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_run_that_does_not_stop_is_ended(fleet, how, killed):
    """By a second request, or when the grace is over; also when its worker died between the two."""
    first = fleet.worker(*LONG)
    fleet.start((agents.unwilling, ["u"], "r"))
    fleet.until(waiting_for(fleet, "r", "message"))
    fleet.ask(lambda hf: hf.get("r").cancel(by="ana", grace="1h" if how == "second" else "1.5s"))
    fleet.until(lambda: fleet.ask(lambda hf: hf.get("r").info()).steps == 1)  # recorded: it is not done again
    if killed:
        first.kill()
    if how == "second":
        fleet.ask(lambda hf: hf.get("r").cancel(by="ben"))
    if killed:
        fleet.worker(*LONG)
    assert wait(fleet, "r").status == "cancelled"
    assert whats(fleet) == ["no"]
    assert deeds(fleet, "r") == [("cancel", "ana"), ("cancel", "ben")][: 2 if how == "second" else 1]


async def harass(hf, seed, action):
    """Send two messages to a run, and pause or cancel it, at times that a seed decides; tells which requests were made."""
    chance, run, made = random.Random(f"{action} {seed}"), hf.get(f"r{seed}"), []

    async def send(number):
        await asyncio.sleep(chance.random() * 1.5)
        with contextlib.suppress(holdfast.RunFinished):
            await run.send("m", f"m{number}", key=f"m{number}")

    async def act():
        await asyncio.sleep(chance.random() * 1.5)
        with contextlib.suppress(holdfast.RunFinished, holdfast.RunActive):
            if action == "cancel":
                await run.cancel(by=f"{seed}", grace="1h")
                made.append("cancel")
            elif (await run.info()).status != "paused":
                await run.pause(by=f"{seed}")
                made.append("pause")

    async def both():
        """A second one, of the other kind, in the race with the first."""
        await asyncio.sleep(chance.random() * 1.5)
        with contextlib.suppress(holdfast.RunFinished, holdfast.RunActive):
            if action == "cancel" and seed % 2 and (await run.info()).status != "paused":
                await run.pause(by=f"{seed}")
                made.append("pause")

    await asyncio.gather(send(1), send(2), act(), both())
    return made


async def until_all_end(hf, runs):
    """Resume whatever is paused, until everything has ended."""
    resumed = 0
    async with asyncio.timeout(100):
        while True:
            states = {info.id: info.status for info in await hf.runs(limit=1000)}
            if all(states[run] in FINISHED for run in runs):
                return states, resumed
            resumed += len(await hf.resume(agent="roams", by="end"))
            await asyncio.sleep(0.05)


@pytest.mark.by_day("sqlite-pause", "postgres-cancel")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_requests_that_race_with_everything(fleet, action):
    """Among parks, messages, ends and killed workers no request or message is lost, no run is stuck, each request audited."""
    for _ in range(2):
        fleet.worker("--concurrency", "12")
    runs = [f"r{seed}" for seed in range(SEEDS)]
    fleet.start(*[(agents.roams, [8], run) for run in runs])

    async def main():
        async with holdfast.open(fleet.url) as hf:
            harassing = [asyncio.ensure_future(harass(hf, seed, action)) for seed in range(SEEDS)]
            for _ in range(2):
                await asyncio.sleep(0.7)
                alive = next(each for each in fleet.workers if each.running)
                await asyncio.to_thread(alive.kill)
                await asyncio.to_thread(fleet.worker, "--concurrency", "12")
            made = dict(zip(runs, await asyncio.gather(*harassing), strict=True))
            states, resumed = await until_all_end(hf, runs)
            rows = [(deed.run, deed.action) for deed in await hf.audit(limit=100_000) if deed.action in CONTROL]
            return made, states, resumed, rows

    made, states, resumed, rows = asyncio.run(main())
    for run in runs:
        asked = sorted(action for of, action in rows if of == run and action != "resume")
        assert asked == sorted(made[run]), run
    assert len([row for row in rows if row[1] == "resume"]) == resumed
    done = [run for run in runs if states[run] == "completed"]
    assert all(result == ["m1", "m2"] for result in fleet.results(done).values())
    if action == "pause":
        assert len(done) == SEEDS
        assert resumed > SEEDS // 2
    else:
        stopped = [run for run in runs if states[run] == "cancelled"]
        assert len(stopped) > SEEDS // 4  # the machine says whether a cancel or the messages come first
        for run in stopped:
            assert whats(fleet, run).count("tidies") >= 1 or not whats(fleet, run), run


@pytest.mark.by_day("sqlite")
@pytest.mark.timeout(180)
def test_nobody_is_left_behind_by_a_cancelled_run_whichever_workers_die(fleet):
    """Families that go on growing are cancelled while they do, and their workers killed: with the root all have ended."""
    for _ in range(2):
        fleet.worker("--concurrency", "20")
    roots = [f"r{number}" for number in range(8)]
    fleet.start(*[(agents.kin, [2], root) for root in roots])

    async def cancel(hf, number):
        async for event in hf.get(roots[number]).events():
            if event.kind == "child.started":
                break
        await asyncio.sleep(number * 0.1)
        await hf.get(roots[number]).cancel(grace="1h" if number % 2 else "0.5s")

    async def main():
        async with holdfast.open(fleet.url) as hf:
            cancelling = [asyncio.ensure_future(cancel(hf, number)) for number in range(len(roots))]
            for _ in range(2):
                await asyncio.sleep(0.6)
                alive = next(each for each in fleet.workers if each.running)
                await asyncio.to_thread(alive.kill)
                await asyncio.to_thread(fleet.worker, "--concurrency", "20")
            await asyncio.gather(*cancelling)
            family = {}
            for root in roots:
                await hf.get(root).wait(timeout=100)
                found = [info for info in await hf.runs(limit=10_000) if info.root == root]
                family[root] = {info.id: info.status for info in found if info.status not in FINISHED}
                assert len(found) > 1
            return family

    assert asyncio.run(main()) == {root: {} for root in roots}
