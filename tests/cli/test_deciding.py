"""People at the command line: what waits for them is listed, stepped through on a terminal, and decided by one command."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from tests.cli.processes import FLEET
from tests.warm import environment

PATIENCE_S = 40.0  # a bound, never a measure
pytestmark = pytest.mark.timeout(150)  # many processes, one after the other


@pytest.fixture
def asked(terminal):
    """A process that carries a run with a question deep in it, and another with one of its own."""
    worker = terminal.start("worker", FLEET)
    worker.until("Serving")

    def ask(agent, run, *args):
        starting = terminal.start("run", f"{FLEET}:{agent}", *args, "--id", run)
        starting.until(" q-")  # the event, or the command that answers it if the worker was quicker
        starting.signal(signal.SIGINT)
        starting.wait()

    return ask


def found(terminal, *words):
    code, output = terminal.run(*words, "--json")
    assert code == 0, output
    return json.loads(output)


def result(terminal, run):
    """What the run returned, once it has ended: the command waits for it."""
    agent = {"o": "onboard", "b": "onboard", "p": "privileges", "c": "privileges", "s": "seats"}[run]
    return found(terminal, "run", f"{FLEET}:{agent}", "--id", run)["result"]


class Person:
    """Sits at a terminal of its own: reads what is on the screen and types."""

    def __init__(self, terminal, *words, **env):
        self._ours, theirs = pty.openpty()
        env = environment(terminal.env) | {"TERM": "xterm", "COLUMNS": "100", "LINES": "50"} | env
        command = [sys.executable, "-m", "holdfast", *map(str, words)]
        self.process = subprocess.Popen(
            command, cwd=terminal.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.screen, self._read = "", 0

    def sees(self, text):
        """Until this is on the screen, after what was seen before."""
        until = time.monotonic() + PATIENCE_S
        while (at := self.screen.find(text, self._read)) < 0:
            assert select.select([self._ours], [], [], until - time.monotonic())[0], f"no {text!r} in:\n{self.screen}"
            try:
                part = os.read(self._ours, 65_536).decode(errors="replace")
            except OSError:
                part = ""
            assert part, f"no {text!r} in:\n{self.screen}"
            self.screen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)
        self._read = at + len(text)

    def types(self, line):
        os.write(self._ours, f"{line}\n".encode())

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def person(terminal):
    here = []

    def sits_down(*words, **env):
        here.append(Person(terminal, *words, **env))
        return here[-1]

    yield sits_down
    for each in here:
        each.end()


def test_listed_with_the_way_to_it_and_decided_by_the_root(terminal, asked):
    """A question deep in a tree is listed with its path; the id of the root run is enough to decide it."""
    asked("onboard", "o", "ada")
    (question,) = found(terminal, "approvals")["questions"]
    assert (question["path"], question["root"]) == (["onboard", "privileges"], "o")
    assert question["shown"] == {"groups": ["dev"]}
    code, output = terminal.run("approvals")
    assert (code, "onboard > privileges" in output, f"holdfast approve {question['id']}" in output) == (0, True, True)
    assert '  {"groups": ["dev"]}\n' in output
    assert terminal.run("approvals", "--for", "eve")[1].strip() == "Nothing waits for eve."
    code, output = terminal.run("approve", "o", "--by", "ana", "--data", '{"groups": "dev"}')
    assert (code, "groups: found str 'dev', expected array" in output) == (2, True)
    (terminal.folder / "edited.json").write_text('{"groups": ["dev", "ops"]}')
    code, output = terminal.run("approve", "o", "--by", "ana", "--note", "fine", "--data", "@edited.json")
    assert (code, output.startswith("Approved: q-")) == (0, True)
    assert result(terminal, "o") == "True ana fine ['dev', 'ops']"
    code, output = terminal.run("approve", question["id"])
    assert (code, "approved by 'ana' on" in output) == (2, True)
    (deed,) = found(terminal, "audit")["audit"]
    assert (deed["by"].startswith("cli:"), deed["data"]["by"]) == (True, "ana")


def test_denied_and_passed_on(terminal, asked):
    """The note of a deny is what the agent sees; who a question is passed on to is in the list."""
    asked("privileges", "p", "ada")
    code, output = terminal.run("delegate", "p", "--to", "eve", "--by", "it", "--note", "on leave")
    assert (code, output.endswith("is now for eve.\n")) == (0, True)
    (question,) = found(terminal, "approvals", "--for", "eve")["questions"]
    assert question["delegations"][0]["to"] == "eve"
    denied = found(terminal, "deny", "p", "--by", "eve", "--note", "too early")
    assert denied["question"]["decision"] == "denied"
    assert result(terminal, "p") == "False eve too early ['dev']"


def test_answered(terminal, asked):
    """A value is JSON or text, checked by the type that was asked for."""
    asked("seats", "s")
    code, output = terminal.run("answer", "s", "many")
    assert (code, "found str 'many', expected integer" in output) == (2, True)
    assert terminal.run("answer", "s", "12")[0] == 0
    assert result(terminal, "s") == 12


def test_stepping_through(terminal, asked, person):
    """On a terminal one question comes after the other: skipped, edited in $EDITOR with what changed, approved, denied."""
    asked("seats", "a")
    asked("onboard", "b", "ada")
    asked("privileges", "c", "bob")
    editor = terminal.folder / "editor"
    script = "import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(t.replace('dev', 'ops'))"
    editor.write_text(f"#!{sys.executable}\n{script}\n")
    editor.chmod(0o755)
    ana = person("approvals", "--by", "ana", EDITOR=str(editor))
    ana.sees("1 of 3")
    ana.sees("How many seats?")
    ana.types("s")
    ana.sees("onboard > privileges")
    ana.sees("Make ada one of these?")
    ana.sees('"dev"')
    ana.sees("[e]dit")
    ana.types("e")
    ana.sees('-    "dev"')
    ana.sees('+    "ops"')
    ana.types("a")
    ana.sees("Approved: q-")
    ana.sees("Make bob one of these?")
    ana.types("d")
    ana.sees("Why?")
    ana.types("not now")
    ana.sees("Denied: q-")
    assert ana.process.wait(PATIENCE_S) == 0
    assert result(terminal, "b") == "True ana  ['ops']"
    assert result(terminal, "c") == "False ana not now ['dev']"
    assert [each["question"] for each in found(terminal, "approvals")["questions"]] == ["How many seats?"]


def test_run_offers_what_it_asks(terminal, person):
    """Whoever sits before `holdfast run` is asked there; what is answered wrongly is asked again."""
    ana = person("run", f"{FLEET}:seats", "--id", "s")
    ana.sees("How many seats?")
    ana.sees("[a]nswer")
    ana.types("a")
    ana.sees("Answer:")
    ana.types("many")
    ana.sees("expected integer")
    ana.types("a")
    ana.sees("Answer:")
    ana.types("7")
    ana.sees("Answered: q-")
    assert ana.process.wait(PATIENCE_S) == 0
    assert result(terminal, "s") == 7


def test_run_is_decided_elsewhere(terminal, person):
    """What is asked here and decided there is no longer asked here; the run goes on."""
    ana = person("run", f"{FLEET}:privileges", "ada", "--id", "p")
    ana.sees("[a]pprove")
    assert terminal.run("approve", "p", "--by", "bob")[0] == 0
    ana.sees("decided elsewhere")
    assert ana.process.wait(PATIENCE_S) == 0
    assert result(terminal, "p") == "True bob  ['dev']"


def test_stopping_while_asked(terminal, person):
    """Ctrl-C at a question stops at a safe point as anywhere else, and the question stays."""
    ana = person("run", f"{FLEET}:privileges", "ada", "--id", "p")
    ana.sees("[a]pprove")
    ana.process.send_signal(signal.SIGINT)
    ana.sees("Stopped at a safe point")
    assert ana.process.wait(PATIENCE_S) == 130
    assert len(found(terminal, "approvals")["questions"]) == 1
