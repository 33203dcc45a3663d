"""Killed at random moments, again and again, runs of every shape end right, and nothing recorded runs twice."""

import itertools
import random
import time

import pytest
from tests.engine import schedules
from tests.processes import scenes
from tests.processes.ledger import Place, check_once, check_tokens

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


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", schedules.ALL)
def test_killed_at_random(forks, folder, name, record_property):
    """Forty runs, each killed up to four times at random moments: all end right, and no recorded body runs again."""

    def new_place(number):
        (folder / str(number)).mkdir()
        return Place(folder / str(number))

    undisturbed = carry(forks, new_place("undisturbed"), name, random.Random(name))
    assert undisturbed.read()["begun"]
    began = time.monotonic()
    assert schedules.CHECKS[name](undisturbed.read()["result"])
    span_s = time.monotonic() - began
    kills = [once(forks, new_place(seed), name, random.Random(f"{name} {seed}"), span_s) for seed in range(ROUNDS)]
    record_property("kills", sum(kills))
    assert sum(kills) > ROUNDS / 2
