"""The recipes of docs/recipes.md, run as they stand there."""

import asyncio

import pytest
from tests.docs.pages import module

import holdfast
import holdfast.testing
from holdfast.cli.show import drawn
from holdfast.cli.view.console import Glyphs
from holdfast.client.family import account

PAGE = "docs/recipes.md"


@pytest.mark.parametrize("ending", ["kept", "failed", "cancelled"])
async def test_the_undo_list_undoes_once_in_reverse_and_never_on_a_crash(ending):
    """A failure or a cancel undoes every booking once, in reverse, also one stopped in the middle; crashes undo nothing."""
    recipe = module(PAGE, "recipe: undo")
    places = ["Rome", "Oslo", {"kept": "Bern", "failed": "Atlantis", "cancelled": "Lima"}[ending]]

    crashes = 0
    ledger, booked, reached = {}, {}, asyncio.Event()

    async def book(place, reference):
        if place == "Atlantis":
            raise ValueError("nowhere")
        booked[reference] = place
        ledger[holdfast.idempotency_key()] = f"book {place}"
        if place == "Lima":
            reached.set()
            await asyncio.Event().wait()  # it is booked, and nobody hears of it
        return f"ticket {place}"

    async def cancel_booking(reference):
        if reference in booked:
            ledger[holdfast.idempotency_key()] = f"cancel {booked[reference]}"

    replace = {recipe.book: book, recipe.cancel_booking: cancel_booking}
    async for hf in holdfast.testing.crash_everywhere(agents=[recipe.trip], replace=replace):
        ledger.clear()
        reached.clear()
        run = await hf.start(recipe.trip, places, id="t")
        if ending == "cancelled":
            await reached.wait()
            await run.cancel(grace="1h")
        state = (await run.wait(timeout=20)).status
        undone = [f"cancel {place}" for place in reversed(places) if place != "Atlantis"]
        done = [f"book {place}" for place in places if place != "Atlantis"]
        assert list(ledger.values()) == done + ([] if ending == "kept" else undone)
        assert state == {"kept": "completed"}.get(ending, ending)
        crashes += hf.crashes
    assert crashes > 6


async def test_the_listener_handles_messages_while_work_waits():
    """A wish sent between two chapters is handled there and then, once, wherever a crash comes, in a branch of its own."""
    recipe = module(PAGE, "recipe: listener")

    crashes = 0

    async def chapter(number, wishes):
        return f"chapter {number} with {','.join(wishes) or 'nothing'}"

    async def consider(wish):
        return f"many {wish}"

    async def acknowledge(wish):
        return None

    replace = {recipe.chapter: chapter, recipe.consider: consider, recipe.acknowledge: acknowledge}
    async for hf in holdfast.testing.crash_everywhere(agents=[recipe.write_book], replace=replace):
        run = await hf.start(recipe.write_book, 3, id="b")
        receipt = await asyncio.wait_for(sent_between_chapters(run), 20)
        result = await run.result(timeout=20)
        assert result[0] == "chapter 0 with nothing"
        assert result[2] == "chapter 2 with many dragons"
        events = [event async for event in run.events(follow=False)]
        done = [event.key for event in events if event.kind == "step.completed"]
        assert sorted(done) == [
            "chapter#0", "chapter#1", "chapter#2", "listen#0/acknowledge#0", "listen#0/consider#0",
        ]  # fmt: skip
        assert events[await receipt.seen_at()].data["topic"] == "wish"
        picture = [line.plain for line in await drawn(hf, await account(hf, "b"), 100, Glyphs(), None)]
        branch = next(at for at, line in enumerate(picture) if line.strip().startswith("listen"))
        inside = [line for line in picture[branch + 1 :] if "├─ " in line or "└─ " in line]
        assert [name for line in inside for name in ("consider(", "acknowledge(") if name in line] == [
            "consider(", "acknowledge(",
        ]  # fmt: skip
        crashes += hf.crashes
    assert crashes > 8


async def sent_between_chapters(run):
    """Send the wish, with a key, once the first chapter is written."""
    async for event in run.events():
        if event.kind == "step.completed":
            break
    return await run.send("wish", "dragons", key="w1")


async def test_the_fan_out_over_1000_items_is_bounded_and_goes_on_after_a_crash():
    """At most 20 of 1,000 steps run at once, and after a crash in the middle only unrecorded ones run again."""
    recipe = module(PAGE, "recipe: fan_out")

    running = most = done = 0
    half = asyncio.Event()

    async def classify(item):
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done += 1
        if done == 500:
            half.set()
        return f"class {item % 7}"

    async with holdfast.testing.open(agents=[recipe.classify_all], replace={recipe.classify: classify}) as hf:
        run = await hf.start(recipe.classify_all, 1000, id="all")
        await half.wait()
        await hf.crash()
        running = 0
        assert await run.result() == [f"class {item % 7}" for item in range(1000)]
        assert most <= 20
        assert 1000 <= done <= 1000 + 20


async def test_the_conversation_goes_on_from_its_last_turn():
    """Each turn's checkpoint is where a resumed conversation starts; no message is lost or answered twice."""
    recipe = module(PAGE, "recipe: conversation")

    crashes = 0

    async def reply(summary, message):
        return f"{summary}{message}"

    async for hf in holdfast.testing.crash_everywhere(agents=[recipe.converse], replace={recipe.reply: reply}):
        run = await hf.start(recipe.converse, 3, id="c")
        for message in "abc":
            await run.send("message", message, key=message)
        assert await run.result(timeout=20) == "abc"
        crashes += hf.crashes
    assert crashes > 8


async def test_the_chat_bot_tells_each_thing_once():
    """Stopped at any event and started again with the position it kept, it has told everything once, in order."""
    recipe = module(PAGE, "recipe: chat")

    @holdfast.agent
    async def asks() -> bool:
        return bool(await holdfast.approve("Go on?", to="ana", remind="1h", expires="1 day"))

    class Stopped(Exception):
        pass

    told, position = [], 0

    def keep(at):
        nonlocal position
        position = at
        raise Stopped

    async def post(text):
        told.append(text)

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await hf.start(asks, id="r")
        await run.wait("waiting")
        await hf.advance("61m")
        (question,) = await run.approvals()
        press = [recipe.pressed(hf, question.id, question.digest, user, True, "") for user in ("eve", "ana", "ana")]
        refused, decided, late = [await each for each in press]
        assert (decided, "may not decide" in refused, "approved by 'ana'" in late) == ("decided", True, True)
        assert await run.result() is True
        for _ in range(3):
            with pytest.raises(Stopped):
                await recipe.follow(hf, position, post, keep)
    assert told == ["Go on? (for ana)", "still open: Go on?", "Go on? approved by ana"]
