"""Told to stop, a process ends what it began, gives back its runs, and another process goes on at once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.processes import scenes
from tests.processes.forks import ROOT
from tests.processes.ledger import Place, check_once, check_tokens, in_doubt, until
from tests.processes.worker_process import serve, start


def ended(process):
    """It closes, and ends without a complaint."""
    while "closed" not in process.read():
        pass
    process.ends()


@pytest.mark.parametrize("agent", ["worked", "worked_fragile", "worked_in_thread"])
def test_a_running_body_may_end(forks, place, agent):
    """On SIGTERM a body that runs ends and is recorded, no other begins, and another process goes on at once."""
    first = serve(forks, place, agent, runs=[(agent, ["it"], "run")])
    assert first.read()["body"] == "it"
    first.signal(signal.SIGTERM)
    assert first.read()["stopping"]
    second = serve(forks, place, agent)
    assert place.run("run", "status") == "running"  # it waits for the body
    lease_end = place.run("run", "due_at")
    (place.folder / "go-it").touch()
    ended(first)
    until(lambda: place.run("run", "status") == "completed")
    assert time.time() * 1000 < lease_end
    assert [(line.what, line.pid == second.pid) for line in place.lines()] == [("it-1", 0), ("it", 0), ("it-3", 1)]
    assert place.run("run", "crash_count") == 0
    assert "run.interrupted" not in {event.kind for event in place.events()}


@pytest.mark.parametrize("agent", ["worked", "worked_fragile"])
def test_a_body_that_takes_too_long_is_left_in_doubt(forks, place, agent):
    """A body that does not end within the grace is given up: the run is free at once, and the step's policy decides."""
    first = serve(forks, place, agent, runs=[(agent, ["it"], "run")], stop_grace_s=0.2)
    assert first.read()["body"] == "it"
    first.signal(signal.SIGTERM)
    ended(first)
    assert place.run("run", "status", "lease_owner") == ("ready", None)
    (place.folder / "go-it").touch()
    serve(forks, place, agent)
    status = "failed" if agent == "worked_fragile" else "completed"
    until(lambda: place.run("run", "status") == status)
    assert [line.what for line in place.lines()].count("it") == (1 if agent == "worked_fragile" else 2)
    check_tokens(place.lines())
    if agent == "worked_fragile":
        told = json.loads(place.run("run", "error"))["message"]
        assert "its worker was stopped, or gave the run back, while the body ran" in told  # nothing has crashed


def test_a_thread_that_must_not_run_twice_is_waited_for(forks, place):
    """A thread cannot be stopped: its run is given back when it has returned, however long after the grace that is."""
    first = serve(forks, place, "worked_in_thread", runs=[("worked_in_thread", ["it"], "run")], stop_grace_s=0.1)
    assert first.read()["body"] == "it"
    serve(forks, place, "worked_in_thread")
    first.signal(signal.SIGTERM)
    until(lambda: "is not given back yet" in first.log.read_text())
    assert place.run("run", "status") == "running"
    assert first.poll() is None
    (place.folder / "go-it").touch()
    until(lambda: place.run("run", "status") == "completed")
    assert first.wait() == 0
    assert [line.what for line in place.lines()] == ["it-1", "it", "it-3"]
    assert "run.interrupted" not in {event.kind for event in place.events()}


@pytest.mark.parametrize("attempt", range(3))
def test_closing_right_after_opening(forks, place, attempt):
    """A process that closes while its runs are being claimed and loaded gives all of them back, and does not wait."""
    start(place, *[("worked", [f"it-{n}"], f"run-{n}") for n in range(30)])
    first = serve(forks, place, "worked", ready=False)
    while "ready" not in first.read():
        pass
    first.signal(signal.SIGTERM)
    for n in range(30):
        (place.folder / f"go-it-{n}").touch()
    ended(first)
    assert place.query("SELECT count(*) FROM runs WHERE lease_owner IS NOT NULL OR status = 'running'") == [(0,)]
    assert {event.kind for event in place.events()} <= {"step.completed", "run.completed"}
    serve(forks, place, "worked")
    until(lambda: place.query("SELECT count(*) FROM runs WHERE status = 'completed' AND crash_count = 0") == [(30,)])
    assert max(max(place.effects_of(f"run-{n}").values()) for n in range(30)) == 1


CASES = [(agent.name, 0.0) for agent in scenes.ALL]
CASES += [(name, 60.0) for name in ("sleep", "child", "messages", "timeout")]


@pytest.mark.by_day("messages-kept")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("agent", "grace_s"), CASES, ids=[f"{name}-{'kept' if s else 'parked'}" for name, s in CASES])
def test_closed_at_every_commit(forks, tmp_path, agent, grace_s, request):
    """Closed at any commit, a process leaves nothing in doubt and no crash on record; the run ends undisturbed."""

    def carry(place, **arguments):
        return forks.start(scenes.play, folder=str(place.folder), agent=agent, grace_s=grace_s, **arguments)

    def new_place(name):
        (tmp_path / name).mkdir()
        return Place(tmp_path / name)

    undisturbed = carry(new_place("undisturbed"))
    expected = undisturbed.read()
    closes = 0
    for commit in range(expected["commits"] + 1):
        for when in ("before", "after"):
            place = new_place(f"{when}-{commit}")
            first = carry(place, commit=commit, when=when, kindly=True)
            said = first.read()
            first.ends()
            if "closed" not in said:
                assert said["result"] == expected["result"]
                continue
            closes += 1
            left = place.dead()
            assert not in_doubt(left)
            assert not place.query("SELECT id FROM runs WHERE status = 'running'")
            second = carry(place)
            assert second.read()["result"] == expected["result"]
            second.ends()
            check_once(left, place.lines(), {second.pid})
            check_tokens(place.lines())
            attempts = [(line.run, line.key, line.attempt) for line in place.lines()]
            assert len(attempts) == len(set(attempts))
            assert "run.interrupted" not in {event.kind for event in place.events()}
    request.node.user_properties.append(("crash_points", closes))
    assert closes > expected["commits"]  # parallel work does not always come to the same number of commits


SCRIPT = """
import asyncio, signal, sys
import holdfast

@holdfast.step
def work(what: str) -> str:
    print("working", flush=True)
    sys.stdin.readline()
    return what

@holdfast.agent
async def agent() -> str:
    return await work("one") + await work("two")

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with holdfast.open(sys.argv[1], agents=[agent]) as hf:
        run = await hf.start(agent, id="run")
        print(await run.result())

try:
    asyncio.run(main())
except asyncio.CancelledError:
    print("stopped")
"""


def test_a_real_interpreter_ends_clean(place):
    """A new interpreter with every warning an error ends by itself after SIGTERM, without a word of complaint."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT, f"sqlite:{place.store}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as first:
        try:
            assert first.stdout.readline() == "working\n"
            first.send_signal(signal.SIGTERM)
            assert first.communicate("\n", timeout=20) == ("stopped\n", "")
            assert first.returncode == 0
        finally:
            first.kill()
    assert place.run("run", "status", "steps", "lease_owner") == ("ready", 1, None)
    again = subprocess.run(command, env=environment, text=True, input="\n", capture_output=True, check=True, timeout=20)
    assert (again.stdout, again.stderr) == ("working\nonetwo\n", "")
