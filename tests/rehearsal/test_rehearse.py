"""Rehearsals: recorded runs again from their beginning, with one thing changed and without effects."""

import asyncio
from dataclasses import dataclass

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from tests.rehearsal.changes import PAGE
from tests.rehearsal.examples import facts, in_page, made

import holdfast
import holdfast.testing
from holdfast import BadArguments, UnknownAgent, UnknownRun
from holdfast.integrations.pydantic_ai import HoldfastDurability
from holdfast.testing import rehearse

BODIES = []


@dataclass
class Item:
    name: str
    price: int = 1


class Odd(Exception):
    """A class that no step declares."""


@holdfast.step
async def find(name: str) -> Item:
    BODIES.append(f"find {name}")
    await asyncio.sleep(0.001 * (5 - len(name)))
    return Item(name, len(name))


@holdfast.step(retry=1)
async def breaks(name: str) -> None:
    BODIES.append(f"breaks {name}")
    raise Odd(name)


@holdfast.step
def ship(item: Item) -> str:
    BODIES.append(f"ship {item.name}")
    return f"shipped {item.name}"


@holdfast.step(effects=False)
async def ask(prompt: str) -> str:
    BODIES.append(f"ask {prompt}")
    holdfast.spend(0.5, input_tokens=3, output_tokens=4, model="small")
    return prompt.upper()


@holdfast.agent
async def child(name: str) -> str:
    return await ship(await find(name))


@holdfast.agent
async def everything(names: list[str]) -> list[str]:
    """Uses what can be recorded: parallel steps, timers, messages, questions, children, failures, chance and time."""
    said: list[str] = []

    async def one(name: str) -> None:
        found = await find(name)
        said.append(found.name)

    await asyncio.gather(*map(one, names))
    said.append(str(holdfast.uuid4()))
    said.append(str(holdfast.rng().random()))
    try:
        await breaks("glass")
    except holdfast.StepFailed as error:
        said.append(f"{error.type}: {error}")
    await holdfast.sleep("3h")
    said.append(holdfast.now().isoformat())
    said.append(await holdfast.receive("word", str))
    decision = await holdfast.approve("Ship?", show=names)
    said.append(f"{decision.by} {bool(decision)}")
    said.append(await child(names[0]))
    try:
        async with holdfast.timeout("1m"):
            await holdfast.receive("never", str)
    except TimeoutError:
        said.append("late")
    async with holdfast.conversation("talk", str) as talk:
        said += [str(message) for message in await talk.messages()]
        await talk.add("ours")
    return said


@holdfast.agent
async def before(_: int = 0) -> None:
    async with holdfast.conversation("talk", str) as talk:
        await talk.add("theirs", "x" * 100_000)


async def recorded(hf):
    await hf.run(before, 0)
    run = await hf.start(everything, ["abc", "a", "ab"], id="e")
    await run.send("word", "hello")
    await hf.approve(await run.wait_for_question(), by="ana")
    return await run.result()


@pytest.fixture(autouse=True)
def fresh():
    BODIES.clear()


async def test_the_same_code_does_the_same_in_the_same_order():
    async with holdfast.testing.open(agents=[everything, child, before]) as hf:
        said = await recorded(hf)
        BODIES.clear()
        events = [event async for event in hf.get("e").events(follow=False)]
        (found,) = await rehearse(hf, ["e"], [everything])
        assert [event async for event in hf.get("e").events(follow=False)] == events
    assert BODIES == []
    assert found.stopped == ""
    assert found.difference.same, (found.difference.parted, found.difference.differs)
    assert found.difference.other.result == found.difference.one.result
    assert any("Odd: glass" in each for each in said)
    assert found.answers == {"recorded": 6}
    keys = [(pair.key, pair.one.state, pair.other.state) for pair in found.difference.pairs]
    assert len(keys) >= 10


async def test_an_unfinished_run_is_rehearsed_as_far_as_it_came():
    async with holdfast.testing.open(agents=[everything, child, before]) as hf:
        await hf.run(before, 0)
        run = await hf.start(everything, ["a"], id="e")
        await run.send("word", "hello")
        await run.wait_for_question()
        BODIES.clear()
        (found,) = await rehearse(hf, ["e"], [everything])
    assert (found.stopped, found.difference.same, BODIES) == ("", True, [])


