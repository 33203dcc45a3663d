"""Runs from outside: starting, finding, watching, telling and deleting them, from this process or another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from tests.agents.runs import with_client

import holdfast
import holdfast.testing
from holdfast import BadArguments, RunExists, RunFinished, UnknownAgent, UnknownRun


@dataclass
class Order:
    item: str
    count: int = 1


@holdfast.step
async def work(text: str) -> str:
    return text


@holdfast.agent
async def greet(name: str, times: int = 1, *, loud: bool = False) -> str:
    text = await work(f"hello {name}" * times)
    return text.upper() if loud else text


@holdfast.agent
async def listens(count: int = 1) -> list[object]:
    return [await holdfast.receive("news") for _ in range(count)]


@holdfast.agent
async def orders(order: Order, due: datetime) -> Order:
    return order


@holdfast.agent
async def breaks() -> None:
    raise ValueError("broken")


@holdfast.agent
async def naps() -> None:
    await holdfast.sleep("1h")


@holdfast.agent
async def parent() -> str:
    return await greet("child")


ALL = [greet, listens, orders, breaks, naps, parent]


def serving(test):
    """Run the test with a client that serves all agents of this file."""
    with_client(test, agents=ALL)


# Starting


async def test_the_same_id_is_the_same_run():
    """However often and from wherever it is started: one run, one result; defaults and keywords make no difference."""
    async with holdfast.testing.open(agents=ALL) as hf:
        handles = [
            await hf.start(greet, "ana", id="g"),
            await hf.start(greet, "ana", 1, id="g"),
            await hf.start(greet, kwargs={"name": "ana"}, id="g"),
            await hf.start("greet", "ana", id="g"),
        ]
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            handles.append(await elsewhere.start(greet, "ana", id="g"))
            handles.append(await elsewhere.start("greet", "ana", id="g"))
            assert {await run.result() for run in handles} == {"hello ana"}
        assert hf.bodies[work] == 1
        assert await hf.run(greet, "ana", id="g") == "hello ana"  # also after its end
        assert len(await hf.runs()) == 1


async def test_other_arguments_or_another_agent_show_both():
    """RunExists tells what the run was started as and what was asked for now; nothing changes."""
    async with holdfast.testing.open(agents=ALL) as hf:
        await hf.start(greet, "ana", id="g")
        with pytest.raises(RunExists, match=r"run 'g' exists as greet\(.*ana.*\).*started as greet\(.*bob.*\)"):
            await hf.start(greet, "bob", id="g")
        with pytest.raises(RunExists, match=r"exists as greet\(.*started as naps\("):
            await hf.start(naps, id="g")
        with pytest.raises(RunExists):
            await hf.start(greet, "ana", id="g", kwargs={"loud": True})
        await hf.start(greet, f"{'a' * 200} b", id="long")
        with pytest.raises(RunExists, match=r"started as greet\(.*\) \(they differ in name\)"):
            await hf.start(greet, f"{'a' * 200} c", id="long")


@pytest.mark.parametrize("bad", ["", " ", "a b", "a/b", "a\n", "ä", "x" * 201, 7, "a#1", "a'b"])
async def test_ids_are_checked(bad):
    """An id that would not fit into a URL or a shell is refused wherever it is given, and shown."""
    async with holdfast.testing.open(agents=ALL) as hf:
        with pytest.raises(BadArguments, match="is not a run id; use 1 to 200 letters"):
            await hf.start(greet, "ana", id=bad)
        with pytest.raises(BadArguments, match="is not a run id"):
            hf.get(bad)
        assert await hf.runs() == []


@pytest.mark.parametrize("good", ["a", "A.b:c@d-e_f", "x" * 200, "0"])
async def test_ids_may_be(good):
    """Letters, digits and a few signs."""
    async with holdfast.testing.open(agents=ALL) as hf:
        assert await hf.run(greet, "ana", id=good) == "hello ana"


async def test_made_up_ids_are_ids():
    """An agent may be called what Python allows; the ids made from its name, and its children's, are still ids."""

    @holdfast.agent(name="größe")
    async def size() -> str:
        return holdfast.this_run().id

    @holdfast.agent
    async def élève() -> str:  # noqa: PLC2401 - that is the point
        return await size()

    async with holdfast.testing.open(agents=[élève, size]) as hf:
        run = await hf.start(élève)
        assert run.id != (await hf.start(élève)).id
        child = await run.result()
        assert await hf.get(run.id).result() == await hf.get(child).result() == child


