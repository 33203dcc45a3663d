"""Agents whose runs are recorded in this folder. Old journals are replayed against this code: add agents, never edit one.

While histories are recorded, `hang` hangs and the worker is killed there. When they are gone on with, `going` is set, `hang`
returns, and the ledger says which bodies ran, with which idempotency keys.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

import holdfast
from holdfast import Budget, Loops, Rate, Retry
from holdfast.integrations.pydantic_ai import HoldfastDurability, Streamed

going = False
ledger: list[list[str]] = []


def ran(name: str) -> str:
    """Write down that a body runs; returns its idempotency key."""
    key = holdfast.idempotency_key()
    ledger.append([holdfast.this_run().id, name, key])
    return key


def shown(*values: Any) -> list[str]:
    """What an agent has come to, as text: every field of every value, whatever stores leave out."""
    return [repr(value) for value in values]


# --- steps and values ---


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Order:
    to: str
    euros: int = 30
    tags: list[str] = field(default_factory=list)


class Page(BaseModel):
    title: str
    words: int = 100
    order: Order = Order("ana")


@holdfast.step
async def call(name: str, times: int = 1) -> str:
    return f"{name} x {times}: {ran('call')}"


@holdfast.step
async def hang(name: str) -> str:
    key = ran("hang")
    if not going:
        await asyncio.Event().wait()
    return f"{name}: {key}"


@holdfast.step
def threaded(name: str) -> str:
    return f"{name} in a thread: {ran('threaded')}"


@holdfast.step
async def order(wanted: Order, page: Page | None = None) -> Order:
    return Order(wanted.to, tags=[ran("order")])


@holdfast.step
async def page(wanted: Page) -> Page:
    return Page(title=ran("page"))


@holdfast.step
async def values() -> list[Any]:
    ran("values")
    return [
        (1, 2),
        {3},
        b"\x00\xff",
        2**80,
        float("inf"),
        date(2026, 1, 2),
        datetime(2026, 1, 2, tzinfo=UTC),
        None,
        {"a": "ü"},
    ]


@holdfast.step
async def typed() -> tuple[Colour, Decimal, timedelta | None]:
    ran("typed")
    return Colour.RED, Decimal("1.50"), timedelta(minutes=5)


@holdfast.step
async def large(letters: int) -> str:
    ran("large")
    return "x" * letters


class Shop:
    @holdfast.step
    async def buy(self, what: str, client: holdfast.Local[object] = None) -> str:
        return f"{what}: {ran('buy')}"


@holdfast.agent
async def sequence(first: Order, second: int = 2, *, third: str = "three") -> list[str]:
    got: list[Any] = [await call("a"), await call("b", times=3), await call("c", 1), await threaded("t")]
    got += [await order(first), await order(Order("bo", 30), Page(title="x")), await page(Page(title="y", words=100))]
    got += [await values(), await typed(), len(await large(100_000)), await Shop().buy("tea", object())]
    got.append(await hang("middle"))
    return shown(*got, await order(first), await call("a"), second, third)


@holdfast.agent
async def finished(name: str) -> Order:
    await call(name)
    return Order(name)


@holdfast.agent
async def facts() -> list[Any]:
    got: list[Any] = [str(holdfast.uuid4()), holdfast.rng().random(), holdfast.now() is not None]
    await holdfast.note("got so far", count=len(got))
    plan = await holdfast.plan(["read", "write"])
    await holdfast.progress(1, 3, "reading")
    await plan.done("read")
    with holdfast.scope("pinned"):
        got.append(await call("inside"))
    if holdfast.patched("new-way"):
        got.append(await call("new"))
    got.append(await hang("middle"))
    await plan.add("send")
    await holdfast.progress(2, 3)
    await holdfast.note("again")
    got += [
        plan.markdown(),
        str(holdfast.uuid4()),
        holdfast.rng().random(),
        holdfast.patched("new-way"),
        holdfast.patched("later"),
    ]
    return got


# --- parallel work ---


@holdfast.agent
async def parallel(width: int) -> list[Any]:
    first = await asyncio.gather(*[call(f"p{n}") for n in range(width)])
    second = await asyncio.gather(call("side"), hang("one"), call("other"), hang("two"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(both(n)) for n in range(3)]
    return [first, second, [task.result() for task in tasks]]


async def both(n: int) -> list[str]:
    return [await call(f"first {n}"), await call(f"second {n}")]


@holdfast.step
async def slow(name: str, ms: int) -> str:
    ran("slow")
    await asyncio.sleep(ms / 1000)
    return name


@holdfast.agent
async def race() -> list[Any]:
    tasks = [asyncio.create_task(slow(name, ms)) for name, ms in (("late", 60_000), ("early", 10))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def worker(n: int) -> None:
        for k in range(3):
            await queue.put(await slow(f"{n}.{k}", 5 * n + k))

    await asyncio.gather(worker(0), worker(1), worker(2))
    order = [queue.get_nowait() for _ in range(9)]
    return [[task.result() for task in done], order, await hang("after")]


# --- time ---


@holdfast.agent
async def timers() -> list[Any]:
    await holdfast.sleep("10ms")
    await asyncio.sleep(0.01)
    got: list[Any] = []
    try:
        async with asyncio.timeout(0.02):
            await hang("too long")
    except TimeoutError:
        got.append("asyncio's timeout")
    try:
        async with holdfast.timeout("20ms"):
            await holdfast.receive("nothing")
    except TimeoutError:
        got.append("our timeout")
    got.append(await asyncio.wait_for(call("in time"), 60))
    await holdfast.sleep("30s")  # pending when the worker is killed
    return [*got, await call("after")]


# --- messages ---


@holdfast.agent
async def messages() -> list[str]:
    got: list[Any] = [await holdfast.receive("orders", Order), holdfast.receive_nowait("orders", Order)]
    got.append(await hang("unread ones come meanwhile"))
    got += [holdfast.receive_nowait("orders", Order), await holdfast.receive("go", str), await call("after")]
    return shown(*got)


# --- children ---


@holdfast.agent
async def child(name: str, fails: bool = False) -> Order:
    await call(name)
    if fails:
        raise ValueError(f"{name} fails")
    return Order(name)


@holdfast.agent
async def hanging_child(name: str) -> str:
    return await hang(name)


@holdfast.agent
async def family() -> list[str]:
    got: list[Any] = [await child("first")]
    try:
        await child("second", fails=True)
    except Exception as error:
        got.append(type(error).__name__)
    spawned = await holdfast.spawn(child, "third")
    slow_one = await holdfast.spawn(hanging_child, "fourth")
    got += await asyncio.gather(child("fifth"), child("sixth"))
    got += [await spawned, await hanging_child("seventh"), await slow_one, await child("eighth")]
    return shown(*got)


# --- people ---


@holdfast.agent
async def people() -> list[str]:
    got: list[Any] = [bool(await holdfast.approve("The first?", show=Order("ana"), to="ana"))]
    decision = await holdfast.approve("Edited?", show=Order("bo", 5), edit=True, to=["ana", "bo"], needs=2)
    got += [decision.data, decision.by, [vote.by for vote in decision.votes]]
    denied = await holdfast.approve("Denied?")
    got += [bool(denied), denied.note, await holdfast.ask("How many?", int)]
    expired = await holdfast.approve("Too late?", expires="20ms", default=True)
    got += [
        bool(expired),
        expired.expired,
        await holdfast.ask("Which?", Order, expires="20ms", default=Order("nobody")),
    ]
    try:
        async with holdfast.timeout("2500ms"):
            await holdfast.approve("Withdrawn?", remind="1s")
    except TimeoutError:
        got.append("withdrawn")
    passed = await holdfast.approve("Delegated?", show=[Order("cy")], to="ana", needs=len)
    got += [passed.by, passed.data]
    open_one = await holdfast.approve("Open?", show=Order("dan"), edit=True, needs=2)
    return shown(*got, open_one.data, await order(open_one.data), await holdfast.ask("The last?", str, show={"a": 1}))


@holdfast.step(in_doubt="ask")
async def wire(name: str) -> str:
    key = ran("wire")
    if not going:
        await asyncio.Event().wait()
    return f"{name}: {key}"


async def look(name: str) -> str | holdfast.NotDone:
    return f"{name} was there: {ran('look')}" if name == "there" else holdfast.NOT_DONE


@holdfast.step(in_doubt=look)
async def probed(name: str) -> str:
    key = ran("probed")
    if not going:
        await asyncio.Event().wait()
    return f"{name}: {key}"


@holdfast.step(in_doubt="fail")
async def once(name: str) -> str:
    ran("once")
    await asyncio.Event().wait()
    return name


@holdfast.agent
async def doubts() -> list[str]:
    calls = wire("w"), probed("there"), probed("not there"), once("o")
    return shown(*await asyncio.gather(*calls, return_exceptions=True))


# --- failures ---


class Declined(Exception):
    pass


@holdfast.step(retry=Retry(4, first="5ms", max="5ms"), raises=(Declined,))
async def fails(name: str, times: int) -> str:
    key = ran("fails")
    if holdfast.this_step().attempt <= times:
        raise Declined(name) if name == "declined" else RuntimeError(f"attempt {holdfast.this_step().attempt}")
    return f"{name}: {key}"


@holdfast.step(retry=Retry(3, first="25s", max="25s"))
async def later(name: str) -> str:
    key = ran("later")
    if holdfast.this_step().attempt == 1:
        raise RuntimeError("not now")
    return f"{name}: {key}"


@holdfast.step(timeout="20ms")
async def never() -> None:
    await asyncio.Event().wait()


@holdfast.agent
async def failures() -> list[Any]:
    got: list[Any] = [await fails("twice", 2)]
    for name in ("declined", "broken"):
        try:
            await fails(name, 9)
        except Exception as error:
            got.append(f"{type(error).__name__}: {error}")
    try:
        await never()
    except holdfast.StepTimeout as error:
        got.append(type(error).__name__)
    return [*got, await later("waits for its second attempt"), await call("after")]


@holdfast.agent
async def fails_unless_going(name: str) -> list[str]:
    got = [await call(name), await call("again")]
    if name == "mended":
        got.append(await hopeless(1))
    elif not going:
        raise ValueError(f"{name} has failed")
    return [*got, await hang("after")]


@holdfast.step
async def hopeless(number: int) -> str:
    key = ran("hopeless")
    if not (going or mended):
        raise RuntimeError("no")
    return key


mended = False  # while recording, set by the second worker


# --- checkpoints ---


@dataclass
class State:
    rounds: int = 0
    last: Order = field(default_factory=lambda: Order("nobody"))
    said: list[str] = field(default_factory=list)


@holdfast.agent
async def eras(rounds: int) -> State:
    state = await holdfast.restore(State())
    while state.rounds < rounds:
        state.said.append(await call("round", state.rounds))
        state.said.append(str(holdfast.uuid4()))
        if holdfast.patched("more"):
            state.said.append(await call("more"))
        if state.rounds == 2:
            state.said.append(await hang("third round"))
            state.said += holdfast.receive_nowait("orders", str)
        state.rounds += 1
        state.last = Order(f"round {state.rounds}")
        await holdfast.checkpoint(state)
    return state


# --- streams ---


@holdfast.step(retry=Retry(3, first="5ms", max="5ms"))
async def answer(prompt: str, keep: bool) -> str:
    ran("answer")
    async with holdfast.stream("answer") as out:
        text = out.keep() if keep else ""
        for word in prompt.split()[len(text.split()) :]:
            await out.write(word + " ")
            text += word + " "
            if word == "stop" and not going:
                await asyncio.sleep(0.3)
                await asyncio.Event().wait()
            if word == "fail" and holdfast.this_step().attempt == 1:
                raise RuntimeError("in mid-stream")
    return text


@holdfast.agent
async def streaming() -> list[Any]:
    async with holdfast.stream("own") as out:
        await out.write("agents write too. ")
    got: list[Any] = [await answer("one two fail three", keep=False), await answer("four fail five", keep=True)]
    left = await holdfast.unfinished("answer")
    got.append(left and left.text)
    got += [await answer("six stop seven", keep=True), await answer("eight stop nine", keep=False)]
    async with holdfast.stream("own") as out:
        await out.write("The end.")
    return got


# --- conversations ---


@holdfast.agent
async def talk(name: str, holds: bool = False) -> list[str]:
    got: list[Any] = []
    async with holdfast.conversation(name, Order) as memory:
        got.append(await memory.messages(last=5))
        await memory.add(Order("question"), Order("answer", 5))
        if holds:
            got.append(await hang("in the conversation"))
        await memory.add(Order("more"))
        got.append(len(memory))
    return shown(*got)


@holdfast.agent
async def impatient(name: str) -> list[Any]:
    got: list[Any] = []
    try:
        async with holdfast.conversation(name, busy="refuse"):
            got.append("entered")
    except holdfast.ConversationBusy:
        got.append("busy")
    try:
        async with holdfast.timeout("50ms"), holdfast.conversation(name):
            got.append("entered")
    except TimeoutError:
        got.append("did not wait")
    return [*got, await hang("after")]


# --- budgets, loops, rates ---


@holdfast.step
async def costly(usd: float) -> str:
    key = ran("costly")
    holdfast.spend(usd, input_tokens=100, output_tokens=10, model="some", provider="somebody")
    return key


@holdfast.agent(budget=Budget(usd=1.0, soft=0.5))
async def spender() -> list[Any]:
    got: list[Any] = []
    for _ in range(4):
        got.append(await costly(0.3))  # the last one needs more than there is
        got.append(holdfast.remaining().soft)
    await child("inside a budget")
    got.append(await costly(0.3))
    return got


@holdfast.agent(loops=Loops(same=3))
async def looper() -> list[str]:
    return [await same("again") for _ in range(5)]


@holdfast.step
async def same(word: str) -> str:
    ran("same")
    return word


@holdfast.step(rate=Rate("2/s", name="shared"), limit=1)
async def governed(name: str) -> str:
    return f"{name}: {ran('governed')}"


@holdfast.step(rate="1/m")
async def rare(name: str) -> str:
    return f"{name}: {ran('rare')}"


@holdfast.agent(limit=5, rate="100/s")
async def paced() -> list[str]:
    got = await asyncio.gather(*[governed(f"g{n}") for n in range(3)])
    return [*got, await rare("first"), await rare("held for a minute")]


@holdfast.step
async def ask_one(model: str, prompt: str) -> str:
    key = ran("ask_one")
    if model == "broken":
        raise holdfast.Permanent("it is broken")
    return f"{model}, {prompt}: {key}"


ask_model = holdfast.fallback(ask_one, ["broken", "fine"], tries=2)


@holdfast.agent
async def falls_back() -> list[str]:
    got = [await ask_model("first"), await ask_model("second")]
    return [*got, await hang("settled"), await ask_model("third")]


# --- control ---


@holdfast.agent
async def cancelled(name: str) -> str:
    try:
        await call(name)
        if name == "children":
            return await hanging_child("told first")
        return await holdfast.receive("never", str)
    except asyncio.CancelledError:
        await call("tidy up")
        if name == "tidies":
            await hang("tidying up")
            await call("tidied up")
        raise


@holdfast.agent
async def cancelled_parent(name: str) -> str:
    return await cancelled(name)


@holdfast.agent
async def stoppable(name: str) -> list[str]:
    return [await call(name), await hang("while it is asked to pause"), await call("after")]


@holdfast.agent
async def foreign() -> list[str]:
    await call("before")
    await asyncio.get_running_loop().run_in_executor(None, int)
    return [await hang("after a thread"), await call("after")]


@holdfast.agent(name="pinned", version="1")
async def pinned(name: str) -> str:
    return await hang(name)


# --- transactions ---


@holdfast.step(transaction=True)
async def insert(word: str) -> str:
    for text in ("CREATE TABLE IF NOT EXISTS words (word TEXT)", f"INSERT INTO words VALUES ('{word}')"):
        done: Any = holdfast.connection().execute(text)
        if inspect.isawaitable(done):
            await done
    return f"{word}: {ran('insert')}"


@holdfast.agent
async def transacting() -> list[Any]:
    return [await insert("one"), await insert("two"), await hang("between"), await insert("three")]


# --- Pydantic AI ---


def _answers(messages: list[Any]) -> ModelResponse:
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == 0:
        return ModelResponse(
            parts=[ToolCallPart("weigh", {"animal": "otter"}, "c0"), ToolCallPart("weigh", {"animal": "eel"}, "c1")]
        )
    if turn == 1:
        return ModelResponse(parts=[ToolCallPart("pay", {"euros": 5}, "c2")])
    return ModelResponse(parts=[TextPart("Paid for an otter and an eel.")])


async def _request(messages: list[Any], info: Any) -> ModelResponse:
    ran("request")
    return _answers(messages)


async def _stream(messages: list[Any], info: Any) -> Any:
    ran("streamed request")
    for n, part in enumerate(_answers(messages).parts):
        if isinstance(part, ToolCallPart):
            yield {n: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            for word in part.content.split(" "):
                yield word + " "


clerk = Agent(
    FunctionModel(_request, stream_function=_stream, model_name="scripted"),
    name="clerk",
    capabilities=[HoldfastDurability()],
)
teller = Agent(
    FunctionModel(_request, stream_function=_stream, model_name="scripted"),
    name="teller",
    capabilities=[HoldfastDurability(stream=Streamed(name="answer"))],
)


for _agent in (clerk, teller):

    @_agent.tool
    async def weigh(context: RunContext[None], animal: str, unit: str = "kg") -> str:
        ran("weigh")
        return f"{animal}: 3 {unit}"

    @_agent.tool(requires_approval=True)
    async def pay(context: RunContext[None], euros: int, to: str = "the shop") -> str:
        ran("pay")
        return f"{euros} to {to}"


@holdfast.agent
async def desk(prompt: str) -> list[str]:
    first = await clerk.run(prompt)
    second = await clerk.run("once more")
    return [first.output, second.output]


@holdfast.agent
async def window(prompt: str) -> str:
    return (await teller.run(prompt)).output


ALL: list[Any] = [
    sequence, finished, facts, parallel, race, timers, messages, child, hanging_child, family, people, doubts, failures,
    fails_unless_going, eras, streaming, talk, impatient, spender, looper, paced, falls_back, cancelled, cancelled_parent,
    stoppable, foreign, pinned, transacting, desk, window,
]  # fmt: skip
