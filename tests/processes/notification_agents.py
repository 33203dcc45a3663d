"""An agent of one step, for workers that are killed while they tell of it."""

import holdfast


@holdfast.step
async def double(number: int) -> int:
    return 2 * number


@holdfast.agent
async def doubled(number: int) -> int:
    return await double(number)
