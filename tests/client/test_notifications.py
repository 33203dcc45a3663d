"""Notifications in whole: what happens to runs reaches those who are told, signed, in order of ids, and again until it is taken."""

import asyncio
import base64
import contextlib
import json
import time
from email import message_from_bytes, policy

import pytest
from tests.receivers import MailServer, Receiver, until_async

import holdfast
import holdfast.sync
from holdfast import BadArguments, Budget, Retry, UnknownNotification
from holdfast.words.notifications import scheme
from holdfast.words.webhooks import check
from holdfast.worker import senders

SECRET = b"a secret of the tests, 32 bytes."
QUICK = Retry(5, first="10ms", factor=1, max="10ms")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv(senders.NETWORKS, "127.0.0.0/8 ::1")
    monkeypatch.setenv("OPS_SECRET", f"whsec_{base64.b64encode(SECRET).decode()}")


@holdfast.step
async def pay(cents: int) -> int:
    holdfast.spend(usd=cents / 100)
    return cents


@holdfast.agent
async def pays(cents: int) -> int:
    return await pay(cents)


@holdfast.agent
async def fails(why: str) -> None:
    raise ValueError(why)


@holdfast.agent
async def asks(text: str) -> bool:
    return bool(await holdfast.approve(text, show={"hidden": "hidden"}, to="ana"))


@contextlib.asynccontextmanager
async def opened(tmp_path, *agents):
    async with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}", agents=agents or [pays, fails, asks]) as hf:
        yield hf


async def settled(handle, **counts):
    """Wait until so many messages are done, dead or waiting."""
    while {name: getattr(info := await handle.info(), name) for name in counts} != counts:
        await asyncio.sleep(0.005)
    return info


async def failing(handle, why=""):
    """Wait until its first message has failed, for this reason."""
    while not [each for each in await handle.deliveries() if each.error and why in each.error]:
        await asyncio.sleep(0.005)
    return (await handle.deliveries())[-1]


async def test_what_happens_is_told_signed_and_once(tmp_path):
    with Receiver() as receiver:
        async with opened(tmp_path) as hf:
            await hf.run(pays, 1)
            kinds = ["approval.asked", "run.failed", "run.completed"]
            ops = await hf.notify(
                receiver.url, kinds, secret="env:OPS_SECRET", name="ops", base_url="http://h.example/"
            )
            await hf.run(pays, 2, id="p", labels={"team": "docs"})
            with pytest.raises(holdfast.RunFailed):
                await hf.run(fails, "no room", id="f")
            await hf.start(asks, "Go on?", id="a")
            await until_async(lambda: len(receiver.requests) == 3)
            info = await settled(ops, done=3, waiting=0)
            assert (info.url, info.kinds, info.format, info.state, info.dead) == (
                f"http://localhost:{receiver.port}/…", tuple(kinds), "json", "active", 0,
            )  # fmt: skip
            (question,) = await hf.approvals()
        told = sorted((request.json() for request in receiver.requests), key=lambda each: each["data"]["position"])
        assert [(each["type"], each["data"]["run"]) for each in told] == [
            ("run.completed", "p"), ("run.failed", "f"), ("approval.asked", "a"),
        ]  # fmt: skip
        assert told[0]["data"]["labels"] == {"team": "docs"}
        assert told[1]["data"]["error"] == {"type": "ValueError", "message": "no room"}
        assert told[2]["data"]["question"] == {
            "id": question.id, "kind": "approve", "text": "Go on?", "to": ["ana"], "digest": question.digest,
            "link": f"http://h.example/api/approvals/{question.id}", "page": f"http://h.example/approvals/{question.id}",
        }  # fmt: skip
        for request in receiver.requests:
            found = check(scheme(), [SECRET], request.headers.items(), request.body, round(time.time() * 1000))
            assert found.id == request.id
            assert b"hidden" not in request.body
        assert len({request.id for request in receiver.requests}) == 3


