"""The onboarding example, killed at every boundary of its journal: each variant ends right, each effect happens once."""

from contextlib import contextmanager

import pytest
from tests.examples.onboarding import open_office, part

import holdfast
import holdfast.testing
from holdfast import Actor, NotAllowed

agents = part("agents")
ANA, BO = Actor("ana", ["it-admins"]), Actor("bo", ["it-admins"])
QUESTION = "Which groups may ada join?"


async def asked(hf, needs=1):
    """The question, once it is open and its run has said how many must agree."""
    while True:
        for question in await hf.approvals():
            if question.needs == needs:
                return question
        await hf.advance("1s")


async def approved(hf):
    await hf.approve(await asked(hf), by=ANA, note="fine")
    return ["staff", "code"], "allowed by ana"


async def denied(hf):
    await hf.deny(await asked(hf), by=BO, note="not before Monday")
    return [], "bo: not before Monday"


async def edited(hf):
    """Whoever makes somebody an admin needs another one who agrees."""
    await hf.approve(await asked(hf), by=ANA, data=["staff", "admin"])
    question = await asked(hf, needs=2)
    assert (question.shown, question.data) == (["staff", "code"], ["staff", "admin"])
    await hf.approve(question, by=BO)
    return ["staff", "admin"], "allowed by ana and bo"


async def expired(hf):
    """Nobody says a word, and the two days pass."""
    return [], "nobody decided in time"


async def delegated(hf):
    """Eve is not of the group; it is hers once it was passed on to her."""
    question = await asked(hf)
    with pytest.raises(NotAllowed, match="'eve' may not decide"):
        await hf.approve(question, by="eve")
    await hf.delegate(question, to="eve", by=ANA, note="on leave")
    with pytest.raises(NotAllowed, match="'ana' passed"):
        await hf.approve(question, by=ANA)
    await hf.approve(question, by="eve", data=["staff"])
    return ["staff"], "allowed by eve"


@contextmanager
def new_office(tmp_path, monkeypatch):
    with open_office(tmp_path / "office") as office:
        monkeypatch.setattr(agents, "OFFICE", office.url)
        yield office


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("decide", [approved, denied, edited, expired, delegated])
async def test_killed_everywhere_it_ends_right_with_each_effect_once(decide, tmp_path, monkeypatch):
    """By the services' own books: one account, the groups that were allowed, one mail that says so."""
    passes, repeated, found = 0, set(), 0
    async for hf in holdfast.testing.crash_everywhere(agents=[agents]):
        with new_office(tmp_path, monkeypatch) as office:
            run = await hf.start(agents.onboard, "ada", id="ada")
            groups, why = await decide(hf)
            access = f"in {', '.join(groups) or 'no group yet'} ({why})"
            assert await run.result() == f"ada is {access}"
            books = office.books()
            assert books["accounts"] == ["ada"]
            assert books["grants"] == ([["ada", groups]] if groups else [])
            assert books["mails"] == [["ada", f"Welcome, ada! Your account is ada. You are {access}."]]
            assert books["requests"]["mails"] == 1
            repeated |= {service for service, times in books["requests"].items() if times > 1}
            found += hf.bodies[agents.send_mail] == books["requests"].get("looks") == 1  # and not sent again
            assert await hf.approvals() == []
        passes += 1
    assert passes > 30
    # A crash did fall between each effect and its record, and for the mail before the effect too.
    assert repeated == ({"accounts", "grants"} if groups else {"accounts"})
    assert found >= 2


async def test_the_deep_question_is_listed_once(tmp_path, monkeypatch):
    """With its path, and reached from the root run and from every run on the way."""
    async with holdfast.testing.open(agents=[agents]) as hf:
        with new_office(tmp_path, monkeypatch):
            run = await hf.start(agents.onboard, "ada", id="ada")
            question = await asked(hf)
            assert await hf.approvals() == await run.approvals() == [question]
            assert question.path == ("onboard", "accounts", "privileges")
            assert (question.question, question.root, question.to) == (QUESTION, "ada", ("it-admins",))
            for level in await hf.runs():
                assert await hf.get(level.id).approvals() == [question]
            await hf.approve("ada", by=BO)
            assert await run.result() == "ada is in staff, code (allowed by bo)"


async def test_people_are_reminded_until_it_expires(tmp_path, monkeypatch):
    """A bot that follows the feed hears of it every twelve hours, and then that it is over."""
    async with holdfast.testing.open(agents=[agents]) as hf:
        with new_office(tmp_path, monkeypatch):
            await hf.run(agents.onboard, "ada")
            heard = [event.kind async for event in hf.events(kinds={"approval"}, follow=False)]
            assert heard == ["approval.asked", *["approval.reminded"] * 3, "approval.expired"]
