"""Schedules over HTTP: made, listed, steered and begun, and what is refused. Scopes are tested for all paths in test_auth."""

from datetime import datetime
from urllib.parse import quote

from tests.http.site import on_a_server


@on_a_server
async def test_made_steered_and_begun(site):
    made = await site.post("/api/schedules/s", {"agent": "twice", "every": "1h", "args": {"n": 21}})
    assert (made["schedule"]["name"], made["schedule"]["times"], len(made["schedule"]["next"])) == (
        "s",
        "every 1h",
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
    for wrong, why in (
        ("2026-11-02T00:00:00", "This time has no time zone; write it as 2026-11-16T07:00:00Z"),
        ("soon", "This is not a time; write it as"), ("", "This is not a time"), ("2026-13-01", "This is not a time"),
        ("2026-11-02T25:00:00Z", "This is not a time"), (None, "should be a valid datetime"),
    ):  # fmt: skip
        for between in ({"start": wrong, "end": "2026-11-03"}, {"start": "2026-11-01", "end": wrong}):
            refused = (await site.post("/api/schedules/s/backfill", between, 422))["error"]
            assert why in refused["message"] and "datetime.datetime" not in refused["message"], refused
        if wrong is not None:
            for name in ("since", "until"):
                refused = (await site.get(f"/api/runs?{name}={quote(wrong)}", 422))["error"]
                assert why in refused["message"] and refused["message"].startswith(f"{name}: "), refused


@on_a_server
async def test_a_day_is_its_midnight_in_utc(site):
    await site.post("/api/schedules/s", {"agent": "twice", "every": "12h", "args": {"n": 1}})
    begun = await site.post("/api/schedules/s/backfill", {"start": "2026-11-02", "end": "2026-11-03"})
    assert begun["runs"] == ["s@2026-11-02T00:00:00Z", "s@2026-11-02T12:00:00Z", "s@2026-11-03T00:00:00Z"]
    assert len((await site.get("/api/runs?since=2026-11-02"))["runs"]) == 3
    assert (await site.get("/api/runs?until=2026-11-02"))["runs"] == []
    in_vienna = {"start": "2026-11-03T13:00:00+01:00", "end": "2026-11-03T12:00:00Z"}
    assert (await site.post("/api/schedules/s/backfill", in_vienna))["runs"] == ["s@2026-11-03T12:00:00Z"]
