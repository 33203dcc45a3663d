"""Killed at random moments, again and again, runs of every shape end right, and nothing recorded runs twice."""

import random
import time

import pytest
from tests.engine import schedules
from tests.processes import scenes
from tests.processes.ledger import Place, check_once, check_tokens

ROUNDS = 40
MOST_KILLS = 4  # a run that makes no progress between five deaths is paused, which is another test's fact


def right(name, result):
    """Is this what the agent returns under some schedule?"""
    if name == "parallel":
        return result == [f"saved short found {q}" for q in "xyz"]
    if name == "nested":
        return result == [f"n{n}" for n in range(4)]
    if name == "races":
        ended = [entry for entry in result[3:] if not entry.startswith("after ")]
        return sorted(ended) == [f"c{n}" for n in range(4)] and result[4::2] == [f"after {entry}" for entry in ended]
    if name == "queues":
        return sorted(result) == sorted(f"got {n}.{item}" for n in range(3) for item in range(3))
    outcomes = [entry.split(",") for entry in result if "," in entry]
    names = [[f"{round_}.{n}" for n in range(3)] for round_ in range(3)]
    for round_ in range(3):  # one of them is cancelled, unless it was through by then
        if outcomes[round_][round_] == "cancelled":
            names[round_][round_] = "cancelled"
    cleaned = [entry for entry in result if "cleaned up" in entry]
    return outcomes == names and len(cleaned) == sum("cancelled" in entries for entries in names)


def once(forks, folder, name, seed):
    """One run, killed a few times; returns how many of the kills came before its end."""
    rng = random.Random(f"{name} {seed}")
    folder.mkdir()
    place, kills, pids, left = Place(folder), 0, [], []
    for _ in range(rng.randint(1, MOST_KILLS)):
        process = forks.start(scenes.carry_schedule, folder=str(folder), name=name, seed=rng.random())
        pids.append(process.pid)
        time.sleep(rng.uniform(0.01, 0.08))  # the moment of death: nothing waits for it
        if process.kill() == 0:
            break
        kills += 1
        left.append((place.dead(), len(pids)))
    process = forks.start(scenes.carry_schedule, folder=str(folder), name=name, seed=rng.random())
    pids.append(process.pid)
    result = process.read()["result"]
    process.ends()
    assert right(name, result), result
    for recorded, count in left:
        check_once(recorded, place.lines(), set(pids[count:]))
    check_tokens(place.lines())
    keys = [event.key for event in place.dead() if event.kind in ("step.completed", "step.cancelled")]
    assert len(keys) == len(set(keys))
    assert max(place.effects_of("run").values()) <= kills + 1
    assert not [event for event in place.dead() if event.kind == "foreign"]
    return kills


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", schedules.ALL)
def test_killed_at_random(forks, folder, name, record_property):
    """Forty runs, each killed up to four times at random moments: all end right, and no recorded body runs again."""
    kills = [once(forks, folder / str(seed), name, seed) for seed in range(ROUNDS)]
    record_property("kills", sum(kills))
    assert sum(kills) > ROUNDS / 2
