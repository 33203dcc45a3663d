"""Runs of Pydantic AI agents at the command line: in the order of time, with names that people understand."""

import re
from pathlib import Path

import pytest

CLERK = Path(__file__).parent / "pydantic_agents.py"
STORY = [
    "model -> asks for find_order, find_customer",
    "find_order(id=7)",
    "find_customer(name='bo')",
    "model -> asks for find_order: 'Let me ask the store.'",
    "find_order(id=8)",
    "model -> 'It comes tomorrow.'",
]


@pytest.fixture
def asked(cli, monkeypatch):
    """The command line after a run of an agent that asks its model twice."""
    monkeypatch.setenv("COLUMNS", "120")
    cli.done = cli("run", f"{CLERK}:support", "Where is it?", "--id", "s")
    assert cli.done.exit_code == 0
    return cli


def test_a_picture_has_requests_and_tools_in_the_order_of_time(asked):
    """One branch for each run of the agent; what the model asks for stands before the tools that it got."""
    shown = asked("show", "s").stdout.replace("→", "->")
    found = re.findall(
        r"(clerk(?:, run 2)?|model  -> .*?|find_\w+\(.*?\))  +(?:-> '|\$|[\d.]+ m?s)", shown.partition("result\n")[0]
    )
    told = [" ".join(each.split()) for each in found]
    assert told == ["clerk", *STORY, "clerk, run 2", *STORY], shown


def test_a_request_is_told_by_what_the_model_said(asked):
    """While it runs, and by `tail`; small sums of money are written as people write them."""
    for told in (asked.done.stderr, asked("tail", "s", "--no-follow").stdout):
        assert f"clerk: {STORY[0]} in " in told
        assert f"clerk: {STORY[-1]} in " in told
        assert "$0.00003, 120 tokens" in told
    assert "$0.00018, 720 tokens" in asked("runs").stdout
