"""The recipes of docs/recipes.md, run as they stand there."""

import asyncio

import pytest
from tests.docs.pages import module

import holdfast
import holdfast.testing

PAGE = "docs/recipes.md"


@pytest.mark.parametrize("ending", ["kept", "undone"])
def test_the_undo_list_undoes_once_in_reverse_and_never_on_a_crash(ending):
    """A failure undoes every booking once, in reverse; success and crashes undo nothing, at whichever point one comes."""
    recipe = module(PAGE, "recipe: undo")
    places = ["Rome", "Oslo", "Atlantis" if ending == "undone" else "Bern"]

    async def main():
        crashes = 0
        ledger = {}

        async def book(what):
            if what == "Atlantis":
                raise ValueError("nowhere")
            ledger[holdfast.idempotency_key()] = f"book {what}"
            return f"ticket {what}"

        async def cancel_booking(ticket):
            ledger[holdfast.idempotency_key()] = f"cancel {ticket}"

        replace = {recipe.book: book, recipe.cancel_booking: cancel_booking}
        async for hf in holdfast.testing.crash_everywhere(agents=[recipe.trip], replace=replace):
            ledger.clear()
            run = await hf.start(recipe.trip, places, id="t")
            if ending == "kept":
                assert await run.result() == ["ticket Rome", "ticket Oslo", "ticket Bern"]
                assert list(ledger.values()) == ["book Rome", "book Oslo", "book Bern"]
            else:
                with pytest.raises(holdfast.RunFailed, match="nowhere"):
                    await run.result()
                assert list(ledger.values()) == [
                    "book Rome", "book Oslo", "cancel ticket Oslo", "cancel ticket Rome",
                ]  # fmt: skip
            crashes += hf.crashes
        assert crashes > 6

    asyncio.run(main())


def test_the_listener_handles_messages_while_work_goes_on():
    """Wishes sent while chapters are written reach later chapters, each acknowledged once, wherever a crash comes."""
    recipe = module(PAGE, "recipe: listener")

    async def main():
        crashes = 0
        written = asyncio.Event()

        async def chapter(number, wishes):
            if number == 1:
                await written.wait()  # until the wish was acknowledged
            return f"chapter {number} with {','.join(wishes) or 'nothing'}"

        async def acknowledge(wish):
            written.set()
            return f"ok {wish}"

        replace = {recipe.chapter: chapter, recipe.acknowledge: acknowledge}
        async for hf in holdfast.testing.crash_everywhere(agents=[recipe.write_book], replace=replace):
            written.clear()
            run = await hf.start(recipe.write_book, 3, id="b")
            await run.send("wish", "dragons", key="w1")
            result = await run.result(timeout=20)
            assert result[0].startswith("chapter 0")
            assert result[2] == "chapter 2 with ok dragons"
            events = [event async for event in run.events(follow=False)]
            done = [event.data["name"] for event in events if event.kind == "step.completed"]
            assert done.count("acknowledge") == 1
            assert done.count("chapter") == 3
            crashes += hf.crashes
        assert crashes > 6

    asyncio.run(main())


def test_the_fan_out_over_1000_items_is_bounded_and_goes_on_after_a_crash():
    """At most 20 of 1,000 steps run at once, and after a crash in the middle only unrecorded ones run again."""
    recipe = module(PAGE, "recipe: fan_out")

    async def main():
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

    asyncio.run(main())


def test_the_conversation_goes_on_from_its_last_turn():
    """Each turn's checkpoint is where a resumed conversation starts; no message is lost or answered twice."""
    recipe = module(PAGE, "recipe: conversation")

    async def main():
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

    asyncio.run(main())
