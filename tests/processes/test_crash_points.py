"""Killed at every point, a run ends as if nothing had happened, and the world shows each recorded step once.

A real process is killed by SIGKILL before and after every commit to the journal, and inside every body before and after
its effect. Then a new process goes on.
"""

import signal

import pytest
from tests.processes import scenes
from tests.processes.ledger import Place, check_once, check_tokens, closed, in_doubt

AGAIN = {"act", "act_in_thread", "fails_twice", "slow_at_first"}  # steps that may have their effect twice: policy retry
IN_MEMORY_S = 60.0
KEPT = ("step.completed", "step.failed", "note", "patched", "checkpoint", "timer.fired", "child.spawned")


def carry(forks, place, agent, **arguments):
    return forks.start(scenes.play, folder=str(place.folder), url=place.url, agent=agent, **arguments)


class Story:
    """One scenario: how it goes undisturbed, and how it goes with one death in it."""

    def __init__(self, forks, folder, agent, grace_s, url=None):
        self.forks, self.folder, self.agent, self.grace_s, self.url = forks, folder, agent, grace_s, url
        place = self.place("undisturbed")
        process = carry(forks, place, agent, grace_s=grace_s)
        said = process.read()
        process.ends()
        self.result, self.commits, self.effects = said["result"], said["commits"], said["effects"]
        self.history = shape(place.dead())
        assert "in doubt" not in self.result
        assert max(place.effects_of("run").values()) <= 3

    def place(self, name):
        folder = self.folder / name
        folder.mkdir()
        place = Place(folder, url=self.url)
        if self.url is not None:
            place.clear()
        return place

    def with_death(self, when, **point):
        """Die at this point and go on; False when the process came to its end before the point."""
        place = self.place("-".join([when, *map(str, point), *map(str, point.values())]))
        first = carry(self.forks, place, self.agent, when=when, grace_s=self.grace_s, **point)
        if first.wait() == 0:  # the last commits of parallel work are sometimes fewer
            assert first.read()["result"] == self.result
            return False
        assert first.code == -signal.SIGKILL, first.log.read_text()
        left = place.dead()
        second = carry(self.forks, place, self.agent, grace_s=self.grace_s)
        result = second.read()["result"]
        second.ends()
        self.check(place, left, result, {second.pid})
        files = ["ledger"] if self.url else ["ledger", "runs.db"]
        assert sorted(path.name for path in place.folder.iterdir()) == files  # the dead left none
        assert place.query("SELECT count(*) FROM workers") == [(0,)]
        return True

    def die_at_every_commit(self, request):
        commits = range(self.commits + 1)
        deaths = [self.with_death(when, commit=commit) for commit in commits for when in ("before", "after")]
        request.node.user_properties.append(("crash_points", sum(deaths)))
        assert sum(deaths) > self.commits  # parallel work does not always come to the same number of commits

    def check(self, place, left, result, later):
        lines, doubtful = place.lines(), in_doubt(left)
        check_once(left, lines, later)
        check_tokens(lines)
        counts = {}
        for line in lines:
            counts.setdefault((line.run, line.key, line.attempt), []).append(line)
        for (run, key, _), happened in counts.items():
            again = key.rpartition("/")[2].partition("#")[0] in AGAIN
            assert len(happened) == 1 or (again and len(happened) == 2 and (run, key) not in closed(left)), happened
        failed = self.agent == "doubt_fail" and doubtful
        expected = [self.result[0], "in doubt", self.result[2]] if failed else self.result
        assert result == expected
        if not failed:
            assert shape(place.dead()) == self.history
        for line in lines:  # what has no record of its beginning and is not repeatable was not lost either
            assert (line.run, line.key) in closed(place.dead())


def shape(events):
    """What a history comes to, whatever interrupted it: which calls ended how. Children's ids differ between runs."""
    return sorted(
        (event.run.count("."), event.kind, event.key, event.data.get("input", ""))
        for event in events
        if event.kind in KEPT
    )


CASES = [(agent.name, 0.0) for agent in scenes.ALL]
CASES += [(name, IN_MEMORY_S) for name in ("sleep", "child", "messages", "timeout")]


@pytest.mark.by_day("child-parked", "doubt_ask-parked", "messages-parked")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("agent", "grace_s"), CASES, ids=[f"{name}-{'kept' if s else 'parked'}" for name, s in CASES])
def test_killed_at_every_commit(forks, tmp_path, agent, grace_s, request):
    """Killed before or after any commit, a run ends like an undisturbed one and repeats no recorded step."""
    Story(forks, tmp_path, agent, grace_s).die_at_every_commit(request)


@pytest.mark.nightly
@pytest.mark.timeout(180)
@pytest.mark.parametrize("agent", [agent.name for agent in scenes.ALL])
def test_killed_at_every_commit_on_postgres(forks, tmp_path, agent, postgres_url, request):
    """The same on PostgreSQL."""
    Story(forks, tmp_path, agent, 0.0, postgres_url).die_at_every_commit(request)


@pytest.mark.by_day("doubt_ask", "doubt_probe", "parallel")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("agent", [agent.name for agent in scenes.ALL])
def test_killed_in_every_body(forks, tmp_path, agent, request):
    """Killed in a body before or after its effect, a run ends like an undisturbed one by the step's own policy."""
    story = Story(forks, tmp_path, agent, 0.0)
    deaths = [
        story.with_death(when, effect=effect) for effect in range(1, story.effects + 1) for when in ("before", "after")
    ]
    request.node.user_properties.append(("crash_points", sum(deaths)))
    assert all(deaths)