async def test_a_new_input_ends_it_or_gets_an_answer():
    @holdfast.agent(name="child")
    async def other(name: str) -> str:
        return await ship(await find(name + "!"))

    async with holdfast.testing.open(agents=[child]) as hf:
        await hf.run(child, "pot", id=None)
        (info,) = await hf.runs()
        BODIES.clear()
        (stopped,) = await rehearse(hf, [info.id], [other])
        (answered,) = await rehearse(
            hf,
            [info.id],
            [other],
            answers={find: lambda *_: Item("made up"), "ship": lambda item: f"not {item.name}"},
        )
        (half,) = await rehearse(hf, [info.id], [other], answers={find: lambda *_: Item("pot", 3)})
    assert BODIES == []
    assert stopped.stopped.startswith("find#0 is called with an input that the record does not have: find(")
    assert stopped.stopped.endswith("--answer find=JSON (answers=) says what it returns")
    assert (answered.stopped, answered.difference.other.result) == ("", "'not made up'")
    assert answered.answers == {"scripted": 2}
    assert (half.difference.other.result, half.answers) == ("'shipped pot'", {"scripted": 1, "recorded": 1})
    assert half.difference.parted.key == "find#0"


async def test_another_model_that_a_step_asks():
    @holdfast.agent
    async def writes(topic: str) -> str:
        return await ship(Item(await ask(f"about {topic}")))

    @holdfast.agent(name="writes")
    async def prompted(topic: str) -> str:
        return await ship(Item(await ask(f"all about {topic}")))

    async with holdfast.testing.open(agents=[writes]) as hf:
        await (await hf.start(writes, "otters", id="w")).result()
        BODIES.clear()
        answers = {"ship": lambda *_: "nowhere"}
        (same,) = await rehearse(hf, ["w"], [writes])
        (swapped,) = await rehearse(hf, ["w"], [writes], replace={ask: lambda *_: "short"}, answers=answers)
        assert BODIES == []
        (refused,) = await rehearse(hf, ["w"], [prompted], answers=answers)
        (asked,) = await rehearse(hf, ["w"], [prompted], answers=answers, budget=holdfast.Budget(usd=1))
        assert BODIES == ["ask all about otters"]
        (live,) = await rehearse(hf, ["w"], [writes], live=[ask], budget=holdfast.Budget(usd=1))
        many = await rehearse(hf, ["w"], [prompted], answers=answers, budget=holdfast.Budget(tokens=1))
    assert same.difference.same and same.difference.other.spent.usd == 0.5
    assert not same.spent
    assert (swapped.difference.parted.key, swapped.difference.parted.other.result) == ("ask#0", "'short'")
    assert "no budget was given" in refused.stopped
    assert (asked.stopped, asked.spent.usd, asked.answers) == ("", 0.5, {"asked": 1, "scripted": 1})
    assert live.difference.same and live.answers == {"asked": 1, "recorded": 1}
    assert many[0].stopped == ""  # a budget that is used up ends the next request, not this one


async def test_a_body_that_may_do_more_than_ask_a_model_runs_only_if_it_is_named():
    """It has paid for a model in the record; but a budget lets models be asked, and no mail be sent."""

    @holdfast.step
    async def reply(text: str) -> str:
        BODIES.append(f"reply {text}")
        holdfast.spend(0.5, model="small")
        return text

    @holdfast.agent
    async def clerk(topic: str) -> str:
        return await reply(f"about {topic}")

    @holdfast.agent(name="clerk")
    async def kinder(topic: str) -> str:
        return await reply(f"dear, about {topic}")

    async with holdfast.testing.open(agents=[clerk]) as hf:
        await (await hf.start(clerk, "otters", id="w")).result()
        BODIES.clear()
        (refused,) = await rehearse(hf, ["w"], [kinder], budget=holdfast.Budget(usd=1))
        assert (BODIES, refused.answers) == ([], {})
        assert "--live reply" in refused.stopped and "effects=False" in refused.stopped
        (named,) = await rehearse(hf, ["w"], [kinder], live=[reply], budget=holdfast.Budget(usd=1))
        assert BODIES == ["reply dear, about otters"] and named.stopped == ""


