"""The onboarding and the support example on every ground: equal answers, and equal books of what was done."""

from urllib.parse import quote

import pytest
from tests.examples.onboarding import open_office, part
from tests.examples.support import open_shop
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@pytest.fixture(params=["sqlite", "postgresql", "temporal"])
def ground(request, tmp_path):
    """The URL of each; a cluster has a database beside it."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/runs.db"
    database = request.getfixturevalue("postgres_url")
    if request.param == "postgresql":
        return database
    return f"{request.getfixturevalue('temporal_url')}&side={quote(database, safe='')}"


@pytest.mark.slow
async def test_somebody_is_onboarded(ground, tmp_path):
    agents = part("agents")
    with open_office(tmp_path / "office") as office:
        agents.OFFICE = office.url
        async with holdfast.open(ground, agents=[agents], settings=QUICK) as hf:
            run = await hf.start(agents.onboard, "ada", id="ada")
            question = await run.wait_for_question(timeout="60s")
            by = holdfast.Actor("ana", groups=["it-admins"])
            await hf.approve(question, by=by, data=["staff"])
            assert await run.result(timeout="60s") == "ada is in staff (allowed by ana)"
        assert office.books() == {
            "accounts": ["ada"],
            "grants": [["ada", ["staff"]]],
            "mails": [["ada", "Welcome, ada! Your account is ada. You are in staff (allowed by ana)."]],
            "requests": {"accounts": 1, "grants": 1, "mails": 1},
        }


@pytest.mark.slow
async def test_a_customer_is_answered_and_paid_once(ground, tmp_path, monkeypatch):
    """With a framework's agent, a conversation that outlives its runs, and a person who changes the amount."""
    with open_shop(tmp_path, monkeypatch) as (shop, chat):
        async with holdfast.open(ground, agents=[chat.support], settings=QUICK) as hf:
            first = await chat.say(hf, "ana", "Where is order 101?", "1")
            assert first == "Order 101, a kettle, is delivered on Monday."
            run = await hf.start(chat.support, "ana", chat.Said("2", "I want my money back"), id="ana-2")
            question = await run.wait_for_question(timeout="60s")
            assert (question.shown, question.to) == ({"number": 101, "amount": 40}, ("supervisors",))
            by = holdfast.Actor("sue", groups=["supervisors"])
            await hf.approve(question, by=by, data={"number": 101, "amount": 30})
            assert (await run.result(timeout="60s")).text == "About order 101: 30 paid back to ana"
            assert await chat.say(hf, "ana", "Where is order 101?", "1") == first
            assert len(await hf.conversation("ana").messages()) == 10
        assert shop.books()["refunds"] == [[101, 30]]
        assert shop.model.asked == shop.model.paid == 5
