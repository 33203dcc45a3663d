"""`fork`, `forks` and `retry --at` from the command line."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli import main

BROKEN = [True]


@holdfast.step(effects=False)
async def fetch(what: str) -> str:
    return f"{what}!"


@holdfast.step
async def mend() -> str:
    if BROKEN[0]:
        raise ValueError("broken")
    return "whole"


@holdfast.agent(name="forked")
async def forked(what: str = "a") -> str:
    return f"{await fetch(what)} {await mend()}"


async def served(url, *runs):
    async with holdfast.open(url, agents=[forked]) as hf:
        return [await hf.get(run).result() for run in runs]


@pytest.fixture
def url(tmp_path):
    """A store with a failed run, and nobody who serves it."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    BROKEN[0] = True

    async def prepare() -> None:
        async with holdfast.open(url, agents=[forked]) as hf:
            await (await hf.start(forked, id="r")).wait("failed")

    asyncio.run(prepare())
    BROKEN[0] = False
    return url


def told(url, *arguments, code=0):
    result = CliRunner().invoke(main, ["--db", url, *arguments], prog_name="holdfast")
    assert result.exit_code == code, result.output
    return result.output


def test_a_run_is_forked_with_another_result(url):
    said = told(url, "fork", "r", "--replace", 'fetch#0="put"', "--id", "f", "--by", "ana", "--effects", "new")
    assert said.splitlines() == [
        "f goes on from before event 0 of r.",
        f"  holdfast show f --db {url}",
        "No live worker serves 'forked'. Start one:",
        f"  holdfast worker FILE.py --db {url}",
    ]
    assert asyncio.run(served(url, "f")) == ["put whole"]
    assert told(url, "forks", "f").splitlines() == [
        "r  ✗ failed",
        "└─ f  before event 0  with fetch#0 = 'put'  ✓ completed",
    ]
    document = json.loads(told(url, "forks", "r", "--json"))
    assert [(each["id"], each["of"], each["at"]) for each in document["forks"]] == [("r", None, None), ("f", "r", 0)]
    shown = told(url, "show", "f")
    assert "forked from run r before event 0 by ana" in shown and "replaced: fetch#0 = 'put'" in shown
    assert "replaced when the run was forked" in shown
    assert "f before event 0, replaced: fetch#0 = 'put'" in " ".join(
        told(url, "audit", "r", "--action", "fork").split()
    )
    (deed,) = json.loads(told(url, "audit", "r", "--action", "fork", "--json"))["audit"]
    assert (deed["by"], deed["data"]["replace"]) == ("ana", ["fetch#0"])


def test_a_failed_run_goes_back_further(url):
    assert "goes on from there" in told(url, "retry", "r", "--at", "fetch", "--effects", "new")
    assert asyncio.run(served(url, "r")) == ["a! whole"]
    assert "retried from before event 0" in told(url, "show", "r")


def test_what_cannot_be_is_told(url):
    for words in (["fork", "r", "--at", "nothing"], ["fork", "r", "--replace", "fetch"], ["retry", "r", "x", "--at", "1"],
                  ["fork", "nobody"], ["forks", "nobody"], ["retry", "r", "--at", "99"]):  # fmt: skip
        told(url, *words, code=2)
    assert len(json.loads(told(url, "runs", "--json"))["runs"]) == 1


def test_a_step_that_was_done_before_is_decided(url):
    """The question says what was done, and each answer is a command; "use" takes the recorded result."""
    BROKEN[0] = False
    asyncio.run(retried(url))
    told(url, "fork", "r", "--at", "mend", "--id", "g", "--by", "ana")
    asyncio.run(asks(url, "g"))
    shown = told(url, "show", "g")
    assert "Do mend() again? It was done by run 'r' at" in " ".join(shown.split())
    assert "Go on with the result that is recorded:" in shown and "It did not happen" not in shown
    (question,) = json.loads(told(url, "approvals", "--json"))["questions"]
    told(url, "answer", question["id"], "use", "--by", "ana")
    assert asyncio.run(served(url, "g")) == ["a! whole"]


def test_a_step_that_was_not_done_again_is_told_with_what_helps(url):
    BROKEN[0] = False
    asyncio.run(retried(url))
    told(url, "fork", "r", "--at", "mend", "--id", "g", "--effects", "refuse", "--by", "ana")
    asyncio.run(fails(url, "g"))
    shown = told(url, "show", "g")
    assert "InDoubt: it was done by run 'r'" in " ".join(shown.split())
    assert "raised here" not in shown  # nothing was
    (line,) = [line for line in shown.splitlines() if "holdfast retry g" in line]
    assert "--at 'mend#0' --effects new" in line
    told(url, "retry", "g", "--at", "mend#0", "--effects", "new", "--by", "ana")
    assert asyncio.run(served(url, "g")) == ["a! whole"]


async def fails(url, run):
    async with holdfast.open(url, agents=[forked]) as hf:
        await hf.get(run).wait("failed")


async def retried(url):
    async with holdfast.open(url, agents=[forked]) as hf:
        await hf.get("r").retry()
        await hf.get("r").result()


async def asks(url, run):
    async with holdfast.open(url, agents=[forked]) as hf:
        await hf.get(run).wait_for_question()


def test_a_value_that_does_not_fit_is_told_with_the_way_on(url):
    """Nobody here has the agent's code; where the fork stops, show and doctor advise another fork, and no resume."""
    BROKEN[0] = False
    told(url, "fork", "r", "--replace", "fetch=3", "--id", "bad", "--by", "ana", "--effects", "new")
    asyncio.run(stops(url, "bad"))
    for words, code in ((["show", "bad"], 0), (["doctor"], 1)):
        said = " ".join(told(url, *words, code=code).split())
        assert "holdfast fork r --replace fetch#0=JSON" in said.replace("'", "") and "resume bad" not in said


async def stops(url, run):
    async with holdfast.open(url, agents=[forked]) as hf:
        await hf.get(run).wait("paused")