async def test_no_probe_runs():
    async def looks(_: str) -> str:
        BODIES.append("probe")
        return "it did"

    @holdfast.step(in_doubt=looks)
    async def send(text: str) -> str:
        return text

    @holdfast.agent
    async def mails(text: str) -> str:
        return await send(text)

    @holdfast.agent(name="mails")
    async def others(text: str) -> str:
        return await send(f"{text}!")

    def lost(_: str) -> str:
        raise holdfast.InDoubt("the line went dead")

    async with holdfast.testing.open(agents=[mails]) as hf:
        await (await hf.start(mails, "hello", id="m")).result()
        (told,) = await rehearse(hf, ["m"], [others], answers={send: lost})
    assert BODIES == [] and "no probe runs in a rehearsal" in told.stopped


async def test_another_model_and_another_prompt_of_a_framework():
    def says(text):
        return FunctionModel(lambda _, info: ModelResponse([TextPart(f"{text}: {info.instructions}")]))

    clerk = Agent(says("then"), name="clerk", instructions="Be brief.", capabilities=[HoldfastDurability()])

    @holdfast.agent
    async def desk(question: str) -> str:
        first = (await clerk.run(question)).output
        return first + " / " + (await clerk.run("and?")).output

    async with holdfast.testing.open(agents=[desk]) as hf:
        await (await hf.start(desk, "where?", id="d")).result()
        (same,) = await rehearse(hf, ["d"], [desk])
        (model,) = await rehearse(hf, ["d"], [desk], model=says("now"), budget=holdfast.Budget(model_calls=2))
        (unpaid,) = await rehearse(hf, ["d"], [desk], model=says("now"))
        (stopped,) = await rehearse(hf, ["d"], [desk], prompts={"clerk": "Be kind."})
        (prompt,) = await rehearse(
            hf, ["d"], [desk], prompts={"clerk": "Be kind."}, budget=holdfast.Budget(model_calls=5)
        )
        with pytest.raises(BadArguments, match=r"'nobody'.*there are: .*clerk"):
            await rehearse(hf, ["d"], [desk], prompts={"nobody": "x"})
        with pytest.raises(BadArguments, match=r"no step 'clerk.modle'; did you mean 'clerk.model'"):
            await rehearse(hf, ["d"], [desk], live=["clerk.modle"])
    assert same.difference.same, same.difference
    assert model.difference.other.result == "'now: Be brief. / now: Be brief.'"
    for each in (stopped, unpaid):
        assert "no budget was given; --budget tokens=" in each.stopped
    assert prompt.difference.other.result == "'then: Be kind. / then: Be kind.'"
    assert prompt.answers == {"asked": 2}


def clerk_of(instructions, temperature=0.0, tool="an order"):
    """An agent whose clerk looks an order up, and is asked twice."""

    def says(messages, info):
        if any(part.part_kind == "tool-return" for part in messages[-1].parts):
            return ModelResponse([TextPart(f"so: {info.instructions}")])
        return ModelResponse([ToolCallPart("find", {"number": 7})])

    clerk = Agent(
        FunctionModel(says),
        name="clerk",
        instructions=instructions,
        model_settings={"temperature": temperature},
        capabilities=[HoldfastDurability()],
    )

    @clerk.tool_plain(description=f"Find {tool}.", name="find")
    async def find_order(number: int) -> str:
        BODIES.append(f"find {number}")
        return "kettle"

    @holdfast.agent(name="desk")
    async def desk(question: str) -> str:
        return (await clerk.run(question)).output

    return desk


