"""Fields and parameters at their default: stored, shown and returned like others, and no part of what identifies a call."""

import asyncio
import dataclasses
import enum
import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired

import pydantic
import pytest
from tests.agents.runs import history, kinds
from tests.engine.lives import lives
from typing_extensions import TypedDict

import holdfast
import holdfast.testing
from holdfast import BadArguments, NondeterminismError, RunExists


def transfer(euros: int, *more: Any) -> Any:
    """The type as one deploy has it."""
    return dataclasses.make_dataclass("Transfer", [("to", str), ("euros", int, euros), *more])


def code(euros: int, *more: Any) -> dict[str, Any]:
    """The agents as one deploy has them: all that changes is a default, or that a field is added."""
    Transfer = transfer(euros, *more)  # noqa: N806 - a type

    @holdfast.step
    async def quote(to: str) -> Transfer:
        return Transfer(to)

    @holdfast.step
    async def pay(money: Transfer, memo: str = "none") -> str:
        return f"{money.to} got {money.euros}"

    @holdfast.agent
    async def records() -> list[int]:
        quoted = await quote("bo")
        message = await holdfast.receive("go", Transfer)
        return [quoted.euros, message.euros]

    @holdfast.agent
    async def counts() -> int:
        state = await holdfast.restore(Transfer("bo"))
        state = await holdfast.checkpoint(state)
        await holdfast.receive("go")
        return state.euros

    @holdfast.agent
    async def child(money: Transfer, times: int = euros) -> list[int]:
        await holdfast.receive("go")
        return [money.euros, times]

    @holdfast.agent
    async def calls() -> list[int]:
        started = await holdfast.spawn(child, Transfer("bo"))
        await holdfast.receive("go")
        return await started

    @holdfast.agent
    async def pays(to: str, least: int = 5) -> str:
        decision = await holdfast.approve("Pay this?", show=Transfer(to), edit=True)
        return await pay(decision.data) if decision else "no"

    @holdfast.agent
    async def asks() -> str:
        return await pay(await holdfast.ask("Pay what?", Transfer))

    @holdfast.agent
    async def returns(to: str, least: int = 5) -> Transfer:
        return await quote(to)

    @holdfast.agent
    async def says() -> list[int]:
        async with holdfast.conversation("c", Transfer) as talk:
            await talk.add(Transfer("bo"))
            await holdfast.receive("go")
            return [each.euros for each in await talk.messages()]

    found = (records, counts, child, calls, pays, asks, returns, says)
    return {agent.name: agent for agent in found}


async def test_an_approver_sees_all_that_is_decided():
    """Fields at their default too: in the list, in the event's digest, and in the data of the decision."""
    agents = code(30)

    async with holdfast.testing.open(agents=[agents["pays"]]) as hf:
        run = await hf.start(agents["pays"], "bo", id="r")
        await run.wait("waiting")
        (question,) = await hf.approvals()
        assert question.shown == {"to": "bo", "euros": 30}
        (asked,) = [event for event in await history(hf, "r") if event.kind == "approval.asked"]
        assert asked.data["input"] == "{'to': 'bo', 'euros': 30}"
        await hf.approve("r", by="ana", digest=asked.data["digest"])
        assert await run.result() == "bo got 30"


def test_what_a_person_leaves_out_of_an_answer_is_what_the_form_said(tmp_path):
    """The default of the day of the answer, not of the day on which the run goes on."""

    async def act(hf, life):
        if life == 0:
            await (await hf.start(before["asks"], id="r")).wait("waiting")
        elif life == 1:  # without the agent's code
            assert (await hf.answer("r", {"to": "cy"}, by="ana")).data == {"to": "cy", "euros": 30}
        else:
            return await hf.get("r").result(timeout=20)
        return None

    before, after = code(30), code(9999)
    assert lives(tmp_path / "a.db", [before["asks"]], [], [after["asks"]], act=act)[2] == "cy got 30"