async def test_a_receiver_that_fails_is_asked_again_with_the_same_message(tmp_path):
    answers = iter([500, "close", "half", b"HTTP/1.1 307 X\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", 204])
    with Receiver(lambda _: next(answers)) as receiver:
        async with opened(tmp_path) as hf:
            ops = await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops", retry=QUICK)
            await hf.run(pays, 1)
            await settled(ops, done=1)
        assert len(receiver.requests) == 5
        assert len({(request.id, request.body) for request in receiver.requests}) == 1


async def test_a_worker_that_may_not_reach_a_network_leaves_its_messages_to_one_that_may(tmp_path, monkeypatch, caplog):
    """No attempt is counted, the message says why it waits, and the worker that may sends it."""
    monkeypatch.delenv(senders.NETWORKS)
    with Receiver() as receiver:
        async with opened(tmp_path) as hf:
            once = Retry(attempts=1)
            ops = await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops", retry=once)
            await hf.run(pays, 1)
            await until_async(lambda: "'ops' to others: localhost is not a public address" in caplog.text)
            while not (message := (await ops.deliveries())[0]).error:
                await asyncio.sleep(0.005)
            assert (message.status, message.attempts) == ("new", 0)
            assert message.error.startswith("left to another worker: localhost is not a public address")
            monkeypatch.setenv(senders.NETWORKS, "127.0.0.0/8 ::1")
            async with opened(tmp_path):
                await settled(ops, done=1)
        assert len(receiver.requests) == 1
        assert caplog.text.count("to others") == 1


async def test_dead_then_replayed(tmp_path, caplog):
    """After so many attempts, or at once where nobody is any more; the audit has it, the log has no secret of it."""
    answers = {"status": 500}
    with Receiver(lambda _: answers["status"]) as receiver:
        async with opened(tmp_path) as hf:
            ops = await hf.notify(
                receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops", retry=Retry(2, first="10ms")
            )
            await hf.run(pays, 1)
            await settled(ops, dead=1)
            (dead,) = await ops.deliveries(status="dead")
            assert (dead.attempts, dead.error) == (2, "localhost answered 500")
            answers["status"] = 410
            await hf.run(pays, 1)
            await settled(ops, dead=2)
            assert len(receiver.requests) == 3
            deaths = [deed for deed in await hf.audit() if deed.action == "notification_dead"]
            assert [deed.data["message"] for deed in deaths][-1] == dead.id
            assert await hf.deliveries() == []  # those are of triggers
            answers["status"] = 200
            assert (await ops.replay(dead.id)).status == "new"
            await settled(ops, dead=1, done=1)
            assert receiver.requests[-1].id == dead.id
            with pytest.raises(UnknownNotification, match="has no message 'none'"):
                await ops.replay("none")
    assert "it is dead: `holdfast notify ops` shows it" in caplog.text
    assert "hidden" not in caplog.text and "/hooks/" not in caplog.text


async def test_retry_after_is_obeyed(tmp_path):
    busy = b"HTTP/1.1 429 X\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n"
    with Receiver(lambda _: busy) as receiver:
        async with opened(tmp_path) as hf:
            ops = await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops", retry=QUICK)
            await hf.run(pays, 1)
            waiting = await failing(ops)
            assert 3_500 < (waiting.due_at - waiting.received_at).total_seconds() <= 3_700


async def test_a_receiver_that_hangs_holds_up_no_other(tmp_path):
    with Receiver(lambda _: "hang") as hangs, Receiver() as receiver:
        async with opened(tmp_path) as hf:
            await hf.notify(hangs.url, "run.completed", secret="env:OPS_SECRET", name="a-hangs")
            quick = await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", name="quick")
            await asyncio.gather(*[hf.run(pays, 1) for _ in range(20)])
            await settled(quick, done=20)
            await until_async(lambda: len(hangs.held) >= 8)
            assert len(hangs.held) == 8  # at a time
            assert (await hf.get_notification("a-hangs").info()).waiting == 20
            hangs.stop()  # nothing is on its way when the worker stops


