"""A webhook whose runs each add one row to a table of the store's own database, in the transaction of their step."""

from __future__ import annotations

import os

import apsw

import holdfast
from holdfast import Delivery, Start, Verify


@holdfast.step(transaction=True)
async def enter(order: str) -> None:
    db = holdfast.connection()
    statement = f"INSERT INTO {os.environ['HANDLED']} VALUES ('{order}')"
    if isinstance(db, apsw.Connection):
        db.execute(statement)
    else:
        await db.execute(statement)


@holdfast.agent
async def handle(order: str) -> None:
    await enter(order)


@holdfast.on.webhook("orders", verify=Verify.standard("env:HOOK_SECRET"))
def orders(delivery: Delivery) -> Start:
    return Start(handle, delivery.json()["order"])
