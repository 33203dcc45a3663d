"""Several people: who may decide, how many must agree, and to which value; nested runs and feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.agents.runs import history, kinds

import holdfast
import holdfast.testing
from holdfast import Actor, AlreadyDecided, NotAllowed, Stale
from holdfast.verbs.children import Child


@dataclass
class Access:
    groups: list[str]


def two_for_admins(access: Access) -> int:
    return 2 if "admin" in access.groups else 1


@holdfast.agent
async def grant(groups: list[str], needs: int = 0) -> list[Any]:
    decision = await holdfast.approve(
        "Grant this?", show=Access(groups), edit=True, to=["it", "bob"], needs=needs or two_for_admins
    )
    return [bool(decision), decision.by, decision.data.groups, [vote.by for vote in decision.votes]]


ANA, CID = Actor("ana", ["it"]), Actor("cid", groups=("it", "hr"))


async def waiting(hf: Any, agent: Any, *args: Any, run: str = "r") -> Any:
    started = await hf.start(agent, *args, id=run)
    await started.wait("waiting")
    return started


async def counted(hf: Any, text: str) -> Any:
    """The open question, once its run has said how many must agree."""
    while True:
        for question in await hf.approvals():
            if question.question == text and question.needs is not None:
                return question
        await hf.advance("1s")  # and whatever is under way


async def test_two_must_agree():
    """The second one decides; the votes of both are in the decision."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["dev"], 2)
        first = await hf.approve("r", by=ANA)
        assert (first.status, first.needs, [vote.by for vote in first.votes]) == ("open", 2, ["ana"])
        with pytest.raises(AlreadyDecided, match=r"'ana' has agreed to .* before; it needs 2 different people"):
            await hf.approve("r", by=ANA)
        assert (await hf.approve("r", by="bob")).status == "decided"
        assert await run.result() == [True, "bob", ["dev"], ["ana", "bob"]]
        assert await kinds(hf, "r") == ["approval.asked", "approval.voted", "approval.decided", "run.completed"]


@pytest.mark.parametrize("crash", [False, True])
async def test_how_many_must_agree_depends_on_the_edited_value(crash):
    """Only the worker knows; who edits to something that needs two has cast one vote, wherever it was edited."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["dev"])
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:  # without the agent's code
            first = await elsewhere.approve("r", by=ANA, data={"groups": ["dev", "admin"]})
            assert (first.status, first.needs, first.data["groups"]) == ("open", 2, ["dev", "admin"])
            if crash:
                await hf.crash()
            question = await counted(hf, "Grant this?")
            assert (question.needs, len(question.votes)) == (2, 1)
            assert (await elsewhere.approve(question, by="bob")).status == "decided"
        assert await run.result() == [True, "bob", ["dev", "admin"], ["ana", "bob"]]


async def test_an_edit_that_needs_one_is_decided_by_the_worker():
    """The one who edited it decided it, also in the audit."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["admin"])
        first = await hf.approve("r", by=ANA, data=Access(["dev"]))
        assert (first.status, first.decided_by) == ("decided", "ana")  # it was waited for the worker's word
        assert await run.result() == [True, "ana", ["dev"], ["ana"]]
        assert [(each["actor"], each["action"]) for each in await hf.store.audit("r")] == [
            ("ana", "approve"),
            ("ana", "vote"),
            ("someone", "start"),
        ]


async def test_a_needs_function_that_fails_pauses_the_run():
    """Its reason says for whose edit; mended and resumed, the vote counts."""
    broken = [True]

    def needs(groups: list[str]) -> int:
        if broken[0] and "admin" in groups:
            raise LookupError("no such group")
        return 1

    @holdfast.agent
    async def asks() -> list[str]:
        return (await holdfast.approve("So?", show=["dev"], edit=True, needs=needs)).data

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        await hf.approve("r", by="ana", data=["admin"])
        info = await run.wait("paused")
        assert "could not be told for what ana made of it: LookupError: no such group" in info.reason
        broken[0] = False
        await run.resume()
        assert await run.result() == ["admin"]


