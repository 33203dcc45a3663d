"""Budgets on Temporal, in the database beside the cluster: each dollar is counted once, and each answer heard, whatever dies."""

import asyncio
import contextlib
import dataclasses
import json
import random
from urllib.parse import quote

import pytest
from google.protobuf.any_pb2 import Any
from temporalio.api.common.v1 import GrpcStatus, WorkflowExecution
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode
from tests.grounds import scenes, shoppers
from tests.grounds.test_kills import Fleet, kept, ran_again, replays, result
from tests.temporal import cluster, own_cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast import Budget
from holdfast.backends.temporal import activities, budgets
from holdfast.backends.temporal.feed import Feed, _Copy
from holdfast.backends.temporal.side import Forget, known
from holdfast.store.approvals import NewApproval
from holdfast.store.budgets import BUDGET
from holdfast.store.store import Store
from holdfast.store.work import rows
from holdfast.words.model import Event
from holdfast.words.people import Actor, Ballot
from holdfast.words.spent import Spent

QUICK = holdfast.Settings(lease_ttl_s=3.0)
MORE = 2  # dollars, each time


@pytest.fixture
def beside(temporal_url, postgres_url):  # noqa: F811
    return f"{temporal_url}&side={quote(postgres_url, safe='')}"


@pytest.mark.slow
async def test_a_budget_without_a_database_beside_the_cluster_is_refused_where_it_is_given(temporal_url):  # noqa: F811
    with pytest.raises(holdfast.Unsupported, match=r"'thrifty' declares budget=.*\?side=postgresql://"):
        async with holdfast.open(temporal_url, agents=[scenes.thrifty], settings=QUICK):
            pass
    async with holdfast.open(temporal_url) as hf:
        with pytest.raises(holdfast.Unsupported, match=r"has no budgets.*\?side=postgresql://"):
            await hf.start(scenes.sequential, 1, budget=Budget(usd=1))
        assert "budgets" in hf.store.lacks


LINE = [["r", "above", json.dumps(Budget(usd=2).published()), 1000], ["r.c", "below", None, None]]


def spent_at(seq):
    data = {"name": "buy", "spent": {"usd": 1.0, "steps": 1}}
    return Event(seq, "step.completed", f"buy#{seq}", data, "1", None, 5, 1, run="r.c")


async def test_what_is_done_twice_beside_a_cluster_is_done_once(store_url):
    """Whatever an activity writes, another try of it may write again, and other runs may have written meanwhile."""
    async with holdfast.open(store_url) as hf:
        store, heard = hf.store, []

        async def tell(run, said):
            heard.append((run, said["id"], said["kind"], said["value"]))
            return True

        for _ in range(2):
            (purse,) = await budgets.purses(store, "r.c", LINE, {"team": "a"})
            await store._submit(_Copy(known("r.c", "below", {}, "r", "r"), [spent_at(0), spent_at(1)]))
        (purse,) = [budgets.purse_of(each) for each in await budgets.purses(store, "r.c", LINE, {"team": "a"})]
        assert (purse.run, purse.began, purse.spent) == ("r", 1000, Spent(usd=2.0, steps=2))
        assert await budgets.spent_by(store, "r", 5) == [["buy", [2_000_000_000, 0, 0, 0, 0, 2]]]
        new = dataclasses.asdict(NewApproval("q-1", BUDGET, "approve", "More?", '{"usd":2.0}', "d", "{}", about="r"))
        for run in ("r.c", "r", "r.c"):
            await budgets.ask_for_more(store, run, [new])
        (question,) = await store.approvals()
        assert (question.run_id, json.loads(question.path)) == ("r", ["above"])
        ballot = dataclasses.asdict(Ballot("b-1", Actor("ann"), value='{"usd":7.0}', digest="e"))
        asked = {"question": "q-1", "ballot": ballot, "to": None}
        first, second = [await budgets.decide(store, asked, tell) for _ in range(2)]
        assert first == second
        assert heard == [(run, "approval:q-1", "approval.decided", '{"usd":7.0}') for run in ("r", "r.c")] * 2
        late = {**asked, "ballot": {**ballot, "id": "b-2"}}
        assert (await budgets.decide(store, late, tell))["error"] == "AlreadyDecided"
        assert len(await store.audit()) == 1
        (purse,) = [budgets.purse_of(each) for each in await budgets.purses(store, "r.c", LINE, {})]
        assert (purse.limits(), purse.open) == ({"usd": 9.0}, None)


