"""An agent in a version that no worker has any more."""

import holdfast


@holdfast.agent(version="1")
async def report(quarter: str) -> str:
    return await holdfast.receive("go", str)
