"""Tokens for runs with some labels: every path of the table, on both stores. What is not theirs is as if it was not there."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest
from tests.http.site import served

import holdfast
from holdfast.http.paths import PATHS

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_a_limited_token_sees_its_runs_and_nothing_else"}

NIGHT = {"team": "night"}


@holdfast.agent(name="only.ask")
async def asking(text: str) -> str:
    return "yes" if await holdfast.approve(f"Do {text}?", show=text) else "no"


@holdfast.agent(name="only.parent")
async def parent(text: str) -> str:
    return await asking(text)


AGENTS = [asking, parent]


@asynccontextmanager
async def site(url):
    """Runs of two teams, each with a child that asks; who sees one team, and who sees all."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(120))
        found = await stack.enter_async_context(served(url, agents=AGENTS))
        for team in ("night", "secret"):
            run = await found.hf.start(parent, team, id=f"{team}-1", labels={"team": team})
            await run.wait_for_question()
            run = await found.hf.start(asking, team, id=f"{team}-2", labels={"team": team, "more": "x"})
            await run.wait_for_question()
        for info in await found.hf.runs():
            await found.until(info.id, "waiting")
        _, secret = await found.hf.create_token("ana", only=NIGHT)
        headers = {"Authorization": f"Bearer {secret}"}
        web = httpx2.AsyncClient(base_url=found.address, timeout=20, headers=headers)
        yield found, await stack.enter_async_context(web)


async def ids(hf, team):
    """A run with the label, one below it, and their questions."""
    runs = [info for info in await hf.runs() if info.id.startswith(team) or (info.root or "").startswith(team)]
    questions = [each for each in await hf.approvals() if each.root.startswith(team)]
    return [info.id for info in runs], [each.id for each in questions]


def asked(endpoint, id):
    path = endpoint.path.replace("{id}", id).replace("{name}", "x").replace("{seq}", "0").replace("{step}", "0")
    return path.replace("{delivery}", "x")


async def send(web, endpoint, id, body=None):
    headers = {"Content-Type": "application/json"}
    return await web.request(endpoint.method, asked(endpoint, id), headers=headers, json=body or {})


async def test_a_limited_token_sees_its_runs_and_nothing_else(store_url):
    """Over the whole table: what is about a run or a question is unknown, what is about the whole store is refused."""
    async with site(store_url) as (found, web):
        runs, questions = await ids(found.hf, "night")
        hidden, unasked = await ids(found.hf, "secret")
        assert len(runs) == len(hidden) == 3 and len(questions) == len(unasked) == 2
        for endpoint in PATHS:
            if endpoint.needs is None or endpoint.about == "self":
                continue
            if endpoint.about == "all":
                refused = await send(web, endpoint, "x")
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden"), endpoint.path
            elif endpoint.about == "run":
                for id in hidden:
                    refused = await send(web, endpoint, id)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_run"), endpoint.path
                if endpoint.method == "GET":
                    for id in runs:
                        answer = await web.get(asked(endpoint, id))
                        assert answer.status_code not in (401, 403), (endpoint.path, answer.text)
                        assert "unknown_run" not in answer.text, endpoint.path
            elif endpoint.about == "question":
                for id in [*unasked, *hidden]:
                    body = {"decision": "approve", "digest": "x"}
                    refused = await send(web, endpoint, id, body)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_approval"), (
                        endpoint.path
                    )
                if endpoint.method == "GET":
                    assert [(await web.get(asked(endpoint, id))).status_code for id in questions] == [200, 200]
            else:
                assert endpoint.about == "some"
                if endpoint.method == "GET":
                    params = {"/api/search": {"q": "s"}, "/api/compare": {"a": runs[0], "b": runs[1]}}
                    answer = await web.get(endpoint.path, params=params.get(endpoint.path, {}))
                    assert answer.status_code == 200, (endpoint.path, answer.text)
                    assert "secret" not in answer.text, endpoint.path
        for a, b in ((runs[0], hidden[0]), (hidden[0], runs[0])):
            refused = await web.get("/api/compare", params={"a": a, "b": b})
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_run")
        after = {info.id: info.status for info in await found.hf.runs()}
        assert {after[id] for id in hidden} == {"waiting"}


