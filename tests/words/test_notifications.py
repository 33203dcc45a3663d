"""Notifications as data: what can be declared, what a message says and does not say, and its three forms."""

import base64
import json

import pytest

from holdfast import BadArguments, Retry
from holdfast.words.model import Event, RunRow
from holdfast.words.notifications import (
    Target,
    as_mail,
    as_slack,
    checked,
    checked_kinds,
    default_name,
    lines,
    messages,
    scheme,
    shown_url,
    signatures,
    stuck,
)
from holdfast.words.webhooks import Forged, check, secret_bytes

URL = "https://example.com/hooks/T0/hidden?key=hidden"
RUN = RunRow("r 1/", "uid", "research", "running", "{}", labels='{"team": "docs"}', next_seq=7)
QUESTION = {"approval": "q-1", "kind": "approve", "question": "Publish <this> & that?", "to": ["ana"], "digest": "d1",
            "expires_ms": 60_000, "name": "approve", "input": "hidden"}  # fmt: skip


def target(kinds="run.failed", **options) -> Target:
    return checked(URL, kinds, **{"secret": "env:S", **options})


def event(kind, data, seq=3, value='"hidden"') -> Event:
    return Event(seq, kind, "k", data, value, None, 1_700_000_000_000, 1, RUN.id, 900 + seq)


