"""People at the command line: what waits for them is listed, stepped through on a terminal, and decided by one command."""

import json
import signal
import sys

import pytest
from tests.cli.terminal import FLEET, PATIENCE_S

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
    agent = {
        "o": "onboard",
        "b": "onboard",
        "p": "privileges",
        "c": "privileges",
        "s": "seats",
        "e": "sale",
        "v": "shared",
    }[run]
    return found(terminal, "run", f"{FLEET}:{agent}", "--id", run)["result"]


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
    assert (code, f"  digest {question['digest']}\n" in output, "\nApproved: q-" in output) == (0, True, True)
    assert output.endswith('.\n  {"groups": ["dev", "ops"]}\n')  # what counts now
    assert result(terminal, "o") == "True ana fine ['dev', 'ops']"
    code, output = terminal.run("approve", question["id"])
    assert (code, "approved by 'ana' on" in output) == (2, True)
    (deed,) = found(terminal, "audit", "--action", "approve")["audit"]
    assert (deed["via"].startswith("cli:"), deed["by"], deed["value"]) == (True, "ana", {"groups": ["dev", "ops"]})


def test_an_edit_beyond_the_limits_of_its_type_is_refused(terminal, asked):
    """A decimal as a text too: the run that gets it would fail."""
    asked("sale", "e")
    code, output = terminal.run("approve", "e", "--by", "ana", "--data", '{"eur": "-5"}')
    assert (code, "eur: found str '-5', expected greater than or equal to 0" in output) == (2, True)
    assert found(terminal, "audit", "--action", "approve")["audit"] == []
    assert terminal.run("approve", "e", "--by", "ana", "--data", '{"eur": "5.00"}')[0] == 0
    assert result(terminal, "e") == "5.00"


def test_what_is_counted_are_the_votes_for_the_value_as_it_is_now(terminal, asked):
    """After an edit the count begins anew, in what is said of a vote and in the list; what counts is printed whole."""
    asked("shared", "v")
    assert " 1 so far, 2 must agree.\n" in terminal.run("approve", "v", "--by", "ana")[1]
    code, output = terminal.run("approve", "v", "--by", "bob", "--data", '{"groups": ["ops"]}')
    assert (code, output.endswith(' 1 so far, 2 must agree.\n  {"groups": ["ops"]}\n')) == (0, True)
    assert " 1 of 2 votes" in terminal.run("approvals", "--list")[1]
    assert terminal.run("approve", "v", "--by", "cid")[1].endswith('.\n  {"groups": ["ops"]}\n')
    assert result(terminal, "v") == "['ops'] ['bob', 'cid']"


def test_denied_and_passed_on(terminal, asked):
    """The note of a deny is what the agent sees; who a question is passed on to is in the list."""
    asked("privileges", "p", "ada")
    code, output = terminal.run("delegate", "p", "--to", "eve", "--by", "it", "--note", "on leave")
    assert (code, output.endswith("is now for eve.\n")) == (0, True)
    (question,) = found(terminal, "approvals", "--for", "eve")["questions"]
    assert question["delegations"][0]["to"] == "eve"
    assert "  for eve  passed on by it" in terminal.run("approvals", "--list")[1]
    assert "to eve {" in terminal.run("audit", "p")[1]
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


def test_a_question_is_on_the_screen_once(terminal, person):
    """While it waits: in the dialogue, and not in a tree above it; skipped, in the tree alone; so does `show` tell it."""
    ana = person("run", f"{FLEET}:privileges", "ada", "--id", "p", columns=80)
    ana.sees("[a]pprove")
    ana.types("s")
    ana.sees("holdfast approve q-")
    ana.process.send_signal(signal.SIGINT)
    screen, code = ana.leaves()
    assert code == 130
    after = screen[next(at for at, line in enumerate(screen) if "[a]pprove" in line) :]
    assert sum("Make ada one of these?" in line for line in screen) == 2
    assert sum("Make ada one of these?" in line for line in after) == 1
    shown, _ = person("show", "p", columns=80).leaves()
    assert sum("Make ada one of these?" in line for line in shown) == 1
    assert any("holdfast approve q-" in line for line in shown)
    _, piped = terminal.run("show", "p")
    assert piped.count("Make ada one of these?") == 1


def test_a_pipe_has_the_question_once(terminal):
    """The line of the event says it, and the command that decides it follows."""
    process = terminal.start("run", f"{FLEET}:seats", "--id", "s")
    process.until("holdfast answer q-")
    process.signal(signal.SIGINT)
    process.wait()
    assert process.output().count("How many seats?") == 1


@pytest.mark.by_day("agreed-no-no", "certain-y-true")
@pytest.mark.parametrize(
    ("agent", "typed", "result"),
    [
        ("certain", "y", "true"), ("certain", "No", "false"), ("certain", "yes", "true"),
        ("agreed", "y", "yes"), ("agreed", "no", "no"),
    ],
)  # fmt: skip
def test_y_is_enough_where_yes_is_meant(terminal, person, agent, typed, result):
    """Also where true is; the answer is what the type says."""
    ana = person("run", f"{FLEET}:{agent}", "--id", "q")
    ana.sees("[a]nswer")
    ana.types("a")
    ana.sees("Answer:")
    ana.types(typed)
    ana.sees("Answered: q-")
    screen, code = ana.leaves()
    assert (code, [line for line in screen if line][-1]) == (0, result)


def test_y_and_n_decide(terminal, person):
    """At a question that can be approved; anything else is asked again with what can be typed."""
    ana = person("run", f"{FLEET}:privileges", "ada", "--id", "p")
    ana.sees("[a]pprove")
    ana.types("maybe")
    ana.sees("Type one of a, d, e, s, q.")
    ana.types("y")
    ana.sees("Approved: q-")
    assert ana.leaves()[1] == 0
    bob = person("run", f"{FLEET}:privileges", "bob", "--id", "c")
    bob.sees("[a]pprove")
    bob.types("no")
    bob.sees("Why?")
    bob.types("too early")
    bob.sees("Denied: q-")
    assert bob.leaves()[1] == 0


def test_y_answers_by_a_command(terminal, asked):
    """`holdfast answer ID y` is true where a truth value is asked for; what fits nothing is refused as it was typed."""
    asked("certain", "t")
    code, output = terminal.run("answer", "t", "perhaps")
    assert (code, "found str 'perhaps', expected boolean" in output) == (2, True)
    assert terminal.run("answer", "t", "y")[0] == 0


def test_how_a_question_was_decided_is_on_its_line(terminal, asked):
    """A long question leaves room for who decided it, and is not cut more than that takes."""
    asked("onboard", "o", "ada" + " the second" * 12)
    terminal.run("approve", "o", "--by", "ana", "--data", '{"groups": ["dev", "ops", "design", "research", "sales"]}')
    result(terminal, "o")
    terminal.env["COLUMNS"] = "80"
    (line,) = [line for line in terminal.run("show", "o")[1].splitlines() if "Make ada" in line]
    assert "Make ada the second the …  approved by ana: …" in line