async def test_nobody_is_said_to_have_changed_what_they_agreed_to():
    """A stale decision names the person who changed the value, if there is one; not one who agreed, before or after."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["dev"], 3)
        (question,) = await run.approvals()
        agreed = await hf.approve(question, by=ANA)
        with pytest.raises(Stale) as refused:
            await hf.approve(agreed, by="bob", digest="0" * 32)
        assert "changed it" not in str(refused.value)
        assert refused.value.details["changed_by"] is refused.value.details["changed_at"] is None
        assert (await hf.approval("r")).changes == ()
        edited = await hf.approve(agreed, by="bob", data=Access(["ops"]))
        await hf.approve(edited, by=ANA)
        with pytest.raises(Stale, match="bob changed it on") as refused:
            await hf.approve(question, by=CID)
        assert refused.value.details["changed_by"] == "bob"
        await hf.approve(await hf.approval("r"), by=CID, data=Access(["dev"]))
        with pytest.raises(Stale, match="cid changed it on"):
            await hf.approve(edited, by="bob", digest=edited.digest)


async def test_votes_are_for_a_value():
    """A vote for what was shown does not count for what somebody made of it."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["dev"], 2)
        (before,) = await run.approvals()
        await hf.approve(before, by=ANA)
        (again,) = await run.approvals()
        edited = await hf.approve(again, by="bob", data=Access(["ops"]))
        assert [vote.by for vote in edited.votes] == [vote.by for vote in (await hf.approval("r")).votes] == ["bob"]
        with pytest.raises(Stale, match="shows something else by now: bob changed it on"):
            await hf.approve(before, by=CID)
        await hf.approve(edited, by=ANA)
        assert await run.result() == [True, "ana", ["ops"], ["bob", "ana"]]
        assert [vote.by for vote in (await hf.approval(before.id)).votes] == ["bob", "ana"]
        told = [  # all that was ever said and taken
            (deed.action, deed.by, deed.value) for deed in await hf.audit(run="r") if deed.action != "refused"
        ]
        assert told[:3] == [
            ("approve", "ana", {"groups": ["ops"]}),
            ("vote", "bob", {"groups": ["ops"]}),
            ("vote", "ana", {"groups": ["dev"]}),
        ]


@pytest.mark.parametrize("needs", [0, 2])
async def test_nobody_is_said_to_have_agreed_to_what_somebody_else_made_of_it(needs):
    """A decision has the votes for what was decided only: who agreed to what was shown before did not agree to that."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["admin"], needs)
        await hf.approve("r", by=ANA)
        await hf.approve("r", by="bob", data=Access(["admin", "ops"]))
        question = await counted(hf, "Grant this?")
        assert ([vote.by for vote in question.votes], question.needs) == (["bob"], 2)
        for unseen in (hf.approve, hf.deny):
            with pytest.raises(Stale, match="bob changed it"):
                await unseen("r", by=CID)
        await hf.deny(question, by=CID) if needs else await hf.approve("r", by=CID, digest=question.digest)
        assert await run.result() == [not needs, "cid", ["admin"] if needs else ["admin", "ops"], ["bob", "cid"]]


async def test_only_those_it_is_for():
    """Others are told who may; a list for one person has what is that person's."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["dev"])
        for act in (hf.approve, hf.deny):
            with pytest.raises(NotAllowed, match=r"'eve' may not decide .*: it is for it, bob"):
                await act("r", by="eve")
        for person, many in (("eve", 0), ("bob", 1), (ANA, 1), (Actor("dan", ["hr"]), 0)):
            assert len(await hf.approvals(to=person)) == many
        (question,) = await run.approvals()
        assert (question.is_for("bob"), question.is_for("eve")) == (True, False)
        await hf.deny("r", by=CID)
        assert (await run.result())[:2] == [False, "cid"]


