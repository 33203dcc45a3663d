"""What is more than a cluster takes at once: journals, arguments and questions whose sum is too large for a message of its."""

import asyncio
import contextlib
import json

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from tests.grounds import loads
from tests.grounds.loads import (
    asks_edit,
    asks_much,
    asks_often,
    asks_texts,
    begets,
    begets_one,
    child_of_many,
    complains,
    gathers,
    hears_much,
    hears_text,
    heavy,
    naps,
    refused,
    spread,
    tells_much,
)
from tests.grounds.test_kills import replays
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal import history

QUICK = holdfast.Settings(lease_ttl_s=8.0)


async def failed_tasks(hf, run):
    """Workflow tasks of a run that were refused; one that the server ends itself, because something came meanwhile, was not."""
    history = await hf.store.client.get_workflow_handle(run.id).fetch_history()
    failed = [
        each.workflow_task_failed_event_attributes
        for each in history.events
        if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    cause = WorkflowTaskFailedCause
    meanwhile = (
        cause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND, cause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    )  # fmt: skip
    return [each for each in failed if each.cause not in meanwhile]


async def is_replayable(url):
    await asyncio.sleep(1.5)  # the index of the cluster is a moment behind
    await asyncio.to_thread(replays, url, ["77"])


# A journal that is too long for a payload


@pytest.mark.slow
async def test_a_run_whose_journal_is_too_long_to_be_carried_is_paused_where_it_is(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(heavy, 4)
        await run.wait("waiting", timeout="60s")
        for _ in range(2):
            await run.pause(by="ann")
            info = await run.wait("paused", "failed", timeout="60s")
            assert (info.status, info.reason) == ("paused", "paused by ann")
            await run.resume(by="ann")
        await run.send("go", "now")
        assert await run.result(timeout="60s") == 3_600_000
        kinds = [event.kind async for event in run.events(follow=False)]
        assert kinds.count("step.completed") == 4
        assert [await failed_tasks(hf, run), kinds.count("run.resumed")] == [[], 2]
        await is_replayable(temporal_url)


@pytest.mark.nightly
async def test_a_run_whose_journal_is_too_long_goes_on_behind_its_longest_history(temporal_url, tmp_path):  # noqa: F811
    """Without a folder it stays in its execution; with one it leaves it, and its journal lies there."""
    url = f"{temporal_url}&events=60"
    async with holdfast.open(url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(heavy, 12)
        await run.wait("waiting", timeout="90s")
        first = (await hf.store.client.get_workflow_handle(run.id).describe()).run_id
        await run.pause()
        await run.wait("paused", timeout="60s")
        await is_replayable(url)
    async with holdfast.open(f"{url}&blobs={tmp_path}", agents=[loads], settings=QUICK) as hf:
        run = hf.get(run.id)
        with contextlib.suppress(
            holdfast.Unconfirmed
        ):  # 11 MB are read and packed before it goes on, on a busy machine for long
            await run.resume()
        await run.send("go", "now")
        assert await run.result(timeout="150s") == 12 * 900_000
        described = await hf.store.client.get_workflow_handle(run.id).describe()
        assert described.run_id != first
        kinds = [event.kind async for event in run.events(follow=False)]
        assert kinds.count("step.completed") == 12


@pytest.mark.nightly
async def test_a_run_whose_history_is_nearly_full_waits_for_a_folder(temporal_url, tmp_path):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(heavy, 50)
        info = await run.wait("paused", timeout="150s")
        assert "?blobs=FOLDER. Its history is nearly as long as a cluster allows" in info.reason
    async with holdfast.open(f"{temporal_url}&blobs={tmp_path}", agents=[loads], settings=QUICK) as hf:
        run = hf.get(run.id)
        with contextlib.suppress(
            holdfast.Unconfirmed
        ):  # 40 MB are read before it goes on: on a busy machine for longer than 30 s
            await run.resume()
        await run.send("go", "now")
        assert await run.result(timeout="150s") == 50 * 900_000


@pytest.mark.slow
async def test_a_retry_has_the_recorded_values_or_is_refused(temporal_url, tmp_path):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        for steps in (1, 4):
            refused.append(True)
            run = await hf.start(heavy, steps, fails=True, id=f"heavy-{steps}")
            await run.wait("failed", timeout="60s")
            if steps == 1:
                await run.retry()
                await run.send("go", "now")
                assert await run.result(timeout="60s") == 900_000
        with pytest.raises(holdfast.BadArguments, match=r"\?blobs=FOLDER"):
            await run.retry()
        assert (await run.info()).status == "failed"
    async with holdfast.open(f"{temporal_url}&blobs={tmp_path}", agents=[loads], settings=QUICK) as hf:
        run = hf.get(run.id)
        await run.retry()
        await run.send("go", "now")
        assert await run.result(timeout="60s") == 3_600_000


@pytest.mark.slow
async def test_a_run_whose_journal_is_too_long_is_not_exported_and_goes_on(temporal_url, tmp_path):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(heavy, 4)
        await run.wait("waiting", timeout="60s")
        holdfast.Keys(tmp_path / "keys").new("ops")
        with pytest.raises(holdfast.BadArguments, match=r"\?blobs=FOLDER"):
            await run.export(tmp_path / "heavy.bundle", keys=tmp_path / "keys")
        await run.send("go", "now")
        assert await run.result(timeout="60s") == 3_600_000
        assert await failed_tasks(hf, run) == []


# A workflow task that is too large for a message


@pytest.mark.by_day("children")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "many", "size", "blobs"),
    [
        (spread, 12, 400_000, False),
        (spread, 100, 60_000, True),
        (begets, 12, 400_000, False),
        (gathers, 6, 900_000, False),
    ],
    ids=["arguments", "below the threshold", "children", "results"],
)
async def test_what_begins_at_once_goes_in_several_messages(temporal_url, tmp_path, agent, many, size, blobs):  # noqa: F811
    url = f"{temporal_url}&blobs={tmp_path}" if blobs else temporal_url
    async with holdfast.open(url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(agent, many, size)
        assert await run.result(timeout="90s") == many * size
        assert await failed_tasks(hf, run) == []
        await is_replayable(url)


@pytest.mark.slow
async def test_messages_that_are_heard_at_once_are_recorded_in_pieces(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(hears_much, 8)
        for _ in range(8):
            await run.send("text", "x" * 900_000)
        await run.send("go", "now")
        assert await run.result(timeout="90s") == 8 * 900_000
        sizes = [event.size async for event in run.events(follow=False, kinds="message.received")]
        assert sorted(sizes)[1:] == [900_002] * 8
        assert await failed_tasks(hf, run) == []
        await is_replayable(temporal_url)


@pytest.mark.by_day("large")
@pytest.mark.slow
@pytest.mark.parametrize(("many", "size"), [(50, 60_000), (200, 4)], ids=["large", "many"])
async def test_open_questions_are_told_in_pieces(temporal_url, many, size):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(asks_much, many, size)
        await run.wait("waiting", waits_for="person", timeout="60s")
        async with holdfast.open(temporal_url) as other:  # knows nothing but the cluster
            while len(found := await other.approvals(limit=500)) < many:
                await asyncio.sleep(0.1)  # the index of the cluster is a moment behind
            assert sorted(question.shown for question in found) == [f"{n}".zfill(size) for n in range(many)]
        async with holdfast.open(temporal_url) as other:
            await other.approve(found[-1].id, by="ann", digest=found[-1].digest)
        await asyncio.gather(*(hf.approve(question, by="ann") for question in found[:-1]))
        assert await run.result(timeout="60s") == many
        assert await failed_tasks(hf, run) == []
        await is_replayable(temporal_url)


# A value that a client sends

WIDE = 999_998  # characters of a text, which are a million bytes with its quotes


@pytest.mark.slow
@pytest.mark.parametrize("more", [1, 500_000, 4_000_000])
async def test_what_is_sent_and_is_too_large_is_refused_before_it_is_sent(temporal_url, more):  # noqa: F811
    """Its sender hears how large it is and what to do, and the run waits on."""
    text, told = (
        "m" * (WIDE + more),
        r"is more than the limit of (976.6 KiB|1,000,000 bytes); name a folder .*\?blobs=FOLDER",
    )
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        asked, edited, heard = await asyncio.gather(hf.start(asks_texts, 1), hf.start(asks_edit), hf.start(hears_text))
        question, other = await asked.wait_for_question(), await edited.wait_for_question()
        for sent in (
            lambda: hf.start(child_of_many, text),
            lambda: heard.send("text", text),
            lambda: hf.answer(question, text, by="ann"),
            lambda: hf.approve(other, data={"text": text}, by="ann"),
        ):
            with pytest.raises(holdfast.NotStorable, match=told):
                await sent()
        await heard.send("text", "small")
        await hf.answer(question, "small", by="ann")
        await hf.approve(other, by="ann")
        assert [await run.result(timeout="30s") for run in (asked, edited, heard)] == [5, 1, 5]


@pytest.mark.slow
@pytest.mark.by_day("escaped")
@pytest.mark.parametrize("character", ["m", "\n"], ids=["plain", "escaped"])
async def test_what_is_just_as_large_as_a_value_may_be_is_taken(temporal_url, character):  # noqa: F811
    text = character * (WIDE // len(repr(character)[1:-1]))
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        asked, edited, heard = await asyncio.gather(hf.start(asks_texts, 1), hf.start(asks_edit), hf.start(hears_text))
        answer = await hf.answer(await asked.wait_for_question(), text, by="ann")
        edit = await hf.approve(await edited.wait_for_question(), data={"text": text[:-10]}, by="ann")
        assert (answer.data, edit.data) == (text, {"text": text[:-10]})
        await heard.send("text", text)
        results = [await run.result(timeout="30s") for run in (asked, edited, heard)]
        assert results == [len(text), len(text) - 10, len(text)]
        assert [await failed_tasks(hf, run) for run in (asked, edited, heard)] == [[], [], []]
        await is_replayable(temporal_url)


@pytest.mark.nightly
async def test_answers_that_are_given_at_once_go_in_several_messages(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(asks_texts, 6)
        await run.wait_for_question()
        questions = await hf.approvals(run=run.id)
        assert len(questions) == 6
        await asyncio.gather(*(hf.answer(question, "m" * 900_000, by="ann") for question in questions))
        assert await run.result(timeout="60s") == 6 * 900_000
        assert await failed_tasks(hf, run) == []
        await is_replayable(temporal_url)


@pytest.mark.slow
async def test_what_a_client_sends_lies_in_the_folder_if_there_is_one(temporal_url, tmp_path):  # noqa: F811
    text = "m" * 5_000_000
    async with holdfast.open(f"{temporal_url}&blobs={tmp_path}", agents=[loads], settings=QUICK) as hf:
        asked, edited, heard, child = await asyncio.gather(
            hf.start(asks_texts, 1), hf.start(asks_edit), hf.start(hears_text), hf.start(child_of_many, text)
        )
        await hf.answer(await asked.wait_for_question(), text, by="ann")
        await hf.approve(await edited.wait_for_question(), data={"text": text}, by="ann")
        await heard.send("text", text)
        assert [await run.result(timeout="60s") for run in (asked, edited, heard, child)] == [5_000_000] * 4


@pytest.mark.slow
async def test_arguments_that_travel_longer_than_they_are_are_refused_clearly(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        with pytest.raises(
            holdfast.NotStorable, match=r"957 KiB travel as 2.3 MiB, because of what is escaped .*\?blobs=FOLDER"
        ):
            await hf.start(child_of_many, "\n" * 490_000)
        run = await hf.start(child_of_many, "\n" * 300_000)
        assert await run.result(timeout="30s") == 300_000


@pytest.mark.slow
async def test_arguments_of_a_child_that_travel_too_long_fail_it_alone(temporal_url, tmp_path):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(begets_one, "\n", 490_000)
        assert "957 KiB travel as 2.3 MiB, because of what is escaped" in await run.result(timeout="60s")
        assert await failed_tasks(hf, run) == []
        await is_replayable(temporal_url)
    async with holdfast.open(f"{temporal_url}&blobs={tmp_path}", agents=[loads], settings=QUICK) as hf:
        assert await hf.run(begets_one, "\n", 490_000) == "490000"
        await is_replayable(f"{temporal_url}&blobs={tmp_path}")


@pytest.mark.slow
@pytest.mark.by_day("cut")
@pytest.mark.parametrize("blobs", [False, True], ids=["cut", "folder"])
async def test_what_is_too_large_for_a_payload_is_recorded_in_parts(temporal_url, tmp_path, blobs):  # noqa: F811
    """A line of the history, and a question whose value was edited: it has both values, each with many quotes."""
    url = f"{temporal_url}&blobs={tmp_path}" if blobs else temporal_url
    edited = {"text": '"' * 449_999 + "m"}
    async with holdfast.open(url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(tells_much, 5_000_000)
        await hf.approve(await run.wait_for_question(timeout="60s"), data=edited, by="ann")
        async with asyncio.timeout(30):
            while (question := (await hf.approvals(run=run.id))[0]).data != edited:
                await asyncio.sleep(0.1)  # the history has it a moment later, because it goes in several messages
        await hf.approve(question, by="ben")
        assert await run.result(timeout="60s") == edited["text"]
        assert await failed_tasks(hf, run) == []
        await is_replayable(url)
    async with holdfast.open(url) as hf:  # another one reads the same, in whatever order
        (note,) = [event async for event in hf.get(run.id).events(kinds="note", follow=False)]
        assert await hf.get(run.id).value(note.seq) == {"text": "much", "data": {"text": "m" * 5_000_000}}
        found = await history.since(
            hf.store.client, await hf.store.client.get_workflow_handle(run.id).describe(), note.seq
        )
        assert found.events[0].value == json.dumps(
            {"text": "much", "data": {"text": "m" * 5_000_000}}, separators=(",", ":")
        )


@pytest.mark.nightly
async def test_a_question_that_was_decided_in_a_former_execution_is_not_open(temporal_url):  # noqa: F811
    async with holdfast.open(f"{temporal_url}&events=60", agents=[loads], settings=QUICK) as hf:
        run = await hf.start(asks_often, 70)
        for n in range(69):
            await hf.approve(await until(run, f"q{n}"), by="ann")
        await until(run, "q69")
    async with holdfast.open(f"{temporal_url}&events=60") as hf:
        assert [each.question for each in await hf.approvals(run=run.id)] == ["q69"]


async def until(run, question):
    """Wait for this question: one that was decided may be shown for a moment."""
    async with asyncio.timeout(60):
        while question not in [each.question for each in await run.approvals()]:
            await asyncio.sleep(0.05)
    return next(each for each in await run.approvals() if each.question == question)


@pytest.mark.slow
async def test_a_step_whose_error_is_too_large_fails_once(temporal_url):  # noqa: F811
    loads.begun.clear()
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        assert "[...]" in await hf.run(complains, 3_000_000)
    assert loads.begun == [3_000_000]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2_500_000, 5_000_000], ids=["payload", "message"])
async def test_a_cluster_that_refuses_what_is_too_large_is_there(temporal_url, size):  # noqa: F811
    """Whatever was not measured before it was sent: its sender does not hear that the cluster is away."""
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(hears_text)
        with pytest.raises(holdfast.NotStorable, match=r"too large for the cluster .*\?blobs=FOLDER"):
            await hf.store._signal(run.id, {"id": "large", "kind": "", "value": "m" * size})


@pytest.mark.slow
async def test_a_cancel_takes_bodies_out_of_the_queue_although_others_end_meanwhile(temporal_url):  # noqa: F811
    loads.begun.clear()
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(naps, 600)
        while len(loads.begun) < 20:
            await asyncio.sleep(0.005)
        await run.cancel(by="ann")
        await run.wait("cancelled", timeout="60s")
        assert len(loads.begun) < 550
        await is_replayable(temporal_url)


@pytest.mark.slow
async def test_answers_that_waited_for_a_worker_go_in_several_messages(temporal_url):  # noqa: F811
    """All of them are in the first workflow task that the worker takes."""
    async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as hf:
        run = await hf.start(asks_texts, 6)
        await run.wait_for_question()
    async with holdfast.open(temporal_url, settings=QUICK) as hf:
        questions = await hf.approvals(run=run.id)
        assert len(questions) == 6
        answers = asyncio.gather(*(hf.answer(question, "m" * 900_000, by="ann") for question in questions))
        await asyncio.sleep(1)
        async with holdfast.open(temporal_url, agents=[loads], settings=QUICK) as worker:
            await answers
            assert await worker.get(run.id).result(timeout="60s") == 6 * 900_000
            assert await failed_tasks(worker, run) == []
            await is_replayable(temporal_url)
