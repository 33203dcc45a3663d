"""What runs have cost, as the command line shows it, and budgets that are typed."""

import asyncio
from pathlib import Path

import pytest
from tests.cli import cost_agents

import holdfast
from holdfast import BadArguments, Budget

COSTLY = Path(__file__).parent / "cost_agents.py"


@pytest.fixture
def costs(cli):
    """The command line; `costs.run` runs one of the agents that cost something."""
    cli.run = lambda agent, *words: cli("run", f"{COSTLY}:{agent}", *words)
    return cli


def test_costs_are_shown_by_step_and_in_all(costs):
    """In lists, in the picture, in events and as data; who spends nothing is not bothered with it."""
    assert "cost" not in costs.run("sleeper", "--id", "s").output
    assert "cost" not in costs("runs").stdout
    done = costs.run("thinker", 2, "--id", "t")
    assert done.stderr.count(", $0.25, 1,010 tokens") == 2
    assert "$0.50, 2,020 tokens" in costs("runs").stdout
    shown = costs("show", "t").stdout
    assert "3 steps · $0.50, 2,020 tokens" in shown
    assert shown.count("$0.25, 1,010 tokens") == 2
    document = costs.json("show", "t")
    spent = {"usd": 0.5, "input_tokens": 2000, "output_tokens": 20, "model_calls": 2, "unpriced": 0, "steps": 3}
    assert (document["run"]["spent"], document["run"]["budget"]) == (spent, None)
    assert [event["data"].get("spent", {}).get("usd") for event in document["events"]] == [0.25, 0.25, None, None]


def test_a_budget_can_be_typed(costs):
    """`--budget` holds for this run; at its limit it fails or asks, and the question says what was spent by what."""
    failed = costs.run("thinker", 9, "--id", "f", "--budget", "usd=1,soft=0.5,at_limit=fail")
    assert failed.exit_code == 1
    assert "BudgetExceeded: the budget of run 'f' is spent: $1.00 of $1.00" in failed.stderr
    assert "most of the budget is spent: $0.50 left" in costs("show", "f").stdout
    assert costs.json("runs")["runs"][0]["budget"]["usd"] == 1.0


def test_a_budget_is_shown_with_what_a_person_gave(costs):
    """In the picture and as data: what the run may spend now, and not what it might at first."""

    async def give(url):
        async with holdfast.open(url, agents=[cost_agents]) as hf:
            run = await hf.start(cost_agents.thinker, 2, id="t", budget=Budget(usd=0.25))
            await run.wait("waiting")
            await hf.approve((await hf.approvals())[0], by="ana", data={"usd": 2})
            await run.result()

    asyncio.run(give(url := f"sqlite:{costs.folder}/costs.db"))
    assert " · $0.50, 2,020 tokens · budget $2.25" in costs("show", "t", "--db", url).stdout
    assert costs.json("show", "t", "--db", url)["run"]["budget"]["usd"] == 2.25
    assert costs.json("runs", "--db", url)["runs"][0]["budget"]["usd"] == 2.25


def test_a_retry_may_bring_another_budget(costs):
    """A run that failed for its budget fails again without, and goes on where it stopped with more."""
    costs.run("thinker", 3, "--id", "f", "--budget", "usd=0.5,at_limit=fail")
    costs("retry", "f")
    assert costs.run("thinker", "--id", "f").exit_code == 1
    costs("retry", "f", "--budget", "usd=5")
    assert costs.run("thinker", "--id", "f").stdout == "done\n"
    (run,) = costs.json("runs")["runs"]
    assert (run["spent"]["usd"], run["spent"]["steps"], run["budget"]["usd"]) == (0.75, 4, 5.0)


WRONG = ["usd", "usd=much", "steps=1.5", "wall=soon", "money=5", "usd=-1", "", "usd=1,at_limit=no"]


@pytest.mark.parametrize("typed", WRONG)
def test_a_budget_that_makes_no_sense_is_refused(typed):
    """The message says what is wrong with it."""
    with pytest.raises(BadArguments, match=r"budget|Budget|duration"):
        Budget.parse(typed)


def test_nothing_is_started_with_a_wrong_budget(costs):
    """It is looked at first."""
    assert costs.run("thinker", 1, "--budget", "usd=much").exit_code == 2
    assert "there is no store" in costs("runs").stderr


def test_a_typed_budget_is_the_same_as_a_written_one():
    """Each part means what it means in code."""
    typed = "usd=2.5, tokens=1000,steps=3,model_calls=4,wall=1h30m,soft=0.9,at_limit=fail"
    written = Budget(usd=2.5, tokens=1000, steps=3, model_calls=4, wall="1h30m", soft=0.9, at_limit="fail")
    assert Budget.parse(typed) == written
    assert Budget.of(written.published()) == written