async def test_passed_on():
    """Whoever may decide may pass it on, and then no longer may; the event tells bots, the audit who it was."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, ["dev"])
        with pytest.raises(NotAllowed):
            await hf.delegate("r", to="eve", by="eve")
        passed = await hf.delegate("r", to="eve", by="bob", note="on leave")
        assert [(each.by, each.to, each.note) for each in passed.delegations] == [("bob", "eve", "on leave")]
        await hf.crash()
        with pytest.raises(NotAllowed, match=r"'bob' passed .* on to 'eve'"):
            await hf.approve("r", by="bob")
        assert [len(await hf.approvals(to=person)) for person in ("bob", "eve")] == [0, 1]
        async for event in run.events():
            if event.kind == "approval.delegated":
                assert (event.data["by"], event.data["to"]) == ("bob", "eve")
                break
        await hf.approve("r", by="eve")
        assert (await run.result())[:2] == [True, "eve"]
        told = [each["action"] for each in await hf.store.audit("r")]
        assert [each for each in told if each != "refused"] == ["approve", "delegate", "start"]


# Nested


@holdfast.agent
async def privileges(name: str) -> bool:
    return bool(await holdfast.approve(f"Make {name} an admin?"))


@holdfast.agent
async def accounts(name: str) -> bool:
    return await privileges(name)


@holdfast.agent
async def onboard(name: str) -> list[bool]:
    bystander: Child[bool] = await holdfast.spawn(accounts, f"{name}'s cat")
    return [await accounts(name), await bystander]


async def test_a_question_deep_in_a_tree():
    """It is listed once, with its path, found from every run above it; deciding it wakes only the run that asked."""
    async with holdfast.testing.open(agents=[onboard, accounts, privileges]) as hf:
        run = await hf.start(onboard, "ada", id="r")
        while len(await run.approvals()) < 2:
            await run.wait("waiting")
        questions = {each.question: each for each in await hf.approvals()}
        assert len(questions) == 2
        question = questions["Make ada an admin?"]
        assert (question.path, question.root) == (("onboard", "accounts", "privileges"), "r")
        runs = {row.id: row for row in await hf.store.runs(root="r")}
        middle = runs[question.run].parent_id
        assert await hf.get(middle).approvals() == [question]
        assert len(await run.approvals()) == 2
        with pytest.raises(holdfast.UnknownApproval, match="it has 2"):
            await hf.approve("r", by="ana")
        for member in runs:
            await hf.get(member).wait("waiting")
        epochs = {row.id: row.lease_epoch for row in await hf.store.runs(root="r")}
        await hf.approve(middle, by="ana")
        async for event in run.events():
            if event.kind == "child.ended":
                break
        after = {row.id: row.lease_epoch for row in await hf.store.runs(root="r")}
        woken = {member for member in epochs if after[member] != epochs[member]}
        assert woken == {question.run, middle, "r"}  # the one that asked, and those that waited for its end
        await hf.approve("r", by="ana")  # one is left
        assert await run.result() == [True, True]


# Feeds, and crashes everywhere


async def test_a_bot_can_follow_all_questions():
    """`kinds="approval"` is all that happens to questions in all runs, and goes on from any position."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        for name in ("a", "b"):
            await waiting(hf, grant, ["dev"], 2, run=name)
        await hf.approve("a", by="bob")
        await hf.deny("b", by="bob")
        await hf.approve("a", by=ANA)
        for name in ("a", "b"):
            await hf.get(name).result()
        seen = [event async for event in hf.events(kinds={"approval"}, follow=False)]
        told = {name: [event.kind for event in seen if event.run == name] for name in ("a", "b")}
        assert told == {
            "a": ["approval.asked", "approval.voted", "approval.decided"], "b": ["approval.asked", "approval.decided"],
        }  # fmt: skip
        for place, event in enumerate(seen):
            rest = [each async for each in hf.events(kinds="approval", after=event.position, follow=False)]
            assert rest == seen[place + 1 :]
        asked = seen[0].data
        assert (asked["question"], asked["to"], asked["kind"]) == ("Grant this?", ["it", "bob"], "approve")
        with pytest.raises(holdfast.BadArguments, match="no kind of event"):
            _ = [event async for event in hf.events(kinds="approvals")]


@holdfast.agent
async def everything() -> list[Any]:
    first = await holdfast.approve("First?", show=["dev"], edit=True, to=["ana", "bob"], needs=len)
    second = await holdfast.ask("Second?", int, expires="1h", default=5)
    third = await holdfast.approve("Third?", remind="1h", expires="3h", default=True)
    return [first.data, [vote.by for vote in first.votes], second, bool(third), third.expired]


@pytest.mark.nightly
async def test_a_crash_between_each_two_actions():
    """Votes, an edit, a delegation, expiries and reminders with a crash before and after every commit: nothing is lost."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[everything]):
        run = await hf.start(everything, id="r")
        question = await counted(hf, "First?")
        await hf.approve(question, by="ana", data=["dev", "ops"])
        question = await counted(hf, "First?")
        await hf.delegate("r", to="eve", by="bob")
        await hf.approve(question, by="eve")
        question = await counted(hf, "Second?")
        await hf.answer(question, 6, by="ana")
        assert await run.result() == [["dev", "ops"], ["ana", "eve"], 6, True, True]
        statuses = [each.status for each in await hf.approvals(open=False)]
        assert statuses == ["decided", "decided", "expired"]
        actions = [each["action"] for each in reversed(await hf.store.audit("r"))]
        assert actions == ["start", "vote", "delegate", "approve", "answer"]
        nths = [event.data["nth"] for event in await history(hf, "r") if event.kind == "approval.reminded"]
        assert nths == sorted(set(nths))
        passes += 1
    assert passes > 20
