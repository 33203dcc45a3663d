"""Commands that show and change what is stored: their words for people and their JSON for programs."""

import asyncio
import json
import re
import signal
import xml.dom.minidom

import click
import pytest
from tests.cli.terminal import FLEET

import holdfast
from holdfast.cli import main
from holdfast.client.info import RunInfo


def test_a_store_that_is_not_there_is_not_made_by_looking(cli):
    """Commands that only look say so and leave the folder as it was."""
    for words in (["runs"], ["show", "a"], ["tail"], ["approvals"], ["doctor"], ["prune", "--older-than", "1d"]):
        refused = cli(*words)
        assert refused.exit_code == 2
        assert "there is no store at 'sqlite:holdfast.db'" in refused.stderr
    assert list(cli.folder.iterdir()) == []


def test_the_store_is_named_before_or_after_the_command_or_by_the_environment(cli, monkeypatch):
    """`--db` in both places and HOLDFAST_URL name the same store."""
    cli.run("twice", 1, "--id", "a", "--db", "sqlite:other.db")
    assert [each["id"] for each in cli.json("runs", "--db", "sqlite:other.db")["runs"]] == ["a"]
    assert json.loads(cli("--db", "sqlite:other.db", "runs", "--json").stdout)["runs"][0]["id"] == "a"
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:other.db")
    assert cli.json("runs")["runs"][0]["id"] == "a"


def test_runs_lists_and_filters(cli):
    """The table and the JSON have the same runs; filters narrow both."""
    cli.run("twice", 1, "--id", "a")
    cli.run("hopeful", 1, "--id", "b")
    found = cli.json("runs")["runs"]
    assert [each["id"] for each in found] == ["b", "a"]
    assert set(found[0]) == set(RunInfo.__dataclass_fields__)
    assert found[0]["error"] == "ValueError: no good: 2"
    assert found[0]["created_at"].endswith("Z")
    assert [each["id"] for each in cli.json("runs", "--status", "failed")["runs"]] == ["b"]
    assert [each["id"] for each in cli.json("runs", "--agent", "twice", "--limit", "1")["runs"]] == ["a"]
    table = cli("runs").stdout
    assert "b " in table
    assert "failed" in table
    assert "ValueError: no good: 2" in table
    assert "No runs that fit" in cli("runs", "--agent", "nobody").stdout


def test_show_draws_steps_branches_children_and_the_result(cli):
    """Branches hold their own steps, a child run is nested under the call that started it."""
    cli.run("parent", 1, "--id", "p")
    lines = cli("show", "p").stdout.splitlines()
    names = [line.split("  ", 2)[-1].strip() for line in lines]
    assert any(line.startswith("branch#0") for line in names)
    after = names[next(n for n, line in enumerate(names) if line.startswith("branch#1")) :]
    assert "double(n=2)  → 4" in after[1]
    assert after[1].startswith("├─ ✓")
    assert "double(n=4)  → 8" in after[2]
    assert after[2].startswith("└─ ✓")
    (child,) = [n for n, line in enumerate(names) if "twice(n=1, note='in the child')" in line]
    assert names[child + 1].startswith("run p.twice-")
    assert "in the child" in names[child + 2]
    assert "double(n=1)" in names[child + 3]
    assert "✓ completed" in lines[1]
    assert "result" in names


def test_show_tells_attempts_failures_and_retries(cli):
    """What failed stays visible after a retry, marked as taken out."""
    cli.run("hopeful", 1, "--id", "h")
    failed = cli("show", "h").stdout
    assert "attempt 1: ValueError: no good: 2; again after" in failed
    assert "holdfast retry h" in failed
    (cli.folder / "mended").touch()
    cli("retry", "h", "--by", "ana")
    cli.run("hopeful", 1, "--id", "h")
    shown = cli("show", "h").stdout
    assert "taken out by the retry" in shown
    assert "retried from its failure by ana" in shown
    assert shown.index("── failed ──") < shown.index("retried from") < shown.index("fragile(n=2)  → 2")


