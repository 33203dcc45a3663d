"""Triggers in whole: what a mapping returns is done once; what it cannot do is tried again, dead, seen and replayed."""

from __future__ import annotations

import asyncio
import traceback
import types
from dataclasses import replace

import pytest

import holdfast
import holdfast.sync
import holdfast.testing
from holdfast import BadArguments, Decide, Delivery, Send, Start, UnknownTrigger, Verify
from holdfast.store.triggers import DecideAct

BEARER = Verify.bearer("env:TOKEN")


@holdfast.step
async def double(number: int) -> int:
    return 2 * number


@holdfast.agent
async def doubled(number: int) -> int:
    return await double(number)


@holdfast.agent
async def hears() -> list[str]:
    return [await holdfast.receive("word", str) for _ in range(2)]


@holdfast.agent
async def asks() -> str:
    if not await holdfast.approve("Go on?", to="ana"):
        return "no"
    return await holdfast.ask("Where?", str)


@holdfast.on.webhook("numbers", verify=BEARER)
def numbers(delivery: Delivery) -> list[Start] | None:
    told = delivery.json()
    return None if told is None else [Start(doubled, each) for each in told]


@holdfast.on.webhook("words", verify=BEARER)
async def words(delivery: Delivery) -> Send:
    await asyncio.sleep(0)
    told = delivery.form()
    return Send(told["run"], "word", told["word"])


async def test_what_a_mapping_asks_for_and_is_refused_is_one_line_that_says_what_to_do(caplog):
    """Without a traceback: the reason is in no code."""

    @holdfast.on.webhook("tells", verify=BEARER, retry=2)
    def tells(delivery: Delivery) -> Send | Start:
        told = delivery.json()
        return Start(doubled, told["number"], id="taken") if "number" in told else Send(told["run"], "word", "hi")

    async with holdfast.testing.open(agents=[tells, doubled]) as hf:
        await hf.run(doubled, 1, id="taken")
        for told, dead, says in (
            (
                {"run": "nobody"},
                False,
                "UnknownRun: Send('nobody', 'word') has sent nothing: there is no such run. Check the id, or",
            ),
            (
                {"run": "taken"},
                True,
                "RunFinished: Send('taken', 'word') has sent nothing: run 'taken' is completed and takes no more",
            ),
            (
                {"number": 2},
                True,
                "RunExists: Start(doubled, id='taken') has started nothing: there is a run 'taken' of 'doubled'",
            ),
        ):
            caplog.clear()
            info = await hf.fire(tells, told)
            assert info.status == ("dead" if dead else "new")
            assert info.error.startswith(says)
            (record,) = caplog.records
            assert record.exc_info is None and says in record.getMessage() and "\n" not in record.getMessage()
            assert not dead or "it is dead: `holdfast triggers tells` shows it" in record.getMessage()
        assert (await hf.fire(tells, {"number": 1})).outcome[0]["was_there"]  # the same again is harmless
        caplog.clear()
        info = await hf.fire(tells, body=b"<otters>", headers={"content-type": "text/xml"})
        assert info.status == "dead"
        assert info.error == (
            "BadArguments: the body (8 bytes, content-type 'text/xml') is not JSON: Expecting value: line 1 column 1 (char 0). "
            "Have JSON sent, or read it with delivery.text() or delivery.form()"
        )
        assert caplog.records[0].exc_info is None


async def test_what_a_mapping_raises_is_logged_with_the_lines_of_its_own_code(caplog):
    @holdfast.on.webhook("raises", verify=BEARER)
    def raises(delivery: Delivery) -> None:
        raise LookupError("no such box")

    async with holdfast.testing.open(agents=[raises]) as hf:
        assert (await hf.fire(raises)).error == "LookupError: no such box"
    (record,) = caplog.records
    frames = traceback.extract_tb(record.exc_info[2])
    assert [frame.name for frame in frames] == ["raises"]


async def test_one_delivery_starts_its_runs_once_through_crashes():
    async with holdfast.testing.open(agents=[numbers]) as hf:
        for _ in range(3):
            info = await hf.fire(numbers, [1, 2], id="d")
            assert info.outcome == (
                {"start": "numbers@d", "agent": "doubled"},
                {"start": "numbers@d.2", "agent": "doubled"},
            )
            await hf.crash()
        assert [await hf.get(run).result() for run in ("numbers@d", "numbers@d.2")] == [2, 4]
        assert hf.bodies[double] == 2
        (deed,) = await hf.audit(run="numbers@d")
        assert (deed.action, deed.by, deed.via) == ("start", "webhook", "webhook:numbers")
        assert (await hf.fire(numbers, None)).status == "done"
        assert (await hf.delivery("numbers", "d")).body == b"[1, 2]"
        (told,) = await hf.triggers()
        assert (told.name, told.kind, told.workers, told.waiting, told.dead, told.done) == (
            "numbers", "webhook", 1, 0, 0, 2,
        )  # fmt: skip


