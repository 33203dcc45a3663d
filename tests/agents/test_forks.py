"""`run.fork()`: a run that shares another's history up to a point, and goes on from there by itself, on both stores."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest
from tests.agents.runs import history, kinds

import holdfast
import holdfast.testing
from holdfast import BadArguments, NotAllowed, RunFailed

DID: list[tuple[str, str]] = []  # what bodies did, and with which idempotency key
BROKEN: set[str] = set()

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_fork_of_a_fork_shares_with_both",
    "test_a_fork_writes_to_a_copy_of_its_conversations",
    "test_checkpoints_and_eras_are_forked",
    "test_forks_and_deletions_of_one_run_meet",
    "test_pruning_keeps_what_forks_share",
}


@pytest.fixture(autouse=True)
def fresh():
    DID.clear()
    BROKEN.clear()


@pytest.fixture
def opened(store_url):
    return lambda *agents: holdfast.open(store_url, agents=agents)


def did(what: str) -> int:
    return len([each for each, _ in DID if each == what])


@holdfast.step
async def act(what: str) -> str:
    DID.append((what, holdfast.idempotency_key()))
    if what in BROKEN:
        raise ValueError(f"{what} is broken")
    return f"{what}!"


@holdfast.step(effects=False)
async def look(what: str) -> str:
    DID.append((what, holdfast.idempotency_key()))
    return f"{what}?"


@holdfast.agent
async def four(last: str = "d") -> list[str]:
    return [await act("a"), await act("b"), await look("c"), await act(last), str(holdfast.rng().random())[:6]]


# The point


async def test_a_fork_does_nothing_again_that_it_shares(opened):
    """Recorded steps before the point stay done; those behind it run, with new idempotency keys."""
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        first = await run.result()
        fork = await run.fork(at="act#1", effects="new", id="f", by="ana")
        assert (await fork.result())[:4] == first[:4]
        assert (did("a"), did("b"), did("c"), did("d")) == (1, 2, 2, 2)
        assert len({key for what, key in DID if what == "b"}) == 2
        assert [event.seq for event in await history(hf, "f")] == list(range(6))
        assert (await kinds(hf, "f"))[:3] == ["step.completed", "run.forked", "step.completed"]
        assert (await fork.info()).steps == 4
        assert await run.result() == first


@pytest.mark.parametrize("at", range(6))
async def test_a_fork_can_begin_at_every_event(opened, at):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        first = await run.result()
        fork = await run.fork(at=min(at, 4), effects="new")
        assert (await fork.result())[:4] == first[:4]
        assert did("a") == 1 + (at == 0)


async def test_the_past_keeps_the_identity_of_the_original(opened):
    """Random numbers, the time and the run's own name are as they were, up to the point; behind it they are the fork's own."""

    @holdfast.agent
    async def named() -> list[list[str]]:
        told = []
        for _ in range(2):
            facts = [holdfast.this_run().id, str(holdfast.uuid4()), str(holdfast.now())]
            told.append([await act("|".join(facts)), *facts])
        return told

    async with opened(named) as hf:
        run = await hf.start(named, id="r")
        first = await run.result()
        fork = await run.fork(at="act#1", effects="new", id="f")
        second = await fork.result()
        assert second[:1] == first[:1]
        assert second[1] == first[1]  # asked for by code that ran before the point
        late = await (await run.fork(at=0, effects="new", id="g")).result()
        assert (late[0], late[1][1]) == (first[0], "g")
        assert late[1][2] != first[1][2]


async def test_a_waiting_run_and_a_failed_one_can_be_forked(opened):
    """A fork of a failed run goes on from before the failure; of a waiting one it waits by itself."""

    @holdfast.agent
    async def waits() -> str:
        await act("a")
        yes = await holdfast.approve("go on?")
        return await act("yes" if yes else "no")

    async with opened(waits) as hf:
        run = await hf.start(waits, id="r")
        mine = await run.wait_for_question()
        fork = await run.fork(id="f")
        theirs = await fork.wait_for_question()
        assert mine.id != theirs.id
        await hf.deny(theirs, by="ben")
        await hf.approve(mine, by="ana")
        assert (await run.result(), await fork.result()) == ("yes!", "no!")

        BROKEN.add("yes")
        failed = await (await run.fork(at=":approve#0", id="g", effects="new")).wait_for_question()
        await hf.approve(failed, by="ana")
        with pytest.raises(RunFailed):
            await hf.get("g").result()
        BROKEN.clear()
        again = await hf.get("g").fork(effects="new", id="h")
        assert await again.result() == "yes!"
        assert (await hf.get("g").info()).status == "failed"
        assert did("a") == 1


# What is replaced


async def test_a_step_an_argument_a_decision_and_a_message_can_be_replaced(opened):
    @holdfast.agent
    async def asks(who: str, count: int = 1) -> str:
        text = await act(f"{who}{count}")
        yes = await holdfast.approve("go on?", show={"text": text}, to=["ana"])
        name = await holdfast.ask("which?", str)
        said = await holdfast.receive("news", str)
        return f"{text} {bool(yes)} {name} {said}"

    async with opened(asks) as hf:
        run = await hf.start(asks, "x", id="r")
        await hf.approve(await run.wait_for_question(), by="ana")
        await hf.answer(await run.wait_for_question(), "red", by="ana")
        await run.send("news", "old")
        assert await run.result() == "x1! True red old"
        message = next(event.seq for event in await history(hf, "r") if event.kind == "message.received")

        step = await run.fork(replace={"act": "put!", ":approve#0": True, ":ask#0": "blue"}, by="ana", effects="refuse")
        shows = await step.wait_for_question()  # something else, which nobody has decided
        assert shows.shown == {"text": "put!"}
        await hf.approve(shows, by="ana")
        await step.send("news", "new")
        assert await step.result() == "put! True blue new"
        (first, *_) = [event for event in await history(hf, step.id) if event.kind == "step.completed"]
        assert first.data["replaced"] is True
        denied = await run.fork(replace={":approve#0": {"yes": False, "note": "no"}, ":ask#0": "green"}, by="ana")
        await denied.send("news", "now")
        assert await denied.result() == "x1! False green now"
        told = await run.fork(replace={f"message:{message}": "other"}, by="ana")
        assert await told.result() == "x1! True red other"
        assert did("x1") == 1

        other = await run.fork(replace={"arguments": {"who": "y"}, ":approve#0": True, ":ask#0": "blue"}, by="ana",
                               effects="new")  # fmt: skip
        await hf.approve(await other.wait_for_question(), by="ana")
        await other.send("news", "far")
        assert await other.result() == "y1! True blue far"
        assert await other.arguments() == {"who": "y", "count": 1}
        with pytest.raises(NotAllowed):
            await run.fork(replace={":approve#0": True}, by="eve")


async def test_the_result_of_a_child_can_be_replaced(opened):
    """No child runs in its place; the result of one that was spawned is named by the call that spawned it."""

    @holdfast.agent
    async def adds(what: str) -> int:
        await act(what)
        return len(what)

    @holdfast.agent
    async def leads() -> list[int]:
        called = await adds("called")
        spawned = await holdfast.spawn(adds, "spawned")
        await act("between")
        return [called, await spawned]

    async with opened(leads, adds) as hf:
        run = await hf.start(leads, id="r")
        assert await run.result() == [6, 7]
        keys = {step.name: step.key async for step in run.steps() if step.kind == "child"}
        calls = [step.key async for step in run.steps() if step.kind == "child"]
        both = await run.fork(replace={"adds": 60}, effects="new", id="f")
        assert await both.result() == [60, 7]
        assert (did("called"), did("spawned")) == (1, 2)
        spawned = await run.fork(replace={":spawn.adds#0": 70}, effects="new", id="g")
        assert await spawned.result() == [6, 70]
        every = await run.fork(replace={"adds#0": 60, ":spawn.adds": 70}, effects="new", id="h")
        assert await every.result() == [60, 7]  # it is spawned anew, behind the point
        assert (did("called"), did("spawned")) == (1, 3)
        assert (keys, len(calls)) == ({"adds": calls[-1]}, 2)
        with pytest.raises(BadArguments, match="does not fit the type"):
            await run.fork(replace={"adds#0": "sixty"}, effects="new")
        (shown,) = [step async for step in both.steps() if step.key == "adds#0"]
        assert (shown.status, await shown.result()) == ("completed", 60)
        # A fork of the fork has it too, and the original may go.
        await run.delete()
        assert await (await both.fork(effects="new")).result() == [60, 7]


async def test_a_crash_while_a_childs_result_is_replaced_changes_nothing():
    @holdfast.agent
    async def adds(what: str) -> int:
        await act(what)
        return len(what)

    @holdfast.agent
    async def leads() -> list[int]:
        return [await adds("called"), len(await act("d"))]

    async for hf in holdfast.testing.crash_everywhere(agents=[leads, adds]):
        DID.clear()
        run = await hf.start(leads, id="r")
        await run.result()
        fork = await run.fork(replace={"adds": 60}, effects="new", id="f")
        assert await fork.result() == [60, 2]


async def test_what_was_replaced_is_told(opened):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        given = "other \x1b[31m" + "x" * 100
        fork = await run.fork(replace={"act#0": given, "arguments": {"last": "e"}}, effects="new", id="f", by="ana")
        await fork.result()
        (_, made) = await run.forks()
        assert made.replaced.keys() == {"act#0", "arguments"} and len(made.replaced["act#0"]) <= 60
        (deed,) = await hf.audit(run="r", action="fork")
        assert deed.data["values"] == made.replaced
        forked = next(event for event in await history(hf, "f") if event.kind == "run.forked")
        assert forked.data["instead"] == made.replaced
        await hf.erase_audit(run="r")
        (deed,) = await hf.audit(run="r", action="fork")
        assert "values" not in deed.data and deed.data["replace"] == ["act#0", "arguments"]


async def test_what_cannot_be_forked_is_told_with_what_can(opened):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        for wrong, told in [
            ({"at": 99}, "has events 0 to 3"), ({"at": "act"}, "several calls"), ({"at": "atc"}, "no such call"),
            ({"at": "checkpoint"}, "has taken none"), ({"at": -1}, "name an event"), ({"at": 1.5}, "name an event"),
            ({"effects": "never"}, "effects="), ({"replace": {"nothing#0": 1}}, "no such call"),
            ({"replace": {"message:0": 1}}, "that is step.completed"), ({"replace": {"message:x": 1}}, "message:12"),
            ({"replace": {"arguments": 3}}, "by name"), ({"replace": {"arguments": {"nope": 3}}}, "nope"),
            ({"replace": {"arguments": {"last": "e"}}, "at": 2}, "from the beginning"), ({"replace": [1]}, "by the keys"),
            ({"id": "r"}, "no fork of"), ({"id": "-x"}, "mistaken"), ({"id": "a b"}, "not a run id"),
        ]:  # fmt: skip
            with pytest.raises(BadArguments, match=told):
                await run.fork(**wrong)
        with pytest.raises(holdfast.UnknownRun):
            await hf.get("nobody").fork()
        again = await run.fork(id="f", effects="new")
        same = await run.fork(id="f", effects="new")
        assert (again.created, same.created, same.id) == (True, False, "f")


async def test_a_value_that_does_not_fit_stops_the_fork_before_any_effect(opened):
    @dataclasses.dataclass
    class Page:
        size: int

    @holdfast.step
    async def fetch() -> Page:
        return Page(3)

    @holdfast.agent
    async def reads() -> str:
        return await act(f"{(await fetch()).size}")

    async with opened(reads) as hf:
        run = await hf.start(reads, id="r")
        await run.result()
        good = await run.fork(replace={"fetch": {"size": 4}}, effects="new")
        assert await good.result() == "4!"
        with pytest.raises(BadArguments, match=r"'fetch': .*does not fit the type of its result.*No fork was made"):
            await run.fork(replace={"fetch": {"size": "large"}}, effects="new", id="no")
        assert {info.id for info in await hf.runs()} == {"r", good.id}
    async with opened() as hf:  # without the agent's code it shows when the fork comes to the step
        await hf.get("r").fork(replace={"fetch": {"size": "large"}}, effects="new", id="bad")
    async with opened(reads) as hf:
        await hf.get("bad").wait("paused")
        reason = (await hf.get("bad").info()).reason
        assert "{'size': 'large'}, which replaces the result of 'fetch#0', does not fit its type" in reason
        assert "Fork 'r' again with a value for 'fetch#0' that fits" in reason and did("large") == 0


# Effects


async def test_steps_that_were_done_before_are_asked_for(opened):
    """With effects='ask' a person says whether they run again; steps that only read run unasked."""
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        fork = await run.fork(at="act#1", id="f")
        question = await fork.wait_for_question()
        assert question.kind == "in_doubt"
        text = question.question
        assert text.startswith("Do act(what='b') again? It was done by run 'r' at 20")
        assert (
            "UTC (event 1), with the result 'b!'. Answer \"run\" to do it again, with the new idempotency key" in text
        )
        assert '"use" to go on with the result that is recorded' in text and "not known" not in text
        assert question.shown == {"call": "act(what='b')", "run": "r", "event": 1, "result": "'b!'"}
        await hf.answer(question, {"result": "kept"}, by="ana")
        question = await fork.wait_for_question()
        assert (did("b"), did("c")) == (1, 2)
        await hf.answer(question, "run", by="ana")
        assert (await fork.result())[:4] == ["a!", "kept", "c?", "d!"]
        assert did("d") == 2


async def test_the_result_that_is_recorded_can_be_used(opened):
    """The person says "use", and the step has the original's result; where there is none that is told."""
    large = "y" * 300_000

    @holdfast.step
    async def think(what: str) -> tuple[str, int]:
        DID.append((what[:5], holdfast.idempotency_key()))
        return what, len(what)

    @holdfast.step
    async def note() -> None:
        DID.append(("note", ""))

    @holdfast.agent
    async def thinks() -> list[int]:
        await act("a")
        found = [await think("short"), await think(large)]
        await note()
        return [size for _, size in found]

    async with opened(thinks) as hf:
        run = await hf.start(thinks, id="r")
        first = await run.result()
        fork = await run.fork(at="act", id="f")
        await hf.answer(await fork.wait_for_question(), "fail", by="ana")
        with pytest.raises(RunFailed, match=r"done by run 'r'.*; ana decided to fail the step"):
            await fork.result()
        await run.delete()
        again = await fork.fork(at="act", id="g")
        for _ in range(4):
            await hf.answer(await again.wait_for_question(), "use", by="ana")
        assert await again.result() == first
        assert (did("short"), did("yyyyy"), did("note"), did("a")) == (1, 1, 1, 1)