def payments(copied: str) -> list[Any]:
    """The agents as one deploy has them: all that changes is what a field is made of that is left out."""

    @dataclasses.dataclass
    class Limits:
        days: int = 30
        tags: list[str] = dataclasses.field(default_factory=lambda: [copied])

    @dataclasses.dataclass
    class Payment:
        to: str
        amount: int = 100
        cc: list[str] = dataclasses.field(default_factory=lambda: [copied])
        notes: list[str] = dataclasses.field(default_factory=list)
        limits: Limits | None = None

    @holdfast.step
    async def pay(payment: Payment) -> str:
        return f"{payment.to} got {payment.amount}, {payment.cc} know {payment.notes}"

    @holdfast.agent
    async def pays(needs: int = 1) -> str:
        shown = Payment("bo", 5, cc=["boss"], limits=Limits(7, ["x"]))
        decision = await holdfast.approve("Pay?", show=shown, edit=True, needs=needs)
        return await pay(decision.data) if decision else "no"

    @holdfast.agent
    async def asks() -> str:
        return await pay(await holdfast.ask("Pay what?", Payment))

    @holdfast.agent
    async def lists() -> list[str]:
        decision = await holdfast.approve("Pay these?", show=[Payment("bo", 5, ["boss"])], edit=True)
        return [await pay(each) for each in decision.data]

    return [pays, asks, lists]


WHOLE = {"to": "cy", "amount": 6, "cc": ["boss"], "notes": [], "limits": {"days": 7, "tags": ["x"]}}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in WHOLE.items() if name not in names}


@pytest.mark.parametrize(("edit", "told"), [
    (without("cc"), 'data leaves out cc. What is approved is whole; give it too (now it is ["boss"])'),
    (without("amount", "notes"), "leaves out amount and notes. What is approved is whole; give them too (now they are 5 and [])"),
    (without("limits"), 'data leaves out limits. What is approved is whole; give it too (now it is {"days": 7, "tags": ["x"]})'),
    (WHOLE | {"limits": {"days": 8}}, 'data leaves out limits.tags. What is approved is whole; give it too (now it is ["x"])'),
])  # fmt: skip
def test_an_edit_that_leaves_out_what_was_shown_is_refused(tmp_path, edit, told):
    """Neither the default of the type nor that of a later deploy takes the place of what the person saw."""

    async def act(hf, life):
        if life == 0:
            await (await hf.start(before[0], 2, id="r")).wait("waiting")
        elif life == 1:  # without the agent's code
            with pytest.raises(BadArguments, match=re.escape(told)):
                await hf.approve("r", by="ana", data=edit)
            assert not (await hf.approval("r")).votes
            edited = await hf.approve("r", by="ana", data=WHOLE)
            with pytest.raises(BadArguments, match=r"leaves out amount\. .* \(now it is 6\)"):  # as it was edited last
                await hf.approve(edited, by="bob", data=without("amount"))
            await hf.approve(edited, by="bob")
        else:
            return await hf.get("r").result(timeout=20)
        return None

    before, after = payments("audit"), payments("evil")
    assert lives(tmp_path / "a.db", before, [], after, act=act)[2] == "cy got 6, ['boss'] know []"


def test_what_the_form_cannot_tell_must_be_entered(tmp_path):
    """A default that the type makes anew each time is in no schema; an empty list is, and so is a plain default."""

    async def act(hf, life):
        if life == 0:
            for agent in before[1:]:
                await (await hf.start(agent, id=agent.name)).wait("waiting")
        elif life == 1:  # without the agent's code
            with pytest.raises(BadArguments, match=r"leaves out cc\. The form does not tell .*give it too$"):
                await hf.answer("asks", {"to": "cy"}, by="ana")
            answered = await hf.answer("asks", {"to": "cy", "cc": []}, by="ana")
            assert answered.data == {"to": "cy", "amount": 100, "cc": [], "notes": [], "limits": None}
            kept = {"to": "bo", "amount": 5, "cc": [], "notes": [], "limits": None}
            with pytest.raises(BadArguments, match=r"data leaves out \[1\]\.cc\. The form does not tell"):
                await hf.approve("lists", by="ana", data=[kept, {"to": "cy"}])
            with pytest.raises(BadArguments, match=r"data leaves out \[0\]\.amount\. .*now it is 5"):
                await hf.approve("lists", by="ana", data=[{"to": "bo", "cc": [], "notes": [], "limits": None}])
            await hf.approve("lists", by="ana", data=[kept, {"to": "cy", "cc": ["x"]}])
        else:
            return [await hf.get(agent.name).result(timeout=20) for agent in before[1:]]
        return None

    before, after = payments("audit"), payments("evil")
    asked, listed = lives(tmp_path / "a.db", before, [], after, act=act)[2]
    assert asked == "cy got 100, [] know []"
    assert listed == ["bo got 5, [] know []", "cy got 100, ['x'] know []"]


