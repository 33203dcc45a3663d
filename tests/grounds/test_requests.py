"""Requests to pause, to go on and to stop that come close together, on Temporal with a database beside it."""

import asyncio
import itertools
import random
from urllib.parse import quote

import pytest
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal.address import ARRIVE, Address
from holdfast.backends.temporal.history import Asked, told_by
from holdfast.backends.temporal.records import State
from holdfast.words.model import Event, Signal

QUICK = holdfast.Settings(lease_ttl_s=3.0)


@holdfast.step
async def work(n: int) -> int:
    return n


@holdfast.agent
async def waiter() -> str:
    await work(1)
    return await holdfast.receive("go", str)


@holdfast.agent
async def parent() -> list[str]:
    return list(await asyncio.gather(waiter(), waiter()))


async def begun(url):
    """A family that waits, and that nobody carries any more: its root and the ids of its children."""
    async with holdfast.open(url, agents=[parent, waiter], settings=QUICK) as hf:
        run = await hf.start(parent)
        await run.wait("waiting", waits_for="child", timeout="60s")
        children = []
        while len(children) < 2:
            children = [each.id for each in await hf.runs(parent=run.id) if each.status == "waiting"]
            await asyncio.sleep(0.05)
        return run.id, children


async def kinds(run):
    return [event.kind async for event in run.events(follow=False) if event.kind.startswith("run.")]


async def told(url, run, *signals):
    """Send signals as a run above would pass them on."""
    client = await Address.of(url).connect()
    for nth, (kind, data) in enumerate(signals):
        said = {
            "id": f"{data.get('request', 'told')}:{run}:{nth}",
            "kind": kind,
            "data": {"by": "ana", "reason": "", **data},
        }
        await client.get_workflow_handle(run).signal(ARRIVE, said)


async def goes_on(hf, root, children):
    for child in children:
        await hf.get(child).send("go", "on")
    await hf.get(root).wait(timeout="60s")  # runs below a run that is resumed go on a moment later
    return await hf.get(root).result()


@pytest.fixture
def url(temporal_url, postgres_url):  # noqa: F811
    return f"{temporal_url}&side={quote(postgres_url, safe='')}"


@pytest.mark.slow
async def test_a_pause_that_was_not_carried_out_yet_is_called_off(url):
    async with holdfast.open(url, agents=[waiter], settings=QUICK) as hf:
        for _ in range(5):
            run = await hf.start(waiter)
            await run.pause(by="ana")
            await run.resume(by="ana")
            await run.send("go", "on")
            assert await run.result(timeout="30s") == "on"


@pytest.mark.slow
async def test_a_pause_that_no_worker_has_heard_of_is_called_off(url):
    async with holdfast.open(url) as hf:
        run = await hf.start(waiter)
        await run.pause(by="ana")
        await run.resume(by="ana")
        with pytest.raises(holdfast.RunActive):
            await run.resume(by="ana")
        await run.send("go", "on")
        async with holdfast.open(url, agents=[waiter], settings=QUICK):
            assert await run.result(timeout="30s") == "on"


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "pause", "paused", "resume"])
async def test_a_run_says_who_cancelled_it(url, before):
    async with holdfast.open(url, agents=[waiter], settings=QUICK) as hf:
        for _ in range(3):
            run = await hf.start(waiter)
            if before != "nothing":
                await run.pause(by="ana")
            if before == "paused":
                await run.wait("paused", timeout="30s")
            if before == "resume":
                await run.resume(by="ana")
            await run.cancel(by="ana")
            await run.wait("cancelled", timeout="30s")
            assert (await run.info()).reason == "cancelled by ana"


@pytest.mark.slow
async def test_a_run_that_was_cancelled_before_a_worker_took_it_says_by_whom(url):
    async with holdfast.open(url) as hf:
        run = await hf.start(waiter)
        await run.cancel(by="ana")
        async with holdfast.open(url, agents=[waiter], settings=QUICK):
            await run.wait("cancelled", timeout="30s")
        assert (await run.info()).reason == "cancelled by ana"


@pytest.mark.slow
async def test_requests_to_stop_that_are_taken_in_at_once_say_by_whom_and_leave_nobody_behind(temporal_url):  # noqa: F811
    root, children = await begun(temporal_url)
    async with holdfast.open(temporal_url) as hf:
        for _ in range(3):
            await hf.get(root).cancel(by="ana")
        async with holdfast.open(temporal_url, agents=[parent, waiter], settings=QUICK):
            for each in (root, *children):
                await hf.get(each).wait("cancelled", timeout="60s")
        assert (await hf.get(root).info()).reason == "cancelled by ana"