async def test_a_question_is_withdrawn_when_the_last_run_leaves_it(store_url):
    async with holdfast.open(store_url) as hf:
        store = hf.store
        await budgets.purses(store, "r.c", LINE, {})
        new = dataclasses.asdict(NewApproval("q-1", BUDGET, "approve", "More?", "{}", "d", about="r"))
        for run in ("r.c", "r"):
            await budgets.ask_for_more(store, run, [new])
        for run, status in (("r.c", "open"), ("r.c", "open"), ("r", "withdrawn"), ("r", "withdrawn")):
            await budgets.leave_all(store, run)
            assert (await store.approval("q-1")).status == status


async def test_a_question_that_is_passed_on_twice_is_passed_on_once(store_url):
    async with holdfast.open(store_url) as hf:
        store, heard = hf.store, []

        async def tell(run, said):
            heard.append((run, said["id"], said["data"]["to"]))
            return True

        await budgets.purses(store, "r.c", LINE, {})
        new = dataclasses.asdict(NewApproval("q-1", BUDGET, "approve", "More?", "{}", "d", about="r"))
        await budgets.ask_for_more(store, "r.c", [new])
        asked = {"question": "q-1", "ballot": dataclasses.asdict(Ballot("b-1", Actor("ann"))), "to": "ben"}
        for _ in range(2):
            await budgets.decide(store, asked, tell)
        assert heard == [("r.c", "approval:q-1:to1", "ben")] * 2
        assert len(json.loads((await store.approval("q-1")).delegations)) == 1


class Starting:
    """A client of a server that starts: it does not know its namespaces yet."""

    def get_workflow_handle(self, run):
        return self

    async def describe(self):
        detail = Any()
        detail.Pack(NamespaceNotFoundFailure(namespace="default"))
        told = GrpcStatus(code=int(RPCStatusCode.NOT_FOUND), details=[detail])
        raise RPCError("Namespace default is not found.", RPCStatusCode.NOT_FOUND, told.SerializeToString())

    async def signal(self, name, said):
        await self.describe()


async def test_a_server_that_starts_has_forgotten_no_run(store_url, monkeypatch):
    """What was spent is copied, and an answer told, when the server knows its namespaces again."""
    monkeypatch.setattr(activities.activity, "client", Starting)
    async with holdfast.open(store_url) as hf:
        with pytest.raises(RPCError):
            await Feed(hf.store, Starting()).copy("r")
        with pytest.raises(RPCError):
            await activities.Activities(None)._tell("r", {})


@holdfast.step
async def pays(what: str) -> str:
    holdfast.spend(1.0)
    return what


@holdfast.agent(budget=Budget(usd=1))
async def impatient() -> str:
    """Gives up a call that waits for more, while another one has just looked at the budget."""
    await pays("first")
    given_up = asyncio.create_task(pays("given up"))
    await holdfast.receive("stop", str)
    other = asyncio.create_task(pays("other"))
    await holdfast.receive("give up", str)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    return await other


@holdfast.agent(budget=Budget(usd=1))
async def hasty() -> str:
    """Gives up a call that has just asked for more."""
    await pays("first")
    given_up = asyncio.create_task(pays("given up"))
    await holdfast.receive("stop", str)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    return await holdfast.receive("end", str)


class Looks:
    """Budgets that are read as by an activity: what it tells may be a moment old."""

    def __init__(self):
        self.count, self.held, self.go = 0, None, asyncio.Event()

    def of(self, plain):
        async def purses(store, run):
            found = await plain(store, run)
            self.count += 1
            if self.count == self.held:
                await self.go.wait()
            return found

        return purses

    async def until_held(self):
        while self.count < self.held:
            await asyncio.sleep(0.01)


