"""The fleet over HTTP: who carries runs, and what is lacking."""

from __future__ import annotations

from dataclasses import replace

from holdfast.client.fleet import Fleet
from holdfast.http.routes import Call, Nothing


async def shown(call: Call[Nothing, None]) -> Fleet:
    """Look at all of it, but for where a database is: who may read runs need not know its host."""
    found = await call.hf.fleet()
    if found.store.kind == "sqlite":
        return found
    return replace(found, store=replace(found.store, where=found.store.kind))
