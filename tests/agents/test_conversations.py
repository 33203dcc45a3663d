"""Conversations as an agent has them: what is read and added, whose turn it is, and how one is left. Parked at every wait."""

import asyncio
from dataclasses import dataclass

import pytest

import holdfast
import holdfast.testing
from holdfast import ConversationBusy


def playing(*agents, park=True):
    """Run an async test with these agents."""

    def wrap(test):
        def run():
            async def main():
                async with holdfast.testing.open(agents=agents, park=park) as hf:
                    await asyncio.wait_for(test(hf), 40)

            asyncio.run(main())

        run.__doc__, run.__name__ = test.__doc__, test.__name__
        return run

    return wrap


async def said(hf, conversation="c"):
    return [message.value for message in await hf.conversation(conversation).messages()]


async def failure(run):
    try:
        await run.result()
    except holdfast.RunFailed as error:
        return error
    raise AssertionError("it did not fail")


@holdfast.agent
async def turn(text: str) -> list[str]:
    """Read the last two, and say two things with a wait between them."""
    async with holdfast.conversation("c", str) as talk:
        heard = await talk.messages(last=2)
        await talk.add(f"{text}?")
        await holdfast.sleep("1m")
        await talk.add(f"{text}!")
        assert len(talk) % 2 == 0
        return heard


@holdfast.agent
async def hold(conversation: str) -> None:
    """Have a conversation until told otherwise."""
    async with holdfast.conversation(conversation) as talk:
        await talk.add("mine")
        if await holdfast.receive("go", str) == "fail":
            raise RuntimeError("told to")
        await talk.add("still mine")


@holdfast.agent
async def want(conversation: str, busy: str = "wait", patience: str = "1d") -> str:
    """Say one thing, if the turn comes."""
    try:
        async with holdfast.timeout(patience), holdfast.conversation(conversation, busy=busy) as talk:
            await talk.add("got it")
            return f"entered at {len(talk)}"
    except ConversationBusy as error:
        return f"busy: {error.conversation} {error.run}"
    except TimeoutError:
        return "too late"


@playing(turn)
async def test_runs_take_turns(hf):
    """Runs on one conversation come one after the other, in the order asked, and each sees what was said before it."""
    runs = []
    for text in "abc":
        runs.append(await hf.start(turn, text, id=text))
        await runs[-1].wait("waiting")
    assert [await run.result() for run in runs] == [[], ["a?", "a!"], ["b?", "b!"]]
    assert await said(hf) == ["a?", "a!", "b?", "b!", "c?", "c!"]
    messages = await hf.conversation("c", str).messages(after=1, limit=2)
    assert [(each.position, each.value, each.run) for each in messages] == [(1, "a!", "a"), (2, "b?", "b")]


@playing(hold, want)
async def test_a_waiting_run_holds_no_worker(hf):
    """A run that waits for its turn has left memory, and says what it waits for."""
    first = await hf.start(hold, "c", id="first")
    await first.wait("waiting")
    second = await hf.start(want, "c", id="second")
    await second.wait("waiting")
    assert (await second.info()).waits_for == "conversation"
    (info,) = await hf.conversations()
    assert (info.id, info.messages, info.run, info.waiting) == ("c", 1, "first", 1)
    await first.send("go", "on")
    assert await second.result() == "entered at 3"
    (info,) = await hf.conversations()
    assert (info.messages, info.run, info.waiting) == (3, None, 0)


@playing(hold, want)
async def test_refused(hf):
    """With busy='refuse' a taken conversation is an error that names who has it, and a free one is entered."""
    await (await hf.start(hold, "c", id="first")).wait("waiting")
    assert await hf.run(want, "c", "refuse") == "busy: c first"
    assert await hf.run(want, "other", "refuse") == "entered at 1"


