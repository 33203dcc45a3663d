"""Whole inputs of steps: which are kept, that they come back after crashes and waits, and that they cost what is new."""

import asyncio
import json
import random
import string

import pytest
from tests.agents.runs import nothing_in_memory

import holdfast
import holdfast.testing
from holdfast import BadArguments
from holdfast.testing import crash_everywhere
from holdfast.values.parts import digest_of

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_each_call_is_given_all_of_it_and_is_told_by_what_is_new",
    "test_parts_go_with_the_last_run_that_names_them",
    "test_runs_that_end_and_are_deleted_at_once_lose_no_parts",
}


def message(turn, length=2048):
    return "".join(random.Random(turn).choices(string.ascii_letters + string.digits + " ", k=length))


@holdfast.step
async def plain(messages: list[str]) -> str:
    return message(len(messages))


@holdfast.step(inputs="full")
async def reply(messages: list[str]) -> str:
    return message(len(messages))


@holdfast.step(inputs="digest")
async def secret(messages: list[str]) -> str:
    return message(len(messages))


@holdfast.agent
async def says_nothing() -> list[str]:
    return [await plain(["a"]), await reply(["b"]), await secret(["c"])]


@holdfast.agent(inputs="full")
async def says_full() -> list[str]:
    return [await plain(["a"]), await reply(["b"]), await secret(["c"])]


@holdfast.agent(inputs="digest")
async def says_digest() -> list[str]:
    return [await plain(["a"]), await reply(["b"]), await secret(["c"])]


async def arguments(run):
    return [await step.arguments() async for step in run.steps()]


A, B = {"messages": ["a"]}, {"messages": ["b"]}


@pytest.mark.parametrize(
    ("agent", "store", "kept"),
    [
        (says_nothing, None, [None, B, None]),
        (says_nothing, "full", [A, B, None]),
        (says_nothing, "digest", [None, B, None]),
        (says_full, "digest", [A, B, None]),
        (says_digest, "full", [None, B, None]),
    ],
)
async def test_the_step_says_it_then_its_agent_then_the_store(agent, store, kept):
    settings = holdfast.Settings(inputs=store)
    async with holdfast.testing.open(agents=[agent], settings=settings) as hf:
        run = await hf.start(agent)
        await run.result()
        assert await arguments(run) == kept
        assert [step.kept async for step in run.steps()] == [each is not None for each in kept]


async def test_a_store_says_it_in_its_url(store_url):
    url = f"{store_url}{'&' if '?' in store_url else '?'}inputs=full"
    async with holdfast.open(url, agents=[says_nothing]) as hf:
        run = await hf.start(says_nothing)
        await run.result(timeout=20)
        assert await arguments(run) == [A, B, None]
    async with holdfast.open(store_url, agents=[says_nothing], inputs="full") as hf:
        run = await hf.start(says_nothing)
        await run.result(timeout=20)
        assert await arguments(run) == [A, B, None]


@pytest.mark.parametrize("wrong", ["all", True, 3])
def test_other_ways_to_keep_inputs_are_refused(wrong):
    told = "use 'full' to keep the whole arguments of steps, or 'digest'"
    with pytest.raises(BadArguments, match=told):
        holdfast.step(inputs=wrong)(message)
    with pytest.raises(BadArguments, match=told):
        holdfast.Settings(inputs=wrong)
    with pytest.raises(BadArguments, match=told):
        holdfast.open("sqlite:x.db", inputs=wrong)
    with pytest.raises(BadArguments, match=told):
        holdfast.open("sqlite:x.db?inputs=all")._make_store()


@holdfast.agent
async def converse(turns: int) -> int:
    messages: list[str] = []
    while len(messages) < turns:
        messages.append(await reply(messages))
    return len(messages)


@holdfast.agent
async def chat(turns: int) -> int:
    """As people talk: the run leaves memory before each turn."""
    messages: list[str] = []
    while len(messages) < 2 * turns:
        messages.append(await holdfast.receive("say", str))
        messages.append(await reply(messages))
    return len(messages)


async def told_bytes(hf, run):
    events = [event async for event in run.events(follow=False)]
    return sum(len(str(event.data["inputs"])) for event in events if "inputs" in event.data)