@pytest.mark.parametrize(
    ("url", "options", "match"),
    [
        ("ftp://example.com/hidden", {}, "goes to https"), ("https:///hidden", {}, "goes to https"),
        ("https://user:hidden@example.com/", {}, "'env:NAME'"), ("https://hidden@example.com/", {}, "'env:NAME'"),
        ("https://example.com:99999/hidden", {}, "cannot be read"), ("https://exämple.com/hidden", {}, "plain ASCII"),
        ("https://example.com/hidden\r\nx: y", {}, "goes to a URL"), ("https://example.com/hid den", {}, "goes to a URL"),
        ("https://example.com\\@evil/hidden", {}, "goes to a URL"), ("https://[::1/hidden", {}, "cannot be read"),
        ("https://example.com/" + "hidden" * 400, {}, "goes to a URL"), (7, {}, "goes to a URL"),
        ("mailto:hidden", {"secret": None}, "one address"), ("mailto:a@b.c,hidden@b.c", {"secret": None}, "one address"),
        ("mailto:a@b.c?subject=hidden", {"secret": None}, "one address"), ("env:1hidden", {}, "goes to"),
        (URL, {"secret": None}, "tell that it was you"), (URL, {"secret": "whsec_hidden"}, "by the variable"),
        (URL, {"secret": ["env:A"] * 6}, "by the variable"), (URL, {"format": "xml"}, "choose one of"),
        (URL, {"format": "slack"}, "not signed"), (URL, {"format": "mail", "secret": None}, "does not fit"),
        ("mailto:a@b.c", {"format": "slack", "secret": None}, "does not fit"), (URL, {"labels": {"a": 1}}, "are texts"),
        (URL, {"base_url": "agents.example.com"}, "where `holdfast serve`"), (URL, {"retry": 0}, "at least 1"),
        (URL, {"retry": Retry(3, on=ValueError)}, "times alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_declared(url, options, match):
    """And no error repeats what may be a secret."""
    with pytest.raises(BadArguments, match=match) as caught:
        checked(url, "run.failed", **{"secret": "env:S", **options})
    assert "hidden" not in str(caught.value)


def test_kinds():
    assert checked_kinds("run.failed") == ("run.failed",)
    assert checked_kinds(["budget", "run.stuck", "run.stuck"]) == ("budget.low", "budget.reached", "run.stuck")
    assert "approval.voted" in checked_kinds("approval")
    for wrong in (["nonsense"], [""], [], [7]):
        with pytest.raises(BadArguments, match="kind"):
            checked_kinds(wrong)


def test_it_is_stored_whole_and_shown_without_its_path():
    made = target(["approval.asked", "budget.reached"], labels={"a": "b"}, base_url="https://h.example/x/?q", retry=3)
    assert Target.loaded(made.stored()) == made
    assert made.base_url == "https://h.example/x"
    assert made.sources() == {"approval.asked", "step.failed"}
    assert made.retry().attempts == 3
    assert shown_url(URL) == "https://example.com/…"
    assert [shown_url(each) for each in ("https://[2001:db8::1]:8443/", "env:X", "mailto:a@b.c")] == [
        "https://[2001:db8::1]:8443", "env:X", "mailto:a@b.c",
    ]  # fmt: skip
    names = [default_name(each) for each in (URL, URL + "2", "env:SLACK_URL", "mailto:a+b@c.d", "https://[::1]/")]
    assert len(set(names)) == 5 and names[0].startswith("example.com-") and names[3].startswith("a-b@c.d-")


def test_a_question():
    (message,) = messages(
        "ops", target("approval.asked", base_url="https://h.example"), event("approval.asked", QUESTION), RUN
    )
    told = json.loads(message.body())
    assert told == {
        "type": "approval.asked",
        "timestamp": "2023-11-14T22:13:20Z",
        "data": {
            "run": "r 1/", "agent": "research", "labels": {"team": "docs"}, "text": "Publish <this> & that?", "position": 903,
            "seq": 3, "link": "https://h.example/api/approvals/q-1", "page": "https://h.example/approvals/q-1",
            "question": {"id": "q-1", "kind": "approve", "text": "Publish <this> & that?", "to": ["ana"], "digest": "d1",
                         "expires_at": "2023-11-14T22:14:20Z", "link": "https://h.example/api/approvals/q-1",
                         "page": "https://h.example/approvals/q-1"},
        },
    }  # fmt: skip
    assert b"hidden" not in message.body()
    assert json.loads(as_slack(told)) == {
        "text": "*approval.asked: research, run r 1/*\nPublish &lt;this&gt; &amp; that?\nDecide (for ana): holdfast approve q-1\n"
        "<https://h.example/approvals/q-1|Open>"
    }


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("run.failed", {"error": {"type": "ValueError", "message": "no\nroom"}}, "failed: ValueError: no room"),
        ("run.paused", {"by": "ana", "reason": "lunch"}, "paused by ana: lunch"),
        ("step.completed", {"name": "pay", "input": "hidden"}, "pay: a step returned"),
        ("step.failed", {"name": "pay", "input": "hidden", "error": {"type": "E", "message": "m"}},
         "pay: a step failed for good: E: m"),
        ("step.retrying", {"name": "pay", "input": "hidden", "wait_ms": 5, "error": {"type": "E", "message": "m"}},
         "pay: an attempt failed; the next one comes later: E: m"),
        ("message.received", {"topic": "hidden"}, "a message arrived"),
        ("conversation.added", {"input": "hidden"}, "the agent added messages to the conversation"),
        ("note", {"text": "hidden"}, "the agent wrote a line into its history"),
        ("child.started", {"name": "sub", "input": "hidden"}, "sub: a child run was started by calling an agent"),
        ("approval.asked", {**QUESTION, "kind": "in_doubt"}, "Publish <this> & that?"),
    ],
)  # fmt: skip
def test_the_text_has_no_argument_and_no_value(kind, data, text):
    (message,) = messages("ops", target(kind), event(kind, data), RUN)
    assert message.document["data"]["text"] == text
    assert b"hidden" not in message.body()


def test_a_message_is_bounded():
    data = {"error": {"type": "E", "message": "x" * 100_000}}
    run = RunRow("r", "uid", "research", "failed", "{}", labels=json.dumps({"k": "v" * 100_000}))
    (message,) = messages("ops", target(), event("run.failed", data), run)
    assert len(message.body()) < 10_000
    assert message.document["data"]["labels"] == {}
    (odd,) = messages("ops", target(), event("run.failed", {"error": {"type": "E", "message": "\ud800 \0"}}), run)
    assert json.loads(odd.body())["data"]["error"]["message"] == "? \0"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("budget.low", {}), ("run.failed", {"error": "no record"}), ("step.failed", {"error": [1]}),
        ("approval.asked", {"approval": "q", "expires_ms": "soon"}), ("run.failed", {"error": {"type": 1, "message": None}}),
    ],
)  # fmt: skip
def test_an_event_of_another_version_keeps_no_other_back(kind, data):
    (message,) = messages("ops", target([kind, "budget.reached"], base_url="https://h.example"), event(kind, data), RUN)
    assert json.loads(message.body())["data"]["text"]


def test_filters_and_ids():
    failed = event("run.failed", {})
    assert messages("ops", target(agent="other"), failed, RUN) == []
    assert messages("ops", target(labels={"team": "x"}), failed, RUN) == []
    assert messages("ops", target("run.completed"), failed, RUN) == []
    ids = [
        messages(name, target(agent="research", labels={"team": "docs"}), event("run.failed", {}, seq), RUN)[0].id
        for name, seq in (("ops", 3), ("ops", 4), ("dev", 3), ("ops", 3))
    ]
    assert len(set(ids)) == 3 and ids[0] == ids[3]


