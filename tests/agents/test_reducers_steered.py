"""A reducer is a run like others: it is paused, cancelled, retried, forked, copied and rehearsed, and nothing of it is lost."""

import asyncio
from dataclasses import dataclass, replace

import pytest

import holdfast
import holdfast.testing
from holdfast import After, Ask, Command, Do, Done, Outcome, Spawn


@dataclass(frozen=True)
class Case:
    count: int = 0
    seen: tuple[str, ...] = ()
    padding: tuple[str, ...] = tuple(f"a line that never changes, number {n}" for n in range(80))


@dataclass(frozen=True)
class Opened:
    name: str


@dataclass(frozen=True)
class Late:
    name: str


@dataclass(frozen=True)
class Closed:
    pass


@holdfast.step
async def look(name: str) -> str:
    if name == "bad":
        raise ValueError("nothing there")
    return name.upper()


@holdfast.agent
async def dig(name: str) -> str:
    await holdfast.sleep("1m")
    if name == "bad":
        raise LookupError("no ground")
    return f"dug {name}"


@holdfast.reducer(Case, every=4)
def case(state: Case, event: Opened | Late | Closed | Outcome) -> Case | tuple[Case, list[Command]]:
    match event:
        case Opened(name):
            commands: list[Command] = [Do(look, name)]
            if name.startswith("dig"):
                commands.append(Spawn(dig, name.removeprefix("dig ")))
            if name.startswith("late"):
                commands.append(After("2m", Late(name)))
            if name.startswith("ask"):
                commands.append(Ask("Go on?", str, expires="1h", tag=name))
            return replace(state, count=state.count + 1, seen=(*state.seen, name)), commands
        case Late(name):
            return replace(state, seen=(*state.seen, f"{name}!"))
        case Outcome(tag, value, error):
            return replace(state, seen=(*state.seen, f"{tag}={value if error is None else error}"))
        case Closed():
            return state, [Done()]


async def opened(run, *names):
    for name in names:
        await run.send(Opened(name), key=name)


async def until(run, count):
    """Until so many things were seen."""
    async with asyncio.timeout(20):
        while len((await (await run.state()).value())["seen"]) < count:
            await asyncio.sleep(0.002)


NAMES = [f"n{n}" for n in range(12)]
SEEN = sorted([*NAMES, *(f"look={name.upper()}" for name in NAMES)])


async def test_what_comes_to_a_paused_one_is_folded_when_it_goes_on():
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        await opened(run, *NAMES[:5])
        await until(run, 10)
        await run.pause()
        await run.wait("paused")
        await opened(run, *NAMES[5:], *NAMES[:3])
        await run.resume()
        await until(run, 24)
        await run.send(Closed())
        end = await run.result(timeout=10)
        assert (end.count, sorted(end.seen)) == (12, SEEN)


async def test_a_cancelled_one_ends_with_its_children():
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        await opened(run, "dig a", "late b", "ask c")
        await until(run, 6)
        await run.cancel()
        with pytest.raises(holdfast.RunCancelled):
            await run.result(timeout=10)
        assert {info.status for info in await hf.runs()} == {"cancelled"}
        assert await run.approvals() == []


async def test_failed_commands_and_questions_without_an_answer_are_events():
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        await opened(run, "bad", "dig bad", "ask early")
        question = await run.wait_for_question()
        await hf.answer(question, "yes", by="ana")
        await opened(run, "ask never")
        await until(run, 9)
        await hf.advance("2h")
        await until(run, 11)
        await run.send(Closed())
        end = await run.result(timeout=10)
        assert next(each for each in end.seen if "=" in each and "look" not in each) == "ask early=yes"
        errors = [each for each in end.seen if "Error" in each or "Expired" in each]
        assert len(errors) == 3, end.seen
        assert "look=ValueError: nothing there" in errors


@pytest.mark.parametrize("at", ["checkpoint", None, 9])
async def test_a_fork_goes_on_by_itself_from_any_point(at):
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        for name in NAMES:
            await opened(run, name)
            await run.wait("waiting")
        await until(run, 24)
        fork = await run.fork(at=at, id="f", effects="new")
        before = (await (await fork.state()).value())["count"]
        await fork.send(Opened("of the fork"))
        await fork.send(Closed())
        await run.send(Closed())
        assert sorted((await run.result(timeout=10)).seen) == SEEN
        end = await fork.result(timeout=10)
        assert end.count == before + 1
        assert end.seen[: len(end.seen) - 2] == (await run.result()).seen[: len(end.seen) - 2]
        assert "of the fork" in end.seen


async def test_a_copy_in_another_store_has_the_state_that_is_told_by_changes(tmp_path):
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        for name in NAMES:
            await opened(run, name)
            await run.wait("waiting")
        await until(run, 24)
        stored = [event async for event in run.events(follow=False) if event.kind == "checkpoint"]
        assert any(event.data.get("chain") for event in stored)
        keys = holdfast.Keys(tmp_path / "keys")
        keys.new("ana")
        await run.export(tmp_path / "bundle", keys=keys)
        async with holdfast.testing.open(agents=[case]) as there:
            told = await there.import_run(tmp_path / "bundle", keys=keys, id="c", agents=[case])
            assert all(replayed.fits for replayed in told.replays)
            copy = there.get("c")
            await opened(copy, "of the copy")
            await until(copy, 26)
            await copy.send(Closed())
            end = await copy.result(timeout=10)
        assert end.count == 13
        assert sorted(end.seen) == sorted([*SEEN, "of the copy", "look=OF THE COPY"])


async def test_a_rehearsal_of_one_comes_to_the_same():
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        for count, name in enumerate(NAMES, 1):
            await opened(run, name)
            await until(run, 2 * count)
            await hf.advance("1s")
        await run.send(Closed())
        await run.result(timeout=10)
        (rehearsed,) = await holdfast.testing.rehearse(hf, ["r"], [case])
        assert rehearsed.stopped == ""
        assert rehearsed.difference.same, rehearsed.difference.parted
        replayed = await hf.replay("r", [case])
        assert replayed.fits, replayed.reason
        assert (await hf.diff("r", "r")).same


async def test_a_backlog_is_folded_in_order_and_stored_about_once():
    async with holdfast.testing.open(agents=[case]) as hf:
        run = await hf.start(case, id="r")
        await run.pause()
        await run.wait("paused")
        await asyncio.gather(*[run.send(Late(str(n))) for n in range(1500)])
        await run.resume()
        await run.send(Closed())
        end = await run.result(timeout=20)
        assert len(end.seen) == 1500
        stored = [event.data async for event in run.events(follow=False) if event.kind == "checkpoint"]
        assert len(stored) > 10
        assert any(data["waiting"] for data in stored)  # by where they stand
        assert sum(len(data["unread"]) + len(data["choices"]["reducer"]["line"]) for data in stored) < 500
