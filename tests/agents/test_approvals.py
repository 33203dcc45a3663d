"""`approve` and `ask`: one person decides, in time or not, for exactly what was shown."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import pickle
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from tests.agents.runs import finish, history, kinds, nothing_in_memory

import holdfast
import holdfast.testing
from holdfast import AlreadyDecided, BadArguments, Expired, RunFailed, RunFinished, Stale
from holdfast.engine.attempt import Attempt


@dataclass
class Access:
    groups: list[str]
    days: int = field(default=30)


class Seats(BaseModel):
    count: Annotated[int, Field(ge=1, le=9)]


@holdfast.step
async def publish(text: str) -> str:
    return f"published {text}"


@holdfast.agent
async def report(text: str) -> str:
    decision = await holdfast.approve("Publish this?", show=text)
    if not decision:
        return f"kept: {decision.note}"
    return await publish(decision.data)


@holdfast.agent
async def grant(access: Access) -> str:
    decision = await holdfast.approve("Grant this?", show=access, edit=True, expires="2 days", default=False)
    return f"{bool(decision)} {decision.by} {decision.note} {decision.expired} {decision.data}"


async def waiting(hf: Any, agent: Any, *args: Any, run: str = "r") -> Any:
    started = await hf.start(agent, *args, id=run)
    await started.wait("waiting")
    return started


async def test_a_person_approves():
    """The run waits for a person and goes on with what was decided: who, why, when, and about what."""

    @holdfast.agent
    async def asks() -> list[Any]:
        decision = await holdfast.approve("Publish?", show=["a", "b"])
        (vote,) = decision.votes
        before = decision.at <= holdfast.now()
        return [bool(decision), decision.by, decision.note, decision.data, decision.expired, vote.by, vote.yes, before]

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        assert (await run.info()).waits_for == "person"
        (question,) = await hf.approvals()
        assert (question.question, question.shown, question.path) == ("Publish?", ["a", "b"], ("asks",))
        decided = await hf.approve("r", by="ana", note="good")
        assert (decided.status, decided.decision, decided.decided_by) == ("decided", "approved", "ana")
        assert await run.result() == [True, "ana", "good", ["a", "b"], False, "ana", True, True]
        assert await kinds(hf, "r") == ["approval.asked", "approval.decided", "run.completed"]
        assert await hf.approvals() == []


async def test_a_person_denies_with_a_reason():
    """It is false, and the agent sees why."""
    async with holdfast.testing.open(agents=[report]) as hf:
        run = await waiting(hf, report, "otters")
        await hf.deny("r", by="ana", note="too short")
        assert await run.result() == "kept: too short"
        assert hf.bodies[publish] == 0


async def test_the_first_decision_wins():
    """Later ones are told who decided what and when."""
    async with holdfast.testing.open(agents=[report]) as hf:
        run = await waiting(hf, report, "otters")
        (question,) = await run.approvals()
        await hf.approve(question, by="ana", note="fine")
        for decide in (hf.approve, hf.deny):
            with pytest.raises(AlreadyDecided, match=rf"{question.id}.*approved by 'ana' on 20.* UTC \(fine\)"):
                await decide(question, by="bob")
        assert await run.result() == "published otters"
        assert [deed.action for deed in await hf.audit(run="r")] == ["approve", "start"]


async def test_a_question_shows_nothing_of_how_the_store_keeps_it():
    """Neither as a dictionary nor as pydantic, and so FastAPI, serialises it; it can be decided all the same."""
    async with holdfast.testing.open(agents=[report]) as hf:
        run = await waiting(hf, report, "otters")
        (question,) = await run.approvals()
        documents = [
            dataclasses.asdict(question),
            TypeAdapter(holdfast.Approval).dump_python(question),
            TypeAdapter(list[holdfast.Approval]).json_schema(mode="serialization")["$defs"]["Approval"]["properties"],
        ]
        for document in documents:
            assert {"id", "shown", "digest", "status"} <= set(document)
            assert "row" not in document
        for same in (copy.copy(question), pickle.loads(pickle.dumps(question))):
            assert same == question
        await hf.approve(copy.copy(question), by="ana")
        assert await run.result() == "published otters"


async def test_an_edit_is_checked_by_the_type_of_what_is_shown():
    """In the decider's process by the schema, without the agent's code; the agent gets the type."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, Access(["dev"]))
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            for wrong, told in (
                ({"groups": "dev"}, "data: groups: found str 'dev', expected array"),
                ({"days": 3}, "data: groups: found nothing, expected array"),
                (None, "data: found None, expected an object"),
            ):
                with pytest.raises(BadArguments, match=told):
                    await elsewhere.approve("r", by="ana", data=wrong)
            await elsewhere.approve("r", by="ana", data={"groups": ["ops"], "days": 1})
        assert await run.result() == "True ana  False Access(groups=['ops'], days=1)"


