"""`holdfast runs --stuck`: which runs it names, and what it says of them."""

import asyncio
import json
import time

from tests.cli.terminal import FLEET
from tests.store.places import ManualClock, Place, finish, new, owned, park, write

from holdfast.store.appends import Transition
from holdfast.store.runs import NewRun
from holdfast.store.sqlite.store import SQLiteStore

MINUTE = 60_000


def ago(folder, scene):
    """Do something in the store of this folder as if it were an hour ago."""
    clock = ManualClock(round(time.time() * 1000) - 60 * MINUTE)
    asyncio.run(scene(Place(SQLiteStore.from_url, f"sqlite:{folder}/holdfast.db"), clock))


def test_nothing_is_stuck_where_all_goes_on(cli):
    """Finished runs, waiting ones and those for later are not stuck."""

    async def scene(place, clock):
        async with place.open(clock) as store:
            await finish(store, await owned(store, "done"))
            await park(store, await owned(store, "waits"), seen=0, waits_for="message")
            await store.create(new("later", delay_ms=120 * MINUTE))

    ago(cli.folder, scene)
    found = cli("runs", "--stuck")
    assert (found.exit_code, found.stdout) == (0, "No run is stuck in sqlite:holdfast.db.\n")
    assert cli.json("runs", "--stuck") == {"runs": [], "held": None}


async def trouble(place, clock):
    """One run that nobody serves, one whose worker was stopped, and one that ended its process three times."""
    async with place.open(clock) as store:
        await store.create(new("unserved", agent="nobody", queue="slow", labels='{"team":"sea"}'))
        clock.time += 1
    stopped = await held(place, clock, "gone", "other")
    await held(place, clock, "bad", "twice")
    for number in range(3):
        clock.time += MINUTE
        store = place.connect(place.url, clock=clock)
        await store.open()
        (row,) = await store.claim(["twice"], 1, 1_000, alone=True)
        if number == 2:
            reason = "run 'bad' ended its process 3 times without any progress in between"
            await store.append(write(row, transition=Transition("paused", reason=reason)))
            await store.close()
        else:
            store.abandon()
    assert stopped.lease_epoch == 1


async def held(place, clock, run, agent):
    store = place.connect(place.url, clock=clock)
    await store.open()
    row = await owned(store, run, agent=agent)
    store.abandon()
    return row


def test_each_stuck_run_is_told_with_its_reason(cli):
    """No worker, a lease that is over, and crashes: each in words, with what to do; the longest due first."""
    ago(cli.folder, trouble)
    lines = cli("runs", "--stuck").stdout.splitlines()
    assert [line.split()[0] for line in lines[::3]] == ["unserved", "gone", "bad"]
    assert lines[1] == "  it has been due for 1 h, and no live worker serves 'nobody'"
    assert lines[2] == "  Go on: holdfast run FILE.py:nobody --id unserved"
    assert "its worker is gone or stands still: nobody has had it for" in lines[4]
    assert lines[7] == "  it is paused: ended its process 3 times without any progress in between"
    assert lines[8] == "  holdfast resume bad"


def test_crashes_that_nobody_serves_and_children_are_told_with_what_mends_them(cli):
    """A run that ended its process twice and has no worker has both reasons; a child's command is one that carries it."""

    async def scene(place, clock):
        await crashed(place, clock, "bad", "twice")
        async with place.open(clock) as store:
            parent = await owned(store, "mother", agent="other")
            child = new("mother.kid", agent="kid", parent_id="mother", parent_key="kid#0", root_id="mother")
            await store.append(write(parent, children=[child]))
            await park(store, parent, seen=0, waits_for="child")

    ago(cli.folder, scene)
    told = {run["id"]: (run["stuck"], run["advice"]) for run in cli.json("runs", "--stuck")["runs"]}
    reason, advice = told["bad"]
    assert reason == "its process has ended 2 times without progress in between, and no live worker serves 'twice'"
    assert advice.endswith("Go on: holdfast run FILE.py:twice --id bad")
    assert told["mother.kid"][1] == "Go on: holdfast worker FILE.py"