@pytest.mark.parametrize("end", ["returns", "fails", "cancelled", "cancelled at once"])
def test_every_end_frees_it(end):
    """A run that returns, fails or is cancelled leaves its conversation to the next."""

    async def test(hf):
        first = await hf.start(hold, "c", id="first")
        await first.wait("waiting")
        second = await hf.start(want, "c", id="second")
        await second.wait("waiting")
        if end.startswith("cancelled"):
            await first.cancel()
            if end.endswith("once"):
                await first.cancel()
        else:
            await first.send("go", "fail" if end == "fails" else "on")
        assert (await second.result()).startswith("entered at")
        assert (await hf.conversation("c").info()).run is None

    playing(hold, want)(test)()


@playing(hold, want)
async def test_an_impatient_run_goes_out_of_the_line(hf):
    """A run whose time to wait is over does not get the conversation later, and the one behind it does."""
    first = await hf.start(hold, "c", id="first")
    await first.wait("waiting")
    second = await hf.start(want, "c", "wait", "1m", id="second")
    await second.wait("waiting")
    third = await hf.start(want, "c", id="third")
    await third.wait("waiting")
    assert await second.result() == "too late"
    assert (await hf.conversation("c").info()).waiting == 1
    await first.send("go", "on")
    assert await third.result() == "entered at 3"


@holdfast.agent
async def both(first: str, second: str) -> str:
    async with holdfast.conversation(first) as talk:
        await talk.add(1)
        await holdfast.sleep("1m")
        try:
            async with holdfast.conversation(second):
                return "both"
        except ConversationBusy as error:
            return f"{error}"


@playing(both)
async def test_no_two_runs_wait_for_each_other(hf):
    """A run that has a conversation does not wait for another: of two in opposite order none waits for ever."""
    runs = [await hf.start(both, "a", "b", id="ab"), await hf.start(both, "b", "a", id="ba")]
    results = [await run.result() for run in runs]
    assert any("has a conversation (here 'a')" in each or "has a conversation (here 'b')" in each for each in results)
    assert await hf.run(both, "a", "b") == "both"


@holdfast.agent
async def parent() -> str:
    async with holdfast.conversation("c"):
        return await want("c")


@playing(parent, want)
async def test_a_child_does_not_wait_for_its_parent(hf):
    """A child that wants what its parent has is refused, for the parent waits for it."""
    assert (await hf.run(parent)).startswith("busy: c parent-")


@holdfast.agent
async def greedy(how: str) -> str:
    state = await holdfast.restore("")
    talk = holdfast.conversation("c")
    try:
        if how == "not entered":
            await talk.add("x")
        async with talk:
            if how == "twice":
                async with holdfast.conversation("c"):
                    return "twice"
            if how == "again":
                async with talk:
                    return "again"
            if how == "checkpoint":
                await holdfast.checkpoint(state)
            if how == "unstorable":
                await talk.add(object())
            if how == "slice":
                await talk.messages(last=1, after=2)
        await talk.add("x")
    except holdfast.HoldfastError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize(
    ("how", "told"),
    {
        "not entered": "was not entered: write `async with",
        "twice": "has conversation 'c', or waits for it, already",
        "again": "can be entered once",
        "checkpoint": "the conversation 'c' is open; leave it first",
        "unstorable": "messages[0]: object cannot be stored",
        "slice": "either last=, or after= and limit=",
        "left": "conversation 'c' was left",
    }.items(),
)
def test_misuse(how, told):
    """What cannot be meant is refused with the reason, and the conversation is free afterwards."""

    async def test(hf):
        assert told in await hf.run(greedy, how)
        info = await hf.conversation("c").info()
        assert info is None or info.run is None

    playing(greedy)(test)()


@playing()
async def test_outside(hf):
    """Outside a run it says where it works, and what is no id is refused."""
    with pytest.raises(holdfast.NotInRun, match="inside a running agent"):
        async with holdfast.conversation("c"):
            pass
    for make in (holdfast.conversation, hf.conversation):
        with pytest.raises(holdfast.BadArguments, match="cannot name a conversation"):
            make("with space")
    with pytest.raises(holdfast.BadArguments, match="neither 'wait' nor 'refuse'"):
        holdfast.conversation("c", busy="perhaps")
    assert await hf.conversation("never").messages() == []
    assert await hf.conversation("never").info() is None
    assert await hf.conversation("never").delete() == 0