@pytest.fixture
def looks(monkeypatch):
    made = Looks()
    monkeypatch.setattr(Store, "purses", made.of(Store.purses))
    return made


async def kinds(run):
    return [event.kind async for event in run.events(follow=False)]


async def test_a_call_that_looked_before_another_gave_up_asks_again(store_url, looks):
    looks.held = 4  # the first body, the call that asks, its second look, and the other call
    async with holdfast.open(store_url, agents=[impatient]) as hf:
        run = await hf.start(impatient, id="impatient")
        while looks.count < 3:
            await asyncio.sleep(0.01)
        first = await run.wait_for_question(timeout="60s")
        await run.send("stop", "now")
        await looks.until_held()
        await run.send("give up", "now")
        while "approval.withdrawn" not in await kinds(run):
            await asyncio.sleep(0.01)
        looks.go.set()
        question = await run.wait_for_question(timeout="60s")
        assert question.id != first.id
        await hf.approve(question, by="ann")
        assert await run.result(timeout="60s") == "other"
        assert (await run.info()).spent.usd == 2


async def test_a_question_of_a_call_that_is_given_up_as_it_asks_is_withdrawn(store_url, looks):
    looks.held = 3  # the first body, the call that asks, and its second look
    async with holdfast.open(store_url, agents=[hasty]) as hf:
        run = await hf.start(hasty, id="hasty")
        await looks.until_held()
        (question,) = await hf.approvals()
        await run.send("stop", "now")
        await run.wait("waiting", waits_for="message", timeout="60s")
        assert (await hf.approval(question.id)).status == "withdrawn"
        await run.send("end", "now")
        assert await run.result(timeout="60s") == "now"


@pytest.mark.slow
async def test_calls_that_are_given_up_leave_no_question_and_no_run_that_nobody_is_asked_about(beside):
    async with holdfast.open(beside, agents=[impatient], settings=QUICK) as hf:
        run = await hf.start(impatient, id="impatient")
        await run.wait_for_question(timeout="120s")
        await run.send("stop", "now")
        await run.send("give up", "now")
        approved = False
        while not approved:
            question = await run.wait_for_question(timeout="120s")
            with contextlib.suppress(holdfast.RunFinished):  # it was withdrawn just now
                await hf.approve(question, by="ann")
                approved = True
        assert await run.result(timeout="120s") == "other"
        assert await hf.approvals() == []
        assert (await run.info()).spent.usd == 2


@pytest.mark.slow
async def test_a_run_that_was_started_without_a_database_beside_the_cluster_gets_no_budget(beside, temporal_url):  # noqa: F811
    broken.append(True)
    async with holdfast.open(temporal_url, agents=[below], settings=QUICK) as hf:
        run = await hf.start(below, id="bare")
        with pytest.raises(holdfast.RunFailed, match="broken"):
            await run.result(timeout="120s")
    broken.clear()
    async with holdfast.open(beside, agents=[below], settings=QUICK) as hf:
        run = hf.get("bare")
        with pytest.raises(holdfast.Unsupported, match=r"'bare' was started without a database beside"):
            await run.retry(budget=Budget(usd=5))
        await run.retry()
        await run.result(timeout="120s")


async def gives(hf, run, over):
    """Give more whenever somebody asks; returns the questions. An answer may count although its giver was told of a fault."""
    given = []
    while not over.is_set():
        with contextlib.suppress(holdfast.StoreUnavailable, TimeoutError), hf.deadline("10s"):
            for question in await hf.approvals(run=run):
                given += [question.id] if question.id not in given else []
                with contextlib.suppress(holdfast.AlreadyDecided):
                    assert question.run == run
                    await hf.approve(question, by="ann", data={"usd": MORE})
        await asyncio.sleep(0.1)
    return given


