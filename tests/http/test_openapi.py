"""/openapi.json is true: the paths are those that are served, and real answers and requests fit what it says of them."""

import re

import jsonschema
from tests.http.site import on_a_server

from holdfast.http.openapi import description
from holdfast.http.paths import PATHS


def schema_of(path, method, status, kind="application/json"):
    whole = description()
    found = whole["paths"][path][method]["responses"][str(status)]["content"][kind]["schema"]
    return {"components": whole["components"], **found}


def fits(document, path, method="get", status=200):
    jsonschema.Draft202012Validator(
        schema_of(path, method, status), format_checker=jsonschema.FormatChecker()
    ).validate(document)


def test_the_paths_are_those_that_are_served():
    """Every path and method of the table is described, and no other under /api; every reference leads somewhere."""
    whole = description()
    described = {(method.upper(), path) for path, methods in whole["paths"].items() for method in methods}
    others = {("GET", path) for path in ("/", "/api", "/healthz", "/readyz", "/metrics", "/openapi.json")}
    others |= {("POST", "/session"), ("DELETE", "/session")}
    assert described == others | {(each.method, each.path) for each in PATHS}
    names = set(re.findall(r"#/components/schemas/(\w+)", str(whole)))
    assert names <= whole["components"]["schemas"].keys()
    assert not re.search(r"#/\$defs", str(whole))
    operations = [
        methods[method]["operationId"]
        for methods in whole["paths"].values()
        for method in methods
        if "operationId" in methods[method]
    ]
    assert len(set(operations)) == len(operations) == len(PATHS) + 2
    for schema in whole["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@on_a_server
async def test_real_answers_fit(site):
    """Of every path, with as much in it as there can be; and a wrong one would be noticed."""
    assert await site.get("/openapi.json") == description()
    made = await site.post(
        "/api/runs", {"agent": "publish", "args": ["x"], "id": "p", "labels": {"a": "b"}, "budget": {"usd": 1}}, 201
    )
    fits(made, "/api/runs", "post", 201)
    fits(await site.post("/api/runs", {"agent": "publish", "args": ["x"], "id": "p"}), "/api/runs", "post")
    await site.until("p", "waiting")
    fits(await site.get("/api/runs"), "/api/runs")
    fits(await site.get("/api/runs/p"), "/api/runs/{id}")
    fits(await site.get("/api/runs/p/result", 202), "/api/runs/{id}/result", status=202)
    fits(await site.get("/api/approvals"), "/api/approvals")
    fits(await site.get("/api/approvals/p"), "/api/approvals/{id}")
    fits(await site.get("/api/approvals/none", 404), "/api/approvals/{id}", status="default")
    await site.start("number", id="n")
    await site.until("n", "waiting")
    question = await site.hf.approval("n")
    stale = await site.post(f"/api/approvals/{question.id}", {"decision": "answer", "value": 1, "digest": "0"}, 409)
    assert stale["approval"]["digest"] == question.digest
    fits(stale, "/api/approvals/{id}", "post", status="default")
    await site.hf.delegate("p", to="bob", by=_editor("ana"))
    await site.hf.approve("p", by="bob", data={"text": "y"}, note="n")
    fits(await site.get("/api/approvals/p"), "/api/approvals/{id}")
    fits(await site.get("/api/runs/p/result?timeout=20"), "/api/runs/{id}/result")
    fits(await site.get("/api/runs/p/events"), "/api/runs/{id}/events")
    fits(await site.get("/api/agents"), "/api/agents")
    await site.start("talker", ["a", "b"], id="t")
    sent = await site.post("/api/runs/t/send", {"topic": "go", "value": ""})
    fits(sent, "/api/runs/{id}/send", "post")
    await site.until("t", "completed")
    fits(await site.get("/api/runs/t"), "/api/runs/{id}")
    fits(await site.get("/api/runs/t/streams/answer"), "/api/runs/{id}/streams/{name}")
    await site.start("listener", 1, id="l")
    for deed in ("pause", "resume", "cancel"):
        fits(await site.post(f"/api/runs/l/{deed}"), f"/api/runs/{{id}}/{deed}", "post")
    await site.until("l", "cancelled")
    fits((await site.web.delete("/api/runs/l")).json(), "/api/runs/{id}", "delete")
    await site.start("broken", id="b")
    await site.until("b", "failed")
    fits(await site.post("/api/runs/b/retry"), "/api/runs/{id}/retry", "post")
    try:
        fits({"runs": [{"id": 1}], "next": None}, "/api/runs")
    except jsonschema.ValidationError:
        return
    raise AssertionError("a wrong answer was not noticed")


def _editor(name):
    from holdfast import Actor

    return Actor(name, groups=["editors"])