async def test_slack_by_a_variable(tmp_path, monkeypatch):
    with Receiver() as receiver:
        monkeypatch.setenv("SLACK_URL", receiver.url)
        async with opened(tmp_path) as hf:
            chat = await hf.notify("env:SLACK_URL", "approval.asked", format="slack")
            await hf.start(asks, "Pay <now>?", id="a")
            await settled(chat, done=1)
            (question,) = await hf.approvals()
            assert (await chat.info()).url == "env:SLACK_URL"
        (request,) = receiver.requests
        assert request.path == "/hooks/T0/secret?key=hidden"
        assert request.json() == {
            "text": f"*approval.asked: asks, run a*\nPay &lt;now&gt;?\nDecide (for ana): holdfast approve {question.id}"
        }
        assert "webhook-signature" not in request.headers


async def test_mail_that_is_tried_again_is_the_same_mail(tmp_path, monkeypatch):
    answers = iter(["451 later", None])
    with MailServer(lambda _: next(answers)) as server:
        monkeypatch.setenv(senders.SMTP_URL, f"smtp://127.0.0.1:{server.port}")
        monkeypatch.setenv(senders.SMTP_FROM, "holdfast@example.com")
        async with opened(tmp_path) as hf:
            ana = await hf.notify("mailto:ana@example.com", "approval.asked", retry=QUICK, base_url="https://h.example")
            await hf.start(asks, "Publish it?", id="a")
            await settled(ana, done=1)
            (delivery,) = await ana.deliveries()
            (question,) = await hf.approvals()
        first, second = server.mails
        assert first.content == second.content
        mail = message_from_bytes(second.content, policy=policy.default)
        assert mail["Message-ID"] == f"<{delivery.id}@example.com>"
        assert f"https://h.example/approvals/{question.id}" in mail.get_content()


async def test_a_worker_that_lacks_a_variable_leaves_it_to_others(tmp_path, monkeypatch, caplog):
    """And no attempt is lost to it; nor to one whose variable has nonsense."""
    with Receiver() as receiver:
        monkeypatch.delenv("OPS_SECRET")
        async with opened(tmp_path) as hf:
            ops = await hf.notify(
                receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops", retry=Retry(9, first="5ms")
            )
            await hf.run(pays, 1)
            await settled(ops, waiting=1)
            await hf.run(pays, 1)
            await settled(ops, waiting=2)
            message = await failing(
                ops, "left to another worker: it lacks the variable OPS_SECRET. Mend that, and start it again"
            )
            assert [each.attempts for each in await ops.deliveries()] == [0, 0]
            assert (
                caplog.text.count(
                    "leaves the messages of notification 'ops' to others: it lacks the variable OPS_SECRET"
                )
                == 1
            )
        monkeypatch.setenv("OPS_SECRET", "not base64 at all!")
        async with opened(tmp_path) as hf:
            message = await failing(hf.get_notification("ops"), "OPS_SECRET of this worker cannot be used")
            assert (message.attempts, receiver.requests) == (0, [])
        monkeypatch.setenv("OPS_SECRET", f"whsec_{base64.b64encode(SECRET).decode()}")
        async with opened(tmp_path) as hf:
            await settled(hf.get_notification("ops"), done=2)


async def test_budgets_that_are_reached(tmp_path):
    @holdfast.agent(budget=Budget(usd=0.01, at_limit="fail"))
    async def strict() -> int:
        await pay(1)
        done = 0
        for _ in range(3):
            with contextlib.suppress(holdfast.BudgetExceeded):
                done += await pay(1)
        return done

    @holdfast.agent(budget=Budget(usd=0.01))
    async def patient() -> int:
        return await pay(1) + await pay(1)

    with Receiver() as receiver:
        async with opened(tmp_path, strict, patient) as hf:
            ops = await hf.notify(receiver.url, "budget.reached", secret="env:OPS_SECRET", name="ops")
            assert await hf.run(strict, id="s") == 0
            await settled(ops, done=1)
            run = await hf.start(patient, id="p")
            await settled(ops, done=2)
            (question,) = await hf.approvals()
            await hf.approve(question, by="ana")
            assert await run.result() == 2
        assert [request.json()["data"]["run"] for request in receiver.requests] == ["s", "p"]
        assert receiver.requests[1].json()["data"]["question"]["id"] == question.id


def asking(text):
    @holdfast.agent(name="asking")
    async def asking() -> bool:
        return bool(await holdfast.approve(text))

    return asking


