"""Watching and telling runs: events, messages, deleting, logs, and clients that are not open or do not meet."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from tests.agents.runs import Gate, history, kinds, with_client
from tests.client.test_runs import ALL, breaks, greet, listens, naps, parent, work

import holdfast
import holdfast.testing
from holdfast import BadArguments, RunActive, RunFinished


async def test_events_of_one_run_can_be_followed():
    """From the first or any later one, live until the end; the number of those seen is where to go on."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(listens, 2)

        async def follow():
            return [(event.seq, event.kind) async for event in run.events()]

        following = asyncio.create_task(follow())
        await run.send("news", 1)
        await run.send("news", 2)
        assert await following == [(0, "message.received"), (1, "message.received"), (2, "run.completed")]
        assert [event.seq async for event in run.events(after=1)] == [1, 2]
        assert [event.run for event in await history(hf, run.id)] == [run.id] * 3


async def test_events_of_all_runs_can_be_followed():
    """In one order for all runs; a reader that comes back with its last position misses none and sees none twice."""
    async with holdfast.testing.open(agents=ALL) as hf:
        for n in range(3):
            await hf.run(greet, str(n), id=f"g{n}")
        everything = [event async for event in hf.events(follow=False)]
        assert [(event.run, event.kind) for event in everything] == [
            (f"g{n}", kind) for n in range(3) for kind in ("step.completed", "run.completed")
        ]
        positions = [event.position for event in everything]
        assert positions == sorted(set(positions))
        rest = [event async for event in hf.events(after=positions[3], follow=False)]
        assert rest == everything[4:]
        ends = [event.run async for event in hf.events(kinds=["run.completed"], follow=False)]
        assert (
            ends == ["g0", "g1", "g2"] == [event.run async for event in hf.events(kinds="run.completed", follow=False)]
        )
        with pytest.raises(BadArguments, match=r"'step.done' is no kind of event; there are: run.interrupted"):
            await anext(hf.events(kinds=["step.done"]))

        waiting = asyncio.create_task(anext(hf.events(after=positions[-1], kinds=["run.failed"])))
        await hf.start(breaks, id="b")
        assert (await waiting).run == "b"


async def test_messages_with_a_key_are_sent_once():
    """The same key twice is one message, also after a crash and after the end; without a key each is its own."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(listens, 3)
        await run.send("news", "a", key="1")
        await hf.crash()
        await run.send("news", "a", key="1")
        await run.send("other", "not heard")
        await run.send("news", "b")
        await run.send("news", "b")
        assert await run.result() == ["a", "b", "b"]
        await run.send("news", "a", key="1")
        with pytest.raises(RunFinished, match="is completed and takes no more messages"):
            await run.send("news", "c")


@pytest.mark.parametrize("topic", ["", "x" * 201, None, 3])
async def test_topics_are_checked(topic):
    """A topic is a short string, where it is sent and where it is received."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(listens)
        with pytest.raises(BadArguments, match="is not a topic"):
            await run.send(topic, 1)


