"""One agent that keeps the loop to itself is named, and costs nobody a lease."""

import re
import sys

import pytest
from tests.processes import fleet_agents as agents

OTHERS = [f"other-{number}" for number in range(20)]


@pytest.mark.by_day("sqlite")
def test_a_hog_is_named_and_nobody_loses_a_lease(fleet):
    """An agent blocks for two leases: no lease is lost to an idle worker, nothing runs twice, and the log has its line."""
    owner = fleet.worker("--lease", "3")
    fleet.start((agents.hog, ["hog", 6.5], "greedy"), *[(agents.enduring, [0.1], other) for other in OTHERS])
    fleet.until(lambda: len({effect.run for effect in fleet.effects()}) == 21)
    rival = fleet.worker("--lease", "3")
    fleet.allow("hog")
    told = owner.until("has not turned for")
    assert re.search(r"run 'greedy' \(agent 'hog'\) keeps it at \S*agents\.py:\d+ in hog", told)
    line = int(re.search(r"agents\.py:(\d+)", told)[1])
    assert "time.sleep" in agents.FOLDER.joinpath(agents.__file__).read_text().splitlines()[line - 1]
    over = owner.until("the loop turns again after")
    assert float(re.search(r"after ([\d.]+) s", over)[1]) > 5.0
    assert "run 'greedy'" in over
    fleet.allow("enough")
    assert fleet.results(["greedy"]) == {"greedy": "after"}
    assert fleet.results(OTHERS) == {other: len(fleet.effects(other)) for other in OTHERS}
    assert set(fleet.counts().values()) == {1}
    assert {effect.pid for effect in fleet.effects()} == {owner.pid}
    assert not fleet.events("run.interrupted")
    assert owner.said().count("has not turned for") == 1
    for each in (owner, rival):
        each.stop()
        assert each.ended() == 0


IN_A_TASK = pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks do not tell their context")


@pytest.mark.parametrize(
    ("agent", "function"),
    [
        pytest.param(agents.hogging_step, "hog_in_body", id="body"),
        pytest.param(agents.hogging_task, "block", id="task", marks=IN_A_TASK),
    ],
)
def test_a_body_that_hogs_is_named(fleet, agent, function):
    """The body of a step that blocks the loop, or a task that it started, is named with its run."""
    owner = fleet.worker("--lease", "1")
    fleet.start((agent, ["it", 2.0], "greedy"))
    told = owner.until("has not turned for")
    named = rf"a step of run 'greedy' \(agent '{agent.name}'\) keeps it at \S*agents\.py:\d+ in {function}"
    assert re.search(named, told)
    fleet.results(["greedy"])
    assert len(fleet.effects()) == 1
