"""`holdfast start`: for the workers of the store, and for no process of one's own; and a worker that says little."""

import json

from tests.cli.terminal import FLEET


def started(terminal, *words):
    code, output = terminal.run("start", *words, "--json")
    assert code == 0, output
    return json.loads(output)


def test_a_run_is_started_and_not_carried(terminal):
    """From the file of its agent, before there is any worker; then a worker carries it."""
    code, output = terminal.run("start", f"{FLEET}:read", 1, "--id", "r", "--label", "team=docs")
    assert code == 0
    assert output.splitlines()[0] == "Started run r of read."
    assert "No live worker serves 'read'. Start one:" in output
    assert output.splitlines()[-1] == "r"
    assert terminal.ledger == []
    terminal.touch("go-0")
    worker = terminal.start("worker", FLEET)
    worker.until("r  completed")
    assert terminal.ledger == ["page 0"]
    again = started(terminal, f"{FLEET}:read", 1, "--id", "r")
    assert (again["created"], again["run"]["status"]) == (False, "completed")


def test_an_agent_is_started_by_its_name(terminal):
    """As a worker has published it; what is typed is read by what the agent takes, and checked before it is stored."""
    worker = terminal.start("worker", FLEET)
    worker.until("Serving")
    assert started(terminal, "greet", "42", "--id", "g")["created"]
    worker.until("g  completed")
    assert json.loads(terminal.run("show", "g", "--json")[1])["run"]["result"] == "hello 42"
    assert started(terminal, "twice", "21", "--arg", "note=7", "--id", "t")["created"]
    worker.until("t  completed")
    assert json.loads(terminal.run("show", "t", "--json")[1])["run"]["result"] == 42
    code, output = terminal.run("start", "greet", "ana")
    assert (code, "No live worker" in output) == (0, False)
    for words, told in (
        (["twice", "x"], "n: found"),
        (["greet", '{"name": "ana"}'], "Give each by its name: --arg name=ana"),
        (["nobody"], "no worker has published an agent 'nobody'"),
        (["twice", 1, "--id", "g"], "exists as greet"),
        (["twice", 1, "--after", "soon"], "not a duration"),
        (["twice", 1, "--budget", "x=1"], "x"),
    ):
        code, output = terminal.run("start", *words)
        assert (code, told in output, "Traceback" in output) == (2, True, False), output
    assert sorted(each["id"][0] for each in json.loads(terminal.run("runs", "--json")[1])["runs"]) == ["g", "g", "t"]


def test_a_later_start_is_shown_as_one(terminal):
    """By `start`, by the list, by `show` and by a run that is followed: when it begins."""
    _, output = terminal.run("start", f"{FLEET}:greet", "ana", "--id", "g", "--after", "2h")
    assert "It begins at" in output.splitlines()[0]
    _, listed = terminal.run("runs")
    assert "ready, begins in 1 h 59 min" in listed or "ready, begins in 2 h" in listed
    _, shown = terminal.run("show", "g")
    assert "  begins at " in shown
    following = terminal.start("run", f"{FLEET}:greet", "--id", "g")
    following.until("begins at ")


def test_a_quiet_worker_tells_nothing_of_its_runs(terminal):
    """That it serves and that it stops is said; so are warnings."""
    worker = terminal.start("worker", FLEET, "--quiet")
    worker.until("Serving")
    code, _ = terminal.run("run", f"{FLEET}:greet", "ana", "--id", "g")
    assert code == 0
    worker.signal(15)
    assert worker.wait() == 0
    told = worker.output()
    assert "Stopped at a safe point" in told
    assert "completed" not in told