@pytest.mark.slow
async def test_a_resume_undoes_every_pause_before_it_of_a_run_that_is_paused(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[waiter], settings=QUICK) as hf:
        run = await hf.start(waiter)
        await run.pause(by="ana")
        await run.wait("paused", timeout="60s")
    async with holdfast.open(temporal_url) as hf:  # nobody takes up what is asked
        run = hf.get(run.id)
        await run.pause(by="ana")
        resumed = asyncio.create_task(run.resume(by="ana"))
        await asyncio.sleep(0)
        async with holdfast.open(temporal_url, agents=[waiter], settings=QUICK):
            await resumed
            await run.send("go", "on")
            assert await run.result(timeout="60s") == "on"
        assert (await kinds(run)).count("run.paused") == 1


@pytest.mark.slow
async def test_a_family_goes_on_whose_root_was_resumed_last(temporal_url):  # noqa: F811
    root, children = await begun(temporal_url)
    async with holdfast.open(temporal_url) as hf:
        for _ in range(3):  # which its worker will find all at once
            await hf.get(root).pause(by="ana")
            await hf.get(root).resume(by="ana")
        async with holdfast.open(temporal_url, agents=[parent, waiter], settings=QUICK):
            assert await goes_on(hf, root, children) == ["on", "on"]


@pytest.mark.slow
async def test_a_pause_that_comes_behind_the_resume_that_names_it_does_nothing(temporal_url):  # noqa: F811
    root, children = await begun(temporal_url)
    passed = {"request": "pause:1", "depth": 1, "family": True, "now": False}
    await told(
        temporal_url, children[0], ("run.resumed", {"requests": ["pause:1"], "family": True}), ("run.pausing", passed)
    )
    async with holdfast.open(temporal_url, agents=[parent, waiter], settings=QUICK) as hf:
        assert await goes_on(hf, root, children) == ["on", "on"]
        assert "run.pausing" not in await kinds(hf.get(children[0]))


@pytest.mark.slow
async def test_a_run_below_stays_paused_by_its_own_request(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[parent, waiter], settings=QUICK) as hf:
        root, (own, other) = await begun(temporal_url)
        run = hf.get(root)
        await hf.get(own).pause(by="ben")
        await hf.get(own).wait("paused", timeout="60s")
        await run.pause(by="ana")
        for each in (root, other):
            await hf.get(each).wait("paused", timeout="60s")
        await run.resume(by="ana")
        await hf.get(other).send("go", "on")
        await hf.get(other).wait("completed", timeout="60s")
        assert (await hf.get(own).info()).status == "paused"
        assert "run.resumed" not in await kinds(hf.get(own))
        await hf.get(own).resume(by="ben")
        assert await goes_on(hf, root, [own]) == ["on", "on"]


@pytest.mark.slow
async def test_a_resume_that_names_other_requests_does_not_hide_a_pause(temporal_url):  # noqa: F811
    root, children = await begun(temporal_url)
    async with holdfast.open(temporal_url) as hf:
        child = hf.get(children[0])
        await child.pause(by="ana")
        await told(temporal_url, child.id, ("run.resumed", {"requests": ["pause:other"], "family": True}))
        await child.resume(by="ana")
        with pytest.raises(holdfast.RunActive):
            await child.resume(by="ana")
        async with holdfast.open(temporal_url, agents=[parent, waiter], settings=QUICK):
            assert await goes_on(hf, root, children) == ["on", "on"]


@pytest.mark.slow
async def test_a_run_that_is_about_to_stop_cannot_be_paused(temporal_url):  # noqa: F811
    root, children = await begun(temporal_url)
    async with holdfast.open(temporal_url) as hf:
        run = hf.get(root)
        await run.cancel(by="ana")
        with pytest.raises(holdfast.RunActive, match="told to stop"):
            await run.pause(by="ben")
        with pytest.raises(holdfast.RunActive):
            await run.resume(by="ben")
        # One who asks at the same moment is told nothing, and nothing comes of it.
        passed = {"request": "pause:1", "depth": 0, "family": True, "now": False}
        await told(temporal_url, root, ("run.pausing", passed))
        async with holdfast.open(temporal_url, agents=[parent, waiter], settings=QUICK):
            await run.wait("cancelled", timeout="60s")
        for each in (root, *children):
            assert not {"run.pausing", "run.paused"} & {*await kinds(hf.get(each))}


@pytest.mark.nightly
@pytest.mark.slow
async def test_families_that_are_paused_and_resumed_at_any_time_go_on(url):
    chance = random.Random(7)
    async with holdfast.open(f"{url}&events=50", agents=[parent, waiter], settings=QUICK) as hf:

        async def one():
            run = await hf.start(parent)
            for _ in range(6):
                await run.pause(by="ana")
                await asyncio.sleep(chance.choice([0, 0, 0.1, 0.3]))
                await run.resume(by="ana")
                await asyncio.sleep(chance.choice([0, 0, 0.1, 0.3]))
            children = [each.id for each in await hf.runs(parent=run.id)]
            while len(children) < 2:
                await asyncio.sleep(0.1)
                children = [each.id for each in await hf.runs(parent=run.id)]
            return await goes_on(hf, run.id, children)

        assert await asyncio.gather(*[one() for _ in range(8)]) == [["on", "on"]] * 8


