"""One owner at a time: who works on a run, when it is taken over, and what becomes of the one that lost it."""

import asyncio
import signal
import time

import pytest
from tests.processes import workers
from tests.processes.ledger import check_tokens, closed, until
from tests.processes.worker_process import executions, serve, start, stop

import holdfast

SHORT = {"lease_ttl_s": 3.0}  # a busy computer keeps it; the others have workers.LONG_S


def completed(place, *runs):
    until(lambda: all(place.run(run, "status") == "completed" for run in runs))


def once(place, run):
    """Each recorded step of the run had its effect once."""
    counts = place.effects_of(run)
    assert set(counts.values()) == {1}
    assert {(run, key) for key in counts} <= closed(place.events())


def test_an_owner_that_lost_its_run_is_refused(forks, place):
    """Of two processes that both hold a run, the one whose epoch is over gets LeaseLost and writes nothing."""
    start(place, ("quick", [3], "run"))
    stale = forks.start(workers.hold, folder=str(place.folder), ttl_ms=1)
    assert stale.read() == {"claimed": "run", "epoch": 1}
    until(lambda: place.run("run", "due_at") < time.time() * 1000)
    owner = serve(forks, place, "quick")
    completed(place, "run")
    stale.tell()
    assert "epoch 2" in stale.read()["refused"]
    once(place, "run")
    assert {line.pid for line in place.lines()} == {owner.pid}
    assert {epoch for (epoch,) in place.query("SELECT epoch FROM events")} == {2}


def test_two_processes_that_go_on_with_one_run(forks, place):
    """Two processes start the same run and serve it at the same time: one works, each step happens once."""
    runs = [("worked", ["held"], "run")]
    both = [serve(forks, place, "worked", runs=runs, ready=False) for _ in range(2)]
    until(lambda: len(place.lines()) == 2)
    (place.folder / "go-held").touch()
    completed(place, "run")
    once(place, "run")
    assert len({line.pid for line in place.lines()}) == 1
    owners = [process for process in both if process.pid == place.lines()[0].pid]
    assert len(owners) == 1
    assert place.run("run", "lease_epoch", "crash_count") == (1, 0)


def test_a_killed_process_is_replaced_at_once(forks, place):
    """After kill -9 a new process goes on long before the lease ends, and repeats only what was not recorded."""
    first = serve(forks, place, "worked", runs=[("worked", ["held"], "run")])
    assert first.read()["body"] == "held"
    first.kill()
    lease_end = place.run("run", "due_at")
    (place.folder / "go-held").touch()
    second = serve(forks, place, "worked", ready=False)
    completed(place, "run")
    assert time.time() * 1000 < lease_end
    whats = [(line.what, line.pid == second.pid) for line in place.lines()]
    assert whats == [("held-1", False), ("held", False), ("held", True), ("held-3", True)]
    check_tokens(place.lines())
    assert place.run("run", "crash_count") == 0  # it made progress since


def test_a_running_worker_takes_over_at_once(forks, place):
    """A worker that runs already notices the death of another and goes on with its runs before their lease ends."""
    first = serve(forks, place, "worked", runs=[("worked", ["held"], "run")])
    assert first.read()["body"] == "held"
    other = serve(forks, place, "worked")
    stop(place, first)  # so that it does not end the body before it is dead
    (place.folder / "go-held").touch()
    lease_end = place.run("run", "due_at")
    first.kill()
    completed(place, "run")
    assert time.time() * 1000 < lease_end
    assert place.lines()[-1].pid == other.pid
    check_tokens(place.lines())


@pytest.mark.parametrize("agent", ["worked", "tried_again", "worked_fragile"])
def test_a_stopped_process_that_wakes_up_does_nothing(forks, place, agent):
    """Stopped for longer than its lease, a process is replaced; when it goes on it records and begins nothing."""
    stale = serve(forks, place, agent, "quick", runs=[(agent, ["it"], "run")], park_grace_s=60.0, **SHORT)
    if agent == "tried_again":
        until(lambda: len(place.query("SELECT 1 FROM events WHERE kind = 'step.retrying'")) == 2)
    else:
        assert stale.read()["body"] == "it"
    stop(place, stale)
    lease_end, epoch = place.run("run", "due_at", "lease_epoch")
    other = serve(forks, place, agent, **SHORT)
    (place.folder / "go-it").touch()
    status = "failed" if agent == "worked_fragile" else "completed"  # by in_doubt="fail"
    until(lambda: place.run("run", "status") == status)
    before = place.lines()
    (taken,) = place.query("SELECT at FROM events WHERE kind = 'run.interrupted'")
    assert taken[0] >= lease_end  # it was not robbed while the lease was its own

    stale.go_on()
    until(lambda: executions(stale) == [])
    other.kill()
    start(place, ("quick", [2], "next"))  # and it is good for other work
    completed(place, "next")
    lines = place.lines()
    assert [line for line in lines if line.run == "run"] == before
    assert {line.pid for line in lines if line.run == "next"} == {stale.pid}
    late = place.query("SELECT kind, epoch FROM events WHERE run_id = 'run' AND at >= ?", taken[0])
    assert {found for _, found in late} == {epoch + 1}
    check_tokens(lines)


