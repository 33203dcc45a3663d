"""What is particular to a Temporal cluster: what it lacks, the command line, frameworks, and operators who know it alone."""

import asyncio
import json
import os
import subprocess
import sys

import httpx2
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from tests.grounds import scenes
from tests.grounds.test_kills import ROOT, Fleet
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal.address import DECIDE, Address
from holdfast.integrations.pydantic_ai import HoldfastDurability

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@holdfast.step(transaction=True)
async def in_a_transaction() -> None: ...


@holdfast.step(rate=holdfast.Rate(5, every="1s"))
async def rated() -> None: ...


@holdfast.agent(limit=3)
async def limited() -> None: ...


@holdfast.agent(singleton=True)
async def alone() -> None: ...


@holdfast.agent(budget=holdfast.Budget(usd=1))
async def frugal() -> None: ...


@holdfast.agent
async def transacts() -> None:
    await in_a_transaction()


@holdfast.agent
async def is_rated() -> None:
    await rated()


@holdfast.agent
async def talks() -> str:
    async with holdfast.conversation("user-1"):
        return "said"


@holdfast.agent
async def asks_beside(steps: int) -> int:
    async with asyncio.TaskGroup() as both:
        both.create_task(holdfast.approve("Send it?"))
        return sum([len(await scenes.work("x")) for _ in range(steps)])


def scripted(messages, info):
    turns = sum(isinstance(message, ModelResponse) for message in messages)
    if turns < 2:
        calls = [ToolCallPart("shout", {"what": f"t{turns}-{n}"}, tool_call_id=f"call-{turns}-{n}") for n in range(2)]
        return ModelResponse(parts=calls)
    found = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return ModelResponse(parts=[TextPart(" ".join(found))])


clerk = Agent(FunctionModel(scripted, model_name="scripted"), name="clerk", capabilities=[HoldfastDurability()])


@clerk.tool_plain
async def shout(what: str) -> str:
    return what.upper()


@holdfast.agent
async def asks_a_model() -> str:
    return (await clerk.run("go")).output


def test_the_package_does_not_load_temporal_unless_it_is_asked_for():
    code = "import sys, holdfast; holdfast.open; print('temporalio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize("agent", [limited, alone, frugal, transacts, is_rated], ids=lambda agent: agent.name)
async def test_what_spans_runs_is_refused_where_it_is_declared(temporal_url, agent):  # noqa: F811
    with pytest.raises(holdfast.Unsupported, match=agent.name):
        async with holdfast.open(temporal_url, agents=[agent]):
            pass
    async with holdfast.open(temporal_url) as hf:
        with pytest.raises(holdfast.Unsupported, match=agent.name):
            await hf.start(agent)


@pytest.mark.slow
async def test_what_a_cluster_lacks_says_so(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[talks, scenes.sequential], settings=QUICK) as hf:
        run = await hf.start(talks)
        with pytest.raises(holdfast.RunPaused, match="a conversation, which needs a database"):
            await run.result(timeout="30s")
        await run.cancel()
        with pytest.raises(holdfast.Unsupported):
            await hf.audit()
        with pytest.raises(holdfast.Unsupported):
            await anext(aiter(hf.events(follow=False)))
        with pytest.raises(holdfast.Unsupported):
            await hf.publish("news", {})
        done = await hf.start(scenes.sequential, 1)
        await done.result(timeout="30s")
        with pytest.raises(holdfast.Unsupported):
            await done.fork()


@pytest.mark.slow
async def test_an_agent_of_pydantic_ai_runs_as_it_is(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[asks_a_model], settings=QUICK) as hf:
        run = await hf.start(asks_a_model)
        assert await run.result(timeout="60s") == "T0-0 T0-1 T1-0 T1-1"


@pytest.mark.slow
async def test_a_cancel_of_temporal_s_own_lets_the_agent_tidy_up(temporal_url):  # noqa: F811
    scenes.begun.clear()
    async with holdfast.open(temporal_url, agents=[scenes.tidies], settings=QUICK) as hf:
        run = await hf.start(scenes.tidies)
        await run.wait("waiting", waits_for="message", timeout="30s")
        await hf.store.client.get_workflow_handle(run.id).cancel()
        with pytest.raises(holdfast.RunCancelled, match="Temporal"):
            await run.result(timeout="30s")
        described = await hf.store.client.get_workflow_handle(run.id).describe()
    assert scenes.begun["work#1(tidied)"] == 1
    assert described.status.name == "CANCELED"


