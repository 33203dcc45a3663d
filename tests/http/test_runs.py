"""Runs over HTTP: started once, listed in pages, looked at, controlled, deleted."""

import asyncio
from urllib.parse import quote

from tests.http.site import followed, on_a_server, served

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_stream_from_the_position_of_a_list_misses_nothing",
    "test_lists_have_the_filters_and_orders_of_the_client",
}


@on_a_server
async def test_a_run_is_started_once(site):
    """The first request makes it, the same again finds it, and other arguments are refused with both shown."""
    document = {"agent": "twice", "args": [21], "id": "a", "labels": {"team": "x"}}
    made = await site.post("/api/runs", document, 201)
    assert (made["run"]["id"], made["run"]["labels"]) == ("a", {"team": "x"})
    assert (await site.post("/api/runs", document, 200))["run"]["id"] == "a"
    refused = await site.post("/api/runs", document | {"args": [22]}, 409)
    assert refused["error"]["code"] == "run_exists"
    assert "{'n': 21, 'note': ''}" in refused["error"]["message"]
    assert "{'n': 22, 'note': ''}" in refused["error"]["message"]
    assert await site.get("/api/runs/a/result?timeout=20") == {"run": "a", "result": 42}
    whole = await site.get("/api/runs/a")
    assert (whole["run"]["status"], whole["arguments"], whole["streams"]) == ("completed", {"n": 21, "note": ""}, [])


@on_a_server
async def test_many_starts_of_one_id_are_one_run(site):
    """Of twenty at once one says that it made the run, and all name the same."""
    document = {"agent": "twice", "kwargs": {"n": 1, "note": "x"}, "id": "one"}
    answers = await asyncio.gather(*[site.web.post("/api/runs", json=document) for _ in range(20)])
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert {answer.json()["run"]["id"] for answer in answers} == {"one"}


@on_a_server
async def test_wrong_starts_make_no_run(site):
    """An unknown agent, wrong arguments, a bad id, labels or budget, a name too many: each is said, and nothing is there."""
    wrong = {
        "unknown_agent": {"agent": "twise"},
        "n: found nothing": {"agent": "twice"},
        "found str 'x', expected integer": {"agent": "twice", "args": ["x"]},
        "by position": {"agent": "twice", "args": [1, "", 3]},
        "is not a run id": {"agent": "twice", "args": [1], "id": "a b"},
        "labels.a": {"agent": "twice", "args": [1], "labels": {"a": 1}},
        "use an amount of dollars": {"agent": "twice", "args": [1], "budget": {"usd": -1}},
        "is not a duration": {"agent": "twice", "args": [1], "after": "soon"},
        "argz: there is no such name": {"agent": "twice", "argz": [1]},
        "agent: it is missing": {"args": [1]},
    }
    for told, document in wrong.items():
        refused = await site.post("/api/runs", document, 404 if told == "unknown_agent" else 422)
        assert told in str(refused), refused
    assert (await site.get("/api/runs"))["runs"] == []


@on_a_server
async def test_lists_come_in_pages_and_are_filtered(site):
    """Every run is in exactly one page; state, agent, label and parent narrow the list."""
    for n in range(5):
        await site.start("twice", n, id=f"r{n}", labels={"even": str(n % 2 == 0)})
    await site.start("listener", 1, id="waits")
    await site.until("waits", "waiting")
    for n in range(5):
        await site.until(f"r{n}", "completed")
    found, after = [], ""
    while after is not None:
        page = await site.get(f"/api/runs?limit=2{after and '&after=' + after}")
        found += [run["id"] for run in page["runs"]]
        after = page["next"]
    assert found == ["waits", "r4", "r3", "r2", "r1", "r0"]

    async def ids(query):
        return [run["id"] for run in (await site.get(f"/api/runs?{query}"))["runs"]]

    assert await ids("status=waiting&status=paused") == ["waits"]
    assert await ids("agent=listener") == ["waits"]
    assert await ids("label=even=False&status=completed") == ["r3", "r1"]
    assert await ids("parent=r0") == []
    assert await ids("search=WAITS") == ["waits"]
    assert await ids("since=2100-01-31T00:00:00Z") == await ids("until=2000-01-31T00:00:00Z") == []
    assert await ids("since=2000-01-31T00:00:00Z&search=r3") == ["r3"]
    assert "no time zone" in str(await site.get("/api/runs?since=2026-01-31T00:00:00", 422))


