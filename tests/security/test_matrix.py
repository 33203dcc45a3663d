"""The matrix of the server: every path that it serves, asked by everybody who may and may not. Made from the table of paths.

A path that is added is in it by itself, and so is a kind of caller that is added to `CALLERS`: a function that makes its
credential, and one that says, of a row of the table, which refusal it must get; None is any answer but a refusal of who asks.
"""

from __future__ import annotations

import asyncio
import re
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
from tests.http.site import Served, served

import holdfast
from holdfast.http import glimpses, tries
from holdfast.http.paths import PATHS
from holdfast.http.routes import Endpoint

REFUSALS = {401: "unauthorized", 403: "forbidden"}
Must = Callable[[Endpoint], int | None]


@dataclass(frozen=True)
class Caller:
    """Somebody who asks: how the credential is made, and the status of what is refused, of each row."""

    headers: Callable[[Served], Awaitable[dict[str, str]]]
    must: Must


def is_open(row: Endpoint) -> bool:
    """Does this path need no credential? What is sent may have its own proof."""
    return row.needs is None


def nobody(row: Endpoint) -> int | None:
    return None if is_open(row) else 401


def with_scopes(*scopes: str) -> Must:
    def must(row: Endpoint) -> int | None:
        if is_open(row) or row.needs == "any":
            return None
        return None if row.needs in scopes and row.also in (None, *scopes) else 403

    return must


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def none(_: Served) -> dict[str, str]:
    return {}


async def garbled(_: Served) -> dict[str, str]:
    return bearer("holdfast_aaaaaaaa_" + "a" * 43)


async def of_another_scheme(_: Served) -> dict[str, str]:
    return {"Authorization": "Basic YW5hOmFuYQ=="}


async def with_a_wrong_secret(site: Served) -> dict[str, str]:
    token, _ = await site.hf.create_token("ana")
    return bearer(f"holdfast_{token.id}_{'a' * 43}")


async def expired(site: Served) -> dict[str, str]:
    token, secret = await site.hf.create_token("ana", expires="1ms")
    while await site.hf.good_token(token.id) is not None:
        pass
    return bearer(secret)


async def revoked(site: Served) -> dict[str, str]:
    token, secret = await site.hf.create_token("ana")
    await site.hf.revoke_token(token.id)
    return bearer(secret)


def token_for(*scopes: Any) -> Callable[[Served], Awaitable[dict[str, str]]]:
    async def made(site: Served) -> dict[str, str]:
        _, secret = await site.hf.create_token("ana", scopes=scopes)
        return bearer(secret)

    return made


async def limited(site: Served) -> dict[str, str]:
    _, secret = await site.hf.create_token("ana", only={"team": "night"})
    return bearer(secret)


CALLERS = {
    "nobody": Caller(none, nobody),
    "garbled": Caller(garbled, nobody),
    "basic": Caller(of_another_scheme, nobody),
    "wrong": Caller(with_a_wrong_secret, nobody),
    "expired": Caller(expired, nobody),
    "revoked": Caller(revoked, nobody),
    "read": Caller(token_for("read"), with_scopes("read")),
    "write": Caller(token_for("write"), with_scopes("write")),
    "decide": Caller(token_for("decide"), with_scopes("decide")),
    "read-write": Caller(token_for("read", "write"), with_scopes("read", "write")),
    "all": Caller(token_for("read", "write", "decide"), with_scopes("read", "write", "decide")),
    "limited": Caller(limited, lambda row: 403 if row.about == "all" and not is_open(row) else None),
}


@pytest.mark.parametrize("who", CALLERS)
async def test_each_path_is_for_whom_its_row_says(tmp_path, monkeypatch, who):
    """Refused is refused on every path, before anything else is looked at; nobody else is refused for who asks."""
    monkeypatch.setattr(tries, "WRONG_MOST", 10_000)  # that there is an end to wrong tokens is shown elsewhere
    async with served(f"sqlite:{tmp_path}/runs.db?durability=process") as site:
        caller = CALLERS[who]
        headers = await caller.headers(site)
        for row in PATHS:
            path = re.sub(r"{\w+}", "none", row.path)
            for method in [row.method] + (["HEAD"] if row.method == "GET" else []):
                answer = await site.bare.request(method, path, headers=headers | {"Content-Type": "application/json"})
                must, at = caller.must(row), f"{method} {path}: {answer.status_code} {answer.text}"
                if must is not None:
                    assert answer.status_code == must, at
                    assert method == "HEAD" or answer.json()["error"]["code"] == REFUSALS[must], at
                    assert must != 401 or answer.headers["www-authenticate"].startswith("Bearer"), at
                elif not is_open(row):
                    assert answer.status_code not in REFUSALS, at
                assert answer.status_code < 500 or answer.status_code == 503, at
        assert await site.hf.runs() == []  # whoever asked, nothing was begun