async def test_a_key_that_need_not_be_there_may_be_left_out_of_an_answer():
    """Nothing is made in its place."""

    class Seat(TypedDict):
        row: int
        window: NotRequired[bool]

    @holdfast.agent
    async def sits() -> dict[str, Any]:
        return dict(await holdfast.ask("Where?", Seat))

    async with holdfast.testing.open(agents=[sits]) as hf:
        run = await hf.start(sits, id="r")
        await run.wait("waiting")
        await hf.answer("r", {"row": 3}, by="ana")
        assert await run.result() == {"row": 3}


async def test_a_result_is_returned_whole():
    """Also to those who have not the agent's code, and its arguments with it."""
    agents = code(30)

    async with holdfast.testing.open(agents=list(agents.values())) as hf:
        await hf.run(agents["returns"], "bo", id="r")
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            assert await elsewhere.get("r").result() == {"to": "bo", "euros": 30}
            assert await elsewhere.get("r").arguments() == {"to": "bo", "least": 5}
            by_name = await elsewhere.start("pays", "bo", id="n")
            assert await by_name.arguments() == {"to": "bo", "least": 5}
            await elsewhere.start("child", {"to": "bo"}, id="c")
            assert await elsewhere.get("c").arguments() == {"money": {"to": "bo", "euros": 30}, "times": 30}


async def test_an_argument_given_at_its_default_is_the_same_run():
    """However it is started, with the code or by name; another value is another run."""
    agents = code(30)

    async with holdfast.testing.open(agents=[agents["returns"]]) as hf:
        await hf.start(agents["returns"], "bo", id="r")
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            for client, agent in ((hf, agents["returns"]), (elsewhere, "returns")):
                assert not (await client.start(agent, "bo", id="r")).created
                assert not (await client.start(agent, "bo", 5, id="r")).created
                with pytest.raises(RunExists, match=r"exists as returns\(\{'to': 'bo', 'least': 5\}\)"):
                    await client.start(agent, "bo", 6, id="r")


@pytest.mark.parametrize(
    ("name", "result"),
    [("records", [30, 30]), ("counts", 30), ("calls", [30, 30]), ("says", [30])],
)
def test_a_default_that_changes_changes_nothing_that_was_recorded(tmp_path, name, result):
    """Results, messages, states, the arguments of children, and what was said in conversations."""

    async def act(hf, life):
        if life == 0:
            run = await hf.start(before[name], id="r")
            await run.wait("waiting")
            return None
        run = hf.get("r")
        await run.send("go", transfer(30)("bo"))
        for each in await hf.runs(agent="child"):
            await hf.get(each.id).send("go")
        return await run.result(timeout=20)

    before, after = code(30), code(9999, ("note", str, "added"))
    assert lives(tmp_path / "a.db", list(before.values()), list(after.values()), act=act)[1] == result


@pytest.mark.parametrize("decided", [False, True])
def test_a_changed_default_never_pays_what_was_not_approved(tmp_path, decided):
    """The run is paused before any effect, naming the field and both values; with the old default it goes on."""

    async def act(hf, life):
        run = hf.get("r")
        if life == 0:
            await (await hf.start(before["pays"], "bo", id="r")).wait("waiting")
        elif life == 1 and decided:  # while nobody has the code
            await hf.approve("r", by="ana")
        elif life == 2:
            if not decided:
                await hf.approve("r", by="ana")
            with pytest.raises(
                NondeterminismError, match=r"'Pay this\?' showed show.euros = 30, .* now show 9999 there"
            ):
                await run.result(timeout=20)
            assert sum(hf.bodies.values()) == 0
        elif life == 3:
            await run.resume()
            return await run.result(timeout=20)
        return None

    before, after = code(30), code(9999)
    agents = [[before["pays"]], [], [after["pays"]], [before["pays"]]]
    assert lives(tmp_path / "a.db", *agents, act=act)[3] == "bo got 30"


def test_a_field_that_was_added_since_is_no_part_of_what_was_shown(tmp_path):
    """A field with a default may be added while a question is open."""

    async def act(hf, life):
        if life == 0:
            run = await hf.start(before["pays"], "bo", id="r")
            await run.wait("waiting")
            return None
        await hf.approve("r", by="ana")
        return await hf.get("r").result(timeout=20)

    before, after = code(30), code(30, ("note", str, "added"))
    assert lives(tmp_path / "a.db", [before["pays"]], [after["pays"]], act=act)[1] == "bo got 30"


class Open(pydantic.BaseModel, extra="allow"):
    days: int = 30


