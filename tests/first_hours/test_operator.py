"""The first hour of an operator: workers on a shared store, one of them dead, runs to stop, mend, keep and delete."""

import json

from tests.first_hours.conftest import until

JOBS = """
import os, holdfast

@holdfast.step
async def work(n: int) -> int:
    if n == 3 and not os.path.exists("mended"):
        raise ValueError("the disk is full")
    return n

@holdfast.agent
async def job(n: int) -> int:
    done = await work(n)
    if n == 0:
        await holdfast.receive("go", str)
    return done
"""


def test_a_day_of_an_operator(user, store_url):
    """A dead worker's runs go on elsewhere; each command says what is there, what it did and who did it."""
    user.writes("jobs.py", JOBS)
    user.env["HOLDFAST_URL"] = store_url
    first = user.starts("holdfast", "worker", "jobs.py", "--name", "one")
    first.says("Serving")
    for n in range(5):
        assert f"j{n}" in user.types("holdfast", "start", "job", str(n), "--id", f"j{n}", "--label", "team=a")

    def states():
        return {run["id"]: run["status"] for run in user.asks("holdfast", "runs")["runs"]}

    until(
        lambda: states() == {"j0": "waiting", "j1": "completed", "j2": "completed", "j3": "failed", "j4": "completed"}
    )
    first.kill()
    second = user.starts("holdfast", "worker", "jobs.py", "--name", "two")
    second.says("Serving")

    user.types("holdfast", "pause", "j0", "--by", "ana", "--reason", "maintenance")
    until(lambda: states()["j0"] == "paused")
    user.types("holdfast", "resume", "j0", "--by", "ana")
    user.types("holdfast", "send", "j0", "go", "now")
    until(lambda: states()["j0"] == "completed")

    (user.folder / "mended").touch()
    user.types("holdfast", "retry", "--status", "failed", "--by", "ana")
    until(lambda: states()["j3"] == "completed")

    deeds = [(deed["action"], deed["by"]) for deed in user.asks("holdfast", "audit", "j0")["audit"]]
    assert {("pause", "ana"), ("resume", "ana")} <= set(deeds), deeds
    user.types("holdfast", "backup", "copy.db")
    kept = json.loads(user.types("holdfast", "--db", "sqlite:copy.db", "runs", "--json"))["runs"]
    assert {run["id"] for run in kept} == set(states())
    told = user.types("holdfast", "prune", "--older-than", "0s", "--dry-run")
    assert "5" in told and len(states()) == 5
    user.types("holdfast", "prune", "--older-than", "0s")
    assert states() == {}
    user.types("holdfast", "doctor")
