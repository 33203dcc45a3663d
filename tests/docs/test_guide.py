"""The blocks of docs/guide/, run as they stand there."""

import asyncio
import dataclasses
import json
import subprocess
import sys

import pytest
from tests.docs.pages import block, module

import holdfast
import holdfast.sync
import holdfast.testing

PAGE = "docs/guide"


def ran(module_, agent, *args, crash=True):
    """The result of the agent, the same with a crash at every point."""
    results = []

    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[module_]):
            results.append(await hf.run(agent, *args))
            if not crash:
                break

    asyncio.run(main())
    assert all(result == results[0] for result in results)
    return results[0]


def test_the_first_agent(tmp_path):
    """The research agent runs from Python as the guide says, and again by the same id."""
    research = module(PAGE, "guide: research").research
    main = module(PAGE, "guide: run").main
    expected = "published 44 characters"
    assert asyncio.run(main(tmp_path / "a.db", research)) == expected
    assert asyncio.run(main(tmp_path / "a.db", research)) == expected


def test_home():
    """The agent of the first page, which asks before it publishes."""
    home = module("docs/index.md", "guide: home")

    async def main():
        async with holdfast.testing.open(agents=[home.research]) as hf:
            run = await hf.start(home.research, ["a", "b"], id="r")
            assert (await run.wait_for_question()).shown == ["what a says", "what b says"]
            await hf.approve("r", by="ana")
            assert await run.result() == "published"

    asyncio.run(main())


async def test_time_travel():
    """A fork with another price is not asked for what is dear; the original waits on."""
    page = "docs/time-travel.md"
    shop, cheaper = module(page, "guide: fork"), module(page, "guide: fork a run").cheaper
    async with holdfast.testing.open(agents=[shop.shopping]) as hf:
        run = await hf.start(shop.shopping, "a boat", id="shop-1")
        await run.wait_for_question()
        assert await cheaper(hf) == "a boat for 10 euros"
        assert (await run.info()).status == "waiting"


def test_start():
    """Arguments are given by position or by name."""
    research, page = module(PAGE, "guide: research").research, module(PAGE, "guide: start")

    async def main():
        async with holdfast.testing.open(agents=[research]) as hf:
            assert await page.start_two(hf, research) == ["published 44 characters", "published 47 characters"]

    asyncio.run(main())


def test_checkpoint():
    """The survey finds every page, wherever a crash comes."""
    guide = module(PAGE, "guide: checkpoint")

    async def main():
        async with holdfast.testing.open(agents=[guide.survey]) as hf:
            run = await hf.start(guide.survey, 250)
            await hf.crash()
            assert await run.result() == [f"page {page}" for page in range(250)]
            kinds = [event.kind async for event in run.events(follow=False)]
            assert kinds.count("checkpoint") == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    ("cents", "answer", "status"), [(500, None, "paid"), (20_000, True, "paid"), (20_000, False, "refused")]
)
async def test_reducer(cents, answer, status):
    """An order is paid, a large one if a person takes it; the plain function is tested without a run."""
    guide = module(PAGE, "guide: reducer")
    module(PAGE, "guide: test a reducer").check(guide.order, guide.charge, guide.Order, guide.Placed, guide.Late)
    async with holdfast.testing.open(agents=[guide.order]) as hf:
        run = await hf.start(guide.order, id="order-7")
        await run.send(guide.Placed(cents))
        if answer is not None:
            await hf.answer((await run.wait_for_question()).id, answer, by=holdfast.Actor("ana", groups=("sales",)))
        assert await run.result() == guide.Order(cents, status)


async def test_send_events(tmp_path):
    """An event that is sent starts what the order asks for."""
    guide = module(PAGE, "guide: reducer")
    end = await module(PAGE, "guide: send events").place(f"sqlite:{tmp_path}/a.db", guide.order, guide.Placed)
    assert end.status == "paid"