@dataclass
class Remark:
    text: str
    weight: int = 1


@holdfast.agent
async def remark(text: str) -> list[Remark]:
    async with holdfast.conversation("typed", Remark) as talk:
        await talk.add(Remark(text), Remark(text * 2, 2))
        return await talk.messages()


@holdfast.agent
async def misread() -> list[int]:
    async with holdfast.conversation("typed", int) as talk:
        return await talk.messages()


@playing(remark, misread)
async def test_types(hf):
    """Messages of a type come back as that type; read as another one, the run is paused and says which message."""
    assert await hf.run(remark, "a") == [Remark("a"), Remark("aa", 2)]
    assert [each.value for each in await hf.conversation("typed", Remark).messages()] == [Remark("a"), Remark("aa", 2)]
    run = await hf.start(misread, id="misread")
    await run.wait("paused")
    assert "messages[0]" in (await run.info()).reason
    with pytest.raises(holdfast.BadArguments, match="of another type"):
        await hf.conversation("typed", int).messages()


@holdfast.agent
async def large(text: str, times: int) -> int:
    async with holdfast.conversation("c", str) as talk:
        await talk.add(text * times)
        await holdfast.sleep("1m")
        first = (await talk.messages(last=1))[0]
        await holdfast.sleep("1m")
        return len(first)


@playing(large)
async def test_large_messages(hf):
    """A message beyond 64 KiB is read back whole, outlives its run, and goes with its conversation."""
    run = await hf.start(large, "x", 100_000)
    assert await run.result() == 100_000
    await run.delete()
    assert [len(text) for text in await said(hf)] == [100_000]
    assert (await hf.store.facts())["blobs"] == 1
    assert await hf.conversation("c").delete() == 1
    assert (await hf.store.facts())["blobs"] == 0


@playing(hold, turn)
async def test_deleting(hf):
    """Runs may go and the conversation stays; it can be deleted when nobody has it, and begins anew."""
    run = await hf.start(hold, "c", id="first")
    await run.wait("waiting")
    with pytest.raises(ConversationBusy, match="while run 'first' has it"):
        await hf.conversation("c").delete()
    await run.send("go", "on")
    await run.result()
    await run.delete()
    await hf.advance("2 days")
    assert await hf.prune("1d") == 0
    assert await said(hf) == ["mine", "still mine"]
    assert await hf.conversation("c").delete() == 2
    assert await hf.conversations() == []
    assert await hf.run(turn, "a") == []


@playing(turn)
async def test_what_was_read_and_is_gone(hf):
    """A run that read what was deleted since is paused with the reason, whatever is said under that name by now."""
    await hf.run(turn, "a")
    run = await hf.start(turn, "b", id="b")
    await run.wait("waiting")
    await hf._store._submit(_forget("c"))
    await hf.advance("2m")
    await run.wait("paused")
    assert "was deleted meanwhile" in (await run.info()).reason


def _forget(conversation):
    def work(tx):
        yield from tx.rows("delete_messages", conversation=conversation)

    return work


broken = {"mend"}


@holdfast.step
async def mend() -> str:
    if broken:
        raise RuntimeError("broken")
    return "mended"


@holdfast.agent
async def fragile() -> list[str]:
    async with holdfast.conversation("c", str) as talk:
        await talk.add("before")
        try:
            await talk.add(await mend())
        except RuntimeError:
            await talk.add("sorry")
            raise
        return await talk.messages()


