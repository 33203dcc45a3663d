"""`holdfast run` within one process: what it prints, what it refuses, and with which exit code."""

import json

import pytest
from tests.cli.terminal import FLEET


def test_data_is_printed_as_json_and_text_as_text(cli):
    """The result is all that stdout gets: pretty JSON for data, the text itself for a string."""
    assert cli.run("twice", 4).stdout == "8\n"
    assert cli.run("greet", "ana").stdout == "hello ana\n"
    assert json.loads(cli.run("parent", 1).stdout) == [4, 8, 2]


def test_without_an_id_it_prints_one_and_how_to_go_on(cli):
    """The printed command, typed again, finds the same run."""
    first = cli.run("twice", 4)
    (line,) = [line for line in first.stderr.splitlines() if "--id" in line]
    words = line.split()[1:]
    again = cli(*words)
    assert (again.exit_code, again.stdout) == (0, "8\n")
    assert len(cli.json("runs")["runs"]) == 1


def test_a_finished_run_prints_its_result_again(cli):
    """The same id again is the same run; its arguments may be left out."""
    cli.run("twice", 4, "--id", "a")
    assert cli.run("twice", 4, "--id", "a").stdout == "8\n"
    assert cli.run("twice", "--id", "a").stdout == "8\n"
    assert cli.json("show", "a")["run"]["steps"] == 1


def test_one_line_per_event_goes_to_stderr(cli):
    """In a pipe every recorded event of the run and of its children is one line."""
    lines = cli.run("parent", 1, "--id", "p").stderr.splitlines()
    assert sum("double(n=" in line and " done in " in line for line in lines) == 5
    assert sum("note: in the child" in line for line in lines) == 1
    assert lines[-1].endswith("p  completed")


def test_json_is_one_document(cli):
    """`--json` gives the run, its result and its failure."""
    done = json.loads(cli.run("twice", 4, "--id", "a", "--json").stdout)
    assert done["run"]["id"] == "a"
    assert done["run"]["status"] == "completed"
    assert (done["result"], done["failure"]) == (8, None)
    failed = json.loads(cli.run("hopeful", 4, "--id", "b", "--json").stdout)
    assert (failed["result"], failed["failure"]["type"]) == (None, "ValueError")


def test_a_failed_run_says_how_to_go_on_and_does(cli):
    """A failure is exit code 1, also when asked again; after `retry` only what failed runs again."""
    for _ in range(2):
        failed = cli.run("hopeful", 4, "--id", "h")
        assert failed.exit_code == 1
        assert failed.stdout == ""
        assert "ValueError: no good: 8" in failed.stderr
        assert "holdfast retry h" in failed.stderr
    (cli.folder / "mended").touch()
    assert "goes on from its failure" in cli("retry", "h").stdout
    assert cli.run("hopeful", 4, "--id", "h").stdout == "8\n"
    assert cli("retry", "h").exit_code == 2


def test_a_paused_run_exits_with_3_and_goes_on_with_the_same_command(cli):
    """Code that no longer fits the journal pauses the run; once it fits again, the same command ends it."""
    (cli.folder / "number").write_text("1")
    assert cli.run("changing", "--id", "c").exit_code == 1
    (cli.folder / "number").write_text("2")
    (cli.folder / "mended").touch()
    cli("retry", "c")
    for _ in range(2):
        paused = cli.run("changing", "--id", "c")
        assert paused.exit_code == 3
        assert "the code now calls double(n=2)" in paused.stderr
    assert "paused" in cli("show", "c").stdout
    problems = cli.json("doctor")["problems"]
    assert [each["run"] for each in problems] == ["c"]
    assert problems[0]["advice"] == "holdfast resume c"
    (cli.folder / "number").write_text("1")
    assert cli.run("changing", "--id", "c").stdout == "2\n"


def test_a_paused_child_stops_the_wait_for_it(cli):
    """When all that is left waits for a paused child, the command says so instead of waiting for ever."""
    (cli.folder / "number").write_text("1")
    assert cli.run("caller", "--id", "c").exit_code == 1
    (cli.folder / "number").write_text("2")
    cli("retry", "c")
    paused = cli.run("caller", "--id", "c")
    assert paused.exit_code == 3
    assert "Paused: run c.changing-" in paused.stderr
    (cli.folder / "number").write_text("1")
    (cli.folder / "mended").touch()
    assert cli.run("caller", "--id", "c").stdout == "2\n"


