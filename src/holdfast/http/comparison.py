"""Two runs side by side over HTTP, call by call."""

from __future__ import annotations

from pydantic import Field

from holdfast.client.comparison import Comparison
from holdfast.client.edge import Edge
from holdfast.http.routes import Call, Input


class Two(Input):
    """Two runs, and a page of their calls."""

    a: str = Field("", description="A run.")
    b: str = Field("", description="Another one.")
    after: int = Field(0, ge=0, le=2**63 - 1, description="The `next` of the page before.")
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")
    differences: bool = Field(False, description="Leave out calls that are the same.")


async def compared(call: Call[Two, None]) -> Comparison:
    """Compare them."""
    two, edge = call.query, Edge(call.hf)
    for run in (two.a, two.b):
        await edge.check_sees(run)
    return await call.hf.compare(two.a, two.b, after=two.after, limit=two.limit, differences=two.differences)