def test_show_as_json_has_events_and_children(cli):
    """The document is whole: input, result, every event with its value, and the same for each child."""
    cli.run("parent", 1, "--id", "p")
    found = cli.json("show", "p")
    assert found["run"]["input"] == {"n": 1}
    assert found["run"]["result"] == [4, 8, 2]
    kinds = [event["kind"] for event in found["events"]]
    assert kinds.count("step.completed") == 4
    assert kinds[-1] == "run.completed"
    assert found["events"][0]["value"] == 2
    assert found["events"][0]["seq"] == 0
    (child,) = found["children"]
    assert child["run"]["parent"] == "p"
    assert child["run"]["result"] == 2
    assert found["questions"] == []


def test_show_counts_failed_steps_beside_those_done(cli):
    """Lists and the picture have one number of steps, those that completed; the picture says how many failed."""
    (cli.folder / "go-0").touch()
    cli.run("many", 100, "--id", "m")
    assert "196 steps done, 5 failed" in cli("show", "m").stdout
    assert cli.json("runs")["runs"][0]["steps"] == 196
    cli.run("twice", 1, "--id", "t")
    assert "1 step\n" in cli("show", "t").stdout


def test_show_tells_a_decision_that_no_worker_has_taken(cli, terminal):
    """What was decided, or sent, since the worker went away is in the picture with who and when, and told as waiting."""
    for agent, run in (("seats", "s"), ("listener", "l")):
        waiting = terminal.start("run", f"{FLEET}:{agent}", "--id", run)
        waiting.until("waits for")
        waiting.signal(signal.SIGINT)
        waiting.wait()
    assert "no worker has taken" not in cli("show", "s").stdout
    cli("answer", "s", 7, "--by", "ana", "--note", "as last year")
    cli("send", "l", "words", "hello")
    lines = cli("show", "s").stdout.splitlines()
    asked = next(n for n, line in enumerate(lines) if "How many seats?" in line)
    assert re.search(r"\d\d:\d\d:\d\d  ✓ How many seats\?  answered by ana \(as last year\): 7", lines[asked])
    assert lines[asked + 1].strip() == "no worker has taken this yet"
    assert "message words → 'hello'" in cli("show", "l").stdout
    cli("cancel", "l", "--by", "ana")
    assert "asked to stop by ana; no worker has taken this yet" in cli("show", "l").stdout
    (decided,) = cli.json("show", "s")["untaken"]
    assert (decided["kind"], decided["value"], decided["data"]["by"]) == ("approval.decided", 7, "ana")
    terminal.run("run", f"{FLEET}:seats", "--id", "s")
    assert "no worker has taken" not in cli("show", "s").stdout
    assert cli.json("show", "s")["untaken"] == []


def test_show_tells_children_of_a_failed_parent_as_they_are(cli):
    """A parent that has failed hears of no end: its children's states come from themselves."""
    (cli.folder / "go-0").touch()
    failed = cli.run("deserting", "--id", "d")
    assert failed.exit_code == 1, failed.output
    shown = cli("show", "d").stdout.splitlines()
    (child,) = [line for line in shown if "read(pages=1)" in line]
    assert "✓ read(pages=1)" in child, "\n".join(shown)


