"""Budgets: what a run and all below it may spend, what happens at the limit, and that nothing makes it forget."""

import asyncio

import pytest
from tests.agents.runs import Gate, finish, history, kinds, nothing_in_memory

import holdfast
import holdfast.testing
from holdfast import Budget, BudgetExceeded, Spent
from holdfast.client.family import account
from holdfast.words.budget import Asked, Purse


@holdfast.step
async def think(n: int = 0) -> int:
    holdfast.spend(1, input_tokens=90, output_tokens=10, model="made-up")
    return n


async def thoughts(n):
    """As many thoughts as there is money for."""
    done = 0
    try:
        while done < n:
            await think(done)
            done += 1
    except BudgetExceeded as error:
        return f"{done}: {error.spent.usd} of {error.limit}"
    return str(done)


@holdfast.agent(budget=Budget(usd=2, at_limit="fail"))
async def frugal(n: int) -> str:
    return await thoughts(n)


@holdfast.agent(budget=Budget(usd=1))
async def asking(n: int) -> str:
    return await thoughts(n)


async def question(hf, nth=1):
    """The one question that is open, once the run `r` has asked so many."""
    async for event in hf.get("r").events():
        nth -= event.kind == "approval.asked"
        if not nth:
            break
    found = await hf.approvals()
    assert len(found) == 1
    return found[0]


@pytest.mark.slow
async def test_at_the_limit_the_agent_is_told_and_ends_with_what_it_has():
    """With at_limit="fail" the next body does not begin; the exception is recorded, and the same in every life."""
    async for hf in holdfast.testing.crash_everywhere(agents=[frugal]):
        run = await hf.start(frugal, 10, id="r")
        assert await run.result() == "2: 2.0 of {'usd': 2.0}"
        assert hf.keys["think#2"] == 0
        assert (await run.info()).spent == Spent(2, 180, 20, 2, steps=2)


@pytest.mark.parametrize(
    ("budget", "done"),
    [
        (Budget(tokens=150, at_limit="fail"), "2: 2.0 of {'tokens': 150}"),
        (Budget(model_calls=1, usd=5, at_limit="fail"), "1: 1.0 of {'model_calls': 1}"),
        (Budget(steps=4, at_limit="fail"), "4: 4.0 of {'steps': 4}"),
        (Budget(usd=100, tokens=1_000_000), "5"),
    ],
    ids=str,
)
async def test_any_of_its_limits_ends_it(budget, done):
    """Money, tokens, calls of models and bodies of steps are counted each; a run's own budget replaces its agent's."""
    async with holdfast.testing.open(agents=[frugal]) as hf:
        run = await hf.start(frugal, 5, budget=budget)
        assert await run.result() == done
        assert (await run.info()).budget == budget


@pytest.mark.slow
async def test_a_person_gives_more_or_none():
    """Asked once for each time it is spent, whatever crashes; what people give counts on top, and a no is the last word."""
    async for hf in holdfast.testing.crash_everywhere(agents=[asking]):
        run = await hf.start(asking, 100, id="r")
        asked = []
        for act in ("edit", "deny"):
            while not (found := await hf.approvals()):
                await run.wait("waiting")
            (one,) = found
            asked.append((one.run, one.shown, one.question.partition(". ")[0]))
            if act == "deny":
                await hf.deny(one, by="ana", note="enough")
            else:
                await hf.approve(one, by="ana", data={"usd": 1.0})
            while one.id in [other.id for other in await hf.approvals()]:  # the next question may be there already
                await asyncio.sleep(0)
        assert await run.result() == "2: 2.0 of {'usd': 2.0}"
        assert asked == [
            (
                "r",
                {"usd": 1.0},
                f"The budget of run 'r' is spent: ${n}.00 of ${n}.00 (think ${n}.00, {n}00 tokens)",
            )
            for n in (1, 2)
        ]
        assert (await kinds(hf, "r")).count("approval.asked") == 2
        assert hf.bodies[think] - hf.crashes <= 2


async def test_what_a_person_gave_is_told_as_the_budget(store_url):
    """Alone, in a list and with its family: what the run may spend now, as its meter holds it."""
    async with holdfast.open(store_url, agents=[asking]) as hf:
        run = await hf.start(asking, 3, id="r")
        await hf.approve(await question(hf), by="ana", data={"usd": 8})
        assert await run.result() == "3"
        (listed,), alone, family = await hf.runs(), await run.info(), (await account(hf, "r")).info
        assert [each.budget for each in (listed, alone, family)] == [Budget(usd=9.0)] * 3


