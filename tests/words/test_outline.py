"""Outlines: groups are what the calls of a history say, whatever pieces it comes in."""

import random

import pytest

from holdfast.words.calls import Calls
from holdfast.words.model import Event
from holdfast.words.outline import Fold


def history(seed, events=400):
    """A history of steps in tasks, some tried again, some failed, some open; and what belongs to no call."""
    chance, made, counts, open_calls = random.Random(seed), [], {}, []
    era = ""
    for seq in range(events):
        at = 1_000 + seq * 10
        if open_calls and chance.random() < 0.3:
            key, name = open_calls.pop(chance.randrange(len(open_calls)))
            kind = chance.choice(["step.completed", "step.failed", "step.retrying"])
            data = {"name": name, "attempt": 2, "attempts": chance.randint(1, 4)}
            if kind == "step.retrying":
                open_calls.append((key, name))
            made.append(Event(seq, kind, key, data, at=at))
            continue
        if chance.random() < 0.02:
            era = f"@{seq}/"
            counts = {}
            open_calls = []
        scope = era + chance.choice(["", "", "a#0/", "a#1/", "b#0/c#0/", f"many#{chance.randrange(80)}/"])
        name = chance.choice(["read", "write", "tool/odd", "plain"])
        nth = counts[scope, name] = counts.get((scope, name), -1) + 1
        key = f"{scope}{name}#{nth}"
        spent = {"usd": 0.5, "model_calls": 1} if name == "write" else {}
        if chance.random() < 0.4:
            made.append(Event(seq, "step.started", key, {"name": name}, at=at))
            open_calls.append((key, name))
        elif chance.random() < 0.1:
            made.append(Event(seq, "message.received", None, {"topic": "x"}, at=at))
        else:
            data = {"name": name, "began": at - chance.randrange(500)} | ({"spent": spent} if spent else {})
            made.append(Event(seq, "step.completed", key, data, at=at))
    return made


def folded(events, *, size=10_000):
    fold = Fold()
    for start in range(0, len(events), size):
        fold.add(events[start : start + size])
    return fold


@pytest.mark.parametrize("seed", range(20))
def test_groups_count_what_the_calls_say(seed):
    """All calls are in exactly one group, in whatever pieces the history came; inside a group are all of its own."""
    events = history(seed)
    calls, fold = Calls(events).made, folded(events, size=random.Random(seed).randint(1, 50))
    last = events[-1].at
    whole = folded(events).groups(1_000, last, 24)
    assert fold.calls == len(calls)
    groups = fold.groups(1_000, last, 24)
    assert groups == whole
    assert sum(group.count for group in groups) == len(calls)
    assert sum(group.failed for group in groups) == sum(call.state == "failed" for call in calls)
    assert sum(group.running for group in groups) == sum(call.outcome is None for call in calls)
    assert sum(group.attempts for group in groups) == sum(call.attempts for call in calls)
    assert sum(map(sum, (group.density for group in groups))) == sum(call.outcome is not None for call in calls)
    for group in groups:
        if group.kind == "branch":
            inside = fold.groups(1_000, last, 24, group.key)
            assert sum(each.count for each in inside) == group.count, group.key
            assert all(each.key.startswith(group.key) for each in inside)
        else:
            assert fold.groups(1_000, last, 24, group.key) == [] or "/" in group.name
    slowest = max((call.ended - call.began, call.key) for call in calls if call.ended is not None)
    told = fold.samples({row for group in groups for _, row in group.slowest})
    assert max(sample.ms for sample in told.values()) == slowest[0]
    keys = {call.key: call for call in calls}
    assert all(keys[sample.key].seq == sample.seq for sample in told.values())


def test_many_tasks_of_one_name_are_one_group_and_few_are_not():
    few = [Event(n, "step.completed", f"t#{n}/read#0", {"name": "read"}, at=n) for n in range(50)]
    assert [group.key for group in folded(few).groups(0, 50, 5)] == [f"t#{n}/" for n in range(50)]
    many = [*few, Event(50, "step.completed", "t#50/read#0", {"name": "read"}, at=50)]
    (group,) = folded(many).groups(0, 51, 5)
    assert (group.key, group.count, group.name, group.kind) == ("t/", 51, "t", "branch")
    (inside,) = folded(many).groups(0, 51, 5, "t/")
    assert (inside.key, inside.count, inside.name, inside.kind) == ("t/read", 51, "read", "step")
    (one,) = folded(many).groups(0, 51, 5, "t#7/")
    assert (one.key, one.count) == ("t#7/read", 1)


def test_very_many_groups_are_put_together():
    """The largest stay, and nothing is lost."""
    events = [Event(n, "step.failed", f"s{n}#0", {"name": f"s{n}"}, at=n) for n in range(1_000)]
    events += [Event(1_000 + n, "step.completed", f"big#{n}", {"name": "big"}, at=1_000 + n) for n in range(9)]
    found = folded(events).groups(0, 1_009, 10)
    assert len(found) == 300 and "big" in [group.name for group in found]
    rest = found[-1]
    assert (rest.key, rest.kind) == ("", "others")
    assert sum(group.count for group in found) == 1_009 == sum(sum(group.density) for group in found)
    assert sum(group.failed for group in found) == 1_000