@pytest.mark.parametrize(("shown", "fits", "wrong", "seen"), [
    (["a"], ["b", "c"], ["b", 3], None),
    (["a"], [], {"a": 1}, None),
    ([], ["x", 1], "x", None),
    ([["a"]], [["b"], []], [[1]], None),
    (3, 4, "4", None),
    (True, False, 1, None),
    ({"a": 1}, {"b": "x"}, ["a"], None),
    ([Access(["x"])], [{"groups": [], "days": 1}, {"groups": []}], [{"groups": 1}],
     "[Access(groups=[], days=1), Access(groups=[], days=30)]"),
    ({"a": Access(["x"])}, {"b": {"groups": ["y"]}}, {"b": 1}, "{'b': Access(groups=['y'], days=30)}"),
])  # fmt: skip
async def test_the_type_of_a_value_is_its_own(shown, fits, wrong, seen):
    """A list stays a list of what was in it, a dict of objects one of such; other plain values stay what they are."""

    @holdfast.agent
    async def asks() -> str:
        return repr((await holdfast.approve("So?", show=shown, edit=True)).data)

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        with pytest.raises(BadArguments, match="found"):
            await hf.approve("r", by="ana", data=wrong)
        await hf.approve("r", by="ana", data=fits)
        returned = await run.result()
    assert returned == (seen or repr(fits))


async def test_a_value_that_only_the_type_refuses_reaches_the_agent_as_an_error():
    """What a schema cannot say is found by the agent, and a retry asks anew."""

    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("it is odd")

    @holdfast.agent
    async def asks() -> int:
        return (await holdfast.approve("So?", show=Even(2), edit=True)).data.number

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        await hf.approve("r", by="ana", data={"number": 3})
        with pytest.raises(RunFailed, match="what ana gave for 'So\\?' does not fit"):
            await run.result()
        await run.retry()
        await run.wait("waiting")
        await hf.approve("r", by="ana", data={"number": 4})
        assert await run.result() == 4


async def test_a_decision_is_for_what_was_shown():
    """One that was made in front of something else is refused, and nothing is decided."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, Access(["dev"]))
        (question,) = await run.approvals()
        with pytest.raises(Stale, match="shows something else by now") as refused:
            await hf.approve("r", by="ana", digest="0" * 32)
        assert (refused.value.approval, refused.value.digest) == (question, question.digest)
        assert refused.value.shown == {"groups": ["dev"], "days": 30}
        await hf.approve("r", by="ana", digest=question.digest)
        assert (await run.result()).startswith("True ana")


async def test_ask_takes_a_value_of_a_type():
    """The form is the type's schema; what does not fit is refused where it is given."""

    @holdfast.agent
    async def asks() -> list[Any]:
        seats = await holdfast.ask("How many seats?", Seats, show="the small room")
        date = await holdfast.ask("When?", str)
        return [seats.count, date]

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        (question,) = await run.approvals()
        assert (question.kind, question.shown, question.schema["properties"]["count"]["maximum"]) == (
            "ask",
            "the small room",
            9,
        )
        with pytest.raises(BadArguments, match=r"count: found int 10, expected maximum 9"):
            await hf.answer("r", {"count": 10}, by="ana")
        with pytest.raises(BadArguments, match="wants an answer"):
            await hf.approve("r", by="ana")
        await hf.answer("r", Seats(count=4), by="ana")
        async for event in hf.events(kinds="approval"):
            if event.kind == "approval.asked" and event.data["question"] == "When?":
                break
        await hf.answer("r", "today", by="ana")
        assert await run.result() == [4, "today"]