async def test_messages_and_decisions():
    @holdfast.on.webhook("clicks", verify=BEARER)
    def clicks(delivery):
        told = delivery.json()
        if told["press"] == "answer":
            return Decide(told["run"], "answer", told["value"], by=told["who"])
        return Decide(told["run"], told["press"], by=told["who"], note="by a button")

    async with holdfast.testing.open(agents=[words, clicks, asks, hears]) as hf:
        listener = await hf.start(hears, id="l")
        for id, word in (("1", "one"), ("1", "one"), ("2", "two")):
            assert (await hf.fire("words", body=f"run=l&word={word}".encode(), id=id)).status == "done"
        assert await listener.result() == ["one", "two"]

        run = await hf.start(asks, id="a")
        question = await run.wait_for_question()
        refused = await hf.fire(clicks, {"run": question.id, "press": "approve", "who": "eve"})
        assert refused.status == "dead" and "NotAllowed" in refused.error
        done = await hf.fire(clicks, {"run": question.id, "press": "approve", "who": "ana"})
        assert done.outcome == ({"decide": question.id, "run": "a", "by": "ana", "status": "decided"},)
        late = await hf.fire(clicks, {"run": question.id, "press": "deny", "who": "ana"})
        assert late.status == "dead" and "AlreadyDecided" in late.error
        assert late.attempts == 1
        second = await run.wait_for_question()
        wrong = await hf.fire(clicks, {"run": second.id, "press": "answer", "value": 5, "who": "ana"})
        assert wrong.status == "dead" and "BadArguments" in wrong.error
        assert (
            await hf.fire(clicks, {"run": second.id, "press": "answer", "value": "here", "who": "ana"})
        ).status == "done"
        assert await run.result() == "here"
        deeds = {(deed.action, deed.by, deed.via) for deed in await hf.audit(run="a")}
        assert {("approve", "ana", "webhook:clicks"), ("answer", "ana", "webhook:clicks")} <= deeds


@holdfast.agent
async def asks_twice() -> list[bool]:
    return [bool(await holdfast.approve(text, to="ana")) for text in ("Delete the draft?", "Delete the original?")]


@holdfast.agent
async def has_one_ask() -> list[bool]:
    return await asks_twice()


@holdfast.on.webhook("presses", verify=BEARER)
def presses(delivery: Delivery) -> Decide:
    return Decide("a", "approve", by="ana")


@pytest.mark.parametrize("agent", [asks_twice, has_one_ask])
async def test_a_delivery_that_comes_again_decides_no_other_question(store_url, agent):
    """As a broker gives a message again: its key has decided, and the next question of the run was seen by nobody."""
    async with holdfast.open(store_url, agents=[presses, has_one_ask]) as hf:
        run = await hf.start(agent, id="a")
        first = await run.wait_for_question()
        spec, decide = presses.spec, Decide("a", "approve", by="ana")
        early = await hf._decide_act(decide, "presses@m", "webhook:presses")
        (done,) = await hf._apply(spec, None, [decide], "m")
        assert (done["decide"], done["status"]) == (first.id, "decided")
        while (second := await run.wait_for_question()).id == first.id:
            await asyncio.sleep(0.01)
        assert await hf._apply(spec, None, [decide], "m") == [done]
        assert await hf._apply(spec, None, [Decide("a", "answer", 5, by="ana")], "m") == [done]
        late = DecideAct(replace(early.decide, approval=second.id), second.run, "a")  # found before, applied behind
        assert await hf.store.apply([early, late]) == [done, done]
        await hf._receive("presses", "webhook", "m", {}, b"")
        while (await hf.deliveries(trigger="presses"))[0].status == "new":
            await asyncio.sleep(0.01)
        assert (await hf.deliveries(trigger="presses"))[0].outcome == (done,)
        assert [asked.id for asked in await hf.approvals()] == [second.id]
        (other,) = await hf._apply(spec, None, [decide], "n")
        assert other["decide"] == second.id
        assert await run.result() == [True, True]