async def test_state_of_a_reducer():
    """The state after its first event."""
    guide = module(PAGE, "guide: reducer")
    async with holdfast.testing.open(agents=[guide.order]) as hf:
        run = await hf.start(guide.order, id="order-7")
        await run.send(guide.Placed(20_000))
        await run.wait_for_question()
        seen = await module(PAGE, "guide: state of a reducer").seen(run)
        assert seen == (1, {"cents": 20_000, "status": "asking"})


@pytest.mark.parametrize(
    ("card", "starts"),
    [("good", "hf_"), ("empty", "declined: no money"), ("broken", "Permanent after 1: no such card"), ("busy", "hf_")],
)
async def test_failing(card, starts):
    """Declared errors come back as themselves, permanent ones stop, and RetryAfter is obeyed."""
    guide = module(PAGE, "guide: failing")
    async with holdfast.testing.open(agents=[guide.checkout]) as hf:
        result = await hf.run(guide.checkout, card)
        assert result.startswith(starts)
        assert hf.bodies[guide.charge] == {"good": 1, "empty": 3, "broken": 1, "busy": 2}[card]


async def test_in_doubt():
    """The probe finds a mail that was sent before the crash; the question of a crashed wire is answered by a person."""
    guide = module(PAGE, "guide: in doubt")

    async for hf in holdfast.testing.crash_everywhere(agents=[guide.pay]):
        guide.sent.clear()
        run = await hf.start(guide.pay, 10, id="p")
        result = asyncio.create_task(run.result())
        while not result.done():
            for question in await hf.approvals():
                await hf.answer(question, {"result": "wired 10"}, by="ana")
            await asyncio.wait([result], timeout=0.01)
        assert await result == ["mail to ana", "wired 10"]
        assert len(guide.sent) == 1


def test_transaction():
    """The money is moved once, wherever a crash comes."""
    guide = module(PAGE, "guide: transaction")
    assert ran(guide, guide.pay_back) == {"ana": 70, "bo": 130}


async def test_conversation():
    """Each run knows what the ones before it said, and a crash anywhere loses and doubles nothing."""
    guide = module(PAGE, "guide: conversation")

    async for hf in holdfast.testing.crash_everywhere(agents=[guide.reply]):
        for number, prompt in enumerate(["price", "size"]):
            told = f"{prompt}? You have asked {number} times before."
            assert await hf.run(guide.reply, "user-42", prompt, id=prompt) == told
        messages = await hf.conversation("user-42", str).messages()
        assert [message.value for message in messages][::2] == ["price", "size"]
        assert len(messages) == 4


def test_resource():
    """A step uses a resource."""
    guide = module(PAGE, "guide: resource")
    assert ran(guide, guide.read, "x") == "page x"


async def test_waiting():
    """The reminder sleeps two days, hears an answer, or does not."""
    guide = module(PAGE, "guide: waiting")

    async with holdfast.testing.open(agents=[guide.reminder]) as hf:
        run = await hf.start(guide.reminder, "ana")
        await run.send("answer", "yes")
        assert await run.result() == "ana said yes"
        assert await hf.run(guide.reminder, "bo") == "bo did not answer"


async def test_announcements():
    """The delivery hears of its payment."""
    guide = module(PAGE, "guide: announcements")

    async with holdfast.testing.open(agents=[guide.delivery, guide.payment]) as hf:
        run = await hf.start(guide.delivery, 7)
        await run.wait("waiting", waits_for="message")
        await hf.run(guide.payment, 8, "bo")
        await hf.run(guide.payment, 7, "ana")
        assert await run.result() == "order 7 goes to ana"


async def test_race():
    """The first answer wins, also after a crash at any point."""
    guide = module(PAGE, "guide: race")

    async for hf in holdfast.testing.crash_everywhere(agents=[guide.first_answer]):
        assert (await hf.run(guide.first_answer, "?")).endswith("says yes")


def test_strict(tmp_path, monkeypatch):
    """A step of a strict agent writes its file."""
    monkeypatch.chdir(tmp_path)
    guide = module(PAGE, "guide: strict")
    assert ran(guide, guide.reporting, "otters", crash=False) == "written"
    assert (tmp_path / "report.txt").read_text() == "All about otters."


