"""Runs that may have ended their process: many are not made to wait for each other, and the one that did it is found."""

import time

import pytest
from tests.processes import fleet_agents as agents

TAKES_S = 3.0


@pytest.mark.by_day("sqlite")
@pytest.mark.timeout(240)
def test_two_hundred_runs_whose_worker_was_killed_twice(fleet):
    """They are carried by halves: it takes a few times as long as undisturbed, and not two hundred times."""
    runs = [f"run-{number}" for number in range(200)]
    killed = fleet.worker()
    fleet.start(*[(agents.patient, [TAKES_S], run) for run in runs])
    for life in (1, 2):
        fleet.until(lambda: set(fleet.counts().values()) == {life} and len(fleet.counts()) == 200)  # noqa: B023
        killed.kill()
        if life == 1:
            killed = fleet.worker()
    fleet.allow("go")
    began = time.monotonic()
    fleet.worker()
    assert set(fleet.results(runs).values()) == {1}
    assert time.monotonic() - began < 20 * TAKES_S  # five times, and the rest for a computer that is busy
    assert set(fleet.counts().values()) == {3}


@pytest.mark.by_day("sqlite-20")
@pytest.mark.parametrize("others", [20, 60])
def test_one_of_many_that_ends_its_process_is_found(fleet, others):
    """It is alone after some deaths, and paused; all others complete, and none of them is paused."""
    runs = [f"run-{number}" for number in range(others)]
    fleet.start(*[(agents.steady, [1, 1.0], run) for run in runs], (agents.poison, [0.3], "poison"))
    deaths = 0
    while True:
        worker = fleet.worker(ready=False)
        fleet.until(lambda: not worker.running or fleet.status("poison") == "paused")  # noqa: B023
        if worker.running:
            break
        deaths += 1
    assert (4 if others == 20 else 5) <= deaths <= 9
    assert "ended its process" in fleet.ask(lambda hf: hf.get("poison").info()).reason
    assert set(fleet.results(runs).values()) == {1}
