"""The fleet over HTTP: the workers that carry runs, and what is lacking."""

from __future__ import annotations

from holdfast.client.edge import Edge
from holdfast.client.fleet import Fleet
from holdfast.http.routes import Call, Nothing


async def shown(call: Call[Nothing, None]) -> Fleet:
    return await Edge(call.hf).fleet()