def test_more_than_there_can_be_is_told_as_the_most():
    """Nothing that people have given keeps a list from being read."""
    given = Asked("q", "decided", True, 5_000, "ana", {"usd": 1e9, "tokens": 2.0, "wall": 60}, False)
    budget = Budget(usd=1, tokens=5, wall=1, to="ana")
    told = Purse("r", "u", budget, 1_000, Spent(), [given]).in_force
    assert told == Budget(usd=1_000_000_000, tokens=7, wall=64, to="ana")


async def test_parallel_calls_ask_one_question():
    """However many calls find the budget spent, one question is asked; the answer lets all of them on, or none."""

    @holdfast.agent(budget=Budget(steps=3))
    async def parallel() -> list[object]:
        return [str(each) for each in await asyncio.gather(*[think(n) for n in range(10)], return_exceptions=True)]

    async with holdfast.testing.open(agents=[parallel]) as hf:
        run = await hf.start(parallel, id="r")
        asked = await question(hf)
        assert asked.shown == {"steps": 3}
        await nothing_in_memory(hf)
        assert hf.bodies[think] == 3
        await hf.approve(asked, by="ana", data={"steps": 4})
        asked = await question(hf, 2)
        await nothing_in_memory(hf)
        assert hf.bodies[think] == 7
        await hf.deny(asked, by="ana")
        told = await run.result()
        assert sorted(each for each in told if len(each) == 1) == sorted(each for each in told)[:7]
        assert sum("ana gives no more: 7 steps of 7 steps" in each for each in told) == 3
        assert (await kinds(hf, "r")).count("approval.asked") == 2


@holdfast.agent
async def leaf(n: int) -> str:
    return await thoughts(n)


@holdfast.agent(budget=Budget(usd=50, at_limit="fail"))
async def branch(n: int) -> list[str]:
    return await asyncio.gather(*[leaf(n) for _ in range(2)])


@holdfast.agent(budget=Budget(usd=3))
async def tree() -> list[list[str]]:
    return await asyncio.gather(*[branch(4) for _ in range(3)])


async def all_asked(hf, runs):
    """Until so many runs have asked."""
    async for event in hf.events(kinds="approval.asked"):
        assert event.data["about"] == "r"
        runs -= 1
        if not runs:
            return


async def test_children_draw_on_every_budget_above_them():
    """Three deep and parallel: one question, about the run whose budget it is, and the grant lets all of them on."""
    async with holdfast.testing.open(agents=[tree]) as hf:
        run = await hf.start(tree, id="r")
        await all_asked(hf, 6)
        (asked,) = await hf.approvals()
        assert (asked.run, asked.path, asked.shown) == ("r", ("tree",), {"usd": 3.0})
        assert 3 <= (await run.info()).spent.usd <= 3 + 5
        await hf.approve("r", by="ana", data={"usd": 100})
        assert await run.result() == [["4", "4"]] * 3
        assert hf.bodies[think] == 24
        assert (await run.info()).spent == Spent(24, 2160, 240, 24, steps=24)
        assert {info.spent.usd for info in await hf.runs(agent="branch")} == {8.0}
        assert await hf.approvals() == []


def test_a_child_may_have_less_than_its_parent():
    """The nearest budget that is spent holds, and a child that fails for it has not spent its parent's."""

    @holdfast.agent(budget=Budget(usd=1, at_limit="fail"))
    async def small() -> str:
        return await thoughts(5)

    @holdfast.agent(budget=Budget(usd=4, at_limit="fail"))
    async def large() -> list[str]:
        return [await small(), await small(), await thoughts(5)]

    told = ["1: 1.0 of {'usd': 1.0}", "1: 1.0 of {'usd': 1.0}", "2: 4.0 of {'usd': 4.0}"]
    assert finish(large) == told


@holdfast.agent
async def thinker(n: int) -> int:
    for i in range(n):
        await think(i)
    return n


@holdfast.agent(budget=Budget(usd=1), singleton=True)
async def lead(n: int) -> int:
    return await thinker(n)


async def test_a_retry_brings_its_budget_to_the_children_that_failed(store_url):
    """Run and children go on together or not at all: nobody carries a child on below the old budget, or the old no."""
    async with holdfast.open(store_url, agents=[lead, thinker]) as hf:
        run = await hf.start(lead, 3, id="r")
        await hf.deny(await run.wait_for_question(), by="ana")
        with pytest.raises(holdfast.RunFailed, match="ana gives no more"):
            await run.result()
        other = await hf.start(lead, 0, after="1h")
        with pytest.raises(holdfast.RunActive, match="of the same singleton"):
            await run.retry(budget=Budget(usd=5))
        (child,) = await hf.runs(parent="r")
        assert "run.retried" not in await kinds(hf, child.id)
        await other.cancel()
        await run.retry()  # so it asks anew
        await hf.deny(await run.wait_for_question(), by="ben", note="not this month")
        with pytest.raises(holdfast.RunFailed, match=r"ben gives no more \(not this month\)"):
            await run.result()
        await run.retry(budget=Budget(usd=5))
        assert await run.result(timeout=20) == 3