def grants(kind: str, later: bool) -> Any:
    """The agent as one deploy has it: all that changes is that there is more in a default."""
    more = {"admin": 1} if later else {}
    rights = {"read": 1, **more}
    fields: dict[str, Any] = {
        "dict": (dict[str, int], rights),
        "extra": (Open, Open(**more)),
        "model": (Any, None),
        "declared": (list[str], rights),
    }
    if kind == "model":  # a field is added too, and is not at its own default there
        Rights = pydantic.create_model("Rights", read=(int, 1), **({"admin": (int, 0)} if later else {}))  # noqa: N806
        fields[kind] = (Rights, Rights(**rights))
    Access = pydantic.create_model("Access", who=(str, ...), rights=fields[kind])  # noqa: N806 - a type

    @holdfast.agent(name="grants")
    async def agent() -> str:
        return str((await holdfast.approve("Grant?", show=Access(who="bo"))).data.rights)

    return agent


@pytest.mark.parametrize("kind", ["dict", "extra", "model", "declared"])
def test_more_in_a_default_than_was_shown_is_not_granted(tmp_path, kind):
    """A key of a default that is no new field of a type, or is not at its own default, is something else than what was seen."""

    async def act(hf, life):
        if life == 0:
            await (await hf.start("grants", id="r")).wait("waiting")
        elif life == 1:
            await hf.approve("r", by="ana")
            with pytest.raises(NondeterminismError, match=r"showed show\.rights.*admin = nothing, .* now show 1 there"):
                await hf.get("r").result(timeout=20)
        else:
            await hf.get("r").resume()
            return await hf.get("r").result(timeout=20)
        return None

    codes = [grants(kind, later) for later in (False, True, False)]
    assert "admin" not in lives(tmp_path / "a.db", *codes, act=act)[2]


def sloppy(currency: str | None, least: str | None) -> list[Any]:
    """The agents as one deploy has them, with defaults that are not of their type, as people write them."""
    Order = pydantic.create_model("Order", to=(str, ...), currency=(str, currency))  # noqa: N806 - a type

    @holdfast.step
    async def pay(order: Order, memo: str = least) -> str:
        return f"{order.to} got {order.currency}, {memo}"

    @holdfast.agent
    async def pays(order: Order, least: str = least) -> str:
        decision = await holdfast.approve("Pay this?", show=order, edit=True)
        await holdfast.receive("go")
        return await pay(decision.data)

    return [pays]


def test_a_default_that_is_not_of_its_type_is_seen_and_kept(tmp_path):
    """By whoever approves or edits it, also of a run that was started without the code; a changed one stops the run."""

    async def act(hf, life):
        run = hf.get("r")
        if life == 0:
            async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
                await elsewhere.start("pays", {"to": "bo"}, id="r")
            question = await run.wait_for_question()
            assert question.shown == {"to": "bo", "currency": None}
            with pytest.raises(BadArguments, match="leaves out currency"):
                await hf.approve("r", data={"to": "cy"}, by="ana")
            await hf.approve("r", data={"to": "cy", "currency": None}, by="ana")
            await run.wait("waiting", waits_for="message")
        elif life == 1:
            await run.send("go")
            with pytest.raises(holdfast.RunPaused, match=r"its arguments do not fit agent 'pays'.* found None"):
                await run.result(timeout=20)
            assert sum(hf.bodies.values()) == 0
        else:
            await run.resume()
            return await run.result(timeout=20)
        return None

    agents = [sloppy(None, None), sloppy("usd", "all"), sloppy(None, None)]
    assert lives(tmp_path / "a.db", *agents, act=act)[2] == "cy got None, None"


class Login(pydantic.BaseModel):
    user: str
    token: pydantic.SecretStr = pydantic.SecretStr("x")


class Excluding(pydantic.BaseModel):
    user: str
    token: int = pydantic.Field(5, exclude=True)


class Slim(pydantic.BaseModel):
    """Its own serializer leaves out what is at its default, as people write it."""

    user: str
    token: int = 5

    @pydantic.model_serializer(mode="wrap")
    def slim(self, handler: Any) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value != 5}


@dataclasses.dataclass
class Pair:
    slim: list[Slim]


@pytest.mark.parametrize(
    "shown",
    [Login(user="bo"), Excluding(user="bo"), Slim(user="bo"), Pair([Slim(user="bo", token=6), Slim(user="bo")])],
)
async def test_a_question_hides_no_default(shown):
    """One that cannot be written, or that its type leaves out, is refused, and nobody is asked."""

    @holdfast.agent
    async def asks() -> None:
        await holdfast.approve("Log in?", show=shown)

    async with holdfast.testing.open(agents=[asks]) as hf:
        with pytest.raises(holdfast.RunFailed, match="show: the default of 'token' cannot be stored"):
            await hf.run(asks)