def test_a_loop_that_hangs_for_too_long_loses_its_runs(forks, place):
    """Past the limit the leases of a hung process are kept no more: others go on, and it does nothing when it turns."""
    hung = serve(forks, place, "hogging", "worked", runs=[("worked", ["held"], "other")], hang_limit_s=1.5, **SHORT)
    assert hung.read()["body"] == "held"
    start(place, ("hogging", ["it"], "greedy"))
    until((place.folder / "hogged-it").exists)
    began, heir = time.monotonic(), serve(forks, place, "hogging", "worked", **SHORT)
    (place.folder / "go-held").touch()
    completed(place, "greedy", "other")
    assert time.monotonic() - began > 1.5
    assert "turns again" not in hung.log.read_text()
    assert {line.pid for line in place.lines() if line.what in ("it-2", "held-3")} == {heir.pid}
    assert "not prolonged any more" in hung.log.read_text()
    (place.folder / "turn-it").touch()
    until(lambda: "turns again" in hung.log.read_text())
    until(lambda: executions(hung) == [])
    once(place, "greedy")


def test_a_worker_goes_on_looking_after_an_error_of_the_database(forks, place):
    """A claim that fails in a way nobody foresaw is logged and made again."""
    worker = serve(forks, place, "quick")
    place.query(
        "CREATE TRIGGER broken BEFORE UPDATE OF lease_epoch ON runs BEGIN SELECT RAISE(ABORT, 'not foreseen'); END"
    )
    start(place, ("quick", [1], "run"))
    until(lambda: "not foreseen" in worker.log.read_text())
    place.query("DROP TRIGGER broken")
    completed(place, "run")


@pytest.mark.timeout(90)
def test_a_run_that_kills_its_process_is_paused(forks, place):
    """A run that ends its process five times without progress is paused with the reason; others are served on."""
    others = [("worked", [f"other-{n}"], f"other-{n}") for n in range(3)]
    start(place, ("poison", [99], "poison"), *others)
    (place.folder / "die").touch()
    deaths = 0
    while True:
        process = serve(forks, place, "poison", "worked", "quick", ready=False)
        until(lambda: process.poll() is not None or place.run("poison", "status") == "paused")  # noqa: B023
        if process.poll() is None:
            break
        deaths += 1
        if deaths == 2:
            for n in range(3):
                (place.folder / f"go-other-{n}").touch()
    assert deaths == 5
    reason = place.run("poison", "reason")
    assert "5 times" in reason
    assert "resume" in reason
    completed(place, *(run for _, _, run in others))
    for _, _, run in others:
        assert place.run(run, "crash_count", "reason") == (0, None)
    start(place, ("quick", [3], "more"))
    completed(place, "more")
    assert place.run("poison", "status") == "paused"


def test_a_paused_run_can_be_resumed_when_its_cause_is_gone(forks, place):
    """Resumed by a person, a run that was paused for its crashes goes on with a clean count."""
    start(place, ("poison", [5], "poison"))
    (place.folder / "die").touch()
    for _ in range(5):
        assert serve(forks, place, "poison", ready=False).wait() == -signal.SIGKILL
    serve(forks, place, "poison")
    until(lambda: place.run("poison", "status") == "paused")

    async def resume():
        async with holdfast.open(f"sqlite:{place.store}") as hf:
            run = hf.get("poison", workers.poison)
            with pytest.raises(holdfast.RunPaused, match="5 times"):
                await run.result()
            await run.resume(by="ana")
            return await run.result(timeout=20)

    assert asyncio.run(resume()) == "survived"


def test_a_suspect_runs_alone(forks, place):
    """A run with two crashes is run alone in its process; others wait for it, or go on in another process."""
    start(place, ("suspect", ["bad"], "bad"))
    for _ in range(2):
        assert serve(forks, place, "suspect", "worked", ready=False).wait() == -signal.SIGKILL
    (place.folder / "go-bad").touch()
    (place.folder / "go-good").touch()
    alone = serve(forks, place, "suspect", "quick", ready=False)
    while "body" not in alone.read():
        pass
    assert place.run("bad", "crash_count") == 2
    start(place, *[("quick", [2], f"good-{n}") for n in range(5)])
    other = serve(forks, place, "quick")
    completed(place, *[f"good-{n}" for n in range(5)])
    assert {line.pid for line in place.lines()} == {other.pid}
    (place.folder / "end-bad").touch()
    completed(place, "bad")
    other.kill()
    start(place, ("quick", [2], "last"))
    completed(place, "last")
    assert place.lines()[-1].pid == alone.pid  # and then it serves like any other