async def test_a_first_budget_holds_for_the_children_there_are(store_url):
    """Also for those that began when there was none."""
    broken = True

    @holdfast.agent
    async def first() -> None:
        await think()
        if broken:
            raise ValueError("broken")
        await think(1)

    @holdfast.agent
    async def above() -> None:
        await first()

    async with holdfast.open(store_url, agents=[above, first]) as hf:
        run = await hf.start(above, id="r")
        with pytest.raises(holdfast.RunFailed, match="broken"):
            await run.result()
        broken = False
        await run.retry(budget=Budget(usd=1, at_limit="fail"))
        with pytest.raises(holdfast.RunFailed, match="the budget of run 'r' is spent"):
            await run.result(timeout=20)


async def test_it_lasts_over_parks_and_checkpoints():
    """What was spent before a long wait or a checkpoint is spent, and what the agent knows to be left is carried along."""

    @holdfast.agent(budget=Budget(usd=3, at_limit="fail"))
    async def weeks() -> list[object]:
        seen = await holdfast.restore(list[object]())
        while len(seen) < 4:
            before = holdfast.remaining().usd
            await holdfast.sleep("1 day")
            try:
                await think()
            except BudgetExceeded:
                before = -1
            seen = await holdfast.checkpoint([*seen, [before, holdfast.remaining().usd]])
        return seen

    async with holdfast.testing.open(agents=[weeks]) as hf:
        run = await hf.start(weeks, id="r")
        async for event in run.events():
            if event.kind == "checkpoint":
                await hf.crash()
        assert await run.result() == [[3.0, 2.0], [2.0, 1.0], [1.0, 0.0], [-1, 0.0]]


async def test_the_soft_limit_is_seen_and_told():
    """`remaining` says what is left, in steps and in the agent, and when most of it is spent; the history says it once."""

    @holdfast.step
    async def look() -> str:
        holdfast.spend(1, input_tokens=100)
        return str(holdfast.remaining())

    @holdfast.agent(budget=Budget(usd=5, tokens=1000, soft=0.6))
    async def watchful() -> list[object]:
        before, seen = holdfast.remaining(), list[object]()
        for _ in range(4):
            seen.append((await look(), holdfast.remaining().soft))
        await holdfast.sleep("1h")
        return [before.usd, before.tokens, before.steps, before.soft, seen]

    async with holdfast.testing.open(agents=[watchful]) as hf:
        run = await hf.start(watchful, id="r")
        texts = [f"{4 - n}.00 USD, {900 - 100 * n} tokens left" for n in range(4)]
        expected = [(text, soft) for text, soft in zip(texts, [False, False, True, True], strict=True)]
        assert await run.result() == [5.0, 1000, None, False, expected]
        low = [event.data["left"] for event in await history(hf, "r") if event.kind == "budget.low"]
        assert low == [{"usd": 2.0, "tokens": 700, "soft": True}]


async def test_time_is_limited_too_and_goes_on_while_people_think():
    """`wall` counts from the beginning of the run, waits and all; more of it counts from the moment it is given."""

    @holdfast.agent(budget=Budget(wall="1h"))
    async def slow() -> list[float]:
        found = []
        for _ in range(3):
            await think()
            found.append(round(holdfast.remaining().wall / 60))
            await holdfast.sleep("40m")
        return found

    async with holdfast.testing.open(agents=[slow]) as hf:
        run = await hf.start(slow, id="r")
        asked = await question(hf)
        assert asked.shown == {"wall": 3600.0}
        assert "1 h 20 min of 1 h" in asked.question
        await hf.advance("2 days")
        await hf.approve(asked, by="ana", data={"wall": 1800})
        assert await run.result() == [60, 20, 30]


async def test_who_stops_waiting_withdraws_the_question():
    """A deadline of the agent ends the wait for more, and nobody is asked any more."""

    @holdfast.agent(budget=Budget(usd=1))
    async def hurried() -> str:
        await think()
        try:
            async with holdfast.timeout("1h"):
                await asyncio.gather(think(), think())
        except TimeoutError:
            await holdfast.sleep("1 day")
            return "went on without"
        return "thought"

    async with holdfast.testing.open(agents=[hurried]) as hf:
        run = await hf.start(hurried, id="r")
        await question(hf)
        assert await run.result() == "went on without"
        (asked,) = await hf.approvals(open=False)
        assert asked.status == "withdrawn"
        found = await kinds(hf, "r")
        assert found.count("approval.asked") == found.count("approval.withdrawn") == 1