@pytest.mark.parametrize("changed", [{"instructions": "Be kind."}, {"temperature": 1.0}, {"tool": "one order"}])
async def test_a_request_of_a_framework_is_known_by_all_that_it_asks(changed):
    """Its last words are the same; its instructions, settings or tools are others, so the record does not answer it."""
    given = {"instructions": "Be brief.", "temperature": 0.0, "tool": "an order"}
    then, now = clerk_of(**given), clerk_of(**given | changed)
    async with holdfast.testing.open(agents=[then]) as hf:
        await (await hf.start(then, "where?", id="d")).result()
        BODIES.clear()
        (same,) = await rehearse(hf, ["d"], [clerk_of(**given)])
        (stopped,) = await rehearse(hf, ["d"], [now])
        (asked,) = await rehearse(hf, ["d"], [now], budget=holdfast.Budget(model_calls=5))
    assert same.difference.same and same.answers == {"recorded": 3}
    assert "clerk-0:model/clerk.model#0 would ask a model with a new input" in stopped.stopped
    assert stopped.answers == {}
    assert (asked.stopped, asked.answers) == ("", {"asked": 2, "recorded": 1})
    assert asked.difference.other.result == repr(f"so: {(given | changed)['instructions']}")
    assert BODIES == []  # the tool is answered by the record


async def test_answers_of_models_are_compared_and_told_by_what_they_say():
    then, now = clerk_of("Be brief."), clerk_of("Be kind.")
    async with holdfast.testing.open(agents=[then]) as hf:
        await (await hf.start(then, "where?", id="one")).result()
        await (await hf.start(then, "where?", id="two")).result()
        (asked,) = await rehearse(hf, ["one"], [now], budget=holdfast.Budget(model_calls=5))
        difference = await hf.diff("one", "two")
    first, *_, last = asked.difference.pairs
    assert (first.one.result, first.other.result, first.parts) == ("find(number=7)", "find(number=7)", False)
    assert (last.one.result, last.other.result) == ("'so: Be brief.'", "'so: Be kind.'")
    assert last.differs == ("result",)
    assert [(pair.name, pair.parts) for pair in difference.pairs] == [
        ("clerk.model", False), ("find", False), ("clerk.model", False),
    ]  # fmt: skip
    assert difference.parted is None


@holdfast.step(transaction=True)
def book(item: str) -> int:
    BODIES.append(f"book {item}")
    holdfast.connection().execute("CREATE TABLE IF NOT EXISTS books (item TEXT)")
    return len(item)


async def test_transactions_are_replayed_and_rehearsed_by_their_records():
    def version(more):
        @holdfast.agent(name="books")
        async def books(item: str) -> list[int]:
            first = await book(item + more)
            return [first, *await asyncio.gather(book("a"), book("ab"))]

        return books

    async with holdfast.testing.open(agents=[version("")]) as hf:
        await (await hf.start("books", "pot", id="b")).result()
        BODIES.clear()
        assert (await hf.check([version("")])).fits
        assert [found.key for found in (await hf.check([version("!")])).found] == ["book#0"]
        (same,) = await rehearse(hf, ["b"], [version("")])
        (new,) = await rehearse(hf, ["b"], [version("!")])
        (scripted,) = await rehearse(hf, ["b"], [version("!")], answers={book: lambda *_: 9})
    assert BODIES == []
    assert same.difference.same and same.answers == {"recorded": 3}
    assert new.stopped.startswith("book#0 is called with an input that the record does not have")
    assert (scripted.difference.other.result, scripted.answers) == ("[9, 1, 2]", {"scripted": 1, "recorded": 2})


async def test_a_fork_is_replayed_and_compared_and_its_original_rehearsed():
    async with holdfast.testing.open(agents=[child]) as hf:
        run = await hf.start(child, "pot", id="p")
        await run.result()
        fork = await run.fork(at="ship#0", effects="new", id="f")
        await fork.result()
        checked = await hf.check([child])
        difference = await hf.diff("p", "f")
        with pytest.raises(BadArguments, match=r"'f' is a fork or a copy of 'p'.*Rehearse 'p'"):
            await rehearse(hf, ["f"], [child])
        (found,) = await rehearse(hf, ["p"], [child])
    assert {found.run: found.verdict for found in checked.replays} == {"p": "fits", "f": "fits"}
    assert difference.parted is None
    assert found.difference.same


