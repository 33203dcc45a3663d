"""The feed of all runs on a Temporal cluster: it lies in the database beside it, and has each event once, in its run's order."""

import asyncio
import os
from collections import defaultdict
from urllib.parse import quote

import httpx2
import pytest
from tests.grounds import canonical, scenes
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@pytest.fixture(autouse=True)
def ledger(monkeypatch):
    monkeypatch.setenv("LEDGER", os.devnull)


@pytest.fixture
def url(temporal_url, postgres_url):  # noqa: F811
    return f"{temporal_url}&side={quote(postgres_url, safe='')}"


def told(event):
    return (event.seq, event.kind, event.key, event.data, event.preview, event.size, event.at)


async def journal(run):
    return [told(event) async for event in run.events(follow=False)]


async def fed(hf, after=0, **which):
    """What the feed has behind a position, by run, and the last position."""
    found, last = defaultdict(list), after
    async for event in hf.events(after=after, follow=False, **which):
        assert event.position > last
        found[event.run].append(told(event))
        last = event.position
    return found, last


@pytest.mark.slow
async def test_the_feed_has_each_event_of_all_runs_once(url):
    """With values, of children too; and another process goes on where one has stopped."""
    agents = [scenes.family, scenes.sequential, scenes.paused]
    async with holdfast.open(url, agents=agents, settings=QUICK) as hf:
        runs = [await hf.start(scenes.family, 2, id="family"), await hf.start(scenes.sequential, 3, id="sequential")]
        for run in runs:
            await run.result(timeout="60s")
        found, last = await fed(hf)
        started = [event.data["child"] async for event in runs[0].events(follow=False) if "child" in event.data]
        assert {*found} == {"family", "sequential", *started}
        for run in found:
            assert found[run] == await journal(hf.get(run))
        assert [line[4] for line in found["sequential"] if line[1] == "step.completed"] == ["'W0'", "'W1'", "'W2'"]
        waits = await hf.start(scenes.paused, id="waits")
        async with holdfast.open(url) as other:
            async with asyncio.timeout(60):
                async for event in other.events(after=last):  # a run that waits has told what it did before
                    if event.kind == "step.completed":
                        break
            await waits.send("go", "now")
            await waits.result(timeout="60s")
            later, _ = await fed(other, last)
            assert {*later} == {"waits"}
            assert later["waits"] == await journal(waits)


@pytest.mark.slow
async def test_the_feed_goes_on_over_executions(url):
    """A run whose history is long goes on in another execution: what it recorded before is told once."""
    async with holdfast.open(f"{url}&events=60", agents=[canonical.long], settings=QUICK) as hf:
        run = await hf.start(canonical.long, 40, id="long-fed")
        await run.result(timeout="120s")
        found, _ = await fed(hf)
        assert found["long-fed"] == await journal(run)
        assert sum(line[1] == "step.completed" for line in found["long-fed"]) == 40


@pytest.mark.slow
async def test_the_feed_is_followed_over_http_and_shows_a_caller_its_own_runs(url):
    async with holdfast.open(url, agents=[scenes.sequential], settings=QUICK) as hf:
        _, all_of_it = await hf.create_token("ann")
        _, some = await hf.create_token("bo", only={"team": "night"})
        transport = httpx2.ASGITransport(app=hf.asgi())
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as web:
            for id, team in (("n-1", "night"), ("d-1", "day")):
                run = await hf.start(scenes.sequential, 1, id=id, labels={"team": team})
                await run.result(timeout="60s")
            await fed(hf)  # waits for transactions of others
            seen = {}
            for who, secret in (("ann", all_of_it), ("bo", some)):
                answer = await web.get("/api/events", headers={"Authorization": f"Bearer {secret}"})
                assert answer.status_code == 200, answer.text
                seen[who] = {event["run"] for event in answer.json()["events"]}
            assert seen == {"ann": {"n-1", "d-1"}, "bo": {"n-1"}}


@pytest.mark.slow
async def test_a_cluster_alone_has_no_feed_and_says_what_to_do(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url) as hf:
        with pytest.raises(holdfast.Unsupported, match=r"no feed of all runs\. .*\?side=postgresql"):
            await anext(aiter(hf.events(follow=False)))
        with pytest.raises(holdfast.Unsupported, match=r"no feed of all runs\. .*\?side=postgresql"):
            await anext(aiter(hf.events()))