def passed_on(kind, **data):
    return {"id": f"{data.get('request', 'r')}:child:{data}", "kind": kind, "data": data}


@pytest.mark.parametrize("own", [False, True])
def test_in_whatever_order_requests_are_passed_on_a_run_is_held_by_those_that_nobody_has_undone(own):
    signals = [
        passed_on("run.pausing", request="pause:1", depth=1), passed_on("run.resumed", requests=["pause:1"]),
        passed_on("run.pausing", request="pause:2", depth=2), passed_on("run.pausing", request="pause:3", depth=1),
        passed_on("run.resumed", requests=["pause:2", "pause:3"]),
    ]  # fmt: skip
    if own:
        signals.append({"id": "pause:4", "kind": "run.pausing", "data": {"request": "pause:4", "depth": 0}})
    for order in itertools.permutations(signals):
        state = State()
        assert told_by(state, order) == Asked(pause=own, stop=False)
        assert (state.pauses, state.called_off) == (["pause:4"] if own else [], [])


PAUSE = {"id": "pause:1", "kind": "run.pausing", "data": {"request": "pause:1", "depth": 0}}
RESUME = {"id": "resume:1", "kind": "run.resumed", "data": {"requests": [], "direct": True}}
CANCEL = {"id": "cancel:1", "kind": "run.cancelling", "data": {"by": "ana", "reason": "", "until": 0}}
LATER = {"id": "pause:2", "kind": "run.pausing", "data": {"request": "pause:2", "depth": 0}}


@pytest.mark.parametrize(
    ("signals", "pause", "stop"),
    [
        ([], False, False),
        ([PAUSE], True, False),
        ([PAUSE, PAUSE, RESUME], False, False),
        ([PAUSE, RESUME, PAUSE], False, False),  # the same one, sent again
        ([PAUSE, RESUME, LATER], True, False),
        ([PAUSE, LATER, RESUME], False, False),
        ([PAUSE, CANCEL], False, True),
        ([CANCEL, PAUSE], False, True),
    ],
)
def test_what_a_run_was_asked_is_told_by_what_came(signals, pause, stop):
    assert told_by(State(), signals) == (pause, stop)


def test_what_a_run_was_asked_in_an_execution_before_counts():
    stops = Event(1, "run.cancelling", None, {}, None, None, 0, 1)
    kept = Event(1, "checkpoint", None, {"cancelling": {"by": "ana"}}, None, None, 0, 1)
    waiting = Signal(1, "run.cancelling", "", None, CANCEL["data"], 0)
    for state in (State(events=[stops]), State(events=[kept]), State(signals=[waiting])):
        assert told_by(State.unpack(state.pack()), [PAUSE]) == (False, True)
    state = State(pauses=["pause:1"], called_off=["pause:2"])
    assert told_by(State.unpack(state.pack()), [{**LATER, "data": {"request": "pause:2", "depth": 1}}]) == (True, False)
    assert told_by(State.unpack(state.pack()), [RESUME]) == (False, False)


begun_bodies: list[str] = []


@holdfast.step
async def pay(what: str) -> str:
    begun_bodies.append(what)
    return what


@holdfast.step
async def tidy(what: str) -> str:
    begun_bodies.append(what)
    return what


@holdfast.agent
async def asks() -> str:
    if await holdfast.approve("Pay?", show={"amount": 5}):
        return await pay("paid")
    return "not paid"


@holdfast.agent
async def above() -> str:
    try:
        return await asks()
    except asyncio.CancelledError:
        if await holdfast.approve("Keep the books?"):
            await tidy("kept")
        raise


@pytest.mark.parametrize("of", ["root", "child"])
async def test_nobody_decides_behind_a_request_to_stop(temporal_url, of):  # noqa: F811
    """Neither while nobody carries the run that was to stop; but what the agent asks when it tidies up is decided."""
    begun_bodies.clear()
    top, below = (above, [asks]) if of == "child" else (asks, [])
    async with holdfast.open(temporal_url, agents=below, settings=QUICK) as hf:  # serves the child, all the time
        async with holdfast.open(temporal_url, agents=[top], settings=QUICK) as office:
            run = hf.get((await office.start(top)).id)
            question = await run.wait_for_question(timeout="60s")
            await run.wait("waiting", timeout="60s")
        await run.cancel(by="ana", grace="60s")
        with pytest.raises(holdfast.RunFinished, match=f"run '{run.id}' was cancelled, and is about to end"):
            await hf.approve(question, by="ben")
        assert begun_bodies == []
        async with holdfast.open(temporal_url, agents=[top], settings=QUICK):
            if of == "child":
                books = await run.wait_for_question(timeout="60s")
                while books.id == question.id:
                    books = await run.wait_for_question(timeout="60s")
                await hf.approve(books, by="ben")
            await run.wait("cancelled", timeout="60s")
        assert begun_bodies == (["kept"] if of == "child" else [])
        assert (await hf.approval(question.id)).status == "withdrawn"
