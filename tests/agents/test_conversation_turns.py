"""Retried runs and their turns: a run that was retried inside a conversation does nothing until it has that again."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import holdfast
import holdfast.testing
from holdfast import ConversationBusy

broken: set[str] = set()
ran: list[str] = []


@holdfast.step
async def work(what: str) -> str:
    """Runs a body that can be seen."""
    if what in broken:
        raise RuntimeError(f"{what} is broken")
    ran.append(what)
    return f"{what} done"


@holdfast.agent
async def reply(text: str, patience: str = "30d") -> list[str]:
    async with holdfast.timeout(patience), holdfast.conversation("c", str) as talk:
        await talk.add(f"{text}?")
        await talk.add(await work(text))
        return await talk.messages()


@holdfast.agent
async def hold(conversation: str) -> None:
    """Have a conversation until told otherwise."""
    async with holdfast.conversation(conversation, str) as talk:
        await talk.add("mine")
        await holdfast.receive("go", str)
        await talk.add(await work("other"))


@pytest.fixture(autouse=True)
def _anew():
    broken.clear()
    ran.clear()


@asynccontextmanager
async def opened(park):
    async with holdfast.testing.open(agents=AGENTS, park=park) as hf:
        yield hf


parked_and_kept = pytest.mark.parametrize("park", [True, False], ids=["parked", "kept"])


def leaves_memory(hf):
    return hf._settings.park_grace_s == 0


async def fails(run):
    with pytest.raises(holdfast.RunFailed) as error:
        await run.result(timeout=5)
    return error.value


async def stands_in_line(hf, run, conversation="c", count=1):
    """Wait until so many runs stand in line, this one among them."""
    async with asyncio.timeout(5):
        while (await hf.conversation(conversation).info()).waiting < count:
            await asyncio.sleep(0.01)
    if leaves_memory(hf):
        async with asyncio.timeout(5):
            while (await run.info()).waits_for != "conversation":
                await asyncio.sleep(0.01)


async def failed_before(hf, agent, *args, id="a", other="c"):
    """A run that failed inside the conversation, and another that has that since."""
    broken.add(id)
    run = await hf.start(agent, *args, id=id)
    await fails(run)
    broken.clear()
    ran.clear()
    holder = await hf.start(hold, other, id="holder")
    async with asyncio.timeout(5):
        while (await said(hf, other))[-1:] != ["mine"]:
            await asyncio.sleep(0.01)
    return run, holder


async def said(hf, conversation="c"):
    return [message.value for message in await hf.conversation(conversation).messages()]


@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
@parked_and_kept
async def test_nothing_begins_before_the_turn(park, crash):
    """A retried run runs no body and says nothing while another has the conversation; then it sees what that one said."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, reply, "a")
        await run.retry()
        await stands_in_line(hf, run)
        if crash:
            await hf.crash()
            await stands_in_line(hf, run)
        assert (ran, await said(hf)) == ([], ["a?", "mine"])
        await holder.send("go", "on")
        assert await run.result(timeout=5) == ["a?", "mine", "other done", "a done"]
        assert ran == ["other", "a"]
        info = await hf.conversation("c").info()
        assert (info.run, info.waiting) == (None, 0)


@parked_and_kept
async def test_cancelled_while_it_waits(park):
    """A run that is cancelled while it waits for its turn goes out of the line, ends and runs nothing."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, reply, "a")
        await run.retry()
        await stands_in_line(hf, run)
        await run.cancel()
        await run.wait("cancelled", timeout=5)
        info = await hf.conversation("c").info()
        assert (info.run, info.waiting) == ("holder", 0)
        await holder.send("go", "on")
        await holder.result(timeout=5)
        assert (ran, await said(hf)) == (["other"], ["a?", "mine", "other done"])


@parked_and_kept
async def test_paused_while_it_waits(park):
    """A run that is paused while it waits keeps its place in the line, and runs nothing until it is resumed."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, reply, "a")
        await run.retry()
        await stands_in_line(hf, run)
        await run.pause()
        await run.wait("paused", timeout=5)
        await holder.send("go", "on")
        await holder.result(timeout=5)
        assert ran == ["other"]
        assert (await hf.conversation("c").info()).run == "a"
        await run.resume()
        assert (await run.result(timeout=5))[-1] == "a done"


@parked_and_kept
async def test_a_deadline_around_the_block_holds_while_it_waits(park):
    """A timeout that was set before goes on while the run waits for its turn: it ends the wait, and leaves the line."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, reply, "a", "1h")
        await run.retry()
        await stands_in_line(hf, run)
        await hf.advance("2h")
        assert "TimeoutError" in str(await fails(run))
        assert (await hf.conversation("c").info()).waiting == 0
        await holder.send("go", "on")
        await holder.result(timeout=5)
        assert ran == ["other"]


@parked_and_kept
async def test_two_retried_runs_take_turns(park):
    """Runs that are retried at once each have a turn, in the order in which they asked."""
    async with opened(park) as hf:
        broken.add("b")
        second = await hf.start(reply, "b", id="b")
        await fails(second)
        first, holder = await failed_before(hf, reply, "a")
        await first.retry()
        await stands_in_line(hf, first)
        await second.retry()
        await stands_in_line(hf, second, count=2)
        await holder.send("go", "on")
        assert (await first.result(timeout=5))[-2:] == ["other done", "a done"]
        assert (await second.result(timeout=5))[-2:] == ["a done", "b done"]
        assert ran == ["other", "a", "b"]


@parked_and_kept
async def test_retried_from_an_earlier_step(park):
    """A run that is retried from a step inside the block waits as well, and the step runs in its turn."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, patient, "a")
        await run.retry(at="work#0", effects="new")
        await stands_in_line(hf, run)
        assert ran == []
        await holder.send("go", "on")
        assert await run.result(timeout=5) == 5
        assert ran == ["other", "first", "a"]