async def test_arguments_are_typed_as_in_a_call():
    """By position and by name, beside the options of `start`; the same arguments are the same run however they came."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(greet, "ana", times=2, loud=True, id="g", labels={"team": "a"})
        assert await run.result() == "HELLO ANAHELLO ANA"
        assert (await run.info()).labels == {"team": "a"}
        assert not (await hf.start(greet, "ana", 2, kwargs={"loud": True}, id="g")).created
        assert not (await hf.start("greet", name="ana", times=2, kwargs={"loud": True}, id="g")).created
        assert await hf.run(greet, name="bo", id="b", after="1h") == "hello bo"
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            assert not (await elsewhere.start("greet", "ana", times=2, loud=True, id="g")).created
            with pytest.raises(BadArguments, match=r"'times' was given twice, as a keyword and in kwargs="):
                await elsewhere.start("greet", "ana", times=2, kwargs={"times": 3})
            with pytest.raises(BadArguments, match="the name of an argument is a text, and kwargs= has 7"):
                await elsewhere.start("greet", "ana", kwargs={7: 3})
        with pytest.raises(BadArguments, match=r"'loud' was given twice, as a keyword and in kwargs="):
            await hf.start(greet, "ana", loud=True, kwargs={"loud": True})
        with pytest.raises(BadArguments, match="the name of an argument is a text, and kwargs= has 7"):
            await hf.start(greet, "ana", kwargs={7: 3})
        with pytest.raises(BadArguments, match=r"no parameter and `start` no option 'label'; did you mean labels="):
            await hf.start(greet, "ana", label={"team": "a"})


async def test_a_parameter_named_like_an_option_goes_through_kwargs():
    """Which of the two is meant cannot be told, so it is refused with that advice, by code and by name alike."""

    @holdfast.agent
    async def tagged(id: int, labels: str = "none", *, budget: int = 0) -> tuple[str, int, str, int]:
        return holdfast.this_run().id, id, labels, budget

    async with holdfast.testing.open(agents=[tagged]) as hf:
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            for client, agent in ((hf, tagged), (elsewhere, "tagged")):
                for given in ({"id": "a"}, {"labels": {"team": "a"}}, {"budget": holdfast.Budget(usd=1)}):
                    (name,) = given
                    with pytest.raises(
                        BadArguments, match=rf"agent 'tagged' has a parameter .*kwargs={{'{name}': \.\.\.}}"
                    ):
                        await client.start(agent, *(() if "id" in given else (1,)), **given)
            assert await hf.runs() == []
        run = await hf.start(tagged, 3, id="a", kwargs={"labels": "x"}, labels={"team": "a"})
        assert await run.result() == ("a", 3, "x", 0)
        assert (await run.info()).labels == {"team": "a"}
        assert await hf.run(tagged, kwargs={"id": 4, "budget": 7}, id="b") == ("b", 4, "none", 7)
        assert await hf.run(tagged, 5, kwargs={}, id="c", budget=holdfast.Budget(usd=1)) == ("c", 5, "none", 0)
        assert (await hf.run(tagged, 6, id="d"))[:2] == ("d", 6)  # `id` has its value: the keyword is the option


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'name'"),
        (("a", 1, True), {}, "too many positional arguments"),
        (("a",), {"volume": 3}, "unexpected keyword argument 'volume'"),
        ((3,), {}, "name: found int 3 where str is annotated"),
        (("a", "many"), {}, "times: found str 'many' where int is annotated"),
        ((object(),), {}, "name"),
    ],
)
async def test_wrong_arguments_are_refused_at_the_start(args, kwargs, says):
    """Before anything is written, with what the agent takes and what it got."""
    async with holdfast.testing.open(agents=ALL) as hf:
        with pytest.raises((BadArguments, holdfast.NotStorable), match=says):
            await hf.start(greet, *args, kwargs=kwargs)
        assert await hf.runs() == []


@pytest.mark.parametrize(
    ("agent", "args", "path"),
    [
        ("greet", (3,), r"agent 'greet': name: found int 3, expected string"),
        ("greet", (), r"name: found nothing, expected string"),
        ("greet", ("a", 1, 2), r"takes \(name, times, loud\); got 3 arguments by position"),
        ("orders", ({"count": 1}, "2026-01-01T00:00:00Z"), r"order.item: found nothing"),
        (
            "orders",
            ({"item": "tea", "count": "x"}, "2026-01-01T00:00:00Z"),
            r"order.count: found str 'x', expected integer",
        ),
        ("orders", ({"item": "tea"}, "noon"), r"due: found str 'noon', expected string \(date-time\)"),
    ],
)
async def test_a_start_by_name_is_checked_against_the_published_schema(agent, args, path):
    """A process without the code is told at once, with the path, what does not fit."""
    async with holdfast.testing.open(agents=ALL) as hf:
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            with pytest.raises(BadArguments, match=path):
                await elsewhere.start(agent, *args)
            assert await elsewhere.runs() == []
            run = await elsewhere.start("orders", {"item": "tea"}, "2026-01-01T00:00:00Z")
        assert await hf.get(run.id, orders).result() == Order("tea")


async def test_a_name_nobody_published_is_unknown():
    """UnknownAgent lists the names there are; anything but an agent or a name is refused."""
    async with holdfast.testing.open(agents=ALL) as hf:
        says = (
            r"no worker has published an agent 'gret' .*\(published: breaks, greet, listens.*`holdfast worker FILE.py`"
        )
        with pytest.raises(UnknownAgent, match=says):
            await hf.start("gret", "ana")
        for wrong in (work, greet.fn, None, 3):
            with pytest.raises(BadArguments, match=r"start takes an agent .* or its name"):
                await hf.start(wrong)


async def test_a_run_that_nobody_serves_says_so(tmp_path):
    """It is accepted, waits for a worker, and goes on when one comes; a worker that left does not count."""
    url = f"sqlite:{tmp_path / 'a.db'}"

    async with holdfast.open(url) as hf:
        run = await hf.start(greet, "ana", id="g")
        info = await run.info()
        assert (info.status, info.waits_for) == ("ready", "worker")
        assert [(each.id, each.waits_for) for each in await hf.runs()] == [("g", "worker")]
    async with holdfast.open(url, agents=[naps]) as hf:
        assert (await hf.get("g").info()).waits_for == "worker"
    async with holdfast.open(url, agents=[greet]) as hf:
        assert await hf.get("g").result() == "hello ana"
    async with holdfast.open(url) as hf:
        later = await hf.start("greet", "bob")
        assert (await later.info()).waits_for == "worker"


async def test_somebody_who_waits_is_told_that_nobody_serves_the_run(tmp_path, caplog, monkeypatch):
    """Once in the log while he waits, with what to do, and in what a timeout says; not of a run that is put off."""
    monkeypatch.setattr("holdfast.client.run.UNSERVED_S", 0.0)
    monkeypatch.setattr("holdfast.client.waiters._LOOK_AGAIN_S", 0.02)
    url, says = f"sqlite:{tmp_path / 'a.db'}", "no worker that lives serves agent 'greet'"

    async with holdfast.open(url) as hf:
        later = await hf.start(greet, "bo", after="1h")
        with pytest.raises(TimeoutError, match=r"it goes on all the same, and can be asked again$"):
            await later.result(timeout=0.2)
        assert not caplog.records
        run = await hf.start(greet, "ana", id="g")
        for wait in (run.result, run.wait, run.wait_for_question):
            with pytest.raises(TimeoutError, match=f"{says}.*`holdfast worker FILE.py`"):
                await wait(timeout=0.01)
            caplog.clear()
            waiting = asyncio.create_task(wait())
            while not caplog.records:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # in which it looks again, and says nothing more
            waiting.cancel()
            await asyncio.wait([waiting])
            (record,) = caplog.records
            assert says in record.getMessage()
            assert "agents=[greet]" in record.getMessage()
        caplog.clear()
        waiting = asyncio.create_task(run.result())
        async with holdfast.open(url, agents=[greet]):
            assert await waiting == "hello ana"


def redefined(name):
    """Another function with the name of an agent, as a cell of a notebook that was run again makes one."""

    @holdfast.agent(name=name)
    async def other(name: str) -> str:
        await holdfast.receive("go")
        return f"bye {name}"

    return other


async def test_another_function_of_that_name_is_not_started_as_the_one_that_is_served():
    """`start` refuses with both places; `serve` lets the new one take the name, and runs in flight keep their code."""
    again = redefined("greet")

    @holdfast.agent(name="greet")
    async def first(name: str) -> str:
        await holdfast.receive("go")
        return f"hello {name}"

    async with holdfast.testing.open(agents=[first]) as hf:
        in_flight = await hf.start(first, "ana", id="g")
        await in_flight.wait("waiting")
        says = r"agent 'greet' is served here by another function, .*first .*test_runs.py.*hf.serve\(greet\)"
        with pytest.raises(BadArguments, match=says):
            await hf.start(again, "bo")
        assert [each.id for each in await hf.runs()] == ["g"]
        await hf.serve(again)
        run = await hf.start(again, "bo")
        for each in (in_flight, run):
            await each.send("go")
        assert await run.result() == "bye bo"
        assert await in_flight.result() == "bye ana"  # it had left memory, as for a deploy, and fits the new code
        await hf.crash()
        assert await (await hf.start(again, "cy", kwargs={}, id="c")).wait("waiting")
        with pytest.raises(BadArguments, match="is served here by another function"):
            await hf.start(first, "bo")


async def test_agents_can_be_served_later(tmp_path):
    """A client that was opened without agents serves those it is given, and carries their runs."""
    async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}") as hf:
        run = await hf.start(greet, "ana")
        await hf.serve(greet, naps)
        assert await run.result() == "hello ana"
        assert [each.name for each in await hf.agents() if each.served] == ["greet", "naps"]
        with pytest.raises(BadArguments, match="takes agents"):
            await hf.serve(work)


async def test_a_client_is_used_in_the_loop_that_opened_it(tmp_path):
    """From another loop it is refused, with what to do instead; asyncio's own words would not say which loop is meant."""
    async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=[greet]) as hf:
        run = await hf.start(greet, "ana")
        await run.result()

        async def elsewhere():
            for use in (hf.runs, run.info, run.result, lambda: hf.start(greet, "bo"), lambda: anext(hf.events())):
                with pytest.raises(BadArguments, match=r"opened in another event loop.*holdfast.sync.open"):
                    await use()

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        assert await hf.run(greet, "bo") == "hello bo"


