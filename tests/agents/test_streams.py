"""Streams as agents and steps write them, and as readers see them, with crashes and failures between."""

import asyncio

import pytest
from tests.engine.lives import history, lives

import holdfast
import holdfast.testing

going = asyncio.Event()


async def read(run, name="answer", after=0, **options):
    """What a reader sees, in short: texts, and marks with their reasons."""
    seen = []
    async for chunk in run.stream(name, after, **options):
        if chunk.kind == "data" and seen and not isinstance(seen[-1], tuple):
            seen[-1] += chunk.data
        else:
            seen.append(chunk.data if chunk.kind == "data" else (chunk.kind, chunk.reason))
    return seen


async def until_text(run, text, name="answer"):
    """Wait until the stream has come so far; returns where that is."""
    seen = ""
    async for chunk in run.stream(name):
        seen += chunk.data
        if seen.endswith(text):
            return chunk.offset
    raise AssertionError(f"it ended with {seen!r}")


@pytest.fixture(autouse=True)
def closed() -> None:
    """What bodies wait for belongs to the loop of one test."""
    global going  # noqa: PLW0603
    going = asyncio.Event()


@holdfast.step
async def speak(words: list[str], keep: bool) -> str:
    """Writes a word, and waits for the test before the next."""
    async with holdfast.stream("answer") as out:
        before = out.keep() if keep else ""
        for word in words:
            if word not in before:
                await out.write(word)
                before += word
                if [word] == words[1:2] and out.salvaged is None:
                    await going.wait()
        salvaged = out.salvaged
    return f"{before}|{salvaged.text} {salvaged.reason} {salvaged.attempt}" if salvaged else before


@holdfast.agent
async def speaking(words: list[str], keep: bool) -> str:
    return await speak(words, keep)


async def test_a_step_that_runs_again_begins_behind_a_mark():
    """After a crash the text of the dead attempt is salvaged; readers see it, the mark, and the new text, each once."""
    async with holdfast.testing.open(agents=[speaking]) as hf:
        run = await hf.start(speaking, ["a", "b", "c"], False)
        offset = await until_text(run, "ab")
        await hf.crash()
        assert await run.result() == "abc|ab crashed 1"
        assert await read(run) == ["ab", ("restart", "crashed"), "abc", ("end", None)]
        assert await read(run, after=offset) == [("restart", "crashed"), "abc", ("end", None)]
        assert await read(run, after=offset - 1) == ["b", ("restart", "crashed"), "abc", ("end", None)]
        assert await read(run, after=offset + 1) == ["abc", ("end", None)]
        assert await read(run, after=offset + 2) == ["bc", ("end", None)]
        assert await read(run, after=offset + 5) == []
        assert [chunk.attempt async for chunk in run.stream("answer")] == [1, 2, 2, 2]


async def test_a_step_that_keeps_what_was_salvaged_goes_on_behind_it():
    """With keep() readers see one text and no mark; a second crash salvages all of it."""
    async with holdfast.testing.open(agents=[speaking]) as hf:
        run = await hf.start(speaking, ["a", "b", "c"], True)
        await until_text(run, "ab")
        await hf.crash()
        assert await run.result() == "abc|ab crashed 1"
        assert await read(run) == ["abc", ("end", None)]


class Rude(Exception):
    """A model that fails."""


@holdfast.step(retry=holdfast.Retry(3, first="1m"), timeout="1s")
async def fails(how: str) -> str:
    attempt = holdfast.this_step().attempt
    if attempt == 3:
        raise Rude("before it said anything")
    async with holdfast.stream("answer") as out:
        await out.write(f"{attempt}")
        if out.salvaged:
            await out.write(f" after {out.salvaged.text} {out.salvaged.reason}")
        if how == "timeout":
            await asyncio.sleep(60)
        if how == "well":
            await out.write(".")
        else:
            raise Rude("in the middle")
    raise Rude("afterwards")


@holdfast.agent
async def failing(how: str) -> str:
    try:
        return await fails(how)
    except holdfast.StepFailed as error:
        await holdfast.sleep("1h")  # it leaves memory, and what it has is what is in the store
        left = holdfast.partial(error)["answer"]
        return f"{left.text}, {left.reason} {left.attempt}"