async def test_each_call_is_given_all_of_it_and_is_told_by_what_is_new(store_url):
    async with holdfast.open(store_url, agents=[converse]) as hf:
        run = await hf.start(converse, 40)
        await run.result(timeout=30)
        found = [step async for step in run.steps()]
        assert await found[39].arguments() == {"messages": [message(turn) for turn in range(39)]}
        assert await told_bytes(hf, run) < 40 * 100
        assert await hf.store.parts_of([run.id]) == set()


async def size_of(hf):
    """The bytes of all rows of the store that a run has written."""
    events = await hf.store.journal((await hf.runs())[0].id)
    texts = [text for event in events for text in (event.key, event.value, json.dumps(event.data)) if text]
    parts = await hf.store.parts(await hf.store.parts_of([run.id for run in await hf.runs()]))
    return sum(map(len, texts)) + sum(map(len, parts.values())) + 100 * (len(events) + len(parts))


@pytest.mark.slow
async def test_a_conversation_costs_at_most_1_6_times_its_payload(store_url):
    """Of 60 turns of 2 KiB, each of which passes all of it: rows of 100 bytes beside their texts, results included."""
    async with holdfast.open(store_url, agents=[converse]) as hf:
        await hf.run(converse, 60)
        assert await size_of(hf) < 1.6 * 60 * 2048


async def test_a_run_that_leaves_memory_before_each_turn_tells_no_more(store_url):
    settings = holdfast.Settings(park_grace_s=0.0)
    async with holdfast.open(store_url, agents=[chat], settings=settings) as hf:
        run = await hf.start(chat, 12)
        for turn in range(12):
            await run.wait("waiting", waits_for="message", timeout=20)
            await nothing_in_memory(hf)
            await run.send("say", message(f"user {turn}"))
        await run.result(timeout=30)
        (*_, last) = [step async for step in run.steps()]
        given = (await last.arguments())["messages"]
        assert [len(each) for each in given] == [2048] * 23
        assert given[::2] == [message(f"user {turn}") for turn in range(12)]
        assert await told_bytes(hf, run) < 12 * 150  # what people said is in the journal too


@holdfast.step(inputs="full", retry=holdfast.Retry(3, first=0))
async def fails_first(words: list[str]) -> int:
    if holdfast.this_step().attempt < 3:
        raise ValueError("not yet")
    return len(words)


async def not_done(words: list[str]) -> holdfast.NotDone:
    return holdfast.NOT_DONE


@holdfast.step(inputs="full", in_doubt=not_done)
async def starts(words: list[str]) -> int:
    return len(words)


@holdfast.step(inputs="full", transaction=True)
async def commits(words: list[str]) -> int:
    return len(words)


@holdfast.step(inputs="full")
def in_thread(words: list[str]) -> int:
    return len(words)


LONG = [message(n, 400) for n in range(6)]


@holdfast.agent
async def all_kinds() -> int:
    counts = [await each(LONG[: n + 2]) for n, each in enumerate((fails_first, starts, commits, in_thread))]
    return sum(counts)


async def test_the_first_event_of_a_call_has_its_input_and_no_other():
    async with holdfast.testing.open(agents=[all_kinds]) as hf:
        run = await hf.start(all_kinds)
        assert await run.result() == 2 + 3 + 4 + 5
        assert await arguments(run) == [{"words": LONG[: n + 2]} for n in range(4)]
        told = [event.kind async for event in run.events(follow=False) if "inputs" in event.data]
        assert told == ["step.retrying", "step.started", "step.completed", "step.completed"]


@pytest.mark.slow
async def test_inputs_come_back_after_a_crash_at_every_point():
    """Before and after each commit: the run ends as ever, and each call has its input once, as it was."""
    async for hf in crash_everywhere(agents=[all_kinds]):
        run = await hf.start(all_kinds, id="r")
        await run.result()
        async for step in run.steps():
            assert await step.arguments() == {"words": LONG[: await step.result()]}