async def all_told(hf, run):
    """Sums are what journals say, and no run asked a question twice, or was answered twice.

    A run that asks as somebody answers finds that there is enough, and goes on: it may end before it is told.
    """
    family = [run, *[info.id for info in await hf.runs(parent=run)]]
    assert len(family) == 1 + shoppers.CHILDREN
    bought, asked, decided = 0, set(), set()
    for each in family:
        events = [event async for event in hf.get(each).events(follow=False)]
        own = sum(event.kind == "step.completed" for event in events)
        bought += own
        waits = [event.data["approval"] for event in events if event.kind == "approval.asked"]
        ends = [event.data["approval"] for event in events if event.kind == "approval.decided"]
        assert len(waits) == len({*waits}) and len(ends) == len({*ends}) and {*ends} <= {*waits}
        asked, decided = asked | {*waits}, decided | {*ends}
        if each != run:
            assert (await hf.get(each).info()).spent == Spent(own, 10 * own, 0, own, steps=own)
    assert bought == shoppers.PRICE
    assert (await hf.get(run).info()).spent == Spent(bought, 10 * bought, 0, bought, steps=bought)
    return asked


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_family_asks_again_and_again_and_spends_no_more_than_it_is_given(beside, monkeypatch, tmp_path):
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    over = asyncio.Event()
    async with holdfast.open(beside, agents=[shoppers.shoppers], settings=QUICK) as hf:
        helper = asyncio.create_task(gives(hf, "s", over))
        run = await hf.start(shoppers.shoppers, id="s")
        assert await run.result(timeout="200s") == shoppers.PRICE
        over.set()
        given = await helper
        assert {*given} == await all_told(hf, "s")
        limit = shoppers.FIRST + MORE * len(given)
        assert limit - MORE <= shoppers.PRICE < limit + shoppers.CHILDREN
        approved = [row for row in await hf.audit() if row.action == "approve"]
        assert len(approved) == len(given)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_budget_holds_over_executions(beside, monkeypatch, tmp_path):
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    async with holdfast.open(f"{beside}&events=60", agents=[shoppers.alone], settings=QUICK) as hf:
        run = await hf.start(shoppers.alone, 24)
        question = await run.wait_for_question(timeout="200s")
        assert "$20.00 of $20.00" in question.question
        assert (await run.info()).spent.usd == 20
        await hf.approve(question, by="ann")
        assert await run.result(timeout="200s") == 24
        assert (await run.info()).spent == Spent(24, 240, 0, 24, steps=24)


broken: list[bool] = []


@holdfast.step(retry=1)
async def breaks() -> None:
    holdfast.spend(1.0)
    if broken:
        raise ValueError("broken")


@holdfast.agent
async def below() -> None:
    await breaks()
    await breaks()


@holdfast.agent
async def above() -> None:
    await below()


@holdfast.agent
async def waits() -> str:
    return await holdfast.receive("go", str)


@holdfast.agent
async def leaves() -> None:
    await holdfast.spawn(waits)
    await breaks()


@pytest.mark.slow
async def test_a_first_budget_counts_what_was_spent_before_and_holds_for_children_that_failed(beside):
    broken.append(True)
    async with holdfast.open(beside, agents=[above], settings=QUICK) as hf:
        run = await hf.start(above, id="first")
        with pytest.raises(holdfast.RunFailed, match="broken"):
            await run.result(timeout="120s")
        broken.clear()
        await run.retry(budget=Budget(usd=1, at_limit="fail"))
        with pytest.raises(holdfast.RunFailed, match=r"the budget of run 'first' is spent: \$1.00 of \$1.00"):
            await run.result(timeout="120s")


@pytest.mark.slow
async def test_a_first_budget_is_refused_while_a_run_below_goes_on(beside):
    broken.append(True)
    async with holdfast.open(beside, agents=[leaves], settings=QUICK) as hf:
        run = await hf.start(leaves, id="leaves")
        with pytest.raises(holdfast.RunFailed, match="broken"):
            await run.result(timeout="120s")
        broken.clear()
        with pytest.raises(holdfast.Unsupported, match=r"'leaves' had no budget, and run 'leaves\.waits-"):
            await run.retry(budget=Budget(usd=5))
        await run.retry()
        await run.result(timeout="120s")


