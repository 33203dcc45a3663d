"""Numbers that no database, float or clock can hold are refused where they come in; a run that cannot be set up is paused."""

import asyncio
import math

import pytest
from tests.http.site import on_a_server
from tests.workers import Worker

import holdfast
from holdfast import BadArguments, Budget, Limit, Rate, Retry
from holdfast.http.connections import Limits
from holdfast.words.durations import epoch_ms

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_what_is_asked_of_a_store_is_bounded"}

HUGE = [10**30, 10**400, 10**5000, -1, -(10**30), math.nan, math.inf, 2**63]
DOORS = {
    "tokens": lambda n: Budget(tokens=n),
    "usd": lambda n: Budget(usd=n),
    "steps": lambda n: Budget(steps=n),
    "model_calls": lambda n: Budget(model_calls=n),
    "wall": lambda n: Budget(wall=n),
    "soft": lambda n: Budget(steps=1, soft=n),
    "limit": Limit,
    "rate": lambda n: Rate(n, every="1m"),
    "every": lambda n: Rate(1, every=n),
    "rate without a time": Rate,
    "attempts": Retry,
    "factor": lambda n: Retry(3, factor=n),
    "first": lambda n: Retry(3, first=n),
    "priority": lambda n: holdfast.agent(priority=n)(waits.spec.fn),
    "spent": holdfast.spend,
    "spent tokens": lambda n: holdfast.spend(input_tokens=n),
}
LISTS = {
    "runs": lambda hf, n: hf.runs(limit=n),
    "approvals": lambda hf, n: hf.approvals(limit=n),
    "audit": lambda hf, n: hf.audit(limit=n),
    "audit before": lambda hf, n: hf.audit(before=n - 1),
    "conversations": lambda hf, n: hf.conversations(limit=n),
    "since": lambda hf, n: hf.runs(since=n),
    "events": lambda hf, n: anext(hf.events(after=n - 1)),
    "history": lambda hf, n: anext(hf.get("w").events(after=n - 1)),
    "stream": lambda hf, n: anext(hf.get("w").stream("s", n)),
    "after": lambda hf, n: hf.start(waits, after=n),
    "grace": lambda hf, n: hf.get("w").cancel(grace=n),
    "prune": lambda hf, n: hf.prune(n),
}


@holdfast.agent
async def waits() -> None:
    await holdfast.receive("go")


@holdfast.agent
async def votes(needs: int) -> None:
    await holdfast.approve("Sure?", needs=needs)


@holdfast.agent
async def tells(done: float) -> None:
    await holdfast.progress(done)


@pytest.mark.parametrize("door", DOORS)
def test_what_is_declared_is_bounded(door):
    for number in HUGE:
        with pytest.raises(BadArguments):
            DOORS[door](number)


def test_texts_of_numbers_are_bounded():
    for make in (
        lambda: Rate("9" * 5000 + "/m"),
        lambda: Budget.parse("tokens=" + "9" * 5000),
        lambda: Budget.parse("usd=1e999"),
        lambda: Limits.parse("n" * 5000),
        lambda: Limits.parse("address=" + "9" * 5000),
        lambda: epoch_ms("n" * 5000),
        lambda: epoch_ms(10**5000),
    ):
        with pytest.raises(BadArguments) as caught:
            make()
        assert len(str(caught.value)) < 400


async def test_what_is_asked_of_a_store_is_bounded(store_url):
    """Lists, places, times: none reaches a database that would refuse it in words of its own."""
    async with holdfast.open(store_url, agents=[waits, votes, tells]) as hf:
        await hf.start(waits, id="w")
        for ask in LISTS.values():
            for number in HUGE:
                with pytest.raises(BadArguments):
                    await ask(hf, number)
        for agent, number in ((votes, 10**30), (tells, math.inf), (tells, 10**400)):
            with pytest.raises(holdfast.RunFailed, match="BadArguments"):
                await hf.run(agent, number)


@on_a_server
async def test_a_server_refuses_them_too(site):
    """With 422 and a few words, and nothing is begun."""
    for more in (
        {"budget": {"tokens": 10**400}},
        {"budget": {"usd": 1e300}},
        {"budget": {"wall": 10**400}},
        {"after": 10**400},
    ):
        refused = await site.post("/api/runs", {"agent": "twice", "args": [1], **more}, 422)
        assert len(str(refused)) < 1000
    for path in ("/api/runs?limit=1" + "0" * 30, "/api/runs/none/events?after=1" + "0" * 30):
        assert (await site.web.get(path)).status_code in (404, 422)
    await site.start("talker", [], id="t")
    for path in ("events", "streams/answer"):
        assert (await site.web.get(f"/api/runs/t/{path}?after=1" + "0" * 30)).status_code == 422
    assert (await site.get("/api/runs"))["runs"][0]["id"] == "t"


@pytest.mark.parametrize("budget", ['{"tokens": 1' + "0" * 400 + "}", '{"tokens": "many"}', "[]"])
async def test_a_run_that_cannot_be_set_up_is_paused_and_can_be_ended(store_url, budget, caplog):
    """What an older version took, or somebody put there. The reason is told once; a budget that is too large is the largest."""
    async with holdfast.open(store_url) as hf:
        new = await hf.start(waits, id="w", budget=Budget(steps=1))
        await hf.start(waits, id="v", budget=Budget(steps=1))
        for run in ("w", "v"):
            await hf.store._submit(lambda tx, run=run: tx.rows("rebudget", run=run, budget=budget))
    async with holdfast.open(store_url, agents=[waits]) as hf:
        new = hf.get("w")
        await new.wait("paused", "waiting", timeout="20s")
        if "000" not in budget:
            info = await new.info()
            assert (info.status, "cannot be set up" in info.reason) == ("paused", True)
            await asyncio.sleep(0.3)
            assert caplog.text.count("run 'w' cannot be set up") == 1
        await new.cancel(grace=0)
        if (await new.info()).status != "cancelled":
            await new.cancel()
        await new.wait("cancelled", timeout="20s")
        assert await new.delete() == 1
        assert [run.id for run in await hf.runs()] == ["v"]


def test_a_run_whose_worker_does_not_end_it_is_ended_by_the_third_cancel(store_url, commands, tmp_path):
    """The worker finds, when it comes back, that it has lost the run; others go on there."""
    (tmp_path / "agents.py").write_text(
        "import pathlib, time, holdfast\n"
        "@holdfast.agent\nasync def hangs() -> None:\n    pathlib.Path('hangs').touch()\n"
        "    while not pathlib.Path('enough').exists():\n        time.sleep(0.01)\n    await holdfast.sleep('1h')\n"
        "@holdfast.agent\nasync def easy() -> int:\n    return 1\n"
    )
    worker = Worker(commands.start(["worker", "agents.py", "--db", store_url], tmp_path, {}))
    try:
        worker.until("Serving")

        async def main():
            async with holdfast.open(store_url) as hf:
                run = await hf.start("hangs", id="h")
                while not (tmp_path / "hangs").exists():
                    await asyncio.sleep(0.01)
                for _ in range(2):
                    await run.cancel()
                    assert (await run.info()).status == "running"
                await run.cancel()
                assert (await run.info()).status == "cancelled"
                (tmp_path / "enough").touch()
                assert await hf.run("easy") == 1
                assert (await run.info()).status == "cancelled"

        asyncio.run(main())
        assert "Traceback" not in worker.said()
    finally:
        worker.kill()
