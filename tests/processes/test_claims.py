"""Several workers on one store: who takes what, and what each of them tells."""

import asyncio
import secrets
from collections import Counter

import pytest
from tests.processes import fleet_agents as agents

from holdfast.store.runs import NewRun


@pytest.mark.by_day("postgres")
def test_eight_workers_start_at_once_and_share(fleet):
    """Eight processes make the store together, do all that there is once, and each tells only what it carried."""
    workers = [fleet.worker(ready=False) for _ in range(8)]
    for each in workers:
        each.until("Serving")
    runs = [f"run-{number}" for number in range(80)]
    fleet.start(*[(agents.steady, [3, 0.2], run) for run in runs])
    assert set(fleet.results(runs).values()) == {3}
    assert set(fleet.counts().values()) == {1}
    shares = Counter(effect.pid for effect in fleet.effects())
    assert len(shares) > 1, shares  # not everything is taken by the first one
    for each in workers:
        each.stop()
    assert [each.ended() for each in workers] == [0] * 8
    for run in runs:
        (owner,) = {effect.pid for effect in fleet.effects(run)}
        tellers = [each.pid for each in workers if f"{run}  completed" in each.said()]
        assert tellers == [owner]
    for each in workers:
        assert "Traceback" not in each.said()
        assert "failed" not in each.said()


def test_a_worker_serves_its_queues(fleet):
    """A worker that names queues leaves the runs of others to other workers."""
    mail = fleet.worker("--queues", "mail, news")
    assert "of mail, news from" in mail.said()

    async def start(hf):
        text = agents.steady.spec.signature.bind((1, 0.0), {}).text
        for queue in ("video", "mail", "news"):
            await hf.store.create(NewRun(queue, secrets.token_hex(16), "steady", text, queue=queue))
        await asyncio.gather(hf.get("mail").result(), hf.get("news").result())

    fleet.ask(start)
    assert fleet.status("video") == "ready"
    video = fleet.worker("--queues", "video")
    assert fleet.results(["video"]) == {"video": 1}
    assert [(effect.run, effect.pid) for effect in fleet.effects("video")] == [("video", video.pid)]
    assert {effect.pid for effect in fleet.effects() if effect.run != "video"} == {mail.pid}
