"""Many runs at once: the same done to each of them, or to all that fit; and a run as a file."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from typing import Any, Final

from pydantic import Field
from starlette.responses import Response

from holdfast.client.control import Action, Bulk
from holdfast.client.edge import Edge
from holdfast.client.keys import Keys
from holdfast.errors import BadArguments, RunFinished
from holdfast.http.errors import Refused, placeless
from holdfast.http.events import attachment
from holdfast.http.routes import Call, Input, Nothing
from holdfast.http.runs import Fits
from holdfast.words.model import plain_id

_MOST_BYTES: Final = 64 * 1024 * 1024  # of a bundle: it is made in memory, several times as large
_MOST_EVENTS: Final = 100_000


class Many(Input):
    """Something to be done to many runs."""

    action: Action = Field(description="What is to be done to each.")
    ids: list[str] | None = Field(None, max_length=1_000, description="The runs.")
    filter: Fits | None = Field(
        None, description="All that fit, instead of `ids`; the names are those of GET /api/runs."
    )
    expect: int | None = Field(
        None,
        ge=0,
        le=2**31,
        description="How many fit when they were looked at; 409 if more than a tenth more do by now.",
    )
    reason: str = Field("", description="It is shown and kept, for a pause or a cancel.")


async def do(call: Call[Nothing, Many]) -> Bulk:
    """Do it to each; what one of them refuses stops no other."""
    asked = call.body
    if (asked.ids is None) == (asked.filter is None):
        raise BadArguments("give either ids or filter")
    caller = call.caller
    if asked.filter is not None and caller is not None and "read" not in caller.scopes:
        # How many fit tells what is in them.
        told = f"the token of {call.by.name!r} may not read, and a filter finds what is in runs. "
        told += "Name the runs with `ids`, or use a token that may read"
        raise Refused("forbidden", told, about={"by": call.by.name, "via": caller.via})
    how: dict[str, Any] = {"reason": asked.reason, "by": call.by.name, "expect": asked.expect}
    which = {"ids": asked.ids} if asked.filter is None else asked.filter.which()
    done, store = await call.hf.bulk(asked.action, **how, **which), Edge(call.hf).url
    return replace(done, refused=tuple(replace(each, message=placeless(each.message, store)) for each in done.refused))


async def bundle(call: Call[Nothing, None]) -> Response:
    """Send a copy of a run and all below it as a signed file. One is made at a time."""
    run = call.hf.get(call["id"])
    if (await run.info()).status == "moved":
        raise RunFinished(f"run {run.id!r} was moved to another store; export it there")
    try:
        await asyncio.to_thread(Keys().own)
    except BadArguments:
        raise Refused("cannot_sign", "this server has no key to sign a bundle with, or several") from None
    async with call.request.app.state.bundles:
        events, size = await Edge(call.hf).family_size(run.id)
        if size > _MOST_BYTES or events > _MOST_EVENTS:
            told = f"run {run.id!r} and those below it have {events} events of {size} bytes, and a server sends less"
            raise Refused("too_large", f"{told}; on its computer, `holdfast export {run.id} --to FILE` writes it")
        file = io.BytesIO()
        await run.export(file, by=call.by.name)
    return attachment(file.getvalue(), f"{plain_id(run.id)}.bundle")
