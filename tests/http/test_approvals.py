"""Questions to people over HTTP: who decides is who has the credential."""

import asyncio
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated

import pytest
from pydantic import Field
from tests.http.site import on_a_server, served

import holdfast


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


@on_a_server
async def test_a_default_may_be_none_which_is_not_the_same_as_no_default(site):
    """Of the one the agent goes on with None, of the other it gets an error; whoever decides is told which."""
    told = {}
    for agent in ("guess", "number"):
        _, path, _ = await asked(site, agent)
        question = (await site.get(path))["approval"]
        told[agent] = question["has_default"], question["default"]
    assert told == {"guess": (True, None), "number": (False, None)}


@on_a_server
async def test_who_agrees_twice_is_told_what_is_missing(site):
    """Nothing was decided: the details say who agreed, and how many must."""
    ana = await bearer(site, "ana")
    _, path, seen = await asked(site, "meet", datetime(2026, 11, 17, tzinfo=UTC))
    await site.post(path, {"decision": "approve", **seen}, **ana)
    twice = await site.post(path, {"decision": "approve", **seen}, 409, **ana)
    assert twice["error"]["code"] == "already_decided"
    assert twice["error"]["details"] == {"agreed": ["ana"], "needs": 2}
    assert (await site.get(path, **ana))["approval"]["status"] == "open"


