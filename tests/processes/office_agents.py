"""Agents that have to do with people, for workers in processes of their own."""

import asyncio
from dataclasses import dataclass

from tests.processes.office_ledger import allowed, effect

import holdfast

# Approvals


@dataclass
class Access:
    groups: list[str]


def two_for_admins(access: Access) -> int:
    return 2 if "admin" in access.groups else 1


@holdfast.step
def grant(groups: list[str]) -> str:
    effect(",".join(groups))
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


@holdfast.agent
async def hire() -> str:
    """So that the question is that of a child's child."""
    return await onboard()


@holdfast.agent
async def order() -> str:
    access = await holdfast.ask("Which groups?", Access, to="ana", remind="1s")
    await grant(access.groups)
    return ",".join(access.groups)


# Budgets


@holdfast.step
async def think(n: int) -> int:
    effect(f"thought {n}")
    holdfast.spend(1, input_tokens=10)
    return n


@holdfast.agent
async def thinker(thoughts: int) -> int:
    return len([await think(n) for n in range(thoughts)])


@holdfast.agent(budget=holdfast.Budget(usd=1000))
async def team(thoughts: int) -> int:
    return sum(await asyncio.gather(*[thinker(thoughts) for _ in range(2)]))


@holdfast.agent(budget=holdfast.Budget(usd=3))
async def firm(thoughts: int) -> int:
    return sum(await asyncio.gather(*[team(thoughts) for _ in range(3)]))


# Steps in doubt


@holdfast.step(in_doubt="ask")
async def pay(what: str) -> str:
    effect(what)
    await allowed(what)
    return f"paid {what}"


@holdfast.agent
async def buy(what: str) -> str:
    try:
        return await pay(what)
    except holdfast.StepFailed as failure:
        return failure.type


@holdfast.agent
async def shop(what: str) -> str:
    return await buy(what)


# Told what to do while they go


@holdfast.step
def typed(text: str) -> str:
    effect(text)
    return text.upper()


@holdfast.agent
async def report(parts: list[str]) -> list[str]:
    """Each part is sent to it; then it is printed."""
    plan = await holdfast.plan(parts)
    texts = []
    while plan.remaining:
        texts.append(await typed(await holdfast.receive("text", str)))
        await plan.done(plan.remaining[0])
    await holdfast.progress(1, 4, "printing")
    await holdfast.receive("printed")
    return texts


# Told to stop


@holdfast.step
async def tidy(depth: int) -> None:
    effect(f"tidy {depth}")
    await allowed(f"tidy {depth}")


@holdfast.agent
async def chain(depth: int) -> bool:
    """The lowest one asks a person; each tidies up when it is told to stop."""
    try:
        return await chain(depth - 1) if depth else bool(await holdfast.approve("Go on?"))
    except asyncio.CancelledError:
        await tidy(depth)
        raise