# What a caller that may not read is told

SECRET = "SECRET"  # in all that is planted and that such a caller did not send


@holdfast.step(name="matrix.say", retry=1)
async def say(text: str) -> str:
    async with holdfast.stream("SECRET-stream") as out:
        await out.write(text)
    return text


@holdfast.step(name="matrix.fail", retry=1)
async def fail(text: str) -> None:
    raise ValueError(f"SECRET-error of {text}")


@holdfast.agent(name="matrix.plant")
async def plant(text: str, ends: str = "asks") -> str:
    """Write a secret wherever a run can write one, then ask, fail or end."""
    await holdfast.plan(["SECRET-plan one", "SECRET-plan two"])
    await holdfast.progress(1, 2, "SECRET-progress")
    await say("SECRET-streamed")
    if ends == "fails":
        await fail(text)
    if ends == "asks":
        shown = {"text": text, "SECRET-key": 4711}
        await holdfast.approve("SECRET-question?", show=shown, edit=True, to=["ana", "bo"], needs=2)
    if ends == "asks others":
        await holdfast.approve("SECRET-question?", to=["SECRET-person"])
    return "SECRET-result"


@holdfast.agent(name="matrix.SECRET")
async def unnamed() -> None:
    """Be there, with a name that only who may read is told."""


@holdfast.on.webhook("matrix", verify=holdfast.Verify.bearer("env:TOKEN"), retry=1)
def hook(delivery: holdfast.Delivery) -> None:
    raise ConnectionError("SECRET-delivery")


async def planted(site: Served) -> dict[str, str]:
    """Plant secrets in runs of every state, a question, a schedule, a notification, a delivery and an announcement."""
    hf, labels = site.hf, {"of": "SECRET-label"}
    for ends, state in (("asks", "waiting"), ("fails", "failed"), ("well", "completed")):
        for n in range(2):
            await hf.start(plant, "SECRET-argument", ends, id=f"{ends}-{n}", labels=labels)
            await hf.get(f"{ends}-{n}").wait(state, timeout="20s")
    questions = [await hf.get(f"asks-{n}").wait_for_question() for n in range(2)]
    strange = await (await hf.start(plant, "SECRET-argument", "asks others", id="strange")).wait_for_question()
    edit = {"text": "SECRET-edit", "SECRET-key": 4712}
    changed = await hf.approve(questions[0], by="bo", note="SECRET-note", data=edit)
    every = holdfast.Schedule(every="1h", args={"text": "SECRET-scheduled", "ends": "well"})
    await hf.schedule("nightly", plant, every)
    secret = "env:HOLDFAST_NOTIFY_SECRET_A"
    told = await hf.notify(
        "https://example.com/SECRET-address", ["run.failed"], name="ops", secret=secret, labels=labels
    )
    message = await told.test()
    await hf.publish("paid", "SECRET-announced", key="k")
    await hf._receive("matrix", "webhook", "d", {"x-from": "SECRET-header"}, b"SECRET-body")
    while not [each for each in await hf.triggers() if each.dead]:
        await asyncio.sleep(0.01)
    return {"changed": changed.digest, "shown": questions[1].digest, "question": questions[0].id, "other": questions[1].id,
            "strange": strange.id, "seen": strange.digest, "message": message}  # fmt: skip


