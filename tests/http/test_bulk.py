"""Many runs at once over HTTP, search, and a run as a file."""

import asyncio

import pytest
from tests.http.site import on_a_server, served

import holdfast

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_the_same_is_done_to_many_runs"}


async def many(site, count, **more):
    for n in range(count):
        await site.start("listener", 1, id=f"l{n}", **more)
    for n in range(count):
        await site.until(f"l{n}", "waiting")


async def test_the_same_is_done_to_many_runs(store_url):
    """By their ids or by a filter; each that refuses says why, and stops no other."""
    async with served(store_url) as site:
        await many(site, 5, labels={"team": "night"})
        await site.start("twice", 1, id="done", labels={"team": "day"})
        await site.until("done", "completed")
        paused = await site.post(
            "/api/runs/bulk", {"action": "pause", "ids": ["l0", "done", "none"], "reason": "lunch"}
        )
        assert paused["done"] == 1 and paused["left"] == 0
        assert [(each["id"], each["code"]) for each in paused["refused"]] == [
            ("done", "run_finished"),
            ("none", "unknown_run"),
        ]
        assert all(each["message"] for each in paused["refused"])
        assert (await site.get("/api/runs/l0"))["run"]["reason"].endswith("lunch")
        resumed = await site.post("/api/runs/bulk", {"action": "resume", "filter": {"status": ["paused"]}, "expect": 1})
        assert resumed == {"done": 1, "refused": [], "left": 0}
        fits = {"label": ["team=night"], "status": ["waiting", "ready", "running"]}
        cancelled = await site.post("/api/runs/bulk", {"action": "cancel", "filter": fits, "expect": 5})
        assert cancelled == {"done": 5, "refused": [], "left": 0}
        for n in range(5):
            await site.until(f"l{n}", "cancelled")
        deeds = (await site.get("/api/audit?action=cancel"))["deeds"]
        assert sorted(each["run"] for each in deeds) == [f"l{n}" for n in range(5)]
        assert {each["by"] for each in deeds} == {"tess"}
        deleted = await site.post("/api/runs/bulk", {"action": "delete", "filter": {"label": ["team=night"]}})
        assert deleted == {"done": 5, "refused": [], "left": 0}
        assert [each["id"] for each in (await site.get("/api/runs"))["runs"]] == ["done"]


async def test_a_filter_that_fits_more_than_was_seen_does_nothing(store_url):
    """A tenth more is let through; what is more is refused, with how many there are."""
    async with served(store_url) as site:
        await many(site, 11)
        document = {"action": "cancel", "filter": {"agent": "listener"}}
        told = await site.post("/api/runs/bulk", document | {"expect": 9}, 409)
        assert told["error"]["code"] == "changed" and told["error"]["details"] == {"expect": 9, "fit": 11}
        assert {each["status"] for each in (await site.get("/api/runs"))["runs"]} == {"waiting"}
        assert (await site.post("/api/runs/bulk", document | {"expect": 10}))["done"] == 11


@on_a_server
async def test_failed_runs_are_retried_and_families_deleted_at_once(site):
    await site.start("broken", id="a")
    await site.start("broken", id="b")
    for run in "ab":
        await site.until(run, "failed")
    told = await site.post("/api/runs/bulk", {"action": "retry", "filter": {"status": ["failed"]}})
    assert told["done"] == 2
    for run in "ab":
        await site.until(run, "failed")
        assert "run.retried" in [each.kind async for each in site.hf.get(run).events(follow=False)]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"action": "cancel"},
        {"action": "cancel", "ids": None, "filter": None},
        {"action": "cancel", "ids": ["a"], "filter": {"agent": "x"}},
        {"action": "cancel", "filter": {}},
        {"action": "cancel", "filter": {"label": []}},
        {"action": "cancel", "filter": {"label": ["x"]}},
        {"action": "cancel", "filter": {"limit": 5, "agent": "x"}},
        {"action": "cancel", "filter": {"agent": "x"}, "expect": -1},
        {"action": "burn", "ids": ["a"]},
        {"action": "cancel", "ids": ["no id"]},
        {"action": "cancel", "ids": [f"r{n}" for n in range(1_001)]},
        {"action": "cancel", "ids": "a"},
    ],
)
@on_a_server
async def test_what_says_not_which_runs_is_refused(site, document):
    told = await site.post("/api/runs/bulk", document, 422)
    assert told["error"]["code"] == "bad_arguments"


