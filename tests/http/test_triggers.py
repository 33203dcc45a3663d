"""Triggers over HTTP: listed with schedules, looked into, replayed and forgotten, and what is refused. Scopes are in test_auth."""

import asyncio

import pytest
from tests.http.site import served
from tests.http.test_openapi import fits

import holdfast
from holdfast import Delivery, Schedule, Start, Verify

mended = asyncio.Event()


@holdfast.agent(name="triggers.tick", schedule=Schedule(every="1h"))
async def tick(text: str = "") -> str:
    return text


@holdfast.on.webhook("weak", verify=Verify.bearer("env:TOKEN"), retry=1)
def weak(delivery: Delivery) -> Start:
    if not mended.is_set():
        raise ConnectionError("no \x1b[31mline")
    return Start(tick, delivery.text())


async def until(hf: holdfast.Client, **counts: int) -> None:
    while True:
        found = {each.name: each for each in await hf.triggers()}.get("weak")
        if found is not None and all(getattr(found, name) == count for name, count in counts.items()):
            return
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def broken():
    mended.clear()


async def test_seen_replayed_and_forgotten(tmp_path):
    async with asyncio.timeout(40), served(f"sqlite:{tmp_path}/runs.db", agents=[tick, weak]) as site:
        await until(site.hf, workers=1)
        for n in range(4):
            await site.hf._receive("weak", "webhook", f"d/{n}", {"x-from": "here"}, b"otters %d" % n)
        await until(site.hf, dead=4)
        listed = await site.get("/api/triggers")
        (trigger,), (schedule,) = listed["triggers"], listed["schedules"]
        assert (trigger["name"], trigger["kind"], trigger["dead"], trigger["workers"]) == ("weak", "webhook", 4, 1)
        assert trigger["config"]["verify"]["secrets"] == ["env:TOKEN"]
        assert (schedule["name"], len(schedule["next"])) == ("triggers.tick", 5)
        assert (await site.get("/api/triggers/weak"))["trigger"] == trigger
        fits(listed, "/api/triggers")
        found = (await site.get("/api/triggers/weak/deliveries?status=dead&limit=3"))["deliveries"]
        assert [each["id"] for each in found] == ["d/3", "d/2", "d/1"]
        assert found[0]["error"] == "ConnectionError: no \x1b[31mline"
        whole = await site.get("/api/triggers/weak/deliveries/d%2F1")
        assert (whole["body"], whole["encoding"], whole["headers"]) == ("otters 1", "utf-8", {"x-from": "here"})
        assert whole["delivery"] == found[2]
        fits({"deliveries": found}, "/api/triggers/{name}/deliveries")
        fits(whole, "/api/triggers/{name}/deliveries/{delivery}")

        mended.set()
        assert await site.post("/api/triggers/weak/replay", {"delivery": "d/1"}) == {"replayed": 1}
        await until(site.hf, dead=3, done=1)
        assert await site.post("/api/triggers/weak/replay", {"delivery": "d/1"}) == {"replayed": 0}
        assert await site.post("/api/triggers/weak/dismiss", {"delivery": "d/2"}) == {"dismissed": 1}
        assert await site.post("/api/triggers/weak/dismiss", {"delivery": "d/1"}) == {"dismissed": 0}
        assert await site.post("/api/triggers/weak/replay", {"dead": True}) == {"replayed": 2}
        await until(site.hf, dead=0, done=4)
        assert await site.post("/api/triggers/weak/replay", {"dead": True}) == {"replayed": 0}
        told = (await site.get("/api/triggers/weak/deliveries"))["deliveries"]
        assert {each["outcome"][0]["agent"] for each in told if each["outcome"]} == {"triggers.tick"}
        assert [each["id"] for each in told if each["error"]] == ["d/2"]
        deeds = await site.hf.audit(action="replay_delivery")
        assert [deed.data for deed in deeds] == [
            {"trigger": "weak", "count": 2},
            {"trigger": "weak", "delivery": "d/1"},
        ]
        assert all(deed.by == "tess" and deed.via.startswith("http:") for deed in deeds)
        assert (await site.web.delete("/api/triggers/weak")).json() == {"deleted": "weak"}
        (deed,) = await site.hf.audit(action="delete_trigger")
        assert (deed.by, deed.data) == ("tess", {"trigger": "weak"})


async def test_what_is_refused(tmp_path):
    async with asyncio.timeout(40), served(f"sqlite:{tmp_path}/runs.db", agents=[weak]) as site:
        await until(site.hf, workers=1)
        assert (await site.get("/api/triggers/none", 404))["error"]["code"] == "unknown_trigger"
        assert (await site.get("/api/triggers/weak/deliveries/none", 404))["error"]["code"] == "unknown_trigger"
        assert await site.get("/api/triggers/none/deliveries") == {"deliveries": []}
        assert (await site.web.delete("/api/triggers/none")).status_code == 404
        await site.post("/api/triggers/none/replay", {"dead": True}, 404)
        await site.post("/api/triggers/weak/replay", {"delivery": "none"}, 404)
        for document in ({}, {"delivery": "x", "dead": True}, {"delivery": 5}, {"ids": []}):
            await site.post("/api/triggers/weak/replay", document, 422)
        await site.post("/api/triggers/weak/dismiss", {"delivery": "none"}, 404)
        await site.post("/api/triggers/weak/dismiss", {}, 422)
        for query in ("status=late", "limit=0", "limit=1001", "before=1"):
            await site.get(f"/api/triggers/weak/deliveries?{query}", 422)
