"""Schedules over HTTP: made, listed, steered and begun, and what is refused. Scopes are tested for all paths in test_auth."""

from datetime import datetime

from tests.http.site import on_a_server


@on_a_server
async def test_made_steered_and_begun(site):
    made = await site.post("/api/schedules/s", {"agent": "twice", "every": "1h", "args": {"n": 21}})
    assert (made["schedule"]["name"], made["schedule"]["times"], len(made["schedule"]["next"])) == (
        "s",
        "every 3600s",
        5,
    )
    assert datetime.fromisoformat(made["schedule"]["next"][0]).minute == 0
    assert [each["name"] for each in (await site.get("/api/schedules"))["schedules"]] == ["s"]
    assert (await site.post("/api/schedules/s/pause", {}))["schedule"]["state"] == "paused"
    assert (await site.post("/api/schedules/s/resume", {}))["schedule"]["state"] == "active"
    (run,) = (await site.post("/api/schedules/s/trigger", {}))["runs"]
    assert (await site.get(f"/api/runs/{run}/result?timeout=20"))["result"] == 42
    between = {"start": "2026-11-02T00:00:00Z", "end": "2026-11-02T01:00:00Z"}
    assert (await site.post("/api/schedules/s/backfill", between))["runs"] == [
        "s@2026-11-02T00:00:00Z",
        "s@2026-11-02T01:00:00Z",
    ]
    assert (await site.get("/api/schedules/s"))["schedule"]["last_run"] == run
    assert (await site.web.delete("/api/schedules/s")).json() == {"deleted": "s"}
    (deed, *_) = await site.hf.audit(action="delete_schedule")
    assert deed.via.startswith("http:")


@on_a_server
async def test_what_is_refused(site):
    assert (await site.get("/api/schedules/nobody", 404))["error"]["code"] == "unknown_schedule"
    for path in ("pause", "resume", "trigger"):
        await site.post(f"/api/schedules/nobody/{path}", {}, 404)
    for body in (
        {},
        {"agent": "twice"},
        {"agent": "twice", "every": "1h"},
        {"agent": "twice", "every": "1h", "args": {"n": "many"}},
        {"agent": "twice", "cron": "x", "args": {"n": 1}},
        {"agent": "twice", "every": "1h", "overlap": "maybe", "args": {"n": 1}},
    ):
        await site.post("/api/schedules/s", body, 422)
    await site.post("/api/schedules/s", {"agent": "nobody", "every": "1h"}, 404)
    await site.post("/api/schedules/s", {"agent": "twice", "every": "1h", "args": {"n": 1}})
    await site.post("/api/schedules/s/backfill", {"start": "2026-11-02T00:00:00", "end": "2026-11-02T01:00:00"}, 422)
