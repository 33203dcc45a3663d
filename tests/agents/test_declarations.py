"""Declaring agents and steps: what they look like to others, and what each says when it is used wrongly."""

from __future__ import annotations

import asyncio
import collections
import copy
import functools
import inspect
import sys
import threading
import typing

import pytest
from tests.agents.runs import fail, finish, with_client

import holdfast
from holdfast import BadArguments, NotStorable


@holdfast.step
async def fetch(url: str, tries: int = 3) -> list[str]:
    """Fetch it."""
    return [url] * tries


@holdfast.step
def measure(text: str) -> int:
    return len(text)


@holdfast.agent
async def research(topic: str, depth: int = 1) -> str:
    """Look it up."""
    return f"{topic}/{depth}"


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @holdfast.step
    async def sell(self, what: str, count: int = 1) -> str:
        return f"{self.name} sold {count} {what}"

    @holdfast.step(name="till.count")
    def counted(self) -> str:
        return self.name

    @classmethod
    @holdfast.step
    async def found(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    @staticmethod
    @holdfast.step
    async def price(what: str) -> int:
        return len(what)


ALL = [fetch, measure, research, Shop.sell, Shop("a").sell]


@pytest.mark.parametrize("declared", ALL, ids=repr)
def test_frameworks_take_them_for_coroutine_functions(declared):
    """A coroutine function is what inspect and asyncio see, also behind a partial."""
    assert inspect.iscoroutinefunction(declared)
    if sys.version_info < (3, 14):  # later ones say that it is out of date
        assert asyncio.iscoroutinefunction(declared)
    assert inspect.iscoroutinefunction(functools.partial(declared, "x"))
    assert callable(declared)
    assert copy.copy(declared) is declared
    assert copy.deepcopy({"tool": declared})["tool"] is declared


def test_they_keep_what_the_function_says_of_itself():
    """Name, docstring, module, signature and type hints are the function's own."""
    assert (fetch.__name__, fetch.__doc__, fetch.__module__) == ("fetch", "Fetch it.", __name__)
    assert str(inspect.signature(fetch)) == "(url: 'str', tries: 'int' = 3) -> 'list[str]'"
    assert typing.get_type_hints(fetch) == {"url": str, "tries": int, "return": list[str]}
    assert typing.get_type_hints(research) == {"topic": str, "depth": int, "return": str}
    assert list(inspect.signature(Shop("a").sell).parameters) == ["what", "count"]
    assert list(inspect.signature(Shop.sell).parameters) == ["self", "what", "count"]
    assert inspect.getsource(research.fn).startswith("@holdfast.agent")


def test_fn_is_the_raw_function():
    """`.fn` runs the body without any recording, in a run or outside."""
    assert measure.fn("abc") == 3
    assert asyncio.run(fetch.fn("a", 2)) == ["a", "a"]
    assert asyncio.run(research.fn("a")) == "a/1"
    assert asyncio.run(Shop.sell.fn(Shop("x"), "tea")) == "x sold 1 tea"


def test_names_come_from_the_function_or_are_given():
    """A leading underscore and the brackets of a lambda are left out; `name=` wins."""
    assert (fetch.name, research.name, Shop.counted.name) == ("fetch", "research", "till.count")
    assert holdfast.step(name="a.b:c@d-1")(lambda x: x).name == "a.b:c@d-1"
    assert holdfast.step(lambda x: x).name == "lambda"

    async def _private() -> None: ...

    assert holdfast.step(_private).name == "private"
    assert (repr(holdfast.step(_private)), repr(research)) == ("<step private>", "<agent research>")


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a#1", "-a", "x" * 101, 7, "ä b"])
@pytest.mark.parametrize("declare", [holdfast.step, holdfast.agent])
def test_a_name_that_cannot_be_one_is_refused(declare, name):
    """Names are parts of keys, so they have no slash, no number sign and no space."""

    async def body() -> None: ...

    with pytest.raises(BadArguments, match="cannot be the name of"):
        declare(name=name)(body)


async def _generator():
    yield 1


def _plain_generator():
    yield 1


@pytest.mark.parametrize(
    ("declare", "what", "says"),
    [
        (holdfast.step, _generator, "a step returns one value; return a list"),
        (holdfast.step, _plain_generator, "a step returns one value; return a list"),
        (holdfast.step, Shop, "belongs on a function or method"),
        (holdfast.step, fetch, "belongs on a function or method"),
        (holdfast.step, 7, "belongs on a function or method"),
        (holdfast.step, staticmethod(measure.fn), "belongs on a function or method"),
        (holdfast.step, functools.partial(measure.fn, "a"), "belongs on a function or method"),
        (holdfast.agent, _generator, "an agent returns one value"),
        (holdfast.agent, measure.fn, "belongs on an `async def` function"),
        (holdfast.agent, Shop, "belongs on an `async def` function"),
        (holdfast.agent, research, "belongs on an `async def` function"),
    ],
)
def test_what_cannot_be_declared_is_refused(declare, what, says):
    """Generators, classes and things that are declared already are refused with the reason."""
    with pytest.raises(BadArguments, match=says):
        declare(what)


class Meters(float):
    """As numpy's float64: a subclass of a plain kind."""


class Later(typing.NamedTuple):
    """Its field's type is not there when a step that returns it is declared."""

    at: NotYet  # noqa: F821


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (collections.defaultdict, "annotate dict, and convert the value with dict(...)"),
        (Meters, "annotate float, and convert the value with float(...)"),
        (list[Meters], "annotate plain data, a dataclass or a pydantic type"),
        (threading.Lock, "cannot be stored"),
    ],
)
@pytest.mark.parametrize("declare", [holdfast.step, holdfast.agent])
def test_a_result_that_could_never_be_stored_is_refused_where_it_is_declared(declare, kind, says):
    """Before any body runs and is paid for, if the annotation tells."""

    async def measure():
        raise AssertionError

    measure.__annotations__["return"] = kind
    with pytest.raises(NotStorable, match=r"measure.*result") as refused:
        declare(measure)
    assert says in str(refused.value)


