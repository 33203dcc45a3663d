"""Questions to people over HTTP: who decides is who has the credential."""

from tests.http.site import on_a_server


async def bearer(site, name, **options):
    _, secret = await site.hf.create_token(name, **options)
    return {"headers": {"Authorization": f"Bearer {secret}"}}


async def asked(site, agent, *args):
    """The run, the path of its question, and what a decision about it has."""
    run = (await site.hf.start(agent, *args)).id
    await site.until(run, "waiting")
    question = await site.hf.approval(run)
    return run, f"/api/approvals/{question.id}", {"digest": question.digest}


@on_a_server
async def test_the_credential_decides_who_may(site):
    """A token's name and groups are checked against the question; a name in the body is refused, not believed."""
    ana = await bearer(site, "ana", groups=["editors"])
    bob = await bearer(site, "bob")
    run, path, seen = await asked(site, "publish", "draft")
    assert (await site.get("/api/approvals?mine=true", **bob))["approvals"] == []
    (question,) = (await site.get("/api/approvals?mine=true", **ana))["approvals"]
    assert (path, seen) == (f"/api/approvals/{question['id']}", {"digest": question["digest"]})
    assert (await site.post(path, {"decision": "approve", **seen}, 403, **bob))["error"]["code"] == "not_allowed"
    forged = await site.post(path, {"decision": "approve", "by": "ana", **seen}, 422, **bob)
    assert "by: there is no such name" in forged["error"]["message"]
    done = await site.post(path, {"decision": "approve", "data": {"text": "better"}, "note": "fine", **seen}, **ana)
    assert (done["approval"]["decided_by"], done["approval"]["note"]) == ("ana", "fine")
    late = await site.post(path, {"decision": "deny", **seen}, 409, **ana)
    assert (late["error"]["code"], "approved by 'ana'" in late["error"]["message"]) == ("already_decided", True)
    assert (await site.get(f"/api/runs/{run}/result?timeout=20", **ana))["result"] == "better"
    (deed,) = await site.hf.audit(run=run, action="approve")
    token = next(token for token in await site.hf.tokens() if token.name == "ana")
    assert (deed.by, deed.via, deed.value) == ("ana", f"http:{token.id}", {"text": "better"})


@on_a_server
async def test_a_decision_about_something_else_is_stale(site):
    """The digest is the one of the event that asks; with another one nothing is decided, and it is said what is there now."""
    ana = await bearer(site, "ana", groups=["editors"])
    run, path, seen = await asked(site, "publish", "draft")
    refused = await site.post(path, {"decision": "approve", "digest": "0" * 32}, 409, **ana)
    assert (refused["error"]["code"], refused["approval"]["shown"]) == ("stale", {"text": "draft"})
    assert "decide with its digest" in refused["error"]["hint"]
    (digest,) = [
        event.data["digest"] async for event in site.hf.get(run).events(follow=False) if event.kind == "approval.asked"
    ]
    assert {"digest": digest} == seen
    done = await site.post(path, {"decision": "approve", "digest": digest}, **ana)
    assert done["approval"]["status"] == "decided"


@on_a_server
async def test_a_question_is_denied_with_a_reason(site):
    """The agent sees the note."""
    ana = await bearer(site, "ana", groups=["editors"])
    run, path, seen = await asked(site, "publish", "draft")
    await site.post(path, {"decision": "deny", "note": "too long", **seen}, **ana)
    assert (await site.get(f"/api/runs/{run}/result?timeout=20", **ana))["result"] == "no: too long"


@on_a_server
async def test_a_question_is_passed_on(site):
    """Then it is for that person and no longer for the one before."""
    ana, bob = await bearer(site, "ana", groups=["editors"]), await bearer(site, "bob")
    run, path, seen = await asked(site, "publish", "draft")
    passed = await site.post(path, {"decision": "delegate", "to": "bob", **seen}, **ana)
    assert passed["approval"]["delegations"][0]["to"] == "bob"
    late = await site.post(path, {"decision": "approve", **seen}, 403, **ana)
    assert late["error"]["code"] == "not_allowed"
    await site.post(path, {"decision": "approve", **seen}, **bob)
    assert (await site.get(f"/api/runs/{run}/result?timeout=20", **bob))["result"] == "draft"


@on_a_server
async def test_a_question_is_answered_with_a_value_of_its_type(site):
    """Another type is refused with what was expected; so is a decision that does not fit the question."""
    run, path, seen = await asked(site, "number")
    assert "expected integer" in str(await site.post(path, {"decision": "answer", "value": "many", **seen}, 422))
    assert "wants an answer" in str(await site.post(path, {"decision": "approve", **seen}, 422))
    assert "value: it is missing" in str(await site.post(path, {"decision": "answer", **seen}, 422))
    assert "decision" in str(await site.post(path, {"decision": "perhaps", **seen}, 422))
    await site.post(path, {"decision": "answer", "value": 7, **seen})
    assert (await site.get(f"/api/runs/{run}/result?timeout=20"))["result"] == 7
    assert (await site.get("/api/approvals"))["approvals"] == []
    (old,) = (await site.get("/api/approvals?open=false"))["approvals"]
    assert (old["status"], old["data"]) == ("decided", 7)
    assert (await site.get("/api/approvals/q-nothing", 404))["error"]["code"] == "unknown_approval"
