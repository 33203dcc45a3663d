"""Runs of a Temporal cluster that no worker serves, or whose code does not fit: those who ask for something are told so."""

import asyncio
import dataclasses
import threading
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal import store
from holdfast.backends.temporal.activities import Activities
from holdfast.backends.temporal.outcomes import Outcomes
from holdfast.cli import main

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@holdfast.step
async def work(n: int) -> int:
    return n


@holdfast.agent
async def asks() -> str:
    await work(1)
    return "yes" if await holdfast.approve("Go on?") else "no"


@holdfast.agent
async def above() -> str:
    try:
        return await asks()
    except holdfast.RunCancelled:
        return "it was cancelled"


@holdfast.agent(queue="far")
async def far() -> str:
    return "done"


@holdfast.agent
async def calls_far() -> str:
    try:
        return await far()
    except holdfast.RunCancelled:
        return "it was cancelled"


async def begun(url, top, below):
    """A family that waits for a person, and whose workers are gone: its root and all below it."""
    async with holdfast.open(url, agents=below, settings=QUICK) as hf:
        run = await hf.start(top)
        await run.wait_for_question(timeout="60s")
        await run.wait("waiting", timeout="60s")
        return [run.id, *[each.id for each in await hf.runs(parent=run.id)]]


class Since:
    """So many seconds as have passed since a moment; a cluster counts whole ones."""

    def __init__(self):
        self._from = time.time() + 1

    def __rsub__(self, now):
        return self._from


@pytest.fixture
def all_gone(monkeypatch):
    """Let workers that have polled until now count as gone at once; a cluster remembers them for minutes."""
    return lambda: monkeypatch.setattr(store, "_ALIVE_S", Since())


@pytest.mark.slow
async def test_a_second_cancel_ends_a_run_that_nobody_serves_with_all_below_it(temporal_url, all_gone):  # noqa: F811
    root, child = await begun(temporal_url, above, [above, asks])
    all_gone()
    async with holdfast.open(temporal_url) as hf:
        run = hf.get(root)
        await run.cancel(by="ana", reason="too dear")
        info = await run.info()
        assert (info.status, info.waits_for) == ("ready", "worker")
        await run.cancel(by="ben")
        assert (await run.info()).status == "cancelled"
    async with holdfast.open(temporal_url) as hf:  # another one sees the same
        wanted = {root: "cancelled by ben: too dear", child: f"cancelled by run {root}: too dear"}
        while {each.id: each.reason for each in await hf.runs(status="cancelled") if each.id in wanted} != wanted:
            await asyncio.sleep(0.1)  # the index of the cluster is a moment behind
        with pytest.raises(holdfast.RunCancelled, match="cancelled by ben: too dear"):
            await hf.get(root).result(timeout="10s")
        for each in (root, child):
            events = [event async for event in hf.get(each).events()]
            assert events[-1].kind == "run.cancelled"
        assert events[-1].data == {"by": f"run {root}", "reason": "too dear"}
        assert await hf.approvals(run=root) == []
        with pytest.raises(holdfast.RunFinished):
            await hf.get(root).send("go", "on")


@pytest.mark.slow
async def test_a_run_that_never_began_and_that_nobody_serves_is_cancelled_at_once(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url) as hf:
        run = await hf.start(asks)
        await run.cancel(by="ana")
        assert (await run.info()).reason == "cancelled by ana"
        assert [event.kind async for event in run.events()] == ["run.cancelled"]


@pytest.mark.slow
async def test_a_run_above_hears_that_a_run_was_ended_that_nobody_served(temporal_url, all_gone):  # noqa: F811
    near = holdfast.Settings(lease_ttl_s=3.0, queues=["default"])
    async with holdfast.open(temporal_url, agents=[calls_far], settings=near) as hf:
        run = await hf.start(calls_far)
        child = None
        while child is None:
            child = next((each.id for each in await hf.runs(parent=run.id)), None)
            await asyncio.sleep(0.05)
        await hf.get(child).cancel(by="ana")
        assert await run.result(timeout="30s") == "it was cancelled"
        assert (await hf.get(child).info()).reason == "cancelled by ana"


def command(*words):
    done = CliRunner().invoke(main, [*words], prog_name="holdfast")
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.slow
def test_the_command_says_that_nobody_serves_a_run_and_how_to_end_it(temporal_url, all_gone):  # noqa: F811
    (run,) = asyncio.run(begun(temporal_url, asks, [asks]))
    all_gone()
    told = command("cancel", run, "--db", temporal_url)
    assert f"{run} was told to stop, but no live worker serves 'asks', so nothing happens by itself" in told
    assert f"To end it now, as it is: holdfast cancel {run}" in told
    assert command("cancel", run, "--db", temporal_url) == f"{run} is cancelled."
    assert "cancelled by " in command("show", run, "--db", temporal_url)


async def before_the_change(n: int) -> str:
    await work(n)
    return "yes" if await holdfast.approve("Go on?") else "no"


async def after_the_change(n: int) -> str:
    await work(n + 1)
    return "yes" if await holdfast.approve("Go on?") else "no"


OLD = holdfast.agent(name="changes")(before_the_change)
NEW = holdfast.agent(name="changes")(after_the_change)


