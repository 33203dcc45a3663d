"""The rules of decisions as tables: a question, what a person says to it at a time, and what comes of it. No database."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from holdfast.errors import AlreadyDecided, BadArguments, Expired, HoldfastError, NotAllowed, RunFinished, Stale
from holdfast.store.approvals import Said, count, delegated, expired, required
from holdfast.words.model import ApprovalRow
from holdfast.words.people import Actor, Ballot

NOW = 1_000_000
OPEN: dict[str, Any] = {
    "id": "q", "run_id": "run", "root_id": "root", "path": '["agent"]', "key": "approve#0", "kind": "approve",
    "question": "May it?", "shown": "1", "digest": "one", "schema": "{}", "recipients": "[]", "needs": "1", "votes": "[]",
    "delegations": "[]", "expires_at": None, "fallback": None, "remind_ms": None, "status": "open", "asked_at": 5,
}  # fmt: skip
MANY = json.dumps([{"by": "x", "yes": True, "note": "n" * 1_000_001, "at": 1, "digest": "old", "id": "x", "via": ""}])


def question(**fields: Any) -> ApprovalRow:
    return ApprovalRow(**OPEN | fields)


def vote(by: str, digest: str = "one", yes: bool = True) -> dict[str, Any]:
    return {"by": by, "yes": yes, "note": "", "at": 7, "digest": digest, "id": by, "via": ""}


def votes(*given: dict[str, Any]) -> str:
    return json.dumps(given)


def passed(by: str, to: str) -> str:
    return json.dumps([{"id": "p", "by": by, "to": to, "note": "", "at": 7}])


def ballot(by: str = "ana", *groups: str, door: str = "", **fields: Any) -> Ballot:
    return Ballot("b", Actor(by, groups, door), **fields)


EDIT = {"value": "2", "digest": "two"}

# question, ballot, then: (kind of signal, status, decision, value for the run, action of the audit)
COUNTED: dict[str, tuple[ApprovalRow, Ballot, tuple[Any, ...]]] = {
    "a yes decides": (question(), ballot(), ("approval.decided", "decided", "approved", None, "approve")),
    "a no decides": (question(), ballot(yes=False), ("approval.decided", "decided", "denied", None, "deny")),
    "an answer decides": (
        question(kind="ask", shown=None),
        ballot(**EDIT),
        ("approval.decided", "decided", "answered", "2", "answer"),
    ),
    "a doubt is answered": (
        question(kind="in_doubt"),
        ballot(**EDIT),
        ("approval.decided", "decided", "answered", "2", "answer"),
    ),
    "an edited value is what is decided": (
        question(),
        ballot(**EDIT),
        ("approval.decided", "decided", "approved", "2", "approve"),
    ),
    "one of two is a vote": (question(needs="2"), ballot(), ("approval.voted", "open", None, None, "vote")),
    "the second of two decides": (
        question(needs="2", votes=votes(vote("bob"))),
        ballot(),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "a no among yeses decides": (
        question(needs="3", votes=votes(vote("bob"))),
        ballot(yes=False),
        ("approval.decided", "decided", "denied", None, "deny"),
    ),
    "votes for another value do not count": (
        question(needs="2", votes=votes(vote("bob", "old"))),
        ballot(),
        ("approval.voted", "open", None, None, "vote"),
    ),
    "an edit begins counting anew": (
        question(needs="2", votes=votes(vote("bob"))),
        ballot(**EDIT),
        ("approval.voted", "open", None, "2", "vote"),
    ),
    "an edit may be agreed to by its digest": (
        question(needs="2", digest="two", data="2", votes=votes(vote("bob", "two"))),
        ballot(seen="two"),
        ("approval.decided", "decided", "approved", "2", "approve"),
    ),
    "only the run knows how many": (question(needs="{}"), ballot(), ("approval.voted", "open", None, None, "vote")),
    "the run has said how many": (
        question(needs='{"one": 1}'),
        ballot(),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "a recipient may": (question(recipients='["ana"]'), ballot(), ("approval.decided", "decided", "approved", None, "approve")),
    "one of a group may": (
        question(recipients='["group:it"]'),
        ballot("ana", "it"),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "a trusted door may act for anybody": (
        question(recipients='["bob"]'),
        ballot(door="cli:root"),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "a person it was passed on to may": (
        question(recipients='["bob"]', delegations=passed("bob", "ana")),
        ballot(),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "its last millisecond counts": (
        question(expires_at=NOW + 1),
        ballot(),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "somebody else than the starter may": (
        question(not_by='["bob"]'),
        ballot(),
        ("approval.decided", "decided", "approved", None, "approve"),
    ),
    "who agrees is heard, however much was said": (
        question(needs="2", votes=MANY),
        ballot(),
        ("approval.voted", "open", None, None, "vote"),
    ),
}  # fmt: skip

# question, ballot, then the error and words of it
REFUSED: dict[str, tuple[ApprovalRow, Ballot, type[HoldfastError], str]] = {
    "decided": (
        question(status="decided", decision="denied", decided_by="bob", decided_at=0, note="no"),
        ballot(),
        AlreadyDecided,
        "denied by 'bob' on 1970-01-01 00:00:00 UTC (no)",
    ),
    "withdrawn": (question(status="withdrawn"), ballot(), RunFinished, "run 'run' no longer waits"),
    "expired": (question(status="expired", expires_at=0), ballot(), Expired, "expired on 1970"),
    "late, though nobody has noticed": (question(expires_at=NOW), ballot(), Expired, "nobody waits for an answer"),
    "of others": (question(recipients='["bob","group:it"]'), ballot(), NotAllowed, "it is for bob, group:it"),
    "of a group, for a person called so": (question(recipients='["group:ana"]'), ballot(), NotAllowed, "group:ana"),
    "passed on": (
        question(delegations=passed("ana", "bob")),
        ballot(),
        NotAllowed,
        "'ana' passed question 'q' on to 'bob'",
    ),
    "of another than the starter": (question(not_by='["ana"]'), ballot(), NotAllowed, "ana started the run 'root'"),
    "of another than nobody knows whom": (question(not_by='["someone"]'), ballot(), NotAllowed, "nobody knows who"),
    "edited since it was seen": (
        question(digest="two", data="2", votes=votes(vote("bob", "two"))),
        ballot(seen="one"),
        Stale,
        "bob changed it on 1970",
    ),
    "edited, and nothing was seen": (question(digest="two", data="2"), ballot(), Stale, "its digest is two"),
    "agreed to by the same person": (
        question(needs="2", votes=votes(vote("ana"))),
        ballot(),
        AlreadyDecided,
        "needs 2 different people",
    ),
    "not to be edited": (question(schema=None), ballot(**EDIT), BadArguments, "cannot be edited"),
    "changed too often": (question(needs="2", votes=MANY), ballot(**EDIT), BadArguments, "so often"),
}


@pytest.mark.parametrize("case", COUNTED)
def test_a_ballot_counts(case: str) -> None:
    found, said_by, then = COUNTED[case]
    before = copy.copy(found)
    said = count(NOW, found, said_by)
    assert (said.kind, said.row.status, said.row.decision, said.value, said.action) == then
    assert found == before  # the rule changes nothing: it returns another row
    mine = json.loads(said.row.votes)[-1]
    assert (mine["by"], mine["yes"], mine["at"], mine["id"]) == ("ana", said_by.yes, NOW, "b")
    if then[1] == "decided":
        assert (said.row.decided_at, said.row.decided_by) == (NOW, "ana")
        assert said.signal_id == "approval:q"  # one signal ends a question, whatever ends it
        assert {each["digest"] for each in said.data["votes"]} == {said.row.digest}
    else:
        assert said.signal_id == f"approval:q:{len(json.loads(said.row.votes))}"


@pytest.mark.parametrize("case", REFUSED)
def test_a_ballot_does_not_count(case: str) -> None:
    found, said_by, error, words = REFUSED[case]
    before = copy.copy(found)
    with pytest.raises(error) as refused:
        count(NOW, found, said_by)
    assert words in str(refused.value)
    assert found == before


def test_what_is_passed_on_is_the_other_persons() -> None:
    """It is theirs and no longer the one's who passed it on; back again, it is."""
    said = delegated(NOW, question(recipients='["ana"]'), "bob", ballot(note="you know more"))
    assert (said.kind, said.action, said.signal_id) == ("approval.delegated", "delegate", "approval:q:to1")
    assert said.data == {"approval": "q", "key": "approve#0", "question": "May it?", "by": "ana", "to": "bob",
                         "note": "you know more"}  # fmt: skip
    assert count(NOW, said.row, ballot("bob")).row.status == "decided"
    with pytest.raises(NotAllowed, match="passed question 'q' on to 'bob'"):
        count(NOW, said.row, ballot())
    back = delegated(NOW, said.row, "ana", ballot("bob"))
    assert count(NOW, back.row, ballot()).row.status == "decided"