@pytest.mark.parametrize("how", ["failed", "timeout", "well"])
async def test_why_an_attempt_broke_off_is_known_to_the_next_and_to_the_agent(how):
    """The next attempt, in another life, and the agent at the end are told why; the journal has no copy of the text."""
    reason, dot = ("timeout", "") if how == "timeout" else ("failed", "." if how == "well" else "")
    async with holdfast.testing.open(agents=[failing]) as hf:
        run = await hf.start(failing, how)
        last = f"2 after 1{dot} {reason}{dot}"
        assert await run.result() == f"{last}, {reason} 2"
        end = ("end", None if how == "well" else reason)
        between = [end] if how == "well" else []
        assert await read(run) == [f"1{dot}", *between, ("restart", reason), last, end]
        (failed,) = await history(run, "step.failed")
        assert list(failed.data["partial"]) == ["answer"]
        assert "after 1" not in str(failed.data)


@holdfast.step(in_doubt="fail")
async def speak_once() -> str:
    async with holdfast.stream("answer") as out:
        await out.write("so far")
        await going.wait()
    return "never"


@holdfast.agent
async def speaking_once() -> list[str]:
    try:
        return [await speak_once()]
    except holdfast.StepFailed as error:
        left = error.partial["answer"]
        return [left.text, left.reason]


async def test_a_step_that_is_not_run_again_hands_on_what_it_left():
    """A step that fails because it is in doubt after a crash has its text from the life before, and its stream ends."""
    async with holdfast.testing.open(agents=[speaking_once]) as hf:
        run = await hf.start(speaking_once)
        await until_text(run, "so far")
        await hf.crash()
        assert await run.result() == ["so far", "crashed"]
        assert await read(run) == ["so far", ("end", "crashed")]


@holdfast.agent
async def impatient() -> str:
    try:
        async with holdfast.timeout(2):
            return await speak(["a", "b"], False)
    except TimeoutError:
        left = await holdfast.unfinished("answer")
        await holdfast.sleep("1h")
        again = await holdfast.unfinished("answer")
        assert again == left
        assert left is not None
        last = f"{left.text} {left.reason} " + await speak(["c"], False)
        return f"{last} {await holdfast.unfinished('answer')} {await holdfast.unfinished('other')}"


async def test_a_step_that_nobody_waits_for_ends_its_stream():
    """Cancelling the step ends its stream with that reason; the agent finds what was left, and the next step writes behind."""
    async with holdfast.testing.open(agents=[impatient]) as hf:
        run = await hf.start(impatient)
        assert await run.result() == "ab cancelled c None None"
        assert await read(run) == ["ab", ("end", "cancelled"), "c", ("end", None)]


@holdfast.step(transaction=True)
async def book() -> int:
    """Has the file to itself while another step speaks."""
    holdfast.connection().execute("CREATE TABLE IF NOT EXISTS booked (number)")
    await asyncio.sleep(0.02)
    return len(holdfast.connection().execute("INSERT INTO booked VALUES (1) RETURNING number").fetchall())


@holdfast.step
async def chatter() -> None:
    async with holdfast.stream("answer") as out:
        for number in range(8):
            await out.write(f"{number}" * 4000)
            await asyncio.sleep(0.005)


@holdfast.agent
async def busily() -> int:
    async with asyncio.TaskGroup() as group:
        group.create_task(chatter())
        booked = [group.create_task(book()) for _ in range(2)]
    return sum(task.result() for task in booked)


@pytest.mark.slow
async def test_text_beside_a_transaction():
    """What one step writes while another has a transaction open is kept back and written in order, whatever crashes."""
    async for hf in holdfast.testing.crash_everywhere(agents=[busily]):
        run = await hf.start(busily)
        assert await run.result() == 2
        seen = await read(run)
        assert seen[-2:] == ["".join(f"{number}" * 4000 for number in range(8)), ("end", None)]


# Agent code


