"""How a failure is told: the error once, with the line of the user's that led there, and what to do."""

import subprocess
import sys

import pytest
from tests.chaos.server import free_port
from tests.cli.terminal import FLEET

ERROR = "Expecting property name enclosed in double quotes"


def frames(output):
    return [line.strip() for line in output.splitlines() if line.strip().startswith("File ")]


@pytest.mark.parametrize("agent", ["parsing", "trusting", "hurried"])
def test_one_error_is_printed_once(terminal, agent):
    """By the run that fails, by the same command again, and by `show`; however deep it was and whatever carries it."""
    for words in (["run", f"{FLEET}:{agent}", "{", "--id", "f"],) * 2 + (["show", "f"],):
        code, output = terminal.run(*words)
        assert code == (0 if words[0] == "show" else 1)
        assert output.count(ERROR) == 1, output
        assert "holdfast retry f" in output


@pytest.mark.by_day("trusting")
@pytest.mark.parametrize("agent", ["parsing", "trusting", "hurried"])
def test_a_person_at_a_terminal_sees_it_once_too(terminal, person, agent):
    """With the tree above it; sentences are broken between words."""
    for words in (["run", f"{FLEET}:{agent}", "{", "--id", "f"], ["show", "f"]):
        lines, _ = person(*words, columns=80).leaves()
        assert " ".join(" ".join(lines).split()).count(ERROR) == 1, "\n".join(lines)


def test_the_frames_are_those_of_the_user(terminal):
    """From the agent over the child run and into the body of the step; of libraries one line stands for all."""
    _, output = terminal.run("run", f"{FLEET}:trusting", "{", "--id", "f")
    assert [line.rpartition(" in ")[2] for line in frames(output)] == ["trusting", "parsing", "parse"]
    assert "return json.loads(text)" in output
    assert "frames of libraries: json/decoder.py" in output
    assert "Step 'parse' failed at its only attempt. It was raised here:" in output
    _, shown = terminal.run("show", "f")
    assert frames(shown) == frames(output)


def test_the_first_frame_of_a_long_traceback_is_there(terminal):
    """Nothing of the user's is cut, however much lies below it."""
    code = "\n".join(
        [
            "import holdfast",
            "",
            *(f"def f{n}():\n    return f{n + 1}()\n" for n in range(20)),
            "def f20():\n    1 / 0\n",
        ]
    )
    (terminal.folder / "deep.py").write_text(f"{code}\n@holdfast.agent\nasync def deep() -> None:\n    f0()\n")
    for words in (["run", "deep.py", "--id", "d"], ["show", "d"]):
        _, output = terminal.run(*words)
        assert len(frames(output)) == 22
        assert output.count("division by zero") == 1


def test_a_failure_that_was_caught_is_told_at_once(terminal):
    """It is not that of the run: the line says it while the run goes on."""
    process = terminal.start("run", f"{FLEET}:careful", "{", "--id", "c")
    process.until(f"failed for good: json.decoder.JSONDecodeError: {ERROR}")
    terminal.touch("go-0")
    assert process.wait() == 0
    assert process.output().count(ERROR) == 1


def test_a_failure_that_was_retried_is_told_once(terminal):
    """By the step that the retry took out; the line of the failure says only that there was one."""
    terminal.run("run", f"{FLEET}:parsing", "{", "--id", "f")
    terminal.run("retry", "f")
    _, shown = terminal.run("show", "f")
    assert " ".join(shown.split()).count(ERROR) == 1, shown
    assert "taken out by the retry" in shown
    assert "── failed ──" in shown


def test_what_is_not_recorded_is_told_once(terminal, person):
    """By the tree, and not by the log as well."""
    terminal.touch("mended")
    (terminal.folder / "number").write_text("1")
    screen, code = person("run", f"{FLEET}:changing", "--id", "c", columns=80).leaves()
    assert code == 0
    assert " ".join(" ".join(screen).split()).count("that is not recorded") == 1, "\n".join(screen)


def test_a_line_across_the_tree_is_not_cut(terminal, person):
    """Words that find no room on it go on below."""
    terminal.run("run", f"{FLEET}:payer", 5, "--id", "p")
    ana = person("run", f"{FLEET}:payer", 5, "--id", "p", columns=80)
    ana.sees("[h]appened")
    ana.types("r")
    screen, code = ana.leaves()
    assert code == 0
    assert "its process was gone; another went on" in " ".join(" ".join(screen).split())
    assert [line for line in screen if line.endswith("…")] == []


# What a process does at its end: its own last words, threads that still work, and what Python takes apart.
ENDS = """
import atexit, os, sys, threading, time
from holdfast.cli import main

class Apart:
    def __del__(self):
        os.write(1, b"taken apart\\n")

kept = Apart()
atexit.register(print, "last words")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
main(sys.argv[1:])
"""


def ended(*words):
    told = subprocess.run(
        [sys.executable, "-c", ENDS, *words], capture_output=True, text=True, timeout=120, check=False
    )
    return told.returncode, told.stdout.split("\n"), told.stderr


def test_a_command_that_loaded_temporal_ends_without_taking_python_apart(tmp_path, monkeypatch):
    """Threads of the SDK could end it with SIGABRT then. All else that happens at the end of a process happens."""
    monkeypatch.chdir(tmp_path)
    code, said, error = ended("start", "x", "--db", f"temporal://127.0.0.1:{free_port()}/default")
    assert (code, said) == (2, ["thread", "last words", ""])
    assert "nothing answers at" in error
    code, said, error = ended("show", "x", "--db", "sqlite:none.db")
    assert (code, said) == (2, ["thread", "last words", "taken apart", ""])