def test_children():
    """Children called and spawned give their results, also after a crash at any point."""
    guide = module(PAGE, "guide: children")
    assert ran(guide, guide.book, ["a", "b", "c", "d"]) == "A B C D"


async def test_flow():
    """The agents of the section on many runs work, alone and called in numbers."""
    guide = module(PAGE, "guide: flow")

    async with holdfast.testing.open(agents=[guide]) as hf:
        runs = [await hf.start(guide.answer_mail, "ana", f"text {n}") for n in range(4)]
        assert [await run.result() for run in runs] == [f"ANA: TEXT {n}" for n in range(4)]
        assert (await hf.store.run(runs[0].id)).queue == "mail"
        first, again = [await hf.start(guide.sync_mailbox, "bo") for _ in range(2)]
        assert first.id == again.id
        await first.send("done")
        assert await again.result() == "synced bo"


async def test_versions():
    """Of two versions of a name a new run gets the last one, and each object starts its own."""
    guide = module(PAGE, "guide: versions")

    async with holdfast.testing.open(agents=[guide]) as hf:
        assert await hf.run("report", "otters") == "otters, the new way"
        assert await hf.run(guide.report_1, "otters") == "otters, the old way"


def test_patched():
    """A new run takes the new side."""
    guide = module(PAGE, "guide: patched")
    assert ran(guide, guide.upgraded) == "new"


def test_testing():
    """The testing kit works as the guide shows it."""
    guide = module(PAGE, "guide: research")
    check = module(PAGE, "guide: testing").check
    asyncio.run(check(guide.research, guide.search, guide.publish))

    @holdfast.agent(name="research")
    async def publishes_twice(topic: str) -> str:
        text = " ".join(await guide.search(topic))
        await guide.publish(text)
        return await guide.publish(text)

    with pytest.raises(AssertionError):
        asyncio.run(check(publishes_twice, guide.search, guide.publish))


async def test_deadline(tmp_path):
    """The page starts a run within a deadline of its own."""
    guide, start = module(PAGE, "guide: research"), module(PAGE, "guide: deadline").start_or_tell

    async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", settings=holdfast.Settings(deadline_s=0.1)) as hf:
        assert await start(hf, guide.research, "otters") == "research-otters"
        assert [info.id for info in await hf.runs()] == ["research-otters"]


def test_plain_code(tmp_path, capsys):
    """The page's script and its web application, which starts by name what the script has published."""
    research, plain = module(PAGE, "guide: research").research, module(PAGE, "guide: plain")
    url = f"sqlite:{tmp_path / 'a.db'}"
    assert plain.script(url, research) == "published 44 characters"
    assert capsys.readouterr().out.split()[-1] == "run.completed"
    with holdfast.sync.open(url, agents=[research]) as hf:
        answer, statuses = plain.application(hf), []

        def ask(method):
            asked = {"REQUEST_METHOD": method, "PATH_INFO": "/otters"}
            (body,) = answer(asked, lambda status, _: statuses.append(status))
            return json.loads(body)

        assert ask("POST")["status"] in ("ready", "running", "completed")
        hf.get("research-otters").wait()
        assert ask("GET") == {"status": "completed", "result": "published 44 characters"}
        assert statuses == ["200 OK", "200 OK"]


