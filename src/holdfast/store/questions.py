"""The part of the contract with a database that has to do with people: what is asked, and how it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.words.model import ApprovalRow
from holdfast.words.people import Ballot


@dataclass(slots=True)
class NewApproval:
    """A question to be stored together with the event that asks it."""

    id: str
    key: str
    kind: str
    question: str
    shown: str | None = None  # a large one names the blob that the event has
    digest: str = ""
    schema: str | None = None
    recipients: list[str] = field(default_factory=list)
    needs: str = "1"
    expires_ms: int | None = None
    fallback: str | None = None
    remind_ms: int | None = None
    not_by_starter: bool = False  # who started the run, or the one above all, may not decide it
    about: str | None = None  # the run whose budget it is about; then several runs may ask it


class QuestionStore(Protocol):
    """Where questions to people are kept."""

    async def decide(self, approval: str, ballot: Ballot, blobs: dict[str, bytes] | None = None,
                     known: ApprovalRow | None = None) -> ApprovalRow:  # fmt: skip
        """Count what a person says to an open question, and tell its run; the last that is needed decides it, once.

        `known` is the question as it was a moment ago, if that is known: it need not be looked up if it is still so.
        `AlreadyDecided` shows who was first; `NotAllowed` who may; `Stale` when something else is shown by now; `Expired`;
        `RunFinished` when it was withdrawn.
        """
        ...

    async def delegate(self, approval: str, to: str, ballot: Ballot) -> ApprovalRow:
        """Pass an open question on, as one who may decide it."""
        ...

    async def expire(self, approval: str) -> ApprovalRow:
        """End an open question whose time is over, and tell its run; one that a person decided first stays so."""
        ...

    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow:
        """How many must agree to this value, as only its run can tell; decides it if that many have."""
        ...

    async def approvals(
        self,
        *,
        run: str | None = None,
        approval: str | None = None,
        statuses: Iterable[str] = ("open",),
        limit: int = 100,
    ) -> list[ApprovalRow]:
        """Questions in the order asked: one, those of a run and of all below it, or all."""
        ...  # fmt: skip