@holdfast.step
async def double(number: int) -> int:
    return 2 * number


@holdfast.agent
async def telling() -> int:
    total = 0
    async with holdfast.stream("answer") as out:
        for number in range(3):
            await out.write(f"[{number}")
            total += await double(number)
            await out.write(f"={total}]")
        await holdfast.sleep("1h")
        await out.write(".")
    async with holdfast.stream("answer") as out:
        await out.write("!")
    return total


@pytest.mark.slow
async def test_agent_code_writes_once_what_it_writes_in_every_life():
    """Whatever crashes, and wherever the run is parked, readers see each character once."""
    async for hf in holdfast.testing.crash_everywhere(agents=[telling]):
        run = await hf.start(telling)
        assert await run.result() == 6
        assert await read(run) == ["[0=0][1=2][2=6].", ("end", None), "!", ("end", None)]


@pytest.mark.parametrize("closed", [False, True])
def test_agent_code_that_writes_another_text_diverges(tmp_path, closed):
    """Another text than the one that is stored, in an open block or a closed one, pauses the run before any effect."""

    def code(words):
        @holdfast.agent(name="diverging")
        async def diverging(closed: bool) -> int:
            async with holdfast.stream("answer") as out:
                await out.write("one ")
                await double(1)
                await out.write(words)
                if not closed:
                    await holdfast.sleep("1h")
            await holdfast.sleep("1h")
            return await double(2)

        return diverging

    async def act(hf, life):
        if life == 0:
            run = await hf.start("diverging", closed, id="r")
            await run.wait("waiting")
            return await read(run, follow=False)
        run = hf.get("r")
        await hf.advance("3h")
        if life == 1:
            with pytest.raises(holdfast.NondeterminismError, match="answer"):
                await run.result()
            await run.resume()
            return None
        return [await run.result(), await read(run)]

    seen = lives(tmp_path / "a.db", code("two"), code("six"), code("two"), act=act)
    assert seen[0][0] == "one two"
    assert seen[2] == [4, ["one two", ("end", None)]]


def test_a_retried_run_may_write_another_text(tmp_path):
    """After a retry with corrected code what followed the failure is void: a mark, and the whole text as it is now."""

    def code(fails):
        @holdfast.step(name="shaky")
        async def shaky() -> str:
            if fails:
                raise Rude("no")
            return "well"

        @holdfast.agent(name="shaking")
        async def shaking() -> str:
            async with holdfast.stream("answer") as out:
                await out.write("It went ")
                try:
                    await out.write(await shaky())
                except holdfast.StepFailed:
                    await out.write("badly")
                    raise
                await holdfast.sleep("1h")  # it leaves memory, and finds again what holds
                await out.write(".")
            return "done"

        return shaking

    async def act(hf, life):
        if life == 0:
            run = await hf.start("shaking", id="r")
            with pytest.raises(holdfast.RunFailed):
                await run.result()
        else:
            run = hf.get("r")
            await run.retry()
            assert await run.result() == "done"
        return await read(run)

    first, second = lives(tmp_path / "a.db", code(True), code(False), act=act)
    assert first == ["It went badly", ("end", "failed")]
    assert second == [*first, ("restart", "failed"), "It went well.", ("end", None)]


@holdfast.agent
async def saving() -> str:
    problem = await holdfast.restore("")
    if not problem:
        async with holdfast.stream("answer") as out:
            await out.write("before")
            try:
                await holdfast.checkpoint("taken")
            except holdfast.HoldfastError as error:
                problem = str(error)
        problem = await holdfast.checkpoint(problem)
    async with holdfast.stream("answer") as out:
        await out.write("behind")
        await holdfast.sleep("1h")
        await out.write(".")
    return problem


async def test_a_checkpoint_names_an_open_stream():
    """A checkpoint inside a block is refused with its name; behind one it is taken, and a new era goes on with the stream."""
    async with holdfast.testing.open(agents=[saving]) as hf:
        run = await hf.start(saving)
        assert "the stream 'answer' is open" in await run.result()
        assert await read(run) == ["before", ("end", None), "behind.", ("end", None)]