@on_a_server
async def test_a_moment_keeps_its_microseconds(site):
    """Shown and sent back, with another field edited, it is the moment that it was."""
    ana, bob = await bearer(site, "ana"), await bearer(site, "bob")
    at = datetime(2026, 11, 17, 7, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    run, path, seen = await asked(site, "meet", at)
    shown = (await site.get(path, **ana))["approval"]["shown"]
    assert datetime.fromisoformat(shown["at"]) == at
    edited = {"decision": "approve", "data": {**shown, "note": "early"}}
    voted = await site.post(path, {**edited, **seen}, **ana)
    await site.post(path, {"decision": "approve", "digest": voted["approval"]["digest"]}, **bob)
    told = (await site.get(f"/api/runs/{run}/result?timeout=20", **ana))["result"]
    assert datetime.fromisoformat(told) == at
    whole = (await site.get(path, **ana))["approval"]["asked_at"]
    assert len(whole) == len("2026-11-17T06:00:00.000Z")  # what has no microseconds is written as before


@on_a_server
async def test_nothing_is_for_a_token_that_may_not_decide(site):
    """Neither in the list of what is the caller's, nor among what needs a person."""
    eve, ana = (
        await bearer(site, "eve", groups=["editors"], scopes=["read"]),
        await bearer(site, "ana", groups=["editors"]),
    )
    await asked(site, "publish", "draft")
    assert (await site.get("/api/approvals?mine=true", **eve))["approvals"] == []
    assert len((await site.get("/api/approvals", **eve))["approvals"]) == 1
    assert [each["mine"] for each in (await site.get("/api/needs", **eve))["needs"]] == [False]
    assert [each["mine"] for each in (await site.get("/api/needs", **ana))["needs"]] == [True]


@on_a_server
async def test_who_has_passed_a_question_on_is_not_among_those_it_is_for(site):
    """Who asks for it in vain is told the one who has it now."""
    ana, eve = await bearer(site, "editors"), await bearer(site, "eve")
    _, path, seen = await asked(site, "publish", "draft")
    await site.post(path, {"decision": "delegate", "to": "bob", **seen}, **ana)
    refused = await site.post(path, {"decision": "approve", **seen}, 403, **eve)
    assert refused["error"]["details"] == {"to": ["bob"]}
    assert (await site.get("/api/needs", **eve))["needs"][0]["to"] == ["bob"]


def no_json(word):
    raise AssertionError(f"{word} is no JSON")


@on_a_server
async def test_a_number_that_json_lacks_is_told_in_json_and_survives_an_edit(site):
    """One question with such a number would else take all the others from every page that lists them."""
    for number in ("nan", "inf", "-inf"):
        run, path, seen = await asked(site, "rated", number)
        wanted = {"rate": {"$float": number}}
        paths = (
            "/api/approvals",
            path,
            f"/api/runs/{run}/events",
            f"/api/runs/{run}/outline",
            f"/api/runs/{run}/steps/0",
            "/api/needs",
        )
        for each in paths:
            answer = await site.web.get(each)
            assert answer.status_code == 200, (each, answer.text)
            json.loads(answer.text, parse_constant=no_json)
        assert (await site.get(path))["approval"]["data"] == wanted
        done = await site.web.post(path, json={"decision": "approve", "data": wanted, **seen})
        assert done.status_code == 200, done.text
        assert json.loads(done.text, parse_constant=no_json)["approval"]["data"] == wanted
        kept = (await site.hf.approval(path.rpartition("/")[2])).data
        assert repr(kept) == f"{{'rate': {number}}}"
        result = await site.web.get(f"/api/runs/{run}/result?timeout=20")
        assert json.loads(result.text, parse_constant=no_json)["result"] == wanted


@dataclass
class Order:
    n: int
    f: float
    amount: Decimal
    maybe: int | None = None


@holdfast.agent(name="approvals.order")
async def order() -> str:
    shown = Order(9007199254740993, 0.5, Decimal("12.50"))
    return repr((await holdfast.approve("Order?", show=shown, edit=True)).data)


@holdfast.agent(name="approvals.count")
async def count(kind: str) -> str:
    return repr(await holdfast.ask("How many?", {"int": int, "float": float, "Decimal": Decimal}[kind]))


@dataclass
class Price:
    eur: Annotated[Decimal, Field(ge=0, decimal_places=2)]


@holdfast.agent(name="approvals.sell")
async def sell() -> str:
    return str((await holdfast.approve("Sell?", show=Price(Decimal("9.90")), edit=True)).data.eur)


@holdfast.agent(name="approvals.price")
async def price() -> str:
    return str((await holdfast.ask("For how much?", Price)).eur)


async def test_what_is_beyond_the_limits_of_its_type_is_refused_and_not_recorded(tmp_path):
    """A decimal as a text too, by which the run would fail later; over HTTP and from Python, edited and answered."""
    async with asyncio.timeout(60), served(f"sqlite:{tmp_path}/runs.db", agents=[sell, price]) as site:
        for agent, decision, name in (("approvals.sell", "approve", "data"), ("approvals.price", "answer", "value")):
            run, path, seen = await asked(site, agent)
            question = path.rpartition("/")[2]
            for eur in ("-5", -5, "-0.001", "1.999", 1.999):
                answer = await site.post(path, {"decision": decision, name: {"eur": eur}, **seen}, 422)
                assert answer["error"]["code"] == "bad_arguments"
                assert answer["error"]["details"] == {"of": "value", "path": ["eur"]}
            why = "eur: found str '-5', expected greater than or equal to 0"
            for eur in ("-5", Decimal(-5)):
                say = site.hf.approve if decision == "approve" else site.hf.answer
                with pytest.raises(holdfast.BadArguments, match=why):
                    await say(question, by="ana", **{name: {"eur": eur}})
            assert (await site.hf.approval(question)).status == "open"
            assert await site.hf.audit(run=run, action=decision) == []
            await site.post(path, {"decision": decision, name: {"eur": "5.00"}, **seen})
            assert (await site.get(f"/api/runs/{run}/result?timeout=20"))["result"] == "5.00"


async def test_a_number_that_its_type_does_not_hold_exactly_is_refused_and_nothing_is_lost(tmp_path):
    """Neither by the decision nor after it: the question stays open, and the next decision has every digit."""
    async with asyncio.timeout(60), served(f"sqlite:{tmp_path}/runs.db", agents=[order, count]) as site:
        run, path, seen = await asked(site, "approvals.order")
        shown = asdict(Order(9007199254740993, 0.5, Decimal("12.50"))) | {"amount": "12.50"}

        async def refused(said, number, why):
            """Send a number as it is written."""
            content = json.dumps({**said, **seen}).replace('"#"', number)
            answer = await site.web.post(path, content=content, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_arguments"), answer.text
            assert why in answer.json()["error"]["message"]

        digits, exact = "an integer with all of them", "a number that a float holds exactly"
        for name, number, why in (
            ("n", "9007199254740993.0", digits), ("n", "1e22", digits), ("maybe", "9007199254740993.0", digits),
            ("f", "9007199254740993", exact), ("amount", '"NaN"', "a finite number"), ("amount", '"-Infinity"', "a finite number"),
        ):  # fmt: skip
            await refused({"decision": "approve", "data": {**shown, name: "#"}}, number, why)
        edit = shown | {"n": 9007199254740995, "f": 2, "amount": 9007199254740993, "maybe": 5.0}
        await site.post(path, {"decision": "approve", "data": edit, **seen})
        told = (await site.get(f"/api/runs/{run}/result?timeout=20"))["result"]
        assert told == repr(Order(9007199254740995, 2.0, Decimal(9007199254740993), 5))
        for kind, number, why, good in (
            ("int", "9007199254740993.0", digits, 10**22), ("int", "1e22", digits, 10**22),
            ("float", "9007199254740993", exact, 0.1),
            ("Decimal", '"NaN"', "a finite number", "0.10"), ("Decimal", '"Infinity"', "a finite number", "0.10"),
        ):  # fmt: skip
            run, path, seen = await asked(site, "approvals.count", kind)
            await refused({"decision": "answer", "value": "#"}, number, why)
            await site.post(path, {"decision": "answer", "value": good, **seen})
            told = (await site.get(f"/api/runs/{run}/result?timeout=20"))["result"]
            assert told == repr({"int": int, "float": float, "Decimal": Decimal}[kind](good))