def test_show_says_what_is_known_of_a_body_without_intent(cli, terminal):
    """Who has the run and when the last thing was recorded; of a worker that is gone, what becomes of a body it was in."""
    worker = terminal.start("worker", FLEET, "--name", "den")
    worker.until("Serving")
    terminal.run("start", f"{FLEET}:payer", 3, "--id", "p")
    worker.until("body: pay 3")
    worker.wait()
    worker = terminal.start("run", f"{FLEET}:read", 1, "--id", "r")
    worker.until("body: page 0")
    (found,) = cli.json("runs", "--agent", "read")["runs"]
    assert (found["worker_gone"], found["waits_for"]) == (False, None)
    shown = " ".join(cli("show", "r").stdout.split())
    assert f"worker {found['worker']} is on it" in shown
    assert "nothing is recorded yet; a body is recorded when it ends" in shown
    worker.kill()
    gone = {each["id"]: (each["worker_gone"], each["waits_for"]) for each in cli.json("runs")["runs"]}
    assert gone == {"r": (True, "worker"), "p": (True, "worker")}
    assert cli.json("show", "p")["run"]["worker"].startswith("den-")
    shown = " ".join(cli("show", "r").stdout.split())
    assert "nothing is recorded yet; a body that was cut off after that runs again" in shown
    shown = " ".join(cli("show", "p").stdout.split())
    assert "cut off: its worker is gone, and whether it had its effect is not known" in shown
    assert re.search(r"nothing is recorded since [\d:]+; a body that was cut off", shown)


def test_show_events_prints_what_is_stored(cli):
    """Every event with its key, data and value."""
    cli.run("twice", 21, "--id", "a")
    shown = cli("show", "a", "--events").stdout
    assert "step.completed" in shown
    assert "double#0" in shown
    assert "value 42" in shown


def test_show_writes_an_svg_that_fetches_nothing(cli):
    """The picture is well-formed, and no font comes from elsewhere."""
    cli.run("parent", 1, "--id", "p")
    assert cli("show", "p", "--svg", "p.svg").exit_code == 0
    text = (cli.folder / "p.svg").read_text("utf-8")
    assert xml.dom.minidom.parseString(text).documentElement.tagName == "svg"
    assert "@font-face" not in text
    assert "url(http" not in text
    assert "branch#0" in text


def test_an_unknown_run_is_told_with_near_ones(cli):
    """The message names runs whose ids have the typed text in them."""
    cli.run("twice", 1, "--id", "otters-1")
    refused = cli("show", "otters")
    assert refused.exit_code == 2
    assert "there are otters-1" in refused.stderr


def test_tail_prints_lines_or_json_lines(cli):
    """Events of one run by seq, of all by position; `--after` goes on from there."""
    cli.run("twice", 1, "--id", "a")
    cli.run("twice", 2, "--id", "b")
    every = [json.loads(line) for line in cli("tail", "--no-follow", "--json").stdout.splitlines()]
    assert [event["run"] for event in every] == ["a", "a", "b", "b"]
    rest = cli("tail", "--no-follow", "--json", "--after", every[1]["position"]).stdout.splitlines()
    assert [json.loads(line)["position"] for line in rest] == [event["position"] for event in every[2:]]
    own = cli("tail", "a", "--after", "1").stdout.splitlines()  # a finished run is not followed
    assert len(own) == 1
    assert own[0].endswith("completed")


def test_delete_and_prune_say_how_many(cli):
    """A deleted run is gone with its children; prune deletes what ended long enough ago."""
    cli.run("parent", 1, "--id", "p")
    cli.run("twice", 1, "--id", "a")
    assert cli("delete", "p").stdout == "Deleted p and 1 child run.\n"
    assert cli.json("prune", "--older-than", "1d")["deleted"] == 0
    assert "Deleted 1 completed or cancelled run" in cli("prune", "--older-than", "0s").stdout
    assert cli.json("runs") == {"runs": [], "held": None}
    assert cli("prune", "--older-than", "never").exit_code == 2


def test_doctor_finds_nothing_wrong_with_a_healthy_store(cli):
    """A healthy store is exit code 0, with versions, sizes and counts."""
    cli.run("twice", 1, "--id", "a")
    healthy = cli("doctor")
    assert healthy.exit_code == 0
    assert "nothing is wrong" in healthy.stdout
    assert "1 completed" in healthy.stdout
    found = cli.json("doctor")
    assert found["durability"] == "power"
    assert found["store"]["integrity"] == "ok"
    assert found["problems"] == []
    assert {"name": "twice", "version": None, "served": False, "versions": []} in found["agents"]


