"""The first hour of somebody with an agent of Pydantic AI, a tool that needs approval, and a page that shows the answer."""

import json

import httpx2
from tests.first_hours.conftest import until

from holdfast.testing.provider import Hang, Tool, provider

SHOP = """
import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability, Streamed
from pydantic_ai import Agent

durable = HoldfastDurability(stream=Streamed(name="answer", salvage="continue"))
clerk = Agent("openai-chat:gpt-5-mini", name="clerk", capabilities=[durable])

@clerk.tool_plain
async def find_order(number: int) -> str:
    return f"order {number}: a kettle, 40 euros"

@clerk.tool_plain(requires_approval=True, metadata={"holdfast": {"to": "office"}})
async def refund(number: int, euros: int) -> str:
    with open("paid", "a") as paid:
        paid.write(f"{number} {euros}\\n")
    return f"{euros} euros paid back"

@holdfast.agent
async def support(question: str) -> str:
    return (await clerk.run(question)).output
"""
LONG = Hang(said="You get ", then="30 euros.")


def test_approval_and_a_page_that_follows_the_answer(user):
    """The page sees each word although the worker is killed in mid-word; a wrong edit is refused; money is paid once."""
    script = [
        Tool("find_order", number=7),
        Tool("refund", number=7, euros=40),
        LONG,
        "30 euros.",
    ]
    user.writes("shop.py", SHOP)
    with provider(script) as fake:
        user.env |= fake.env
        worker = user.starts("holdfast", "worker", "shop.py")
        worker.says("Serving")
        tokens = {name: _token(user, name, *more) for name, more in {"web": (), "ana": ("--group", "office")}.items()}
        server = user.starts("holdfast", "serve", "--port", "0")
        address = "http://" + server.says("http://").partition("http://")[2].split()[0].rstrip("/.,;")
        with (
            httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {tokens['web']}"}, timeout=60) as web,
            httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {tokens['ana']}"}, timeout=60) as ana,
        ):
            assert httpx2.get(f"{address}/api/runs").status_code == 401
            started = web.post("/api/runs", json={"agent": "support", "args": ["Money back for order 7!"], "id": "r"})
            assert started.status_code == 201, started.text
            question = until(lambda: ana.get("/api/approvals").json()["approvals"], "the question")[0]
            assert question["shown"] == {"number": 7, "euros": 40}
            decide = f"/api/approvals/{question['id']}"
            approve = {"decision": "approve", "digest": question["digest"]}
            assert web.post(decide, json=approve).status_code == 403
            for wrong in ({"number": 7, "euros": "lots"}, {}, {"number": 7, "euros": 30, "euro": 1}):
                refused = ana.post(decide, json=approve | {"data": wrong})
                assert refused.status_code in (400, 422), refused.text
            assert ana.post(decide, json=approve | {"data": {"number": 7, "euros": 30}}).status_code == 200
            with web.stream("GET", "/api/runs/r/streams/answer", headers={"Accept": "text/event-stream"}) as answer:
                said = _heard(answer.iter_lines())
                assert next(said) == "You get "
                worker.kill()
                fake.release()
                user.starts("holdfast", "worker", "shop.py")
                assert "".join(said) == "30 euros."
            result = web.get("/api/runs/r/result?timeout=30").json()
        assert result["result"] == "You get 30 euros."
        assert user.lines("paid") == ["7 30"]
        assert len(fake.requests) == 4
    shown = user.types("holdfast", "show", "r")
    order = [
        shown.index(text)
        for text in ("asks for find_order", "find_order(", "asks for refund", "refund(number=7, euros=30)")
    ]
    assert order == sorted(order) and "approved by ana" in shown
    assert "You get 30 euros." in user.types("holdfast", "tail", "r", "--stream", "answer")


def _token(user, name, *more):
    return user.asks("holdfast", "token", name, *more)["secret"]


def _heard(lines):
    """The texts of a stream as a page gets them, until it is told that nothing more comes."""
    kind = None
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        if name == "data" and kind == "end":
            return
        if name == "data":
            chunk = json.loads(value)
            assert chunk["kind"] in ("data", "end"), chunk
            if chunk["data"]:
                yield chunk["data"]


def test_the_agent_is_tested_the_way_of_pydantic_ai(user):
    """`agent.override` in a test of the user's own: no key, no provider, nothing paid."""
    user.writes("shop.py", SHOP)
    user.writes(
        "test_shop.py",
        """
import asyncio, holdfast.testing
from pydantic_ai import models
from pydantic_ai.models.test import TestModel
from shop import clerk, support

models.ALLOW_MODEL_REQUESTS = False

def test_support():
    async def main():
        async with holdfast.testing.open(agents=[support]) as hf:
            with clerk.override(model=TestModel(call_tools=["find_order"])):
                return await hf.run(support, "Where is order 7?")
    assert "a kettle" in asyncio.run(main())
""",
    )
    user.env["OPENAI_API_KEY"] = "none"
    assert "1 passed" in user.types("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