async def test_steps_that_were_done_before_can_be_refused(opened):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        with pytest.raises(RunFailed, match="done by run 'r'"):
            await (await run.fork(at="act#1", effects="refuse")).result()
        assert did("b") == 1


async def test_a_step_with_another_name_in_that_place_was_not_done_before(opened):
    """What the original did is known by key and name; a call that it never made runs."""

    @holdfast.agent
    async def chooses(way: str) -> str:
        return await (look(way) if way == "l" else act(way))

    async with opened(chooses) as hf:
        run = await hf.start(chooses, "l", id="r")
        await run.result()
        fork = await run.fork(replace={"arguments": {"way": "x"}}, effects="refuse")
        assert await fork.result() == "x!"


async def test_what_was_done_is_known_by_its_input_too(opened):
    """With another list of names the calls have other places, and nobody gets a second letter unasked."""

    @holdfast.agent
    async def writes(names: list[str]) -> list[str]:
        return [await act(name) for name in names]

    @holdfast.agent
    async def writer(name: str) -> str:
        return await act(f"dear {name}") + await act(f"yours, {name}") if name == "ana" else await act(name)

    @holdfast.agent
    async def office(names: list[str]) -> list[str]:
        return [await writer(name) for name in names]

    async with opened(writes, office, writer) as hf:
        for agent in (writes, office):
            run = await hf.start(agent, ["ana", "bo"], id=agent.name)
            await run.result()
            asked = []
            fork = await run.fork(replace={"arguments": {"names": ["cy", "di", "bo", "ana"]}})
            for _ in range(5 if agent is office else 4):
                try:
                    question = await fork.wait_for_question(timeout=5)
                except (TimeoutError, holdfast.RunFinished):
                    break
                asked.append(question.question.partition("(what=")[2].partition(")")[0])
                await hf.answer(question, {"result": "-"}, by="ana")
            await fork.result(timeout=5)
            if agent is writes:
                assert asked == ["'cy'", "'di'", "'bo'", "'ana'"]
            else:
                assert asked == ["'cy'", "'di'", "'bo'", "'dear ana'", "'yours, ana'"]
        assert {what: did(what) for what in ("ana", "bo", "dear ana", "yours, ana")} == {
            "ana": 1, "bo": 2, "dear ana": 1, "yours, ana": 1,
        }  # fmt: skip