@on_a_server
async def test_a_run_is_paused_resumed_sent_to_and_ends(site):
    """Each does what it says, messages with one key are one, and the audit names the user of this computer."""
    run = await site.start("listener", 2)
    await site.until(run, "waiting")
    assert (await site.post(f"/api/runs/{run}/pause", {"reason": "lunch"}))["run"]["reason"].endswith(": lunch")
    for word in ("a", "a", "b"):
        sent = await site.post(f"/api/runs/{run}/send", {"topic": "word", "value": word, "key": word})
    assert sent == {"run": run, "topic": "word", "position": 2}
    assert (await site.get(f"/api/runs/{run}/result", 409))["error"]["code"] == "run_paused"
    await site.post(f"/api/runs/{run}/resume")
    assert (await site.get(f"/api/runs/{run}/result?timeout=20"))["result"] == ["a", "b"]
    refused = await site.post(f"/api/runs/{run}/send", {"topic": "word"}, 409)
    assert refused["error"]["code"] == "run_finished"
    deeds = await site.hf.audit(run=run)
    assert [deed.action for deed in deeds] == ["resume", "send", "send", "pause", "start"]
    assert len({deed.by for deed in deeds} - {"", "someone"}) == 1


@on_a_server
async def test_a_run_is_cancelled_and_deleted(site):
    """What has not ended cannot be deleted; what is deleted is gone."""
    run = await site.start("listener", 1)
    refused = await site.web.delete(f"/api/runs/{run}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_active")
    await site.post(f"/api/runs/{run}/cancel", {"reason": "enough", "grace": "1s"})
    await site.until(run, "cancelled")
    assert (await site.get(f"/api/runs/{run}/result", 409))["error"]["code"] == "run_cancelled"
    assert (await site.web.delete(f"/api/runs/{run}")).json() == {"deleted": 1}
    assert (await site.get(f"/api/runs/{run}", 404))["error"]["code"] == "unknown_run"


@on_a_server
async def test_a_failed_run_is_told_and_retried(site):
    """Its result is a problem that names the exception; retried, it goes on."""
    run = await site.start("broken")
    await site.until(run, "failed")
    refused = await site.get(f"/api/runs/{run}/result", 409)
    assert refused["error"]["code"] == "run_failed"
    assert "ValueError: no luck" in refused["error"]["message"]
    assert "Traceback" not in str(refused)
    assert (await site.post(f"/api/runs/{run}/retry"))["run"]["id"] == run
    await site.until(run, "failed")
    kinds = [event["kind"] for event in (await site.get(f"/api/runs/{run}/events"))["events"]]
    assert kinds == ["run.retried", "run.failed"]


@on_a_server
async def test_a_result_is_waited_for(site):
    """Within the time it is there or it is not yet, and a run that ends meanwhile is told at once."""
    run = await site.start("listener", 1)
    assert (await site.get(f"/api/runs/{run}/result", 202))["run"]["id"] == run
    assert (await site.get(f"/api/runs/{run}/result?timeout=0.05", 202))["run"]["id"] == run
    waiting = asyncio.ensure_future(site.get(f"/api/runs/{run}/result?timeout=30"))
    await site.post(f"/api/runs/{run}/send", {"topic": "word", "value": "now"})
    assert (await waiting)["result"] == ["now"]