@playing(fragile, hold, want)
async def test_a_retried_run_stands_in_line_again(hf):
    """A run that failed inside a conversation and is retried waits for it again, and goes on after what was said since."""
    broken.add("mend")
    run = await hf.start(fragile, id="fragile")
    await failure(run)
    other = await hf.start(hold, "c", id="other")
    await other.wait("waiting")
    broken.clear()
    await run.retry()
    await run.wait("waiting")
    assert (await run.info()).waits_for == "conversation"
    third = await hf.start(want, "c", id="third")
    await third.wait("waiting")
    await hf.crash()
    await other.send("go", "on")
    assert await run.result() == ["before", "sorry", "mine", "still mine", "mended"]
    assert await third.result() == "entered at 6"


@holdfast.agent
async def impatient() -> int:
    async with holdfast.conversation("c", busy="refuse") as talk:
        return len(talk)


@playing(hold, impatient)
async def test_a_refused_run_asks_anew(hf):
    """A run that failed because it was refused asks again when it is retried."""
    first = await hf.start(hold, "c", id="first")
    await first.wait("waiting")
    run = await hf.start(impatient, id="run")
    await failure(run)
    await first.send("go", "on")
    await first.result()
    await run.retry()
    assert await run.result() == 2


@holdfast.agent
async def divided() -> list[str]:
    """Waits for the conversation in one task while another one fails."""

    async def talks() -> list[str]:
        async with holdfast.conversation("c", str) as talk:
            return await talk.messages()

    waiting = asyncio.create_task(talks())
    await holdfast.sleep("1m")
    await mend()
    return await waiting


@playing(divided, hold)
async def test_a_run_that_failed_while_it_waited(hf):
    """A run that fails while it stands in line goes out of it, and when it is retried it asks again and gets its turn."""
    broken.add("mend")
    first = await hf.start(hold, "c", id="first")
    await first.wait("waiting")
    run = await hf.start(divided, id="run")
    await failure(run)
    assert (await hf.conversation("c").info()).waiting == 0
    broken.clear()
    await run.retry()
    await run.wait("waiting")
    await hf.advance("2m")
    assert (await hf.conversation("c").info()).waiting == 1
    await first.send("go", "on")
    assert await run.result() == ["mine", "still mine"]


@holdfast.agent
async def chorus() -> list[str]:
    """Two tasks of one run talk in one conversation."""
    async with holdfast.conversation("c", str) as talk:

        async def sing(voice: str) -> None:
            for verse in range(2):
                await talk.add(f"{voice}{verse}")
                await mend()

        await asyncio.gather(sing("a"), sing("b"))
        return await talk.messages()


@pytest.mark.slow
async def test_two_tasks_in_one_conversation():
    """Tasks of one run add in an order that every life of the run agrees on, whatever crashes."""
    broken.clear()

    async for hf in holdfast.testing.crash_everywhere(agents=[chorus]):
        heard = await hf.run(chorus)
        assert heard == await said(hf)
        assert sorted(heard) == ["a0", "a1", "b0", "b1"]


@holdfast.agent
async def hasty(then: str) -> list[str]:
    """Is cancelled while it leaves a conversation, which it does all the same."""
    state = await holdfast.restore(["hello"])

    async def turn() -> None:
        async with holdfast.conversation("c", str) as talk:
            await talk.add(*state)
            await holdfast.receive("never")

    if state == ["hello"]:
        task = asyncio.create_task(turn())
        await holdfast.receive("go")
        for _ in range(2):  # out of the block, and out of leaving it
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
    if then == "checkpoint":
        state = await holdfast.checkpoint(["left"])
    async with holdfast.conversation("c", str) as talk:
        await talk.add("again")
        return [*await talk.messages(), state[0]]


@pytest.mark.parametrize("then", ["checkpoint", "entry"])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_conversation_that_is_left_in_haste_is_left(then, crash):
    """A second cancellation while it is left keeps the run neither from a checkpoint nor from entering it again."""
    async with holdfast.testing.open(agents=[hasty]) as hf:
        run = await hf.start(hasty, then, id="r")
        await run.wait("waiting")
        await run.send("go")
        if crash:
            await hf.crash()
        expected = ["hello", "again", "left" if then == "checkpoint" else "hello"]
        assert await run.result(timeout=20) == expected
        assert await said(hf) == ["hello", "again"]