# Children, conversations, streams, checkpoints


@holdfast.agent
async def child(what: str) -> str:
    await act(f"{what} begins")
    if what == "slow":
        await holdfast.receive("go", str)
    return await act(f"{what} ends")


@holdfast.agent
async def parent() -> list[str]:
    quick = await child("quick")
    later = await holdfast.spawn(child, "slow")
    await act(f"spawned {later.id}")
    middle = await holdfast.receive("middle", str)
    return [quick, middle, await later, holdfast.this_run().id]


async def test_children_that_had_ended_are_shared_and_others_are_new(opened):
    async with opened(parent, child) as hf:
        run = await hf.start(parent, id="r")
        await run.wait("waiting", waits_for="message")
        slow = next(event.data["child"] for event in await history(hf, "r") if event.kind == "child.spawned")
        await hf.get(slow).wait("waiting")
        fork = await run.fork(id="f", effects="new")
        await fork.wait("waiting", waits_for="message")
        (other,) = [info.id for info in await hf.runs(parent="f")]
        await hf.get(other).wait("waiting")
        assert other != slow
        assert (did("quick begins"), did("slow begins"), did(f"spawned {slow}")) == (1, 2, 1)
        for each, of in ((run, slow), (fork, other)):
            await each.send("middle", "m")
            await hf.get(of).send("go", "now")
        assert await run.result() == ["quick ends!", "m", "slow ends!", "r"]
        assert await fork.result() == ["quick ends!", "m", "slow ends!", "f"]
        # All that is left is the end, which the code has come to before the point.
        last = await run.fork(effects="refuse", id="g")
        assert await last.result() == ["quick ends!", "m", "slow ends!", "r"]
        assert did("slow ends") == 2


