"""Links to a question: one person, one question as it was, one decision; to look at it decides nothing."""

import asyncio
import json
import re
import subprocess
import sys
from datetime import UTC, datetime

import httpx2
import pytest
from tests.http.site import on_a_server

import holdfast

EDITOR = holdfast.Actor("ana", groups=["editors"])


def browser(site):
    """A browser that opens a link."""
    headers = {"Origin": site.address, "X-Holdfast-Page": "1"}
    return httpx2.AsyncClient(base_url=site.address, timeout=20, headers=headers)


async def asked(site, run="p"):
    await site.start("publish", "text", id=run)
    return await site.hf.get(run).wait_for_question()


async def opened(web, link):
    secret = link.partition("#link=")[2]
    answer = await web.post("/session", json={"link": secret})
    assert answer.status_code == 201, answer.text
    return answer


@on_a_server
async def test_a_link_decides_one_question_once(site):
    """In the name of the person it was made for, through a door of its own; nothing else is there for it."""
    question = await asked(site)
    other = await asked(site, "other")
    link = await site.hf.approval_link(question, by=EDITOR, base_url="https://agents.example.com/")
    assert link.startswith(f"https://agents.example.com/approvals/{question.id}#link=")
    async with browser(site) as web:
        for _ in range(3):  # a program that looks at mail asks for the address, without what follows the #
            assert (await web.get(f"/approvals/{question.id}")).status_code == 200
        await opened(web, link)
        told = (await web.get("/api/me")).json()
        assert (told["name"], told["question"], told["scopes"], told["via"]) == (
            "ana",
            question.id,
            ["read", "decide"],
            "session",
        )
        shown = (await web.get(f"/api/approvals/{question.id}")).json()["approval"]
        assert shown["status"] == "open"
        for path in (
            "/api/runs",
            "/api/approvals",
            "/api/runs/p",
            f"/api/approvals/{other.id}",
            "/api/approvals/p",
            "/api/agents",
        ):
            assert (await web.get(path)).status_code == 403, path
        decision = {"decision": "approve", "digest": question.digest}
        assert (
            await web.post(f"/api/approvals/{other.id}", json=decision | {"digest": other.digest})
        ).status_code == 403
        assert (await web.post("/api/runs", json={"agent": "twice", "args": [1]})).status_code == 403
        done = await web.post(f"/api/approvals/{question.id}", json=decision)
        assert done.status_code == 200 and done.json()["approval"]["decided_by"] == "ana"
        assert (await web.get("/api/me")).status_code == 401  # it is used up
        again = await web.post("/session", json={"link": link.partition("#link=")[2]})
        assert (again.status_code, again.json()["error"]["code"]) == (401, "unauthorized")
        assert "this link was used on " in again.json()["error"]["message"]
        assert again.json()["error"]["message"].endswith(
            ". Its question waits for nobody any more"
        )  # another is of no use
    assert await site.hf.get("p").result() == "text"
    (deed,) = await site.hf.audit(action="approve")
    assert deed.by == "ana" and re.fullmatch(r"link:[0-9a-f]{12}", deed.via)
    (made,) = await site.hf.audit(action="create_link")
    assert made.run == "p" and made.data["name"] == "ana" and made.data["approval"] == question.id


@on_a_server
async def test_a_link_is_for_what_was_shown(site):
    """Once somebody has edited the value, it decides nothing; the other one's edit stands."""
    question = await asked(site)
    link = await site.hf.approval_link(question.id, by=EDITOR)
    async with browser(site) as web:
        await opened(web, link)
        bob = holdfast.Actor("bob", groups=["editors"])
        await site.hf.delegate(question, to="bob", by=bob)
        refused = await web.post(f"/api/approvals/{question.id}", json={"decision": "approve", "digest": "0" * 64})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "stale")
    assert (await site.hf.approval(question.id)).status == "open"


@on_a_server
async def test_two_sessions_of_a_link_decide_once(site):
    """Of two tabs one is first; the link is used up by the decision itself, and not by what came to nothing."""
    question = await asked(site)
    link = await site.hf.approval_link(question, by=EDITOR)
    async with browser(site) as first, browser(site) as second:
        await opened(first, link)
        await opened(second, link)
        wrong = await first.post(
            f"/api/approvals/{question.id}", json={"decision": "answer", "value": 1, "digest": question.digest}
        )
        assert wrong.status_code == 422
        assert (await first.get("/api/me")).status_code == 200
        passed = await first.post(
            f"/api/approvals/{question.id}", json={"decision": "delegate", "to": "bob", "digest": question.digest}
        )
        assert passed.status_code == 200
        late = await second.post(
            f"/api/approvals/{question.id}", json={"decision": "approve", "digest": question.digest}
        )
        assert late.status_code in (401, 403, 409)
    assert (await site.hf.approval(question.id)).status == "open"


