"""Scenes: which runs are recorded, what people do to them while they are, and what lets them end afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.histories import agents, agents_more
from tests.histories.agents_more import YEARS, Draft, Due, Mail, Paid, Ring, parcel

import holdfast
from holdfast import Actor, Budget

Act = Callable[[holdfast.Client, holdfast.Run[Any]], Awaitable[None]]
ALL: list[Any] = [*agents.ALL, *agents_more.MORE]


@dataclass
class Scene:
    """One run: `acts` while it is recorded, one after the other, and `go_on` after that."""

    agent: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    acts: Act | None = None
    again: Act | None = None  # when the second worker has it
    go_on: Act | None = None
    by: str = ""  # who starts it


async def question(hf: holdfast.Client, run: holdfast.Run[Any], text: str = "") -> holdfast.Approval:
    """The open question of a run, once it is asked; with this text, if one is given."""
    async for _ in run.events():
        for found in await run.approvals():
            if text in found.question:
                return found
    raise AssertionError(f"{run.id} ended without asking {text!r}")


async def _people(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.approve(await question(hf, run, "first"), by="ana", note="fine")
    edited = await question(hf, run, "Edited")
    await hf.approve(edited, by="ana", data=agents.Order("bo", 7))
    await hf.approve(await question(hf, run, "Edited"), by="bo")
    await hf.deny(await question(hf, run, "Denied"), by="cy", note="no")
    await hf.answer(await question(hf, run, "How many"), 3, by="cy")
    passed = await question(hf, run, "Delegated")
    await hf.delegate(passed, to="dan", by="ana", note="on holiday")
    await hf.approve(passed.id, by=Actor("dan"))
    await hf.approve(await question(hf, run, "Open"), by="first of two")


async def _decides_the_rest(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.approve(await question(hf, run, "Open"), by="second of two")
    await hf.answer(await question(hf, run, "The last"), "well", by="ana")


async def _orders(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    for n in range(3):
        await run.send("orders", agents.Order(f"order {n}"), key=f"order-{n}")
    async for event in run.events():
        if event.kind == "message.received":
            break
    await run.send("orders", agents.Order("unread", 5))


async def _say_go(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.send("go", "on")


async def _hanging(run: holdfast.Run[Any], key: str) -> None:
    """Wait until all that comes before a body that hangs is recorded."""
    async for event in run.events():
        if event.kind == "step.completed" and key in (event.key or ""):
            return


def cancel(grace: str) -> Act:
    async def act(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
        await _hanging(run, "call")
        await run.cancel(by="ana", reason="enough", grace=grace)

    return act


async def _cancel_family(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.wait("waiting")
    await run.cancel(by="ana", reason="enough", grace=YEARS)


async def _pause(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await _hanging(run, "call")
    await run.pause(by="ana", reason="lunch")


async def _pause_waiting(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.wait("waiting")
    await run.pause(by="ana", reason="lunch")


async def _pause_and_resume(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await _pause_waiting(hf, run)
    await run.resume(by="bo")


async def _resume(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.wait("paused")
    await run.resume(by="bo")


async def _order_and_go(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.send("orders", agents.Order("first"))
    await run.send("go", "on")


async def _resume_and_go(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await _resume(hf, run)
    await _order_and_go(hf, run)


async def _retry(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.wait("failed")
    await run.retry(by="ana")


async def _answer_doubt(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.answer(await question(hf, run), {"result": "it was wired"}, by="ana")


async def _give_more(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.approve(await question(hf, run), by="ana")


async def _pay(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.approve(await question(hf, run), by="ana")


async def _pay_twice(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    first = await question(hf, run)
    await hf.approve(first, by="ana")
    async for _ in run.events():
        found = [approval for approval in await run.approvals() if approval.id != first.id]
        if found:
            await hf.approve(found[0], by="ana")
            return


async def _talk_to_eras(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.send("orders", "before the third round")


async def _send_parcels(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.send("parcels", parcel("sent"))
    await run.send("parcels", parcel("sent too"), key="too")


async def _noted_people(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.approve(await question(hf, run, "Send it"), by=Actor("cy", groups=["post"]))
    edited = agents_more.Parcel(
        Draft(title="by a person"), Paid(by="cash"), Mail(to="cy"), parts=[Due(until="monday"), Paid(by="card")]
    )
    await hf.approve(await question(hf, run, "Edit it"), by="ana", data=edited)
    await hf.answer(await question(hf, run, "Paid or due"), Due(until="never"), by="ana")
    await question(hf, run, "Open")


async def _noted_people_end(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    edited = agents_more.Parcel(Draft(title="edited later"), Due(until="monday"), Ring(number=7))
    await hf.approve(await question(hf, run, "Open"), by="ana", data=edited)
    await hf.answer(await question(hf, run, "Last"), Ring(number=3), by="ana")


async def _deciders(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    try:
        await hf.approve(await question(hf, run, "By another"), by="ana")
    except holdfast.NotAllowed:
        await hf.approve(await question(hf, run, "By another"), by="bo")
    dear = await question(hf, run, "Dear")
    await hf.approve(dear, by=Actor("cy", groups=["it"]), note="if it must be")
    await hf.approve(dear.id, by=Actor("dan", groups=["it"]), data=agents.Order("ana", 50))
    await hf.approve(await question(hf, run, "By schema"), by="ana", data={"n": 2})


async def _decides_in_time(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.answer(await question(hf, run, "One"), 1, by="ana")
    await hf.answer(await question(hf, run, "Two"), ["a", "b"], by="ana")
    await hf.deny(await question(hf, run, "In years"), by="ana", note="no")


async def _send_letters(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    for n in range(2):
        await run.send("letters", agents.Order(f"letter {n}"))


async def _deny(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.deny(await question(hf, run), by="finance", note="no more")


async def _give_two(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.approve(await question(hf, run), by="finance", data={"usd": 2})


def _pause_house(*, now: bool) -> Act:
    async def act(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
        async for event in run.events():
            if event.kind == "child.started":
                break
        await run.pause(by="ana", reason="lunch", now=now)

    return act


async def _cancel_at_once(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.cancel(by="ana", reason="never mind")


async def _cancel_twice(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await cancel(YEARS)(hf, run)
    async for event in run.events():
        if event.kind == "run.unwinding":
            break
    await run.cancel(by="bo", reason="now")


async def _free_the_spawned(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    for info in await hf.runs(agent="holds", limit=1000):
        with contextlib.suppress(holdfast.RunFinished):  # who frees the forks may have been there before
            await hf.get(info.id).send("go", "on")


async def _fork_twice(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.wait("waiting", waits_for="message")
    fork = await run.fork(effects="new", id="winds-fork", by="ana")
    await fork.wait("waiting", waits_for="message")
    await fork.fork(at=1, effects="new", id="winds-fork-fork", replace={"call#0": "put there"}, by="bo")


async def _free_the_forks(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    for name in ("winds", "winds-fork", "winds-fork-fork"):
        await hf.get(name).send("go", "on")
    for _ in range(100):
        for info in await hf.runs(agent="holds", status=["waiting", "ready", "running"], limit=1000):
            with contextlib.suppress(holdfast.RunFinished):
                await hf.get(info.id).send("go", "on", key="once")
        await asyncio.sleep(0.1)


async def _wind_back(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await run.wait("failed")
    await run.retry(at="call#1", effects="new", by="ana")


async def _fill_the_shelf(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    for title in ("first", "second", "third", "fourth", "fifth", "sixth"):
        await run.send(agents_more.Put(title=title))
    await asyncio.sleep(0.5)
    await run.send(agents_more.Put(title="last"))


async def _empty_the_shelf(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.answer(await question(hf, run, "full"), True, by="ana")
    while [each for each in (await run.snapshot()).pending if each.kind != "message"]:
        await asyncio.sleep(0.05)
    await run.send(agents_more.Emptied())


async def _shout(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    async for event in run.events():
        if event.kind == "announcement.awaited":
            break
    await hf.publish("crier.news", {"by": "nobody", "text": "not for it"})
    await hf.publish("crier.news", {"by": "crier", "text": "from outside"})


async def _end_the_news(hf: holdfast.Client, run: holdfast.Run[Any]) -> None:
    await hf.publish("crier.end", "the end")


SCENES: dict[str, Scene] = {
    "sequence": Scene(agents.sequence, (agents.Order("ana"),), {"third": "3"}, {"labels": {"team": "night"}}),
    "defaults": Scene(agents.sequence, (agents.Order("bo", 30, []), 2)),
    "finished": Scene(agents.finished, ("done",)),
    "facts": Scene(agents.facts),
    "parallel": Scene(agents.parallel, (4,)),
    "race": Scene(agents.race),
    "timers": Scene(agents.timers),
    "messages": Scene(agents.messages, acts=_orders, go_on=_say_go),
    "waiting": Scene(agents.messages, go_on=_order_and_go),
    "family": Scene(agents.family),
    "people": Scene(agents.people, acts=_people, go_on=_decides_the_rest),
    "doubts": Scene(agents.doubts, go_on=_answer_doubt),
    "failures": Scene(agents.failures),
    "failed": Scene(agents.fails_unless_going, ("failed",), go_on=_retry),
    "mended": Scene(agents.fails_unless_going, ("mended",), again=_retry),
    "eras": Scene(agents.eras, (4,), acts=_talk_to_eras),
    "streaming": Scene(agents.streaming),
    "talk-1": Scene(agents.talk, ("user-1", True)),
    "talk-2": Scene(agents.talk, ("user-1",)),
    "talk-3": Scene(agents.talk, ("user-2",)),
    "impatient": Scene(agents.impatient, ("user-1",)),
    "spender": Scene(agents.spender, go_on=_give_more),
    "looper": Scene(agents.looper, go_on=_give_more),
    "paced": Scene(agents.paced),
    "falls-back": Scene(agents.falls_back),
    "cancelled": Scene(agents.cancelled, ("cancelled",), acts=cancel("1m")),
    "cancelled-children": Scene(agents.cancelled, ("children",), acts=cancel(YEARS)),
    "cancelled-tidies": Scene(agents.cancelled, ("tidies",), acts=cancel(YEARS)),
    "cancelled-family": Scene(agents.cancelled_parent, ("tidies",), acts=_cancel_family),
    "pausing": Scene(agents.stoppable, ("pausing",), acts=_pause, go_on=_resume),
    "paused": Scene(agents.messages, acts=_pause_waiting, go_on=_resume_and_go),
    "resumed": Scene(agents.messages, acts=_pause_and_resume, go_on=_order_and_go),
    "foreign": Scene(agents.foreign),
    "pinned": Scene(agents.pinned, ("v1",)),
    "transacting": Scene(agents.transacting),
    "delayed": Scene(agents.finished, ("delayed",), options={"after": "40s"}),
    "desk": Scene(agents.desk, ("Pay for both.",), go_on=_pay_twice),
    "desk-paid": Scene(agents.desk, ("Pay for both.",), acts=_pay, go_on=_pay),
    "window": Scene(agents.window, ("Pay for an eel.",), go_on=_pay),
    # Since the second recording
    "noted": Scene(agents_more.noted, (parcel("given"), Mail()), {"currency": "EUR"}),
    "noted-state": Scene(agents_more.noted_state, (4,)),
    "noted-letters": Scene(agents_more.noted_letters, ("parcels",), acts=_send_parcels),
    "noted-people": Scene(agents_more.noted_people, acts=_noted_people, go_on=_noted_people_end),
    "deciders": Scene(agents_more.deciders, acts=_deciders, go_on=_decides_in_time, by="ana"),
    "reader": Scene(agents_more.reader),
    "carries": Scene(agents_more.carries, (3,), acts=_send_letters),
    "tidies-in-eras": Scene(agents_more.tidies_in_eras, acts=cancel(YEARS)),
    "tasks": Scene(agents_more.tasks),
    "stumbling": Scene(agents_more.stumbling),
    "brought-down": Scene(agents_more.brought_down, ("down",)),
    "fails-in-the-end": Scene(agents_more.fails_in_the_end, ("late",)),
    "narrow-1": Scene(agents_more.narrow, ("one",)),
    "narrow-2": Scene(agents_more.narrow, ("two",)),
    "customer-ana": Scene(agents_more.customers, ("ana",), options={"labels": {"shop": "north"}}),
    "customer-bo": Scene(agents_more.customers, ("bo", "hello")),
    "meters": Scene(agents_more.meters),
    "frugal": Scene(agents_more.frugal),
    "buyer": Scene(agents_more.buyer, (3,), options={"budget": Budget(usd=0.5, to="finance")}, go_on=_deny),
    "buyer-more": Scene(agents_more.buyer, (3,), options={"budget": Budget(usd=0.5)}, go_on=_give_two),
    "circles": Scene(agents_more.circles, go_on=_deny),
    "cycles": Scene(agents_more.cycles, go_on=_give_more),
    "strict": Scene(agents_more.strict, ("strict",), go_on=_resume),
    "house": Scene(agents_more.house, ("house",), acts=_pause_house(now=False), go_on=_resume),
    "house-now": Scene(agents_more.house, ("now",), acts=_pause_house(now=True), go_on=_resume),
    "grandparent": Scene(agents_more.grandparent, ("ana",), go_on=_free_the_spawned),
    "called-off": Scene(agents.finished, ("called off",), options={"after": YEARS}, acts=_cancel_at_once),
    "cancelled-twice": Scene(agents.cancelled, ("tidies",), acts=_cancel_twice),
    "transacts-late": Scene(agents_more.transacts_late),
    "report": Scene(agents_more.report, ("otters",)),
    "kitchen": Scene(agents_more.kitchen, ("Bake a cake.",)),
    "chats": Scene(agents_more.chats, ("chat-1",)),
    "party": Scene(agents_more.party, ("ana",)),
    # Since there are forks
    "winds": Scene(agents_more.winds, ("north",), acts=_fork_twice, go_on=_free_the_forks),
    "wound-back": Scene(agents_more.winds_back, ("south",), again=_wind_back),
    # Since there are reducers
    "shelf": Scene(agents_more.shelf, acts=_fill_the_shelf, go_on=_empty_the_shelf),
    # Since there are announcements
    "crier": Scene(agents_more.crier, ("hear",), acts=_shout, go_on=_end_the_news),
}


async def start(hf: holdfast.Client, name: str) -> holdfast.Run[Any]:
    """Start the run of a scene; again: the same run."""
    scene = SCENES[name]
    hf = hf.acting_as(scene.by) if scene.by else hf
    run: holdfast.Run[Any] = await hf.start(scene.agent, *scene.args, kwargs=scene.kwargs, id=name, **scene.options)
    return run