# Time


@pytest.mark.parametrize("default", [True, False])
async def test_nobody_decides_in_time(default):
    """Then the default holds, with what was shown; the decision says that it expired."""

    @holdfast.agent
    async def asks() -> list[Any]:
        decision = await holdfast.approve("So?", show=5, expires="2 days", default=default)
        return [bool(decision), decision.expired, decision.by, decision.data, decision.votes]

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        (question,) = await run.approvals()
        await hf.advance("47h")
        assert (await run.info()).status == "waiting"
        await hf.advance("2h")
        assert await run.result() == [default, True, None, 5, ()]
        with pytest.raises(Expired, match=r"expired on 20"):
            await hf.approve(question, by="ana")
        assert [each.status for each in await hf.approvals(open=False)] == ["expired"]


async def test_a_paused_run_notices_later_that_it_expired():
    """Meanwhile nobody is asked any more, and nobody can decide; resumed, the run goes on with the default."""
    async with holdfast.testing.open(agents=[grant]) as hf:
        run = await waiting(hf, grant, Access(["dev"]))
        (question,) = await run.approvals()
        await run.pause()
        await run.wait("paused")
        await hf.advance("3 days")
        assert await hf.approvals() == []
        for which in (question, "r"):
            with pytest.raises(Expired):
                await hf.approve(which, by="ana")
        await run.resume()
        assert await run.result() == "False None  True Access(groups=['dev'], days=30)"


async def test_an_answer_that_does_not_come():
    """Is the default; without one it is `Expired`, which a retry of the run asks about anew."""

    @holdfast.agent
    async def asks() -> list[int]:
        first = await holdfast.ask("First?", int, expires="1h", default=7)
        return [first, await holdfast.ask("Second?", int, expires="1h")]

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await hf.start(asks, id="r")
        with pytest.raises(RunFailed, match="nobody answered 'Second\\?' in time"):
            await run.result()
        await run.retry()
        await run.wait("waiting")
        await hf.answer("r", 8, by="ana")
        assert await run.result() == [7, 8]
        assert [each.status for each in await hf.approvals(open=False)] == ["expired", "expired", "decided"]


async def test_people_are_reminded():
    """Each time the interval has passed there is an event, until it is decided; those nobody was there for are one."""

    @holdfast.agent
    async def asks() -> bool:
        return bool(await holdfast.approve("So?", remind="4h", expires="3 days"))

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        for hours in ("4h", "4h", "1h", "16h"):
            await hf.advance(hours)
            await run.wait("waiting")
        reminded = [event.data for event in await history(hf, "r") if event.kind == "approval.reminded"]
        assert [each["nth"] for each in reminded] == [1, 2, 6]
        assert {each["question"] for each in reminded} == {"So?"}
        await hf.crash()
        await hf.approve("r", by="ana")
        assert await run.result() is True
        await hf.advance("4 days")
        assert (await kinds(hf, "r"))[-2:] == ["approval.decided", "run.completed"]


async def test_the_time_of_a_question_is_that_when_it_was_asked():
    """New code with other times, people and numbers goes on with the question as it stands."""
    code: dict[str, Any] = {"expires": "3h", "remind": "2h", "to": "ana", "needs": 1}

    @holdfast.agent
    async def asks() -> bool:
        return (await holdfast.approve("So?", **code)).expired

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        code.update(expires="1h", remind=None, to="bob", needs=2)
        await hf.crash()
        await hf.advance("2h30m")
        assert (await run.info()).status == "waiting"
        assert (await kinds(hf, "r"))[-1] == "approval.reminded"
        (question,) = await run.approvals()
        assert (question.to, question.needs) == (("ana",), 1)
        await hf.advance("1h")
        assert await run.result() is True