@holdfast.agent
async def patient(text: str) -> int:
    async with holdfast.conversation("c", str) as talk:
        await talk.add(await work("first"))
        await talk.add(await work(text))
        return len(talk)


@holdfast.agent
async def both(text: str) -> list[int]:
    async with holdfast.conversation("c", str) as one, holdfast.conversation("d", str) as two:
        await one.add(await work(text))
        await two.add("both")
        return [len(one), len(two)]


@pytest.mark.parametrize("taken", ["c", "d"])
@parked_and_kept
async def test_a_run_that_had_two(park, taken):
    """A retried run waits for the first of its conversations; for the second it does not: it fails, and has left the first."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, both, "a", other=taken)
        await run.retry()
        if taken == "d":
            error = await fails(run)
            assert "ConversationBusy" in str(error)
            assert "taken by run 'holder', and a run that has a conversation (here 'c')" in str(error)
            assert (await hf.conversation("c").info()).run is None
        else:
            await stands_in_line(hf, run)
            assert (await hf.conversation("d").info()).run is None
        assert ran == []
        await holder.send("go", "on")
        await holder.result(timeout=5)
        if taken == "d":
            await run.retry()
        assert await run.result(timeout=5) == ([3, 1] if taken == "c" else [1, 3])
        assert ran == ["other", "a"]


@holdfast.agent
async def divided(text: str) -> list[str]:
    """One task is in the conversation, another one waits for a message."""

    async def talks() -> str:
        async with holdfast.conversation("c", str) as talk:
            answer = await work(text)
            await talk.add(answer)
            return answer

    async def hears() -> str:
        return await holdfast.receive("word", str)

    return await asyncio.gather(talks(), hears())


@parked_and_kept
async def test_the_reason_is_the_conversation(park):
    """A run that waits for a message too is said to wait for the conversation, and hears the message all the same."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, divided, "a")
        await run.retry()
        await stands_in_line(hf, run)
        await run.send("word", "hello")
        await stands_in_line(hf, run)
        assert ran == []
        await holder.send("go", "on")
        assert await run.result(timeout=5) == ["a done", "hello"]


@holdfast.agent
async def nested(conversation: str) -> str:
    try:
        async with holdfast.conversation(conversation, str) as talk:
            await talk.add("child")
            return "entered"
    except ConversationBusy:
        return "busy"


@holdfast.agent
async def elder(text: str) -> str:
    async with holdfast.conversation("c", str) as talk:
        await talk.add(await work(text))
        return await nested("c")


@parked_and_kept
async def test_a_child_begins_in_the_turn_of_its_parent(park):
    """A child that a retried run starts in its turn does not wait for what its parent has."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, elder, "a")
        await run.retry()
        await stands_in_line(hf, run)
        await holder.send("go", "on")
        assert await run.result(timeout=5) == "busy"


@holdfast.agent
async def wavering(text: str) -> list[str]:
    """Tidies up inside the block and outside it."""
    try:
        async with holdfast.conversation("c", str):
            try:
                await work(text)
            except asyncio.CancelledError:
                await work("inside")
                raise
    finally:
        await work("outside")
    return []


@parked_and_kept
async def test_tidying_inside_the_block_waits_for_the_turn(park):
    """A run that is cancelled while it waits tidies up inside the block when it has its turn, and not before."""
    async with opened(park) as hf:
        run, holder = await failed_before(hf, wavering, "a")
        await run.retry()
        await stands_in_line(hf, run)
        await run.cancel(grace="1d")
        await asyncio.sleep(0.1)
        assert ran == []
        await holder.send("go", "on")
        await run.wait("cancelled", timeout=5)
        assert ran == ["other", "inside", "outside"]


async def test_moved_while_it_waits(tmp_path):
    """A retried run that is moved while it waits stands in line again when it is taken back, and has its turn then."""
    async with opened(True) as hf:
        run, holder = await failed_before(hf, reply, "a")
        await run.retry()
        await stands_in_line(hf, run)
        keys = holdfast.Keys(tmp_path / "keys")
        keys.new("ana")
        await run.export(tmp_path / "a.bundle", move="0" * 32, keys=keys)
        assert (await hf.conversation("c").info()).waiting == 0
        await run.take_back(force=True)
        await stands_in_line(hf, run)
        assert ran == []
        await holder.send("go", "on")
        assert (await run.result(timeout=5))[-1] == "a done"
        assert ran == ["other", "a"]


async def test_nobody_has_it():
    """A crash at every commit of a retry: the run regains a conversation that is free, and each body runs in its turn."""
    async for hf in holdfast.testing.crash_everywhere(agents=[reply]):
        broken.add("a")
        run = await hf.start(reply, "a", id="a")
        await fails(run)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=5) == ["a?", "a done"]


AGENTS = [reply, hold, both, divided, nested, elder, patient, wavering]
