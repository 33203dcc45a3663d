"""The support chat: it remembers, asks before it pays, and is steered by what the customer says next; whatever crashes."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from tests.examples.support import open_shop

import holdfast.testing
from holdfast.integrations.pydantic_ai.history import NEVER_RAN

# A task that a crash ends before its first step never awaits what it was to await.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


@pytest.fixture
def world(tmp_path, monkeypatch):
    with open_shop(tmp_path, monkeypatch) as opened:
        yield opened


@asynccontextmanager
async def saying(hf, chat, customer, text, key):
    """A customer says something, and waits for the answer meanwhile."""
    answer = asyncio.create_task(chat.say(hf, customer, text, key))
    try:
        yield answer
    finally:
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)


async def asked(hf, number):
    """The open question about this order, once there is one."""
    async for _ in hf.events(kinds="approval.asked"):
        for question in await hf.approvals():
            if question.shown["number"] == number:
                return question
    raise AssertionError


async def parts(hf, kind):
    messages = [each.value for each in await hf.conversation("ana", ModelMessage).messages()]
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part.content for request in requests for part in request.parts if isinstance(part, kind)]


async def test_it_remembers_and_pays_what_a_supervisor_allows(world):
    """The second message means the order of the first; the amount is the one that the supervisor made of it, and paid once."""
    shop, chat = world

    async with holdfast.testing.open(agents=[chat.support]) as hf:
        first = await chat.say(hf, "ana", "Where is order 101?", "1")
        assert first == "Order 101, a kettle, is delivered on Monday."
        assert await chat.say(hf, "bo", "Where is my parcel?", "1") == "Which order is it about?"
        async with saying(hf, chat, "ana", "I want my money back", "2") as answer:
            question = await asked(hf, 101)
            assert (question.shown, question.to) == ({"number": 101, "amount": 40}, ("supervisors",))
            by = holdfast.Actor("sue", groups=["supervisors"])
            await hf.approve(question, by=by, data={"number": 101, "amount": 30})
            assert await answer == "About order 101: 30 paid back to ana"
        async with saying(hf, chat, "ana", "And my money for 102", "3") as answer:
            await hf.deny(await asked(hf, 102), by=by, note="it is on its way")
            assert await answer == "About order 102: it is on its way"
        assert await chat.say(hf, "ana", "Where is order 101?", "1") == first  # said twice, heard once
        assert len(await parts(hf, UserPromptPart)) == 3
    assert shop.books()["refunds"] == [[101, 30]]
    assert shop.model.asked == shop.model.paid == 9


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_steered_with_a_crash_everywhere(world):
    """The customer takes it back before a supervisor has agreed: that question is withdrawn, the next one is paid, once."""
    shop, chat = world
    by, passes = holdfast.Actor("sue", groups=["supervisors"]), 0

    async for hf in holdfast.testing.crash_everywhere(agents=[chat.support]):
        async with saying(hf, chat, "ana", "I want my money back for 101", "1") as first:
            withdrawn = await asked(hf, 101)
            async with saying(hf, chat, "ana", "No, I mean the money for 102", "2") as second:
                await hf.approve(await asked(hf, 102), by=by)
                assert await first == await second == "About order 102: 25 paid back to ana"
        found = {question.shown["number"]: question.status for question in await hf.approvals(open=False)}
        assert found == {101: "withdrawn", 102: "decided"}
        assert withdrawn.run == "ana-1"
        assert (await hf.runs())[0].id == "ana-1"  # the second message began no run of its own
        said = ["I want my money back for 101", "No, I mean the money for 102"]
        assert await parts(hf, UserPromptPart) == said
        assert NEVER_RAN in await parts(hf, ToolReturnPart)
        passes += 1
        assert shop.books()["refunds"] == [[102, 25]] * passes
    assert passes > 30