@pytest.mark.slow
async def test_three_days_of_waiting_hold_nothing():
    """No attempt is in memory meanwhile, and nothing is read or written; then the decision wakes the run."""

    @holdfast.agent
    async def asks() -> bool:
        return bool(await holdfast.approve("So?", show=list(range(1000))))

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks, run="patient")
        await nothing_in_memory(hf)
        before = await hf.store.run("patient")
        for _ in range(3):
            await hf.advance("1 day")
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, Attempt) and each.run.id == "patient"]
        assert await hf.store.run("patient") == before
        await hf.approve("patient", by="ana")
        assert await run.result() is True


# Waiting for several, and not any more


async def test_a_question_is_withdrawn_when_nobody_waits_for_it():
    """It leaves the list at once, not at the end of the run, and whoever decides late is told."""

    @holdfast.agent
    async def gives_up() -> str:
        try:
            async with holdfast.timeout("1h"):
                await holdfast.approve("So?", show=1)
        except TimeoutError:
            await holdfast.sleep("1 day")
        return "gave up"

    async with holdfast.testing.open(agents=[gives_up]) as hf:
        run = await waiting(hf, gives_up)
        (question,) = await run.approvals()
        await hf.advance("2h")
        assert await hf.approvals() == []
        with pytest.raises(RunFinished, match="was withdrawn: run 'r' no longer waits for it"):
            await hf.approve(question, by="ana")
        assert await run.result() == "gave up"
        assert "approval.withdrawn" in await kinds(hf, "r")


@holdfast.agent
async def impatient() -> list[str]:
    async def slow(name: str) -> str:
        return f"{name} {bool(await holdfast.approve(name))}"

    first = asyncio.create_task(slow("first"))
    second = asyncio.create_task(slow("second"))
    done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    second.cancel() if first in done else first.cancel()
    await holdfast.sleep("1h")
    return [task.result() for task in done]


