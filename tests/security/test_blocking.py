"""One request cannot keep a server from others: each of a corpus is answered, and /healthz all the while.

What a probe waits for is measured in the server's own work: less than a second of it, however busy the computer is.
"""

import asyncio
import json
import re
import threading
import time
from typing import Annotated, Literal

import httpx2
import pydantic
import pytest
from tests.workers import Worker, bearer

import holdfast


class Both(pydantic.BaseModel):
    left: "Term"
    kind: Literal["both"]


class Either(pydantic.BaseModel):
    left: "Term"
    kind: Literal["either"]


class Leaf(pydantic.BaseModel):
    kind: Literal["leaf"]


Term = Annotated[Both | Either | Leaf, pydantic.Field(discriminator="kind")]


class Left(pydantic.BaseModel):
    inner: "Left | Right | None" = None


class Right(pydantic.BaseModel):
    inner: "Left | Right | None" = None


@holdfast.agent
async def weigh(term: Term) -> None: ...


@holdfast.agent
async def match(text: Annotated[str, pydantic.Field(pattern="^(a|a)*b$")]) -> None: ...


@holdfast.agent
async def fill(side: Left | Right) -> None: ...


@holdfast.agent
async def take(numbers: list[float], name: str = "") -> None: ...


@holdfast.agent
async def form() -> None:
    await holdfast.ask("Which?", Left | Right)


@holdfast.agent
async def give() -> list[float]:
    return [0.5] * 200_000


AGENTS = [give, weigh, match, fill, take, form]


def nested(levels, kind="either"):
    """The tag comes last: whoever goes by the order of fields looks inside before the tag says what it is."""
    value = {"kind": "leaf"}
    for _ in range(levels):
        value = {"left": value, "kind": kind}
    return value


def inside(levels):
    value = None
    for _ in range(levels):
        value = {"inner": value}
    return value


def start(agent, *args, **more):
    return "/api/runs", {"agent": agent, "args": args, **more}


CORPUS = {
    "a valid tagged union": (*start("weigh", nested(28)), 201),
    "a tagged union that is wrong inside": (*start("weigh", nested(28, "neither")), 422),
    "a union of which several members fit": (*start("fill", inside(28)), 201),
    "an answer of which several members fit": (
        "/api/approvals/QUESTION",
        {"decision": "answer", "value": inside(28), "digest": "DIGEST"},
        200,
    ),
    "a pattern that goes back and forth": (*start("match", "a" * 40), 422),
    "a duration": (*start("take", [], after="1s" * 200_000), 422),
    "an endless number of days": (*start("take", [], after="1" * 2_000_000 + "d"), 422),
    "a large integer of seconds": (*start("take", [], after=10**4000), 422),
    "unknown names": ("/api/runs", {f"name{n}": n for n in range(100_000)}, 422),
    "names of no parameter": (*start("take", [], kwargs={f"name{n}": n for n in range(100_000)}), 422),
    "a name of megabytes": (*start("take", [], kwargs={"n" * 4_000_000: 1}), 422),
    "an agent of megabytes": (*start("n" * 4_000_000), 422),
    "an id of megabytes": (*start("take", [], id="n" * 4_000_000), 422),
    "labels that are none": (*start("take", [], labels={f"name{n}": n for n in range(100_000)}), 422),
    "a decision of megabytes": ("/api/approvals/asks", {"decision": "n" * 4_000_000}, 422),
    "many numbers": (*start("take", [1.5] * 100_000), 201),
    "many numbers and one that is none": (*start("take", [1.5] * 100_000 + ["x"]), 422),
    "a message of many parts": ("/api/runs/asks/send", {"topic": "t", "value": [[]] * 100_000}, 200),
    "a large result": ("/api/runs/gives/result", None, 200),
    "more parts than are taken": (*start("take", [1] * 600_000), 413),
}


@pytest.fixture(scope="module")
def served(commands, tmp_path_factory):
    """A server on a store where agents were published, and what a client of it needs."""
    folder = tmp_path_factory.mktemp("blocking")
    url = f"sqlite:{folder / 'runs.db'}?durability=process"

    async def prepare():
        async with holdfast.open(url, agents=AGENTS) as hf:
            await hf.start(form, id="asks")
            await hf.get("asks").wait("waiting", timeout="20s")
            await (await hf.start(give, id="gives")).wait(timeout="20s")

    asyncio.run(prepare())
    server = Worker(commands.start(["serve", "--port", "0", "--db", url], folder, {}))
    place = re.search(r"http://[\d.]+:\d+", server.until("Serving"))[0]
    yield server, {"base_url": place, "headers": bearer(url), "timeout": 100}
    server.kill()


@pytest.mark.parametrize("attack", CORPUS)
def test_others_are_served_while_one_request_is(served, attack):
    """The answer is one of ours, and no probe waits for it for a second."""
    server, address = served
    path, document, expected = CORPUS[attack]
    body = json.dumps(document)
    if "QUESTION" in path:
        with httpx2.Client(**address) as web:
            asked = web.get("/api/approvals/asks").json()["approval"]
        path, body = path.replace("QUESTION", asked["id"]), body.replace("DIGEST", asked["digest"])
    found, waits = [], []

    def send():
        with httpx2.Client(**address) as web:
            kind = {"Content-Type": "application/json"}
            found.append(web.get(path) if document is None else web.post(path, content=body, headers=kind))

    sender = threading.Thread(target=send)
    with httpx2.Client(**address) as web:
        web.get("/healthz")
        sender.start()
        while sender.is_alive():
            before_s = server.worked_s
            assert web.get("/healthz").status_code == 200
            waits.append(server.worked_s - before_s)
            time.sleep(0.01)
    sender.join()
    assert found[0].status_code == expected, found[0].text[:300]
    assert len(found[0].content) < 20_000 or expected < 300
    assert max(waits) < 1, f"{max(waits):.1f} s"


async def test_who_waits_for_news_keeps_nobody_from_an_answer(postgres_url):
    """After news of any run all who wait look again, hundreds at once: who asks something meanwhile is not behind them."""
    async with holdfast.open(postgres_url, agents=[form]) as hf:
        run = await hf.start(form, id="asks")
        await run.wait("waiting", timeout="20s")
        seen = []

        async def look_again():
            with hf._listening("asks") as heard:
                await hf._pause_for(heard)
                seen.append(await hf.store.run("asks"))

        looking = [asyncio.create_task(look_again()) for _ in range(300)]
        while hf._waiters._waiting < 300:
            await asyncio.sleep(0)
        hf._waiters.look_again()
        while hf._waiters._waiting:
            await asyncio.sleep(0)
        await hf.store.run("asks")
        before = len(seen)
        await asyncio.gather(*looking)
        returned = before
    assert returned < 100