def tries_of(known: dict[str, str]) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """For each path that a caller that may not read can ask: the parts of the path, and documents worth trying."""
    runs = [{"id": f"{ends}-{n}"} for n in range(2) for ends in ("asks", "fails", "well")]
    ids = [each["id"] for each in runs]
    start = {"agent": "matrix.plant", "args": ["SECRET-argument", "well"]}
    edit = {"text": "x", "SECRET-kex": 1}

    def of_runs(*documents: Any) -> list[tuple[dict[str, str], Any]]:
        return [(run, document) for document in documents for run in runs]

    decisions: list[tuple[dict[str, str], Any]] = []
    for question, digest in ((known["question"], known["changed"]), (known["other"], known["shown"])):
        for seen in ("0" * 32, digest):
            more: list[dict[str, Any]] = [
                {"decision": "approve", "data": edit}, {"decision": "answer", "value": 1},
                {"decision": "delegate", "to": "cy"}, {"decision": "approve"}, {"decision": "deny"},
            ]  # fmt: skip
            decisions += [({"id": question}, {**said, "digest": seen}) for said in more]
    decisions += [({"id": known["strange"]}, {"decision": "deny", "digest": known["seen"]})]
    decisions += [({"id": "asks-1"}, {"decision": "deny", "digest": known["shown"]})]
    here, ops, hooked = {"name": "nightly"}, {"name": "ops"}, {"name": "matrix"}
    replaced = [{"arguments": {"nosuch": 1}}, {"message:1": 1}, {"matrix.say#0": 1}, {"plan#0": 1}]
    return {
        "POST /api/runs": [({}, {**start, "id": id}) for id in ids]
        + [({}, {**start, "args": []}), ({}, {"agent": "matrix.plan"})],
        "POST /api/runs/bulk": [
            ({}, {"action": action, **which})
            for which in ({"ids": ids}, {"filter": {"search": "SECRET"}}, {"filter": {}, "expect": 0})
            for action in ("resume", "retry", "pause")
        ],
        "POST /api/runs/{id}/pause": of_runs({}, {"reason": "x" * 100_000}),
        "POST /api/runs/{id}/resume": of_runs({}),
        "POST /api/runs/{id}/retry": of_runs({"at": "nosuch"}, {"at": 99}, {"at": "matrix.fai"}, {}),
        "POST /api/runs/{id}/fork": of_runs(
            {}, {"at": "nosuch"}, {"at": "matrix.sa"}, *({"replace": each} for each in replaced)
        ),
        "POST /api/runs/{id}/send": of_runs({"topic": "t", "value": 1, "key": "k"}),
        "POST /api/approvals/{id}": decisions,
        "POST /api/schedules/{name}": [
            (here, {"agent": "matrix.plant", "every": "2h"}),
            ({"name": "mine"}, {"agent": "matrix.plant", "every": "2h", "args": {"text": "mine"}}),
            (here, {"agent": "matrix.plan", "every": "2h"}),
        ],
        "POST /api/schedules/{name}/pause": [(here, {})],
        "POST /api/schedules/{name}/resume": [(here, {})],
        "POST /api/schedules/{name}/trigger": [(here, {}), (here, {})],
        "POST /api/schedules/{name}/backfill": [(here, {"start": "2026-11-02", "end": "2026-11-02"})],
        "POST /api/events": [({}, {"name": "paid", "value": "guess", "key": "k"})],
        "POST /api/notifications/{name}": [],  # it needs `read`, too
        "POST /api/notifications/{name}/pause": [(ops, {})],
        "POST /api/notifications/{name}/test": [(ops, {})],
        "POST /api/notifications/{name}/resume": [(ops, {})],
        "POST /api/notifications/{name}/replay": [(ops, {"id": known["message"]}), (ops, {"id": "none"})],
        "POST /api/triggers/{name}/dismiss": [(hooked, {"delivery": "none"})],
        "POST /api/triggers/{name}/replay": [(hooked, {"delivery": "d"}), (hooked, {"dead": True})],
        "GET /api/me": [({}, None)],
        # Last: what is gone tells nothing.
        "POST /api/runs/{id}/cancel": of_runs({"grace": "never"}, {}),
        "DELETE /api/runs/{id}": of_runs(None),
        "DELETE /api/schedules/{name}": [(here, None)],
        "DELETE /api/notifications/{name}": [(ops, None)],
        "DELETE /api/triggers/{name}": [(hooked, None)],
    }


