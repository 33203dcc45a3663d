"""Killed at random moments, again and again, runs of every shape end right, and nothing recorded runs twice."""

import itertools
import random
import time
from collections import Counter

import pytest
from tests.engine import schedules
from tests.processes import scenes, workers
from tests.processes.ledger import Place, check_once, check_tokens, until
from tests.processes.worker_process import start, stop

ROUNDS = 40
MOST_KILLS = 4  # a run that makes no progress between five deaths is paused, which is another test's fact


def carry(forks, place, name, rng):
    return forks.start(scenes.carry_schedule, folder=str(place.folder), name=name, seed=rng.random())


def once(forks, place, name, rng, span_s):
    """One run, killed a few times; returns how many of the kills came before its end."""
    kills, pids, left = 0, [], []
    for _ in range(rng.randint(1, MOST_KILLS)):
        process = carry(forks, place, name, rng)
        pids.append(process.pid)
        assert process.read()["begun"]
        time.sleep(rng.random() ** 2 * span_s)  # the moment of death: nothing waits for it
        if process.kill() == 0:
            break
        kills += 1
        left.append((place.dead(), len(pids)))
    process = carry(forks, place, name, rng)
    pids.append(process.pid)
    assert process.read()["begun"]
    result = process.read()["result"]
    process.ends()
    assert schedules.CHECKS[name](result), result
    for recorded, count in left:
        check_once(recorded, place.lines(), set(pids[count:]))
    check(place, kills)
    return kills


def check(place, kills):
    """One outcome per call, one more body than there were deaths at most, and each life saw what the one before saw."""
    check_tokens(place.lines())
    events = place.dead()
    keys = [event.key for event in events if event.kind in ("step.completed", "step.cancelled")]
    assert len(keys) == len(set(keys))
    assert max(place.effects_of("run").values()) <= kills + 1
    assert not [event for event in events if event.kind == "foreign"]
    lives = {}
    for line in (place.folder / "lives").read_text().splitlines():
        life, _, text = line.partition(" ")
        lives.setdefault(life, []).append(text)
    seen = list(lives.values())
    for earlier, later in itertools.pairwise(seen):
        assert later[: len(earlier)] == earlier[: len(later)]


@pytest.mark.by_day("mixed")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", schedules.ALL)
def test_killed_at_random(forks, tmp_path, name, request):
    """Many runs, each killed up to four times at random moments: all end right, and no recorded body runs again."""
    rounds = schedules.rounds(name, ROUNDS)

    def new_place(number):
        (tmp_path / str(number)).mkdir()
        return Place(tmp_path / str(number))

    def undisturbed(number):
        process = carry(forks, new_place(f"undisturbed{number}"), name, random.Random(name))
        assert process.read()["begun"]
        began = time.monotonic()
        assert schedules.CHECKS[name](process.read()["result"])
        return time.monotonic() - began

    span_s = min(undisturbed(number) for number in range(3))  # or most would be over before they are killed
    kills = [once(forks, new_place(seed), name, random.Random(f"{name} {seed}"), span_s) for seed in range(rounds)]
    request.node.user_properties.append(("kills", sum(kills)))
    assert sum(kills) > rounds / 2


CROWD = ("sequential", "parallel", "retry", "sleep", "child", "checkpoints", "doubt_probe", "notes")


class Crowd:
    """Four workers on one store, to whom things happen."""

    def __init__(self, forks, place, rng):
        self._forks, self._place, self._rng = forks, place, rng
        self.deaths = self.stops = 0
        self._workers = [self._start() for _ in range(4)]
        self._stopped = []

    def _start(self):
        agents = [*CROWD, "middle", "grandchild"]
        arguments = {"folder": str(self._place.folder), "agents": agents, "lease_ttl_s": 1.0, "park_grace_s": 0.0}
        return self._forks.start(workers.serve, **arguments)

    def disturb(self):
        """Kill one and start another, or stop one, or let one go on."""
        worker = self._rng.choice(self._workers)
        if worker in self._stopped:
            self._stopped.remove(worker)
            worker.go_on()
        elif self._rng.random() < 0.5:
            self.stops += 1
            self._stopped.append(worker)
            stop(self._place, worker)
        else:
            self.deaths += 1
            worker.kill()
            self._workers[self._workers.index(worker)] = self._start()

    def calm(self):
        for worker in self._stopped:
            worker.go_on()


@pytest.mark.by_day("0")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2))
def test_four_workers_are_killed_and_stopped(forks, place, seed, request):
    """Workers that are killed, stopped beyond their lease and woken complete every run; a call has one outcome."""
    rng = random.Random(seed)
    crowd = Crowd(forks, place, rng)
    for number in range(20):
        start(place, *[(agent, [], f"{agent}-{number}") for agent in CROWD])
        time.sleep(rng.uniform(0.0, 0.2))  # the moment of the next misfortune: nothing waits for it
        crowd.disturb()
    crowd.calm()
    until(lambda: not place.query("SELECT 1 FROM runs WHERE status <> 'completed'"), timeout=60)
    results = place.query(
        "SELECT agent, count(*), count(DISTINCT result) FROM runs WHERE parent_id IS NULL GROUP BY agent"
    )
    assert sorted(results) == [(agent, 20, 1) for agent in sorted(CROWD)]
    keys = [(event.run, event.key) for event in place.events() if event.kind == "step.completed"]
    assert len(keys) == len(set(keys))
    assert {(line.run, line.key) for line in place.lines()} == set(keys)
    check_tokens(place.lines())
    again = Counter((line.run, line.key, line.attempt) for line in place.lines())
    assert max(again.values()) <= 1 + crowd.deaths + crowd.stops
    misfortunes = [crowd.deaths, crowd.stops, sum(count > 1 for count in again.values())]
    request.node.user_properties.append(("misfortunes", misfortunes))
