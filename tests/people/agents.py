"""An agent that asks people, for workers in processes of their own. What it did is in a ledger outside."""

import os
from dataclasses import dataclass
from pathlib import Path

import holdfast

LEDGER = Path(os.environ.get("PEOPLE_LEDGER", "ledger"))


@dataclass
class Access:
    groups: list[str]


def two_for_admins(access: Access) -> int:
    return 2 if "admin" in access.groups else 1


@holdfast.step
def grant(groups: list[str]) -> str:
    key = holdfast.idempotency_key()
    with LEDGER.open("a+") as ledger:
        ledger.seek(0)
        if key not in ledger.read():  # as a service does that takes keys
            ledger.write(f"{holdfast.this_run().root} {','.join(groups)} {key}\n")
    return "granted"


@holdfast.agent
async def privileges(expires_s: float) -> str:
    decision = await holdfast.approve(
        "Grant this?", show=Access(["dev"]), edit=True, to=["ana", "it"], needs=two_for_admins, expires=expires_s
    )
    if not decision:
        return "expired" if decision.expired else f"denied by {decision.by}: {decision.note}"
    await grant(decision.data.groups)
    return f"{','.join(decision.data.groups)} by {', '.join(vote.by for vote in decision.votes)}"


@holdfast.agent
async def onboard(expires_s: float = 3600.0) -> str:
    return await privileges(expires_s)
