"""What the tests of the server share: agents, a server on a free port with a worker beside it, and a reader of event streams."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2

import holdfast
from holdfast.http.connections import Limits
from holdfast.http.server import listening, serving


@holdfast.step
async def double(n: int) -> int:
    return n * 2


@holdfast.agent
async def twice(n: int, note: str = "") -> int:
    return await double(n)


@holdfast.agent
async def publish(text: str) -> str:
    decision = await holdfast.approve("Publish this?", show={"text": text}, edit=True, to="editors")
    return decision.data["text"] if decision else f"no: {decision.note}"


@holdfast.agent
async def meet(at: datetime) -> str:
    """Two must agree to a moment."""
    decision = await holdfast.approve("Meet then?", show={"at": at, "note": ""}, edit=True, needs=2)
    return decision.data["at"]


@holdfast.agent
async def number() -> int:
    return await holdfast.ask("How many?", int)


@holdfast.agent
async def guess() -> int | None:
    return await holdfast.ask("How many, if any?", int | None, expires="1 day", default=None)


@holdfast.agent
async def listener(words: int) -> list[str]:
    return [await holdfast.receive("word", str) for _ in range(words)]


@holdfast.step
async def tell(words: list[str]) -> None:
    async with holdfast.stream("answer") as out:
        for word in words:
            await out.write(word)


@holdfast.agent
async def talker(words: list[str]) -> str:
    await holdfast.receive("go", str)
    await tell(words)
    return "said"


@holdfast.agent
async def reciter(verses: int) -> None:
    for _ in range(verses):
        await tell([await holdfast.receive("verse", str)])


@holdfast.agent
async def broken() -> None:
    raise ValueError("no luck")


@holdfast.step
async def divide(by: str) -> dict[str, float]:
    return {"rate": float(by)}


@holdfast.agent
async def rated(by: str) -> dict[str, float]:
    """Come to a number that JSON may have no word for, and show it."""
    found = await divide(by)
    await holdfast.approve("Is this the rate?", show=found, edit=True)
    return found


AGENTS = [twice, publish, meet, number, guess, listener, talker, reciter, broken, rated]


@dataclass
class Served:
    """A server, who asks it, and the worker's client."""

    hf: holdfast.Client
    web: httpx2.AsyncClient  # with a token of its own
    address: str
    bare: httpx2.AsyncClient  # without

    async def get(self, path: str, expected: int = 200, **options: Any) -> Any:
        return self._told(await self.web.get(path, **options), expected)

    async def post(self, path: str, document: Any = None, expected: int = 200, **options: Any) -> Any:
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        content = json.dumps(document or {})  # in ASCII, so that any text can be sent
        return self._told(await self.web.post(path, content=content, headers=headers, **options), expected)

    async def start(self, agent: str, *args: Any, **more: Any) -> str:
        run = await self.post("/api/runs", {"agent": agent, "args": args, **more}, 201)
        return run["run"]["id"]

    async def until(self, run: str, *states: str) -> None:
        await self.hf.get(run).wait(*states, timeout="20s")

    @staticmethod
    def _told(answer: httpx2.Response, expected: int) -> Any:
        assert answer.status_code == expected, answer.text
        return answer.json()


@asynccontextmanager
async def served(
    url: str,
    *,
    host: str = "127.0.0.1",
    agents: Any = AGENTS,
    settings: holdfast.Settings | None = None,
    url_of: str | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(holdfast.open(url, agents=agents))
        hf = await stack.enter_async_context(holdfast.open(url, settings=settings))  # without any code of the agents
        listener = stack.enter_context(listening(host, 0))
        address = await stack.enter_async_context(serving(hf, listener, limits, None, url_of))
        _, secret = await worker.create_token("tess")
        headers = {"Authorization": f"Bearer {secret}"}
        web = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=20, headers=headers))
        bare = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=20))
        yield Served(worker, web, address, bare)


def on_a_server(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test with a server of its own, on a SQLite file."""
    wanted = list(inspect.signature(test).parameters)[1:]  # fixtures

    async def main(more: dict[str, Any]) -> None:
        async with asyncio.timeout(40), served(f"sqlite:{more['tmp_path']}/runs.db") as site:
            await test(site, **{name: more[name] for name in wanted})

    @functools.wraps(test)
    def run(**more: Any) -> None:
        asyncio.run(main(more))

    names = dict.fromkeys(["tmp_path", *wanted])
    run.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
    return run


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, str]]:
    """The messages of an event stream, each as its fields."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields.keys() - {"retry", ":"}:
            yield fields
            fields = {}


async def followed(web: httpx2.AsyncClient, path: str, after: int | None = None, **headers: str) -> AsyncIterator[Any]:
    """(id, document) of each message; (None, name) of what is told beside them."""
    headers = {"Accept": "text/event-stream"} | headers
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    async with web.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for fields in messages(answer.aiter_lines()):
            if "event" in fields:
                yield None, fields["event"]
            else:
                yield int(fields["id"]), json.loads(fields["data"])
