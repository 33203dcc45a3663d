"""What is told of a run whose worker was killed with -9: at once that nobody has it, and not when its lease is over."""

import pytest
from tests.processes import fleet_agents as agents


@pytest.mark.by_day("sqlite")
def test_a_run_whose_worker_was_killed_is_nobodys_at_once(fleet):
    """Clients, `runs`, `show` and `runs --stuck` say that its worker is gone; then another worker goes on with it."""
    first = fleet.worker("--lease", "300")
    fleet.start((agents.slow, ["a"], "r"))
    fleet.until(lambda: fleet.effects("r"))
    assert fleet.ask(lambda hf: hf.get("r").info()).waits_for is None
    assert " is on it" in said(fleet, "show", "r")
    assert "No run is stuck" in said(fleet, "runs", "--stuck")
    first.kill()
    fleet.until(lambda: "its worker is gone" in said(fleet, "runs"))
    assert " is on it" not in (shown := said(fleet, "show", "r"))
    assert "its worker is gone" in shown
    assert "holdfast run FILE.py:slow --id r" in shown
    assert "its worker is gone or stands still" in said(fleet, "runs", "--stuck")
    info = fleet.ask(lambda hf: hf.get("r").info())
    assert (info.status, info.waits_for) == ("running", "worker")
    (listed,) = fleet.ask(lambda hf: hf.runs(status="running"))
    assert listed.waits_for == "worker"
    fleet.allow("a")
    fleet.worker()
    assert fleet.results(["r"]) == {"r": "after"}
    assert "No run is stuck" in said(fleet, "runs", "--stuck")


def test_a_client_sees_that_a_worker_was_killed(fleet):
    """A client that was open before, and asks only for this run: no command had to look first."""

    async def main(hf):
        run = hf.get("r")
        assert (await run.info()).waits_for is None
        first.kill()
        while (await run.info()).waits_for != "worker":
            assert (await run.info()).status == "running"
        (listed,) = await hf.runs()
        return listed

    first = fleet.worker("--lease", "300")
    fleet.start((agents.slow, ["a"], "r"))
    fleet.until(lambda: fleet.effects("r"))
    assert fleet.ask(main).waits_for == "worker"


def said(fleet, *words):
    process = fleet.command(*words)
    process.ended()
    return process.said()
