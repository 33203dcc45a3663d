"""Code that no longer fits its journal: found before any effect, told with both sides, and mended by the old code."""

import asyncio
import contextlib

import apsw
import pytest
from tests.engine.lives import history, lives

import holdfast
import holdfast.testing
from holdfast.engine import execute


@holdfast.step
async def work(what: str) -> str:
    return what


@holdfast.step
async def other(what: str) -> str:
    return what


@holdfast.step(name="both")
async def both_step(what: str) -> str:
    return what


@holdfast.agent(name="both")
async def both_agent(what: str) -> str:
    await holdfast.sleep("1h")
    return what


@holdfast.agent
async def child(what: str) -> str:
    await holdfast.receive("never")
    return what


@holdfast.step(in_doubt="fail")
async def risky(what: str) -> str:
    await asyncio.Event().wait()
    return what


async def wait() -> None:
    await holdfast.receive("go")


async def race(first, second):
    return await asyncio.gather(first, second)


async def in_order(*calls):
    for call in calls:
        await call()


async def swapped(branches):
    async def branch(name: str) -> None:
        await work(name)
        await other(name)

    await asyncio.gather(*(branch(name) for name in branches))
    await wait()


async def intent(first):
    """A step whose intent is in the journal and whose body runs while the process dies."""
    if first:
        task = asyncio.create_task(risky("x"))
        await work("beside")
        await wait()
        await task
    else:
        await work("beside")
        await wait()


async def timeout_around(limited):
    if limited:
        async with holdfast.timeout("5h"):
            await wait()
    else:
        await wait()


async def raises_early(early):
    await work("a")
    if early:
        raise ValueError("before its time")
    await work("b")
    await wait()


async def swallows(names):
    """An agent that catches everything: divergence must not reach it, or it would act upon it."""
    for name in names:
        try:
            await work(name)
        except BaseException:
            await other("acted upon it")
    await wait()


# name: (the code that wrote the journal, the code that does not fit it, what the reason must name)
CHANGES = {
    "changed order": (
        lambda: in_order(lambda: work("a"), lambda: work("b"), wait),
        lambda: in_order(lambda: work("b"), lambda: work("a"), wait),
        ("work#0", "what='a'", "what='b'"),
    ),
    "changed input": (
        lambda: in_order(lambda: work("a"), wait),
        lambda: in_order(lambda: work("c"), wait),
        ("work#0", "what='a'", "what='c'"),
    ),
    "changed where it is not shown": (
        lambda: in_order(lambda: work(f"{'a' * 200} b"), wait),
        lambda: in_order(lambda: work(f"{'a' * 200} c"), wait),
        ("work#0", "what='aaa", "with another input, though it reads the same here"),
    ),
    "removed step": (
        lambda: in_order(lambda: work("a"), lambda: other("b"), wait),
        lambda: in_order(lambda: work("a"), wait),
        ("other#0", "what='b'"),
    ),
    "renamed step": (
        lambda: in_order(lambda: work("a"), wait),
        lambda: in_order(lambda: other("a"), wait),
        ("work#0", "what='a'"),
    ),
    "added before": (
        lambda: in_order(lambda: work("a"), wait),
        lambda: in_order(lambda: work("new"), lambda: work("a"), wait),
        ("work#0", "what='a'", "what='new'"),
    ),
    "added beside a removed one": (
        lambda: in_order(lambda: work("a"), wait),
        lambda: race(other("new"), wait()),
        ("work#0", "what='a'"),
    ),
    "swapped branches": (lambda: swapped("xy"), lambda: swapped("yx"), ("branch#0/work#0", "what='x'", "what='y'")),
    "step became timer": (
        lambda: in_order(lambda: work("a"), wait),
        lambda: in_order(lambda: holdfast.sleep("1h"), wait),
        ("work#0", "what='a'"),
    ),
    "step became child": (
        lambda: in_order(lambda: both_step("a"), wait),
        lambda: in_order(lambda: both_agent("a"), wait),
        ("both#0", "step.completed", "now calls a child of that name"),
    ),
    "child became step": (
        lambda: race(both_agent("a"), wait()),
        lambda: race(both_step("a"), wait()),
        ("both#0", "child.started", "now calls a step of that name"),
    ),
    "other duration": (
        lambda: race(holdfast.sleep("7h"), wait()),
        lambda: race(holdfast.sleep("8h"), wait()),
        (":sleep#0", "25200000", "28800000"),
    ),
    "removed timer": (lambda: race(holdfast.sleep("7h"), wait()), wait, (":sleep#0", "timer.set")),
    "removed timeout": (lambda: timeout_around(True), lambda: timeout_around(False), (":timeout#0",)),
    "removed child": (lambda: race(child("x"), wait()), wait, ("child#0", "child.started", "what='x'")),
    "removed spawn": (lambda: in_order(lambda: holdfast.spawn(child, "x"), wait), wait, (":spawn.child#0",)),
    "removed note": (lambda: in_order(lambda: holdfast.note("x"), wait), wait, (":note#0",)),
    "removed plain timer": (lambda: in_order(lambda: asyncio.sleep(0.01), wait), wait, (":tick#0",)),
    "removed intent": (lambda: intent(True), lambda: intent(False), ("risky#0", "step.started", "what='x'")),
    "returns early": (
        lambda: in_order(lambda: work("a"), lambda: work("b"), wait),
        lambda: in_order(lambda: work("a")),
        ("work#1", "what='b'", "ended"),
    ),
    "raises early": (lambda: raises_early(False), lambda: raises_early(True), ("work#1", "what='b'", "ended")),
    "swallows everything": (lambda: swallows("ab"), lambda: swallows("ba"), ("work#0", "what='a'", "what='b'")),
}