# Whose stream it is


@holdfast.step
async def hold(text: str) -> str:
    async with holdfast.stream("answer") as out:
        await out.write(text)
        await going.wait()
    return text


@holdfast.agent
async def sharing(agent_too: bool) -> list[str]:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(hold("a"))
        await holdfast.sleep("1ms")
        problems = []
        try:
            if agent_too:
                async with holdfast.stream("answer") as out:
                    await out.write("b")
            else:
                await speak(["b"], False)
        except holdfast.HoldfastError as error:
            problems.append(str(error))
        await done()
    return [await first, *problems, await speak(["c"], False)]


@holdfast.step
async def done() -> None:
    going.set()


@pytest.mark.parametrize("agent_too", [False, True])
async def test_two_at_once_is_an_error_that_names_the_other(agent_too):
    """The second one to open a stream is told who has it, live and on replay alike; later another one appends."""
    async with holdfast.testing.open(agents=[sharing], park=False) as hf:
        run = await hf.start(sharing, agent_too)
        first, problem, last = await run.result()
        assert (first, last) == ("a", "c")
        assert "the stream 'answer' is being written by" in problem
        assert "hold#0" in problem
        assert await read(run) == ["a", ("end", None), "c", ("end", None)]


# Readers


@holdfast.agent
async def ending(how: str) -> None:
    async with holdfast.stream("answer") as out:
        await out.write("text")
        if how == "failed":
            raise Rude("no")
        await holdfast.receive("never")


@pytest.mark.parametrize("how", ["failed", "cancelled", "insisted"])
async def test_readers_end_with_the_run(how):
    """A run that fails or is cancelled, with its code or without, ends what readers follow, and says how."""
    async with holdfast.testing.open(agents=[ending]) as hf:
        run = await hf.start(ending, how)
        reader, other = asyncio.create_task(read(run)), asyncio.create_task(read(run, "never-opened"))
        await until_text(run, "text")
        if how != "failed":
            await run.wait("waiting")
            await run.cancel()
            if how == "insisted":
                await run.cancel()
        await run.wait()
        reason = "failed" if how == "failed" else "cancelled"
        assert await reader == ["text", ("end", reason)]
        assert await other == [("end", reason)]
        assert await read(run, after=4) == [("end", reason)]


@holdfast.step
async def says(text: str) -> None:
    async with holdfast.stream("answer") as out:
        await out.write(text)
    async with holdfast.stream("answer"):
        pass


@holdfast.agent
async def by_turns() -> None:
    """Nothing, a text in a step, nothing in a step, a text of its own, nothing; each waits for the test."""
    async with holdfast.stream("answer"):
        await turn("0")
    for n, text in enumerate(("one", "", "two"), 1):
        await says(text)
        await turn(str(n))
    for n, text in enumerate(("three", ""), 4):
        async with holdfast.stream("answer") as out:
            await out.write(text)
        await turn(str(n))


async def turn(name: str) -> None:
    await holdfast.note(name)
    await holdfast.receive(name, str)


@pytest.mark.parametrize("crashing", [False, True])
async def test_readers_follow_from_text_to_text(crashing):
    """The end of a text is passed on, and the next one comes behind it until the run is over; a silent block leaves nothing."""
    async with holdfast.testing.open(agents=[by_turns]) as hf:
        run = await hf.start(by_turns, id="r")
        reader, so_far = asyncio.create_task(read(run)), []
        for n, text in enumerate(("", "one", "", "two", "three", "")):
            async for event in run.events():
                if event.kind == "note" and event.data["text"] == str(n):
                    break
            so_far += [text, ("end", None)] if text else []
            assert await read(run, follow=False) == so_far
            if crashing:
                await hf.crash()
                run = hf.get("r")
                reader = asyncio.create_task(read(run))
            await run.send(str(n), "")
        await run.result()
        assert await reader == so_far


# What is refused


