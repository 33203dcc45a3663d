"""The sync client, as users write it: the same types without `await`."""

from typing import Any, assert_type

from tests.typing.declaring import nothing, research, research_again

import holdfast
import holdfast.sync


def main() -> None:
    with holdfast.sync.open("sqlite:agents.db", agents=[research, research_again]) as hf:
        assert_type(hf, holdfast.sync.Client)
        run = hf.start(research, "otters", depth=2, id="otters")
        assert_type(run, holdfast.sync.Run[str])
        assert_type(run.id, str)
        assert_type(run.created, bool)
        assert_type(run.result(timeout="10s"), str)
        assert_type(hf.run(research_again, "otters", depth=2), list[str])
        assert_type(hf.start(nothing), holdfast.sync.Run[None])
        assert_type(hf.start("research", "otters"), holdfast.sync.Run[Any])
        assert_type(hf.get("otters", research), holdfast.sync.Run[str])
        assert_type(hf.schedule("daily", research, "0 7 * * *"), holdfast.sync.ScheduleHandle)
        assert_type(hf.get_schedule("daily").pause(), holdfast.ScheduleInfo)
        for event in run.events():
            assert_type(event, holdfast.RunEvent)
        for chunk in run.stream("answer"):
            assert_type(chunk, holdfast.Chunk)
        assert_type(run.wait_for_question(timeout=3), holdfast.Approval)
        receipt = run.send("word", "x", key="k")
        assert_type(receipt, holdfast.sync.Receipt)
        assert_type(receipt.seen_at(), int | None)
        assert_type(hf.runs(status="failed"), list[holdfast.RunInfo])
        assert_type(hf.approve("otters", by="ana"), holdfast.Approval)
        assert_type(hf.conversation("c", str), holdfast.sync.Transcript[str])
        assert_type(hf.conversation("c", str).messages(), list[holdfast.Message[str]])
        with hf.deadline("5s"):
            run.cancel()
        assert_type(hf.retry(agent=research), list[str])
    hf.close()


def wrong(hf: holdfast.sync.Client) -> None:
    hf.start(research, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    number: int = hf.run(research, "a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert number