async def test_what_fails_is_tried_again_then_dead_then_replayed(caplog):
    tried = []

    @holdfast.on.webhook("weak", verify=BEARER, retry=holdfast.Retry(3, first="10s", max="10s"))
    def weak(delivery):
        tried.append(delivery.id)
        if len(tried) < 4:
            raise ConnectionError("no \x1b[31mline")
        return Start(doubled, 4)

    async with holdfast.testing.open(agents=[weak]) as hf:
        info = await hf.fire(weak, id="w")
        assert (info.status, info.attempts, info.error) == ("new", 1, "ConnectionError: no \x1b[31mline")
        await hf.advance("11s")
        await hf.advance("11s")
        (info,) = await hf.deliveries(status="dead")
        assert (info.trigger, info.id, info.attempts) == ("weak", "w", 3)
        await hf.advance("1h")
        assert len(tried) == 3
        assert "it is dead: `holdfast triggers weak` shows it" in caplog.text
        assert "\x1b" not in caplog.text
        await hf.acting_as("ana").replay_delivery("weak", "w")
        await hf.advance("1s")
        assert await hf.get("weak@w").result() == 8
        deeds = [(deed.by, deed.data) for deed in await hf.audit(action="replay_delivery")]
        assert deeds == [("ana", {"trigger": "weak", "delivery": "w"})]


@pytest.mark.parametrize(
    ("returns", "says"),
    [
        ("nonsense", "return Start"),
        (Start("nobody"), "UnknownAgent"),
        (Start(doubled, "x"), "number"),
        (Start(doubled, 1, id="-x"), "can be mistaken"),
        (Start(doubled, 1, labels={"a": 5}), "labels are strings"),
        (Start(5), "start takes an agent"),
        (Send("gone", "t", 1), "UnknownRun"),
        (Send(5, "t", 1), "is not a run id"),
        (Send("gone", "", 1), "topic"),
        (Send("gone", "t", object()), "NotStorable"),
        (Decide("gone", "approve", by="ana"), "UnknownApproval"),
        ([Start(doubled, 1), Send("gone", "t")], "UnknownRun"),
    ],
)
async def test_what_a_mapping_should_not_return_is_told_and_does_nothing(returns, says):
    @holdfast.on.webhook("odd", verify=BEARER, retry=1)
    def odd(delivery):
        return returns

    async with holdfast.testing.open(agents=[odd, doubled]) as hf:
        info = await hf.fire(odd)
        assert info.status == "dead"
        assert says in info.error
        assert await hf.runs() == []


async def test_a_mapping_that_takes_long_holds_up_no_other():
    begun, go_on = asyncio.Event(), asyncio.Event()

    @holdfast.on.webhook("slow", verify=BEARER)
    async def slow(delivery):
        begun.set()
        await go_on.wait()

    async with holdfast.testing.open(agents=[slow, numbers]) as hf:
        await hf._receive("slow", "webhook", "s", {}, b"")
        await begun.wait()
        await hf._receive("numbers", "webhook", "n", {}, b"[3]")
        while await hf.deliveries(trigger="numbers", status="new"):
            await asyncio.sleep(0.01)
        assert (await hf.deliveries(trigger="slow"))[0].status == "new"
        go_on.set()
        while await hf.deliveries(status="new"):
            await asyncio.sleep(0.01)


async def test_many_of_one_trigger_hold_up_no_other():
    """Half of the room is the most for one, however many hang."""
    begun, go_on = [], asyncio.Event()

    @holdfast.on.webhook("slow", verify=BEARER)
    async def slow(delivery):
        begun.append(delivery.id)
        await go_on.wait()

    async with holdfast.testing.open(agents=[slow, numbers]) as hf:
        await asyncio.gather(*[hf._receive("slow", "webhook", f"s{n}", {}, b"") for n in range(80)])
        while len(begun) < 25:
            await asyncio.sleep(0.01)
        await hf._receive("numbers", "webhook", "n", {}, b"[3]")
        while await hf.deliveries(trigger="numbers", status="new"):
            await asyncio.sleep(0.01)
        assert 25 <= len(begun) <= 50
        go_on.set()
        while await hf.deliveries(status="new"):
            await asyncio.sleep(0.01)
        assert len(begun) == len(set(begun)) == 80


async def test_modules_and_lists_with_triggers_are_served():
    found = types.ModuleType("mod")
    found.numbers, found.doubled, found.words = numbers, doubled, words
    async with holdfast.testing.open(agents=[found]) as hf:
        assert (await hf.fire("numbers", [5], id="m")).status == "done"
        assert await hf.get("numbers@m").result() == 10
    twin = holdfast.on.webhook("numbers", verify=BEARER)(lambda _: None)
    with pytest.raises(BadArguments, match="two triggers are named 'numbers'"):
        holdfast.open(agents=[numbers, twin])
    with pytest.raises(BadArguments, match=r"agents= takes a list: agents=\[numbers\]"):
        holdfast.open(agents=numbers)
    with pytest.raises(BadArguments, match="no trigger 'none' is served here"):
        async with holdfast.testing.open(agents=[numbers]) as hf:
            await hf.fire("none")


async def test_code_that_is_served_later_takes_the_place_of_a_trigger():
    async with holdfast.testing.open(agents=[numbers]) as hf:
        await hf.serve(holdfast.on.webhook("numbers", verify=BEARER)(lambda _: Start(doubled, 100)))
        await hf.fire("numbers", [1], id="x")
        assert await hf.get("numbers@x").result() == 200


