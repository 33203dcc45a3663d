"""The command line as users meet it: killed, interrupted, piped, on a terminal. Real processes and real signals."""

import json
import os
import pty
import signal
import subprocess
import sys

from tests.cli.terminal import FLEET
from tests.commands import environment

import holdfast

READ = f"{FLEET}:read"


def test_a_killed_run_goes_on_where_it_stopped(terminal):
    """After kill -9 the same command runs only what was not recorded."""
    first = terminal.start("run", READ, 4, "--id", "r")
    terminal.touch("go-0", "go-1")
    first.until("done in")
    first.until("done in")
    first.kill()
    terminal.touch("go-2", "go-3")
    code, output = terminal.run("run", READ, 4, "--id", "r")
    assert code == 0
    assert "2 steps recorded before" in output
    assert "interrupted: its process was gone" in output
    assert '"pages": [' in output
    assert terminal.ledger == ["page 0", "page 1", "page 2", "page 2", "page 3", "page 3"]


def test_children_that_outlive_the_run_are_carried_to_their_end(terminal):
    """A spawned child that is at work is waited for; one that sleeps is named and left."""
    first = terminal.start("run", f"{FLEET}:starter", "--id", "s")
    first.until("s  completed")
    terminal.touch("go-0")
    first.until("page(n=0) done")
    assert first.until("Not ended:").count("s.sleeper-") == 1
    assert first.wait() == 0
    assert terminal.run("run", f"{FLEET}:starter", "--id", "s") == (0, "started\n")


def test_the_first_ctrl_c_stops_at_a_safe_point(terminal):
    """The running body ends and is recorded, the exact command to go on is printed, and nothing runs twice."""
    first = terminal.start("run", READ, 1, "--id", "r")
    first.until("body: page 0")
    first.signal(signal.SIGINT)
    assert "page(n=0)" in first.until("Stopping. Waiting up to 30 s for")
    terminal.touch("go-0")
    assert first.wait() == 130
    assert f"holdfast run {READ} 1 --id r" in first.output()
    code, output = terminal.run("run", READ, 1, "--id", "r")
    assert code == 0
    assert "1 step recorded before" in output
    assert "interrupted" not in output
    assert terminal.ledger == ["page 0"]


def test_the_second_ctrl_c_stops_at_once(terminal):
    """A body that does not end holds nobody; it runs again later."""
    first = terminal.start("run", READ, 1, "--id", "r")
    first.until("body: page 0")
    first.signal(signal.SIGINT)
    first.until("Ctrl-C again stops at once")
    _press_until_dead(first)
    assert first.wait() == 130
    assert "Stopped at once" in first.output()
    terminal.touch("go-0")
    assert terminal.run("run", READ, 1, "--id", "r")[0] == 0
    assert terminal.ledger == ["page 0", "page 0"]


def _press_until_dead(process):
    """A second signal right after the first is taken for the same press, so press until it is heard."""
    while not process.ended(within_s=0.05):
        process.signal(signal.SIGINT)


def test_sigterm_is_the_first_ctrl_c(terminal):
    """A service manager's stop gives the run back at a safe point."""
    first = terminal.start("run", READ, 1, "--id", "r")
    first.until("body: page 0")
    first.signal(signal.SIGTERM)
    first.until("Stopping.")
    terminal.touch("go-0")
    assert first.wait() == 130
    assert "Stopped at a safe point" in first.output()


def test_a_second_process_follows_the_first(terminal):
    """It says that another process is at work, and ends with the same result without running anything."""
    first = terminal.start("run", READ, 1, "--id", "r")
    first.until("body: page 0")
    second = terminal.start("run", READ, 1, "--id", "r")
    second.until("Another process is working on r")
    terminal.touch("go-0")
    assert first.wait() == second.wait() == 0
    assert '"pages": [' in second.output()
    assert terminal.ledger == ["page 0"]