class Camel(pydantic.BaseModel):
    """Stored under other names, by its own serializer."""

    user: str
    token: int = 5

    @pydantic.model_serializer
    def camel(self) -> dict[str, Any]:
        return {"User": self.user, "Token": self.token}

    @pydantic.model_validator(mode="before")
    @classmethod
    def snake(cls, given: Any) -> Any:
        return {name.lower(): value for name, value in given.items()}


async def test_a_field_that_goes_by_another_name_is_not_hidden():
    @holdfast.agent
    async def asks() -> int:
        return (await holdfast.approve("Log in?", show=Camel(user="bo"))).data.token

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await hf.start(asks)
        question = await run.wait_for_question()
        assert question.shown == {"User": "bo", "Token": 5}
        await hf.approve(question, by="ana")
        assert await run.result() == 5


async def test_a_body_may_change_a_default_object():
    """Each attempt, and each call, gets a copy of it."""
    paid: list[int] = []

    @holdfast.step(retry=holdfast.Retry(3, first="0s"))
    async def pay(to: str, limits: Any = None, tags: list[str] = []) -> int:  # noqa: B006 - as people write it
        tags.append(to)
        paid.append(len(tags))
        if len(paid) < 3:
            raise ConnectionError("once more")
        return len(tags)

    @holdfast.agent
    async def pays(done: list[int] = []) -> list[int]:  # noqa: B006
        done.append(await pay("bo"))
        return [*done, await pay("cy")]

    async with holdfast.testing.open(agents=[pays]) as hf:
        assert [await hf.run(pays) for _ in range(2)] == [[1, 1]] * 2
    assert set(paid) == {1}


async def test_a_step_shows_the_arguments_it_was_left_at():
    """In the history, and so to whoever is asked about it."""
    agents = code(30)

    async with holdfast.testing.open(agents=[agents["pays"]]) as hf:
        run = await hf.start(agents["pays"], "bo", id="r")
        await run.wait("waiting")
        await hf.approve("r", by="ana")
        await run.result()
        (paid,) = [event for event in await history(hf, "r") if event.data.get("name") == "pay"]
        assert paid.data["input"] == "money={'to': 'bo', 'euros': 30}, memo='none'"


def givers(default: int) -> list[Any]:
    """The agents as one deploy has them. All give 30: what changes is whether that is the default."""
    Transfer = transfer(default)  # noqa: N806 - a type

    @holdfast.step(retry=2, in_doubt="retry")
    async def pay(euros: int = default) -> str:
        KEYS.append(holdfast.idempotency_key())
        if len(KEYS) == 1:
            raise ConnectionError("once more")
        return f"{euros} paid"

    @holdfast.step
    async def send(money: Transfer, note: str = "") -> str:
        return f"{money.to} got {money.euros}"

    @holdfast.agent
    async def child(money: Transfer, times: int = default) -> int:
        await holdfast.receive("go")
        return money.euros + times

    @holdfast.agent
    async def gives(euros: int = default) -> list[Any]:
        money = Transfer("bo", 30)
        sent = await send(money)
        spawned = await holdfast.spawn(child, money, 30)
        called = asyncio.create_task(child(money, times=30))
        decision = await holdfast.approve("Pay this?", show=money)
        async with holdfast.conversation("c", Transfer) as talk:
            await talk.add(money)
            paid = await pay(30)
            found = [euros, sent, await spawned, await called, bool(decision), paid]
        await holdfast.receive("end")
        return found

    return [gives, child]


KEYS: list[str] = []


@pytest.mark.parametrize(("before", "after"), [(30, 20), (20, 30)])
def test_a_default_may_become_what_the_code_gives_and_the_other_way_round(tmp_path, before, after):
    """It is the same call: of a step, a child, a question, a conversation, a run. It keeps its idempotency key."""
    KEYS.clear()

    async def act(hf, life):
        gives = codes[life][0]
        run = await hf.start(gives, 30, id="r")
        assert run.created == (life == 0)
        if life == 0:
            await run.wait_for_question()
        elif life == 1:
            await hf.approve("r", by="ana")
            while "step.retrying" not in await kinds(hf, "r"):
                await asyncio.sleep(0)
        elif life == 2:
            for each in await hf.runs(agent="child"):
                await hf.get(each.id).send("go")
            await run.wait("waiting", waits_for="message")
        else:
            with pytest.raises(RunExists):
                await hf.start(gives, 31, id="r")
            await run.send("end")
            return await run.result(timeout=20)
        return None

    codes = [givers(before), givers(after), givers(after), givers(before)]
    assert lives(tmp_path / "a.db", *codes, act=act)[-1] == [30, "bo got 30", 60, 60, True, "30 paid"]
    assert len(KEYS) == 2
    assert len(set(KEYS)) == 1