async def test_a_child_that_is_called_again_asks_too(opened):
    """A new child knows what the child in its place did: its steps are in doubt as well."""
    async with opened(parent, child) as hf:
        run = await hf.start(parent, id="r")
        await run.wait("waiting", waits_for="message")
        fork = await run.fork(at=0, id="f")
        question = await fork.wait_for_question()
        assert question.run != "f"
        assert did("quick begins") == 1
        await hf.answer(question, {"result": "x"}, by="ana")
        await hf.answer(await fork.wait_for_question(), {"result": "taken"}, by="ana")
        question = await fork.wait_for_question()
        assert question.key.startswith("act")
        await hf.answer(question, "run", by="ana")
        await fork.send("middle", "m")


async def test_a_fork_writes_to_a_copy_of_its_conversations(opened):
    @holdfast.agent
    async def talks(word: str) -> list[str]:
        async with holdfast.conversation("user-1", str) as talk:
            await talk.add(f"{word} 1")
            await act(word)
            await talk.add(f"{word} 2")
            return await talk.messages()

    async with opened(talks) as hf:
        await (await hf.start(talks, "old")).result()
        run = await hf.start(talks, "new", id="r")
        assert await run.result() == ["old 1", "old 2", "new 1", "new 2"]
        inside = await run.fork(at="act", effects="new", id="f")
        assert await inside.result() == ["old 1", "old 2", "new 1", "new 2"]
        before = await run.fork(at=0, effects="new", id="g", replace={"arguments": {"word": "other"}})
        assert await before.result() == ["old 1", "old 2", "other 1", "other 2"]
        both = await inside.fork(at="act", effects="new", id="h")
        assert await both.result() == ["old 1", "old 2", "new 1", "new 2"]
        for name in ("user-1", "user-1@f", "user-1@g", "user-1@h"):
            assert len(await hf.conversation(name, str).messages()) == 4