@on_a_server
async def test_links_that_are_not_made(site):
    """For who may not decide, for what is over, and for no time; a wrong secret opens nothing."""
    question = await asked(site)
    with pytest.raises(holdfast.NotAllowed):
        await site.hf.approval_link(question, by="eve")
    with pytest.raises(holdfast.BadArguments):
        await site.hf.approval_link(question, by=EDITOR, expires=0)
    with pytest.raises(holdfast.BadArguments):
        await site.hf.approval_link(question, by=EDITOR, base_url="agents.example.com")
    link = await site.hf.approval_link(question, by=EDITOR)
    secret = link.partition("#link=")[2]
    async with browser(site) as web:
        for wrong in (secret[:-1], secret + "x", secret.swapcase(), secret[:13] + "a" * 43, ""):
            refused = await web.post("/session", json={"link": wrong})
            assert refused.status_code == 401
            assert "or not the whole of one" in refused.json()["error"]["message"]
    await site.hf.deny(question, by=EDITOR)
    with pytest.raises(holdfast.AlreadyDecided):
        await site.hf.approval_link(question, by=EDITOR)
    with pytest.raises(holdfast.UnknownApproval):
        await site.hf.approval_link("q-none", by=EDITOR)


def holdfast_command(*words):
    return subprocess.run([sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=True)


@on_a_server
async def test_the_command_line_prints_links(site, tmp_path):
    """To all that a person may decide, one in a line, for a program to send."""
    question = await asked(site)
    url = f"sqlite:{tmp_path}/runs.db"
    words = ["approvals", "--link", "ana", "--group", "editors", "--base-url", "https://a.example", "--db", url]
    (line,) = (await asyncio.to_thread(holdfast_command, *words)).stdout.splitlines()
    assert line.startswith(f"https://a.example/approvals/{question.id}#link=")
    said = json.loads((await asyncio.to_thread(holdfast_command, *words, "--json")).stdout)
    assert [each["question"] for each in said["links"]] == [question.id]
    nothing = await asyncio.to_thread(holdfast_command, "approvals", "--link", "eve", "--db", url)
    assert "Nothing waits for eve" in nothing.stderr


@on_a_server
async def test_a_link_can_be_looked_at_before_it_is_used(site):
    """It says whom it is for and whether it still decides, begins nothing, and is told to nobody who has less than all of it."""
    question = await asked(site)
    secret = (await site.hf.approval_link(question, by=EDITOR)).partition("#link=")[2]
    async with browser(site) as web:
        seen = await web.post("/session", json={"look": secret})
        told = {"name": "ana", "question": question.id, "decides": True, "changed": None}
        assert (seen.status_code, seen.json()) == (200, told)
        assert not web.cookies and (await web.get("/api/me")).status_code == 401
        bob = holdfast.Actor("bob", groups=["editors"])
        await opened(web, f"#link={secret}")
        assert (await web.get("/api/me")).json()["shown"] == question.digest
        run = await site.hf.start("meet", datetime(2026, 11, 17, tzinfo=UTC), id="m")
        two = await run.wait_for_question()
        other = (await site.hf.approval_link(two, by=EDITOR)).partition("#link=")[2]
        changed = await site.hf.approve(two, by=bob, data={"at": two.data["at"], "note": "noon"})
        seen = (await web.post("/session", json={"look": other})).json()
        assert seen["decides"] is False and seen["changed"]["by"] == "bob"
        assert datetime.fromisoformat(seen["changed"]["at"]) == changed.changes[-1].at
        cut = await web.post("/session", json={"look": secret[:-4]})
        assert (cut.status_code, cut.json()["error"]["code"]) == (401, "unauthorized")


@on_a_server
async def test_a_link_to_a_question_that_somebody_decided_opens_nothing(site):
    """Whoever looks at it is told who decided and when, and no session begins."""
    question = await asked(site)
    secret = (await site.hf.approval_link(question, by=EDITOR)).partition("#link=")[2]
    await site.hf.deny(question, by=holdfast.Actor("bob", groups=["editors"]), note="too long")
    async with browser(site) as web:
        for word in ("look", "link"):
            refused = await web.post("/session", json={word: secret})
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
            assert "this link is over: question" in refused.json()["error"]["message"]
            assert "denied by 'bob' on 20" in refused.json()["error"]["message"]
        assert not web.cookies


@on_a_server
async def test_what_a_page_asks_in_one_persons_name_is_not_done_in_anothers(site):
    """In another tab somebody else has signed in: the cookie is theirs by now, and the page still says who looked."""
    question = await asked(site)
    _, hers = await site.hf.create_token("zoë", groups=["editors"])
    _, his = await site.hf.create_token("bo", groups=["editors"])
    decision = {"decision": "approve", "digest": question.digest}
    async with browser(site) as web:
        await web.post("/session", json={"token": hers})
        zoe = {"X-Holdfast-As": "zo%C3%AB"}
        assert (await web.get("/api/runs", headers=zoe)).status_code == 200
        await web.post("/session", json={"token": his})
        for method, path in (("GET", "/api/runs"), ("POST", f"/api/approvals/{question.id}"), ("DELETE", "/session")):
            answer = await web.request(method, path, headers=zoe, json=decision if method == "POST" else None)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized"), path
            assert "'zoë'" in answer.text and "'bo'" in answer.text
        assert (await site.hf.approval(question.id)).status == "open"
        assert (await web.get("/api/me")).json()["name"] == "bo"
        assert (await web.post(f"/api/approvals/{question.id}", json=decision)).status_code == 200
    assert (await site.hf.approval(question.id)).decided_by == "bo"