def test_doctor_shows_which_rates_are_paused(cli):
    """With the time until which nobody has a turn; it is nothing wrong."""
    cli.run("twice", 1, "--id", "a")

    async def pause():
        async with holdfast.open(f"sqlite:{cli.folder / 'holdfast.db'}") as hf:
            return await hf.store.pause_rate("rate:openai", 600_000)

    until = asyncio.run(pause())
    assert cli.json("doctor")["paused"] == [{"rate": "openai", "until": until}]
    shown = cli("doctor")
    assert "openai until" in shown.stdout
    assert shown.exit_code == 0


def test_send_refuses_a_finished_run(cli):
    """The message says that the run takes no more."""
    cli.run("twice", 1, "--id", "a")
    refused = cli("send", "a", "words", "hello")
    assert refused.exit_code == 2
    assert "takes no more messages" in refused.stderr
    assert cli("resume", "a").exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(cli, shell):
    """Each script calls `holdfast` for its words."""
    assert "_HOLDFAST_COMPLETE" in cli("completion", shell).stdout


def test_every_command_has_help(cli):
    """Every command and every option says what it is for."""
    for name, command in main.commands.items():
        assert all(option.help for option in command.params if isinstance(option, click.Option)), name
        shown = cli(name, "--help")
        assert shown.exit_code == 0
        assert shown.stdout.startswith(f"Usage: holdfast {name}")


# Finding


def test_runs_are_found_by_time_and_text_and_counted(cli):
    """`--since`, `--until` and `--search` narrow the list and the counts; the list says how many there are in all."""
    for name in ("ana", "bo"):
        cli.run("greet", name, "--id", name)
    cli.run("hopeful", 1, "--id", "h")

    def ids(*words):
        return [each["id"] for each in cli.json("runs", *words)["runs"]]

    assert ids("--search", "ANA") == ["ana"]
    assert ids("--search", "no good") == ["h"]
    assert ids("--since", "1h") == ["h", "bo", "ana"]
    assert ids("--until", "1h") == ids("--since", "2100-01-31") == []
    assert ids("--until", "2100-01-31T10:00", "--agent", "greet") == ["bo", "ana"]
    assert cli.json("runs", "--counts") == {"counts": {"greet": {"completed": 2}, "hopeful": {"failed": 1}}, "total": 3}
    assert cli.json("runs", "--counts", "--search", "bo")["total"] == 1
    table = [line.split() for line in cli("runs", "--counts").stdout.splitlines()]
    assert table == [["agent", "completed", "failed", "in", "all"], ["greet", "2", "0", "2"], ["hopeful", "0", "1", "1"],
                     ["2", "1", "3"]]  # fmt: skip
    assert "The newest 2 of 3 are shown" in cli("runs", "--limit", 2).stdout
    assert "are shown" not in cli("runs", "--limit", 3).stdout
    refused = cli("runs", "--since", "yesterday")
    assert (refused.exit_code, "write how long ago it was, 2h or 3d" in refused.stderr) == (2, True)


def test_prune_says_what_it_would_delete(cli):
    """`--dry-run` counts and deletes nothing; `--agent` and `--label` narrow both."""
    for name in ("ana", "bo"):
        cli.run("greet", name, "--id", name, "--label", f"of={name}")
    cli.run("twice", 1, "--id", "t")
    told = cli("prune", "--older-than", "0s", "--agent", "greet", "--dry-run").stdout
    assert told == (
        "Would delete 2 completed or cancelled greet runs that ended more than 0s ago, with those below."
        " Nothing was deleted.\n"
    )
    assert cli.json("prune", "--older-than", "0s", "--dry-run")["would_delete"] == 3
    assert cli.json("prune", "--older-than", "1d", "--dry-run")["would_delete"] == 0
    assert cli.json("prune", "--older-than", "0s", "--label", "of=bo")["deleted"] == 1
    assert [each["id"] for each in cli.json("runs")["runs"]] == ["t", "ana"]
    assert cli("prune", "--older-than", "0s", "--agent", "greet").stdout.startswith("Deleted 1 completed")


