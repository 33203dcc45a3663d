"""`Retry.model` against a provider that misbehaves, through the clients people use."""

from __future__ import annotations

import asyncio
import email.message
import urllib.error
from types import SimpleNamespace

import openai
import pytest
from tests.agents.runs import history

import holdfast
import holdfast.testing
from holdfast import Retry
from holdfast.testing.provider import Failure, Garbage, Half, Overloaded, RateLimited, Reset, WrongShape, provider


@holdfast.step(retry=Retry.model)
async def complete(prompt: str) -> str:
    async with openai.AsyncOpenAI(max_retries=0) as client:
        answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}])
    return answer.choices[0].message.content


@holdfast.step(retry=Retry.model)
async def stream(prompt: str) -> str:
    async with openai.AsyncOpenAI(max_retries=0) as client:
        messages = [{"role": "user", "content": prompt}]
        events = await client.chat.completions.create(model="m", messages=messages, stream=True)
        return "".join([event.choices[0].delta.content or "" async for event in events])


@holdfast.agent
async def asks(how: str) -> str:
    try:
        return await {"complete": complete, "stream": stream}[how]("What do otters do?")
    except holdfast.StepFailed as failure:
        return f"{failure.type} after {failure.attempts}"


@pytest.fixture
def run(monkeypatch):
    """Run the agent against a provider with this script: its result, the waits in seconds, and the provider."""

    async def play(script, how):
        async with provider(script) as fake, holdfast.testing.open(agents=[asks]) as hf:
            for name, value in fake.env.items():
                monkeypatch.setenv(name, value)
            result = await hf.run(asks, how, id="r")
            events = await history(hf, "r")
            return result, [e.data["wait_ms"] / 1000 for e in events if e.kind == "step.retrying"], fake

    return lambda script, how="complete": asyncio.run(play(script, how))


def test_the_waits_a_provider_asks_for_are_kept(run):
    """Seconds, milliseconds and dates are each waited out at least, and nothing is paid for but the answer."""
    result, waits, fake = run([RateLimited("90s"), Overloaded("5m", as_date=True), RateLimited(30.5), "They sleep."])
    assert result == "They sleep."
    assert waits[0] == 90
    assert 300 <= waits[1] <= 302
    assert waits[2] == 30.5
    assert (fake.asked, fake.paid) == (4, 1)


@pytest.mark.slow
def test_what_breaks_on_the_way_is_asked_again(run):
    """Server errors, a broken connection and answers that cannot be read: the usual waits, and the answer in the end."""
    script = [Failure(), Reset(), Garbage(), WrongShape(), Half("They"), Failure(529), "They sleep."]
    result, waits, fake = run(script)
    assert result == "They sleep."
    assert [1.5 * 2**n <= wait <= 2 * 2**n for n, wait in enumerate(waits)] == [True] * 6
    assert (fake.asked, fake.paid) == (7, 4)
    result, waits, fake = run([Half("They"), Reset("They"), RateLimited("20s"), "They sleep."], "stream")
    assert (result, waits[2], fake.asked) == ("They sleep.", 20, 4)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_request_refused_for_what_it_is_is_not_asked_again(run, status):
    """One request, and the failure reaches the agent."""
    result, waits, fake = run(Failure(status, "no"))
    assert (result.endswith("after 1"), waits, fake.asked) == (True, [], 1)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_be_granted_later_is_asked_again(run, status):
    """Time-outs, conflicts, limits and the server's own troubles."""
    assert run([Failure(status), "fine"])[0] == "fine"


class Refused(Exception):
    def __init__(self, **attributes):
        super().__init__("refused")
        vars(self).update(attributes)


def of_urllib(status):
    return urllib.error.HTTPError("http://x", status, "no", email.message.Message(), None)


@pytest.mark.parametrize(
    "error",
    [
        lambda status: Refused(status_code=status),  # openai, anthropic, Pydantic AI
        lambda status: Refused(response=SimpleNamespace(status_code=status)),  # httpx, requests
        lambda status: Refused(status=status),  # aiohttp
        lambda status: Refused(code=status, status="NOT_FOUND"),  # google
        of_urllib,
    ],
)
def test_a_status_is_found_where_clients_put_it(error):
    """So that no client has to be imported to know its errors."""
    assert not Retry.model.wants(error(404))
    assert Retry.model.wants(error(429))
    assert Retry.model.wants(error(500))
    assert Retry(2).wants(error(404))  # only the preset for models looks at it


def test_the_server_may_say_whether_to_ask_again():
    """The header x-should-retry counts more than the status."""
    assert not Retry.model.wants(Refused(status_code=429, headers={"x-should-retry": "false"}))
    assert Retry.model.wants(Refused(status_code=400, headers={"x-should-retry": "true"}))


def test_a_failure_without_a_status_is_tried_again():
    """Connections, time-outs and answers that could not be read; the numbers in other errors are no statuses."""
    for error in (
        ConnectionResetError(),
        TimeoutError(),
        KeyError("choices"),
        Refused(code="invalid"),
        Refused(code=1006),
    ):
        assert Retry.model.wants(error)
    assert not Retry.model.wants(holdfast.Permanent("no"))