async def test_a_fork_has_the_text_of_streams_up_to_the_point(opened):
    @holdfast.step
    async def tell(words: str) -> str:
        async with holdfast.stream("answer") as out:
            for word in words.split():
                await out.write(f"{word} ")
        return words

    @holdfast.agent
    async def tells() -> str:
        await tell("one two")
        async with holdfast.stream("log") as out:
            await out.write("first ")
            await tell("three")
            await out.write("last ")
        return await tell("four")

    async def text(run, name):
        return "".join([chunk.data async for chunk in run.stream(name, follow=False)])

    async with opened(tells) as hf:
        run = await hf.start(tells, id="r")
        await run.result()
        fork = await run.fork(at="tell#1", effects="new", id="f")
        await fork.result()
        for each in (run, fork):
            assert await text(each, "answer") == "one two three four "
            assert await text(each, "log") == "first last "


async def test_checkpoints_and_eras_are_forked(opened):
    """A fork can go back before a checkpoint, or go on from it, and takes checkpoints of its own."""

    @holdfast.agent
    async def eras() -> list[str]:
        done = await holdfast.restore([])
        while len(done) < 4:
            done.append(await act(f"e{len(done)}"))
            done.append(str(holdfast.uuid4())[:4])
            done = await holdfast.checkpoint(done)
        await holdfast.receive("go", str)
        return [*done, await act("end")]

    async with opened(eras) as hf:
        run = await hf.start(eras, id="r")
        await run.wait("waiting")
        first = await run.fork(at="checkpoint", effects="new", id="f")
        back = await run.fork(at=1, effects="new", id="g")
        for each in (run, first, back):
            await each.wait("waiting")
            await each.send("go", "now")
        whole = await run.result()
        assert await first.result() == whole
        assert [each for n, each in enumerate(await back.result()) if n % 2 == 0] == ["e0!", "e2!", "end!"]
        assert (did("e0"), did("e2")) == (1, 2)
        deep = await back.fork(at="checkpoint", effects="new", id="h")
        await deep.wait("waiting")
        await deep.send("go", "now")
        assert await deep.result() == await back.result()
        assert len({key for what, key in DID if what == "end"}) == 4


async def test_a_fork_of_a_fork_shares_with_both(opened):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        one = await run.fork(at=2, effects="new", id="f")
        await one.result()
        two = await one.fork(at=4, effects="new", id="g")  # r's 0 and 1, f's fork and its third step
        three = await one.fork(at=1, effects="new", id="h")  # r's alone
        for fork in (two, three):
            assert (await fork.result())[:4] == ["a!", "b!", "c?", "d!"]
        assert (did("a"), did("b"), did("c"), did("d")) == (1, 2, 3, 4)
        assert [event.seq for event in await history(hf, "g")] == list(range(7))
        tree = [(each.id, each.of, each.at) for each in await three.forks()]
        assert tree == [("r", None, None), ("f", "r", 2), ("g", "f", 4), ("h", "f", 1)]


# The original goes on