# Help


def test_help_has_every_command_in_a_section(cli):
    """Once each, with a sentence that is not cut at 80 columns."""
    told = cli("--help").stdout
    lines = [line.split() for line in told.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    listed = [words[0] for words in lines if words[0] in main.commands]
    assert sorted(listed) == sorted(main.commands)
    assert [line for line in told.splitlines() if line.endswith("...")] == [
        "Usage: holdfast [OPTIONS] COMMAND [ARGS]..."
    ]
    headings = [line[:-1] for line in told.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[:8] == ["Options", "Run agents", "Look", "Decide", "Steer", "Carry", "Try", "Keep"]
    assert "\x1b" not in told


def test_help_has_colours_on_a_terminal(person):
    """Names of commands and options, and headings; not where NO_COLOR says so."""
    ana = person("--help")
    ana.leaves()
    assert "\x1b[33mLook\x1b[0m" in ana.raw
    assert "\x1b[36mrun" in ana.raw
    bo = person("runs", "--help", NO_COLOR="1")
    bo.leaves()
    assert "\x1b[3" not in bo.raw


@pytest.mark.parametrize("command", [[], ["runs"], ["run"]])
def test_the_store_is_named_in_help(cli, command):
    """Every kind that one file or server is, and the default."""
    told = " ".join(cli(*command, "--help").stdout.split())
    kinds = "sqlite:PATH, postgresql://USER@HOST/DATABASE, cells:FILE or temporal://HOST:7233/NAMESPACE"
    assert f"{kinds}. Default: $HOLDFAST_URL" in told


def test_a_narrow_terminal_shows_id_agent_and_state_of_each_run(terminal, person):
    """A long error has a line of its own, and takes nothing from the other columns; piped, each run has one line."""
    terminal.run("run", f"{FLEET}:twice", "1", "--id", "a-run-with-a-name", "--label", "team=research")
    terminal.run("run", f"{FLEET}:parsing", "{", "--id", "f")
    lines, code = person("runs", columns=80).leaves()
    assert code == 0
    found = [line for line in lines if line]
    assert found[0].split() == ["id", "agent", "status", "steps", "age", "labels"]
    assert found[1].split()[:4] == ["f", "parsing", "✗", "failed"]
    assert found[2].startswith("  StepFailed: step 'parse' failed at its only attempt")
    assert found[3].split()[:4] == ["a-run-with-a-name", "twice", "✓", "completed"]
    assert len(found) == 4
    terminal.env["COLUMNS"] = "80"
    _, piped = terminal.run("runs")
    assert len(piped.splitlines()) == 3, piped


def test_two_agents_are_refused_where_one_is_taken(cli):
    """A second `--agent` does not take the place of the first without a word."""
    cli.run("twice", 1, "--id", "a")
    for words in (
        ["runs"], ["runs", "--counts"], ["runs", "--stuck"], ["pause"], ["resume"], ["cancel"], ["retry"],
        ["prune", "--older-than", "0s"],
    ):  # fmt: skip
        refused = cli(*words, "--agent", "twice", "--agent", "hopeful")
        assert refused.exit_code == 2
        assert "it takes one agent, and 2 were given (twice, hopeful); give the command once for each" in " ".join(
            refused.stderr.split()
        )
    assert [each["id"] for each in cli.json("runs", "--agent", "twice", "--agent", "twice")["runs"]] == ["a"]


def test_a_misspelled_argument_is_told_the_nearest_name(cli):
    assert "expected 'note', perhaps" in cli("run", f"{FLEET}:twice", 1, "--arg", "notes=x").stderr