async def crashed(place, clock, run, agent):
    """Its process ends twice."""
    await held(place, clock, run, agent)
    clock.time += MINUTE
    store = place.connect(place.url, clock=clock)
    await store.open()
    await store.claim([agent], 1, 1_000, alone=True)
    store.abandon()


def test_a_run_that_waits_after_crashes_is_well(cli):
    """It came so far that it waits: nothing is wrong with it now, whoever looks."""

    async def scene(place, clock):
        await crashed(place, clock, "waits", "twice")
        clock.time += MINUTE
        async with place.open(clock) as store:
            (row,) = await store.claim(["twice"], 1, 1_000, alone=True)
            await park(store, row, seen=0, waits_for="message")

    ago(cli.folder, scene)
    assert cli.json("runs")["runs"][0]["crashes"] == 2
    assert cli("runs", "--stuck").stdout.startswith("No run is stuck")
    well = cli("doctor")
    assert well.exit_code == 0, well.output


def test_show_names_the_run_below_that_nobody_serves(cli):
    """What a family truly waits for, and the command of the run above all."""

    async def scene(place, clock):
        async with place.open(clock) as store:
            parent = await owned(store, "mother", agent="other")
            child = new("mother.kid", agent="kid", parent_id="mother", parent_key="kid#0", root_id="mother")
            await store.append(write(parent, children=[child]))
            await park(store, parent, seen=0, waits_for="child")

    ago(cli.folder, scene)
    told = cli("show", "mother").stdout
    assert "  run mother.kid: due, but no live worker serves 'kid'\n" in told
    assert "  Go on:  holdfast run FILE.py:other --id mother\n" in told
    assert "waits for a child" not in told


def test_paused_runs_are_stuck_whatever_paused_them(cli):
    """Code that does not fit, or a person: `doctor` and `--stuck` name the same runs, at the same time."""

    async def scene(place, clock):
        async with place.open(clock) as store:
            reason = "NondeterminismError: run 'unfit': what the journal has does not fit"
            await store.append(write(await owned(store, "unfit"), transition=Transition("paused", reason=reason)))
            clock.time = round(time.time() * 1000)
            await store.create(new("new", agent="nobody"))

    ago(cli.folder, scene)
    named = [run["id"] for run in cli.json("runs", "--stuck")["runs"]]
    assert named == ["unfit", "new"] == [problem["run"] for problem in cli.json("doctor")["problems"]]
    assert "NondeterminismError: what the journal has does not fit\n" in cli("runs", "--stuck").stdout
    assert "  NondeterminismError: what the journal" in cli("runs").stdout


def test_stuck_runs_as_json_and_narrowed(cli):
    """Each document is that of the list with the queue, the reason and the advice; the filters of the list apply."""
    ago(cli.folder, trouble)
    found = cli.json("runs", "--stuck")["runs"]
    assert [(run["id"], run["queue"], run["crashes"]) for run in found] == [
        ("unserved", "slow", 0), ("gone", "default", 0), ("bad", "default", 3),
    ]  # fmt: skip
    assert found[0]["stuck"].endswith("no live worker serves 'nobody'")
    assert found[2]["advice"] == "holdfast resume bad"

    def ids(*words):
        return [run["id"] for run in cli.json("runs", "--stuck", *words)["runs"]]

    assert ids("--label", "team=sea") == ids("--agent", "nobody") == ids("--limit", 1) == ["unserved"]
    assert ids("--status", "paused") == ["bad"]
    assert ids("--label", "team=land") == []


def test_doctor_says_the_same_of_them(cli):
    """Every stuck run is a problem of the store."""
    ago(cli.folder, trouble)
    found = {problem["run"]: problem["problem"] for problem in cli.json("doctor")["problems"]}
    assert found.keys() == {"unserved", "gone", "bad"}
    assert found["bad"].startswith("run bad: it is paused: ")