@on_a_server
async def test_histories_come_in_pages(site):
    """`next` is where to go on, and after the last page it stays."""
    run = await site.start("twice", 1, id="a")
    await site.until(run, "completed")
    first = await site.get("/api/runs/a/events?limit=1")
    assert ([event["kind"] for event in first["events"]], first["next"]) == (["step.completed"], 1)
    second = await site.get("/api/runs/a/events?after=1")
    assert ([event["kind"] for event in second["events"]], second["next"]) == (["run.completed"], 2)
    assert await site.get("/api/runs/a/events?after=2") == {"events": [], "next": 2}
    assert "has a history of 2" in str(await site.get("/api/runs/a/events?after=3", 422))


@on_a_server
async def test_agents_are_those_that_workers_published(site):
    """Names, whether they are served, and the schemas of their arguments; how they are let through is not told."""
    found = {agent["name"]: agent for agent in (await site.get("/api/agents"))["agents"]}
    assert sorted(found) == [
        "broken",
        "guess",
        "listener",
        "meet",
        "number",
        "publish",
        "rated",
        "reciter",
        "talker",
        "twice",
    ]
    assert found["twice"]["served"]
    assert found["twice"]["schema"]["properties"]["n"] == {"type": "integer"}
    assert not [name for name in found["twice"]["schema"] if name in ("x-flow", "x-budget")]


@on_a_server
async def test_a_run_is_forked(site):
    """From an earlier point, with other arguments; the same id again is the same fork, and the tree has both."""
    await site.start("twice", 4, id="first")
    await site.until("first", "completed")
    document = {"at": 0, "replace": {"arguments": {"n": 5}}, "effects": "new", "id": "second"}
    made = await site.post("/api/runs/first/fork", document, 201)
    assert made["run"]["id"] == "second"
    assert await site.get("/api/runs/second/result?timeout=20") == {"run": "second", "result": 10}
    assert (await site.post("/api/runs/first/fork", document, 200))["run"]["id"] == "second"
    tree = await site.get("/api/runs/second/forks")
    assert [(each["id"], each["of"]) for each in tree["forks"]] == [("first", None), ("second", "first")]
    refused = await site.post("/api/runs/first/fork", {"at": "nothing"}, 422)
    assert "made no such call" in refused["error"]["message"]
    await site.post("/api/runs/nobody/fork", {}, 404)
    other = await site.post("/api/runs/first/fork", {**document, "effects": "ask"}, 409)
    assert other["error"]["code"] == "run_exists"
    for bad in ({"at": True}, {"at": "\ud800"}, {"at": "\0"}, {"replace": {"\ud800": 1}}, {"replace": {"a\0": 1}}):
        await site.post("/api/runs/first/fork", bad, 422)
    await site.get("/api/runs/first/steps/%00", 422)


async def test_lists_have_the_filters_and_orders_of_the_client(store_url):
    """Each name of a filter means over HTTP what it means in Python; pages go on in every order."""
    async with served(store_url) as site:
        for n in range(4):
            await site.start("listener", 1, id=f"l{n}")
            await site.until(f"l{n}", "waiting")
        await site.start("publish", "x", id="p")
        await site.until("p", "waiting")
        await site.start("broken", id="b")
        await site.until("b", "failed")

        async def ids(query):
            return [each["id"] for each in (await site.get(f"/api/runs?{query}"))["runs"]]

        assert await ids("waits_for=person") == ["p"] == await ids("needs=true&status=waiting")
        assert await ids("agent=publish&agent=broken") == ["b", "p"]
        assert sorted(await ids("waits_for=message&waits_for=person")) == ["l0", "l1", "l2", "l3", "p"]
        assert await ids("queue=mail") == await ids("root=false") == await ids("version=9") == await ids("cost=1") == []
        assert len(await ids("queue=default&root=true&cost=0")) == 6
        for order in ("newest", "oldest", "updated"):
            whole, pages, after = await ids(f"order={order}"), [], ""
            while after is not None:
                page = await site.get(f"/api/runs?order={order}&limit=2{after and f'&after={quote(after)}'}")
                pages += [each["id"] for each in page["runs"]]
                after = page["next"]
            assert pages == whole and len(whole) == 6, order
        for query in ("waits_for=nothing", "root=x", "order=best", "cost=-1", "attempt=0", "cost=nan", "stuck=2"):
            assert (await site.get(f"/api/runs?{query}", 422))["error"]["code"] == "bad_arguments", query


