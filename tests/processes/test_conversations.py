"""Conversations across processes that are killed: nothing said is lost, doubled or mixed up."""

import asyncio
import random

import pytest
from tests.processes.conversation_agents import TURNS, chat, listen, serve

import holdfast
import holdfast.testing

RUNS = 15


def check(transcript, results):
    """Each run's messages stand together, in their order and once, and each run heard what stands before its last one."""
    by_run = {}
    for place, text in enumerate(transcript):
        by_run.setdefault(text.split()[0], []).append(place)
    assert sorted(by_run) == sorted(results)
    for run, places in by_run.items():
        assert places == list(range(places[0], places[0] + TURNS)), transcript
        assert [transcript[place] for place in places] == [f"{run} {n}" for n in range(TURNS)]
        assert results[run] == transcript[: places[-1] + 1]


@pytest.mark.by_day("sqlite")
def test_killed_between_each_two_actions(workers):
    """Whoever has the conversation keeps it when its process is killed, who waits keeps its place, and both go on right."""
    workers.start()
    for run, what in (("a", "message"), ("b", "conversation")):
        workers.ask(lambda hf, run=run: hf.start(listen, "user-42", id=run))
        workers.ask(lambda hf, run=run: hf.get(run).wait("waiting", timeout=40))
        assert workers.ask(lambda hf, run=run: hf.get(run).info()).waits_for == what
        workers.restart()
    for run in "ab":
        workers.ask(lambda hf, run=run: hf.get(run).send("answer", f"{run} answers"))
        workers.restart()
    results = {run: workers.ask(lambda hf, run=run: hf.get(run).result()) for run in "ab"}
    said = ["a asks", "a answers after 0", "b asks", "b answers after 2"]
    assert [each.value for each in workers.ask(lambda hf: hf.conversation("user-42").messages())] == said
    assert results == {"a": "; ".join(said[:2]), "b": "; ".join(said)}


@pytest.mark.by_day("postgres")
def test_a_retried_run_waits_for_its_turn_over_kills(workers, tmp_path):
    """A run that was retried inside a conversation runs nothing before its turn, whichever worker dies, and one body then."""
    workers.start()
    broken, ran = tmp_path / "broken", tmp_path / "ran"
    broken.touch()
    workers.ask(lambda hf: hf.start(serve, "user-42", str(tmp_path), id="a"))
    workers.ask(lambda hf: hf.get("a").wait("failed", timeout=40))
    broken.unlink()
    workers.ask(lambda hf: hf.start(listen, "user-42", id="b"))
    workers.ask(lambda hf: hf.get("b").wait("waiting", timeout=40))
    workers.ask(lambda hf: hf.get("a").retry())
    for _ in range(2):
        workers.ask(lambda hf: hf.get("a").wait("waiting", timeout=40))
        assert workers.ask(lambda hf: hf.get("a").info()).waits_for == "conversation"
        workers.restart()
    assert not ran.exists()
    workers.ask(lambda hf: hf.get("b").send("answer", "b answers"))
    workers.restart()
    said = ["a asks", "b asks", "b answers after 1", "a did"]
    assert workers.ask(lambda hf: hf.get("a").result(timeout=40)) == said
    assert ran.read_text() == "a\n"


@pytest.mark.by_day("postgres")
def test_killed_at_random(workers):
    """Fifteen runs on three conversations, two workers, one of them killed after every few events: each turn is whole."""
    choice = random.Random(5)
    names = ["x", "y", "z"]

    async def begin(hf):
        for number in range(RUNS):
            await hf.start(chat, names[number % 3], f"r{number}", id=f"r{number}")

    async def more(hf):
        """A few events further on, or the end."""
        left = choice.randint(15, 60)
        async for event in hf.events(after=seen[0]):
            seen[0], left = event.position, left - 1
            if event.kind == "run.completed":
                ended.append(event.run)
            if left == 0 or len(ended) == RUNS:
                return

    seen, ended = [0], []
    workers.ask(begin)
    workers.start()
    workers.start()
    while len(ended) < RUNS:
        workers.ask(more)
        if len(ended) < RUNS:
            workers.restart(choice.randrange(2))

    async def outcome(hf):
        told = {run: await hf.get(run).result() for run in ended}
        return told, {name: [each.value for each in await hf.conversation(name).messages()] for name in names}

    results, transcripts = workers.ask(outcome)
    assert len(results) == RUNS
    for number, name in enumerate(names):
        check(transcripts[name], {f"r{n}": results[f"r{n}"] for n in range(number, RUNS, 3)})