async def test_a_stuck_run_is_told_once(tmp_path):
    """However many workers look. One that a person has paused is not stuck."""
    with Receiver() as receiver:
        async with opened(tmp_path, asking("Before?")) as hf:
            by_person, stuck = await hf.start("asking", id="by-person"), await hf.start("asking", id="stuck")
            while len(await hf.approvals()) < 2:
                await asyncio.sleep(0.005)
            await by_person.pause(by="ana", reason="lunch")
            while (await by_person.info()).status != "paused":
                await asyncio.sleep(0.005)
        async with opened(tmp_path, asking("After?")) as hf, opened(tmp_path, asking("After?")) as other:
            await hf.approve("stuck", by="ana")  # it goes on, and finds that its code asks something else
            while (await hf.get(stuck.id).info()).status != "paused":
                await asyncio.sleep(0.005)
            ops = await hf.notify(receiver.url, "run.stuck", secret="env:OPS_SECRET", name="ops")
            await settled(ops, done=1, waiting=0)
            assert (await other.notifications())[0].done == 1
        (request,) = receiver.requests
        assert request.json()["data"]["run"] == "stuck"
        assert request.json()["data"]["text"].startswith("paused: ")


async def test_steering(tmp_path):
    with Receiver() as receiver:
        async with opened(tmp_path) as hf:
            ops = await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", agent=pays, labels={"a": "b"})
            assert repr(ops) == f"<notification {ops.name}>" and ops.name.startswith("localhost-")
            assert (
                await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", agent="pays")
            ).name == ops.name
            assert (await ops.pause()).state == "paused"
            with pytest.raises(BadArguments, match="paused; resume it first"):
                await ops.test()
            await hf.run(pays, 1, id="unheard")
            assert (await ops.resume()).state == "active"
            message = await ops.test()
            await settled(ops, done=1)
            assert receiver.requests[0].id == message
            assert receiver.requests[0].json()["data"] == {
                "notification": ops.name,
                "text": f"notification {ops.name} works",
            }
            await hf.run(pays, 1, id="heard")
            await settled(ops, done=2)
            assert [each.name for each in await hf.notifications()] == [ops.name]
            await ops.delete()
            with pytest.raises(UnknownNotification):
                await ops.info()
            with pytest.raises(UnknownNotification):
                await ops.test()
            with pytest.raises(BadArguments, match="not the name of a notification"):
                hf.get_notification("a b")


async def test_a_worker_without_the_packages_leaves_it_to_others(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(senders, "_installed", lambda package: package != "h11")
    async with opened(tmp_path) as hf:
        ops = await hf.notify("https://example.com/", "run.completed", secret="env:OPS_SECRET", name="ops")
        await hf.run(pays, 1)
        await settled(ops, waiting=1)
        assert (await ops.deliveries())[0].attempts == 0
    assert 'pip install "holdfast[notify]"' in caplog.text


def test_from_plain_code(tmp_path):
    with holdfast.sync.open(f"sqlite:{tmp_path / 'runs.db'}") as hf:
        handle = hf.notify("mailto:ana@example.com", "run.failed", name="ana")
        assert (type(handle), repr(handle)) == (holdfast.sync.NotificationHandle, "<notification ana>")
        assert handle.pause().state == "paused"
        assert json.dumps([info.name for info in hf.notifications()]) == '["ana"]'


async def test_a_copy_sends_nothing_before_it_is_activated(tmp_path):
    """And nothing is lost: what happened in it is told then."""
    with Receiver() as receiver:
        async with opened(tmp_path) as hf:
            await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops")
            await hf.run(pays, 1)
            await settled(hf.get_notification("ops"), done=1)
            await hf.start(asks, "?", id="a")
            await hf.backup(tmp_path / "b.backup")
        copy = f"sqlite:{tmp_path / 'copy.db'}"
        await holdfast.restore_backup(tmp_path / "b.backup", copy)
        async with holdfast.open(copy, agents=[pays]) as hf:
            with pytest.raises(BadArguments, match="held"):
                await hf.get_notification("ops").test()
            await hf.activate()
            await hf.run(pays, 1)
            await settled(hf.get_notification("ops"), done=2)
        assert len(receiver.requests) == 2