async def test_a_start_may_be_put_off():
    """`after=` begins the run later and not earlier, and says until when it waits; a duration that is none is refused."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(greet, "ana", after="2 days")
        info = await run.info()
        assert (info.status, info.waits_for, info.due_at - info.created_at) == ("ready", "timer", timedelta(days=2))
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            assert [each.waits_for for each in await elsewhere.runs()] == ["timer"]
        await hf.advance("47h")
        assert ((await run.info()).status, hf.bodies[work]) == ("ready", 0)
        await hf.advance("1h")
        assert await run.result() == "hello ana"
        with pytest.raises(BadArguments, match="is not a duration"):
            await hf.start(greet, "ana", after="soon")


# Finding


async def test_runs_are_listed_and_filtered():
    """Newest first, by status, agent, labels and parent, in pages."""
    async with holdfast.testing.open(agents=ALL) as hf:
        for n in range(5):
            await hf.start(greet, str(n), id=f"g{n}", labels={"team": "a" if n % 2 else "b", "n": str(n)})
        await hf.start(naps, id="nap", labels={"team": "a"})
        await hf.start(breaks, id="bad")
        await hf.run(parent, id="p")
        await hf.get("nap").wait("waiting")
        await hf.get("bad").wait()

        async def ids(**options):
            return [info.id for info in await hf.runs(**options)]

        for n in range(5):
            await hf.get(f"g{n}").result()
        assert (await ids(agent=greet, limit=2, labels={"team": "b"})) == ["g4", "g2"]
        assert (await ids(agent="greet", labels={"team": "b"}, after="g2")) == ["g0"]
        assert await ids(labels={"team": "a"}, status="waiting") == ["nap"]
        assert await ids(status=["waiting", "failed"]) == ["bad", "nap"]
        assert await ids(labels={"team": "a", "n": "1"}) == ["g1"]
        (child,) = await hf.runs(parent="p")
        assert (child.agent, child.root, child.parent, child.id.startswith("p.greet-")) == ("greet", "p", "p", True)
        assert len(await ids()) == 9
        with pytest.raises(BadArguments, match="'finished' is no state of a run; there are: ready, running, waiting"):
            await hf.runs(status="finished")


@pytest.mark.parametrize("labels", [{"a": 1}, {1: "a"}, {"a": None}])
async def test_labels_are_strings(labels):
    """Anything else is refused and shown."""
    async with holdfast.testing.open(agents=ALL) as hf:
        with pytest.raises(BadArguments, match="labels are strings"):
            await hf.start(greet, "ana", labels=labels)


async def test_info_tells_the_life_of_a_run():
    """Status, what it waits for, when, how many steps, and how it ended."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(naps, id="n", labels={"a": "b"})
        info = await run.wait("waiting")
        assert (info.status, info.waits_for, info.agent, info.labels) == ("waiting", "timer", "naps", {"a": "b"})
        assert info.due_at > info.started_at >= info.created_at
        assert (info.finished_at, info.parent, info.root, info.crashes) == (None, None, "n", 0)
        ended = await run.wait()
        assert (ended.status, ended.waits_for, ended.due_at) == ("completed", None, None)
        assert ended.finished_at >= info.due_at
        failed = await (await hf.start(breaks)).wait()
        assert (failed.status, failed.error) == ("failed", "ValueError: broken")