@pytest.mark.by_day("parked")
@pytest.mark.parametrize("park", [True, False], ids=["parked", "kept"])
async def test_a_crash_at_every_commit(park):
    """Two runs on one conversation, a crash before and after each commit: both turns are whole, in either order."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[chat], park=park):
        runs = [await hf.start(chat, "c", text, id=text) for text in "ab"]
        results = {run.id: await run.result() for run in runs}
        check([each.value for each in await hf.conversation("c").messages()], results)
        passes += 1
    assert passes > 20


@holdfast.agent
async def wander(seed: int, names: list[str]) -> tuple[list[str], list[str]]:
    """Turns in random conversations, patient or not: what it meant to say, and what it knows that it has said."""
    choice, meant, done = random.Random(seed), [], []
    for turn in range(3):
        name, patience = choice.choice(names), choice.choice(["1s", "1m", "1d"])
        words = [f"{seed}.{turn}.{n}" for n in range(choice.randint(1, 3))]
        busy = choice.choice(["wait", "wait", "refuse"])
        try:
            async with holdfast.timeout(patience), holdfast.conversation(name, str, busy=busy) as talk:
                before = len(talk)
                for word in words:
                    meant.append(f"{name} {word}")
                    await talk.add(word)  # its patience may end while this is written
                    done.append(f"{name} {word}")
                    await holdfast.sleep(choice.choice([0.001, 1, 20]))
                assert await talk.messages(after=before) == words
        except (TimeoutError, holdfast.ConversationBusy):
            continue
    return meant, done


flaky = random.Random(1)


@holdfast.step
async def stumble(most: float) -> None:
    if flaky.random() < most:
        raise holdfast.Permanent("stumbled")


@holdfast.agent
async def stumbles(seed: int, name: str) -> list[str]:
    """A turn of which each step may fail the run: what it heard last."""
    async with holdfast.conversation(name, str) as talk:
        alone[name] = alone.get(name, 0)
        for n in range(3):
            await talk.add(f"{seed}.{n}")
            await stumble(0.3)
            await busy(name)
        return await talk.messages()


alone: dict[str, int] = {}


@holdfast.step
async def busy(name: str) -> None:
    """Sees whether another body of the same conversation runs."""
    alone[name] += 1
    assert alone[name] == 1, "two runs had their turn at once"
    for _ in range(5):
        await asyncio.sleep(0)
    alone[name] -= 1


@pytest.mark.parametrize("seed", range(6))
async def test_random_retries(seed):
    """Runs that fail in their turn and are retried at once: no two bodies of one conversation run at a time, and all end."""
    park = bool(seed % 2)
    alone.clear()
    flaky.seed(seed)
    async with holdfast.testing.open(agents=[stumbles], park=park) as hf:
        runs = [await hf.start(stumbles, n, "pq"[n % 2], id=f"s{n}") for n in range(6)]

        async def persist(run):
            while True:
                try:
                    return await run.result()
                except holdfast.RunFailed as error:
                    if "stumbled" not in str(error):
                        raise
                    await run.retry()

        heard = await asyncio.wait_for(asyncio.gather(*map(persist, runs)), 40)
        for number, told in enumerate(heard):
            name = "pq"[number % 2]
            messages = [each.value for each in await hf.conversation(name, str).messages()]
            assert told == messages[: len(told)]
            assert [word for word in messages if word.startswith(f"{number}.")] == [f"{number}.{n}" for n in range(3)]
            info = await hf.conversation(name).info()
            assert (info.run, info.waiting) == (None, 0)


@pytest.mark.parametrize("seed", range(8))
async def test_random_schedules(seed):
    """Runs that wait, lose patience, are refused and are interrupted at random: what they say stands once and in turns."""
    choice = random.Random(seed)
    park = bool(seed % 2)
    async with holdfast.testing.open(agents=[wander], park=park) as hf:
        runs = [await hf.start(wander, seed * 100 + n, ["p", "q"], id=f"w{n}") for n in range(6)]

        async def crashes():
            async for _ in hf.events():
                # After two crashes a run is carried alone, and while it is kept in memory nobody would go on.
                if choice.random() < 0.03 and (park or not hf.crashes):
                    await hf.crash()

        crashing = asyncio.create_task(crashes())
        told = [await run.result() for run in runs]
        crashing.cancel()
        await asyncio.gather(crashing, return_exceptions=True)
        found = []
        for name in ("p", "q"):
            messages = await hf.conversation(name, str).messages()
            found += [f"{name} {message.value}" for message in messages]
            turns = [message.value.rpartition(".")[0] for message in messages]
            assert [turn for n, turn in enumerate(turns) if turn != (turns[n - 1] if n else "")] == list(
                dict.fromkeys(turns)
            )
            info = await hf.conversation(name).info()
            assert info is None or (info.run, info.waiting) == (None, 0)
        assert len(set(found)) == len(found)
        meant, done = ({word for each in told for word in each[which]} for which in (0, 1))
        assert done <= set(found) <= meant
