"""Agents that show whatever they are given, and let people decide about it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import holdfast


@holdfast.agent
async def show(text: str, edit: bool = False, needs: int = 1) -> Any:
    """Show a value of JSON."""
    decision = await holdfast.approve("Is this right?", show=json.loads(text), edit=edit, to=["ana", "bo"], needs=needs)
    return decision.data


@dataclass
class Payment:
    at: datetime
    account: int
    rate: float
    note: str = ""


@holdfast.agent
async def pay(at: datetime, account: int, note: str) -> Any:
    """Show a payment, every field of which may be edited."""
    decision = await holdfast.approve("Pay this?", show=Payment(at, account, 1.0, note), edit=True, to=["ana", "bo"])
    return decision.data


@holdfast.agent
async def schemed(text: str, schema: dict[str, Any], needs: int = 1) -> Any:
    """Show a value of JSON that may be edited as a schema says."""
    decision = await holdfast.approve(
        "Is this right?", show=json.loads(text), edit=schema, to=["ana", "bo"], needs=needs
    )
    return decision.data


@holdfast.agent
async def lost() -> Any:
    """Show a number that JSON has no word for."""
    decision = await holdfast.approve("Is this the rate?", show={"rate": math.nan, "n": 1}, edit=True, to=["ana", "bo"])
    return decision.data
