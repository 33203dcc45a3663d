"""The inbox: a letter is answered once, as a person has allowed it, and told of in the evening; whatever crashes."""

from email import message_from_bytes, policy

import pytest
from tests.examples.inbox import open_inbox

import holdfast.testing


@pytest.fixture
def world(monkeypatch):
    with open_inbox(monkeypatch) as opened:
        yield opened


def mails(server):
    """What mailboxes show: each mail once, by its id."""
    found = {}
    for envelope in server.mails:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        found[mail["Message-ID"]] = (
            envelope.rcpt_tos[0],
            mail["Subject"],
            mail.get_content().replace("\r\n", "\n").strip(),
        )
    return list(found.values())


def test_a_letter_is_read(world):
    _, agents = world
    content = b"From: Ana <ana@example.com>\r\nSubject: =?utf-8?q?=C3=96ffnung?=\r\nMessage-ID: <1@x>\r\n\r\nWhen?\r\n"
    letter = agents.read_letter(content)
    assert (letter.sender, letter.subject, letter.text) == ("ana@example.com", "Öffnung", "When?")
    assert agents.read_letter(content.replace(b"When", b"Where")).id == letter.id
    assert agents.read_letter(b"").sender == ""
    assert agents.read_letter(b"a").id != agents.read_letter(b"b").id


async def test_a_letter_and_the_digest(world, monkeypatch):
    server, agents = world
    async with holdfast.testing.open(agents=[agents]) as hf:
        monkeypatch.setenv("HOLDFAST_URL", f"sqlite:{hf.path}")
        runs = {}
        for name, text in (("ana", "When are you open?"), ("bo", "Hello"), ("cy", "Where is my order?")):
            letter = agents.Letter(name, f"{name}@example.com", "Hello", text)
            runs[name] = await hf.start(agents.answer, letter, id=name, labels={"from": letter.sender})
            await runs[name].wait("waiting")
        cleo = holdfast.Actor("cleo", groups=["clerks"])
        await hf.approve("ana", by=cleo)
        await hf.deny("bo", by=cleo, note="rude")
        assert [await runs[name].result() for name in ("ana", "bo")] == ["answered", "not answered: rude"]
        assert mails(server) == [("ana@example.com", "Re: Hello", agents.KNOWN["open"])]
        assert await hf.run(agents.digest) == 3
        told = "ana@example.com: answered\nbo@example.com: not answered: rude\ncy@example.com: waiting"
        assert mails(server)[1:] == [("chief@example.com", "3 letters today", told)]


async def test_a_file_is_a_letter_and_the_same_one_as_by_mail(world, tmp_path):
    _, agents = world
    content = b"From: cy@example.com\r\nSubject: Hello\r\nMessage-ID: <7@x>\r\n\r\nWhen are you open?\r\n"
    async with holdfast.testing.open(agents=[agents]) as hf:
        for name, told in (("a.eml", content), ("again.eml", content), ("none.eml", b"no letter")):
            (tmp_path / name).write_bytes(told)
            assert (await hf.fire(agents.dropped, file=tmp_path / name)).status == "done"
        (run,) = await hf.runs(agent="answer")
        assert (run.id, run.labels) == (f"letter-{agents.read_letter(content).id}", {"from": "cy@example.com"})


@pytest.mark.nightly
async def test_with_a_crash_everywhere(world):
    """Between any two commits: one answer for each letter, and the bodies that run again send the same mail."""
    server, agents = world
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[agents.answer]):
        run = await hf.start(agents.answer, agents.Letter("1", "ana@example.com", "Hours", "open?"), id="letter")
        await run.wait("waiting")
        await hf.approve("letter", by=holdfast.Actor("cleo", groups=["clerks"]))
        assert await run.result() == "answered"
        passes += 1
        assert mails(server) == [("ana@example.com", "Re: Hours", agents.KNOWN["open"])] * passes
    assert passes > 10
