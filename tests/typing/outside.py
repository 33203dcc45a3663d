"""The client, as users write it: results have the types that the agents return."""

import asyncio
from typing import Any, Literal, assert_type

from tests.typing.declaring import fetch, http, nothing, research, research_again

import holdfast
import holdfast.testing
from holdfast import Run, RunEvent, RunInfo


async def main() -> None:
    async with holdfast.open("sqlite:agents.db", agents=[research, research_again, nothing]) as hf:
        assert_type(hf, holdfast.Client)
        run = await hf.start(
            research, "otters", id="otters", labels={"team": "a"}, after="1h", budget=holdfast.Budget(usd=5)
        )
        assert_type(run, Run[str])
        assert_type(run.id, str)
        assert_type((await run.info()).spent.usd, float)
        assert_type(await run.result(), str)
        assert_type(await run.result(timeout="10s"), str)
        assert_type(await hf.start(research, "otters", 3), Run[str])
        assert_type(await hf.start(research_again, "otters"), Run[list[str]])
        assert_type(await hf.start(research_again, "otters", kwargs={"depth": 3}), Run[list[str]])
        assert_type(await hf.start(research, kwargs={"topic": "otters"}), Run[str])
        assert_type(await hf.start(research_again, "otters", depth=3), Run[list[str]])
        assert_type(await hf.start(research_again, topic="otters", depth=3, id="a"), Run[list[str]])
        assert_type(await hf.start(research, "otters", depth=3, labels={"team": "a"}), Run[str])
        assert_type(await hf.start(research, "otters", depth=3, after="1h"), Run[str])
        assert_type(await hf.start(research, topic="otters", budget=holdfast.Budget(usd=5)), Run[str])
        assert_type(await hf.start(nothing), Run[None])
        assert_type(await hf.start("research", "otters", 3), Run[Any])
        assert_type(await hf.run(research, "otters"), str)
        assert_type(await hf.run(research_again, "otters", kwargs={"depth": 2}, labels={"a": "b"}), list[str])
        assert_type(await hf.run(research_again, "otters", depth=2, id="a"), list[str])
        assert_type(await hf.run("research", "otters", depth=2), Any)
        assert_type(hf.get("otters"), Run[Any])
        assert_type(hf.get("otters", research), Run[str])
        assert_type(await hf.get("otters", research).result(), str)
        assert_type(await hf.runs(status="failed", agent=research, labels={"team": "a"}), list[RunInfo])


async def transcripts(hf: holdfast.Client) -> None:
    transcript = hf.conversation("user-42", str)
    assert_type(transcript, holdfast.Transcript[str])
    assert_type(await transcript.messages(after=3, limit=10), list[holdfast.Message[str]])
    assert_type(await transcript.info(), holdfast.ConversationInfo | None)
    assert_type(await transcript.delete(), int)
    assert_type(await hf.conversations(limit=5), list[holdfast.ConversationInfo])


async def watching(hf: holdfast.Client, run: Run[str]) -> None:
    info = await run.wait("waiting", "completed", timeout="1m")
    assert_type(info, RunInfo)
    assert_type(info.waits_for, str | None)
    async for event in run.events(after=3):
        assert_type(event, RunEvent)
    async for event in hf.events(kinds=["run.failed"]):
        assert_type(event.run, str)
    receipt = await run.send("news", {"a": 1}, key="1")
    assert_type(receipt, holdfast.Receipt)
    assert_type(await receipt.seen_at(), int | None)
    await run.pause(reason="lunch", by="ana")
    await run.cancel(reason="enough", by="ana", grace="5m")
    await run.retry(by="ana")
    await run.resume()
    assert_type(await hf.pause(status=["waiting", "ready"], agent=research, by="ana"), list[str])
    assert_type(await hf.resume(labels={"team": "a"}), list[str])
    assert_type(await hf.cancel(agent="research", grace=60, reason="enough"), list[str])
    assert_type(await hf.retry(agent=research, labels={"team": "a"}, budget=holdfast.Budget(usd=1)), list[str])
    assert_type(await run.wait_for_question(timeout="1m"), holdfast.Approval)
    assert_type(await run.wait("waiting", waits_for=["message", "person"]), RunInfo)
    await hf.serve(research, research_again)
    assert_type(await hf.audit(run="otters"), list[holdfast.Deed])
    assert_type(info.progress, holdfast.Progress | None)
    assert_type(await run.delete(), int)
    assert_type(await run.arguments(), dict[str, Any])
    assert_type(run.created, bool)
    assert_type(await hf.agents(), list[holdfast.AgentInfo])
    assert_type(await hf.approval("otters"), holdfast.Approval)
    assert_type(await hf.create_token("ana", groups=["it"], scopes=["read"]), tuple[holdfast.Token, str])
    assert_type(await hf.revoke_token("ana"), list[holdfast.Token])
    for question in await run.approvals():
        await hf.answer(question, {"result": 1}, by="ana", note="looked")
    for question in await hf.approvals(run="otters", to=holdfast.Actor("ana", groups=["it"])):
        assert_type(question, holdfast.Approval)
        assert_type(question.path, tuple[str, ...])
        assert_type(await hf.approve(question, by="ana", data=[1], digest=question.digest), holdfast.Approval)
        await hf.deny(question.id, by=holdfast.Actor("ana"), note="no")
        await hf.delegate("otters", to="bob", by="ana")


def handles(run: Run[int], other: Run[str]) -> list[Run[object]]:
    """A handle is covariant: a list of runs of anything takes all of them."""
    return [run, other]


async def reads(run: Run[str]) -> None:
    async for chunk in run.stream("answer", 12):
        assert_type(chunk, holdfast.Chunk)
        assert_type(chunk.kind, Literal["data", "restart", "end"])
        assert_type(chunk.reason, holdfast.Reason | None)
    assert_type(await run.streams(), list[holdfast.StreamInfo])


async def fake_fetch(url: str, tries: int = 1) -> list[str]:
    return [url] * tries


async def testing() -> None:
    async with holdfast.testing.open(agents=[research], replace={fetch: fake_fetch, http: fake_fetch}) as hf:
        run = await hf.start(research, "otters", id="o")
        assert_type(run, Run[str])
        await run.wait("waiting")
        await hf.advance("3 days")
        await hf.crash()
        assert_type(hf.bodies[fetch], int)
    async for again in holdfast.testing.crash_everywhere(agents=[research]):
        assert_type(await again.run(research, "otters"), str)


if __name__ == "__main__":
    asyncio.run(main())