@pytest.mark.slow
async def test_a_run_that_an_operator_ends_is_cancelled(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[scenes.tidies], settings=QUICK) as hf:
        run = await hf.start(scenes.tidies)
        await run.wait("waiting", waits_for="message", timeout="30s")
        await hf.store.client.get_workflow_handle(run.id).terminate()
        with pytest.raises(holdfast.RunCancelled, match="terminated on Temporal"):
            await run.result(timeout="30s")


@pytest.mark.slow
async def test_a_run_that_the_server_ends_has_failed_and_says_why(temporal_url):  # noqa: F811
    """A worker that could not send its answer says so, and the server ends the workflow."""
    async with holdfast.open(temporal_url) as hf:
        run = await hf.start(scenes.sequential, 1)
        client, queue = hf.store.client, hf.store.address.task_queue("sequential", None, "default")
        polled = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
        task = await client.workflow_service.poll_workflow_task_queue(polled)
        cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_GRPC_MESSAGE_TOO_LARGE
        await client.workflow_service.respond_workflow_task_failed(
            RespondWorkflowTaskFailedRequest(namespace=client.namespace, task_token=task.task_token, cause=cause)
        )
        with pytest.raises(holdfast.RunFailed, match=r"the server terminated the workflow: .*GrpcMessageTooLarge"):
            await run.result(timeout="30s")
        assert (await run.info()).status == "failed"
        while [each.status for each in await hf.runs()] != ["failed"]:
            await asyncio.sleep(0.1)  # the index of the cluster is a moment behind


@pytest.mark.slow
async def test_a_run_that_the_server_ends_while_it_waits_for_a_person_is_retried(temporal_url):  # noqa: F811
    """It waits for the same answer: its question is open again, and is told before a worker has the run."""
    async with holdfast.open(temporal_url, agents=[asks_beside], settings=QUICK) as hf:
        run = await hf.start(asks_beside, 1)
        question = await run.wait_for_question(timeout="30s")
        await run.wait("waiting", waits_for="person", timeout="60s")
    async with holdfast.open(temporal_url) as hf:
        run = hf.get(run.id)
        await run.send("more", "x")  # there is a workflow task
        client, queue = hf.store.client, hf.store.address.task_queue("asks_beside", None, "default")
        polled = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
        task = await client.workflow_service.poll_workflow_task_queue(polled)
        cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_GRPC_MESSAGE_TOO_LARGE
        await client.workflow_service.respond_workflow_task_failed(
            RespondWorkflowTaskFailedRequest(namespace=client.namespace, task_token=task.task_token, cause=cause)
        )
        await run.wait("failed", timeout="30s")
        await run.retry()
        assert (await run.wait_for_question(timeout="30s")).id == question.id
    async with holdfast.open(temporal_url, agents=[asks_beside], settings=QUICK) as hf:
        await hf.approve(await hf.get(run.id).wait_for_question(timeout="30s"), by="ann")
        await hf.get(run.id).result(timeout="30s")


@pytest.mark.slow
async def test_an_answer_is_counted_although_the_tasks_of_its_run_fail(temporal_url):  # noqa: F811
    """The server refuses to ask a run whose workflow tasks fail: the client asks again until a worker carries the run."""
    async with holdfast.open(temporal_url, agents=[asks_beside], settings=QUICK) as hf:
        run = await hf.start(asks_beside, 1)
        question = await run.wait_for_question(timeout="60s")
        await run.wait("waiting", waits_for="person", timeout="60s")
    async with holdfast.open(temporal_url) as other:
        client, queue = other.store.client, other.store.address.task_queue("asks_beside", None, "default")
        polled = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
        await other.get(run.id).send("nothing", "word")
        for _ in range(3):
            task = await client.workflow_service.poll_workflow_task_queue(polled)
            await client.workflow_service.respond_workflow_task_failed(
                RespondWorkflowTaskFailedRequest(namespace=client.namespace, task_token=task.task_token)
            )
        with pytest.raises(RPCError) as refused:
            await client.get_workflow_handle(run.id).execute_update(DECIDE, {})
        assert refused.value.status == RPCStatusCode.FAILED_PRECONDITION
        decided = asyncio.create_task(other.approve(question.id, by="ann", digest=question.digest))
        async with holdfast.open(temporal_url, agents=[asks_beside], settings=QUICK) as hf:
            await decided
            assert await hf.get(run.id).result(timeout="60s") == 1


