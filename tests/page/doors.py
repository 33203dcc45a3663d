"""A webhook whose function fails for as long as a test wants."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from holdfast import Delivery, Start, Verify

HOLD = Path(os.environ.get("SCENE_HOLD", "/nonexistent"))  # while it is there, nothing can be read from an order


@holdfast.agent
async def take_order(text: str) -> str:
    return f"taken: {text}"


@holdfast.on.webhook("orders", verify=Verify.bearer("env:DOORS_TOKEN"), retry=1)
def orders(delivery: Delivery) -> Start:
    if HOLD.exists():
        raise ValueError("the order names no customer")
    return Start(take_order, delivery.text())
