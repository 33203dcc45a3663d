"""The fleet over HTTP: who carries runs, and what is lacking."""

from __future__ import annotations

from holdfast.client.fleet import Fleet
from holdfast.http.routes import Call, Nothing


async def shown(call: Call[Nothing, None]) -> Fleet:
    """Look at all of it."""
    return await call.hf.fleet()