async def test_waiting_for_what_cannot_come():
    """`wait` raises when the run has ended otherwise; a state that is none is refused; `timeout=` is kept."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = await hf.start(greet, "ana", id="g")
        with pytest.raises(RunFinished, match="run 'g' is completed and will never be failed or waiting"):
            await run.wait("waiting", "failed")
        with pytest.raises(BadArguments, match="'done' is no state of a run"):
            await run.wait("done")
        listener = await hf.start(listens)
        for waiting in (listener.result(timeout=0.01), listener.wait(timeout="10ms")):
            with pytest.raises(TimeoutError, match=r"did not come so far within 10 ms(; it goes on|: it waits)"):
                await waiting


async def test_a_wait_in_vain_says_what_the_run_waits_for():
    """A person, in a child too, a message or a resume: each with the call and the command that go on."""

    @holdfast.agent
    async def below() -> bool:
        return bool(await holdfast.approve("Go on?"))

    @holdfast.agent
    async def above() -> bool:
        return await below()

    @holdfast.agent
    async def counts() -> int:
        return await holdfast.ask("How many?", int)

    async def says(waiting):
        with pytest.raises(TimeoutError) as caught:
            await waiting
        return str(caught.value)

    async with holdfast.testing.open(agents=[above, below, counts, listens]) as hf:
        run = await hf.start(above, id="a")
        asked = await run.wait_for_question()
        told = await says(run.result(timeout="10ms"))
        assert f"it waits for a person (question {asked.id!r}, of run {asked.run!r}: Go on?)" in told
        assert f"`hf.approve({asked.id!r}, by=...)`, `hf.deny` or `holdfast approve {asked.id}`" in told
        run = await hf.start(counts, id="c")
        asked = await run.wait_for_question()
        assert f"`holdfast answer {asked.id} VALUE`" in await says(run.result(timeout="10ms"))
        run = await hf.start(listens, id="l")
        await run.wait("waiting", waits_for="message")
        told = await says(run.result(timeout="10ms"))
        assert "a message on 'news'; `hf.get('l').send('news', ...)` or `holdfast send l news VALUE` sends one" in told
        await run.pause(reason="lunch")
        told = await says(run.wait("completed", timeout="10ms"))
        assert "it is stopped, paused by someone: lunch; " in told
        assert "`holdfast resume l` lets it go on" in told


async def test_waiting_for_one_thing_among_many():
    """`wait` can say for what the run must wait: a retry is a wait too, and not what somebody meant who has a message."""

    @holdfast.step(retry=holdfast.Retry(3, first="10s", factor=1))
    async def shaky() -> str:
        if holdfast.this_step().attempt < 3:
            raise ConnectionError("busy")
        return "there"

    @holdfast.agent
    async def asks() -> str:
        return await shaky() + await holdfast.receive("news", str)

    async with holdfast.testing.open(agents=[asks]) as hf:
        run = await hf.start(asks)
        assert (await run.wait("waiting")).waits_for == "retry"
        assert (await run.wait("waiting", waits_for=["message", "person"])).waits_for == "message"
        assert hf.bodies[shaky] == 3
        await run.send("news", "!")
        assert await run.result() == "there!"
        with pytest.raises(RunFinished, match="is completed and will never be waiting for a message"):
            await run.wait("waiting", waits_for="message")
        for wrong in ({"waits_for": "retri"}, {"waits_for": []}):
            with pytest.raises(BadArguments, match=r"nothing that a run waits for; there are: person, message, child"):
                await run.wait("waiting", **wrong)
        with pytest.raises(BadArguments, match='write `wait\\("waiting", waits_for='):
            await run.wait("completed", waits_for="message")


async def test_waiting_for_a_question():
    """Until the run or one below it asks a person; one that ends or is paused first says so."""

    @holdfast.agent
    async def below() -> bool:
        await holdfast.sleep("1h")
        return bool(await holdfast.approve("Go on?"))

    @holdfast.agent
    async def above() -> bool:
        return await below()

    async with holdfast.testing.open(agents=[above, below]) as hf:
        run = await hf.start(above, id="a")
        question = await run.wait_for_question()
        assert (question.question, question.root, question.path) == ("Go on?", "a", ("above", "below"))
        assert await run.wait_for_question(timeout=5) == question
        await hf.approve(question, by="ana")
        assert await run.result() is True
        with pytest.raises(RunFinished, match="run 'a' is completed and will never ask"):
            await run.wait_for_question()
        other = await hf.start(above, id="b")
        await other.pause(reason="lunch")
        with pytest.raises(holdfast.RunPaused, match="lunch"):
            await other.wait_for_question()


async def test_a_run_that_is_not_there():
    """A handle costs nothing; whatever is asked of it then says that there is no such run."""
    async with holdfast.testing.open(agents=ALL) as hf:
        run = hf.get("nobody")
        asks = [run.info, run.result, run.wait, run.resume, run.retry, run.delete, lambda: run.send("news", 1)]
        for ask in [*asks, run.events(follow=False).__anext__]:
            with pytest.raises(UnknownRun, match="no run 'nobody'"):
                await ask()
        with pytest.raises(BadArguments, match=r"write `await run.result\(\)`"):
            await run
        assert repr(run) == "<run nobody>"
        await hf.run(greet, "ana", id="g")
        with pytest.raises(BadArguments, match="run 'g' is of agent 'greet', not of 'naps'"):
            await hf.get("g", naps).result()
