"""A run from inside, over HTTP: its calls in pages and one by one, what it has come to, and its state."""

from tests.http.site import double, on_a_server, served

import holdfast


@on_a_server
async def test_calls_are_listed_in_pages_and_shown_whole(site):
    await site.post("/api/runs", {"agent": "twice", "args": [21], "id": "a"}, 201)
    await site.get("/api/runs/a/result?timeout=20")
    page = await site.get("/api/runs/a/steps?limit=1")
    (step,) = page["steps"]
    assert (step["key"], step["name"], step["status"], step["input"], page["next"]) == (
        "double#0",
        "double",
        "completed",
        "n=21",
        0,
    )
    assert "_client" not in step
    assert await site.get("/api/runs/a/steps?after=0") == {"steps": [], "next": None}
    for which in ("0", "double%230"):
        whole = await site.get(f"/api/runs/a/steps/{which}")
        assert (whole["step"], whole["arguments"], whole["result"]) == (step, None, 42)


@holdfast.agent
async def rounds(n: int) -> int:
    n = await holdfast.restore(n)
    await holdfast.checkpoint(n)
    return await double(n)


async def test_a_key_with_slashes_finds_its_call(tmp_path):
    async with served(f"sqlite:{tmp_path / 'runs.db'}", agents=[rounds]) as site:
        await site.hf.run(rounds, 3, id="a")
        for which in ("@1/double%230", "%401%2Fdouble%230"):
            whole = await site.get(f"/api/runs/a/steps/{which}")
            assert (whole["step"]["key"], whole["result"]) == ("@1/double#0", 6)
        for which in ("@1/double%231", "@1/", "@1/double%230/"):
            assert (await site.get(f"/api/runs/a/steps/{which}", 422))["error"]["code"] == "bad_arguments"
        assert (await site.get("/api/runs/a/steps/", 422))["error"]["code"] == "bad_arguments"


@on_a_server
async def test_a_snapshot_and_a_state_are_documents(site):
    await site.post("/api/runs", {"agent": "publish", "args": ["text"], "id": "p"}, 201)
    while not (await site.get("/api/approvals"))["approvals"]:
        pass
    (asked,) = (await site.get("/api/approvals"))["approvals"]
    document = await site.get("/api/runs/p/snapshot")
    found = document["snapshot"]
    (waits,) = found["pending"]
    assert (waits["kind"], waits["what"], waits["text"], waits["to"]) == (
        "question",
        asked["id"],
        "Publish this?",
        ["editors"],
    )
    assert (found["goal"], found["children"], document["arguments"]) == ("publish(text='text')", [], {"text": "text"})
    assert await site.get("/api/runs/p/state") == {"state": None}


@on_a_server
async def test_what_is_not_there_is_refused(site):
    await site.post("/api/runs", {"agent": "twice", "args": [1], "id": "a"}, 201)
    for path in ("steps", "steps/0", "snapshot", "state"):
        refused = await site.get(f"/api/runs/nobody/{path}", 404)
        assert refused["error"]["code"] == "unknown_run"
    for path in (
        "steps?limit=0",
        "steps?after=-2",
        "steps?after=999",
        "steps/nothing",
        "steps/99",
        "state?at=99",
        "state?at=x",
    ):
        await site.get(f"/api/runs/a/{path}", 422)