async def test_a_message_that_cannot_be_stored_is_refused():
    """The sender is told; the run hears nothing."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(listens)
        with pytest.raises(holdfast.NotStorable):
            await run.send("news", object())
        await run.send("news", {"ok": (1, 2)})
        assert await run.result() == [{"ok": (1, 2)}]


# Resuming and deleting


async def test_only_a_paused_run_is_resumed():
    """Everything else is told apart: a run that goes on by itself, and one that has ended."""
    async with holdfast.testing.open(agents=ALL) as hf:
        nap = await hf.start(naps)
        await nap.wait("waiting")
        with pytest.raises(RunActive, match="is waiting and not paused: there is nothing to resume"):
            await nap.resume()
        done = await hf.start(greet, "ana")
        await done.result()
        with pytest.raises(RunFinished, match="is completed and cannot be resumed"):
            await done.resume()
        bad = await hf.start(breaks)
        await bad.wait()
        with pytest.raises(RunFinished, match="is failed and cannot be resumed; retry it instead"):
            await bad.resume()


@holdfast.agent(name="changing")
async def takes_one(a: int) -> int:
    await holdfast.sleep("1h")
    return a


@holdfast.agent(name="changing")
async def takes_two(a: int, b: int) -> int:
    return a + b


def test_a_run_whose_arguments_no_longer_fit_is_paused(tmp_path):
    """result() raises RunPaused with the reason; with the old code it is resumed and ends."""
    path = tmp_path / "a.db"

    async def old(hf):
        await (await hf.start(takes_one, 1, id="c")).wait("waiting")

    async def new(hf):
        await hf.advance("1h")
        with pytest.raises(holdfast.RunPaused, match=r"its arguments do not fit agent 'changing'.*'b' is missing"):
            await hf.get("c").result()

    async def again(hf):
        await hf.get("c").resume(by="ana")
        assert await hf.get("c").result() == 1
        assert await kinds(hf, "c") == ["timer.set", "run.resumed", "timer.fired", "run.completed"]

    with_client(old, agents=[takes_one], path=path)
    with_client(new, agents=[takes_two], path=path)
    with_client(again, agents=[takes_one], path=path)


async def test_only_a_finished_run_is_deleted():
    """Its children go with it; an unfinished run, or the child of one, is refused."""
    async with holdfast.testing.open(agents=ALL) as hf:
        nap = await hf.start(naps, id="n")
        await nap.wait("waiting")
        with pytest.raises(RunActive, match="run 'n' is waiting; cancel it first, or wait for its end"):
            await nap.delete()
        await hf.run(parent, id="p")
        assert await hf.get("p").delete() == 2
        assert [info.id for info in await hf.runs()] == ["n"]
        with pytest.raises(holdfast.UnknownRun):
            await hf.get("p").info()


async def test_old_runs_are_pruned():
    """By age and status; failed ones only if asked for, and unfinished ones never."""
    async with holdfast.testing.open(agents=ALL) as hf:
        await hf.run(greet, "old", id="old")
        await (await hf.start(breaks, id="bad")).wait()
        await hf.start(listens, id="open")
        await hf.get("open").wait("waiting")
        await hf.advance("10 days")
        await hf.run(greet, "new", id="new")
        assert await hf.prune("7 days") == 1
        assert sorted(info.id for info in await hf.runs()) == ["bad", "new", "open"]
        assert await hf.prune("7 days", status="failed") == 1
        with pytest.raises(BadArguments, match="prune deletes only runs that have ended, not waiting ones"):
            await hf.prune("7 days", status=["waiting", "failed"])
        with pytest.raises(BadArguments, match="is no state of a run"):
            await hf.prune("7 days", status="old")


# Clients


async def test_a_client_that_is_not_open_says_so(tmp_path):
    """Before it is opened and after it was closed; opening twice is an error too."""
    client = holdfast.open(f"sqlite:{tmp_path / 'a.db'}")

    run = client.get("r")  # a handle needs nothing
    for ask in (run.info, client.runs, lambda: client.start(greet, "a"), client.approvals):
        with pytest.raises(BadArguments, match=r"not open; use `async with holdfast.open\(...\) as hf`"):
            await ask()
    async with client:
        with pytest.raises(BadArguments, match="open already"):
            await client.__aenter__()
        assert await client.runs() == []
    with pytest.raises(BadArguments, match="was closed, and is not open any more"):
        await client.runs()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://x", "is not a store this version can open; write 'sqlite:PATH'"),
        ("agents.db", "is not a store this version can open; write 'sqlite:agents.db'"),
        ("postgres", "is not a PostgreSQL URL; write 'postgresql://user@host/database'"),
        ("temporals://h:1/n", "write 'temporal://host:7233/namespace'"),
        ("cell:x.toml", "is not a store this version can open; write 'cells:x.toml'"),
        (3, "is not a store this version can open; write 'sqlite:PATH'"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url, told):
    """With an example of one that does."""

    async def main():
        async with holdfast.open(url):
            pass

    with pytest.raises(BadArguments, match=told):
        asyncio.run(main())


def test_the_default_store(tmp_path, monkeypatch):
    """`sqlite:holdfast.db` in the current folder; HOLDFAST_URL overrides it, and a URL that is given overrides both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)

    async def main(url=None):
        async with holdfast.open(url) as hf:
            await hf.runs()

    asyncio.run(main())
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:env.db")
    asyncio.run(main())
    asyncio.run(main("sqlite:given.db"))
    assert {"holdfast.db", "env.db", "given.db"} <= {path.name for path in tmp_path.iterdir()}


async def test_clients_in_one_process_do_not_meet():
    """Two stores with runs of the same id, served by agents of the same name, on one loop: each has its own."""

    def named(answer):
        @holdfast.step
        async def say() -> str:
            await gates[answer]()
            return answer

        @holdfast.agent(name="same")
        async def agent() -> str:
            return await say()

        return agent

    gates = {"one": Gate(), "two": Gate()}
    one, two = named("one"), named("two")

    async with holdfast.testing.open(agents=[one]) as first, holdfast.testing.open(agents=[two]) as second:
        runs = [await first.start("same", id="r"), await second.start("same", id="r")]
        for gate in gates.values():
            await gate.reached.wait()
        await first.crash()
        for gate in gates.values():
            gate.open.set()
        assert [await run.result() for run in runs] == ["one", "two"]
        assert (first.bodies["say"], second.bodies["say"]) == (2, 1)