@pytest.mark.parametrize(("fields", "said_by", "error"), [
    ({"not_by": '["bob"]'}, ballot(), NotAllowed),
    ({"recipients": '["eve"]'}, ballot(), NotAllowed),
    ({"status": "withdrawn"}, ballot(), RunFinished),
    ({"digest": "two", "data": "2"}, ballot(seen="one"), Stale),
    ({"votes": MANY}, ballot(), BadArguments),
])  # fmt: skip
def test_what_may_not_be_passed_on(fields: dict[str, Any], said_by: Ballot, error: type[HoldfastError]) -> None:
    with pytest.raises(error):
        delegated(NOW, question(**fields), "bob", said_by)


@pytest.mark.parametrize(("fields", "ends"), [
    ({"expires_at": NOW}, True),
    ({"expires_at": NOW + 1}, False),
    ({"expires_at": None}, False),
    ({"expires_at": NOW, "status": "decided"}, False),
    ({"expires_at": NOW, "status": "withdrawn"}, False),
])  # fmt: skip
def test_a_question_expires_when_its_time_is_over(fields: dict[str, Any], ends: bool) -> None:
    said = expired(NOW, question(fallback="0", **fields))
    assert (said is not None) == ends
    if said is not None:
        assert (said.kind, said.value, said.row.status) == ("approval.expired", "0", "expired")
        assert (said.signal_id, said.by) == ("approval:q", "")