@holdfast.step
async def wrong(how: str) -> str:
    try:
        match how:
            case "name":
                holdfast.stream("no/slash")
            case "bytes":
                async with holdfast.stream("answer") as out:
                    await out.write(b"bytes")  # type: ignore[arg-type]
            case "late":
                async with holdfast.stream("answer") as out:
                    pass
                await out.write("late")
            case "twice":
                async with holdfast.stream("answer"), holdfast.stream("answer"):
                    pass
    except holdfast.HoldfastError as error:
        return str(error)
    return "nothing"


@holdfast.step
def in_thread() -> str:
    async def write() -> None:
        async with holdfast.stream("answer") as out:
            await out.write("x")

    try:
        asyncio.run(write())
    except holdfast.HoldfastError as error:
        return str(error)
    return "nothing"


@holdfast.step(transaction=True)
async def in_transaction() -> str:
    try:
        holdfast.stream("answer")
    except holdfast.HoldfastError as error:
        return str(error)
    return "nothing"


@holdfast.agent
async def wronging() -> list[str]:
    found = [await wrong(how) for how in ("name", "bytes", "late", "twice")]
    return [*found, await in_thread(), await in_transaction()]


async def test_what_cannot_be_says_why():
    """A bad name, bytes, a write behind the end, a thread and a transaction are refused in words."""
    async with holdfast.testing.open(agents=[wronging]) as hf:
        name, data, late, twice, thread, transaction = await hf.run(wronging)
        assert "'no/slash' cannot name a stream" in name
        assert "takes text, not bytes" in data
        assert "is not open" in late
        assert "is being written by 'wrong#3'" in twice
        assert "async def" in thread
        assert "transaction" in transaction


async def test_readers_are_told_what_is_no_stream_and_no_offset():
    """A name and an offset are checked at once; a run that is not there when it is read."""
    async with holdfast.testing.open(agents=[]) as hf:
        run = hf.get("nobody")
        with pytest.raises(holdfast.BadArguments, match="cannot name a stream"):
            run.stream("no/slash")
        with pytest.raises(holdfast.BadArguments, match="after=-1"):
            run.stream("answer", -1)
        with pytest.raises(holdfast.UnknownRun):
            await read(run)


async def test_outside_a_run_a_stream_goes_nowhere():
    """A step that is called by itself writes, and nobody reads it."""
    going.set()
    assert await speak(["a", "b"], True) == "ab"


# Durable before, and not for ever in memory


class Commits:
    """Remembers what each commit writes; may keep them from happening, as a full disk does."""

    def __init__(self):
        self.all, self.fail = [], False

    def before_commit(self, writes):
        if self.fail:
            raise OSError("the disk is full")
        self.all += writes

    def after_commit(self, writes):
        pass


async def test_text_is_durable_before_the_outcome():
    """What a step wrote until it returned is committed before its outcome, or with it, though no time had passed."""
    commits = Commits()
    going.set()
    async with holdfast.testing.open(agents=[speaking], faults=commits) as hf:
        run = await hf.start(speaking, ["a", "b", "c"], False)
        assert await run.result() == "abc"
        order = [write for write in commits.all if write.startswith(("stream", "step"))]
        assert order == ["stream answer data", "stream answer end", "step.completed speak#0"]


disk = Commits()
written = []


@holdfast.step
async def flood(size: int) -> None:
    async with holdfast.stream("answer") as out:
        disk.fail = True
        going.set()
        for number in range(1000):
            written.append(number)
            await out.write("x" * size)


@holdfast.agent
async def flooding(size: int) -> None:
    await flood(size)


async def test_a_writer_waits_for_a_store_that_is_behind():
    """While nothing can be committed a step can write about 128 KiB; then it waits, and goes on when the store does."""
    written.clear()
    async with holdfast.testing.open(agents=[flooding], faults=disk, park=False) as hf:
        run = await hf.start(flooding, 1024)
        await going.wait()  # nothing in the body waits but a write, so by now one does
        assert len(written) == 128
        disk.fail = False
        await run.result()
        assert len(written) == 1000
        (text, end) = await read(run)
        assert (len(text), end) == (1000 * 1024, ("end", None))
        rows = await hf.store.pieces(run.id, "answer", 0)
        assert len(rows) < 100