@pytest.mark.slow
async def test_a_run_is_paused_and_resumed_while_a_body_runs_as_often_as_one_likes(temporal_url):  # noqa: F811
    begun, let_go = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def long(n: int) -> int:
        begun.set()
        await let_go.wait()
        return n

    @holdfast.agent
    async def twice() -> list[int]:
        return [await long(n) for n in range(2)]

    async with holdfast.open(temporal_url, agents=[twice], settings=QUICK) as hf:
        run = await hf.start(twice)
        await asyncio.wait_for(begun.wait(), 60)
        await run.pause()
        let_go.set()
        await run.wait("paused", timeout="60s")
        begun.clear()
        let_go.clear()
        await run.resume()
        await asyncio.wait_for(begun.wait(), 60)
        for _ in range(2):
            await run.pause()
            await run.resume()
        await until_recorded(run, "run.resumed", 3)  # a resume that is recorded while one asks for another is that one
        with pytest.raises(holdfast.RunActive):
            await run.resume()
        let_go.set()
        assert await run.result(timeout="60s") == [0, 1]


@pytest.mark.slow
async def test_an_execution_tells_of_open_questions_before_a_worker_has_it(temporal_url):  # noqa: F811
    """A run goes on in another execution: whoever lists, or decides, in between must not be told that nothing is asked."""
    url = f"{temporal_url}&events=60"
    async with holdfast.open(url, agents=[asks_beside], settings=QUICK) as hf:
        run = await hf.start(asks_beside, 30)
        question = await run.wait_for_question(timeout="60s")
        await run.wait("waiting", waits_for="person", timeout="60s")
        described = await hf.store.client.get_workflow_handle(run.id).describe()
        history = await hf.store.client.get_workflow_handle(run.id, run_id=described.run_id).fetch_history()
        begun = history.events[0].workflow_execution_started_event_attributes
        assert begun.continued_execution_run_id
        assert question.id in begun.memo.fields["Holdfast"].data.decode()
        assert "HoldfastJournal" not in begun.memo.fields
        assert question.id in begun.search_attributes.indexed_fields["HoldfastQuestions"].data.decode()
        async with holdfast.open(url) as other:
            await other.approve(question.id, by="ann", digest=question.digest)
        assert await run.result(timeout="60s") == 30


@pytest.mark.long
@pytest.mark.slow
async def test_a_run_is_read_when_the_cluster_has_forgotten_its_first_executions(temporal_url):  # noqa: F811
    async with holdfast.open(f"{temporal_url}&events=60", agents=[scenes.loops], settings=QUICK) as hf:
        run = await hf.start(scenes.loops, 40)
        await run.result(timeout="120s")
        client = hf.store.client
        handle = client.get_workflow_handle(run.id)
        first = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        before = first.first_execution_run_id
        assert first.continued_execution_run_id
        gone = WorkflowExecution(workflow_id=run.id, run_id=before)
        await client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=gone)
        )
        while await is_there(client, run.id, before):
            await asyncio.sleep(0.1)  # the server forgets in its own time
    async with holdfast.open(temporal_url) as hf:
        assert [event.kind async for event in hf.get(run.id).events(follow=False)][-1] == "run.completed"


async def until_recorded(run, kind, times):
    while [event.kind async for event in run.events(follow=False)].count(kind) < times:
        await asyncio.sleep(0.05)


async def is_there(client, run, execution):
    try:
        await client.get_workflow_handle(run, run_id=execution).describe()
    except RPCError:
        return False
    return True


@pytest.mark.slow
async def test_a_server_that_does_not_know_its_namespace_yet_does_not_answer(temporal_url):  # noqa: F811
    """So it is for a moment when it starts. It is not the run that is not there."""
    async with holdfast.open(temporal_url) as hf:
        hf.store._client = await Client.connect(hf.store.address.target, namespace="nowhere")
        with pytest.raises(holdfast.StoreUnavailable, match="nowhere"):
            await hf.get("a-run").info()
        with pytest.raises(holdfast.StoreUnavailable, match="nowhere"):
            await hf.runs()


