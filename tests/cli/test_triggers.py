"""`holdfast triggers`: all that starts by itself, what came, and what became of it; replayed and forgotten at a terminal."""

import asyncio
import re

import pytest

import holdfast
from holdfast import Delivery, On, Schedule, Start, Verify, on
from holdfast.cli.triggers import declared_words
from holdfast.words.announcements import stored

STORE = "sqlite:holdfast.db"


@holdfast.agent(schedule=Schedule(every="1h"))
async def hourly(text: str = "") -> str:
    return text


@holdfast.on.webhook("mail", verify=Verify.hmac("env:MAIL_SECRET", header="X-Mail"), retry=1)
def mail(delivery: Delivery) -> Start | None:
    if delivery.id.startswith("bad"):
        raise ValueError("no such box")
    return Start(hourly, delivery.text()) if delivery.body else None


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


def served(*came, agents=(mail, hourly)):
    """A worker is there for a while, and maps these."""

    async def main():
        async with asyncio.timeout(20), holdfast.open(STORE, agents=list(agents)) as hf:
            while not await hf.triggers() or not await hf.schedules():
                await asyncio.sleep(0.005)
            for id, body in came:
                await hf._receive("mail", "webhook", id, {"subject": "otters"}, body)
            while await hf.deliveries(status="new"):
                await asyncio.sleep(0.005)

    asyncio.run(main())


def test_all_in_one_list(cli):
    served(("good", b"hello"), ("bad1", b"x"))
    listed = cli("triggers").stdout
    assert 'Verify.hmac("env:MAIL_SECRET"' in listed
    assert "hourly, every 1h" in listed
    assert "`holdfast triggers NAME --status dead` says why" in listed
    assert "what comes for it waits" in listed  # its worker is gone
    told = cli.json("triggers")
    ((trigger,), (schedule,)) = told["triggers"], told["schedules"]
    assert (trigger["name"], trigger["dead"], trigger["done"], trigger["waiting"]) == ("mail", 1, 1, 0)
    assert schedule["name"] == "hourly"


def test_one_and_what_came_for_it(cli):
    served(("good", b"hello"), ("none", b""), ("bad1", b"x"), ("long", b"y" * 5_000), ("bytes", b"\xff"))
    shown = cli("triggers", "mail").stdout
    assert 'mail: webhook, Verify.hmac("env:MAIL_SECRET", header="x-mail").' in shown
    assert "0 waiting, 1 dead, 4 done in 30 days; workers with its code: 0." in shown
    assert "started: mail@good" in shown
    assert "nothing was to be done" in shown
    assert "ValueError: no such box" in shown
    assert "holdfast triggers mail --replay-dead" in shown
    (dead,) = cli.json("triggers", "mail", "--status", "dead")["deliveries"]
    assert (dead["id"], dead["error"], dead["attempts"]) == ("bad1", "ValueError: no such box", 1)
    assert len(cli.json("triggers", "mail", "--limit", "2")["deliveries"]) == 2
    whole = cli("triggers", "mail", "bad1").stdout
    assert "mail bad1  dead" in whole
    assert "1 bytes, failed 1 time" in whole
    assert "subject: otters" in whole
    assert "ValueError: no such box" in whole
    assert "1000 characters more" in cli("triggers", "mail", "long").stdout
    told = cli.json("triggers", "mail", "long")
    assert (len(told["body"]), told["encoding"], told["headers"]) == (5_000, "utf-8", {"subject": "otters"})
    assert cli.json("triggers", "mail", "bytes")["body"] == "/w=="
    assert "None of its deliveries is new." in cli("triggers", "mail", "--status", "new").stdout


@pytest.mark.by_day("40")
@pytest.mark.parametrize("columns", [100, 80, 40])
def test_ids_are_whole_however_narrow_the_terminal_is(terminal, person, monkeypatch, columns):
    """They are copied into commands, so no other line begins within one."""
    monkeypatch.chdir(terminal.folder)
    monkeypatch.delenv("COLUMNS")
    long = "ev_" + "0123456789abcdef" * 3
    served((long, b"hello"), ("bad1", b"x"))
    for words, ids in (
        (["triggers", "mail"], [long, "bad1"]),
        (["triggers"], ["mail", "hourly"]),
        (["schedules"], ["hourly"]),
        (["runs"], [f"mail@{long}"]),
        (["audit"], [f"mail@{long}"]),
    ):
        ana = person(*words, columns=columns)
        assert ana.leaves()[1] == 0
        for id in ids:
            assert re.search(rf"(?<!\S){id}(?!\S)", ana.screen), (words, ana.screen)
    assert long in terminal.run("triggers", "mail")[1]  # in a pipe each is one line