@on_a_server
async def test_there_is_an_end_to_what_is_done_at_once(site):
    """What there was no time for is told, and is not done."""
    await many(site, 3)
    done = await site.hf.bulk("cancel", agent="listener", within=0)
    assert (done.done, done.refused, done.left) == (0, (), 3)


async def test_everything_with_a_name_is_found(store_url):
    """Runs by their beginnings or the middle, agents, labels, open questions and workers; 8 in all."""
    async with served(store_url) as site:
        run = await site.start("publish", "x", id="Otter-1", labels={"team": "otters"})
        question = await site.hf.get(run).wait_for_question(timeout="20s")
        await site.until(run, "waiting")
        for n in range(12):
            await site.start("twice", n, id=f"seal-{n}")
        found = await site.get("/api/search?q=otter")
        assert found["runs"] == [{"id": "Otter-1", "agent": "publish", "status": "waiting"}]
        assert found["labels"] == ["team=otters"]
        found = await site.get("/api/search?q=PUBLISH")
        assert found["agents"] == ["publish"]
        assert found["questions"] == [{"id": question.id, "question": "Publish this?", "run": "Otter-1"}]
        found = await site.get("/api/search?q=seal-1")
        assert [each["id"] for each in found["runs"]][:3] == ["seal-1", "seal-10", "seal-11"]
        found = await site.get("/api/search?q=e")
        assert sum(map(len, found.values())) == 8 and sum(map(bool, found.values())) >= 3
        worker = (await site.hf.store.worker_ids())[0]
        assert (await site.get(f"/api/search?q={worker[:12]}"))["workers"] == [worker]
        nothing = {"runs": [], "agents": [], "labels": [], "questions": [], "workers": []}
        assert await site.get("/api/search") == nothing == await site.get("/api/search?q=%20")
        assert await site.get("/api/search?q=%25_'\"\\") == nothing
        await site.get(f"/api/search?q={'x' * 201}", 422)
        await site.get("/api/search?q=%00", 422)


@on_a_server
async def test_a_run_is_sent_as_a_file(site, tmp_path, monkeypatch):
    """A signed copy that another store takes; the audit has it, and a server without a key says so."""
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "keys"))
    await site.start("twice", 21, id="t")
    await site.until("t", "completed")
    told = await site.get("/api/runs/t/bundle", 503)
    assert told["error"]["code"] == "cannot_sign" and str(tmp_path) not in str(told)
    await asyncio.to_thread(holdfast.Keys().new, "server")
    answer = await site.web.get("/api/runs/t/bundle")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="t.bundle"'
    (tmp_path / "t.bundle").write_bytes(answer.content)
    async with holdfast.open(f"sqlite:{tmp_path}/other.db") as other:
        await other.import_run(tmp_path / "t.bundle", id="copy")
        (step,) = [step async for step in other.get("copy").steps(limit=1)]
        assert (step.name, await step.result()) == ("double", 42)
    assert [each["action"] for each in (await site.get("/api/audit?run=t"))["deeds"]] == ["export", "start"]
    await site.get("/api/runs/none/bundle", 404)


async def test_a_filter_that_cannot_be_read_finds_nothing_and_does_nothing(store_url):
    """Never everything: not in a list, not in its counts, and not in what is done to all that fit."""
    bad = [
        {"status": "bogus"}, {"waits_for": "nobody"}, {"since": "yesterday"}, {"until": "abc"}, {"label": "desk"}, {"cost": "x"},
        {"attempt": "x"}, {"stuck": "maybe"}, {"needs": "maybe"}, {"root": "maybe"}, {"state": "failed"},
    ]  # fmt: skip
    async with served(store_url) as site:
        await many(site, 1)
        for filter in bad:
            query = "&".join(f"{name}={value}" for name, value in filter.items())
            for path in ("/api/runs", "/api/counts"):
                assert "error" in await site.get(f"{path}?{query}", 422), filter
            assert "error" in await site.post("/api/runs/bulk", {"action": "pause", "filter": filter}, 422), filter
        assert (await site.get("/api/runs/l0"))["run"]["status"] == "waiting"