@pytest.mark.slow
async def test_two_versions_of_an_agent_have_their_own_workers(temporal_url):  # noqa: F811
    @holdfast.agent(name="versioned", version="1")
    async def first() -> str:
        return await scenes.work("one")

    @holdfast.agent(name="versioned", version="2")
    async def second() -> str:
        return await scenes.work("two")

    async with holdfast.open(temporal_url) as hf:
        run = await hf.start(first)
        async with holdfast.open(temporal_url, agents=[second], settings=QUICK) as other:
            assert await other.run(second) == "TWO"
            assert (await run.info()).status == "ready"
            async with holdfast.open(temporal_url, agents=[first], settings=QUICK):
                assert await run.result(timeout="30s") == "ONE"


@pytest.mark.slow
async def test_the_api_shows_runs_and_decides(temporal_url):  # noqa: F811
    """Mounted in an application that says who asks: a cluster keeps no tokens."""
    async with holdfast.open(temporal_url, agents=[scenes.approvals], settings=QUICK) as hf:
        app = hf.asgi(auth=lambda _: holdfast.Actor("ann"))
        run = await hf.start(scenes.approvals, "draft", id="api-1")
        question = await run.wait_for_question(timeout="30s")
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as web:
            while not (listed := (await web.get("/api/runs")).json()["runs"]):
                await asyncio.sleep(0.1)  # the index of the cluster is a moment behind
            assert [each["id"] for each in listed] == ["api-1"]
            events = (await web.get("/api/runs/api-1/events")).json()["events"]
            assert [event["kind"] for event in events] == ["approval.asked"]
            path, page = f"/api/approvals/{question.id}", {"X-Holdfast-Page": "1"}
            said = await web.post(path, json={"decision": "deny", "digest": question.digest}, headers=page)
            assert said.status_code == 200, said.text
        kinds = [event.kind async for event in run.events(follow=False)]
        assert "approval.decided" in kinds


def command(url, *words, check=True):
    env = {**os.environ, "PYTHONPATH": ROOT, "HOLDFAST_URL": url}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], env=env, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_command_line_works_over_a_cluster(temporal_url, tmp_path):  # noqa: F811
    fleet = Fleet(temporal_url, tmp_path)
    fleet.start()
    try:
        asyncio.run(_published(temporal_url))
        command(temporal_url, "start", "canonical", "otters", "--id", "cli-1")
        assert command(temporal_url, "send", "cli-1", "go", "now").splitlines()[0] == "Sent to cli-1 on 'go'."
        asyncio.run(_asked(temporal_url))
        assert "Send it?" in command(temporal_url, "approvals")
        command(temporal_url, "approve", "cli-1", "--by", "ann", "--data", '{"text": "edited", "n": 2}')
        assert "completed" in command(temporal_url, "tail", "cli-1")
        shown = command(temporal_url, "show", "cli-1")
        assert "approved by ann" in shown
        assert "✓ completed" in shown
        listed = json.loads(command(temporal_url, "runs", "--json"))["runs"]
        assert [run["status"] for run in listed if run["id"] == "cli-1"] == ["completed"]
    finally:
        fleet.kill()


async def _published(url):
    async with holdfast.open(url) as hf:
        while "canonical" not in [agent.name for agent in await hf.agents()]:
            await asyncio.sleep(0.1)


async def _asked(url):
    async with holdfast.open(url) as hf:
        await hf.get("cli-1").wait_for_question(timeout="60s")
        while not await hf.approvals():  # the index of the cluster is a moment behind
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("sied=postgresql://ann:hunter2@h/db", "'sied'; there are"),
        ("blob=/x", "'blob'; there are"),
        ("side=postgresql://ann:hunt&er2zz=x@h/db", "'***'; there are"),
    ],
)
def test_an_option_that_is_mistyped_is_named_and_a_piece_of_a_password_is_not(query, name):
    with pytest.raises(holdfast.BadArguments) as error:
        Address.of(f"temporal://127.0.0.1:7233/default?{query}")
    assert f"there is no option {name}" in str(error.value)
    assert "hunt" not in str(error.value) and "er2" not in str(error.value)
    if "sied" in query:
        assert str(error.value).endswith("Did you mean side=?")
