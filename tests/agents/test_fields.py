"""Fields that a type does not know: refused where they come in, and never dropped from what was recorded."""

import asyncio
import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from tests.engine.lives import lives

import holdfast
import holdfast.testing
from holdfast import BadArguments, NondeterminismError, RunPaused, Settings

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_a_run_is_given_back_for_a_worker_that_knows_the_field"}


@dataclasses.dataclass
class Access:
    groups: list[str]
    days: int = 30


class Loose(BaseModel):
    model_config = ConfigDict(extra="ignore")
    days: int = 30


@holdfast.agent
async def grants() -> int:
    return (await holdfast.approve("Grant this?", show=Access(["dev"]), edit=True)).data.days


@holdfast.agent
async def asks() -> list[Access]:
    return await holdfast.ask("Who?", list[Access])


@holdfast.agent
async def loose() -> int:
    return (await holdfast.ask("How long?", Loose)).days


@holdfast.agent
async def takes(access: Access) -> int:
    return access.days


@holdfast.agent
async def hears() -> str:
    try:
        return str(await holdfast.receive("access", Access))
    except BadArguments as error:
        return str(error)


async def test_what_is_entered_has_no_other_fields_than_its_type():
    """Edits, answers and arguments, without the agent's code; the nearest field is named."""
    async with holdfast.testing.open(agents=[grants, asks, loose, takes]) as hf:
        for agent in (grants, asks, loose):
            await (await hf.start(agent, id=agent.name)).wait("waiting")
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            with pytest.raises(BadArguments, match=r"day: found a name that is not known, expected 'days', perhaps"):
                await elsewhere.approve("grants", by="ana", data={"groups": ["dev"], "day": 1})
            with pytest.raises(
                BadArguments, match=r"\[0\].day: found a name that is not known, expected 'days', perhaps"
            ):
                await elsewhere.answer("asks", [{"groups": [], "day": 1}], by="ana")
            with pytest.raises(
                BadArguments, match=r"access.dayz: found a name .* 'days', perhaps \(one of: groups, days\)"
            ):
                await elsewhere.start("takes", {"groups": [], "dayz": 1})
            with pytest.raises(
                BadArguments, match=r"acces: found a name that is not known, expected 'access', perhaps"
            ):
                await elsewhere.start("takes", acces={"groups": []})
            await elsewhere.approve("grants", by="ana", data={"groups": ["dev"], "days": 1})
            await elsewhere.answer("asks", [{"groups": []}], by="ana")
            await elsewhere.answer("loose", {"day": 1}, by="ana")  # its type says that other fields are fine
        assert await hf.get("grants").result() == 1
        assert await hf.get("asks").result() == [Access([], 30)]
        assert await hf.get("loose").result() == 30


async def test_a_type_that_takes_any_names_takes_other_fields():
    """Beside a structured type too: what has a field that is not in it is a plain dict, as the annotation says."""

    @holdfast.agent
    async def either() -> str:
        return repr(await holdfast.ask("How long?", Access | dict[str, Any]))

    async with holdfast.testing.open(agents=[either]) as hf:
        found = []
        for answer in ({"groups": [], "days": 1}, {"groups": [], "day": 1}):
            run = await hf.start(either)
            await hf.answer(await run.wait_for_question(), answer, by="ana")
            found.append(await run.result())
        returned = found
    assert returned == ["Access(groups=[], days=1)", "{'groups': [], 'day': 1}"]


async def test_a_message_has_no_other_fields_than_the_type_it_is_received_as():
    """The agent is told which one."""
    async with holdfast.testing.open(agents=[hears]) as hf:
        run = await hf.start(hears)
        await run.send("access", {"groups": [], "day": 1})
        assert "Access has no field 'day'; did you mean 'days'?" in await run.result()


# What was recorded

OLD = dataclasses.make_dataclass("Tally", [("sent", list, dataclasses.field(default_factory=list))])
NEW = dataclasses.make_dataclass("Tally", [("mailed", list, dataclasses.field(default_factory=list))])


@holdfast.step
async def send(to: str) -> str:
    return holdfast.idempotency_key()


def mails(tally: Any, **options: Any) -> Any:
    """An agent whose state is of this type: it sends to those that its state does not have."""
    name = dataclasses.fields(tally)[0].name

    @holdfast.agent(name="mails")
    async def agent() -> list[str]:
        state = await holdfast.restore(tally(), **options)
        for each in ("ana", "bob"):
            if each not in getattr(state, name):
                await send(each)
                getattr(state, name).append(each)
                state = await holdfast.checkpoint(state)
                await holdfast.receive("go")
        return getattr(state, name)

    return agent


def migrated(plain: dict[str, Any]) -> Any:
    return NEW(plain["sent"])


def renamed(plain: dict[str, Any]) -> Any:
    return {"mailed": plain["sent"]}