BODIES: list[tuple[str, ...]] = []  # what bodies and probes got, and their idempotency keys
WAYS: dict[str, dict[str, Any]] = {
    "ask": {"in_doubt": "ask"}, "probe": {}, "retrying": {"retry": 2},
    "held": {"rate": "1/h"}, "progress": {}, "loop": {},
}  # fmt: skip


def payers(way: str, euros: int, *more: Any) -> Any:
    """The agent as one deploy has it. Its bodies hang, fail or wait the first time, before or after they have begun."""
    Transfer = transfer(euros, *more)  # noqa: N806 - a type

    def told(name: str, client: object, money: Any, fee: int, rest: Any) -> None:
        assert client is CLIENT
        BODIES.append((name, f"{money.euros}+{fee} {[each.euros for each in rest]}", holdfast.idempotency_key()))

    async def look(client: object, money: Any, *rest: Any, fee: int = euros) -> Any:
        told("probe", client, money, fee, rest)
        return holdfast.NOT_DONE

    options = {"in_doubt": look} if way == "probe" else WAYS[way]

    @holdfast.step(**options)
    async def pay(client: holdfast.Local[object], money: Transfer, *rest: Transfer, fee: int = euros) -> str:
        told("body", client, money, fee, rest)
        if way == "progress":
            await holdfast.progress(1, 2)
        if way == "retrying" and len(BODIES) == 1:
            raise ConnectionError("once more")
        if way in ("ask", "probe", "progress") and len(BODIES) == 1:
            await asyncio.Event().wait()
        return "paid"

    @holdfast.agent(loops=holdfast.Loops(same=2) if way == "loop" else None)
    async def pays() -> str:
        for _ in range({"held": 2, "loop": 3}.get(way, 1)):
            found = await pay(CLIENT, Transfer("bo"), Transfer("cy"))
        return found

    return pays


CLIENT = object()


@pytest.mark.parametrize("way", WAYS)
async def test_a_body_runs_again_with_the_arguments_it_ran_with(way):
    """A default that changed in between is neither paid, nor asked about, nor looked for; a new field has its default."""
    BODIES.clear()

    async with holdfast.testing.open(agents=[payers(way, 30)]) as hf:
        run = await hf.start("pays", id="r")
        first = {
            "retrying": "step.retrying",
            "held": "step.held",
            "progress": "step.progress",
            "loop": "approval.asked",
        }
        while first.get(way, "step.started") not in await kinds(hf, "r") or not BODIES:
            await asyncio.sleep(0)
        hf.deploy([payers(way, 9999, ("note", str, "added"))])
        await hf.crash()
        if way == "ask":
            question = await run.wait_for_question()
            assert (
                "pay(money={'to': 'bo', 'euros': 30, 'note': 'added'}, rest[0]={'to': 'cy', 'euros': 30"
                in question.question
            )
            assert "'euros': 9999" not in f"{question.question}{question.shown}"
            await hf.answer("r", "run", by="ana")
        if way == "loop":
            await hf.approve("r", by="ana")
        assert await run.result(timeout=20) == "paid"
        assert {what for _, what, _ in BODIES} == {"30+30 [30]"}
        assert len(BODIES) == {"probe": 3, "loop": 3}.get(way, 2)
        assert len({key for _, _, key in BODIES}) == {"held": 2, "loop": 3}.get(way, 1)


@pytest.mark.slow
def test_arguments_that_no_longer_fit_the_step_stop_the_run(tmp_path):
    """Before any effect; with the old code it goes on. A large one is kept beside the event."""
    release: list[bool] = []

    def code(step: Any) -> Any:
        @holdfast.agent
        async def agent() -> str:
            return await holdfast.step(in_doubt="fail", name="pay")(step)("x" * 100_000)

        return agent

    async def old(what: str, euros: int = 30) -> str:
        release.append(True)
        await asyncio.Event().wait()
        return what

    async def new(what: str, amount: int = 30) -> str:
        raise AssertionError("must not run")

    async def act(hf, life):
        run = await hf.start("agent", id="r")
        if life == 0:
            while not release:
                await asyncio.sleep(0)
        elif life == 1:
            await run.wait("paused")
            assert "(what: str, amount: int = 30); the stored input has 'euros' as well" in (await run.info()).reason
            assert not hf.bodies
        else:
            await run.resume()
            with pytest.raises(holdfast.RunFailed, match="whether the effect happened is not known"):
                await run.result(timeout=20)

    lives(tmp_path / "a.db", code(old), code(new), code(old), act=act)


