"""Differences: where two runs part, and what stands beside what."""

from tests.rehearsal.agents import both, shop, stumbles

import holdfast
import holdfast.testing
from holdfast.rehearsal.difference import Told, compare
from holdfast.words.calls import Calls
from holdfast.words.model import Event, RunRow


def told(*calls, run="a", result="1"):
    """A run with these calls: a key, an input and a result each."""
    events = []
    for seq, (key, given, value) in enumerate(calls):
        data = {"name": key.partition("#")[0], "digest": given, "input": given, "asked": seq, "attempts": 1}
        events.append(Event(seq, "step.completed", key, data, value, at=seq * 10, epoch=1, run=run))
    row = RunRow(run, "f" * 32, "shop", "completed", "{}", result=result, created_at=0, finished_at=100)
    return Told(row, "{}", result, "", Calls(events).made, 100)


def differences(found):
    return [(pair.key, pair.differs) for pair in found.pairs if pair.differs]


def test_the_same_calls_are_no_difference():
    found = compare(told(("a#0", "1", "1"), ("b#0", "2", "2")), told(("a#0", "1", "1"), ("b#0", "2", "2"), run="b"))
    assert (found.same, found.parted, found.differs, differences(found)) == (True, None, (), [])


def test_calls_in_another_order_are_no_difference():
    found = compare(told(("a#0", "1", "1"), ("b#0", "2", "2")), told(("b#0", "2", "2"), ("a#0", "1", "1"), run="b"))
    assert found.same
    assert sorted(pair.key for pair in found.pairs) == ["a#0", "b#0"]


def test_runs_part_at_the_first_call_that_differs():
    one = told(("a#0", "1", "1"), ("b#0", "2", "2"), ("c#0", "3", "3"))
    other = told(("a#0", "1", "1"), ("b#0", "2", "9"), ("d#0", "4", "4"), run="b", result="2")
    found = compare(one, other)
    assert found.parted is not None
    assert (found.parted.key, found.parted.differs) == ("b#0", ("result",))
    assert found.differs == ("result",)
    assert differences(found) == [("b#0", ("result",)), ("c#0", ("only here",)), ("d#0", ("only there",))]


def test_a_call_of_one_run_stands_where_it_was_made():
    one = told(("a#0", "1", "1"), ("c#0", "3", "3"))
    other = told(("a#0", "1", "1"), ("b#0", "2", "2"), ("c#0", "3", "3"), run="b")
    assert [pair.key for pair in compare(one, other).pairs] == ["a#0", "b#0", "c#0"]
    assert [pair.key for pair in compare(other, one).pairs] == ["a#0", "b#0", "c#0"]
    assert compare(other, one).parted.differs == ("only here",)


async def test_two_runs_of_a_store():
    async with holdfast.testing.open(agents=[shop, both, stumbles]) as hf:
        for name, item in (("a", "kettle"), ("b", "kettle"), ("c", "pot")):
            run = await hf.start(shop, item, id=name)
            await hf.approve(await run.wait_for_question(), by="ana") if name != "b" else await hf.deny(
                await run.wait_for_question(), by="ana", note="no"
            )
            await run.result()
        await (await hf.start(stumbles, "no", id="s")).wait("failed")
        decided, other, failed = [await hf.diff("a", name) for name in ("b", "c", "s")]
    assert decided.parted.sort == "question"
    assert (decided.one.result, decided.other.result) == ("'paid 6, sent'", "'paid 6, kept'")
    assert (other.parted.key, other.parted.differs[0]) == ("look#0", "arguments")
    assert (other.parted.one.input, other.parted.other.input) == (
        '"kettle"',
        '"pot"',
    ) or "kettle" in other.parted.one.input
    assert set(failed.differs) >= {"agent", "arguments", "status", "result", "error"}
    assert failed.other.error == "ValueError: no"
    assert failed.other.result == ""
