"""Questions to people: listed, shown, decided. The caller of the request is the person who decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.client.approvals import LISTED_BYTES, Approval, Room
from holdfast.client.documents import unsaid
from holdfast.client.edge import Edge
from holdfast.errors import Stale, UnknownApproval
from holdfast.http.routes import Call, Input, Nothing


class Which(Input):
    run: str | None = Field(None, description="Only questions of this run and of those below it.")
    to: str | None = Field(None, description="Only what this person or group may decide.")
    mine: bool = Field(default=False, description="Only what the caller may decide.")
    open: bool = Field(default=True, description="false: also what was decided, expired or withdrawn.")
    status: list[Literal["open", "decided", "expired", "withdrawn"]] = Field(
        [],
        description="Only questions in this state, instead of `open`; the newest first, unless only open ones are asked for.",
    )
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")
    after: str | None = Field(None, description="The `next` of the page before.")


class _Said(Input):
    digest: str = Field(
        description="Of what the person was shown; GET /api/approvals/{id} has it beside that. Refused if that was changed since."
    )
    note: str = Field("", description="For a deny the reason that the agent sees.")


class Approve(_Said):
    decision: Literal["approve"]
    data: Any = Field(None, description="In the place of all that is shown, where that may be edited.")


class Deny(_Said):
    decision: Literal["deny"]


class Answer(_Said):
    decision: Literal["answer"]
    value: Any = Field(
        description="Of the question's schema. About a step in doubt: 'run', 'fail' or {'result': ...}; "
        "'use' of one that a fork finds done."
    )


class Delegate(_Said):
    decision: Literal["delegate"]
    to: str = Field(description="The person or group whose it is from now on.")


Decision = Annotated[Approve | Deny | Answer | Delegate, Field(discriminator="decision")]


@dataclass(frozen=True, slots=True)
class Approvals:
    approvals: list[Approval]
    next: str | None


@dataclass(frozen=True, slots=True)
class OneApproval:
    approval: Approval


async def listed(call: Call[Which, None]) -> Approvals:
    which = call.query
    if which.mine and not call.decides:
        return Approvals([], None)
    to = call.by if which.mine else which.to
    filters: dict[str, Any] = {"run": which.run, "to": to, "open": which.open, "status": which.status or None}
    found = await Edge(call.hf).approvals(Room(LISTED_BYTES), limit=which.limit, after=which.after, **filters)
    return Approvals(*found)


async def shown(call: Call[Nothing, None]) -> OneApproval:
    return OneApproval(await call.hf.approval(call["id"]))


async def decide(call: Call[Nothing, Approve | Deny | Answer | Delegate]) -> OneApproval:
    hf, said, by = call.hf, call.body, call.by
    question = await hf.approval(call["id"])
    if question.id != call["id"]:  # by the time this comes, a run may ask something else
        raise UnknownApproval(f"{call['id']!r} is a run: decide its question by its own id, {question.id!r}")
    linked = None if call.caller is None else call.caller.who.shown
    if linked not in (None, said.digest):
        raise Stale(
            "the link is for what was shown when it was made, and that is another by now. Ask for another link",
            approval=question,
        )
    if isinstance(said, Approve):
        edited = {"data": unsaid(said.data, question.data)} if "data" in said.model_fields_set else {}
        done = await hf.approve(question, by=by, note=said.note, digest=said.digest, **edited)
    elif isinstance(said, Deny):
        done = await hf.deny(question, by=by, note=said.note, digest=said.digest)
    elif isinstance(said, Answer):
        done = await hf.answer(question, said.value, by=by, note=said.note, digest=said.digest)
    else:
        done = await hf.delegate(question, to=said.to, by=by, note=said.note, digest=said.digest)
    return OneApproval(done)