@pytest.mark.parametrize(("fields", "needs", "then"), [
    ({"needs": "{}", "votes": votes(vote("bob", "two"))}, 2, "open"),
    ({"needs": "{}", "votes": votes(vote("bob", "two"), vote("eve", "two"))}, 2, "decided"),
    ({"needs": "{}", "votes": votes(vote("bob", "two"), vote("bob", "two"))}, 2, "open"),
    ({"needs": "{}", "votes": votes(vote("bob", "one"), vote("eve", "two"))}, 2, "open"),
    ({"needs": "1", "votes": "[]"}, 2, "same"),
    ({"needs": "{}", "votes": "[]", "status": "expired"}, 1, "same"),
])  # fmt: skip
def test_a_run_says_how_many_must_agree(fields: dict[str, Any], needs: int, then: str) -> None:
    """Of those who agreed to this value; if they are that many, the last of them has decided it."""
    found = question(**fields)
    result = required(NOW, found, "two", needs, "2")
    if then == "same":
        assert result is found
    elif then == "open":
        assert isinstance(result, ApprovalRow)
        assert (result.status, json.loads(result.needs)) == ("open", {"two": needs})
    else:
        assert isinstance(result, Said)
        assert (result.row.status, result.row.decided_by, result.value, result.row.digest) == (
            "decided",
            "eve",
            "2",
            "two",
        )