def test_a_budget_that_is_reached():
    """By a question for more, each time; or by steps that are refused, once for a run."""
    wants = target("budget.reached")
    asked = event("approval.asked", {**QUESTION, "kind": "budget"})
    refused = {"name": "pay", "error": {"type": "BudgetExceeded", "message": "spent"}}
    (told,) = messages("ops", wants, asked, RUN)
    assert told.document["type"] == "budget.reached" and told.document["data"]["question"]["id"] == "q-1"
    assert "Decide (for ana): holdfast approve q-1" in lines(told.document)
    ids = [messages("ops", wants, event("step.failed", refused, seq), RUN)[0].id for seq in (4, 5)]
    assert ids[0] == ids[1] != told.id
    assert messages("ops", wants, event("step.failed", {"error": {"type": "ValueError"}}), RUN) == []
    assert messages("ops", wants, event("approval.asked", QUESTION), RUN) == []
    both = messages("ops", target(["budget.reached", "approval.asked"]), asked, RUN)
    assert [message.document["type"] for message in both] == ["approval.asked", "budget.reached"]


def test_stuck():
    def told(**fields):
        return stuck(
            "ops", target("run.stuck"), RunRow("r", "u", "a", **{"status": "ready", "input": "", **fields}), 100_000
        )

    late = told(due_at=40_000)
    assert "due for 1 min, and no worker took it" in late.document["data"]["text"]
    assert told(due_at=40_001) is None
    assert told() is None
    paused = told(status="paused", reason="it diverged", updated_at=5)
    assert paused.document["data"]["text"] == "paused: it diverged"
    assert told(status="paused", reason="paused by ana") is None
    assert late.id == told(due_at=30_000).id != told(due_at=40_000, next_seq=1).id != paused.id
    assert stuck("ops", target("run.failed"), RUN, 100_000) is None


def test_a_receiver_can_verify_it():
    secrets = [b"first secret of some length", b"second"]
    texts = [f"whsec_{base64.b64encode(each).decode()}" for each in secrets]
    assert [secret_bytes(scheme(), text) for text in texts] == secrets
    signed = signatures(secrets, "msg_1", "1700000000", b"{}")
    headers = [("webhook-id", "msg_1"), ("webhook-timestamp", "1700000000"), ("webhook-signature", signed)]
    for secret in secrets:  # while one is replaced
        assert check(scheme(), [secret], headers, b"{}", 1_700_000_100_000).id == "msg_1"
    for changed in ({"body": b"{} "}, {"now": 1_700_001_000_000}, {"secret": b"x"}):
        with pytest.raises(Forged):
            check(scheme(), [changed.get("secret", secrets[0])], headers, changed.get("body", b"{}"),
                  changed.get("now", 1_700_000_100_000))  # fmt: skip


def test_mail():
    """The same each time, so that a mail that comes twice is one; and nothing in it begins another header."""
    data = {**QUESTION, "question": "Publish?\r\nBcc: all@example.com"}
    run = RunRow("r\nX: y", "uid", "research", "running", "{}")
    (message,) = messages(
        "ops", target("approval.asked", base_url="https://h.example"), event("approval.asked", data), run
    )
    document = json.loads(message.body())
    mails = [as_mail(message.id, document, "holdfast@example.com", "ana@example.com") for _ in range(2)]
    assert bytes(mails[0]) == bytes(mails[1])
    mail = mails[0]
    assert mail["Message-ID"] == f"<{message.id}@example.com>"
    assert mail["Subject"] == "[holdfast] approval.asked: research, run r X: y"
    assert mail["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"
    assert (mail["Bcc"], mail["X"], mail["To"]) == (None, None, "ana@example.com")
    text = mail.get_content()
    assert "Publish?" in text and "holdfast approve q-1" in text and "https://h.example/approvals/q-1" in text


def test_what_others_wrote_steers_no_screen_of_those_who_read_a_mail_or_a_chat():
    data = {**QUESTION, "question": "Publish? \x1b[31mred \u202egpj.exe"}
    (message,) = messages("ops", target("approval.asked"), event("approval.asked", data), RUN)
    document = json.loads(message.body())
    mail = as_mail(message.id, document, "holdfast@example.com", "ana@example.com").get_content()
    for told in (mail, json.loads(as_slack(document))["text"]):
        assert "Publish?" in told and "red" in told
        assert "\x1b" not in told and "\u202e" not in told