def agent_of(body):
    @holdfast.agent(name="agent")
    async def agent() -> str:
        await body()
        return "done"

    return agent


def waits_then_stops(found):
    """What happens in two lives: the run comes to its wait; woken, it is paused with these words and without any effect."""

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            return
        await run.send("go")
        with pytest.raises(holdfast.NondeterminismError, match=found):
            await run.result(timeout=10)
        assert not hf.bodies

    return act


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_is_found_before_any_effect(tmp_path, change):
    """The run is paused with key, both inputs and advice; no body runs, nothing is written; the old code goes on."""
    old_body, new_body, told = CHANGES[change]
    old, new = agent_of(old_body), agent_of(new_body)
    before = []

    async def act(hf, life):
        run = hf.get("r", old)
        if life == 0:
            run = await hf.start(old, id="r")
            while not (await history(run) and hf._worker.attempts == {}) and change != "removed intent":
                await asyncio.sleep(0.001)
            while change == "removed intent" and not (hf.bodies[risky] and hf.bodies[work]):
                await asyncio.sleep(0.001)
            await hf.crash()
            return None
        if life == 1:
            before.extend(await history(run))
            await run.send("go")
            with pytest.raises(holdfast.NondeterminismError) as caught:
                await run.result(timeout=10)
            info = await run.info()
            assert info.status == "paused"
            for part in ("'r'", *told, "patched", "resume"):
                assert part in str(caught.value), str(caught.value)
            assert not hf.bodies
            after = await history(run)
            assert [event.seq for event in after if event.kind != "run.interrupted"] == [
                event.seq for event in before if event.kind != "run.interrupted"
            ]
            assert len(await hf.runs(parent="r")) == len({event.data.get("child") for event in before} - {None})
            await hf.crash()  # still paused after a restart
            with pytest.raises(holdfast.NondeterminismError):
                await run.result(timeout=10)
            return None
        await run.resume()
        if change == "removed intent":
            with pytest.raises(holdfast.RunFailed):
                await run.result(timeout=10)
            return "done"
        if "child" in change and "step became" not in change:
            for info in await hf.runs(parent="r"):
                if info.agent == "child":
                    await hf.get(info.id).send("never")
        return await run.result(timeout=10)

    others = [child, both_agent]
    assert lives(tmp_path / "a.db", [old, *others], [new, *others], [old, *others], act=act)[-1] == "done"


def test_the_same_code_goes_on_in_other_order_of_definition(tmp_path):
    """Code that changed without changing what it calls goes on."""

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            return None
        await run.send("go")
        return await run.result(timeout=10)

    def code(extra):
        async def body() -> None:
            if extra:
                len("unrelated")
            await work("a")
            await wait()
            if extra:
                await work("new, past the journal")

        return agent_of(body)

    assert lives(tmp_path / "a.db", code(False), code(True), act=act)[-1] == "done"


def test_code_that_waits_for_nothing_is_told_with_its_line(tmp_path, monkeypatch):
    """A replay that waits at another place than the journal says is paused, with the line where it waits."""
    monkeypatch.setattr(execute, "STALL_GRACE_S", 0.05)

    async def old_body() -> None:
        await work("a")
        await work("b")
        await wait()

    async def new_body() -> None:
        await work("a")
        await asyncio.Event().wait()

    found = r"test_divergence.py:\d+ in new_body"
    lives(tmp_path / "a.db", agent_of(old_body), agent_of(new_body), act=waits_then_stops(found))


def test_a_recorded_result_that_no_longer_fits_pauses_the_run(tmp_path):
    """A result that the changed type cannot hold is no exception in the agent: the run is paused and says so."""

    def code(kind, value):
        @holdfast.step(name="typed")
        async def typed() -> kind:
            return value

        async def body() -> None:
            try:
                await typed()
            except Exception:
                await work("acted upon it")
            await wait()

        return agent_of(body)

    async def act(hf, life):
        run = await hf.start("agent", id="r") if life == 0 else hf.get("r")
        if life == 0:
            await run.wait("waiting")
            return None
        if life == 1:
            await run.send("go")
            with pytest.raises(holdfast.NondeterminismError, match="typed#0"):
                await run.result(timeout=10)
            assert not hf.bodies
            await run.resume()
            return None
        return await run.result(timeout=10)

    agents = [code(str, "text"), code(int, 3), code(str, "text")]
    assert lives(tmp_path / "a.db", *agents, act=act)[-1] == "done"


def test_a_second_outcome_of_a_call_stops_the_run(tmp_path):
    """A journal that has two outcomes under one key, which no owner writes, is found before any effect."""
    path = tmp_path / "a.db"

    async def body() -> str:
        await work("once")
        await wait()
        return await other("after")

    act = waits_then_stops("work#0")
    lives(path, agent_of(body), act=act)
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("UPDATE runs SET next_seq = next_seq + 1")
        db.execute(
            "INSERT INTO events (run_id, seq, kind, key, data, value, at, epoch) SELECT run_id, "
            "(SELECT max(seq) + 1 FROM events), kind, key, data, value, at, epoch FROM events WHERE key = 'work#0'"
        )
    lives(path, agent_of(body), act=lambda hf, _: act(hf, 1))