@pytest.mark.slow
async def test_whoever_reads_a_child_first_reads_what_it_has_spent(temporal_url):  # noqa: F811
    broken.clear()
    async with holdfast.open(temporal_url, agents=[above], settings=QUICK) as hf:
        run = await hf.start(above)
        await run.result(timeout="60s")
        (child,) = [event.data["child"] async for event in run.events(follow=False) if event.kind == "child.started"]
    async with holdfast.open(temporal_url) as hf:
        for _ in range(2):
            assert (await hf.get(child).info()).spent.usd == 2
            hf.store._seen.clear()  # so that it is read again


@holdfast.agent(budget=Budget(usd=3, at_limit="fail"))
async def spends_all() -> list[str]:
    return [await pays("own"), await two()]


async def test_what_a_forgotten_run_has_spent_is_forgotten_and_not_what_the_next_one_has(store_url):
    async with holdfast.open(store_url) as hf:
        store = hf.store
        await budgets.purses(store, "r.c", LINE, {})
        await store._submit(_Copy(known("r.c", "below", {}, "r", "r"), [spent_at(0)]))
        made_at = (await store.run("r")).created_at
        await store._submit(Forget("r", made_at - 1))  # somebody who saw another one of that name
        assert (await store.spent(["r"]))["r"].usd == 1
        await store._submit(Forget("r", made_at))
        assert [await store.run(run) for run in ("r", "r.c")] == [None, None]
        assert await store.spent(["r", "r.c"]) == {}


@pytest.mark.nightly  # a server takes its time to forget
async def test_a_run_whose_id_the_cluster_has_forgotten_has_spent_nothing(beside):
    async with holdfast.open(beside, agents=[spends_all, two], settings=QUICK) as hf:
        for first in (True, False):  # a budget is for one of them
            run = await hf.start(spends_all, id="again")
            assert await run.result(timeout="60s") == ["own", "two"]
            assert (await run.info()).spent.usd == 2
            begun = [event.data["child"] async for event in run.events(follow=False) if event.kind == "child.started"]
            assert {event.run async for event in hf.events(follow=False)} == {"again", *begun}
            if first:
                await asyncio.gather(*(forgotten(hf.store, each) for each in ("again", *begun)))


async def forgotten(store, run):
    """Have the cluster forget a run, as when its retention is over."""
    execution = WorkflowExecution(workflow_id=run)
    asked = DeleteWorkflowExecutionRequest(namespace=store.address.namespace, workflow_execution=execution)
    await store.client.workflow_service.delete_workflow_execution(asked)
    while await store._described(run) is not None:
        await asyncio.sleep(0.05)


@holdfast.agent
async def one() -> str:
    return await pays("one")


@holdfast.agent
async def two() -> str:
    return await pays("two")


@holdfast.agent(budget=Budget(usd=1))
async def parent() -> list[str]:
    await pays("first")
    return await asyncio.gather(one(), two())


@pytest.mark.slow
async def test_an_answer_does_not_wait_for_a_run_that_no_worker_serves(beside):
    async with holdfast.open(beside, agents=[parent, one, two], settings=QUICK) as hf:
        run = await hf.start(parent)
        question = await run.wait_for_question(timeout="60s")
        while len(askers := await hf.store.side._read(rows, "askers", approval=question.id)) < 2:
            await asyncio.sleep(0.05)
    served = [one, two][".one" in askers[0][0]]  # not the first that would be asked
    async with holdfast.open(beside, agents=[served], settings=QUICK) as hf:
        async with asyncio.timeout(15):
            await hf.approve(question, by="ann", data={"usd": 5})
        (child,) = [info.id for info in await hf.runs(parent=run.id) if info.agent == served.name]
        assert await hf.get(child).result(timeout="30s") == served.name
    async with holdfast.open(beside, agents=[parent, one, two], settings=QUICK) as hf:
        assert await hf.get(run.id).result(timeout="60s") == ["one", "two"]
        assert (await hf.get(run.id).info()).spent.usd == 3


@holdfast.agent(budget=Budget(usd=8))
async def inner() -> int:
    return len(await asyncio.gather(*(pays(str(n)) for n in range(20))))


@holdfast.agent(budget=Budget(usd=15))
async def outer() -> list[int]:
    return [await inner(), len(await asyncio.gather(*(pays(f"own-{n}") for n in range(20))))]