async def asked_of_old_code(url):
    async with holdfast.open(url, agents=[OLD], settings=QUICK) as hf:
        run = await hf.start(OLD, 1)
        question = await run.wait_for_question(timeout="60s")
        await run.wait("waiting", timeout="60s")
        return run.id, question.id


@pytest.mark.slow
async def test_a_run_whose_code_does_not_fit_its_history_says_so_and_goes_on_with_code_that_does(temporal_url):  # noqa: F811
    name, question = await asked_of_old_code(temporal_url)
    async with holdfast.open(temporal_url, agents=[NEW], settings=QUICK) as hf:
        run = hf.get(name)
        await run.send("anything", 1)
        info = await run.wait("paused", timeout="30s")
        assert "the history has a call under the key 'work#0', but the code gives it another input now" in info.reason
        with pytest.raises(holdfast.NondeterminismError, match="another input now"):
            await run.result(timeout="10s")
        with pytest.raises(holdfast.Unconfirmed, match=r"no worker can carry on run .* another input now"):
            async with asyncio.timeout(60):
                await hf.approve(question, by="ana")
    async with holdfast.open(temporal_url, agents=[OLD], settings=QUICK) as hf:
        await hf.approve(question, by="ana")
        assert await hf.get(name).result(timeout="60s") == "yes"


@pytest.mark.slow
async def test_a_run_whose_code_does_not_fit_its_history_can_be_cancelled(temporal_url):  # noqa: F811
    name, _ = await asked_of_old_code(temporal_url)
    async with holdfast.open(temporal_url, agents=[NEW], settings=QUICK) as hf:
        run = hf.get(name)
        await run.send("anything", 1)
        await run.wait("paused", timeout="30s")
        await run.cancel(by="ana")
        assert (await run.info()).reason == "cancelled by ana"


@pytest.mark.nightly
@pytest.mark.slow
async def test_lists_tell_of_a_run_whose_code_does_not_fit_its_history(temporal_url):  # noqa: F811
    """The server says so in its index after five tasks that failed, which takes a minute."""
    name, _ = await asked_of_old_code(temporal_url)
    async with holdfast.open(temporal_url, agents=[NEW], settings=QUICK) as hf:
        await hf.get(name).send("anything", 1)
        async with holdfast.open(temporal_url) as other, asyncio.timeout(150):
            while not (found := [each for each in await other.runs(stuck=True) if each.id == name]):
                await asyncio.sleep(1)
        assert found[0].status == "paused"
        assert "another input now" in found[0].reason


@pytest.mark.slow
async def test_a_decision_says_which_version_no_worker_serves(temporal_url, all_gone):  # noqa: F811
    soon = holdfast.Settings(lease_ttl_s=3.0, deadline_s=5.0)
    pinned, other = (holdfast.agent(name="pinned", version=each)(before_the_change) for each in "12")
    async with holdfast.open(temporal_url, agents=[pinned], settings=soon) as hf:
        run = await hf.start(pinned, 1)
        question = await run.wait_for_question(timeout="60s")
        await run.wait("waiting", timeout="60s")
    async with holdfast.open(temporal_url, settings=soon) as hf:
        with pytest.raises(holdfast.Unconfirmed, match="no worker with agent 'pinned' in version '1' answered"):
            await hf.approve(question, by="ana")
    all_gone()
    async with holdfast.open(temporal_url, agents=[other], settings=soon) as hf:
        with pytest.raises(holdfast.Unconfirmed, match="no worker serves agent 'pinned' in version '1'"):
            await hf.approve(question, by="ana")


at_work = threading.Event()


@holdfast.step
async def lasts() -> str:
    at_work.set()
    await asyncio.sleep(3600)
    return "done"


@holdfast.agent
async def works_long() -> str:
    return await lasts()


@pytest.mark.slow
def test_show_of_a_run_at_work_names_no_worker_that_the_cluster_does_not_tell(temporal_url):  # noqa: F811
    async def shown():
        soon = holdfast.Settings(lease_ttl_s=3.0, stop_grace_s=0.5)
        async with holdfast.open(temporal_url, agents=[works_long], settings=soon) as hf:
            run = await hf.start(works_long)
            assert await asyncio.to_thread(at_work.wait, 60)
            told = await asyncio.to_thread(command, "show", run.id, "--db", temporal_url)
            await run.cancel(grace=0)
            return told

    told = asyncio.run(shown())
    assert "a worker is on it" in told
    assert "None" not in told


async def test_a_body_that_is_gone_is_one_line_in_the_log_of_a_worker_and_no_traceback(caplog):
    activities = Activities(SimpleNamespace(outcomes=Outcomes(), queue="at-home"))
    asked = {"once": True, "after": "pay#0 12"}  # as the performer of a run asks
    raw, environment = RawValue(PayloadConverter.default.to_payload(asked)), ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, workflow_id="r-1")
    with pytest.raises(ApplicationError, match="not in this process") as found:
        await environment.run(activities.step, [raw])
    assert found.value.category == ApplicationErrorCategory.BENIGN  # the SDK logs any other with its traceback
    assert [record.getMessage() for record in caplog.records] == [
        "run 'r-1': the process that ran the body of 'pay#0' is gone, and in_doubt= decides what becomes of it"
    ]