@pytest.mark.slow
async def test_no_crash_leaves_a_question_that_nobody_waits_for():
    """With a crash at every place: whichever was not decided is withdrawn while the run goes on."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[impatient]):
        run = await hf.start(impatient, id="r")
        while len(await run.approvals()) < 2:
            await run.wait("waiting")
        second = next(each for each in await run.approvals() if each.question == "second")
        await hf.approve(second, by="ana")
        async for event in run.events():
            if event.kind == "timer.set":
                break
        assert await run.result() == ["second True"]
        assert {each.question: each.status for each in await hf.approvals(open=False)} == {
            "first": "withdrawn", "second": "decided",
        }  # fmt: skip
        withdrawn = [event.kind for event in await history(hf, "r")].index("approval.withdrawn")
        assert withdrawn < [event.kind for event in await history(hf, "r")].index("timer.fired")
        passes += 1
    assert passes > 8


async def test_decisions_come_in_the_order_they_were_made():
    """Two that wait at once are answered in the other order, and a resumed run sees them so."""

    @holdfast.agent
    async def asks() -> list[str]:
        seen: list[str] = []

        async def one(name: str) -> None:
            decision = await holdfast.approve(name)
            seen.append(f"{name} {decision.by}")

        await asyncio.gather(one("a"), one("b"))
        await holdfast.sleep("1h")
        return seen

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        with pytest.raises(holdfast.UnknownApproval, match=r"it has 2: q-"):
            await hf.approve("r", by="ana")
        for name in ("b", "a"):
            (question,) = [each for each in await run.approvals() if each.question == name]
            await hf.approve(question, by=f"p{name}")
        await hf.crash()
        assert await run.result() == ["b pb", "a pa"]


async def test_a_decision_is_the_same_in_every_life():
    """Everything about it comes from the journal; neither the person nor needs= is asked again."""
    counted: list[Any] = []

    def needs(access: Access) -> int:
        counted.append(access.groups)
        return 1

    seen: list[str] = []

    @holdfast.agent
    async def asks() -> str:
        decision = await holdfast.approve("So?", show=Access(["x"]), edit=True, needs=needs)
        seen.append(repr(decision))
        await holdfast.sleep("1h")
        return repr(decision)

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        await hf.approve("r", by="ana", note="ok", data=Access(["y"]))
        await run.wait("waiting")
        while not seen:
            await hf.advance("1s")
        await hf.crash()
        assert await run.result() == seen[0]
        assert len(set(seen)) == 1
        assert counted.count(["y"]) == 1


# Values


async def test_what_is_shown_may_be_large():
    """It is kept once, shown exactly, decided and edited; and goes with the run, but for what the audit keeps."""
    large = ["x" * 1000] * 300

    @holdfast.agent
    async def asks() -> list[int]:
        decision = await holdfast.approve("So?", show=large, edit=True)
        return [len(decision.data), len(decision.data[0])]

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        (question,) = await hf.approvals()
        assert question.shown == large
        await hf.approve(question, by="ana", data=["y" * 2000] * 200)
        assert await run.result() == [200, 2000]
        (question,) = await hf.approvals(open=False)
        assert question.data == ["y" * 2000] * 200
        await run.delete()
        assert (await hf.store.facts())["blobs"] == 1
        await hf.erase_audit(run="r")
        assert (await hf.store.facts())["blobs"] == 0


async def test_a_question_keeps_whatever_text_it_is():
    """NUL and half characters are no reason to fail, though no database takes them."""

    @holdfast.agent
    async def asks() -> Any:
        return (await holdfast.approve("a\0b\ud800", show="c\0\ud800")).data

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await waiting(hf, asks)
        (question,) = await hf.approvals()
        assert (question.question, question.shown) == ("a\ufffdb\ufffd", "c\0\ud800")
        await hf.approve("r", by="ana")
        assert await run.result() == "c\0\ud800"


@pytest.mark.parametrize(("call", "told"), [
    (lambda: holdfast.approve(""), "begins with the question"),
    (lambda: holdfast.approve("So?", default="no"), "True or False"),  # type: ignore[call-overload]
    (lambda: holdfast.approve("So?", needs=0), "1 or more"),
    (lambda: holdfast.approve("So?", show=1, needs=lambda _: "two"), "1 or more"),
    (lambda: holdfast.approve("So?", to=""), "names nobody"),
    (lambda: holdfast.approve("So?", to=["ana", 3]), "names nobody"),
    (lambda: holdfast.approve("So?", expires="soon"), "soon"),
    (lambda: holdfast.approve("So?", remind="1ms"), "once a second at most"),
    (lambda: holdfast.approve("So?", show=object()), "cannot be stored"),
    (lambda: holdfast.ask("So?", int, default="x"), "default"),
])  # fmt: skip
def test_a_question_that_makes_no_sense(call, told):
    """It is an error of the agent, before anybody is asked."""

    @holdfast.agent
    async def asks() -> str:
        try:
            await call()
        except holdfast.HoldfastError as error:
            return str(error)
        return "asked"

    assert told in finish(asks)


def test_a_question_must_be_awaited():
    """`if approve(...)` would always hold."""

    @holdfast.agent
    async def asks() -> str:
        try:
            return "yes" if holdfast.approve("So?") else "no"
        except holdfast.HoldfastError as error:
            return str(error)

    with pytest.raises(RunFailed, match="without awaiting it"):
        finish(asks)
    with pytest.raises(holdfast.NotInRun, match="approve works only inside a running agent"):
        holdfast.approve("So?")


async def test_an_edit_may_be_checked_by_a_schema():
    """Where no type says what fits, a JSON schema does; the agent gets what was entered."""
    schema = {"type": "object", "properties": {"day": {"type": "integer"}}, "additionalProperties": False}

    @holdfast.agent
    async def leave() -> dict:
        return (await holdfast.approve("May I?", show={"day": 1}, edit=schema)).data

    async with holdfast.testing.open(agents=[leave]) as hf:
        run = await hf.start(leave)
        await run.wait("waiting")
        (asked,) = await run.approvals()
        assert asked.schema == schema
        for wrong in ({"day": "one"}, {"days": 2}, 2):
            with pytest.raises(holdfast.BadArguments):
                await hf.approve(asked, by="ana", data=wrong)
        await hf.approve(asked, by="ana", data={"day": 2})
        returned = await run.result()
    assert returned == {"day": 2}