async def test_nothing_that_happens_to_the_original_changes_a_fork(opened):
    """It is retried, deleted and its id used again; a fork made before has the history that it had."""

    @holdfast.agent
    async def fails(big: str = "x" * 40_000) -> list[str]:
        one = await look(big)
        two = await act("b")
        await holdfast.receive("go", str)
        return [one[-4:], two, await act("c")]

    async with opened(fails) as hf:
        run = await hf.start(fails, id="r")
        await run.wait("waiting")
        fork = await run.fork(id="f", effects="new")
        behind = await run.fork(at="act", id="g")
        question = await behind.wait_for_question()
        BROKEN.add("c")
        await run.send("go", "now")
        with pytest.raises(RunFailed):
            await run.result()
        early = await run.fork(at=1, effects="new", id="e")
        await run.retry(at=0, effects="new")  # what came stays: it fails once more
        await run.wait("failed")
        before = [(event.seq, event.kind) for event in await history(hf, "f")]
        assert await run.delete() == 1
        await (await hf.start(fails, "y", id="r")).wait("waiting")
        assert [(event.seq, event.kind) for event in await history(hf, "f")][: len(before)] == before
        assert next(each.status for each in await fork.forks()) == "deleted"
        BROKEN.clear()
        deep = await fork.fork(at=1, effects="new", id="d")
        await hf.answer(question, {"result": "kept"}, by="ana")
        for each, second in ((fork, "b!"), (behind, "kept"), (early, "b!"), (deep, "b!")):
            await each.send("go", "now")
            assert await each.result() == ["xxx?", second, "c!"]
        for each in (fork, behind, early, deep):
            assert await each.delete() == 1
        facts = await hf.store.facts()
        assert facts["integrity"] == "ok"
        assert facts["events"] == len(await history(hf, "r"))  # nothing is left of those that are gone


async def test_pruning_keeps_what_forks_share(opened):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        fork = await run.fork(at=3, id="f")
        question = await fork.wait_for_question()
        assert await hf.store.prune(hf.store.clock.now() + 1, ["completed"]) == 1
        await hf.answer(question, "run", by="ana")
        assert (await fork.result())[:4] == ["a!", "b!", "c?", "d!"]
        assert await hf.store.prune(hf.store.clock.now() + 1, ["completed"]) == 1
        assert (await hf.store.facts())["events"] == 0


async def test_forks_and_deletions_of_one_run_meet(store_url):
    """A fork is made whole or finds no run; forks of forks too; and when all are deleted nothing is left."""

    @holdfast.agent
    async def counts() -> int:
        return sum([int((await look(str(n)))[0]) for n in range(6)])

    async def fork(hf, run, n):
        with contextlib.suppress(holdfast.UnknownRun):
            return await hf.get(run).fork(at=n % 6, effects="new", id=f"{run}.{n}")

    async def delete(hf, run):
        with contextlib.suppress(holdfast.UnknownRun, holdfast.RunActive):
            await hf.get(run).delete()

    async with holdfast.open(store_url, agents=[counts]) as hf, holdfast.open(store_url) as other:
        for name in "abc":
            await (await hf.start(counts, id=name)).result()
            made = await asyncio.gather(*[fork(hf if n % 2 else other, name, n) for n in range(6)], delete(other, name))
            for each in filter(None, made):
                assert await each.result() == 15
                deeper, _ = await asyncio.gather(fork(other, each.id, 3), delete(hf, each.id))
                if deeper is not None:
                    assert await deeper.result() == 15
                    seqs = [event.seq for event in await history(hf, deeper.id)]
                    assert seqs == list(range(len(seqs)))
        for info in await hf.runs(limit=1000):
            await hf.get(info.id).delete()
        facts = await hf.store.facts()
        assert (facts["integrity"], facts["events"]) == ("ok", 0)


# Retry from an earlier step


async def test_a_failed_run_goes_on_from_an_earlier_step(opened):
    """Calls keep their keys, so a service answers as before; what was dropped stays in the history, marked."""
    BROKEN.add("d")
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        with pytest.raises(RunFailed):
            await run.result()
        BROKEN.clear()
        await run.retry(at="act#1", by="ana")
        question = await run.wait_for_question()
        assert "It was done before the retry at" in question.question and "(event 1)" in question.question
        assert "the same idempotency key" in question.question
        await hf.answer(question, "run", by="ana")
        assert (await run.result())[:4] == ["a!", "b!", "c?", "d!"]
        assert (did("a"), did("b"), did("c")) == (1, 2, 2)
        assert len({key for what, key in DID if what == "b"}) == 1
        every = await hf.store.journal("r", dropped=True)
        assert [event.seq for event in every] == list(range(len(every)))
        assert any(event.dropped is not None and event.key == "act#1" for event in every)
        # A fork shares what was dropped too, so marked.
        fork = await run.fork(effects="new", id="f")
        assert (await fork.result())[:4] == ["a!", "b!", "c?", "d!"]
        shared = await hf.store.journal("f", dropped=True)
        assert [(event.seq, event.dropped) for event in shared][: len(every) - 1] == [
            (event.seq, event.dropped) for event in every[:-1]
        ]
        BROKEN.add("d")
        again = await run.fork(at="act#2", effects="new", id="g")
        with pytest.raises(RunFailed):
            await again.result()
        BROKEN.clear()
        await again.retry(at=0, effects="new")
        assert (await again.result())[:4] == ["a!", "b!", "c?", "d!"]
        mine = await hf.store.journal("g", dropped=True)
        assert [event.seq for event in mine] == list(range(len(mine)))