def test_a_run_whose_queue_nobody_takes_is_stuck(terminal):
    """A live worker serves the agent, but only runs of another queue."""

    async def scene(place, clock):
        async with place.open(clock) as store:
            await store.create(NewRun("a", "0" * 32, "greet", '{"name":"ana"}', queue="slow"))

    ago(terminal.folder, scene)
    worker = terminal.start("worker", FLEET, "--queues", "quick,quicker")
    worker.until("Serving")
    _, output = terminal.run("runs", "--stuck")
    _, reason, advice = output.splitlines()
    assert reason == "  it has been due for 1 h, and no worker takes queue 'slow'"
    assert advice == "  Start one: holdfast worker FILE.py --queues slow"
    other = terminal.start("worker", FLEET, "--queues", "slow")
    other.until("a  completed")
    assert terminal.run("runs", "--stuck")[1].startswith("No run is stuck")


def test_a_run_that_full_workers_leave_is_stuck(terminal):
    """A live worker that serves the agent and has no room: the run is due for long, and that is said."""

    async def scene(place, clock):
        async with place.open(clock) as store:
            await store.create(NewRun("first", "0" * 32, "read", '{"pages":1}'))
            clock.time += 30 * MINUTE
            await store.create(NewRun("second", "1" * 32, "read", '{"pages":1}'))

    ago(terminal.folder, scene)
    worker = terminal.start("worker", FLEET, "--concurrency", 1)
    worker.until("body: page 0")
    code, output = terminal.run("runs", "--stuck")
    assert code == 0
    head, reason, _ = output.splitlines()
    assert head.startswith("second  read")
    assert reason == "  it has been due for 30 min and no worker took it: those there are are full or hang"
    terminal.touch("go-0")
    worker.until("second  completed")
    assert terminal.run("runs", "--stuck")[1].startswith("No run is stuck")


def until_begun(terminal, bodies):
    """Until so many bodies have begun, by their ledger: what threads print together may share a line."""
    while len(terminal.ledger) < bodies:
        time.sleep(0.01)


def test_a_run_that_is_held_back_after_crashes_is_told_as_such(terminal):
    """After two deaths of its process a worker serves it and carries others first: no command says that it has no worker."""
    for run in "abcd":
        terminal.run("start", f"{FLEET}:read", 1, "--id", run)
    for bodies in (4, 8):
        worker = terminal.start("worker", FLEET)
        until_begun(terminal, bodies)
        worker.kill()
    third = terminal.start("worker", FLEET)
    until_begun(terminal, 10)
    found = {each["id"]: each["waits_for"] for each in json.loads(terminal.run("runs", "--json")[1])["runs"]}
    held = sorted(run for run, waits_for in found.items() if waits_for == "group")
    assert (len(held), sorted(found.values(), key=str)) == (2, [None, None, "group", "group"])
    _, listed = terminal.run("runs")
    assert (listed.count("held back: carried apart after 2 crashes"), listed.count("gone")) == (2, 0)
    goes_on = "goes on when the runs that are tried first have made progress or ended"
    _, stuck = terminal.run("runs", "--stuck")
    assert stuck.count("  it is held back: carried apart after 2 crashes; a worker serves 'read'\n") == 2
    assert (stuck.count(f"It {goes_on}."), stuck.count("holdfast run"), stuck.count("gone")) == (2, 0, 0)
    _, shown = terminal.run("show", held[0])
    assert f"held back: carried apart after 2 crashes; {goes_on}" in shown
    assert "is gone" not in shown
    assert "holdfast run" not in shown
    _, told = terminal.run("cancel", held[0])
    first, *more = told.splitlines()
    assert first == f"{held[0]} was told to stop. It is held back: carried apart after 2 crashes; it {goes_on}."
    assert more == [
        "The worker that goes on with it lets it tidy up and ends it. To end it now, as it is:",
        f"  holdfast cancel {held[0]}",
    ]
    _, told = terminal.run("pause", held[1])
    assert told == f"{held[1]} was told to pause. It is held back: carried apart after 2 crashes; it {goes_on}.\n"
    terminal.touch("go-0")
    third.until(f"{held[0]}  asked to stop")