@pytest.mark.by_day("write-decide")
@pytest.mark.parametrize("scopes", [("write",), ("decide",), ("write", "decide")], ids="-".join)
async def test_a_caller_that_may_not_read_is_told_no_secret_on_any_path(tmp_path, scopes):
    """Neither by what is done, nor by what is refused; what it sent itself is no secret. A new path needs its tries here."""
    async with asyncio.timeout(60), served(f"sqlite:{tmp_path}/runs.db", agents=[plant, unnamed, hook]) as site:
        known = await planted(site)
        _, secret = await site.hf.create_token("ana", scopes=scopes)
        asked, answered = tries_of(known), set[int]()
        assert {f"{row.method} {row.path}" for row in PATHS if row.needs not in ("read", None)} == asked.keys()
        for name, documents in asked.items():
            method, _, path = name.partition(" ")
            for parts, document in documents:
                answer = await site.bare.request(method, path.format(**parts), headers=bearer(secret), json=document)
                told = f"{answer.text} {answer.headers}"
                assert not re.search(f"{SECRET}|471[12]", told), f"{name} {parts} {document}: {told}"
                assert answer.status_code < 500, told
                answered.add(answer.status_code)
        assert {200, 403} <= answered


async def test_what_a_filter_finds_is_for_callers_that_may_read(tmp_path):
    """How many runs fit would tell what is in them; named runs are nobody's secret to who can name them."""
    async with served(f"sqlite:{tmp_path}/runs.db") as site:
        await site.start("listener", 1, id="l", labels={"client": "acme"})
        for scopes, by_filter in ((("write",), 403), (("read", "write"), 200)):
            _, secret = await site.hf.create_token("ana", scopes=scopes)
            for which, expected in (({"filter": {"label": ["client=acme"]}}, by_filter), ({"ids": ["l"]}, 200)):
                asked = {"action": "resume", **which}
                answer = await site.bare.post("/api/runs/bulk", headers=bearer(secret), json=asked)
                assert answer.status_code == expected, answer.text
                if expected == 403:
                    told = answer.json()["error"]
                    assert told["code"] == "forbidden"
                    assert "Name the runs with `ids`, or use a token that may read" in told["message"]


def documents(kind: Any) -> set[type]:
    """All documents of ours in a type: itself, and what is in its fields."""
    found: set[type] = set()
    for each in (kind, *typing.get_args(kind)):
        if isinstance(each, type) and is_dataclass(each) and each not in found:
            found.add(each)
            hints = typing.get_type_hints(each)
            for name in glimpses.TOLD.get(each, ()):
                found |= documents(hints[name])
        elif each is not kind:
            found |= documents(each)
    return found


# What each document holds besides what is told. A field that is added to a document belongs here or in `TOLD`.
HIDDEN = {
    "Approval": "changes data decided_by default delegations digest editable has_default key needs not_by note path question root"
    " run schema shown to votes",
    "DeliveryInfo": "error outcome size",
    "NotificationInfo": "agent dead done format kinds labels lag_s url waiting",
    "Published": "differs",
    "RunInfo": "budget crashes doing epoch error events failure forked interruptions items labels life parent plan priority"
    " progress queue reason root spent steps version worked_ms worker worker_gone",
    "ScheduleInfo": "args begun catch_up jitter_s last_run last_status missed overlap problem times waiting",
}


def test_each_field_of_a_document_is_told_or_hidden_to_who_may_not_read():
    """A document without a row, or a field that nobody has classed, is hidden, and fails here."""
    rows = [row for row in PATHS if row.needs not in ("read", None)]
    kinds = {row.answers for row in rows} | {kind for row in rows for _, kind in row.more.values() if kind is not None}
    found = set[type]().union(*map(documents, kinds))
    assert found == glimpses.TOLD.keys()
    for kind in found:
        hidden = {each.name for each in fields(kind)} - glimpses.TOLD[kind]
        assert hidden == set(HIDDEN.get(kind.__name__, "").split()), kind


def test_a_field_or_a_document_that_nobody_has_classed_is_hidden(monkeypatch):
    """The default is to tell nothing."""
    monkeypatch.setattr(glimpses, "TOLD", {glimpses.Sent: {"run"}})
    assert glimpses.glimpse(glimpses.Sent("r", "topic", 3)) == glimpses.Sent("r", "", 0)
    assert glimpses.glimpse(glimpses.Deleted(3)) == {}
