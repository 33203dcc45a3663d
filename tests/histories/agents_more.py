"""More agents whose runs are recorded: values with notes, what checkpoints carry, limits, control. Add agents, never edit one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from tests.histories import agents
from tests.histories.agents import Order, State, ask_one, call, child, costly, hang, hanging_child, ran, same, shown

import holdfast
from holdfast import Budget, Limit, Loops, Rate, Retry
from holdfast.integrations.pydantic_ai import HoldfastDurability, Streamed, Summarise, Trim

YEARS = "18000 days"  # a history is gone on with long after it was recorded: what must not be over by then

# --- values with notes ---


class Draft(BaseModel):
    """Nobody sets all of its fields."""

    title: str
    words: int = 100
    order: Order = Order("ana")


class Paid(BaseModel):
    """No `Literal` tells it from `Due`."""

    by: str
    euros: int = 5


class Due(BaseModel):
    until: str
    euros: int = 5


class Mail(BaseModel):
    """Told from `Ring` by a field at its default."""

    kind: Literal["mail"] = "mail"
    to: str = "ana"


class Ring(BaseModel):
    kind: Literal["ring"] = "ring"
    number: int = 1


@dataclass
class Price:
    """Its defaults are not of their types."""

    amount: Decimal = 0  # type: ignore[assignment]
    currency: str = None  # type: ignore[assignment]


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Parcel:
    draft: Draft
    sum: Paid | Due = field(default_factory=lambda: Paid(by="nobody"))
    how: Mail | Ring = field(default_factory=Mail)
    at: Point = Point(1)
    parts: list[Paid | Due] = field(default_factory=list)


def parcel(title: str = "first") -> Parcel:
    """One that has a note of every kind."""
    return Parcel(
        Draft(title=title, words=100),
        Due(until="friday"),
        Ring(),
        parts=[Due(until="now"), Paid(by="card"), Due(until="then", euros=7)],
    )


def seen(value: Parcel) -> list[str]:
    """All that there is to know of it: also what `repr` does not tell."""
    return [repr(value), repr(sorted(value.draft.model_fields_set))]


@holdfast.step
async def pack(
    title: str, sum: Paid | Due, how: Mail | Ring, euros: Decimal = 0, currency: str = None, at: Point = Point(2)
) -> Parcel:
    ran("pack")
    return Parcel(Draft(title=title), sum, how, at)


@holdfast.step
async def post(what: Parcel, *, price: Price = Price(), draft: Draft | None = None) -> list[Paid | Due]:
    ran("post")
    return [what.sum, *what.parts]


@holdfast.step
async def prices(first: Price, *rest: Price) -> list[Price]:
    ran("prices")
    return [first, *rest, Price(), Price(Decimal("1.50"), "EUR")]


@holdfast.step
async def points() -> tuple[Point, dict[str, Point], Paid | Due]:
    ran("points")
    return Point(3), {"a": Point(4, 5)}, Due(until="then")


@holdfast.agent
async def noted_child(what: Parcel, how: Mail | Ring | None = None) -> Parcel:
    await post(what)
    return Parcel(what.draft, Due(until="later"), how or Ring())


@holdfast.agent
async def noted(what: Parcel, how: Mail | Ring, price: Price = Price(), currency: str = None) -> list[Any]:
    first = await pack("one", Due(until="friday"), Ring())
    second = await pack("two", sum=Paid(by="cash"), how=Mail(to="bo"), at=Point(5, 6))
    got: list[Any] = [seen(first), seen(second), await post(what), await post(second, draft=Draft(title="x", words=3))]
    got += [
        await points(),
        await prices(Price()),
        seen(await noted_child(what)),
        seen(await noted_child(second, Ring())),
    ]
    got.append(await hang("middle"))
    got += [
        await post(what),
        await points(),
        await post(first, price=price),
        await prices(price, Price(Decimal(2))),
        seen(await noted_child(what, how)),
    ]
    return shown(*got, seen(what), how, price, currency)


class Kept(BaseModel):
    rounds: int = 0
    last: Draft = Draft(title="none")
    sum: Paid | Due | None = None
    how: Mail | Ring = Ring()
    trail: list[Point] = []


@holdfast.agent
async def noted_state(rounds: int) -> list[str]:
    state = await holdfast.restore(Kept())
    while state.rounds < rounds:
        packed = await pack(f"round {state.rounds}", Due(until="friday"), Ring(), at=Point(state.rounds))
        if state.rounds == 2:
            await hang("third round")
        state.rounds, state.last, state.sum = state.rounds + 1, packed.draft, packed.sum
        state.how, state.trail = packed.how, [*state.trail, packed.at]
        state = await holdfast.checkpoint(state)
    return shown(state, sorted(state.model_fields_set), sorted(state.last.model_fields_set))


@holdfast.agent
async def noted_letters(name: str) -> list[str]:
    got: list[Any] = [seen(await holdfast.receive("parcels", Parcel))]
    async with holdfast.conversation(name, Parcel | Draft) as memory:
        await memory.add(parcel("said"), Draft(title="said too"))
        got += await memory.messages()
        got.append(await hang("in the conversation"))
        await memory.add(parcel("said later"))
        got += [*await memory.messages(last=2), len(memory)]
    return shown(*got, *(seen(each) for each in holdfast.receive_nowait("parcels", Parcel)))


@holdfast.agent
async def noted_people() -> list[str]:
    first = await holdfast.approve("Send it?", show=parcel(), to=["ana", "group:post"])
    got: list[Any] = [first.by, seen(first.data)]
    edited = await holdfast.approve("Edit it?", show=parcel("edited"), edit=True)
    got.append(seen(edited.data))
    chosen = await holdfast.ask("Paid or due?", Paid | Due)
    got.append(chosen)
    late = await holdfast.ask("And which?", Draft, expires="20ms", default=Draft(title="nobody said"))
    got += [late, sorted(late.model_fields_set)]
    open_one = await holdfast.approve("Open?", show=parcel("open"), edit=True)
    return shown(*got, seen(open_one.data), await post(open_one.data), await holdfast.ask("Last?", Mail | Ring))


# --- people ---


def two_if_dear(order: Order) -> int:
    return 2 if order.euros > 100 else 1


@holdfast.agent
async def deciders() -> list[str]:
    got: list[Any] = [(await holdfast.approve("By another?", not_by="starter")).by]
    dear = await holdfast.approve("Dear?", show=Order("ana", 500), edit=True, needs=two_if_dear, to="group:it")
    got += [dear.data, [vote.by for vote in dear.votes]]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    got.append((await holdfast.approve("By schema?", show={"n": 1}, edit=schema)).data)
    mixed = await asyncio.gather(holdfast.ask("One?", int), holdfast.ask("Two?", list[str]), call("beside"))
    last = await holdfast.approve("In years?", expires=YEARS, remind=YEARS, default=True)
    return shown(*got, *mixed, bool(last), last.note, last.expired)


# --- streams, progress, resources ---


@holdfast.resource
async def dictionary() -> AsyncIterator[list[str]]:
    yield ["otters", "hold", "hands"]


async def pieces(words: list[str]) -> AsyncIterator[str]:
    for word in words:
        yield word


@holdfast.step
async def reads(pages: int, stops: bool = False) -> str:
    ran("reads")
    for number in range(pages):
        holdfast.progress(number, pages, f"page {number}")
        await asyncio.sleep(0.3)
    await holdfast.progress(pages, pages)
    if stops and not agents.going:
        await asyncio.sleep(1)
        await asyncio.Event().wait()
    return " ".join([word async for word in holdfast.lively(pieces(await dictionary()), "10s")])


@holdfast.step
async def breaks_off(text: str) -> str:
    ran("breaks_off")
    async with holdfast.stream("broken") as out:
        await out.write(text)
        raise ValueError("in the middle")


@holdfast.step
async def endless(text: str) -> str:
    ran("endless")
    async with holdfast.stream("endless") as out:
        await out.write(text)
        await asyncio.Event().wait()
    return text


@holdfast.agent
async def reader() -> list[Any]:
    got: list[Any] = [await reads(3), holdfast.place("reading"), holdfast.place("reading")]
    try:
        await breaks_off("half an answer")
    except ValueError as error:
        got += [left.text for left in holdfast.partial(error).values()]
    try:
        async with holdfast.timeout("500ms"):
            await endless("never whole")
    except TimeoutError:
        left = await holdfast.unfinished("endless")
        got.append(left and [left.text, left.reason])
    plan = await holdfast.plan(["a", "b"])
    await holdfast.progress(1, 2, "half")
    got.append(await reads(2, stops=True))
    await plan.set(["b", "c"])
    async with holdfast.stream("own") as out, holdfast.stream("other") as beside:
        await out.write("x" * 70_000)
        await beside.write("the other")
    return [*got, plan.remaining, holdfast.place("reading"), await holdfast.unfinished("none")]


# --- what checkpoints carry ---


@dataclass
class Long:
    rounds: int = 0
    said: list[str] = field(default_factory=list)
    waits: holdfast.Child[Order] | None = None


@holdfast.step
async def reply(model: str, prompt: str, problem: str = "") -> str:
    ran("reply")
    if model == "mute" or not problem:
        return "" if model == "mute" else "no number"
    return f"[{len(prompt)}]"


numbers = holdfast.fallback(reply, ["mute", "clumsy"], check=list[int], tries=2)
nobody = holdfast.fallback(ask_one, ["broken"], tries=1)


async def built() -> Long:
    return Long(said=[await call("built once")])


@holdfast.agent(budget=Budget(usd=9.0, tokens=100_000, wall="18000 days"))
async def carries(rounds: int) -> list[Any]:
    state = await holdfast.restore(built)
    while state.rounds < rounds:
        plan = await holdfast.plan(["one", "two", "three"])
        state.said.append(repr(await numbers("how many")))
        await costly(0.5)
        if state.waits is None:
            state.waits = await holdfast.spawn(child, "kept in the state")
        if holdfast.patched("since"):
            state.said.append(await call("since"))
        if state.rounds == 1:
            state.said += [await hang("second round"), repr(await state.waits)]
        state.rounds += 1
        await plan.done(["one", "two", "three"][state.rounds % 3])
        state = await holdfast.checkpoint(state)
    letters, plan = holdfast.receive_nowait("letters", Order), await holdfast.plan(["one", "two", "three"])
    return [state.rounds, state.said, plan.markdown(), shown(*letters), holdfast.remaining().usd]


@holdfast.agent
async def tidies_in_eras() -> str:
    state = await holdfast.restore(State())
    if state.rounds == 0:
        try:
            await call("before")
            await holdfast.receive("never", str)
        except asyncio.CancelledError:
            state.rounds += 1
            await holdfast.checkpoint(state)
    await hang("tidying up in another era")
    return await call("tidied up")


# --- tasks and failures ---


@holdfast.step
async def quick(name: str, ms: int = 1) -> str:
    ran("quick")
    await asyncio.sleep(ms / 1000)
    return name


@holdfast.step
async def refuses(name: str) -> str:
    ran("refuses")
    raise LookupError(name)


async def produce(count: int) -> AsyncIterator[str]:
    for n in range(count):
        yield await quick(f"made {n}")


@holdfast.agent
async def tasks() -> list[Any]:
    got: list[Any] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(refuses("in a group"))
            group.create_task(holdfast.sleep(YEARS))
    except* LookupError as errors:
        got.append([str(error) for error in errors.exceptions])
    slots = asyncio.Semaphore(2)

    async def one(n: int) -> str:
        async with slots:
            with holdfast.scope(f"part {n}"):
                return await quick(f"q{n}", 5 * (3 - n % 3))

    got.append([await done for done in asyncio.as_completed([asyncio.create_task(one(n)) for n in range(6)])])
    kept = asyncio.create_task(quick("shielded", 50))
    try:
        async with asyncio.timeout(0.01):
            await asyncio.shield(kept)
    except TimeoutError:
        got.append("timeout around a shield")
    got += [await kept, [text async for text in produce(3)]]
    opened = asyncio.Event()
    waits = asyncio.create_task(opened.wait())
    got.append(await hang("while a task waits for an event"))
    opened.set()
    return [*got, await waits, await asyncio.gather(quick("a"), refuses("b"), return_exceptions=True) is not None]


@dataclass
class Trouble(Exception):
    code: int
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


@holdfast.step(retry=Retry(3, first="5ms", max="5ms"), raises=(OSError,))
async def stumbles(how: str):
    key = ran("stumbles")
    match how, holdfast.this_step().attempt:
        case "after", 1:
            raise holdfast.RetryAfter("20ms")
        case "permanent", _:
            raise holdfast.Permanent("it will not do")
        case "unstorable", _:
            return {"kept": [1, 2], "lost": object()}
        case "trouble", _:
            raise Trouble(7, "cause") from ValueError("the cause")
        case "system", _:
            raise FileNotFoundError(2, "no such file", "a.txt")
    return key


@holdfast.agent
async def stumbling() -> list[Any]:
    got: list[Any] = [await stumbles("after")]
    for how in ("permanent", "unstorable", "trouble", "system"):
        try:
            await stumbles(how)
        except holdfast.StepFailed as error:
            got.append([type(error).__name__, error.type, error.message, error.attempts, error.data])
        except OSError as error:
            got.append(repr(error))
    try:
        await nobody("anything")
    except holdfast.Unanswered as error:
        got.append(str(error))
    return [*got, await hang("after all")]


@holdfast.agent
async def brought_down(name: str) -> str:
    await call(name)
    await child(name, fails=True)
    return name


@holdfast.agent
async def fails_in_the_end(name: str) -> str:
    await hang(name)
    raise Trouble(1, f"{name} fails in the end")


# --- limits, budgets, loops ---


@holdfast.agent(limit=1, queue="narrow", priority=7)
async def narrow(name: str) -> list[str]:
    return [await call(name), await hang(name)]


@holdfast.agent(limit=Limit(1, per="customer"), singleton="customer", rate=Rate(50, every="1s", per="customer"))
async def customers(customer: str, text: str = "") -> str:
    return await hang(f"{customer} {text}")


@holdfast.step(rate=Rate("50/s", tokens="600000/m", name="models", per="model"), limit=Limit(3, per="model"))
async def metered(model: str, prompt: str) -> str:
    ran("metered")
    holdfast.spend(input_tokens=100, output_tokens=10, model=model, provider="somebody")
    return prompt.upper()


@holdfast.agent
async def meters() -> list[Any]:
    got = await asyncio.gather(*[metered(model, f"p{n}") for n in range(3) for model in ("a", "b")])
    return [*got, await hang("metered"), await metered("a", "after")]


@holdfast.agent(budget=Budget(steps=2, at_limit="fail"))
async def frugal() -> list[Any]:
    got: list[Any] = [await call("one"), await call("two")]
    try:
        await call("three")
    except holdfast.BudgetExceeded as error:
        got.append([error.run, dict(error.limit), error.spent.steps])
    await holdfast.sleep("30s")
    return got


@holdfast.agent
async def buyer(times: int) -> list[Any]:
    got: list[Any] = []
    try:
        for _ in range(times):
            got.append(await costly(0.4))
            got.append(await child("below the budget"))
    except holdfast.BudgetExceeded as error:
        got.append(f"{error.spent.usd:.2f} of {error.limit['usd']:.2f}")
    return shown(*got)


@holdfast.agent
async def circles() -> list[Any]:
    holdfast.watch_loops(Loops(same=3, cycle=2))
    got: list[Any] = []
    try:
        for _ in range(5):
            got.append(await same("again"))
    except holdfast.LoopDetected as error:
        got.append([error.calls, error.times])
    return shown(*got)


@holdfast.agent(loops=Loops(same=None, cycle=2, to="ana"))
async def cycles() -> list[str]:
    return [await same(word) for _ in range(3) for word in ("tick", "tock")]


# --- control ---


@holdfast.agent(strict=True)
async def strict(name: str) -> list[str]:
    got = [await call(name)]
    if not agents.going:
        Path("/nowhere/report.txt").read_text("utf-8")  # noqa: ASYNC240 - pauses the run
    return [*got, await call("after")]


@holdfast.agent
async def house(name: str) -> list[str]:
    return [await call(name), await hanging_child("in the house"), await call("after")]


@holdfast.agent
async def holds(name: str) -> str:
    await call(name)
    return await holdfast.receive("go", str)


@holdfast.agent
async def grandparent(name: str) -> list[Any]:
    spawned = await holdfast.spawn(holds, "spawned and left")
    got = await asyncio.gather(brought_up(name), house(name))
    return shown(*got, spawned.id)


@holdfast.agent
async def brought_up(name: str) -> Order:
    return await child(name)


@holdfast.step(transaction="serializable", retry=Retry(3, first="5ms", max="5ms"))
async def insert_late(word: str) -> str:
    done: Any = holdfast.connection().execute("CREATE TABLE IF NOT EXISTS late (word TEXT)")
    if asyncio.iscoroutine(done):
        await done
    if holdfast.this_step().attempt == 1:
        raise RuntimeError("rolled back")
    return f"{word}: {ran('insert_late')}"


@holdfast.agent
async def transacts_late() -> list[str]:
    return [await insert_late("one"), await hang("between"), await insert_late("two")]


@holdfast.step(name="old-name")
async def renamed(name: str) -> str:
    return f"{name}: {ran('renamed')}"


@holdfast.agent(name="report", version="2")
async def report(topic: str) -> list[str]:
    return [await renamed(topic), await hang(topic), await renamed("again")]


# --- Pydantic AI ---


class Dish(BaseModel):
    name: str
    minutes: int = 20
    parts: list[str] = []


@holdfast.step
async def oven(minutes: int) -> str:
    ran("oven")
    return f"{minutes} minutes"


def cooked(messages: list[Any]) -> ModelResponse:
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    calls = [
        [ToolCallPart("fetch", {"what": "egg"}, "k0"), ToolCallPart("fetch", {"what": "stone"}, "k1")],
        [ToolCallPart("wait_for", {"what": "dough"}, "k2"), ToolCallPart("bake", {"minutes": 30}, "k3")],
        [ToolCallPart("final_result", {"name": "cake", "parts": ["egg"]}, "k4")],
    ]
    return ModelResponse(parts=calls[turn])


async def cook_request(messages: list[Any], info: Any) -> ModelResponse:
    ran("cook's request")
    return cooked(messages)


cook = Agent(
    FunctionModel(cook_request, model_name="scripted"),
    name="cook",
    output_type=Dish,
    retries=2,
    capabilities=[HoldfastDurability(tools={"retry": 2})],
)


@cook.tool
async def fetch(context: RunContext[None], what: str) -> Dish:
    ran("fetch")
    if what == "stone":
        raise ModelRetry("nobody eats stones")
    return Dish(name=what)


@cook.tool
async def wait_for(context: RunContext[None], what: str) -> str:
    ran("wait_for")
    if not agents.going:
        await asyncio.Event().wait()
    return f"{what} is ready"


@cook.tool(metadata={"holdfast": {"in_doubt": "ask"}})
async def bake(context: RunContext[None], minutes: int = 20) -> str:
    ran("bake")
    return f"baked for {minutes}"


@holdfast.agent
async def kitchen(prompt: str) -> list[str]:
    result = await cook.run(prompt)
    return shown(result.output, sorted(result.output.model_fields_set), await oven(result.output.minutes))


async def chat_request(messages: list[Any], info: Any) -> ModelResponse:
    ran("chat's request")
    return ModelResponse(parts=[TextPart(f"You have said {len(messages)} things.")])


async def chat_stream(messages: list[Any], info: Any) -> AsyncIterator[str]:
    ran("chat's streamed request")
    for word in f"You have said {len(messages)} things.".split(" "):
        yield word + " "


chatter = Agent(
    FunctionModel(chat_request, stream_function=chat_stream, model_name="scripted"),
    name="chatter",
    capabilities=[HoldfastDurability(compact=Trim(keep=2, above=4), stream=Streamed(name="words", salvage="continue"))],
)


@holdfast.agent
async def chats(name: str) -> list[str]:
    got: list[Any] = []
    async with holdfast.conversation(name, ModelMessage) as talk:
        for prompt in ("Hello.", "And?", "So?"):
            result = await chatter.run(prompt, message_history=await talk.messages())
            await talk.add(*result.new_messages())
            got.append(result.output)
            if prompt == "And?":
                got.append(await hang("between two answers"))
        got.append(len(talk))
    return shown(*got)


async def broken_request(messages: list[Any], info: Any) -> ModelResponse:
    ran("broken request")
    raise holdfast.Permanent("no such model")


async def summary_request(messages: list[Any], info: Any) -> ModelResponse:
    ran("summary")
    return ModelResponse(parts=[TextPart("Much was said.")])


async def host_request(messages: list[Any], info: Any) -> ModelResponse:
    ran("host's request")
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if "Much was said." not in repr(messages):
        return ModelResponse(parts=[ToolCallPart("seat", {"guest": f"guest {turn}"}, f"h{turn}")])
    return ModelResponse(parts=[TextPart(f"All are seated, after {len(messages)} messages.")])


host = Agent(
    FunctionModel(broken_request, model_name="broken"),
    name="host",
    deps_type=str,
    capabilities=[
        HoldfastDurability(
            models={"second": FunctionModel(host_request, model_name="second")},
            fallback=["default", "second"],
            model={"retry": 1},
            compact=Summarise(model=FunctionModel(summary_request, model_name="summary"), above_tokens=1, keep=2),
        )
    ],
)


@host.tool
async def seat(context: RunContext[str], guest: str, table: int = 1) -> str:
    ran("seat")
    if guest == "guest 1" and not agents.going:
        await asyncio.Event().wait()
    return f"{guest} sits at {context.deps}'s table {table}"


@holdfast.agent
async def party(name: str) -> list[str]:
    result = await host.run("Seat them.", deps=name)
    return [result.output, await call("after the party")]


# --- going back ---


@holdfast.agent
async def winds(word: str) -> list[str]:
    """Forked while it waits: in a conversation, with a child that has ended, one that waits, and an open timer."""
    got: list[Any] = [holdfast.this_run().id, await call(f"{word} before"), await finished_child(word)]
    spawned = await holdfast.spawn(holds, word)
    async with holdfast.conversation(f"{word}-talk", str) as talk:
        await talk.add("said before")
        async with holdfast.timeout(YEARS):
            got.append(await holdfast.receive("go", str))
        await talk.add("said behind")
        got += [len(talk), holdfast.this_run().id, await call(f"{word} behind"), await spawned]
    return shown(*got)


@holdfast.agent
async def finished_child(word: str) -> str:
    return await call(f"{word} in a child")


@holdfast.agent
async def winds_back(word: str) -> list[str]:
    got = [await call(f"{word} first"), await call(f"{word} second")]
    got.append(await agents.hopeless(2))
    return [*got, await hang("after")]


# --- reducers ---


class Shelf(BaseModel):
    """Large enough to be stored by what has changed in it."""

    books: list[str] = []
    said: dict[str, str] = {}


class Put(BaseModel):
    title: str


class Dusted(BaseModel):
    title: str


class Emptied(BaseModel):
    pass


@holdfast.reducer(Shelf, every=3)
def shelf(
    state: Shelf, event: Put | Dusted | Emptied | holdfast.Outcome
) -> Shelf | tuple[Shelf, list[holdfast.Command]]:
    """Steps, children, timers and a question, over several checkpoints; a child hangs, and nobody has answered."""
    said = dict(state.said)
    if isinstance(event, Put):
        put = state.model_copy(update={"books": [*state.books, event.title * 40]})
        commands: list[holdfast.Command] = [
            holdfast.Do(call, event.title),
            holdfast.After("10ms", Dusted(title=event.title)),
        ]
        if event.title == "last":
            commands += [
                holdfast.Spawn(hanging_child, "on the shelf", tag="hanging"),
                holdfast.Ask("Is it full?", bool, expires=YEARS),
            ]
        return put, commands
    if isinstance(event, Dusted):
        said[f"dusted {event.title}"] = "yes"
    elif isinstance(event, holdfast.Outcome):
        if event.tag != "hanging":  # it may come before the shelf is emptied, or not
            said[f"{event.tag} {event.value}" if event.tag == "call" else event.tag] = str(event.value)
    else:
        return state, [holdfast.Done()]
    return state.model_copy(update={"said": said})


# --- announcements ---


@holdfast.step
async def calls_out(text: str) -> str:
    await holdfast.publish("crier.news", {"by": "crier", "text": text})
    return text


@holdfast.agent
async def crier(word: str) -> list[str]:
    """Hears of its own announcements and of others', waits for one that never came, and then for one that has not come."""
    mine = {"by": "crier"}
    heard = [(await holdfast.next_event("crier.news", match=mine)).value["text"]]
    await holdfast.publish("crier.news", {"by": "crier", "text": word}, key="of the crier")
    heard.append((await holdfast.next_event("crier.news", match=mine)).value["text"])
    heard.append(await calls_out(f"{word} again"))
    heard.append((await holdfast.next_event("crier.news", match=mine)).value["text"])
    try:
        await holdfast.next_event("crier.silence", timeout="10ms")
    except TimeoutError as error:
        heard.append(str(error))
    await holdfast.publish("crier.bills", Mail())
    heard.append((await holdfast.next_event("crier.end", str)).value)
    return [*heard, await call("after")]


@holdfast.agent(on=holdfast.On("crier.bills"))
async def posts_bills(bill: Mail) -> str:
    return await call(f"{type(bill).__name__} posted")


MORE: list[Any] = [
    noted_child, noted, noted_state, noted_letters, noted_people, deciders, reader, carries, tidies_in_eras, tasks, stumbling,
    brought_down, fails_in_the_end, narrow, customers, meters, frugal, buyer, circles, cycles, strict, house, holds, grandparent,
    brought_up, transacts_late, report, kitchen, chats, party, winds, finished_child, winds_back, shelf,
    crier, posts_bills,
]  # fmt: skip
