"""The fake provider speaks the protocol, misbehaves as told, counts what was paid for, and outlives its clients."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import openai
import pytest

from holdfast import BadArguments
from holdfast.testing.provider import (
    Answer,
    Failure,
    Garbage,
    Half,
    Hang,
    Overloaded,
    RateLimited,
    Reset,
    Tally,
    Tool,
    Trickle,
    WrongShape,
    provider,
)


@contextmanager
def connected(fake):
    connection = http.client.HTTPConnection(urlsplit(fake.url).netloc, timeout=10)
    try:
        yield connection
    finally:
        connection.close()


def asking(connection, prompt="hi", *, path="/v1/chat/completions", **more):
    """Ask, and give the response whose body is not yet read."""
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def ask(fake, prompt="hi", **more):
    """Status, headers and JSON of a whole answer."""
    with connected(fake) as connection:
        response = asking(connection, prompt, **more)
        return response.status, response.headers, json.loads(response.read())


def said(fake, prompt="hi", **more):
    return ask(fake, prompt, **more)[2]["choices"][0]["message"]["content"]


def events(response):
    """The events of a stream as they come, without the final [DONE], which must be there."""
    for line in response:
        if line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield json.loads(line.removeprefix(b"data: "))
        elif line != b"\n":
            assert line == b"data: [DONE]\n"
            assert response.read() == b"\n"
            return


def texts(response):
    for event in events(response):
        for choice in event["choices"]:
            yield from [choice["delta"]["content"]] if choice["delta"].get("content") else []


# Right answers


def test_a_script_is_answered_in_order_and_every_request_is_kept():
    """Each answer has the protocol's form; bodies and headers can be looked at; all of it is paid for."""
    with provider(["Otters sleep.", "And eat fish."]) as fake:
        status, headers, first = ask(fake, "What do otters do?", temperature=0.5)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert first["object"] == "chat.completion"
        assert first["choices"][0]["finish_reason"] == "stop"
        assert first["choices"][0]["message"]["content"] == "Otters sleep."
        assert first["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
        assert said(fake, "More?", model="other") == "And eat fish."
        one, two = fake.requests
        assert (one.prompt, one.body["temperature"], one.headers["content-type"]) == (
            "What do otters do?", 0.5, "application/json",
        )  # fmt: skip
        assert (two.model, two.status, two.ended, two.paid, two.output_tokens) == ("other", 200, "answered", True, 3)
        assert one.at < two.at <= time.monotonic()
        assert (fake.asked, fake.paid) == (2, 2)
        assert fake.total == Tally(asked=2, paid=2, input_tokens=5, output_tokens=5)
        assert fake.by_model == {
            "m": Tally(asked=1, paid=1, input_tokens=4, output_tokens=2),
            "other": Tally(asked=1, paid=1, input_tokens=1, output_tokens=3),
        }


def test_a_stream_has_one_event_for_each_token_and_an_end():
    """The tokens join to the text; the reason comes last, then the usage if it was asked for, then [DONE]."""
    with provider("Otters sleep  a lot.\n") as fake, connected(fake) as connection:
        parts = list(events(asking(connection, "Go on", stream=True, stream_options={"include_usage": True})))
        *spoken, last, usage = parts
        assert [part["choices"][0]["delta"].get("content") for part in spoken] == [
            "", "Otters", " sleep", "  a", " lot.", "\n",
        ]  # fmt: skip
        assert spoken[0]["choices"][0]["delta"]["role"] == "assistant"
        assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
        assert (usage["choices"], usage["usage"]["completion_tokens"], usage["usage"]["prompt_tokens"]) == ([], 5, 2)
        assert "".join(texts(asking(connection, stream=True))) == "Otters sleep  a lot.\n"
        assert fake.total == Tally(asked=2, paid=2, input_tokens=3, output_tokens=10)


def test_tool_calls_come_whole_and_in_a_stream():
    """Several calls in one answer, text beside them, arguments as JSON or as the broken text given."""
    calls = [Tool("search", q="otters in rivers"), Tool("stop"), Tool("write", '{"path": ')]
    with provider([calls, calls, Answer("Let me see.", *calls)]) as fake, connected(fake) as connection:
        choice = json.loads(asking(connection).read())["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
        whole = choice["message"]["tool_calls"]
        ids = [call["id"] for call in whole]
        assert [call["function"]["name"] for call in whole] == ["search", "stop", "write"]
        again = json.loads(asking(connection).read())["choices"][0]["message"]["tool_calls"]
        assert ids == [call["id"] for call in again] == list(dict.fromkeys(ids))  # the same question, the same ids
        assert [call["function"]["arguments"] for call in whole] == ['{"q": "otters in rivers"}', "{}", '{"path": ']
        joined = [{"name": "", "arguments": ""} for _ in calls]
        text = ""
        for event in events(asking(connection, stream=True)):
            delta = event["choices"][0]["delta"]
            text += delta.get("content") or ""
            for part in delta.get("tool_calls", ()):
                for name, piece in part["function"].items():
                    joined[part["index"]][name] += piece
        assert (text, joined) == ("Let me see.", [call["function"] for call in whole])
        assert event["choices"][0]["finish_reason"] == "tool_calls"


def test_what_an_answer_costs_can_be_said():
    """Of a stream that breaks, the share that left is paid."""
    dear = Answer("one two three four", input_tokens=1000, output_tokens=400)
    with provider([dear, Half(Answer("one two", output_tokens=400)), Answer("", output_tokens=50)]) as fake:
        assert ask(fake)[2]["usage"] == {"prompt_tokens": 1000, "completion_tokens": 400, "total_tokens": 1400}
        with connected(fake) as connection, pytest.raises(http.client.IncompleteRead):
            asking(connection, stream=True).read()
        assert ask(fake)[2]["usage"]["completion_tokens"] == 50
        assert fake.total == Tally(asked=3, paid=3, input_tokens=1002, output_tokens=850)


def test_the_models_are_listed():
    """`GET /v1/models` has the names given."""
    with provider("x", models=("big", "small")) as fake, connected(fake) as connection:
        connection.request("GET", "/v1/models")
        listed = json.loads(connection.getresponse().read())
        assert [model["id"] for model in listed["data"]] == ["big", "small"]
        assert fake.asked == 0


# Whoever asks


async def test_a_function_of_the_request_answers_many_at_once():
    """Sixty conversations of three turns each, all at the same time: each gets its own answers in its own order."""
    scripts = {f"q{n}": [Tool("look", n=n), Tool("look", n=-n), f"answer {n}"] for n in range(60)}

    async def converse(client, n):
        messages = [{"role": "user", "content": f"q{n}"}]
        while (message := (await client(messages))["choices"][0]["message"]).get("tool_calls"):
            call = message["tool_calls"][0]
            result = {"role": "tool", "tool_call_id": call["id"], "content": f"saw {call['function']['arguments']}"}
            messages += [message, result]
        return len(messages), message["content"]

    async with provider(lambda request: scripts[request.prompt][request.turn]) as fake:
        place = urlsplit(fake.url)

        async def client(messages):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            body = json.dumps({"model": "m", "messages": messages}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return json.loads(answer.partition(b"\r\n\r\n")[2])

        assert await asyncio.gather(*[converse(client, n) for n in range(60)]) == [
            (5, f"answer {n}") for n in range(60)
        ]
        assert (fake.asked, fake.paid) == (180, 180)
        last = next(request for request in fake.requests if request.prompt == "q7" and request.turn == 2)
        assert last.results == ['saw {"n": -7}']


def test_a_request_may_come_in_chunks_and_in_parts():
    """A chunked body, one announced with Expect, and text in parts are read like any other."""
    with provider(lambda request: request.prompt) as fake, connected(fake) as connection:
        parts = [{"type": "text", "text": "Otters"}, {"type": "text", "text": "?"}]
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()
        connection.request("POST", "/v1/chat/completions?beta=true", iter([body[:10], body[10:]]), encode_chunked=True)
        assert json.loads(connection.getresponse().read())["choices"][0]["message"]["content"] == "Otters?"
        connection.request("POST", "/v1/chat/completions", body, {"Expect": "100-continue"})
        assert json.loads(connection.getresponse().read())["choices"][0]["message"]["content"] == "Otters?"


def test_what_is_no_request_is_refused_and_takes_nothing_from_the_script():
    """Wrong paths, bodies and lines get the reason; the next right request gets the first answer."""
    with provider(["first"]) as fake:
        status, _, told = ask(fake, path="/chat/completions")
        assert (status, fake.url in told["error"]["message"]) == (404, True)
        assert ask(fake, messages=[])[0] == 400
        assert ask(fake, model=None)[2]["error"]["message"] == "you must provide a model parameter"
        with connected(fake) as connection:
            connection.request("POST", "/v1/chat/completions", "{not json")
            assert connection.getresponse().status == 400
        with connected(fake) as connection:
            connection.connect()
            connection.sock.sendall(b"hello\r\n")
            assert b"400 Bad Request" in connection.sock.recv(1000)
        assert fake.asked == 0
        assert said(fake) == "first"


def test_a_script_that_fails_is_told_to_the_client():
    """A script that is used up and a function that raises are a 400 with the reason: no client tries that again."""
    with provider(["one"]) as fake:
        assert said(fake) == "one"
        status, _, told = ask(fake, "two?")
        assert (status, fake.paid) == (400, 1)
        assert "it has 1 answers, and this is request 2 ('two?' to 'm')" in told["error"]["message"]
    with provider(lambda request: {"otters": "sleep"}[request.prompt]) as fake:
        assert "KeyError: 'beavers'" in ask(fake, "beavers")[2]["error"]["message"]
        assert said(fake, "otters") == "sleep"


@pytest.mark.parametrize("script", [[42], [RateLimited], [[]], ["fine", ["text"]], 42, Hang])
def test_a_wrong_script_is_refused_at_once(script):
    """The error comes where the script is written."""
    with pytest.raises(BadArguments, match=r"is no answer|a script is"):
        provider(script)


def test_the_url_is_there_while_it_runs():
    """Before `with` there is no port to tell."""
    with pytest.raises(BadArguments, match="not running"):
        _ = provider("x").url


# Misbehaving


@pytest.mark.parametrize(
    ("failure", "status", "after"),
    [
        (RateLimited(), 429, {}),
        (RateLimited("2s"), 429, {"Retry-After": "2"}),
        (RateLimited(0.25), 429, {"Retry-After": "1", "Retry-After-Ms": "250"}),
        (Overloaded("1m"), 503, {"Retry-After": "60"}),
        (Failure(), 500, {}),
        (Failure(401, "no such key"), 401, {}),
    ],
)
def test_a_failure_has_its_status_and_costs_nothing(failure, status, after):
    """Streamed or not; Retry-After is in whole seconds, and in milliseconds beside it if that is not exact."""
    with provider(failure) as fake:
        for stream in (False, True):
            got, headers, told = ask(fake, stream=stream)
            assert got == status
            assert {name: headers[name] for name in ("Retry-After", "Retry-After-Ms") if name in headers} == after
            assert told["error"]["message"] == failure.message
        assert fake.total == Tally(asked=2)
        assert {request.ended for request in fake.requests} == {"refused"}


def test_retry_after_can_be_a_date():
    """An HTTP date, so far after the response's own date, and not earlier."""
    with provider(Overloaded("90s", as_date=True)) as fake:
        headers = ask(fake)[1]
        wait = parsedate_to_datetime(headers["Retry-After"]) - parsedate_to_datetime(headers["Date"])
        assert 90 <= wait.total_seconds() <= 92


def test_garbage_is_paid_for():
    """What is no JSON, JSON of another shape, and an answer without words; in a stream too."""
    script = [Garbage(), Garbage(), WrongShape(), WrongShape(), "", ""]
    with provider(script) as fake, connected(fake) as connection:
        with pytest.raises(json.JSONDecodeError):
            json.loads(asking(connection).read())
        with pytest.raises(json.JSONDecodeError):
            list(events(asking(connection, stream=True)))
        connection.close()
        assert ask(fake)[2] == {"object": "chat.completion", "choices": None}
        assert next(events(asking(connection, stream=True)))["choices"] is None
        connection.close()
        assert said(fake) == ""
        assert list(texts(asking(connection, stream=True))) == []
        assert (fake.asked, fake.paid) == (6, 6)


def test_half_a_stream_ends_in_the_middle():
    """Its words arrive and are paid for, then the connection is closed without an end; the next one is served."""
    with provider([Half("The answer is"), Half(Tool("search", q="otters")), "whole"]) as fake:
        with connected(fake) as connection, pytest.raises(http.client.IncompleteRead) as cut:
            asking(connection, stream=True).read()
        assert b'" is"' in cut.value.partial
        assert b"DONE" not in cut.value.partial
        with connected(fake) as connection, pytest.raises(http.client.IncompleteRead) as cut:
            asking(connection, stream=True).read()
        assert b'"name": "search"' in cut.value.partial
        assert rb"{\"q\":" in cut.value.partial
        assert b"otters" not in cut.value.partial
        assert said(fake) == "whole"
        assert [request.ended for request in fake.requests] == ["broken", "broken", "answered"]
        assert [request.output_tokens for request in fake.requests] == [3, 2, 1]
        assert fake.paid == 3


def test_half_an_answer_is_shorter_than_its_head_says():
    """Without a stream, half of the body arrives."""
    with provider(Half("The answer is")) as fake, connected(fake) as connection:
        response = asking(connection)
        with pytest.raises(http.client.IncompleteRead) as cut:
            response.read()
        assert 0 < len(cut.value.partial) <= cut.value.expected + 1
        assert fake.requests[0].ended == "broken"


def test_a_reset_is_a_reset():
    """The client's system says ECONNRESET; before any word nothing is paid, in mid-stream what was said."""
    with provider([Reset(), Reset("three words here")]) as fake:
        with connected(fake) as connection, pytest.raises(ConnectionResetError):
            asking(connection)
        assert fake.paid == 0
        with connected(fake) as connection, pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            asking(connection, stream=True).read()
        assert (fake.paid, fake.total.output_tokens) == (1, 3)


async def test_a_hang_is_silent_until_released():
    """Three hundred ask and hear nothing, and nothing is paid; released, all are answered; who comes later hangs again."""
    async with provider(Hang("at last")) as fake:

        async def one(n):
            place = urlsplit(fake.url)
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": str(n)}]}).encode()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            heard = await reader.read(5000)
            writer.close()
            return heard

        asked = [asyncio.create_task(one(n)) for n in range(300)]
        await fake.until(hanging=300)
        assert fake.total == Tally(asked=300, hanging=300)
        assert not any(task.done() for task in asked)
        fake.release()
        assert all(b"at last" in heard for heard in await asyncio.gather(*asked))
        assert fake.total == Tally(asked=300, paid=300, input_tokens=300, output_tokens=600)
        later = asyncio.create_task(one(0))
        await fake.until(hanging=1)
        assert fake.paid == 300
    assert await later == b""  # closing ends it
    assert (fake.total.left, fake.requests[-1].ended) == (1, "left")


def test_a_stream_can_hang_in_the_middle():
    """What was said before the silence has arrived and is paid for; released, it goes on."""
    with provider(Hang(said="The answer", then=" is 42")) as fake, connected(fake) as connection:
        heard = texts(asking(connection, stream=True))
        assert [next(heard), next(heard)] == ["The", " answer"]
        fake.wait_for(hanging=1)
        assert fake.total == Tally(asked=1, paid=1, hanging=1, input_tokens=1, output_tokens=2)
        fake.release()
        assert list(heard) == [" is", " 42"]
        assert said_later(fake) == "The answer is 42"


def said_later(fake):
    """What a whole answer says that hangs first."""
    found = []
    thread = threading.Thread(target=lambda: found.append(said(fake)))
    thread.start()
    fake.wait_for(hanging=1)
    fake.release()
    thread.join(10)
    return found[0]


def test_waiting_for_what_does_not_come_says_what_is_there():
    """The error has the tally."""
    with provider("x") as fake:
        said(fake)
        with pytest.raises(TimeoutError, match=r"at least {'asked': 2}; there is Tally\(asked=1, paid=1"):
            fake.wait_for(asked=2, timeout="20ms")


def test_a_trickle_takes_its_time_and_a_client_that_leaves_ends_it():
    """There is a pause before each token; who leaves in the middle has paid for what had left the server by then."""
    with provider([Trickle("a b c d", pause="20ms"), Trickle("word " * 500, pause="5ms")]) as fake:
        with connected(fake) as connection:
            began = time.monotonic()
            assert len(list(texts(asking(connection, stream=True)))) == 4
            assert time.monotonic() - began >= 0.08
        with connected(fake) as connection:
            heard = texts(asking(connection, stream=True))
            assert [next(heard) for _ in range(3)] == ["word", " word", " word"]
        fake.wait_for(left=1)
        left = fake.requests[1]
        assert (left.ended, left.paid) == ("left", True)
        assert 3 <= left.output_tokens < 500


def test_a_behaviour_of_ones_own_can_stand_in_a_script():
    """Whatever has `give`; an error in it ends the connection and is raised where the provider is closed."""

    class Redirect:
        async def give(self, exchange):
            exchange.refuse(307, {}, {"Location": "/elsewhere"})

    class Broken:
        async def give(self, exchange):
            raise RuntimeError(f"no idea what to do with {exchange.request.prompt}")

    with provider([Redirect()]) as fake:
        assert ask(fake)[1]["Location"] == "/elsewhere"
    with (
        pytest.raises(RuntimeError, match="no idea what to do with otters"),
        provider(Broken()) as fake,
        connected(fake) as connection,
        pytest.raises(http.client.RemoteDisconnected),
    ):
        asking(connection, "otters")


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_keep_the_server():
    """Tens of megabytes wait to be read; closing does not wait for that, and leaves no socket behind."""
    with ExitStack() as clients:
        with provider("x" * 20_000_000) as fake:
            asking(clients.enter_context(connected(fake)))
            began = time.monotonic()
        assert time.monotonic() - began < 5
        assert fake.requests[0].paid
        gc.collect()  # a transport left open would be heard of now


# Processes

CLIENT = """
import http.client, json, os, sys
host = os.environ["OPENAI_BASE_URL"].split("/")[2]
connection = http.client.HTTPConnection(host)
body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": sys.argv[1]}]}
connection.request("POST", "/v1/chat/completions", json.dumps(body))
for line in connection.getresponse():
    print(line.decode().strip(), flush=True)
"""


def process(fake, prompt):
    arguments = [sys.executable, "-I", "-c", CLIENT, prompt]
    return subprocess.Popen(arguments, env=os.environ | fake.env, stdout=subprocess.PIPE, text=True)


def test_clients_killed_in_the_middle_leave_the_server_whole():
    """By kill -9 in mid-stream and in a hang: counted as left, paid up to there; others are answered all the while."""
    script = {"slow": Trickle("word " * 2000, pause="5ms"), "hang": Hang(), "quick": "done"}
    with provider(lambda request: script[request.prompt]) as fake:
        slow, hang = process(fake, "slow"), process(fake, "hang")
        try:
            while "word" not in slow.stdout.readline():
                pass
            fake.wait_for(asked=2, hanging=1)
            assert said(fake, "quick") == "done"
            slow.kill()
            hang.kill()
            fake.wait_for(left=2)
        finally:
            for client in (slow, hang):
                client.kill()
                client.communicate()
        assert said(fake, "quick") == "done"
        of = {request.prompt: request for request in fake.requests}
        assert (of["slow"].ended, of["slow"].paid, of["hang"].ended, of["hang"].paid) == ("left", True, "left", False)
        assert 1 <= of["slow"].output_tokens < 2000
        assert (fake.asked, fake.paid, fake.total.hanging) == (4, 3, 0)


# The real client


async def test_the_real_client_understands_all_of_it():
    """The openai package: whole and streamed, tools, models, and each failure as the exception it has for it."""
    messages = [{"role": "user", "content": "What do otters do?"}]

    script = [
        "Otters sleep.", Tool("search", q="otters"), "In a stream.", [Tool("a", x=1), Tool("b", y=[2, 3])],
        RateLimited("2s"), Failure(), Failure(400, "bad"), Reset(), Garbage(), Half("The answer"),
    ]  # fmt: skip
    async with (
        provider(script) as fake,
        openai.AsyncOpenAI(base_url=fake.url, api_key="x", max_retries=0) as client,
    ):

        def create(**more):
            return client.chat.completions.create(model="m", messages=messages, **more)

        whole = await create()
        assert (whole.choices[0].message.content, whole.usage.total_tokens) == ("Otters sleep.", 6)
        call = (await create()).choices[0].message.tool_calls[0]
        assert (call.function.name, json.loads(call.function.arguments)) == ("search", {"q": "otters"})
        async with client.chat.completions.stream(model="m", messages=messages) as stream:
            assert (await stream.get_final_completion()).choices[0].message.content == "In a stream."
        async with client.chat.completions.stream(model="m", messages=messages) as stream:
            calls = (await stream.get_final_completion()).choices[0].message.tool_calls
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            ("a", '{"x": 1}'), ("b", '{"y": [2, 3]}'),
        ]  # fmt: skip
        with pytest.raises(openai.RateLimitError) as limited:
            await create()
        assert limited.value.response.headers["retry-after"] == "2"
        with pytest.raises(openai.InternalServerError):
            await create()
        with pytest.raises(openai.BadRequestError, match="bad"):
            await create()
        with pytest.raises(openai.APIConnectionError):
            await create()
        with pytest.raises(ValueError, match="Expecting value"):
            await create()
        stream = aiter(await create(stream=True))
        heard = [(await anext(stream)).choices[0].delta.content for _ in range(3)]
        assert heard == ["", "The", " answer"]
        with pytest.raises(openai.APIConnectionError):
            await anext(stream)
        assert [model.id async for model in client.models.list()] == ["fake"]
        assert (fake.asked, fake.paid) == (10, 6)
        assert all(request.headers["authorization"] == "Bearer x" for request in fake.requests)