async def test_a_worker_that_cannot_start_leaves_nothing_open(tmp_path):
    """An agent whose annotation cannot be resolved is refused at the opening, and the store is closed again."""

    async def unresolved(x: Nowhere) -> None: ...  # noqa: F821

    with pytest.raises(BadArguments, match="'Nowhere' of its parameter 'x' cannot be resolved"):
        async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=[holdfast.agent(unresolved)]):
            pass
    async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=ALL) as hf:
        assert await hf.run(greet, "ana") == "hello ana"


# Logs

LOG = logging.getLogger("mine")


@holdfast.agent
async def logs() -> None:
    LOG.info("before")
    await log_in_step()
    LOG.info("between")
    await holdfast.sleep("1h")
    LOG.info("after")
    await holdfast.receive("news")
    LOG.info("heard")
    await holdfast.receive("news")
    LOG.info("heard again")


@holdfast.step
def log_in_step() -> None:
    LOG.info("in the step")


@pytest.fixture
def records():
    """What a handler with our filter lets through: message, run, key."""
    kept = []

    class Keep(logging.Handler):
        def emit(self, record):
            kept.append((record.getMessage(), record.run_id, record.step_key))

    handler = Keep()
    handler.addFilter(holdfast.LogFilter())
    LOG.addHandler(handler)
    LOG.setLevel("INFO")
    yield kept
    LOG.removeHandler(handler)


def test_the_log_filter_drops_what_a_replay_repeats(records):
    """Each record once, the very first too, with the run's id and the step's key; those from outside pass unchanged."""

    async def main():
        async with holdfast.testing.open(agents=[logs]) as hf:
            run = await hf.start(logs, id="l")
            async for event in run.events():  # a message each time the run waits for one
                if event.kind in ("timer.fired", "message.received"):
                    await hf.advance("0s")
                    with contextlib.suppress(RunFinished):
                        await run.send("news", 1)

    asyncio.run(main())
    log_in_step()
    LOG.info("outside")
    assert records == [
        ("before", "l", ""), ("in the step", "l", "log_in_step#0"), ("between", "l", ""), ("after", "l", ""),
        ("heard", "l", ""), ("heard again", "l", ""), ("in the step", "", "log_in_step"), ("outside", "", ""),
    ]  # fmt: skip


async def test_a_crash_loses_no_record(records):
    """What was logged after the last commit is logged again by whoever takes over; nothing is left out."""

    @holdfast.agent
    async def short() -> None:
        LOG.info("before")
        await work("x")
        LOG.info("after")

    async for hf in holdfast.testing.crash_everywhere(agents=[short]):
        records.clear()
        await hf.run(short, id="s")
        assert list(dict.fromkeys(records)) == [("before", "s", ""), ("after", "s", "")]
        assert len(records) <= 2 + hf.crashes


async def test_a_history_is_read_in_part_also_where_a_fork_shares_it(store_url):
    """What a fork has from another run and what is its own are one history: forwards, backwards, by kind and by call."""
    async with holdfast.open(store_url, agents=ALL) as hf:
        run = await hf.start(greet, "ana", id="g")
        await run.result(timeout=20)
        fork = await run.fork(by="ana")
        await fork.result(timeout=20)
        whole = [event async for event in fork.events(follow=False)]
        assert [event.seq for event in whole] == list(range(len(whole))) and len(whole) > 2

        async def found(**which):
            return [event async for event in fork.events(follow=False, **which)]

        assert await found(before=len(whole)) == whole
        for limit in range(1, len(whole) + 1):
            assert await found(limit=limit) == whole[:limit]
            assert await found(before=len(whole), limit=limit) == whole[-limit:]
            assert await found(after=limit) == whole[limit:]
            assert [await fork.event(limit - 1)] == whole[limit - 1 : limit]
        assert await found(kinds="step") == [event for event in whole if event.kind.startswith("step.")]
        assert await found(key=whole[0].key) == [event for event in whole if event.key == whole[0].key]
        assert await fork.value(0) == await run.value(0) is not None
        for which in ({"before": "x"}, {"limit": 0}, {"kinds": "walk"}, {"key": 1}, {"search": "\0"}):
            with pytest.raises(BadArguments):
                await found(**which)
        with pytest.raises(BadArguments, match="has no event 99"):
            await fork.value(99)
