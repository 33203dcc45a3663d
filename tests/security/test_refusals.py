"""What was tried and refused: it is in the audit, however often it is tried, and what is told of it gives nothing away."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Literal

import pytest
from tests.security.agents import keep
from tests.security.conftest import with_store
from tests.workers import ask

import holdfast
from holdfast.http.paths import PATHS


@holdfast.agent(name="refusals.pay")
async def pay(euros: int) -> bool:
    return bool(await holdfast.approve("Pay?", show=euros, to="ana", edit=True))


@dataclass
class Order:
    item: str
    secret_place: str = "SECRET-place"


@holdfast.agent(name="refusals.order")
async def order(item: str) -> bool:
    return bool(await holdfast.approve("Order?", show=Order(item), to="bo", edit=True))


@holdfast.agent(name="refusals.pick")
async def pick() -> str:
    return await holdfast.ask("Which?", Literal["SECRET-red", "SECRET-blue"], to="bo")


def refused(url):
    """(who, door, run, what, why) -> how often, and how many rows there are."""
    deeds = ask(url, lambda hf: hf.audit(action="refused", limit=1_000))
    found = {}
    for deed in deeds:
        key = deed.by, deed.via, deed.run, deed.data["tried"], deed.data["code"]
        found[key] = found.get(key, 0) + deed.data["count"]
    return found, deeds


def until(holds, within_s=10.0):
    began = time.monotonic()
    while not (found := holds()):
        assert time.monotonic() < began + within_s, "it never held"
        time.sleep(0.05)
    return found


def test_refused_tries_are_in_the_audit_and_fill_no_disk(server):
    """The first is there at once; thousands, from guessed tokens and on all paths, are a few rows that count them all."""
    reader, secret = with_store(server, lambda hf: hf.create_token("eve", scopes=["read"]))
    assert server.ask("/api/runs", token=None)[0] == 401
    until(lambda: refused(server.url)[0])
    assert server.ask("/api/runs", "POST", b"{}", token=secret)[0] == 403
    wrong = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    tries = 0
    for n in range(40):
        for guess in (f"holdfast_{n:012x}_{'a' * 43}", wrong, None):
            for endpoint in PATHS[:3]:
                asked = endpoint.path.replace("{id}", f"run-{n}")
                assert server.ask(asked, endpoint.method, token=guess)[0] in (401, 429)
                tries += 1
    server.process.stop()
    assert server.process.ended() == 0
    found, deeds = refused(server.url)
    assert len(deeds) < 60
    assert sum(found.values()) == tries + 2
    assert found["eve", f"http:{reader.id}", "", "POST /api/runs", "forbidden"] == 1
    assert found["someone", "http", "", "GET /api/runs", "unauthorized"] >= 1
    assert any(deed.data.get("token") == reader.id for deed in deeds)
    assert {deed.data.get("address") for deed in deeds} <= {"127.0.0.1", None}


def test_who_may_not_decide_is_in_the_audit(store_url):
    """Also through a library, and with the run; a stale decision too. A name that looks like a door is none."""

    async def main():
        async with holdfast.open(store_url, agents=[pay]) as hf:
            run = await hf.start("refusals.pay", 10, id="p")
            question = await run.wait_for_question(timeout="20s")
            for _ in range(3):
                with pytest.raises(holdfast.NotAllowed):
                    await hf.acting_as("x").approve(question, by="cli:root")
            with pytest.raises(holdfast.Stale):
                await hf.approve(question, by="ana", digest="0" * 32)
            token, _ = await hf.create_token("cli:root")
            await hf.acting_as("cli:root").revoke_token(token.id)

    asyncio.run(main())
    found, deeds = refused(store_url)
    assert found == {
        ("cli:root", "python", "p", "approve", "not_allowed"): 3,
        ("ana", "python", "p", "approve", "stale"): 1,
    }
    assert len(deeds) <= 3
    (revoked,) = ask(store_url, lambda hf: hf.audit(action="revoke_token"))
    assert (revoked.by, revoked.via) == ("cli:root", "python")


def test_an_edit_that_does_not_fit_is_in_the_audit_too(store_url):
    """Whoever may not decide is told that and not what does not fit; nothing is decided, and no vote counts for what was shown."""

    async def main():
        async with holdfast.open(store_url, agents=[pay, pick]) as hf:
            run = await hf.start("refusals.pay", 10, id="p")
            question = await run.wait_for_question(timeout="20s")
            for wrong in ("ten", None, object()):
                with pytest.raises(holdfast.NotAllowed):
                    await hf.approve(question, by="eve", data=wrong)
                with pytest.raises((holdfast.BadArguments, holdfast.NotStorable)):
                    await hf.approve(question, by="ana", data=wrong)
            with pytest.raises(holdfast.Stale):
                await hf.approve(question, by="ana", data="ten", digest="0" * 32)
            other = await (await hf.start("refusals.pick", id="q")).wait_for_question(timeout="20s")
            with pytest.raises(holdfast.NotAllowed):
                await hf.answer(other, "green", by="eve")
            await hf.delegate(other, to="eve", by="bo")
            with pytest.raises(holdfast.BadArguments):  # by the question as it was before, and for the one it is now
                await hf.answer(other, "green", by="eve")
            for each in (question, other):
                now = await hf.approval(each.id)
                assert (now.status, now.votes) == ("open", ())

    asyncio.run(main())
    assert refused(store_url)[0] == {
        ("eve", "python", "p", "approve", "not_allowed"): 3,
        ("ana", "python", "p", "approve", "stale"): 1,
        ("eve", "python", "q", "answer", "not_allowed"): 1,
    }


def test_who_may_not_read_reads_nothing(server):
    """Neither from the answers to what it may do, nor from the reasons why it cannot."""

    async def prepare():
        async with holdfast.open(server.url, agents=[keep, pay]) as hf:
            await hf.run(keep, "SECRET-argument", id="done", labels={"of": "SECRET-label"})
            run = await hf.start("refusals.pay", 4711, id="asks")
            return (await run.wait_for_question(timeout="20s")).id, (await run.wait_for_question()).digest

    async def prepare_more():
        async with holdfast.open(server.url, agents=[order, pick]) as hf:
            runs = [
                await hf.start("refusals.order", "SECRET-item", id="orders"),
                await hf.start("refusals.pick", id="picks"),
            ]
            return [await run.wait_for_question(timeout="20s") for run in runs]

    question, digest = asyncio.run(prepare())
    ordered, picked = asyncio.run(prepare_more())
    _, writer = with_store(server, lambda hf: hf.create_token("w", scopes=["write"]))
    _, decider = with_store(server, lambda hf: hf.create_token("ana", scopes=["decide"]))
    told = []

    def post(path, document, secret, expected):
        status, _, said = server.ask(f"/api/{path}", "POST", json.dumps(document).encode(), token=secret)
        assert status == expected, said
        told.append(json.dumps(said))

    for args in (["guess"], ["SECRET-argumenx"], []):
        post("runs", {"agent": "keep", "args": args, "id": "done"}, writer, 409 if args else 422)
    post("runs", {"agent": "keep", "args": ["SECRET-argument"], "id": "done"}, writer, 200)
    post("runs", {"agent": "keep", "args": ["SECRET-"], "id": "new", "labels": {"of": "me"}}, writer, 201)
    for verb, expected in (("pause", 409), ("cancel", 409), ("resume", 409), ("retry", 409)):
        post(f"runs/done/{verb}", {}, writer, expected)
    post(f"approvals/{question}", {"decision": "approve", "digest": "0" * 32}, decider, 409)
    _, theirs = with_store(server, lambda hf: hf.create_token("bo", scopes=["decide"]))
    for edit in ({"item": "x"}, {"secret_place": 1}, {"item": "x", "secret_placx": "y"}, {}, 7):
        for seen, expected in ((ordered.digest, 422), ("0" * 32, 409)):
            said = {"decision": "approve", "data": edit, "digest": seen}
            post(f"approvals/{ordered.id}", said, decider, 403)
            post(
                f"approvals/{ordered.id}", said, theirs, expected
            )  # a form that says what is missing says what is there
    for secret, expected in ((decider, 403), (theirs, 422)):
        said = {"decision": "answer", "value": "x", "digest": picked.digest}
        post(f"approvals/{picked.id}", said, secret, expected)
    post(f"approvals/{question}", {"decision": "approve", "note": "SECRET-note", "digest": digest}, decider, 200)
    post(f"approvals/{question}", {"decision": "deny", "digest": digest}, decider, 409)
    assert not [said for said in told if "SECRET" in said or "4711" in said or "secret_place" in said]
