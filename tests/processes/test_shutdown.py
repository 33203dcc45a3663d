"""Told to stop, a process ends what it began, gives back its runs, and another goes on at once; a full disk only delays."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest
from tests.processes import scenes
from tests.processes.ledger import Place, check_once, check_tokens, in_doubt, until
from tests.processes.starting import serve, start

AT_ONCE_S = 3.0


def ended(process):
    """It closes, and ends without a complaint."""
    while "closed" not in process.read():
        pass
    process.ends()


@pytest.mark.parametrize("agent", ["worked", "worked_fragile"])
def test_a_running_body_may_end(forks, place, agent):
    """On SIGTERM a body that runs ends and is recorded, no other begins, and another process goes on at once."""
    first = serve(forks, place, agent, runs=[(agent, ["it"], "run")])
    assert first.read()["body"] == "it"
    first.signal(signal.SIGTERM)
    assert first.read()["stopping"]
    second = serve(forks, place, agent)
    assert place.run("run", "status") == "running"  # it waits for the body
    (place.folder / "go-it").touch()
    began = time.monotonic()
    ended(first)
    until(lambda: place.run("run", "status") == "completed")
    assert time.monotonic() - began < AT_ONCE_S
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


CASES = [(agent.name, 0.0) for agent in scenes.ALL] + [(name, 60.0) for name in ("sleep", "child", "messages", "timeout")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("agent", "grace_s"), CASES, ids=[f"{name}-{'parked' if not s else 'kept'}" for name, s in CASES])
def test_closed_at_every_commit(forks, folder, agent, grace_s):
    """Closed at any commit, a process leaves nothing in doubt and no crash on record; the run ends as if undisturbed."""

    def carry(place, **arguments):
        return forks.start(scenes.play, folder=str(place.folder), agent=agent, grace_s=grace_s, **arguments)

    def new_place(name):
        (folder / name).mkdir()
        return Place(folder / name)

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
    assert closes > expected["commits"]  # parallel work does not always come to the same number of commits


def unavailable(what):
    """Skip with the reason; in CI, where it must work, fail instead."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; set up the CI so that this test can run")
    pytest.skip(f"NOT TESTED: {what}")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        unavailable("a small file system cannot be mounted (are you root?)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def full(folder):
    """Take all the room there is, and give it back."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


@pytest.mark.parametrize("fate", ["lives", "is killed"])
def test_a_full_disk_only_delays(forks, small_disk, folder, fate):
    """On a full disk nothing is acknowledged and nothing begins; when there is room again, the run goes on from there."""
    place = Place(folder, small_disk)
    settings = {"durability": "power", "lease_ttl_s": 1.0}
    worker = serve(forks, place, "bulky", "quick", runs=[("bulky", [60], "run")], **settings)
    until(lambda: len(place.lines()) > 5)
    with full(small_disk):
        until(lambda: "cannot be written" in worker.log.read_text())
        until(lambda: place.run("run", "due_at") < time.time() * 1000)  # its lease is over, and cannot be renewed
        recorded, happened = place.events(), place.lines()
        assert 0 <= len(happened) - len(recorded) <= 1  # the next one begins when the one before is durable
        assert place.run("run", "status") == "running"
        if fate == "is killed":
            worker.kill()
    if fate == "is killed":
        serve(forks, place, "bulky", "quick", **settings)
    until(lambda: place.run("run", "status") == "completed")
    assert place.run("run", "result", "steps") == ("1200000", 60)
    lines = place.lines()
    assert lines[: len(happened)] == happened
    again = [line for line in lines if [other.key for other in lines].count(line.key) > 1]
    assert not again if fate == "lives" else {line.key for line in again} <= {happened[-1].key}
    check_tokens(lines)
    start(place, ("quick", [3], "next"))  # and it takes new work
    until(lambda: place.run("next", "status") == "completed")
    assert place.query("PRAGMA integrity_check") == [("ok",)]