async def test_parts_go_with_the_last_run_that_names_them(store_url):
    """On both stores, by deletion and by pruning; what another run names stays readable."""
    async with holdfast.open(store_url, agents=[all_kinds]) as hf:
        runs = [await hf.start(all_kinds, id=f"r{n}") for n in range(3)]
        for run in runs:
            await run.result(timeout=30)
        names = await hf.store.parts_of(["r0"])
        assert len(names) == 5
        assert await hf.store.parts_of(["r1"]) == names
        await runs[0].delete()
        assert await arguments(runs[1]) == [{"words": LONG[: n + 2]} for n in range(4)]
        await runs[1].delete()
        await runs[2].delete()
        assert await hf.store.parts(names) == {}


async def test_runs_that_end_and_are_deleted_at_once_lose_no_parts(store_url):
    """Many runs name the same parts while others that name them are deleted: whoever names one finds it."""
    async with holdfast.open(store_url, agents=[all_kinds]) as hf:

        async def one(n):
            run = await hf.start(all_kinds, id=f"r{n}")
            await run.result(timeout=60)
            found = await arguments(run)
            if n % 3:
                await run.delete()
            return found

        found = await asyncio.gather(*[one(n) for n in range(24)])
        assert all(each == [{"words": LONG[: n + 2]} for n in range(4)] for each in found)
        for n in range(0, 24, 3):
            assert await arguments(hf.get(f"r{n}")) == found[0]
            await hf.get(f"r{n}").delete()
        assert await hf.store.parts_of([f"r{n}" for n in range(24)]) == set()


@holdfast.agent
async def forgets(turns: int) -> int:
    """With a checkpoint in the middle: what came before it is not in memory any more when the run resumes."""
    messages = await holdfast.restore(list[str]())
    while len(messages) < turns:
        messages.append(await reply(messages))
        if len(messages) == turns // 2:
            await holdfast.checkpoint(messages)
            await holdfast.receive("go", str)
    return len(messages)


async def test_a_checkpoint_between_changes_nothing_that_is_read():
    async with holdfast.testing.open(agents=[forgets]) as hf:
        run = await hf.start(forgets, 20)
        await run.wait("waiting", waits_for="message")
        await hf.crash()
        await run.send("go", "on")
        await run.result()
        found = [step async for step in run.steps() if step.name == "reply"]
        for turn, step in enumerate(found):
            assert await step.arguments() == {"messages": [message(each) for each in range(turn)]}


@holdfast.step(inputs="full")
async def takes_much(text: str) -> int:
    return len(text)


@holdfast.agent
async def large(size: int) -> int:
    return await takes_much("x" * size)


async def test_large_inputs_are_kept_up_to_the_limit_of_a_value():
    """A step that may be called with it may be called all the same: what is too large to be kept is not."""
    settings = holdfast.Settings(value_limit_bytes=200_000)
    async with holdfast.testing.open(agents=[large], settings=settings) as hf:
        run = await hf.start(large, 150_000)
        assert await run.result() == 150_000
        assert (await arguments(run))[0] == {"text": "x" * 150_000}


@holdfast.step(inputs="full", effects=False)
async def answers(messages: list[str], given: str) -> str:
    return message(f"{len(messages)} {given}")


@holdfast.agent
async def two_voices(turns: int) -> int:
    messages: list[str] = []
    while len(messages) < turns:
        messages.append(await answers(messages, message("the same for all", 500)))
    return len(messages)


async def test_a_fork_has_the_inputs_that_it_shares_whatever_becomes_of_the_original(store_url):
    """Its own calls are told by calls that it shares, and both are read after the original was deleted."""
    async with holdfast.open(store_url, agents=[two_voices]) as hf:
        run = await hf.start(two_voices, 8)
        await run.result(timeout=20)
        whole = [(step.key, step.worker, await step.arguments()) async for step in run.steps()]
        fork = await run.fork(at="answers#5", effects="new")
        await fork.result(timeout=20)
        assert [(step.key, step.worker, await step.arguments()) async for step in fork.steps()] == whole
        assert [step.key async for step in fork.steps(after=3, limit=2)] == ["answers#4", "answers#5"]
        assert await told_bytes(hf, fork) < 10 * 180
        await run.delete()
        assert [(step.key, step.worker, await step.arguments()) async for step in fork.steps()] == whole
        await fork.delete()
        assert await hf.store.parts([digest_of(f'"{message("the same for all", 500)}"')]) == {}
