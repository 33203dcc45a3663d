"""Agents that show whatever they are given, and let people decide about it."""

from __future__ import annotations

import json
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
