"""The audit over HTTP: the deeds of people, the newest first."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from holdfast.client.approvals import LISTED_BYTES, Room
from holdfast.client.edge import Edge
from holdfast.client.info import Deed
from holdfast.http.routes import Call, Input


class Which(Input):
    """A choice of deeds."""

    run: str | None = Field(None, description="What was done to this run; of a root run, to all below it too.")
    by: str | None = Field(None, description="What this person did.")
    action: list[str] = Field(
        [], max_length=100, description="Only this action, such as 'approve'; may be given several times."
    )
    before: int | None = Field(None, ge=0, le=2**63 - 1, description="The `next` of the page before.")
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")


@dataclass(frozen=True, slots=True)
class Deeds:
    """A page of deeds."""

    deeds: list[Deed]
    next: int | None


async def listed(call: Call[Which, None]) -> Deeds:
    """List deeds."""
    which = call.query
    found = await Edge(call.hf).audit(
        Room(LISTED_BYTES),
        run=which.run,
        by=which.by,
        action=which.action or None,
        before=which.before,
        limit=which.limit,
    )
    return Deeds(found, found[-1].id if len(found) == which.limit else None)
