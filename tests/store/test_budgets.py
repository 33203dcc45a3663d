"""What events say was spent is summed in the transaction that writes them, for their run and all above it."""

import asyncio
import json

import pytest
from tests.store.places import ManualClock, finish, new, owned, step, write

from holdfast.errors import AlreadyDecided, LeaseLost
from holdfast.store.approvals import NewApproval
from holdfast.words.budget import Budget
from holdfast.words.people import Actor, Ballot
from holdfast.words.spent import Spent

LIMITS = json.dumps(Budget(usd=5).published())


def spending(usd, tokens=0, name="think"):
    return step(name=name, spent={"usd": usd, "input_tokens": tokens})


async def family(store):
    """A grandparent with a budget, a parent without one and a child, all ours."""
    top = await owned(store, "top", budget=LIMITS)
    middle = await owned(store, "middle", parent_id="top", root_id="top", budget="{}")
    low = await owned(store, "low", parent_id="middle", root_id="top", budget="{}")
    return top, middle, low


async def test_spending_is_summed_for_all_above(place):
    """Exactly, by step, and only where something was spent."""
    async with place.open() as store:
        top, middle, low = await family(store)
        await store.append(write(low, spending(0.1, 3), spending(0.2, 4), step(name="free")))
        await store.append(write(middle, spending(1, name="plan")))
        await store.append(write(top, step(name="free")))
        assert await store.spent(["top", "middle", "low", "other"]) == {
            "top": Spent(1.3, 7), "middle": Spent(1.3, 7), "low": Spent(0.3, 7),
        }  # fmt: skip
        assert await store.spent_by("top") == [("plan", Spent(1)), ("think", Spent(0.3, 7))]
        (purse,) = await store.purses("low")
        assert (purse.run, purse.budget, purse.spent, list(purse.asked)) == ("top", Budget(usd=5), Spent(1.3, 7), [])


async def test_what_is_refused_spends_nothing(place):
    """A write that lost its lease leaves the sums as they were; the others of its batch count."""
    async with place.open() as store:
        first, second = await owned(store, "first"), await owned(store, "second")
        second.lease_epoch -= 1
        good, bad = store.append(write(first, spending(1))), store.append(write(second, spending(2)))
        await good
        with pytest.raises(LeaseLost):
            await bad
        assert await store.spent(["first", "second"]) == {"first": Spent(1)}


async def test_two_processes_spend_in_one_tree_at_once(place):
    """Whatever the order, no batch waits for another for ever, and nothing is lost."""
    async with place.open() as one, place.open() as two:
        await family(one)
        rows = []
        for store, names in ((one, "abcd"), (two, "dcba")):
            for name in names:
                run = f"{name}{store is two}"
                rows.append((store, await owned(store, run, parent_id="middle", root_id="top")))
        for _ in range(5):
            await asyncio.gather(
                *[store.append(write(row, spending(1), spending(2, name="plan"))) for store, row in rows]
            )
        assert await one.spent(["top"]) == {"top": Spent(len(rows) * 15)}


def question(n=0, about="top"):
    return NewApproval(f"q{n}", "budget", "approve", "more?", '{"usd": 5.0}', "d", "{}", about=about)


async def test_a_question_about_a_budget_is_told_to_all_who_ask(place):
    """Asked twice it is one; both runs hear of the answer, which is what the budget has more."""
    async with place.open() as store:
        _, middle, low = await family(store)
        await store.append(write(low, approvals=[question()]))
        await store.append(write(middle, approvals=[question()]))
        (row,) = await store.approvals()
        assert (row.id, row.run_id, row.path) == ("q0", "top", '["agent"]')
        for run in ("middle", "low"):
            (purse,) = await store.purses(run)
            assert (purse.open.id, purse.open.by_us) == ("q0", True)
        assert not (await store.purses("top"))[0].open.by_us
        await store.decide("q0", Ballot("b", Actor("ana"), value='{"usd": 2}', digest="e"), known=row)
        with pytest.raises(AlreadyDecided):
            await store.decide("q0", Ballot("c", Actor("ben")), known=row)
        assert [len(await store.inbox(run, 0)) for run in ("top", "middle", "low")] == [0, 1, 1]
        (purse,) = await store.purses("low")
        assert (purse.limits(), purse.open, purse.denied) == ({"usd": 7.0}, None, None)
        ((run, (given,)),) = (await store.granted(["top", "middle", "low"])).items()
        assert (run, given.more, given.by) == ("top", {"usd": 2}, "ana")


async def test_nobody_who_asks_is_forgotten(place):
    """Runs of two processes join the question while it is answered: who finds it open then is told of the answer."""
    async with place.open() as one, place.open() as two:
        await owned(one, "top", budget=LIMITS)
        rows = [(store, await owned(store, f"low{n}", parent_id="top", root_id="top", budget="{}"))
                for n in range(6) for store in (one if n % 2 else two,)]  # fmt: skip
        for n in range(10):

            async def ask(store, row, n=n):
                await store.append(write(row, approvals=[question(n)]))
                purse = (await store.purses(row.id))[0]
                return row.id, any(asked.id == f"q{n}" and asked.status == "open" for asked in purse.asked)

            async def answer(n=n):
                while not await two.approvals(approval=f"q{n}"):
                    await asyncio.sleep(0)
                await two.decide(f"q{n}", Ballot(f"b{n}", Actor("ana")))

            *asked, _ = await asyncio.gather(*[ask(*each) for each in rows], answer())
            for run, was_open in asked:
                told = [signal.topic for signal in await one.inbox(run, 0)]
                assert told.count(f"q{n}") == 1 or not was_open


async def test_it_stays_open_while_somebody_waits(place):
    """A run that no longer waits, or ends, leaves the question to the others; the last one takes it along."""
    async with place.open() as store:
        top, middle, low = await family(store)
        for row in (low, middle, top):
            await store.append(write(row, approvals=[question()]))
        await store.append(write(middle, withdraws=["q0"]))
        await finish(store, top)
        assert [row.status for row in await store.approvals(approval="q0", statuses=("open", "withdrawn"))] == ["open"]
        await finish(store, low)
        assert [row.status for row in await store.approvals(approval="q0", statuses=("open", "withdrawn"))] == [
            "withdrawn"
        ]


async def test_a_no_is_the_last_word_until_the_run_is_tried_again(place):
    """Then it is as if that had not been asked; what was given before stays given."""
    async with place.open(ManualClock()) as store:
        top = await owned(store, "top", budget=LIMITS)
        for n, yes in enumerate((True, False)):
            await store.append(write(top, approvals=[question(n)]))
            await store.decide(f"q{n}", Ballot(f"b{n}", Actor("ana"), yes))
        (purse,) = await store.purses("top")
        assert (purse.limits(), purse.denied.by) == ({"usd": 10.0}, "ana")
        await finish(store, top, "failed", error="{}")
        await store.resume("top", by="ana", retry=True)
        (purse,) = await store.purses("top")
        assert (purse.limits(), purse.denied) == ({"usd": 10.0}, None)


async def test_sums_go_with_their_run(place):
    """Deleting a run leaves nothing of what it spent or asked."""
    async with place.open() as store:
        top = await owned(store, "top", budget=LIMITS)
        await store.append(write(top, spending(1), approvals=[question()]))
        await finish(store, top)
        assert await store.delete("top") == 1
        assert await store.spent(["top"]) == {}
        await store.create(new("top", budget=LIMITS))
        (purse,) = await store.purses("top")
        assert (purse.spent, list(purse.asked)) == (Spent(), [])