async def test_a_retry_from_an_earlier_step_can_make_new_keys_or_refuse(opened):
    async with opened(four) as hf:
        for effects in ("new", "refuse"):
            BROKEN.add("d")
            DID.clear()
            run = await hf.start(four, id=effects)
            with pytest.raises(RunFailed):
                await run.result()
            BROKEN.clear()
            await run.retry(at="act#1", effects=effects)
            if effects == "new":
                assert (await run.result())[:4] == ["a!", "b!", "c?", "d!"]
                assert len({key for what, key in DID if what == "b"}) == 2
                assert len({key for what, key in DID if what == "a"}) == 1
            else:
                with pytest.raises(RunFailed, match="done before the retry"):
                    await run.result()
                assert did("b") == 1


async def test_a_retry_behind_which_children_ended_finds_them(opened):
    """With 'ask' a child keeps its place and its end; with 'new' it is another one."""

    @holdfast.agent
    async def leads() -> list[str]:
        await act("a")
        return [await child("quick"), await act("d")]

    async with opened(leads, child) as hf:
        for effects, times in (("ask", 1), ("new", 2)):
            BROKEN.add("d")
            DID.clear()
            run = await hf.start(leads, id=effects)
            with pytest.raises(RunFailed):
                await run.result()
            BROKEN.clear()
            await run.retry(at="act#0", effects=effects)
            if effects == "ask":
                await hf.answer(await run.wait_for_question(), "run", by="ana")
            assert await run.result() == ["quick ends!", "d!"]
            assert did("quick ends") == times


async def test_what_was_said_before_a_retry_stays_said(opened):
    """Others may have read it: the run enters the conversation again, and adds behind."""

    @holdfast.agent
    async def says() -> list[str]:
        async with holdfast.conversation("user-1", str) as talk:
            await talk.add("first")
            await act("a")
            await talk.add("second")
            await act("d")
            return await talk.messages()

    async with opened(says) as hf:
        BROKEN.add("d")
        run = await hf.start(says, id="r")
        with pytest.raises(RunFailed):
            await run.result()
        BROKEN.clear()
        await run.retry(at="act#0", effects="new")
        assert await run.result() == ["first", "second", "second"]


async def test_a_retry_goes_back_before_a_checkpoint(opened):
    """It goes on from the last one before the point; checkpoints behind it are dropped, and messages that came stay."""

    @holdfast.agent
    async def eras() -> list[str]:
        done = await holdfast.restore([])
        while len(done) < 3:
            done.append(await act(f"e{len(done)}"))
            done = await holdfast.checkpoint(done)
        return [*done, await holdfast.receive("go", str), await act("d")]

    async with opened(eras) as hf:
        BROKEN.add("d")
        run = await hf.start(eras, id="r")
        await run.send("go", "now")
        with pytest.raises(RunFailed):
            await run.result()
        BROKEN.clear()
        await run.retry(at="@1/act#0", effects="new")
        assert await run.result() == ["e0!", "e1!", "e2!", "now", "d!"]
        assert (did("e0"), did("e1"), did("e2")) == (1, 2, 2)
        assert len({key for what, key in DID if what == "e2"}) == 2
        assert (await run.info()).steps == 4
        with pytest.raises(holdfast.RunFinished):
            await run.retry(at=0)


async def test_a_run_that_was_asked_to_stop_is_forked_before_that(opened):
    @holdfast.agent
    async def waits() -> str:
        await act("a")
        await holdfast.receive("first", str)
        await holdfast.receive("go", str)
        return await act("b")

    async with opened(waits) as hf:
        run = await hf.start(waits, id="r")
        await run.wait("waiting")
        await run.send("first", "x")
        async for event in run.events():
            if event.kind == "message.received":
                break
        await run.cancel(grace=0)
        await run.wait("cancelled")
        with pytest.raises(BadArguments, match="asked to stop before"):
            await run.fork()
        stopped = next(event.seq for event in await history(hf, "r") if event.kind == "run.cancelling")
        fork = await run.fork(at=stopped)
        receipt = await fork.send("go", "on")
        assert await fork.result() == "b!"
        assert await receipt.seen_at() > stopped  # and not where the original saw its first message


async def test_a_fork_that_failed_goes_back_into_what_it_shares(opened):
    async with opened(four) as hf:
        run = await hf.start(four, id="r")
        await run.result()
        BROKEN.add("d")
        fork = await run.fork(at=3, effects="new", id="f")
        with pytest.raises(RunFailed):
            await fork.result()
        BROKEN.clear()
        await fork.retry(at="act#0", effects="new")
        assert (await fork.result())[:4] == ["a!", "b!", "c?", "d!"]
        assert (did("a"), did("b")) == (2, 2)
        assert [event.seq for event in await hf.store.journal("f", dropped=True)] == list(
            range((await fork._row()).next_seq)
        )
        assert (await hf.store.facts())["integrity"] == "ok"
        assert (await run.result())[:4] == ["a!", "b!", "c?", "d!"]