async def answered_by_two(hf, run):
    """Let two people answer each question at once, each of whom gives something else; tell what came of it all."""
    result = asyncio.create_task(run.result(timeout="150s"))
    while not result.done():
        for question in await hf.approvals(run=run.id):
            ends = await asyncio.gather(
                *(hf.approve(question, by=by, data={"usd": 30}) for by in ("ann", "ben")), return_exceptions=True
            )
            assert sorted(type(end).__name__ for end in ends) == ["AlreadyDecided", "Approval"], ends
        await asyncio.sleep(0.05)
    family = [run.id, *[info.id for info in await hf.runs(parent=run.id)]]
    sums = [(await hf.get(each).info()).spent for each in family]
    completed = [
        sum([event.kind == "step.completed" async for event in hf.get(each).events(follow=False)]) for each in family
    ]
    return result.result(), sums, completed, await hf.approvals()


@pytest.mark.nightly
async def test_calls_at_once_under_a_budget_in_a_budget_spend_as_they_do_on_sqlite(beside, tmp_path):
    """How often somebody is asked depends on how many bodies had begun by then."""
    ends = []
    for url in (f"sqlite:{tmp_path}/runs.db", beside):
        async with holdfast.open(url, agents=[outer, inner], settings=QUICK) as hf:
            ends.append(await answered_by_two(hf, await hf.start(outer)))
    assert ends[0] == ends[1]
    assert ends[0][0] == [20, 20] and ends[0][1][0].usd == 40


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_a_budget_is_counted_once_while_its_database_is_killed(temporal_url, own_server, monkeypatch, tmp_path):  # noqa: F811
    """PostgreSQL is ended with -9 again and again: as bodies spend, as runs ask, and as people answer."""
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    url, over = f"{temporal_url}&side={quote(own_server.url, safe='')}", asyncio.Event()
    async with holdfast.open(url, agents=[shoppers.shoppers], settings=QUICK) as hf:
        helper = asyncio.create_task(gives(hf, "s", over))
        run = await hf.start(shoppers.shoppers, id="s")
        for nth in range(4):
            await asyncio.sleep(1 + nth / 2)
            own_server.kill()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own_server.start, ("shared_buffers=32MB",))
        assert await result(hf, run.id, over, "300s") == shoppers.PRICE
        over.set()
        assert {*await helper} == await all_told(hf, "s")
        assert await hf.approvals() == []


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("events", [8000, 60])
async def test_a_budget_is_counted_once_under_kills(own_cluster, postgres_url, tmp_path, events):  # noqa: F811
    """Workers are ended with -9 again and again, and the server once: in bodies, between the two stores, and at questions."""
    dice, over = random.Random(events), asyncio.Event()
    url = own_cluster.url(events=events, side=quote(postgres_url, safe=""))
    fleet = Fleet(url, tmp_path, app=shoppers.__name__)
    async with holdfast.open(url) as hf:
        fleet.start()
        helpers = [asyncio.create_task(gives(hf, "s", over))]
        try:
            await hf.start(shoppers.shoppers, id="s")
            for nth in range(6):
                await asyncio.sleep(dice.uniform(0.5, 4.0))
                fleet.kill()
                await asyncio.sleep(dice.uniform(0, 0.3))
                fleet.start()
                if nth == 3:
                    own_cluster.kill()
                    await asyncio.sleep(0.5)
                    await asyncio.to_thread(own_cluster.start)
            helpers.append(asyncio.create_task(kept(fleet, over)))
            assert await result(hf, "s", over, "500s") == shoppers.PRICE
            over.set()
            assert {*await helpers[0]} == await all_told(hf, "s")
            assert await hf.approvals() == []
        finally:
            over.set()
            fleet.kill()
            await asyncio.gather(*helpers, return_exceptions=True)
    _, again, two = await ran_again(f"127.0.0.1:{own_cluster.port}", tmp_path / "ledger")
    assert (again, two) == ([], [])
    await asyncio.sleep(1.5)  # the index of the cluster is a moment behind
    await asyncio.to_thread(replays, own_cluster.url(), ["0", "77"])