async def test_questions_about_what_is_not_there():
    async with holdfast.testing.open(agents=[numbers]) as hf:
        assert await hf.deliveries(trigger="none") == []
        with pytest.raises(BadArguments, match="choose one of new, done, dead"):
            await hf.deliveries(status="late")
        with pytest.raises(UnknownTrigger):
            await hf.replay_delivery("numbers", "none")
        with pytest.raises(UnknownTrigger):
            await hf.delete_trigger("none")


async def test_what_a_held_copy_has_is_not_mapped(tmp_path):
    async with holdfast.testing.open(agents=[numbers]) as hf:
        await hf.fire(numbers, [1], id="before")
        await hf._drop()  # no worker any more
        await hf._open()
        await hf.backup(tmp_path / "copy.backup")
    await holdfast.restore_backup(tmp_path / "copy.backup", f"sqlite:{tmp_path / 'copy.db'}")
    async with holdfast.open(f"sqlite:{tmp_path / 'copy.db'}", agents=[numbers]) as copy:
        await copy._receive("numbers", "webhook", "after", {}, b"[2]")
        await asyncio.sleep(0.3)
        assert [info.status for info in await copy.deliveries()] == ["new", "done"]
        await copy.activate()
        while (await copy.deliveries())[0].status == "new":
            await asyncio.sleep(0.02)


def test_plain_code(tmp_path):
    with holdfast.sync.open(f"sqlite:{tmp_path / 'runs.db'}", agents=[numbers]) as hf:
        assert hf.deliveries() == []
        while not hf.triggers():
            pass
        assert [info.name for info in hf.triggers()] == ["numbers"]


@pytest.mark.parametrize(
    "error", [SystemExit(3), asyncio.CancelledError(), holdfast.StoreUnavailable("another store")], ids=repr
)
async def test_a_mapping_that_would_end_its_worker_fails_as_others_do(error):
    def ends(delivery: Delivery) -> None:
        raise error

    async def ends_later(delivery: Delivery) -> None:
        raise error

    both = [
        holdfast.on.webhook(fn.__name__, verify=BEARER, retry=holdfast.Retry(attempts=1))(fn)
        for fn in (ends, ends_later)
    ]
    async with holdfast.testing.open(agents=[*both, numbers]) as hf:
        for each in both:
            info = await hf.fire(each, {}, id="d")
            assert (info.status, info.attempts) == ("dead", 1) and type(error).__name__ in info.error
        assert (await hf.fire(numbers, [1], id="d")).status == "done"


async def test_triggers_have_their_turn_however_many_there_are():
    """Those that always have something due hold up none of the others."""
    begun = []

    def declared(number):
        @holdfast.on.webhook(f"t{number:02}", verify=BEARER)
        async def mapping(delivery):
            begun.append(delivery.trigger)

        return mapping

    async with holdfast.testing.open(agents=[declared(number) for number in range(60)]) as hf:
        await asyncio.gather(
            *[hf._receive(f"t{number:02}", "webhook", f"k{nth}", {}, b"") for number in range(60) for nth in range(3)]
        )
        async with asyncio.timeout(20):
            while await hf.deliveries(status="new"):
                await asyncio.sleep(0.01)
    assert len(begun) == 180 and len(set(begun)) == 60


async def test_a_name_that_is_taken_by_another_kind_stays_so_and_the_log_says_it(tmp_path, caplog):
    """Neither worker maps what came for the trigger of the other."""
    mapped = []

    @holdfast.on.webhook("t", verify=BEARER)
    def hook(delivery):
        mapped.append(("hook", delivery.id))

    @holdfast.on.files(f"{tmp_path}/none/*.txt", name="t")
    def found(delivery):
        mapped.append(("found", delivery.id))

    url = f"sqlite:{tmp_path / 'runs.db'}?durability=process"
    async with asyncio.timeout(20), holdfast.open(url, agents=[hook]) as one:
        while not await one.triggers():
            await asyncio.sleep(0.01)
        async with holdfast.open(url, agents=[found]) as two:
            while "trigger 't' is a files here, and a webhook in other workers" not in caplog.text:
                await asyncio.sleep(0.01)
            for nth in range(5):
                await two._receive("t", "webhook", f"w{nth}", {}, b"")
                await two._receive("t", "files", f"f{nth}", {}, b"")
            while await one.deliveries(status="new"):
                await asyncio.sleep(0.01)
            assert [info.kind for info in await one.triggers()] == ["webhook"]
    assert sorted(mapped) == [("found", f"f{n}") for n in range(5)] + [("hook", f"w{n}") for n in range(5)]