async def test_a_question_with_another_value_is_decided_only_if_that_is_wanted():
    def version(text, question="Send?", times=1):
        @holdfast.agent(name="asks")
        async def asks() -> bool:
            return all([bool(await holdfast.approve(question, show=text)) for _ in range(times)])

        return asks

    async with holdfast.testing.open(agents=[version("one")]) as hf:
        run = await hf.start("asks", id="a")
        await hf.approve(await run.wait_for_question(), by="ana")
        await run.result()
        (same,) = await rehearse(hf, ["a"], [version("one")])
        (other,) = await rehearse(hf, ["a"], [version("two")])
        (decided,) = await rehearse(hf, ["a"], [version("two")], decide=True)
        (reworded,) = await rehearse(hf, ["a"], [version("one", "Really send?")])
        (twice,) = await rehearse(hf, ["a"], [version("one", times=2)], decide=True)
    assert (same.stopped, same.difference.same) == ("", True)
    assert other.stopped.startswith(":approve#0 asks 'Send?' and shows another value; --decide")
    assert reworded.stopped.startswith(":approve#0 asks 'Really send?', and not 'Send?' as then; --decide")
    assert twice.stopped == ":approve#1 asks 'Send?', which nobody was asked there, so there is no answer to it"
    assert (decided.stopped, decided.difference.other.result) == ("", "True")


async def test_a_retried_run_is_rehearsed_by_what_its_history_has_now():
    prices = iter(())

    @holdfast.step
    async def price() -> int:
        return next(prices)

    @holdfast.agent
    async def sells() -> int:
        found = await price()
        if found == 1:
            raise ValueError("too low")
        return found

    async with holdfast.testing.open(agents=[sells]) as hf:
        for run, effects in (("asked", "ask"), ("again", "new")):
            prices = iter((1, 2))
            await (await hf.start(sells, id=run)).wait("failed")
            await hf.get(run).retry(at="price", effects=effects)
            await hf.get(run).wait("waiting", "completed")
        asked, again = await rehearse(hf, ["asked", "again"], [sells])
    assert asked.stopped.startswith("price#0 is in doubt in the record too: a person is asked")
    assert (again.stopped, again.difference.same, again.difference.other.result) == ("", True, "2")


async def test_a_name_that_no_step_has_is_refused():
    async with holdfast.testing.open(agents=[child]) as hf:
        await (await hf.start(child, "pot", id="p")).result()
        for wrong in ({"answers": {"shipp": lambda *_: ""}}, {"live": ["shipp"]}):
            with pytest.raises(BadArguments, match=r"no step 'shipp'; did you mean 'ship'\? .*find, ship"):
                await rehearse(hf, ["p"], [child], **wrong)
        (found,) = await rehearse(hf, ["p"], [child], answers={"ask": lambda *_: "of the code, if not of the run"})
    assert found.difference.same


async def test_a_cancelled_run_is_cancelled_again():
    @holdfast.agent
    async def waits() -> str:
        try:
            await holdfast.receive("never", str)
        finally:
            await ship(Item("tidied"))
        return "never"

    async with holdfast.testing.open(agents=[waits]) as hf:
        run = await hf.start(waits, id="c")
        await run.wait("waiting")
        await run.cancel(by="ana", reason="enough")
        await run.wait("cancelled")
        BODIES.clear()
        (found,) = await rehearse(hf, ["c"], [waits])
    assert (found.difference.other.status, found.difference.same, BODIES) == ("cancelled", True, [])


async def test_what_cannot_be_rehearsed_is_said():
    async with holdfast.testing.open(agents=[child]) as hf:
        await (await hf.start(child, "pot", id="p")).result()
        with pytest.raises(UnknownRun):
            await rehearse(hf, ["nobody"], [child])
        with pytest.raises(UnknownAgent, match="'child'"):
            await rehearse(hf, ["p"], [before])

        @holdfast.agent(name="child")
        async def other(name: str, size: int) -> str:
            return name * size

        (found,) = await rehearse(hf, ["p"], [other])
    assert "size" in found.stopped


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_page_shows_what_the_commands_print():
    page = PAGE.read_text("utf-8")
    assert facts(in_page(page, made())) == facts(page), "python -m tests.rehearsal.examples writes it"
