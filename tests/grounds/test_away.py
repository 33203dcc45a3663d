"""The cluster is away while bodies run: whatever they came to is reported when it is back, and no body runs twice."""

import asyncio
import subprocess
import sys

import pytest
import temporalio.bridge.worker
from tests.grounds import scenes
from tests.grounds.test_kills import result
from tests.temporal import cluster, own_cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal import worker

begun, ended, going_on = [], [], []


@holdfast.step(in_doubt="ask")
async def asks(n: int) -> int:
    return await _body(n)


@holdfast.step
async def repeats(n: int) -> int:
    return await _body(n)


class Shop:
    @holdfast.step
    async def sells(self, n: int) -> int:
        """A method: it runs at home."""
        return await _body(n)


@holdfast.step(in_doubt="ask", raises=[KeyError], retry=holdfast.Retry(attempts=1))
async def fails(n: int) -> int:
    await _body(n)
    raise KeyError("nothing there")


async def _body(n: int) -> int:
    begun.append(n)
    await going_on[-1].wait()
    ended.append(n)
    return n


@holdfast.agent
async def does_all() -> list[int]:
    async with asyncio.TaskGroup() as group:
        done = [group.create_task(each) for each in (asks(1), repeats(2), Shop().sells(3), caught())]
    return [each.result() for each in done]


async def caught() -> int:
    try:
        return await fails(4)
    except KeyError:
        return 4


async def _all(found):
    while len(found) < 4:
        await asyncio.sleep(0.05)


async def body_ends_during(server, outage_s, lease_s, after_s=0.0):
    """Kill the server under bodies, let them end `after_s` into the outage (or behind it), and start it again."""
    begun.clear()
    ended.clear()
    going_on.append(go_on := asyncio.Event())
    settings = holdfast.Settings(lease_ttl_s=lease_s)
    async with holdfast.open(server.url(), agents=[does_all], settings=settings) as hf:
        run = await hf.start(does_all, id="away")
        await _all(begun)
        server.kill()
        release = asyncio.get_running_loop().call_later(after_s, go_on.set)
        await asyncio.sleep(outage_s)
        await asyncio.to_thread(server.start)
        assert await result(hf, "away", None, "120s") == [1, 2, 3, 4]
        release.cancel()
        kinds = [event.kind async for event in run.events(follow=False)]
    assert sorted(begun) == sorted(ended) == [1, 2, 3, 4]
    assert [kind for kind in kinds if kind.startswith("approval")] == []


@pytest.mark.by_day("still awaited")
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("lease_s", [2.0, 120.0], ids=["timed out meanwhile", "still awaited"])
async def test_what_a_body_came_to_while_the_cluster_was_away_is_not_lost(own_cluster, lease_s):  # noqa: F811
    await body_ends_during(own_cluster, 13.0, lease_s)


@pytest.mark.slow
async def test_a_body_that_outlasts_the_time_for_which_the_cluster_is_away_goes_on(own_cluster):  # noqa: F811
    await body_ends_during(own_cluster, 5.0, 3.0, after_s=10.0)


@pytest.mark.nightly
@pytest.mark.parametrize("outage_s", [20.0, 90.0])
async def test_what_a_body_came_to_is_not_lost_in_a_long_outage(own_cluster, outage_s):  # noqa: F811
    await body_ends_during(own_cluster, outage_s, 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["validate", "poll_activity_task"])
async def test_a_worker_that_nobody_answers_as_it_begins_polls_all_the_same(temporal_url, monkeypatch, asked):  # noqa: F811
    """Temporal's own worker asks for its namespace once, and ends if nobody answers or a poll is refused."""
    refused, plain = [], getattr(temporalio.bridge.worker.Worker, asked)

    async def answered(self):
        if self not in refused and len(refused) < 3:
            refused.append(self)
            raise RuntimeError("nobody answers")
        return await plain(self)

    monkeypatch.setattr(worker, "_AGAIN_S", 0.1)
    monkeypatch.setattr(temporalio.bridge.worker.Worker, asked, answered)
    async with holdfast.open(temporal_url, agents=[scenes.sequential]) as hf:
        run = await hf.start(scenes.sequential, 2)
        assert await run.result(timeout="30s") == ["W0", "W1"]


KEPT = """
import threading
import holdfast

@holdfast.agent
async def nothing() -> None: ...

threading.Thread(target=threading.Event().wait).start()
"""


@pytest.mark.slow
def test_a_worker_ends_when_it_has_stopped_whatever_would_keep_its_process(temporal_url, tmp_path):  # noqa: F811
    """The SDK has threads that nobody can end; here it is one of Python's."""
    (tmp_path / "kept.py").write_text(KEPT)
    command = [sys.executable, "-m", "holdfast", "worker", "kept.py", "--db", temporal_url, "--grace", "60"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "Serving" in process.stderr.readline()
            process.terminate()
            assert process.wait(40) == 0
            assert "Stopped at a safe point" in process.stderr.read()
        finally:
            process.kill()


class Endless:
    """What polls for Temporal, of which nothing comes to an end."""

    async def shutdown(self):
        await asyncio.Event().wait()


async def test_what_polls_and_does_not_end_keeps_no_worker_that_is_told_to_stop(monkeypatch):
    monkeypatch.setattr(worker, "_ENDS_S", 0.1)
    stopping = worker.TemporalWorker.__new__(worker.TemporalWorker)
    stopping._settings, stopping._workers = holdfast.Settings(stop_grace_s=0.1), {"a": Endless()}
    stopping._polling = {"a": asyncio.create_task(Endless().shutdown())}
    async with asyncio.timeout(30):
        await stopping._end_polling()
    assert stopping._polling["a"].cancelled()