class Patch(pydantic.BaseModel):
    """What is to be changed: only what was given, and that even if it is nothing."""

    name: str
    email: str | None = None
    phone: str | None = None


def given(patch: Patch) -> str:
    """The fields that were given."""
    return " ".join(patch.model_dump(exclude_unset=True))


@holdfast.step
async def apply(patch: Patch) -> str:
    return given(patch)


@holdfast.step(in_doubt="ask", retry=1)
async def plan(phone: str | None) -> Patch:
    if phone == "lost":
        raise holdfast.InDoubt("the line went dead")
    return Patch(name="b", phone=phone)


@holdfast.agent
async def nested(patch: Patch, more: Patch = Patch(name="d")) -> list[Patch]:  # noqa: B008 - nobody changes it
    return [await holdfast.checkpoint(await holdfast.restore(patch)), more]


@holdfast.agent
async def patches(patch: Patch, more: dict[str, Patch] | None = None) -> list[str]:
    found = [patch, *(more or {}).values(), await plan(None), *(await nested(Patch(name="c", email=None)))]
    async with holdfast.conversation("c", Patch) as talk:
        await talk.add(Patch(name="t", phone=None))
        found += await talk.messages()
    found += [await holdfast.ask("What?", Patch), await plan("lost"), await holdfast.receive("go", Patch)]
    shown = {"a": Patch(name="p"), "b": Patch(name="q", email=None)}
    for edit in (False, True):
        found += (await holdfast.approve("Change?", show=shown, edit=edit)).data.values()
    await holdfast.receive("end")
    return [await apply(each) for each in found]


def test_what_was_not_set_in_a_model_is_not_set_wherever_it_goes(tmp_path):
    """Inputs, results, states, messages, answers, edits and what was said, of a run that was started without its code."""

    async def act(hf, life):
        run = hf.get("r")
        if life == 1:
            await hf.start("patches", {"name": "i"}, {"x": {"name": "j", "phone": None}}, id="r")
            await hf.start("nested", {"name": "n"}, id="n")
        elif life == 2:
            assert [given(each) for each in await hf.get("n", nested).result(timeout=20)] == ["name", "name"]
            for answer in ({"name": "a"}, {"result": {"name": "k", "phone": None}}):
                await run.wait_for_question()
                await hf.answer("r", answer, by="ana")
            await run.send("go", Patch(name="m", phone=None))
            await run.wait_for_question()
            await hf.approve("r", by="ana")
            question = await run.wait_for_question()
            assert question.shown["a"] == {"name": "p", "email": None, "phone": None}
            edited = {"a": question.shown["a"] | {"phone": "7"}, "b": question.shown["b"] | {"name": "z"}}
            assert (await hf.approve("r", data=edited, by="ana")).data == edited
            await run.wait("waiting", waits_for="message")
        elif life == 3:
            await run.send("end")
            return await run.result(timeout=20)
        return None

    code = [patches, nested]
    assert lives(tmp_path / "a.db", code, [], code, code, act=act)[3] == [
        "name", "name phone", "name phone", "name email", "name", "name phone",
        "name", "name phone", "name phone", "name", "name email", "name phone", "name email",
    ]  # fmt: skip


def shops(*more: Any) -> list[Any]:
    """The agents as one deploy has them: all that changes is that a field is added to a member of a union."""
    fields: dict[str, Any] = {"kind": (Literal["cash"], "cash"), "euros": (int, 30), **dict(more)}
    Cash = pydantic.create_model("Cash", **fields)  # noqa: N806 - a type
    fields = {"kind": (Literal["card"], "card"), "number": (str, "none"), "limit": (Cash | None, None)}
    Card = pydantic.create_model("Card", **fields)  # noqa: N806 - a type
    Means = Annotated[Card | Cash, pydantic.Field(discriminator="kind")]  # noqa: N806 - a type

    @holdfast.step
    async def pay(means: Means, more: list[Card | Cash]) -> str:
        return f"{means.kind} {[each.kind for each in more]}"

    @holdfast.agent
    async def till(means: Means) -> str:
        await holdfast.receive("go")
        return means.kind

    @holdfast.agent
    async def shop(means: Means) -> list[Any]:
        found = [await pay(Cash(), [Cash(euros=5), Card()])]
        spawned = await holdfast.spawn(till, Cash(euros=7))
        called = asyncio.create_task(till(Card(limit=Cash())))
        decision = await holdfast.approve("Pay?", show=Card(limit=Cash()))
        async with holdfast.conversation("c", Means) as talk:
            await talk.add(Cash(), Card())
            await holdfast.receive("go")
        return [*found, await spawned, await called, bool(decision)]

    shop.means = Cash
    return [shop, till]