def test_options_may_be_given_by_name_and_labels_found(cli):
    """`--arg` passes by name, with dashes or underscores; `--label` is what `runs --label` finds."""
    cli.run("twice", 3, "--arg", "note=hello", "--id", "a", "--label", "team=docs")
    cli.run("twice", 3, "--id", "b")
    found = cli.json("runs", "--label", "team=docs")["runs"]
    assert [(each["id"], each["labels"]) for each in found] == [("a", {"team": "docs"})]
    assert "hello" in cli("show", "a").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x"], "agent 'twice': n: found 'x', expected int"),
        ([], "missing a required argument: 'n'"),
        (["1", "2"], "too many positional arguments"),
        (["1", "--arg", "n=2"], "multiple values for argument 'n'"),
        (["1", "--arg", "m=2"], "'m'"),
        (["1", "--arg", "m"], "not of the form name=value"),
        (["1", "--id", "a/b"], "'a/b' is not a run id"),
        (["1", "--db", "mysql:x"], "is not a store this version can open"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_stored(cli, words, told):
    """Each is one line on stderr that names the thing, exit code 2, and no run."""
    refused = cli.run("twice", *words)
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    if (cli.folder / "holdfast.db").exists():
        assert cli.json("runs") == {"runs": [], "held": None}


def test_other_arguments_for_the_same_id_are_refused(cli):
    """An id belongs to one agent and one input."""
    cli.run("twice", 1, "--id", "a")
    assert "exists as twice" in cli.run("twice", 2, "--id", "a").stderr
    assert "is a run of 'twice'" in cli.run("listener", "--id", "a").stderr


def test_a_child_is_not_run_on_its_own(cli):
    """A child goes on with its parent, and the message names the run to go on with."""
    cli.run("parent", 1, "--id", "p")
    (child,) = [each["id"] for each in cli.json("runs")["runs"] if each["parent"]]
    refused = cli.run("twice", "--id", child)
    assert refused.exit_code == 2
    assert "go on with 'p'" in refused.stderr


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{FLEET}:nobody", "its agents are: twice, read, tidies, greet"),
        (f"{FLEET}:twise", "did you mean 'twice'?"),
        (f"{FLEET}:double", "is a step, and only agents can be run"),
        (f"{FLEET}:branch", "a function without @holdfast.agent"),
        (f"{FLEET}", "say which one"),
        ("nowhere.py:agent", "there is no file 'nowhere.py'"),
        ("nowhere.at.all:agent", "there is no module 'nowhere.at.all'"),
        ("json.py:agent", "has the name of the module 'json'"),
        ("empty.py", "has no agent"),
    ],
)
def test_an_unknown_agent_is_told_with_what_is_there(cli, target, told):
    """What cannot be found is one line that lists what can."""
    (cli.folder / "json.py").touch()
    (cli.folder / "empty.py").touch()
    refused = cli("run", target)
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert not (cli.folder / "holdfast.db").exists()


def test_the_only_agent_of_a_file_needs_no_name(cli):
    """Agents that a file imports from elsewhere do not count."""
    code = "@holdfast.agent\nasync def only(n: int) -> int:\n    return await twice(n)\n"
    (cli.folder / "single.py").write_text(f"import holdfast\nfrom command_agents import twice\n\n{code}")
    cli.run("twice", 1)  # so that `command_agents` can be imported
    assert cli("run", "single.py", 5).stdout == "10\n"


def test_a_file_of_a_package_is_imported_as_part_of_it(cli):
    """Relative imports in it work, and so does its module name."""
    package = cli.folder / "fleet_app" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("HELLO = 'hello'\n")
    code = "import holdfast\nfrom .words import HELLO\n\n@holdfast.agent\nasync def hi() -> str:\n    return HELLO\n"
    (package / "main.py").write_text(code)
    assert cli("run", "fleet_app/inner/main.py:hi").stdout == "hello\n"
    assert cli("run", "fleet_app.inner.main:hi").stdout == "hello\n"


def test_an_error_in_the_users_file_shows_the_users_frames_only(cli):
    """No frame of Holdfast or of Python's import machinery stands in the way."""
    (cli.folder / "wrong.py").write_text("import json\n\ndef inner():\n    return json.loads('{')\n\ninner()\n")
    refused = cli("run", "wrong.py:agent")
    assert refused.exit_code == 2
    assert refused.stderr.count('File "') == 2
    assert "wrong.py" in refused.stderr
    assert "line 4, in inner" in refused.stderr
    assert refused.stderr.rstrip().splitlines()[-1].startswith("json.decoder.JSONDecodeError")
    (cli.folder / "broken.py").write_text("def f(:\n")
    assert "SyntaxError" in cli("run", "broken.py:agent").stderr
