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


@holdfast.step
async def does(what: str) -> str:
    return what


@holdfast.agent
async def around() -> None:
    """Do one thing before a question, and others after it."""
    await does("first")
    await holdfast.approve("Go on?", to="ana")
    await does("second")
    await does("third")


@holdfast.step
async def costs(n: int) -> int:
    holdfast.spend(0.25)
    return n


@holdfast.agent(budget=holdfast.Budget(usd=0.25, at_limit="fail"))
async def spends() -> None:
    """Spend more than it may."""
    await costs(1)
    await costs(2)


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