async def test_a_question_lasts_as_long_as_somebody_waits_for_it():
    """Of two children that wait for the budget of a parent that has ended, one is cancelled: the other is answered."""

    @holdfast.agent(budget=Budget(usd=1))
    async def two() -> list[str]:
        return [(await holdfast.spawn(leaf, 2)).id for _ in range(2)]

    async with holdfast.testing.open(agents=[two, leaf]) as hf:
        one, other = await (await hf.start(two, id="r")).result()
        await all_asked(hf, 2)
        await hf.get(one).cancel()
        with pytest.raises(holdfast.RunCancelled):
            await hf.get(one).result()
        (asked,) = await hf.approvals()
        await hf.approve(asked, by="ana", data={"usd": 5})
        assert await hf.get(other).result() == "2"
        assert await hf.approvals() == []


async def test_who_gives_more_says_so_of_each_limit_that_is_shown():
    """None is said, too: 0. What is left out would be asked for again at once."""

    @holdfast.agent(budget=Budget(usd=1, tokens=100))
    async def watched() -> str:
        return await thoughts(2)

    async with holdfast.testing.open(agents=[watched]) as hf:
        run = await hf.start(watched, id="r")
        asked = await question(hf)
        assert asked.shown == {"usd": 1.0, "tokens": 100}
        with pytest.raises(holdfast.BadArguments, match=r"leaves out tokens\. .*give it too \(now it is 100\)"):
            await hf.approve(asked, by="ana", data={"usd": 5})
        await hf.approve(asked, by="ana", data={"usd": 5, "tokens": 200})
        assert await run.result() == "2"


async def test_only_those_named_may_give_more():
    """`to=` says whose the question is."""

    @holdfast.agent(budget=Budget(usd=1, to="finance"))
    async def watched() -> str:
        return await thoughts(2)

    async with holdfast.testing.open(agents=[watched]) as hf:
        run = await hf.start(watched, id="r")
        asked = await question(hf)
        with pytest.raises(holdfast.NotAllowed):
            await hf.approve(asked, by="ana")
        with pytest.raises(holdfast.BadArguments, match="one of: usd"):
            await hf.approve(asked, by=holdfast.Actor("fay", groups=["finance"]), data={"tokens": 5})
        await hf.approve(asked, by=holdfast.Actor("fay", groups=["finance"]))
        assert await run.result() == "2"


async def test_a_body_that_runs_is_not_stopped():
    """What is spent beyond a limit is at most what the bodies spend that run when it is reached."""
    gate = Gate()

    @holdfast.step
    async def expensive(n: int) -> None:
        await gate()
        holdfast.spend(10)

    @holdfast.agent(budget=Budget(usd=5, at_limit="fail"))
    async def eager() -> int:
        found = await asyncio.gather(*[expensive(n) for n in range(3)], return_exceptions=True)
        found += await asyncio.gather(*[expensive(n) for n in range(3)], return_exceptions=True)
        return sum(isinstance(each, BudgetExceeded) for each in found)

    async with holdfast.testing.open(agents=[eager]) as hf:
        run = await hf.start(eager)
        await gate.reached.wait()
        gate.open.set()
        assert await run.result() == 3
        assert (await run.info()).spent.usd == 30


@pytest.mark.parametrize(
    "wrong",
    [{}, {"usd": 0}, {"usd": "5"}, {"tokens": 1.5}, {"steps": 0}, {"wall": "soon"}, {"usd": 1, "soft": 2},
     {"usd": 1, "at_limit": "stop"}, {"usd": 1, "to": ""}],
    ids=str,
)  # fmt: skip
def test_a_budget_that_says_nothing_sensible_is_refused(wrong):
    """It limits something, by numbers above zero."""
    with pytest.raises(holdfast.BadArguments):
        Budget(**wrong)


async def test_whoever_starts_by_name_gets_the_declared_budget():
    """A budget is published with its agent, so that a client without its code starts a run that has it."""
    async with holdfast.testing.open(agents=[frugal]) as hf:
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:
            run = await elsewhere.start("frugal", 7, id="r")
            assert (await run.info()).budget == Budget(usd=2, at_limit="fail")
        assert await hf.get("r").result() == "2: 2.0 of {'usd': 2.0}"
