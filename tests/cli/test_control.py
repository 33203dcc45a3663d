"""`pause`, `resume`, `cancel` and `audit` from the command line."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli import main


@holdfast.agent(name="controlled")
async def waits() -> None:
    await holdfast.receive("never")


@pytest.fixture
def url(tmp_path):
    """A store with three waiting runs and nobody who serves them."""
    url = f"sqlite:{tmp_path / 'runs.db'}"

    async def prepare() -> None:
        async with holdfast.open(url, agents=[waits], settings=holdfast.Settings(park_grace_s=0)) as hf:
            for name in "abc":
                run = await hf.start(waits, id=name, labels={"team": "x" if name == "a" else "y"})
                await run.wait("waiting")

    asyncio.run(prepare())
    return url


def told(url, *arguments, code=0):
    result = CliRunner().invoke(main, ["--db", url, *arguments], prog_name="holdfast")
    assert result.exit_code == code, result.output
    return result.output


def states(url):
    return {run["id"]: run["status"] for run in json.loads(told(url, "runs", "--json"))["runs"]}


def test_one_run_is_paused_and_resumed(url):
    """With who and why in the audit."""
    assert told(url, "pause", "a", "--reason", "lunch", "--by", "ana") == "a is paused, with all below it.\n"
    assert states(url)["a"] == "paused"
    assert "paused by ana: lunch" in told(url, "runs")
    assert told(url, "resume", "a", "--by", "ben").startswith("a is no longer paused, but no live worker serves")
    assert states(url)["a"] == "ready"
    lines = told(url, "audit", "a").splitlines()
    rows = [line.split()[2:5] for line in lines[1:]]
    assert [(who, what) for who, _, what in rows] == [("someone", "start"), ("ana", "pause"), ("ben", "resume")]
    assert [via.partition(":")[0] for _, via, _ in rows] == ["python", "cli", "cli"]
    assert "lunch" in lines[2]
    assert told(url, "show", "a", "--audit") == "\n".join(lines) + "\n"


def test_runs_are_chosen_by_what_they_are(url):
    """By label, agent or state; as data with --json."""
    done = json.loads(told(url, "pause", "--label", "team=y", "--json"))["runs"]
    assert sorted(run["id"] for run in done) == ["b", "c"]
    assert states(url) == {"a": "waiting", "b": "paused", "c": "paused"}
    told(url, "resume", "--agent", "controlled")
    assert states(url) == {"a": "waiting", "b": "ready", "c": "ready"}
    assert told(url, "pause", "--agent", "nobody") == "No run fits.\n"


def test_a_cancel_is_told_and_a_second_one_ends(url):
    """The first waits for a worker, as the agent may tidy up; the second does not."""
    first = told(url, "cancel", "a", "--by", "ana", "--reason", "enough")
    assert first.startswith("a was told to stop, but no live worker serves 'controlled'")
    assert f"To end it now, as it is:\n  holdfast cancel a --db {url}\n" in first
    assert told(url, "cancel", "a") == "a is cancelled.\n"
    assert states(url)["a"] == "cancelled"
    audit = json.loads(told(url, "audit", "--action", "cancel", "--json"))["audit"]
    assert [(deed["action"], deed["data"]["reason"]) for deed in audit] == [("cancel", "enough"), ("cancel", "")]


def test_what_cannot_be_done_is_said(url):
    """An unknown run, a finished one, no run at all, both ways at once."""
    assert "there is no run" in told(url, "pause", "nobody", code=2)
    told(url, "cancel", "a")
    told(url, "cancel", "a")
    assert "cancelled and cannot be paused" in told(url, "pause", "a", code=2)
    assert "name a run" in told(url, "cancel", code=2)
    assert "not both" in told(url, "cancel", "b", "--agent", "controlled", code=2)
    assert "say which with an ID, --by or --older-than" in told(url, "audit", "--erase", code=2)
    assert told(url, "audit", "--by", "nobody") == "The audit has nothing that fits.\n"
    assert "not a duration" in told(url, "cancel", "b", "--grace", "soon", code=2)
    assert "it has no unit; write '90s' for seconds" in told(url, "prune", "--older-than", "90", code=2)


def test_a_filter_by_another_state_is_refused(url):
    """It fits no run, and must not be taken for none at all."""
    told(url, "pause", "a")
    assert "only paused runs are resumed, not waiting ones" in told(url, "resume", "--status", "waiting", code=2)
    assert states(url)["a"] == "paused"
    assert "only failed runs are retried" in told(url, "retry", "--status", "completed", code=2)
    resumed = told(url, "resume", "--status", "paused")
    assert resumed.startswith("a is no longer paused, but no live worker serves 'controlled'")


def test_failed_runs_are_retried_by_what_they_are(cli):
    """By label, by agent, or all that failed; one by its id as before."""
    for name in "abc":
        cli.run("hopeful", 1, "--id", name, "--label", f"team={'x' if name == 'c' else 'y'}")
    cli.run("twice", 1, "--id", "done")

    def failed():
        return sorted(each["id"] for each in cli.json("runs", "--status", "failed")["runs"])

    assert failed() == ["a", "b", "c"]
    assert cli("retry", "--agent", "twice").stdout == "No run fits.\n"
    assert cli("retry").exit_code == 2
    assert "not both" in cli("retry", "a", "--agent", "hopeful").stderr
    one = cli("retry", "--label", "team=x").stdout
    assert one.startswith(
        "c goes on from its failure; what was recorded before stays, but no live worker serves 'hopeful'"
    )
    assert failed() == ["a", "b"]
    assert [each["id"] for each in cli.json("retry", "--status", "failed", "--by", "ana")["runs"]] == ["b", "a"]
    assert failed() == []
    (cli.folder / "mended").touch()
    assert cli.run("hopeful", 1, "--id", "b").stdout == "2\n"


@holdfast.agent(name="controlled-parent")
async def above() -> None:
    await waits()


def test_pause_and_resume_take_the_family_unless_told_otherwise(tmp_path):
    """`--only` is for the runs that are named."""
    url = f"sqlite:{tmp_path / 'family.db'}"

    async def prepare() -> str:
        async with holdfast.open(url, agents=[above, waits], settings=holdfast.Settings(park_grace_s=0)) as hf:
            run = await hf.start(above, id="p")
            await run.wait("waiting")
            (child,) = await hf.runs(parent="p")
            await hf.get(child.id).wait("waiting")
            return child.id

    def states():
        return {run["id"]: run["status"] for run in json.loads(told(url, "runs", "--json"))["runs"]}

    child = asyncio.run(prepare())
    told(url, "pause", "p", "--now")
    assert states() == {"p": "paused", child: "paused"}
    told(url, "resume", "p", "--only")
    assert states() == {"p": "ready", child: "paused"}
    told(url, "resume", child)
    told(url, "pause", "p", "--only")
    assert states() == {"p": "paused", child: "ready"}