async def test_a_stream_from_the_position_of_a_list_misses_nothing(store_url):
    async with served(store_url) as site:
        await site.start("twice", 1, id="a")
        await site.until("a", "completed")
        listed = await site.get("/api/runs")
        await site.start("twice", 2, id="b")
        async for _, event in followed(site.web, f"/api/events?after={listed['position']}&kinds=run.completed"):
            if event["run"] == "b":
                break
        await site.get(f"/api/events?after={listed['position']}")


async def test_runs_are_counted_and_what_needs_a_person_is_listed(store_url):
    async with served(store_url) as site:
        await site.start("publish", "x", id="p")
        await site.start("number", id="n", labels={"team": "night"})
        await site.start("listener", 1, id="l")
        await site.start("broken", id="b")
        for run in "pnl":
            await site.until(run, "waiting")
        await site.until("b", "failed")
        await site.hf.get("l").pause(by="ana", reason="lunch")
        counted = await site.get("/api/counts")
        now = counted.pop("now")
        assert now.endswith("Z") and now >= (await site.get("/api/runs/p"))["run"]["created_at"]
        assert counted["exact"] is True and counted["needs"] >= 3
        assert {state: many for state, many in counted["counts"].items() if many} == {
            "waiting": 2,
            "paused": 1,
            "failed": 1,
        }
        few = await site.get("/api/counts?label=team%3Dnight&status=waiting&status=failed")
        assert few["counts"]["waiting"] == 1 and few["counts"]["failed"] == 0
        await site.get("/api/counts?limit=5", 422)
        needs = await site.get("/api/needs")
        assert needs["total"] == len(needs["needs"]) >= 3
        told = {each["run"]: (each["kind"], each["mine"]) for each in needs["needs"]}
        assert told["p"] == ("question", False) and told["n"] == ("question", True) and told["l"] == ("paused", False)
        assert needs["needs"][0]["run"] == "n"
        assert len((await site.get("/api/needs?limit=1"))["needs"]) == 1
        await site.get("/api/needs?limit=0", 422)


async def test_a_run_may_be_called_like_a_path(store_url):
    """Counts were once asked for where a run of that name is shown: they are told there unless there is one."""
    async with served(store_url) as site:
        await site.start("listener", 1, id="bulk")
        await site.until("bulk", "waiting")
        for path in ("/api/counts", "/api/runs/counts"):
            assert (await site.get(f"{path}?agent=listener&status=waiting"))["counts"]["waiting"] == 1
        await site.start("listener", 1, id="counts")
        for id in ("bulk", "counts"):
            assert (await site.get(f"/api/runs/{id}"))["run"]["id"] == id
        assert (await site.get("/api/counts"))["counts"].keys() >= {"waiting"}
        _, night = await site.hf.create_token("night", only={"team": "night"})
        headers = {"Authorization": f"Bearer {night}"}  # for whom that run is not there
        assert "counts" in (await site.get("/api/runs/counts", headers=headers))


async def test_the_fleet_is_told(store_url):
    async with served(store_url) as site:
        await site.start("listener", 1, id="l")
        await site.until("l", "waiting")
        fleet = await site.get("/api/fleet")
        (worker,) = fleet["workers"]
        assert worker["id"] == site.hf.store.worker_id and worker["state"] == "alive" and "listener" in worker["agents"]
        assert fleet["lost"] == [] and fleet["versions"] == []
        assert fleet["store"]["kind"] == store_url.partition(":")[0] and fleet["store"]["runs"] == 1
        assert fleet["store"]["where"].startswith("postgresql://") or "/" not in fleet["store"]["where"]
