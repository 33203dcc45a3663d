"""Runs that no live worker serves: each command says so, whose code it is, and what helps; none waits for ever."""

import json
import signal

import pytest
from tests.cli.terminal import FLEET

AGENTS = """
import holdfast

@holdfast.agent(version="{version}")
async def report() -> str:
    return await holdfast.receive("words", str) + " {version}"

@holdfast.agent
async def chief() -> str:
    return await report()
"""


@pytest.fixture
def release(terminal):
    """Writes the file with the agents of a version."""

    def write(version):
        code = AGENTS.format(version=version) + "#" * version  # another length: compiled files know one by it
        (terminal.folder / "news.py").write_text(code)

    return write


def leave_waiting(terminal, target, run):
    """Start a run, and go away while it waits."""
    process = terminal.start("run", target, "--id", run)
    process.until("waits for")
    process.signal(signal.SIGINT)
    assert process.wait() == 130


@pytest.mark.parametrize("agent", ["report", "chief"])
def test_run_does_not_wait_for_a_version_that_nobody_serves(terminal, release, agent):
    """It says whose code is missing and how to go on, and ends; with that code the same command goes on."""
    release(1)
    leave_waiting(terminal, f"news.py:{agent}", "r")
    release(2)
    code, output = terminal.run("run", f"news.py:{agent}", "--id", "r")
    assert code == 2, output
    assert "no live worker serves version 1 of 'report'" in output
    assert f"With the code of version 1: holdfast run news.py:{agent} --id r" in output
    release(1)
    (child,) = [
        each["id"] for each in json.loads(terminal.run("runs", "--json")[1])["runs"] if each["agent"] == "report"
    ]
    terminal.run("send", child, "words", "all is well")
    assert terminal.run("run", f"news.py:{agent}", "--id", "r")[1].endswith("all is well 1\n")


def test_run_follows_a_version_that_a_worker_elsewhere_serves(terminal, release):
    """What this process cannot carry on another one may: then it is followed, and not refused."""
    release(1)
    worker = terminal.start("worker", "news.py")
    worker.until("Serving")
    leave_waiting(terminal, "news.py:report", "r")
    release(2)
    following = terminal.start("run", "news.py:report", "--id", "r")
    following.until("waits for a message")
    terminal.run("send", "r", "words", "all is well")
    following.until("all is well 1")
    assert following.wait() == 0


def test_show_advises_what_works(terminal, release):
    """The command needs the code of the run's version, and that is said."""
    release(1)
    leave_waiting(terminal, "news.py:report", "r")
    terminal.run("send", "r", "words", "all is well")
    _, shown = terminal.run("show", "r")
    assert "no live worker serves version 1 of 'report'" in shown
    assert "With the code of version 1:  holdfast run FILE.py:report --id r" in shown


def test_cancel_says_who_would_have_to_end_a_run_that_nobody_serves(terminal):
    """Without a worker nothing ends it in time; the second cancel does, at once."""
    leave_waiting(terminal, f"{FLEET}:listener", "l")
    _, told = terminal.run("cancel", "l", "--grace", "5s")
    assert "within" not in told.splitlines()[0]
    assert "l was told to stop, but no live worker serves 'listener'" in told
    assert "holdfast run FILE.py:listener --id l" in told
    assert "holdfast cancel l" in told.splitlines()[-1]
    assert terminal.run("cancel", "l")[1] == "l is cancelled.\n"


def test_cancel_says_when_a_run_that_is_served_ends(terminal):
    """A live worker ends it within the grace; this one still tidies up."""
    worker = terminal.start("worker", FLEET)
    worker.until("Serving")
    process = terminal.start("run", f"{FLEET}:tidies", 1, "--id", "r")
    worker.until("body: page 0")
    assert terminal.run("cancel", "r", "--grace", "40")[1] == "r was told to stop; it ends within 40s.\n"
    terminal.touch("go-1")
    assert process.wait() == 1


def test_the_audit_of_a_deleted_run_stays(terminal):
    """What was done to a run is told also when the run itself is gone; a run that never was is unknown."""
    leave_waiting(terminal, f"{FLEET}:listener", "l")
    for _ in range(2):
        terminal.run("cancel", "l", "--by", "ana", "--reason", "not needed")
    assert terminal.run("delete", "l")[0] == 0
    code, output = terminal.run("audit", "l")
    assert (code, "not needed" in output, "ana" in output) == (0, True, True)
    assert len(json.loads(terminal.run("audit", "l", "--json")[1])["audit"]) >= 2
    assert "not needed" in terminal.run("show", "l", "--audit")[1]
    code, output = terminal.run("audit", "never")
    assert (code, "there is no run 'never'" in output) == (2, True)
