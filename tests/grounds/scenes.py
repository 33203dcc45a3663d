"""Scenes: agents that use what Holdfast has, and the people around them. The same on every ground.

A scene is an agent, its arguments and what happens from outside meanwhile. What it comes to, and which bodies ran how often, must
be the same wherever it is played; `tests/grounds/test_scenes.py` plays each on SQLite first, and then on the other grounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import holdfast
from holdfast import Local, Retry

begun: Counter[str] = Counter()  # bodies, by their keys and inputs
colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def begin(what: Any = "") -> None:
    step = holdfast.this_step()
    begun[f"{step.key}({what})"] += 1


@dataclass
class Draft:
    text: str
    n: int = 1


class Declined(Exception):
    """Names what was refused."""


# Steps


@holdfast.step
async def work(what: str) -> str:
    begin(what)
    return what.upper()


@holdfast.step
async def slow(what: str, seconds: float) -> str:
    begin(what)
    await asyncio.sleep(seconds)
    return what


@holdfast.step
def threaded(n: int) -> int:
    begin(n)
    time.sleep(0.01)
    return n + 1


@holdfast.step(retry=Retry(3, first="0.05s", max="0.1s"))
async def flaky(n: int) -> int:
    begin(n)
    if holdfast.this_step().attempt < 3:
        raise ConnectionError("not yet")
    return n


@holdfast.step(retry=Retry(3, first="10s", max="10s"))
async def asked_to_wait(n: int) -> int:
    begin(n)
    if holdfast.this_step().attempt < 2:
        raise holdfast.RetryAfter("0.05s")
    return n


@holdfast.step(retry=5)
async def hopeless(n: int) -> int:
    begin(n)
    raise holdfast.Permanent(f"never {n}")


@holdfast.step(retry=1, raises=(Declined,))
async def declines(n: int) -> int:
    begin(n)
    raise Declined(f"{n} is refused")


@holdfast.step(in_doubt="fail", retry=1)
async def unsure(n: int) -> int:
    begin(n)
    raise holdfast.InDoubt("the line broke")


async def _found(n: int) -> Any:
    return n * 10 if n % 2 else holdfast.NOT_DONE


@holdfast.step(in_doubt=_found, retry=Retry(3, first="0.05s", max="0.1s"))
async def looked_up(n: int) -> int:
    begin(n)
    if n % 2 or holdfast.this_step().attempt < 2:
        raise holdfast.InDoubt("the line broke")
    return n


@holdfast.step(in_doubt="ask", retry=1)
async def asked_about(n: int) -> int:
    begin(n)
    raise holdfast.InDoubt("the line broke")


@holdfast.step(in_doubt="retry", retry=Retry(3, first="0.05s", max="0.1s"))
async def simply_again(n: int) -> int:
    begin(n)
    if holdfast.this_step().attempt < 2:
        raise holdfast.InDoubt("the line broke")
    return n


@holdfast.step(rate=holdfast.Rate(20, every="1s"))
async def counted(n: int) -> int:
    begin(n)
    return n


@holdfast.step(timeout="0.05s", retry=1)
async def too_slow() -> str:
    begin()
    await asyncio.sleep(5)
    return "late"


@holdfast.step
async def calls(fn: Local[Callable[[str], str]], what: str) -> str:
    begin(what)
    return fn(what)


@holdfast.step
async def coloured() -> str:
    begin()
    return colour.get()


class Clerk:
    def __init__(self, name: str) -> None:
        self.name = name

    @holdfast.step
    async def greet(self, whom: str) -> str:
        begin(whom)
        return f"{self.name} greets {whom}"


# Agents


@holdfast.agent
async def sequential(n: int) -> list[str]:
    return [await work(f"w{i}") for i in range(n)]


@holdfast.agent
async def parallel(n: int) -> list[Any]:
    async def branch(i: int) -> list[str]:
        return [await work(f"{i}-{j}") for j in range(2)]

    branches = await asyncio.gather(*(branch(i) for i in range(n)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch(10 + i)) for i in range(2)]
    return [*branches, *(task.result() for task in tasks)]


@holdfast.agent
async def races() -> list[Any]:
    quick, late = asyncio.create_task(slow("quick", 0.0)), asyncio.create_task(slow("late", 30.0))
    done, pending = await asyncio.wait([quick, late], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await late
    out: list[Any] = [sorted(task.result() for task in done)]
    try:
        await asyncio.wait_for(slow("waited for", 30.0), 0.1)
    except TimeoutError:
        out.append("timed out")
    try:
        async with holdfast.timeout("0.1s"):
            await slow("in a block", 30.0)
    except TimeoutError:
        out.append("timed out")
    return out


@holdfast.agent
async def queues() -> list[str]:
    queue: asyncio.Queue[str | None] = asyncio.Queue(2)
    out: list[str] = []

    async def produce() -> None:
        for i in range(4):
            await queue.put(await work(f"p{i}"))
        await queue.put(None)

    async def consume() -> None:
        while (item := await queue.get()) is not None:
            out.append(await work(f"c{item}"))

    await asyncio.gather(produce(), consume())
    return out


@holdfast.agent
async def retries() -> list[Any]:
    out: list[Any] = [await flaky(1), await asked_to_wait(2)]
    for step in (hopeless, declines, unsure):
        try:
            out.append(await step(3))
        except (holdfast.StepFailed, Declined) as error:
            out.append([type(error).__name__, str(error).splitlines()[0]])
    try:
        await too_slow()
    except holdfast.StepTimeout as error:
        out.append(error.attempts)
    return out


@holdfast.agent
async def in_doubt() -> list[Any]:
    out: list[Any] = [await simply_again(0), await looked_up(1), await looked_up(2), await asked_about(3)]
    try:
        await unsure(4)
    except holdfast.StepFailed as error:
        out.append(type(error).__name__)
    return out


@holdfast.agent
async def rates(n: int) -> list[Any]:
    before = holdfast.now()
    out = await asyncio.gather(*(counted(i) for i in range(n)))
    return [*out, (holdfast.now() - before).total_seconds() > 0.3]


@holdfast.agent
async def sleeps() -> list[str]:
    before = holdfast.now()
    await holdfast.sleep("0.2s")
    await asyncio.sleep(0.05)
    return ["later" if holdfast.now() > before else "not later", await work("after")]


@holdfast.agent
async def leaf(n: int) -> int:
    return len(await work("x" * n))


@holdfast.agent
async def broken(n: int) -> int:
    await work("before")
    raise ValueError(f"no {n}")


@holdfast.agent
async def family(n: int) -> list[Any]:
    out: list[Any] = [await leaf(n), await asyncio.gather(*(leaf(i) for i in range(1, 4)))]
    spawned = [await holdfast.spawn(leaf, 10 + i) for i in range(2)]
    out.append([await each for each in spawned])
    try:
        await broken(1)
    except holdfast.RunFailed as error:
        out.append(error.type)
    return out


@dataclass
class Tally:
    total: int = 0
    seen: list[str] = field(default_factory=list)


@holdfast.agent
async def loops(n: int) -> list[Any]:
    state = await holdfast.restore(Tally())
    while state.total < n:
        state.seen.append(await work(f"w{state.total}"))
        state.total += 1
        state = await holdfast.checkpoint(state)
    return [state.total, state.seen]


@holdfast.agent
async def approvals(text: str) -> list[Any]:
    first = await holdfast.approve("Send it?", show=Draft(text), edit=True)
    sent = await work(first.data.text)
    second = await holdfast.approve("Really?", show=Draft("two"), needs=2)
    third = await holdfast.approve("In time?", expires="0.2s", default=True)
    fourth = await holdfast.ask("Which?", str)
    return [
        bool(first),
        first.data.n,
        first.by,
        sent,
        bool(second),
        len(second.votes),
        bool(third),
        third.expired,
        fourth,
    ]


@holdfast.agent
async def messages() -> list[Any]:
    out: list[Any] = []
    for _ in range(3):
        out.append(await work(await holdfast.receive("mail", str)))
    try:
        await holdfast.receive("never", str, timeout="0.1s")
    except TimeoutError:
        out.append("none came")
    return out


@holdfast.agent
async def paused() -> list[str]:
    out = [await work("before")]
    await holdfast.receive("go", str)
    return [*out, await work("after")]


@holdfast.agent
async def tidies() -> str:
    await work("before")
    try:
        await holdfast.receive("never", str)
    except asyncio.CancelledError:
        await work("tidied")
        raise
    return "never"


@holdfast.agent
async def parent_of_tidies() -> str:
    try:
        return await tidies()
    finally:
        await work("parent tidied")


@holdfast.agent
async def patched() -> list[Any]:
    return [holdfast.patched("new"), await work("a"), holdfast.patched("new")]


@holdfast.agent
async def at_home() -> list[Any]:
    secret = "!"
    clerk = Clerk("ann")
    out: list[Any] = [await clerk.greet("bo"), await calls(lambda text: text + secret, "hey"), await threaded(1)]
    colour.set("green")
    out.append(await coloured())
    return out


@holdfast.agent
async def lingers() -> list[str]:
    return [await slow("late", 1.0), await work("after")]


@holdfast.agent
async def tells() -> list[Any]:
    with holdfast.scope("part"):
        out: list[Any] = [await work("scoped")]
    await holdfast.note("noted", {"n": 1})
    await holdfast.progress(1, 2)
    out.append(holdfast.this_run().labels)
    out.append(len(str(holdfast.uuid4())))
    return out


@holdfast.agent
async def fails_once(name: str) -> list[str]:
    out = [await work("first")]
    out.append(await fails_at_first(name))
    return out


@holdfast.step(retry=1)
async def fails_at_first(name: str) -> str:
    begin(name)
    if begun[f"{holdfast.this_step().key}({name})"] < 2:
        raise ValueError("not yet")
    return name


@holdfast.step(retry=Retry(3, first="0.05s", max="0.1s"))
async def speaks(name: str, words: list[str], keep: bool) -> str:
    begin(name)
    async with holdfast.stream(name) as out:
        before = out.keep() if keep else ""
        for word in words[:2] if out.salvaged is None else words:
            if word not in before:
                await out.write(word)
        if out.salvaged is None:
            raise ConnectionError("the line broke")
    return f"{out.salvaged.text} {out.salvaged.reason} {out.salvaged.attempt}"


@holdfast.step(retry=1)
async def stammers() -> str:
    begin()
    async with holdfast.stream("third") as out:
        await out.write("half of")
        raise ValueError("no more")


@holdfast.agent
async def streams() -> list[Any]:
    out: list[Any] = [await speaks("first", ["a", "b", "c"], False), await speaks("second", ["a", "b", "c"], True)]
    async with holdfast.stream("first") as own:
        await own.write("by the ")
        await own.write("agent")
        out.append(await work("meanwhile"))
    try:
        await stammers()
    except holdfast.StepFailed as error:
        out.append([error.partial["third"].text, error.partial["third"].reason])
    left = await holdfast.unfinished("third")
    out.append(left and [left.text, left.reason])
    return out


@holdfast.agent
async def talks(name: str) -> list[Any]:
    out: list[Any] = []
    async with holdfast.conversation(name) as talk:
        for text in ("one", "two"):
            await talk.add(text)
        out.append(await answers(name))
        out.append([*await talk.messages()])
    async with holdfast.conversation(name) as talk:
        await talk.add("three")
        out.append([*await talk.messages()])
    return out


@holdfast.agent
async def answers(name: str) -> str:
    """Its parent has the conversation: to wait for it would be to wait for ever."""
    try:
        async with holdfast.conversation(name):
            return "has it"
    except holdfast.ConversationBusy:
        return "is refused"


@holdfast.agent
async def in_line(name: str) -> list[str]:
    async with holdfast.conversation(name) as talk:
        await talk.add(holdfast.this_run().id)
        await holdfast.receive("go", str)
        return [*await talk.messages()]


@holdfast.step
async def pays(what: str, usd: float) -> str:
    begin(what)
    left = holdfast.remaining()
    holdfast.spend(usd, input_tokens=90, output_tokens=10, model="made-up")
    return f"{what} with {left}"


@holdfast.agent(budget=holdfast.Budget(usd=2, soft=0.5, to="finance"))
async def thrifty(n: int) -> list[Any]:
    """Spends as long as there is something, and says what was left."""
    out: list[Any] = [holdfast.remaining().usd]
    try:
        for i in range(n):
            out.append([await pays(f"p{i}", 1.0), holdfast.remaining().usd, holdfast.remaining().soft])
    except holdfast.BudgetExceeded as error:
        out.append([str(error), error.run, error.spent.usd, error.limit])
    return out


@holdfast.agent
async def buyer(name: str, usd: float) -> str:
    return await pays(name, usd)


@holdfast.agent(budget=holdfast.Budget(usd=3))
async def household() -> list[Any]:
    """A child spends what there is. Then all of the family need more at once."""
    first = await buyer("first", 3.0)
    rest = await asyncio.gather(buyer("a", 1.0), buyer("b", 1.0), pays("own", 1.0), return_exceptions=True)
    # what is left for each of those at once depends on which was the first
    return [first, *(each.split()[0] if isinstance(each, str) else type(each).__name__ for each in rest)]


@holdfast.agent(budget=holdfast.Budget(usd=1))
async def forebear() -> str:
    """Ends before the child that needs more."""
    await pays("own", 1.0)
    await holdfast.spawn(buyer, "late", 1.0)
    return "ended"


@holdfast.agent(budget=holdfast.Budget(usd=1))
async def patient() -> list[str]:
    await holdfast.receive("go", str)
    return [await pays(f"p{n}", 1.0) for n in range(3)]


@holdfast.agent(budget=holdfast.Budget(usd=1))
async def spendthrift() -> list[str]:
    return [await pays(f"p{n}", 1.0) for n in range(3)]


# What happens from outside


async def nothing(hf: holdfast.Client, run: Any) -> None: ...


FAY = holdfast.Actor("fay", groups=["finance"])


def _asked(question: Any) -> list[Any]:
    """What people see of a question for more."""
    return [question.run, list(question.path), question.question, question.shown, list(question.to), question.status]


async def _next_question(run: Any, before: str = "") -> Any:
    while (question := await run.wait_for_question(timeout="60s")).id == before:
        await asyncio.sleep(0.02)
    return question


async def treasurer(hf: holdfast.Client, run: Any) -> list[Any]:
    """Gives more once, and then no more."""
    question = await _next_question(run)
    await run.wait("waiting", waits_for="person", timeout="60s")
    told = [_asked(question), [each.id for each in await hf.approvals()] == [question.id]]
    try:
        await hf.approve(question, by="ann")
    except holdfast.NotAllowed:
        told.append("not ann")
    await hf.approve(question, by=FAY, data={"usd": 1.5})
    try:
        await hf.deny(question, by=FAY)
    except holdfast.AlreadyDecided as error:
        told.append(str(error).partition(" on ")[0].replace(question.id, "it"))
    second = await _next_question(run, question.id)
    await hf.deny(run.id, by=FAY, note="enough")
    await run.result(timeout="60s")
    closed = [[each.status, each.decision, each.decided_by] for each in await hf.approvals(run=run.id, open=False)]
    return [*told, _asked(second), closed, (await run.info()).spent, await hf.approvals()]


async def _all_wait(hf: holdfast.Client, run: Any, children: int) -> list[str]:
    """Wait until the run and so many of its children have asked for more."""
    while True:
        found = [event.data["child"] async for event in run.events(follow=False, kinds="child.started")]
        asked = [each for each in [run.id, *found] if await _has_asked(hf.get(each))]
        if len(asked) == children + 1:
            return asked
        await asyncio.sleep(0.05)


async def _has_asked(run: Any) -> bool:
    try:
        return bool([event async for event in run.events(follow=False, kinds="approval.asked")])
    except holdfast.UnknownRun:  # a child that a cluster is about to start
        return False


def head(yes: bool) -> Callable[[holdfast.Client, Any], Any]:
    """The person who decides for a family; one answer is for all of them."""

    async def decides(hf: holdfast.Client, run: Any) -> list[Any]:
        waiting = await _all_wait(hf, run, 2)
        (question,) = await hf.approvals()
        told = [_asked(question), [len(await hf.approvals(run=each)) for each in waiting]]
        if yes:
            await hf.approve(question, by="ann", data={"usd": 10})
        else:
            await hf.deny(question, by="ann")
        await run.result(timeout="60s")
        spent = sorted(str(info.spent) for info in await hf.runs(parent=run.id))
        ends = [
            event.data.get("yes")
            for each in waiting
            async for event in hf.get(each).events(follow=False, kinds="approval.decided")
        ]
        return [*told, ends, (await run.info()).spent, spent, await hf.approvals()]

    return decides


async def heir(hf: holdfast.Client, run: Any) -> list[Any]:
    """A child asks for more of a run that has ended."""
    await run.result(timeout="60s")
    (spawned,) = [event.data["child"] async for event in run.events(follow=False, kinds="child.spawned")]
    child = hf.get(spawned)
    while not await _has_asked(child):
        await asyncio.sleep(0.02)
    (question,) = await hf.approvals()
    told = [_asked(question), len(await child.approvals())]
    await hf.approve(question, by="ann")
    return [*told, await child.result(timeout="60s"), (await run.info()).spent]


async def withdrawer(hf: holdfast.Client, run: Any) -> list[Any]:
    """The family is cancelled while it waits for an answer."""
    await _all_wait(hf, run, 2)
    (question,) = await hf.approvals()
    await run.cancel(by="ann", reason="enough")
    with contextlib.suppress(holdfast.RunCancelled):
        await run.result(timeout="60s")
    while await hf.approvals():
        await asyncio.sleep(0.02)
    closed = (await hf.approval(question.id)).status
    try:
        await hf.approve(question, by="ann")
    except holdfast.RunFinished:
        return [closed, "too late"]
    return [closed, "in time"]


async def patron(hf: holdfast.Client, run: Any) -> list[Any]:
    """Lets a paused run go on with another budget."""
    await run.wait("waiting", waits_for="message", timeout="30s")
    await run.pause(by="ann")
    await run.wait("paused", timeout="30s")
    await run.retry(by="ann", budget=holdfast.Budget(usd=5))
    await run.send("go", "now")
    await run.result(timeout="60s")
    resumed = [event.data.get("budget") async for event in run.events(follow=False, kinds="run.resumed")]
    return [resumed, (await run.info()).budget, (await run.info()).spent]


async def lender(hf: holdfast.Client, run: Any) -> list[Any]:
    """Denies twice; then a retry brings another budget."""
    before, told = "", list[Any]()
    for _ in range(2):
        question = await _next_question(run, before)
        before = question.id
        await hf.deny(question, by="ann")
        await run.wait("failed", timeout="60s")
        told.append([question.shown, (await run.info()).spent])
        if len(told) == 1:
            await run.retry(by="ann")
    await run.retry(by="ann", budget=holdfast.Budget(usd=5))
    await run.result(timeout="60s")
    return [*told, (await run.info()).budget, (await run.info()).spent]


async def people(hf: holdfast.Client, run: Any) -> None:
    question = await run.wait_for_question(timeout="30s")
    await hf.approve(question, by="ann", data={"text": "edited", "n": 2})
    while (question := await run.wait_for_question(timeout="30s")).question != "Really?":
        await asyncio.sleep(0.02)
    await hf.approve(question, by="bo")
    await hf.approve(question, by="cy")
    while (question := await run.wait_for_question(timeout="30s")).question != "Which?":
        await asyncio.sleep(0.02)
    await hf.answer(question, "blue", by="ann")


async def person_in_doubt(hf: holdfast.Client, run: Any) -> None:
    question = await run.wait_for_question(timeout="30s")
    await hf.answer(question, {"result": 33}, by="ann")


async def mail(hf: holdfast.Client, run: Any) -> None:
    for i in range(3):
        await run.send("mail", f"m{i}", key=f"k{i}")
        await run.send("mail", f"m{i}", key=f"k{i}")


async def pauser(hf: holdfast.Client, run: Any) -> None:
    await run.wait("waiting", waits_for="message", timeout="30s")
    await run.pause(by="ann", reason="lunch")
    await run.wait("paused", timeout="30s")
    await run.send("go", "now")
    await run.resume(by="ann")


async def canceller(hf: holdfast.Client, run: Any) -> None:
    while "step.completed" not in [event.kind async for event in run.events(follow=False)]:
        await asyncio.sleep(0.02)
    await run.wait("waiting", waits_for="message", timeout="30s")
    await run.cancel(by="ann", reason="enough")


async def family_canceller(hf: holdfast.Client, run: Any) -> None:
    await run.wait("waiting", waits_for="child", timeout="30s")
    started = [event async for event in run.events(follow=False, kinds="child.started")]
    await canceller(hf, Below(hf, hf.get(started[0].data["child"]), run))


class Below:
    """A child to be looked at, whose parent is cancelled."""

    def __init__(self, hf: holdfast.Client, child: Any, parent: Any) -> None:
        self.events, self.wait, self.cancel = child.events, child.wait, parent.cancel


async def second_in_line(hf: holdfast.Client, run: Any) -> None:
    """Another run waits for the conversation, and has it when the first has ended."""
    await run.wait("waiting", waits_for="message", timeout="30s")
    other = await hf.start(in_line, "both", id="both.2")
    await other.wait("waiting", waits_for="conversation", timeout="30s")
    await run.send("go", "now")
    await other.send("go", "now")
    assert await other.result(timeout="60s") == [run.id, "both.2"]


async def retrier(hf: holdfast.Client, run: Any) -> None:
    await run.wait("failed", timeout="30s")
    await run.retry(by="ann")


@dataclass(frozen=True)
class Scene:
    agent: Any
    args: tuple[Any, ...] = ()
    outside: Callable[[holdfast.Client, Any], Any] = nothing
    side: bool = False  # on a cluster it needs a database beside it
    talks: bool = False  # in a conversation that is its first argument; over cells its id must begin with that


SCENES = {
    "sequential": Scene(sequential, (4,)), "parallel": Scene(parallel, (3,)), "races": Scene(races), "queues": Scene(queues),
    "retries": Scene(retries), "in_doubt": Scene(in_doubt, (), person_in_doubt), "sleeps": Scene(sleeps),
    "family": Scene(family, (3,)), "loops": Scene(loops, (4,)), "approvals": Scene(approvals, ("draft",), people),
    "messages": Scene(messages, (), mail), "paused": Scene(paused, (), pauser), "tidies": Scene(tidies, (), canceller),
    "cancelled_family": Scene(parent_of_tidies, (), family_canceller), "patched": Scene(patched), "at_home": Scene(at_home),
    "tells": Scene(tells), "retried": Scene(fails_once, ("once",), retrier), "streams": Scene(streams, side=True),
    "conversations": Scene(talks, ("own",), side=True, talks=True),
    "in_line": Scene(in_line, ("both",), second_in_line, side=True, talks=True),
    "rates": Scene(rates, (8,), side=True),
    "budget": Scene(thrifty, (9,), treasurer, side=True),
    "family_budget": Scene(household, (), head(True), side=True),
    "family_refused": Scene(household, (), head(False), side=True),
    "budget_outlives": Scene(forebear, (), heir, side=True),
    "budget_withdrawn": Scene(household, (), withdrawer, side=True),
    "budget_retried": Scene(spendthrift, (), lender, side=True),
    "budget_resumed": Scene(patient, (), patron, side=True),
}  # fmt: skip


async def _read(run: Any, name: str) -> list[Any]:
    """What a reader sees of a stream: texts, however they were cut, and marks."""
    seen: list[Any] = []
    async for chunk in run.stream(name):
        if chunk.kind == "data" and seen and isinstance(seen[-1], str):
            seen[-1] += chunk.data
        else:
            seen.append(chunk.data if chunk.kind == "data" else [chunk.kind, chunk.reason, chunk.attempt])
    return seen


async def play(url: str, name: str, **settings: Any) -> dict[str, Any]:
    """Play a scene; returns what it came to, the bodies that ran, and the journal as far as it must be the same."""
    scene = SCENES[name]
    begun.clear()
    async with holdfast.open(url, agents=[scene.agent], settings=holdfast.Settings(**settings)) as hf:
        id = f"{scene.args[0]}.1" if scene.talks else f"{name}-1"
        run = await hf.start(scene.agent, *scene.args, id=id, labels={"team": "a"})
        told = await scene.outside(hf, run)
        try:
            result: Any = await run.result(timeout="60s")
        except (holdfast.RunFailed, holdfast.RunCancelled) as error:
            result = [type(error).__name__, str(error)]
        journal = Counter([f"{event.kind} {event.key or ''}" async for event in run.events(follow=False)])
        info = await run.info()
        texts = {each.name: await _read(run, each.name) for each in await run.streams()}
        return {
            "streams": texts,
            "told": told,
            "result": result,
            "bodies": Counter(begun),
            "journal": journal,
            "status": info.status,
            "steps": info.steps,
        }
