"""`fallback`: the next model when one fails for good, bad answers asked for again, and a choice that stays."""

from __future__ import annotations

import asyncio
import random

import pytest
from pydantic import BaseModel
from tests.agents.runs import fail, finish, history

import holdfast
import holdfast.testing
from holdfast import BadArguments, Permanent, Retry, StepFailed, Unanswered

MODELS = ["large", "small", "tiny"]


class Report(BaseModel):
    title: str
    pages: int


def counted(text):
    return int(text)


class Script:
    """A step that answers as the script says, and what it was asked: (model, prompt, problem)."""

    def __init__(self, script, **options):
        self.asked = []

        @holdfast.step(**options)
        async def ask(model: str, prompt: str, problem: str = "") -> str:
            self.asked.append((model, prompt, problem))
            said = script(model, prompt, problem)
            if isinstance(said, Exception):
                raise said
            return said

        self.step = ask

    @property
    def models(self):
        return [model for model, _, _ in self.asked]


def calls(answer, *prompts):
    @holdfast.agent
    async def asks() -> list[object]:
        return [await answer(prompt) for prompt in prompts]

    return asks


def test_the_next_is_asked_when_one_fails_for_good():
    """Retries of the step come first; then the next in order, until one answers."""
    script = Script(lambda model, *_: "fine" if model == "tiny" else OSError("down"), retry=Retry(2, first=0))
    assert finish(calls(holdfast.fallback(script.step, MODELS), "hello")) == ["fine"]
    assert script.models == ["large", "large", "small", "small", "tiny"]


def test_what_answered_is_asked_first_for_the_rest_of_the_run():
    """Later calls begin with it; if it fails too, those behind it and then those before it have their turn."""
    down = {"a": {"large"}, "b": {"large"}, "c": {"small", "tiny"}, "d": set()}
    script = Script(lambda model, prompt, _: Permanent("down") if model in down[prompt] else f"{prompt} by {model}")
    answer = holdfast.fallback(script.step, MODELS)
    assert finish(calls(answer, "a", "b", "c", "d")) == ["a by small", "b by small", "c by large", "d by large"]
    assert script.models == ["large", "small", "small", "small", "tiny", "large", "large"]


async def test_another_run_begins_with_the_first_again():
    """The choice is the run's own, and so is that of each fallback."""
    script = Script(lambda model, prompt, _: Permanent("down") if (model, prompt) == ("large", "a") else model)
    one, two = holdfast.fallback(script.step, MODELS), holdfast.fallback(script.step, MODELS[::-1])

    @holdfast.agent
    async def asks(prompt: str) -> list[str]:
        return [await one(prompt), await two(prompt), await one(prompt)]

    async with holdfast.testing.open(agents=[asks]) as hf:
        returned = [await hf.run(asks, "a"), await hf.run(asks, "b")]
    assert returned == [["small", "tiny", "small"], ["large", "tiny", "large"]]


@pytest.mark.parametrize(
    ("check", "answers", "result", "problems"),
    [
        (None, ["", "  \n", "fine"], "fine", ["the answer was empty"] * 2),
        (Report, ["Here it is", '{"title": "Otters"}', '{"title": "Otters", "pages": 3}'],
         Report(title="Otters", pages=3), ["Invalid JSON", "pages\n  Field required"]),
        (counted, ["many", "3"], 3, ["invalid literal for int() with base 10: 'many'"]),
    ],
)  # fmt: skip
def test_a_bad_answer_is_asked_for_again_with_the_problem(check, answers, result, problems):
    """Empty, not of the type, refused by a function: the step is told what was wrong, and the agent gets what fits."""
    coming = iter(answers)
    script = Script(lambda *_: next(coming))
    options = {} if check is None else {"check": check}
    answer = holdfast.fallback(script.step, MODELS, **options)

    @holdfast.agent
    async def asks() -> str | int | Report:
        return await answer("hello")

    assert finish(asks) == result
    first, *later = [problem for _, _, problem in script.asked]
    assert first == ""
    assert len(later) == len(problems)
    assert all(expected in told for expected, told in zip(problems, later, strict=True))
    assert not any("https://" in told for told in later)


def test_bad_answers_are_bounded():
    """So many from each model, then the next; in the end an error that says what each of them did."""
    script = Script(lambda model, *_: "" if model == "large" else Permanent("no such model"))

    @holdfast.agent
    async def asks() -> dict[str, str]:
        try:
            return {"": await holdfast.fallback(script.step, ["large", "small"], tries=2)("hello")}
        except Unanswered as error:
            return error.problems

    assert issubclass(Unanswered, StepFailed)
    assert finish(asks) == {
        "large": "the answer was empty (asked 2 times)",
        "small": "step 'ask' failed at its only attempt: Permanent: no such model",
    }
    assert script.models == ["large", "large", "small"]


