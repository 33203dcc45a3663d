"""Workers are stopped, replaced and killed while work goes on: nothing waits for a lease, nothing recorded runs again."""

import itertools
import operator

import pytest
from tests.processes import fleet_agents as agents

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_deploy_loses_no_time_and_repeats_nothing",
    "test_the_runs_of_a_killed_worker_go_on_at_once",
}

LONG = ("--lease", "60")  # what waits for the end of a lease does not end within these tests
AT_ONCE_S = 5.0  # a second at the most, and the rest for a computer that is busy with other tests


by_key = operator.attrgetter("key")


def longest_gap_s(effects, takes_s):
    """The longest time, over all runs, between the end of a step that takes so long and the beginning of the next one."""
    times = {}
    for effect in effects:
        times.setdefault(effect.run, []).append(effect.at)
    return max(after - before - takes_s for each in times.values() for before, after in itertools.pairwise(each))


def test_each_run_is_given_back_by_itself(fleet):
    """Told to stop, a worker gives a run between two steps back at once, though another one's step takes its time."""
    first = fleet.worker(*LONG)
    fleet.start((agents.slow, ["it"], "slow"), (agents.pausing, [0.1], "pausing"))
    fleet.until(lambda: {effect.run for effect in fleet.effects()} == {"slow", "pausing"})
    second = fleet.worker(*LONG)
    first.stop()
    fleet.until(lambda: {effect.pid for effect in fleet.effects("pausing")} == {first.pid, second.pid})
    assert first.running
    assert fleet.status("slow") == "running"
    assert "Waiting up to 30 s for 1 running step" in first.said()
    fleet.allow("it")
    assert first.ended() == 0
    fleet.allow("enough")
    assert fleet.results(["slow", "pausing"]) == {"slow": "after", "pausing": len(fleet.effects("pausing"))}
    assert [effect.pid for effect in fleet.effects("slow")] == [first.pid, second.pid]
    assert set(fleet.counts().values()) == {1}
    assert longest_gap_s(fleet.effects("pausing"), 0.1) < AT_ONCE_S
    assert not fleet.events("run.interrupted")


def test_what_runs_after_the_grace_is_given_up(fleet):
    """A step that does not end within the grace is stopped, its run given back at once, and the exit code is 0."""
    first = fleet.worker(*LONG, "--grace", "0.3")
    fleet.start((agents.slow, ["it"], "slow"))
    fleet.until(fleet.effects)
    second = fleet.worker(*LONG)
    first.stop()
    assert first.ended() == 0
    assert "every run was given back" in first.said()
    fleet.until(lambda: len(fleet.effects()) == 2)
    fleet.allow("it")
    assert fleet.results(["slow"]) == {"slow": "after"}
    assert [effect.pid for effect in fleet.effects("slow")] == [first.pid, second.pid, second.pid]
    assert not fleet.events("run.interrupted")


def test_a_thread_that_must_not_run_twice_keeps_its_run(fleet):
    """Its worker ends after the grace, and only then is the run taken over: never while the thread still runs."""
    first = fleet.worker(*LONG, "--grace", "0.3")
    fleet.start((agents.stubborn, ["it"], "stubborn"))
    fleet.until(fleet.effects)
    fleet.worker(*LONG)
    first.stop()
    first.until("is not given back yet")
    assert first.ended() == 0
    alive = (fleet.folder / "alive-it").stat().st_mtime
    (error,) = fleet.results(["stubborn"]).values()
    assert "not known" in str(error)
    (taken,) = fleet.events("run.interrupted")
    assert taken.at.timestamp() >= alive - 0.1
    assert taken.at.timestamp() - alive < AT_ONCE_S
    assert len(fleet.effects()) == 1


def test_a_second_signal_stops_at_once(fleet):
    """Whoever asks twice does not wait for the grace; the run is taken over as after a crash."""
    first = fleet.worker(*LONG)
    fleet.start((agents.slow, ["it"], "slow"))
    fleet.until(fleet.effects)
    first.stop()
    first.until("Ctrl-C again stops at once")
    while first.running:  # one that comes right after the first is taken for the same press
        first.stop()
    assert first.ended() == 130
    fleet.allow("it")
    fleet.worker(*LONG)
    assert fleet.results(["slow"]) == {"slow": "after"}


@pytest.mark.by_day("postgres")
def test_the_runs_of_a_killed_worker_go_on_at_once(fleet):
    """After SIGKILL another worker takes all runs over at once, by the lock and not by the lease."""
    takes_s = 0.1
    first = fleet.worker(*LONG)
    runs = [f"run-{number}" for number in range(10)]
    fleet.start(*[(agents.enduring, [takes_s], run) for run in runs])
    fleet.until(lambda: len({effect.run for effect in fleet.effects()}) == 10)
    second = fleet.worker(*LONG)
    first.kill()
    fleet.until(lambda: {effect.run for effect in fleet.effects() if effect.pid == second.pid} == set(runs))
    fleet.allow("enough")
    assert fleet.results(runs) == {run: len(set(map(by_key, fleet.effects(run)))) for run in runs}
    assert longest_gap_s(fleet.effects(), takes_s) < AT_ONCE_S
    assert max(fleet.counts().values()) <= 2  # what ran when it was killed is not on record
    assert len(fleet.events("run.interrupted")) == 10


@pytest.mark.by_day("postgres")
@pytest.mark.timeout(120)
def test_a_deploy_loses_no_time_and_repeats_nothing(fleet, request):
    """Three workers are stopped and replaced in turn: every step of every run once, no run left lying, nothing interrupted."""
    takes_s = 0.1
    fleet_of = [fleet.worker(*LONG, "--name", f"old-{number}") for number in range(3)]
    runs = [f"run-{number}" for number in range(36)]
    fleet.start(*[(agents.enduring, [takes_s], run) for run in runs])
    fleet.until(lambda: len({effect.run for effect in fleet.effects()}) == 36)
    for number, old in enumerate(list(fleet_of)):
        new = fleet.worker(*LONG, "--name", f"new-{number}", ready=False)
        old.stop()
        assert old.ended() == 0
        new.until("Serving")
        fleet_of[number] = new
    fleet.allow("enough")
    results = fleet.results(runs)
    assert {run: len(fleet.effects(run)) for run in runs} == results
    assert set(fleet.counts().values()) == {1}
    assert {effect.pid for effect in fleet.effects()} & {each.pid for each in fleet_of}
    assert not fleet.events("run.interrupted")
    longest = longest_gap_s(fleet.effects(), takes_s)
    request.node.user_properties.append(("longest_gap_s", longest))
    assert longest < AT_ONCE_S