@pytest.mark.parametrize("attempt", range(3))
def test_a_suspect_waits_for_innocent_runs(forks, place, attempt):
    """A run with two crashes is not begun beside others, however many are claimed then: none of them is blamed."""
    start(place, ("suspect", ["bad"], "bad"))
    for _ in range(2):
        assert serve(forks, place, "suspect", ready=False).wait() == -signal.SIGKILL
    start(place, *[("worked", [f"good-{n}"], f"good-{n}") for n in range(20)])
    process = serve(forks, place, "suspect", "worked", ready=False)
    until(lambda: len(place.lines()) == 40)  # all of them are in their second step
    assert place.run("bad", "crash_count", "lease_epoch") == (1, 2)
    for n in range(20):
        (place.folder / f"go-good-{n}").touch()
    completed(place, *[f"good-{n}" for n in range(20)])
    assert process.wait() == -signal.SIGKILL  # then it was the suspect's turn
    assert {place.run(f"good-{n}", "crash_count") for n in range(20)} == {0}


def test_a_suspect_does_not_wait_for_ever(forks, place):
    """In a process that is never empty a run with two crashes is run after a while, beside what is there."""
    start(place, ("suspect", ["bad"], "bad"))
    for _ in range(2):
        assert serve(forks, place, "suspect", ready=False).wait() == -signal.SIGKILL
    for name in ("go-bad", "end-bad"):
        (place.folder / name).touch()
    process = serve(forks, place, "suspect", "worked", runs=[("worked", ["good"], "good")], suspect_wait_s=1.0)
    completed(place, "bad")
    until(lambda: executions(process) == ["good"])
    (place.folder / "go-good").touch()
    completed(place, "good")


def test_a_worker_takes_no_more_than_it_may(forks, place):
    """However fast runs come, a worker holds no more of them than its concurrency."""
    start(place, *[("worked", [f"it-{n}"], f"it-{n}") for n in range(12)])
    serve(forks, place, "worked", ready=False, concurrency=3)
    until(lambda: len(place.lines()) == 6)  # two steps of each of three
    for n in range(12):
        running = place.query("SELECT count(*) FROM runs WHERE status = 'running'")
        assert running <= [(3,)]
        (place.folder / f"go-it-{n}").touch()
    completed(place, *[f"it-{n}" for n in range(12)])


def test_a_client_elsewhere_sees_events_as_they_happen(forks, place):
    """A client in another process sees an event while the run goes on: the run can end only because it did."""
    process = serve(forks, place, "worked")
    start(place, ("worked", ["it"], "run"))
    watcher = forks.start(workers.watch, folder=str(place.folder), run="run", allow=["step.completed", "go-it"])
    assert watcher.read()["ready"]
    kinds = [said["kind"] for said in watcher.says()]
    assert kinds == ["step.completed", "step.completed", "step.completed", "run.completed"]
    watcher.ends()
    once(place, "run")
    assert {line.pid for line in place.lines()} == {process.pid}


@pytest.mark.parametrize("grace_s", [0.0, 60.0], ids=["parked", "in memory"])
def test_messages_from_another_process_arrive_quickly(forks, place, grace_s):
    """Twenty messages, each sent when the effect of the one before was seen, take no poll's time."""
    serve(forks, place, "listening", runs=[("listening", [20], "run")], park_grace_s=grace_s, poll_s=5.0)
    sender = forks.start(workers.converse, folder=str(place.folder), run="run", messages=20, poll_s=5.0)
    times = [said["at"] for said in sender.says()]
    assert len(times) == 20
    assert times[-1] - times[0] < 25  # the poll alone would take 20 times up to 5 seconds
    sender.ends()
    completed(place, "run")
    once(place, "run")


def test_eight_processes_share_fifty_runs(forks, place):
    """Eight processes that open one new file at once and serve fifty runs complete each run and each step once."""
    runs = [("quick", [4], f"run-{n}") for n in range(50)]
    all_of_them = [serve(forks, place, "quick", runs=runs, ready=False) for _ in range(8)]
    for process in all_of_them:
        assert process.read()["ready"]
    completed(place, *(run for _, _, run in runs))
    for _, _, run in runs:
        once(place, run)
        assert place.run(run, "lease_epoch", "steps") == (1, 4)
    assert len(place.lines()) == 200
    assert len({line.pid for line in place.lines()}) > 1
    for process in all_of_them:
        process.tell("close")
        process.ends()
    check_tokens(place.lines())