async def test_a_run_that_got_no_answer_is_retried_from_the_first_model():
    """`retry` asks all of them again, for their failures are what the run failed with."""
    up = []
    script = Script(lambda model, *_: f"by {model}" if up else Permanent("down"))
    asks = calls(holdfast.fallback(script.step, ["large", "small"]), "hello")

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await hf.start(asks, id="r")
        with pytest.raises(holdfast.RunFailed, match=r"no model gave an answer.*large: .*down; small: .*down"):
            await run.result()
        up.append(1)
        await run.retry()
        returned = await run.result()
    assert returned == ["by large"]
    assert script.models == ["large", "small", "large"]


def test_mistakes_are_not_taken_for_failures_of_a_model():
    """Arguments that do not fit, and what cannot be stored, reach the agent at once."""
    script = Script(lambda *_: "fine")

    @holdfast.agent
    async def asks() -> str:
        return await holdfast.fallback(script.step, MODELS)(42, nonsense=True)

    failure = fail(asks)
    assert failure.type == "BadArguments"
    assert script.asked == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((len, ["a"]), "give a step, or an async function"),
        (("ask", "large"), "give the names of models in a list"),
        (("ask", []), "give the names of models in a list"),
        (("ask", ["a", "a"]), "name it once"),
    ],
)
def test_a_wrong_fallback_says_what_is_right(arguments, says):
    """When it is made, not when it is needed."""
    ask, models = arguments
    ask = Script(lambda *_: "").step if ask == "ask" else ask
    with pytest.raises(BadArguments, match=says):
        holdfast.fallback(ask, models)
    for wrong in ({"tries": 0}, {"check": "Report"}):
        with pytest.raises(BadArguments, match=next(iter(wrong))):
            holdfast.fallback(Script(lambda *_: "").step, ["a"], **wrong)


def test_outside_a_run_it_is_plain_code():
    """The models are asked in order, as steps outside a run just run."""
    script = Script(lambda model, *_: OSError("down") if model == "large" else model)
    assert asyncio.run(holdfast.fallback(script.step, MODELS)("hello")) == "small"


@pytest.mark.slow
async def test_the_choice_goes_over_checkpoints_and_crashes():
    """With a crash at every write: the model that failed in the first era is not asked again in the next."""
    script = Script(lambda model, prompt, _: Permanent("down") if model == "large" else f"{prompt} by {model}")
    answer = holdfast.fallback(script.step, MODELS)

    @holdfast.agent
    async def eras() -> list[str]:
        done = await holdfast.restore(list[str]())
        while len(done) < 3:
            done = await holdfast.checkpoint([*done, await answer(str(len(done)))])
        return done

    async for hf in holdfast.testing.crash_everywhere(agents=[eras]):
        script.asked.clear()
        assert await hf.run(eras, id="r") == ["0 by small", "1 by small", "2 by small"]
        events = await history(hf, "r")
        ended = [event.kind for event in events if event.kind in ("step.failed", "step.completed")]
        assert ended == ["step.failed", *["step.completed"] * 3]
        assert script.models.count("large") <= 2  # the crash may have come between the body and its record


@pytest.mark.slow
@pytest.mark.by_day("0")
@pytest.mark.parametrize("seed", range(3))
async def test_parallel_calls_resume_to_the_same_choices(seed):
    """Branches that fail each in its own way, with a crash at every write: never a divergence, and all end."""
    chance = random.Random(seed)
    says = {(model, n): chance.choice(["fine", "", Permanent("down")]) for model in MODELS for n in range(3)}
    script = Script(lambda model, prompt, _: "fine" if prompt == "last" else says[model, int(prompt)])
    answer = holdfast.fallback(script.step, MODELS, tries=2)

    @holdfast.agent
    async def asks() -> list[str]:
        async def one(n: int) -> str:
            try:
                return f"{await answer(str(n))} {await answer(str(n))}"
            except Unanswered as error:
                return str(error.problems)

        return [*await asyncio.gather(*[one(n) for n in range(3)]), await answer("last")]

    ends = [await hf.run(asks) async for hf in holdfast.testing.crash_everywhere(agents=[asks])]
    assert len(ends) > 10
    assert {(len(end), end[-1]) for end in ends} == {(4, "fine")}


def test_a_function_that_calls_steps_can_be_asked():
    """As integrations do it: several steps for one answer, and the next model when any of them fails."""
    script = Script(lambda model, prompt, _: Permanent("down") if (model, prompt) == ("large", "check") else model)

    async def twice(model: str, prompt: str) -> str:
        return f"{await script.step(model, prompt)} {await script.step(model, 'check')}"

    assert finish(calls(holdfast.fallback(twice, MODELS), "a", "b")) == ["small small", "small small"]
    assert script.models == ["large", "large", "small", "small", "small", "small"]


def test_what_is_about_the_run_is_no_failure_of_a_model():
    """No other model is asked when a budget is spent, say: it would be for them too."""
    asked = []

    async def ask(model: str, prompt: str) -> str:
        asked.append(model)
        raise holdfast.BudgetExceeded("nothing is left")

    assert fail(calls(holdfast.fallback(ask, MODELS), "hello")).type == "BudgetExceeded"
    assert asked == ["large"]