# Crashes


async def test_a_crash_anywhere_in_a_fork_changes_nothing():
    """While it is made, replayed, asks and goes on."""
    async for hf in holdfast.testing.crash_everywhere(agents=[four]):
        DID.clear()
        run = await hf.start(four, id="r")
        await run.result()
        fork = await run.fork(at="act#1", id="f")
        await hf.answer(await fork.wait_for_question(), {"result": "kept"}, by="ana")
        await hf.answer(await fork.wait_for_question(), "run", by="ana")
        assert (await fork.result())[:4] == ["a!", "kept", "c?", "d!"]
        assert len({key for what, key in DID if what == "d"}) == 2


async def test_a_body_in_flight_at_the_point_begins_anew():
    """It runs in both, under two keys; in the fork it is asked for first if it was begun with an intent."""
    reached, go = asyncio.Event(), asyncio.Event()

    @holdfast.step(in_doubt="ask")
    async def pay() -> str:
        DID.append(("pay", holdfast.idempotency_key()))
        reached.set()
        await go.wait()
        return "paid"

    @holdfast.agent
    async def pays() -> str:
        return await pay()

    async with holdfast.testing.open(agents=[pays]) as hf:
        run = await hf.start(pays, id="r")
        await reached.wait()
        fork = await run.fork(id="f")
        question = await fork.wait_for_question()
        assert "begun by run 'r'" in question.question
        go.set()
        assert await run.result() == "paid"
        await hf.answer(question, {"result": "not again"}, by="ana")
        assert await fork.result() == "not again"
        assert did("pay") == 1


# People


async def test_a_question_that_is_not_for_the_starter_is_not_decided_by_a_fork(opened):
    """Who makes a fork starts it. What the fork asks is for nobody who started it or a run that it comes from."""

    @holdfast.agent
    async def pays() -> bool:
        return bool(await holdfast.approve("pay?", not_by="starter"))

    async with opened(pays) as hf:
        run = await hf.acting_as("ana").start(pays, id="r")
        question = await run.wait_for_question()
        await hf.approve(question, by="bob")
        assert await run.result() is True
        for by in ("ana", "bob", "cleo"):
            with pytest.raises(NotAllowed, match=r"ana started the run|starts the fork.*asked anew"):
                await run.fork(replace={":approve#0": True}, by=by)
        fork = await run.fork(at=":approve#0", by="bob", id="f")
        asked = await fork.wait_for_question()
        assert set(asked.not_by) == {"ana", "bob"}
        for by in ("ana", "bob"):
            with pytest.raises(NotAllowed):
                await hf.approve(asked, by=by)
        await run.delete()
        deep = await fork.fork(by="cleo", id="g")
        assert set((await deep.wait_for_question()).not_by) == {"ana", "bob", "cleo"}
        await hf.approve(asked, by="cleo")
        assert await fork.result() is True


async def test_children_of_a_fork_ask_after_the_originals_family_is_deleted(opened):
    """What the deleted child did is known: a person sees it, and can take its result."""

    @holdfast.agent
    async def leads() -> list[str]:
        return [await child("quick"), await act("d")]

    async with opened(leads, child) as hf:
        run = await hf.start(leads, id="r")
        first = await run.result()
        fork = await run.fork(at=0, id="f")
        assert await run.delete() == 2
        for _ in range(3):
            question = await fork.wait_for_question()
            assert "It was done by run 'r" in question.question
            await hf.answer(question, "use", by="ana")
        assert await fork.result() == first
        assert (did("quick begins"), did("quick ends"), did("d")) == (1, 1, 1)
        assert await fork.delete() == 2
        assert (await hf.store.facts())["events"] == 0


async def test_a_paused_run_is_forked_and_the_fork_goes_on(opened):
    """The pause was the other run's: with those below it, and with what it was told before."""

    @holdfast.agent
    async def leads() -> list[str]:
        await act("a")
        slow = await child("slow")
        return [slow, await holdfast.receive("more", str)]

    async with opened(leads, child) as hf:
        run = await hf.start(leads, id="r")
        await run.wait("waiting", waits_for="child")
        (below,) = await hf.runs(parent="r")
        await hf.get(below.id).wait("waiting", waits_for="message")
        await run.pause(reason="lunch", by="ana")
        await run.wait("paused")
        fork = await run.fork(id="f", effects="new")
        await fork.wait("waiting", waits_for="child")
        (other,) = await hf.runs(parent="f")
        await hf.get(other.id).wait("waiting", waits_for="message")
        await hf.get(other.id).send("go", "on")
        await fork.send("more", "m")
        assert await fork.result() == ["slow ends!", "m"]
        assert (await run.info()).status == "paused"
        await run.resume(by="ana")
        await hf.get(below.id).send("go", "on")
        await run.send("more", "n")
        assert await run.result() == ["slow ends!", "n"]