def test_a_type_that_is_not_defined_yet_may_be_annotated():
    """It is looked at again when the step is called."""

    @holdfast.step
    async def one() -> NotYetEither: ...  # noqa: F821

    @holdfast.step
    async def other() -> Later: ...

    assert [one.name, other.name] == ["one", "other"]


def test_an_agent_cannot_be_a_method():
    """A run outlives the object; a method is refused whatever its first parameter is called, an alias is not."""
    with pytest.raises(BadArguments, match=r"'.*Bot.work' is refused: a run outlives the object"):

        class Bot:
            @holdfast.agent
            async def work(self) -> None: ...

    with pytest.raises((BadArguments, RuntimeError)) as caught:  # Python before 3.12 wraps what __set_name__ raises

        class Odd:
            @holdfast.agent
            async def work(me) -> None: ...  # noqa: N805 - that is the point

    assert "a run outlives the object" in f"{caught.value} {caught.value.__cause__}"

    class Menu:
        research = research

    assert Menu.research is research


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"in_doubt": "maybe"}, "in_doubt='maybe': use 'retry', 'ask', 'fail', or an async probe"),
        ({"in_doubt": measure.fn}, "a probe is an async function"),
        ({"raises": (ValueError, 3)}, "every entry must be an exception class"),
        ({"raises": (KeyboardInterrupt,)}, "every entry must be an exception class"),
        ({"timeout": "soon"}, "'soon' is not a duration"),
        ({"retry": 0}, "at least 1"),
        ({"retry": "5"}, "at least 1"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(options, says):
    """A declaration with options that make no sense fails at import, not in a run."""
    with pytest.raises(BadArguments, match=says):
        holdfast.step(**options)(fetch.fn)


def test_an_option_that_does_not_exist_is_named():
    """Python's own message names the decorator and the option."""
    with pytest.raises(TypeError, match=r"step\(\) got an unexpected keyword argument 'retries'"):
        holdfast.step(retries=3)
    with pytest.raises(TypeError, match=r"agent\(\) got an unexpected keyword argument 'retry'"):
        holdfast.agent(retry=3)


def test_an_agent_called_outside_a_run_says_how_to_start_it():
    """Nothing may look durable and not be: the call itself raises, with both ways."""
    with pytest.raises(holdfast.NotInRun) as caught:
        research("otters")
    for way in ("await hf.start(research, ...)", "holdfast run FILE.py:research", "research.fn(...)"):
        assert way in str(caught.value)


@holdfast.resource
async def pool():
    """A list, so that a test sees that it was closed."""
    opened = ["open"]
    yield opened
    opened.append("closed")


@holdfast.step
async def use_everything() -> tuple[str, list[str], int]:
    await holdfast.note("in a step", a=1)
    return holdfast.idempotency_key(), await pool(), holdfast.this_step().attempt


def test_a_step_outside_a_run_just_runs(caplog):
    """A random key, resources of its own, notes to the log, plain functions in a thread, methods too."""
    caplog.set_level("INFO", "holdfast")

    async def main():
        one, opened, attempt = await use_everything()
        two, _, _ = await use_everything()
        assert one != two
        assert one.startswith("hf_")
        assert attempt == 1
        assert opened == ["open", "closed"]
        assert await measure("abc") == 3
        assert await fetch("a", tries=1) == ["a"]
        assert await Shop("x").sell("tea", 2) == "x sold 2 tea"
        assert await Shop.found("y") == "Shop y"
        assert await Shop.price("tea") == 3

    asyncio.run(main())
    assert [record.message for record in caplog.records] == ["in a step {'a': 1}"] * 2


VERBS = {
    "sleep": lambda: holdfast.sleep("1s"),
    "receive": lambda: holdfast.receive("topic"),
    "receive_nowait": lambda: holdfast.receive_nowait("topic"),
    "spawn": lambda: holdfast.spawn(research, "x"),
    "now": holdfast.now,
    "uuid4": holdfast.uuid4,
    "rng": holdfast.rng,
    "restore": lambda: holdfast.restore({}),
    "checkpoint": lambda: holdfast.checkpoint({}),
    "patched": lambda: holdfast.patched("x"),
    "scope": lambda: holdfast.scope("x"),
    "timeout": lambda: holdfast.timeout("1s").__aenter__(),
}


@holdfast.step
async def try_verb(verb: str) -> None:
    made = VERBS[verb]()
    if inspect.isawaitable(made):
        await made


@pytest.mark.parametrize("verb", VERBS)
async def test_every_other_verb_needs_a_run(verb):
    """Outside a run a verb raises NotInRun and names itself, in a step that was called outside a run too."""
    with pytest.raises(holdfast.NotInRun, match=verb):
        await try_verb.fn(verb)
    with pytest.raises(holdfast.NotInRun, match=verb):
        await try_verb(verb)


@pytest.mark.parametrize("ask", [holdfast.this_run, holdfast.this_step, holdfast.idempotency_key])
def test_facts_need_a_place_too(ask):
    """Outside a run and a step there is nothing they could tell."""
    with pytest.raises(holdfast.NotInRun, match=ask.__name__):
        ask()


LEAFLESS = {
    "step": lambda: fetch("a"),
    "agent": lambda: research("a"),
    "verb": lambda: holdfast.sleep(1),
    "note": lambda: holdfast.note("x"),
}


@holdfast.step(retry=5)
async def not_a_leaf(how: str) -> None:
    await LEAFLESS[how]()


@holdfast.agent
async def calls_no_leaf(how: str) -> list[str]:
    with pytest.raises(holdfast.StepFailed) as caught:
        await not_a_leaf(how)
    assert caught.value.attempts == 1
    return [caught.value.type, caught.value.message]


@pytest.mark.parametrize(
    ("how", "fix"),
    [
        ("step", "Call the plain function, `fetch.fn(...)`, or move the call into the agent"),
        ("agent", "Call the agent from the agent, not from the step"),
        ("verb", "Move the call into the agent"),
        ("note", "Move the call into the agent"),
    ],
)
def test_a_step_is_a_leaf(how, fix):
    """A durable call in a body is an error that names the fix and is not retried."""
    kind, message = finish(calls_no_leaf, how)
    assert kind.endswith("LeafError")
    assert "inside the step at 'not_a_leaf#0'" in message
    assert fix in message


@holdfast.agent
async def resource_in_agent() -> None:
    await pool()


def test_a_resource_belongs_in_a_step():
    """In agent code a resource would be opened on every replay: it is refused, with the way to use it."""
    assert "can be used only inside a step: `client = await pool()`" in fail(resource_in_agent).message
    with pytest.raises(BadArguments, match="async generator without parameters"):
        holdfast.resource(measure.fn)


def test_a_client_takes_agents_and_modules():
    """`agents=` is a list of agents and modules; anything else, or one name twice, is refused."""
    with pytest.raises(BadArguments, match=r"takes a list: agents=\[research\]"):
        holdfast.open(agents=research)
    with pytest.raises(BadArguments, match="not <step fetch>"):
        holdfast.open(agents=[fetch])
    with pytest.raises(BadArguments, match="two agents are named 'research'"):
        holdfast.open(agents=[research, holdfast.agent(name="research")(research.fn)])

    async def serve_module(hf):
        assert await hf.run(research, "a") == "a/1"

    with_client(serve_module, agents=[inspect.getmodule(test_a_client_takes_agents_and_modules)])
