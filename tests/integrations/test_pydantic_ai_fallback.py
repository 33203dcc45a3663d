"""An ordered list of models for an agent of Pydantic AI."""

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse
from tests.integrations.scripted_model import Script, calls, says, turn_of

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


async def test_the_next_model_answers_and_is_asked_first_from_then_on():
    """A model that refuses for good is asked once; the choice holds for the run, over a crash at each commit."""

    def refuse(*_):
        raise ModelHTTPError(400, "large")

    large = Script(refuse)
    small = Script(lambda _turn, messages: calls(("look", {})) if turn_of(messages) < 2 else says("done"))
    durable = HoldfastDurability(models={"small": small.model}, fallback=["default", "small"])
    clerk = Agent(large.model, name="clerk", capabilities=[durable])

    @clerk.tool_plain
    async def look() -> str:
        return "seen"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async for hf in holdfast.testing.crash_everywhere(agents=[job]):
        assert await hf.run(job, id="r") == "done"
        journal = await hf.store.journal("r")
        keys = [event.key for event in journal if (event.key or "").startswith("clerk-0:model/")]
        assert keys == [f"clerk-0:model/clerk.model#{n}" for n in range(4)]
        assert sum(large.paid.values()) <= 1 + hf.crashes and sum(small.paid.values()) <= 3 + hf.crashes
        large.forget()
        small.forget()


async def test_an_empty_answer_is_asked_for_again():
    """Nothing is no answer: the model is asked again, and in the end another one."""
    mute = Script(lambda *_: ModelResponse(parts=[]))
    durable = HoldfastDurability(models={"small": Script(lambda *_: says("here")).model}, fallback=["default", "small"])
    clerk = Agent(mute.model, name="clerk", capabilities=[durable])

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async with holdfast.testing.open(agents=[job]) as hf:
        returned = await hf.run(job)
    assert returned == "here" and sum(mute.paid.values()) == 3


def test_models_that_are_not_known_are_refused():
    """A name that is not in `models=` is refused where it is given."""
    with pytest.raises(holdfast.BadArguments, match=r"'tiny' is not known.*there are none.*'default'"):
        HoldfastDurability(fallback=["tiny"])