@pytest.mark.parametrize("migrate", [migrated, renamed])
def test_a_state_whose_field_was_renamed_loses_nothing(tmp_path, migrate):
    """The run is paused with the field's name before it sends again what was sent; then it is said what became of it."""

    async def act(hf, life):
        run = hf.get("r")
        if life == 0:
            await (await hf.start("mails", id="r")).wait("waiting")
            return hf.bodies[send]
        await run.send("go")
        if life == 1:
            with pytest.raises(NondeterminismError, match=r"the state of a checkpoint, .*Tally has no field 'sent'"):
                await run.result(timeout=20)
            return hf.bodies[send]
        await run.resume()
        await run.send("go")
        return [await run.result(timeout=20), hf.bodies[send]]

    agents = [[mails(OLD)], [mails(NEW)], [mails(NEW, migrate=migrate)]]
    assert lives(tmp_path / "a.db", *agents, act=act) == [1, 0, [["ana", "bob"], 1]]


def results(kind: Any, **options: Any) -> Any:
    """An agent that has a recorded result of this type."""

    @holdfast.step(name="look", **options)
    async def look() -> kind:
        return kind()

    @holdfast.agent(name="results")
    async def agent() -> dict[str, Any]:
        found = await look()
        await holdfast.receive("go")
        return dataclasses.asdict(found)

    return agent


@pytest.mark.parametrize(
    ("options", "result"), [({}, None), ({"migrate": renamed}, {"mailed": []}), ({"migrate": lambda _: 3}, None)]
)
def test_a_result_with_a_field_that_is_gone_is_read_by_migrate_or_not_at_all(tmp_path, options, result):
    """What migrate returns is checked as well."""

    async def act(hf, life):
        if life == 0:
            await (await hf.start("results", id="r")).wait("waiting")
            return None
        await hf.get("r").send("go")
        return await hf.get("r").result(timeout=20)

    agents = [[results(OLD)], [results(NEW, **options)]]
    if result is not None:
        assert lives(tmp_path / "a.db", *agents, act=act)[1] == result
        return
    told = "what migrate returned does not fit either" if options else "Tally has no field 'sent'"
    with pytest.raises(NondeterminismError, match=told):
        lives(tmp_path / "a.db", *agents, act=act)


def test_arguments_that_the_code_does_not_know_pause_the_run(tmp_path):
    """A parameter that is gone, and a field of one."""

    def takes_one(kind: Any) -> Any:
        @holdfast.agent(name="one")
        async def one(tally: kind) -> int:
            return 1

        return one

    async def act(hf, life):
        if life == 0:
            await hf.start("one", OLD(["ana"]), id="r", after="1h")
            return None
        return await hf.get("r").result(timeout=20)

    with pytest.raises(RunPaused, match=r"its arguments do not fit agent 'one': .*Tally has no field 'sent'"):
        lives(tmp_path / "a.db", [takes_one(OLD)], [takes_one(NEW)], act=act)


# Rolling deploys


@pytest.mark.parametrize("lives_on", [True, False])
async def test_a_run_is_given_back_for_a_worker_that_knows_the_field(store_url, lives_on):
    """One worker still has the old code: it gives the run back, and does not pause it as long as the new one lives."""
    gate, busy = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def held() -> None:
        busy.set()
        await gate.wait()

    @holdfast.agent
    async def blocks() -> None:
        await held()

    newer = [mails(NEW), blocks]
    async with holdfast.open(store_url, agents=newer) as hf:
        await (await hf.start("mails", id="r")).wait("waiting")
    async with holdfast.open(store_url, agents=[mails(OLD)]) as old:
        run = old.get("r")
        async with holdfast.open(store_url, agents=newer, settings=Settings(concurrency=1, stop_grace_s=0)) as new:
            await new.start("blocks")
            await busy.wait()
            await run.send("go")
            await run.send("go")
            async with asyncio.timeout(20):
                while (info := await run.info()).waits_for != "worker":
                    await asyncio.sleep(0.01)
            assert info.status == "waiting"
            assert "Tally has no field 'mailed'" in info.reason
            if lives_on:
                gate.set()
                assert await new.get("r").result(timeout=30) == ["ana", "bob"]
        if not lives_on:
            with pytest.raises(NondeterminismError, match="Tally has no field 'mailed'"):
                await run.result(timeout=30)


async def test_a_run_is_paused_when_nobody_is_left_who_knows_the_field(store_url):
    """The worker that knew it has gone."""
    async with holdfast.open(store_url, agents=[mails(NEW)]) as hf:
        await (await hf.start("mails", id="r")).wait("waiting")
    async with holdfast.open(store_url, agents=[mails(OLD)]) as old, holdfast.open(store_url, agents=[mails(OLD)]):
        await old.get("r").send("go")
        with pytest.raises(NondeterminismError, match="Tally has no field 'mailed'"):
            await old.get("r").result(timeout=60)
