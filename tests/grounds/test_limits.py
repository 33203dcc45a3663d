"""Runs that are longer than a history of Temporal's may be, and values that are larger than its payloads."""

import asyncio
import os
import secrets
import time

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.worker._workflow_instance import _WorkflowInstanceImpl
from tests.grounds import canonical
from tests.temporal import cluster, own_cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal.address import Address
from holdfast.backends.temporal.records import Start, State
from holdfast.store.runs import NewRun
from holdfast.words.model import Event

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@pytest.fixture(autouse=True)
def ledger(monkeypatch):
    monkeypatch.setenv("LEDGER", os.devnull)


async def executions(hf, run):
    await asyncio.sleep(1.5)  # the index of the cluster is a moment behind
    found = [each async for each in hf.store.client.list_workflows(f"WorkflowId = '{run}'")]
    return len(found)


@pytest.mark.slow
async def test_an_agent_without_a_checkpoint_outlives_its_history(temporal_url):  # noqa: F811
    """It goes on in other executions, and its journal is one."""
    async with holdfast.open(f"{temporal_url}&events=60", agents=[canonical.long], settings=QUICK) as hf:
        run = await hf.start(canonical.long, 40)
        assert await run.result(timeout="120s") == sum(range(40))
        keys = [event.key async for event in run.events(follow=False, kinds="step.completed")]
        assert keys == [f"nothing#{n}" for n in range(40)]
        assert await executions(hf, run.id) >= 3


@pytest.mark.slow
async def test_a_long_journal_is_replayed_in_slices(temporal_url, monkeypatch):  # noqa: F811
    """An activation that computes for two seconds is taken for a deadlock, and so is one that waits for a processor so long."""
    await goes_on_from(temporal_url, 12_000, monkeypatch)


@pytest.mark.nightly
async def test_a_journal_of_thirty_thousand_steps_is_replayed_in_slices(temporal_url, monkeypatch):  # noqa: F811
    await goes_on_from(temporal_url, 30_000, monkeypatch)


async def goes_on_from(url, steps, monkeypatch):
    took, activate = [], _WorkflowInstanceImpl.activate

    def measured(instance, activation):
        began = time.thread_time()
        try:
            return activate(instance, activation)
        finally:
            took.append(time.thread_time() - began)

    monkeypatch.setattr(_WorkflowInstanceImpl, "activate", measured)
    now, spec, events = int(time.time() * 1000), canonical.nothing.spec, []
    for n in range(steps):
        bound = spec.signature.bind((n,), {})
        data = {
            "name": "nothing",
            "digest": bound.digest,
            "input": bound.preview,
            "asked": n,
            "attempts": 1,
            "began": now,
        }
        events.append(Event(n, "step.completed", f"nothing#{n}", data, str(n), None, now, 1))
    given = canonical.long.spec.signature.bind((steps + 5,), {}).input
    new = NewRun("carried", secrets.token_hex(16), "long", given.text, identity=given.digest)
    start = Start.of(new, [], ["ann"], 8000, now)
    state = State(events, {"next_seq": steps, "lease_epoch": 1, "steps": steps, "status": "ready"})
    async with holdfast.open(url, agents=[canonical.long], settings=QUICK) as hf:
        await hf.store._started(start, state.pack())
        assert await hf.get("carried").result(timeout="120s") == sum(range(steps + 5))
        history = await hf.store.client.get_workflow_handle("carried").fetch_history()
        kinds = [event.event_type for event in history.events]
        assert max(took) < 0.5, took
        assert kinds.count(EventType.EVENT_TYPE_TIMER_FIRED) >= 2  # a slice ends with one


@pytest.mark.slow
async def test_a_large_value_lies_beside_the_cluster(temporal_url, tmp_path):  # noqa: F811
    async with holdfast.open(
        f"{temporal_url}&blobs={tmp_path}/blobs", agents=[canonical.carries], settings=QUICK
    ) as hf:
        run = await hf.start(canonical.carries, 5.0)
        assert await run.result(timeout="60s") == 5_000_000
        (event,) = [event async for event in run.events(follow=False, kinds="step.completed")]
        assert event.size == 5_000_002
    assert sum(path.stat().st_size for path in (tmp_path / "blobs").iterdir()) > 5_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "blobs"), [(3.0, False), (30.0, True)])
async def test_what_is_too_large_fails_once_and_clearly(temporal_url, tmp_path, megabytes, blobs):  # noqa: F811
    await fails_once(f"{temporal_url}&blobs={tmp_path}" if blobs else temporal_url, megabytes)


@pytest.mark.nightly
async def test_five_hundred_megabytes_fail_once_and_clearly(temporal_url, tmp_path):  # noqa: F811
    await fails_once(f"{temporal_url}&blobs={tmp_path}", 500.0)


async def fails_once(url, megabytes):
    begun = []
    settings = holdfast.Settings(lease_ttl_s=30.0, observe=lambda _, key: begun.append(key))
    async with holdfast.open(url, agents=[canonical.carries], settings=settings) as hf:
        run = await hf.start(canonical.carries, megabytes)
        with pytest.raises(holdfast.RunFailed, match=r"result: .* is more than the limit") as error:
            await run.result(timeout="120s")
    assert ("(?blobs=FOLDER), or put it into a file" in str(error.value)) is ("blobs=" not in url)
    assert begun == ["large#0"]


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(7200)
async def test_thirty_thousand_real_steps_without_a_checkpoint(own_cluster):  # noqa: F811
    """Several at once, so that it does not take a night: a step alone takes 40 ms."""
    steps = int(os.environ.get("HOLDFAST_TEMPORAL_STEPS", "30000"))
    async with holdfast.open(own_cluster.url(), agents=[canonical.long], settings=QUICK) as hf:
        run = await hf.start(canonical.long, steps, id="long")
        assert await run.result(timeout="7000s") == sum(range(steps))
        assert await executions(hf, "long") >= steps * 6 // 8000


def test_an_address_says_what_is_wrong_with_it():
    wrong = ["temporal://host", "temporal://host:7233", "temporal://host:7233/a/b", "temporal://host:7233/a?odd=1",
             "temporal://host:7233/a?events=1", "temporal://host:7233/a?tls=maybe", "temporal://host:7233/a?cert=x"]  # fmt: skip
    for url in wrong:
        with pytest.raises(holdfast.BadArguments):
            Address.of(url)
    address = Address.of("temporal://host:7233/team%20a?queue=q&events=500")
    assert (address.target, address.namespace, address.longest) == ("host:7233", "team a", 500)
    assert address.task_queue("agent", "2", "default") == "q:agent@2"
