"""Search over HTTP: one text for everything that has a name."""

from __future__ import annotations

from pydantic import Field

from holdfast.client.search import Found
from holdfast.http.routes import Call, Input


class Text(Input):
    """A text to look for."""

    q: str = Field("", max_length=200, description="A piece of an id, a name, a label or a question.")


async def found(call: Call[Text, None]) -> Found:
    """Find a few things; nothing, as long as nothing was typed."""
    if not call.query.q.strip():
        return Found((), (), (), (), ())
    return await call.hf.search(call.query.q)