def test_async_tests(tmp_path):
    """The page's two ways to test async code run under pytest, beside the file with the agent."""
    (tmp_path / "research.py").write_text(block(PAGE, "guide: research"))
    (tmp_path / "test_research.py").write_text(block(PAGE, "guide: pytest"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_provider():
    """The fake provider works as the guide shows it."""
    page, opened = module(PAGE, "guide: provider"), []

    def provider(script):
        opened.append(page_provider(script))
        return opened[-1]

    page_provider, page.provider = page.provider, provider
    asyncio.run(page.check())
    (fake,) = opened
    assert (fake.asked, fake.paid, [request.prompt for request in fake.requests]) == (3, 2, ["What do otters do?"] * 3)


async def test_asking():
    """The page's agent: edited to what needs two, agreed by both, answered; or denied, or nobody there."""
    page = module(PAGE, "guide: asking")

    async with holdfast.testing.open(agents=[page.privileges]) as hf:
        run = await hf.start(page.privileges, "ada", id="a")
        await run.wait("waiting")
        (question,) = await run.approvals()
        assert question.shown == {"groups": ["dev"], "days": 30}
        await hf.approve("a", by="ana", data={"groups": ["admin"], "days": 1})
        while (question := (await run.approvals())[0]).needs is None:
            await hf.advance("1s")
        await hf.approve(question, by=holdfast.Actor("bob", ["it-admins"]))
        assert await run.result() == "ada is in admin for 1 days, and sits anywhere"
        run = await hf.start(page.privileges, "eve", id="e")
        await run.wait("waiting")
        await hf.deny("e", by="ana", note="who is that?")
        assert await run.result() == "ana said no: who is that?"
        assert await hf.run(page.privileges, "bob") == "nobody decided"


async def test_deciding(tmp_path):
    """A process without the agent's code decides what is for one person."""
    asking, deciding = module(PAGE, "guide: asking"), module(PAGE, "guide: deciding")

    url = f"sqlite:{tmp_path / 'people.db'}"
    async with holdfast.open(url, agents=[asking.privileges]) as hf:
        run = await hf.start(asking.privileges, "ada")
        async for event in run.events():
            if event.kind == "approval.asked" and event.data["kind"] == "approve":
                await deciding.decide_all(url)
            elif event.kind == "approval.asked":
                await hf.answer(run.id, "by the window", by="ada")
        assert await run.result() == "ada is in dev for 30 days, and sits by the window"


async def test_control(tmp_path):
    """Paused, resumed and cancelled as the guide does it: the agent gives back what it rented, and the filter finds its run."""
    guide = module(PAGE, "guide: control")
    url = f"sqlite:{tmp_path / 'a.db'}"

    async with holdfast.open(url, agents=[guide.experiment], settings=holdfast.Settings(park_grace_s=0)) as hf:
        run = await hf.start(guide.experiment, "big", id="exp-1")
        other = await hf.start(guide.experiment, "small", id="exp-2", labels={"team": "night"})
        await asyncio.gather(run.wait("waiting"), other.wait("waiting"))
        assert await guide.stop(url) == ["exp-2"]
        with pytest.raises(holdfast.RunCancelled, match="cancelled by ben: no budget left"):
            await run.result(timeout=20)
        assert (await other.wait(timeout=20)).status == "cancelled"
        done = [event.data["name"] async for event in run.events(follow=False) if event.kind == "step.completed"]
        assert done == ["rent", "give_back"]


async def test_steering():
    """The order reaches the watchman once, and its receipt says where."""
    guide = module(PAGE, "guide: steering")

    async with holdfast.testing.open(agents=[guide.watchman]) as hf:
        run = await hf.start(guide.watchman, 3, id="w")
        await run.wait("waiting")
        await guide.order(hf, "w")
        await guide.order(hf, "w")
        assert await run.result() == ["look at the gate"]
        seen = await guide.order(hf, "w")
        events = [event async for event in run.events(follow=False)]
        assert events[seen].kind == "message.received"


def test_progress():
    """The plan as it is at the end, also after a crash at any point."""
    guide = module(PAGE, "guide: progress")
    assert ran(guide, guide.digest, 2) == "- [x] read\n- [ ] write\n- [ ] send\n- [ ] celebrate"


async def test_audit():
    """Who did what, the newest first."""
    guide, control = module(PAGE, "guide: audit"), module(PAGE, "guide: control")

    async with holdfast.testing.open(agents=[control.experiment]) as hf:
        run = await hf.start(control.experiment, "big", id="e", after="1h")
        await run.pause(by="ana", reason="lunch")
        await run.resume(by="ana")
        await run.cancel(by="ben")
        assert await guide.who_did_what(hf, "e") == [
            "ben: cancel", "ana: resume", "ana: pause lunch", "someone: start",
        ]  # fmt: skip
        assert await guide.what_ana_approved(hf) == []
        assert await guide.forget(hf, "e") == 2
        assert "ana: pause" in await guide.who_did_what(hf, "e")


def test_models():
    """The answer is checked, wherever a crash comes; the next model is asked when the first one fails."""
    guide = module(PAGE, "guide: models")
    assert ran(guide, guide.watch, "otters") == ["Otters", "sleep."]
    asked = []

    async def ask(model, prompt, problem=""):
        asked.append(model)
        if model == "gpt-large":
            raise holdfast.Permanent("no such model")
        return "They sleep."

    async def main():
        async with holdfast.testing.open(agents=[guide.watch], replace={guide.ask: ask}) as hf:
            return await hf.run(guide.watch, "otters")

    assert asyncio.run(main()) == ["They", "sleep."]
    assert asked == ["gpt-large", "gpt-small"]


def test_streams():
    """The answer is whole and read whole whatever crashes, and a step that fails hands on what it had written."""
    guide = module(PAGE, "guide: streams")

    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[guide.chat]):
            run = await hf.start(guide.chat, "otters hold hands", id="o")
            assert await guide.follow(hf, "o") == await run.result() == "otters hold hands "

        class Broke(Exception):
            """The model's connection ended."""

        async def breaks_off(prompt):
            yield prompt.split()[0] + " "
            raise Broke

        guide.words = breaks_off
        async with holdfast.testing.open(agents=[guide.chat]) as hf:
            assert await hf.run(guide.chat, "otters hold hands and paws") == "otters hold hands  [failed]"

    asyncio.run(main())


def test_budget():
    """The agent comes to an end by itself when most is spent; the step that is too much is not run."""
    guide = module(PAGE, "guide: budget")
    found = ran(guide, guide.ponder, "otters", crash=False)
    assert found == [
        "some thoughts on otters, part 1",
        "some thoughts on otters, part 2",
        "some thoughts on otters, part 3",
        "stopped: 0.70 USD of 0.60",
    ]


async def test_renaming(tmp_path):
    """A state and a result from before the field was renamed lose nothing."""
    page = module(PAGE, "guide: renaming")

    @dataclasses.dataclass
    class Progress:
        sent: list[str] = dataclasses.field(default_factory=list)

    @holdfast.step(name="look")
    async def look() -> Progress:
        return Progress(["bob"])

    @holdfast.agent(name="newsletter")
    async def newsletter() -> None:
        await holdfast.checkpoint(await holdfast.restore(Progress(["ana"])))
        await look()
        await holdfast.receive("wake")

    async with holdfast.testing.open(agents=[newsletter], path=tmp_path / "a.db") as hf:
        await (await hf.start(newsletter, id="r")).wait("waiting")
    async with holdfast.testing.open(agents=[page.newsletter], path=tmp_path / "a.db") as hf:
        await hf.get("r").send("wake")
        returned = await hf.get("r").result(timeout=20)
    assert returned == ["ana", "bob"]


def test_history(capsys):
    """A run is looked into while it waits: its calls, the whole input of one, what it waits for, and its state."""
    guide = module(PAGE, "guide: history")

    async def main():
        async with holdfast.testing.open(agents=[guide.chat]) as hf:
            run = await hf.start(guide.chat, 3, id="r-1")
            for n in range(2):
                await run.send("say", f"word {n}")
            await run.wait("waiting", waits_for="message")
            while (state := await run.state()) is None or state.era < 2:
                await asyncio.sleep(0.01)
            return await guide.look(hf, "r-1")

    assert asyncio.run(main()) == ["word 0", "an answer to word 0", "word 1"]
    told = capsys.readouterr().out
    assert "@1/ask_model#0 completed 1" in told
    assert "message say" in told