def test_what_is_declared_is_shown_as_it_is_written():
    """Durations are stored in milliseconds, a verifier as all its parts."""
    for declared, shown in (
        (on.webhook("a", verify=Verify.github("env:ONE", "env:TWO"), max_bytes=10),
         'Verify.github("env:ONE", "env:TWO"), max_bytes=10'),
        (on.webhook("a", verify=Verify.standard("env:ONE")), 'Verify.standard("env:ONE")'),
        (on.webhook("a", verify=Verify.slack("env:ONE", tolerance="90s")), 'Verify.slack("env:ONE", tolerance="1m30s")'),
        (on.webhook("a", verify=Verify.bearer("env:ONE", id="X-Id")), 'Verify.bearer("env:ONE", id="x-id")'),
        (on.webhook("a", verify=Verify.hmac("env:ONE", header="X-Me", signed="{timestamp}.{body}", timestamp="X-At", prefix="v0=")),
         'Verify.hmac("env:ONE", header="x-me", signed="{timestamp}.{body}", timestamp="x-at", prefix="v0=")'),
        (on.files("in/*.txt", settle="1s"), 'in/*.txt, settle="1s"'),
        (on.files("in/*.txt"), 'in/*.txt, settle="2s"'),
        (on.queue("redis://127.0.0.1:6379/orders", id="order_id", in_flight=7, redeliver="2m"),
         'redis://127.0.0.1:6379/orders, id="order_id", in_flight=7, redeliver="2m"'),
        (on.queue("nats://worker:env:PASSWORD@127.0.0.1/orders"), "nats://worker@127.0.0.1/orders"),
    ):  # fmt: skip
        assert declared_words(declared(mail.fn).spec.config) == shown
    for event, shown in (
        (On("page.edited", debounce="10s", by="page"), 'page.edited, debounce="10s", by="page"'),
        (On("order.paid", batch=holdfast.Batch(100, "5s"), if_=bool), 'order.paid, if_=..., batch=Batch(100, "5s")'),
    ):
        assert declared_words(stored(event)) == shown


def test_replayed_and_forgotten(cli):
    served(("good", b"hello"), ("bad1", b"x"), ("bad2", b"x"), ("bad3", b"x"))
    assert "Delivery bad1 of mail is tried again." in cli("triggers", "mail", "--replay", "bad1").stdout
    assert "is done, and stays so: started: mail@good." in cli("triggers", "mail", "--replay", "good").stdout
    assert cli.json("triggers", "mail", "--replay", "bad1")["status"] == "new"
    assert "Delivery bad3 of mail is dismissed" in cli("triggers", "mail", "--dismiss", "bad3").stdout
    assert "is done already: started: mail@good" in cli("triggers", "mail", "--dismiss", "good").stdout
    assert "dismissed: ValueError: no such box" in cli("triggers", "mail").stdout
    assert "Dismissed. Its error was:" in cli("triggers", "mail", "bad3").stdout
    assert cli.json("triggers", "mail", "--dismiss", "bad3")["status"] == "done"
    assert "Dead deliveries of mail that are tried again: 1." in cli("triggers", "mail", "--replay-dead").stdout
    assert "No delivery of mail is dead." in cli("triggers", "mail", "--replay-dead").stdout
    assert cli.json("triggers", "mail")["trigger"]["waiting"] == 2
    assert "waits for a worker" in cli("triggers", "mail").stdout
    assert "is forgotten" in cli("triggers", "mail", "--delete").stdout
    assert cli.json("triggers")["triggers"] == []
    assert "no trigger of this name is declared any more" in cli("triggers", "mail").stdout
    audit = cli("audit").stdout
    assert "replay_delivery" in audit
    assert "delete_trigger" in audit
    deeds = cli.json("audit", "--action", "delete_trigger", "--action", "replay_delivery")["audit"]
    assert {deed["subject"] for deed in deeds} == {"trigger mail"}
    assert all("trigger mail" in line for line in audit.splitlines() if "_trigger" in line or "_delivery" in line)
    assert "trigger mail  bad1" in audit


def test_what_is_refused(cli):
    served()
    for words, told in (
        (["nobody"], "there is no trigger 'nobody'"),
        (["hourly"], "is a schedule; `holdfast schedules hourly` shows it"),
        (["mail", "none"], "has no delivery 'none'"),
        (["mail", "--replay", "none"], "has no delivery 'none'"),
        (["nobody", "--replay-dead"], "there is no trigger 'nobody'"),
        (["nobody", "--delete"], "there is no trigger 'nobody'"),
        (["--replay", "x"], "name the trigger"),
        (["--status", "dead"], "name the trigger"),
        (["mail", "x", "--delete"], "give one of"),
        (["mail", "--replay", "x", "--replay-dead"], "give one of"),
        (["mail", "--status", "late"], "'late' is not one of"),
    ):
        refused = cli("triggers", *words)
        assert refused.exit_code != 0
        assert told in " ".join(refused.stderr.split()), (words, refused.stderr)


def test_none(cli):
    async def opened():
        async with holdfast.open(STORE):
            pass

    asyncio.run(opened())
    assert "Nothing starts by itself in" in cli("triggers").stdout


@holdfast.on.queue("nats://me:sesame@127.0.0.1:1/orders")
def orders(delivery: Delivery) -> Start:
    return Start(hourly, delivery.text())


def test_a_broker_that_is_away(cli):
    """Since when, and why, without its password; while the worker is there that says so."""

    async def main():
        async with asyncio.timeout(30), holdfast.open(STORE, agents=[orders, hourly]) as hf:
            while not (found := await hf.triggers()) or found[0].away_since is None:
                await asyncio.sleep(0.01)
            told = [await asyncio.to_thread(cli, "triggers", *words) for words in ((), ("orders",))]
            return found[0], await asyncio.to_thread(cli.json, "triggers", "orders"), *[each.stdout for each in told]

    info, whole, listed, shown = asyncio.run(main())
    since = f"{info.away_since:%Y-%m-%d %H:%M:%S}"
    assert f"broker away since {since[:10]}" in " ".join(listed.split())
    assert "`holdfast triggers NAME` says why a broker is away." in listed
    assert f"Broker away since {since} UTC, and tried again: {info.away_error}" in " ".join(shown.split())
    assert "how many with the broker is not known" in " ".join(shown.split())
    assert (whole["trigger"]["away_workers"], whole["trigger"]["lag_messages"]) == (1, None)
    assert info.away_error and "sesame" not in f"{whole}{listed}{shown}"
    assert "away" not in cli("triggers", "orders").stdout, "nobody is left who would know"