def test_a_step_in_doubt_is_answered_from_another_process(terminal):
    """The question is printed with the command that answers it; the answer lets the run end."""
    assert terminal.run("run", f"{FLEET}:payer", 5, "--id", "p")[0] == -signal.SIGKILL
    waiting = terminal.start("run", f"{FLEET}:payer", 5, "--id", "p")
    waiting.until("holdfast answer q-")
    _, listed = terminal.run("approvals", "--json")
    (question,) = json.loads(listed)["questions"]
    assert question["run"] == "p"
    assert question["kind"] == "in_doubt"
    assert terminal.run("answer", "p", "maybe")[0] == 2
    assert terminal.run("answer", "p", '{"result": "paid by hand"}', "--by", "ana")[0] == 0
    assert waiting.wait() == 0
    assert waiting.output().endswith("paid by hand\n")
    shown = terminal.run("show", "p")[1]
    assert "interrupted" in shown
    assert "answered by ana: {'result': 'paid by hand'}" in shown
    assert terminal.ledger == ["pay 5"]


def test_a_worker_serves_until_it_is_stopped(terminal):
    """It says what it does, hears of a message, and ends with 0 when asked to stop."""
    worker = terminal.start("worker", FLEET)
    worker.until("Serving twice, read")
    assert terminal.run("run", f"{FLEET}:twice", 4, "--id", "t")[0] == 0
    listening = terminal.start("run", f"{FLEET}:listener", "--id", "l")
    listening.until("waits for a message")
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0
    assert "every run was given back" in worker.output()
    assert terminal.run("send", "l", "words", "hello")[0] == 0
    assert listening.wait() == 0
    assert listening.output().endswith("hello\n")


def test_on_a_terminal_the_picture_moves(terminal):
    """A terminal gets colours and a picture that is drawn again; the result comes last."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "run", READ, "1", "--id", "r"]
    env = environment(terminal.env) | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(command, cwd=terminal.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    try:
        while "●".encode() not in output:
            output += os.read(ours, 4096)
        terminal.touch("go-0")
        while b"\n}" not in output:
            output += os.read(ours, 4096)
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = output.decode()
    assert "\x1b[?25l" in text
    assert "✓" in text
    assert text.rindex("completed") < text.rindex('"pages"')


def test_help_takes_less_than_a_quarter_of_a_second():
    """Processor time of the whole process, so that the tests beside this one do not decide it."""
    script = (
        "import atexit, sys, time; atexit.register(lambda: print(time.process_time(), file=sys.stderr)); "
        "from holdfast.cli import main; sys.argv = ['holdfast', '--help']; main()"
    )
    command = [sys.executable, "-c", script]
    made = [subprocess.run(command, env=environment(), capture_output=True, check=True) for _ in range(5)]
    assert b"Usage: " in made[0].stdout
    assert min(float(each.stderr) for each in made) < 0.25


def test_the_demo_keeps_what_it_claims(terminal):
    """Two kills, and by the files of the killed processes no finished step ran again and one report was written."""
    code, output = terminal.run("demo", "--keep", "demo")
    folder = terminal.folder / "demo"
    assert code == 0, output
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert len({each["process"] for each in ledger}) == 2  # the third process found everything done
    bodies = [(each["step"], each["about"]) for each in ledger]
    counts = {about: bodies.count(about) for about in bodies}
    assert counts["search", "sea otters"] == counts["publish", "report.md"] == 1
    summaries = sorted(count for (step, _), count in counts.items() if step == "summarise")
    assert summaries == [1, 1, 1, 2, 2, 2]
    assert len((folder / "publications.jsonl").read_text().splitlines()) == 1
    assert (folder / "report.md").read_text().count("\n- ") == 6
    assert output.count("kill -9") == 2
    assert "interrupted twice" in output
    shown = json.loads(terminal.run("show", "otters", "--db", f"sqlite:{folder / 'holdfast.db'}", "--json")[1])
    kinds = [event["kind"] for event in shown["events"]]
    assert kinds.count("run.interrupted") == 2
    assert kinds.count("step.completed") == 8
    assert shown["run"]["result"] == "report.md"
    assert terminal.run("demo", "--keep", "demo")[0] == 2  # not empty


def test_the_package_is_a_command_too():
    """`python -m holdfast` is `holdfast`."""
    command = [sys.executable, "-m", "holdfast", "--version"]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout == f"holdfast {holdfast.__version__}\n"