async def test_lists_are_cut_behind_what_is_hidden(store_url):
    """A page is full of what is there; counts count no more; by every filter that lists have."""
    async with site(store_url) as (found, web):
        seen, after = [], None
        while True:
            page = (await web.get("/api/runs", params={"limit": 1} | ({"after": after} if after else {}))).json()
            assert len(page["runs"]) <= 1
            seen += [run["id"] for run in page["runs"]]
            after = page["next"]
            if not after:
                break
        assert sorted(seen) == sorted((await ids(found.hf, "night"))[0])
        for params in (
            {"order": "oldest"}, {"order": "updated"}, {"status": "waiting"}, {"search": "secret"}, {"needs": "true"},
            {"waits_for": "person"}, {"label": "team=secret"}, {"parent": "secret-1"}, {"parent": "night-1"}, {"root": "true"},
        ):  # fmt: skip
            answer = await web.get("/api/runs", params=params)
            assert answer.status_code == 200 and "secret" not in answer.text, params
        questions = (await web.get("/api/approvals", params={"limit": 1})).json()
        assert len(questions["approvals"]) == 1
        both = (await web.get("/api/approvals", params={"limit": 2})).json()["approvals"]
        assert {each["root"] for each in both} == {"night-1", "night-2"}
        assert (await web.get("/api/approvals", params={"run": "secret-1"})).json()["approvals"] == []
        deeds = (await web.get("/api/audit")).json()["deeds"]
        assert {deed["run"] for deed in deeds} == {"night-1", "night-2"}
        assert (await web.get("/api/audit", params={"run": "secret-1"})).json()["deeds"] == []
        assert [
            each.run async for each in found.hf.events(follow=False)
        ]  # waits for transactions that other tests have open
        events = (await web.get("/api/events", params={"limit": 1000})).json()["events"]
        assert {event["run"] for event in events} == {*(await ids(found.hf, "night"))[0]}
        assert (await web.get("/api/events", params={"run": "secret-2"})).json()["events"] == []
        counts = (await web.get("/api/counts")).json()
        assert (counts["counts"]["waiting"], counts["needs"]) == (3, 2)
        needs = (await web.get("/api/needs")).json()
        assert (needs["total"], {each["run"].startswith("secret") for each in needs["needs"]}) == (2, {False})
        me = (await web.get("/api/me")).json()
        assert me["only"] == NIGHT


async def test_what_a_limited_token_starts_is_its_own(store_url):
    """It gets the labels; another value of them is refused, and so is the id of a run that is not there for it."""
    async with site(store_url) as (found, web):
        made = await web.post("/api/runs", json={"agent": "only.ask", "args": ["x"], "id": "new", "labels": {"a": "b"}})
        assert made.status_code == 201, made.text
        assert (await found.hf.get("new").info()).labels == {"a": "b", "team": "night"}
        wrong = await web.post("/api/runs", json={"agent": "only.ask", "args": ["x"], "labels": {"team": "secret"}})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "forbidden")
        taken = await web.post("/api/runs", json={"agent": "only.ask", "args": ["secret"], "id": "secret-2"})
        assert (taken.status_code, taken.json()["error"]["code"]) == (409, "run_exists")
        same = await web.post("/api/runs", json={"agent": "only.ask", "args": ["night"], "id": "night-2"})
        assert same.status_code == 200


async def test_many_at_once_are_those_that_are_there(store_url):
    """By a filter that fits all, and by ids that name others too."""
    async with site(store_url) as (found, web):
        done = (await web.post("/api/runs/bulk", json={"action": "pause", "filter": {"status": ["waiting"]}})).json()
        assert done["done"] == 3 and "secret" not in str(done)
        runs, _ = await ids(found.hf, "night")
        hidden, _ = await ids(found.hf, "secret")
        for action in ("cancel", "delete", "retry", "resume"):
            done = (await web.post("/api/runs/bulk", json={"action": action, "ids": hidden})).json()
            assert (done["done"], {each["code"] for each in done["refused"]}) == (0, {"unknown_run"}), action
        assert {info.status for info in await found.hf.runs() if info.id in hidden} == {"waiting"}
        assert {info.status for info in await found.hf.runs() if info.id in runs} == {"paused"}


async def test_a_follower_is_told_of_its_runs_alone(store_url):
    """Also where somebody who sees all follows the same at the same server; a session of the token is limited as it is."""
    async with site(store_url) as (found, web):
        accept = {"Accept": "text/event-stream"}
        told = {"all": "", "some": ""}

        async def follow(name, who):
            async with who.stream("GET", "/api/events", params={"after": 0}, headers=accept) as stream:
                async for line in stream.aiter_lines():
                    told[name] += line

        both = [asyncio.create_task(follow("all", found.web)), asyncio.create_task(follow("some", web))]
        for team in ("secret", "night"):
            await found.hf.start(asking, f"{team}-late", id=f"{team}-late", labels={"team": team})
        while "night-late" not in told["all"] or "secret-late" not in told["all"] or "night-late" not in told["some"]:
            assert not any(each.done() for each in both), told
            await asyncio.sleep(0.02)
        for each in both:
            each.cancel()
        assert "secret" not in told["some"]


@pytest.mark.parametrize("only", [{}, {"team": 5}, {"": "x"}])
async def test_what_cannot_limit_a_token_is_refused(tmp_path, only):
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        with pytest.raises(holdfast.BadArguments, match="only"):
            await hf.create_token("ana", only=only)