def test_a_field_with_a_default_may_be_added_to_a_member_of_a_union(tmp_path):
    """Though what tells the members apart is at its default too: of steps, children, questions, conversations and runs."""

    async def act(hf, life):
        shop = codes[life][0]
        run = await hf.start(shop, shop.means(), id="r")
        if life == 0:
            await run.wait_for_question()
        elif life == 1:
            await hf.approve("r", by="ana")
            await run.wait("waiting", waits_for="message")
        else:
            with pytest.raises(RunExists):
                await hf.start(shop, shop.means(euros=31), id="r")
            await run.send("go")
            for each in await hf.runs(agent="till"):
                await hf.get(each.id).send("go")
            return await run.result(timeout=20)
        return None

    codes = [shops(), shops(("note", (str, "added"))), shops(("note", (str, "added")), ("tip", (int, 0)))]
    expected = ["cash ['cash', 'card']", "cash", "card", True]
    assert lives(tmp_path / "a.db", *codes, act=act)[2] == expected


def invoices(*more: Any) -> Any:
    """The agent as one deploy has it: all that changes is that a field is added to types that nothing tells apart."""
    Paid = pydantic.create_model("Paid", euros=(int, ...))  # noqa: N806 - a type
    Due = pydantic.create_model("Due", euros=(int, ...), days=(int, 30), **dict(more))  # noqa: N806 - a type

    @holdfast.step
    async def book(bill: Paid | Due, more: list[Paid] | list[Due]) -> str:
        return f"{type(bill).__name__} {[type(each).__name__ for each in more]}"

    @holdfast.agent(name="books")
    async def books() -> list[Any]:
        booked = await book(Due(euros=7), [Due(euros=8)])
        await holdfast.receive("go")
        return [booked, await book(Due(euros=7), [Due(euros=8)])]

    return books


def test_a_field_may_be_added_to_a_member_of_a_union_that_nothing_tells_apart(tmp_path):
    async def act(hf, life):
        if life == 0:
            await (await hf.start("books", id="r")).wait("waiting")
            return None
        await hf.get("r").send("go")
        return await hf.get("r").result(timeout=20)

    codes = [invoices(), invoices(("note", (str, "added")))]
    assert lives(tmp_path / "a.db", *codes, act=act)[1] == ["Due ['Due']"] * 2


class Color(enum.Enum):
    RED = "red"


class Many(pydantic.BaseModel):
    """Defaults that JSON has other words for than Python, and types that would read these as they are."""

    who: str
    at: str | datetime = datetime(2024, 1, 1)  # noqa: DTZ001
    price: str | Decimal = Decimal("5.00")
    any: Any = (1, 2)
    map: dict[Any, Any] = {1: (2,)}
    raw: bytes = b"\xff"
    color: str | Color = Color.RED
    patch: Patch = Patch(name="x")
    patches: list[Patch] = [Patch(name="x", phone=None)]
    amount: Decimal = "30"  # type: ignore[assignment]  # as people write it


@holdfast.agent
async def takes_many(many: Many, also: list[Many], patch: Patch = {}) -> list[str]:  # type: ignore[assignment]  # noqa: B006
    assert patch == {}
    return [
        *(repr(each) for each in (many, *also)),
        repr([sorted(each.patch.model_fields_set) for each in (many, *also)]),
    ]


async def test_a_default_that_is_filled_in_without_the_code_is_that_of_the_type():
    async with holdfast.testing.open(agents=[takes_many]) as hf:
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            run = await elsewhere.start("takes_many", {"who": "a"}, also=[{"who": "b", "any": [3]}])
        live = await takes_many.fn(Many(who="a"), [Many(who="b", any=[3])])
        assert await hf.get(run.id).result() == live
        kept = await hf.get(run.id).arguments()
        assert (kept["many"]["at"], kept["also"][0]["price"]) == (datetime(2024, 1, 1), Decimal("5.00"))  # noqa: DTZ001
