"""A new colleague gets an account, the privileges that people allow, and a welcome mail; whatever is killed in between."""

import asyncio
import json
import os
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal

import holdfast

OFFICE = os.environ.get("OFFICE_URL", "http://127.0.0.1:8700")
GROUPS = {"engineer": ["staff", "code"], "analyst": ["staff", "data"]}


@dataclass
class Access:
    """What an account may do, and who says so."""

    account: str
    groups: list[str]
    why: str

    def __str__(self) -> str:
        return f"in {', '.join(self.groups) or 'no group yet'} ({self.why})"


def office(path: str, **wanted: Any) -> str:
    """Ask a service of the office. Each call of a step has a key of its own, the same in every attempt."""
    headers = {"Idempotency-Key": holdfast.idempotency_key()}
    content = json.dumps(wanted).encode() if wanted else None
    with urllib.request.urlopen(urllib.request.Request(f"{OFFICE}/{path}", content, headers)) as answer:
        text: str = answer.read().decode()
        return text


@holdfast.step(retry=5)
def create_account(person: str) -> str:
    return office("accounts", person=person)  # run again after a crash: the directory knows the key


@holdfast.step(retry=5)
def grant(account: str, groups: list[str]) -> None:
    office("grants", account=account, groups=groups)


async def find_mail(to: str, text: str) -> str | holdfast.NotDone:
    """A crash left it open whether the mail went out: look into the mailbox."""
    return await asyncio.to_thread(office, f"mails/{holdfast.idempotency_key()}") or holdfast.NOT_DONE


@holdfast.step(in_doubt=find_mail)
def send_mail(to: str, text: str) -> str:
    return office("mails", to=to, text=text)


def approvers(groups: list[str]) -> int:
    """How many must agree, also to a list that one of them has changed."""
    return 2 if "admin" in groups else 1


@holdfast.agent
async def privileges(account: str, groups: list[str]) -> Access:
    """People say which groups it may be; when they do not within two days, none."""
    decision = await holdfast.approve(
        f"Which groups may {account} join?", show=groups, edit=True, to="it-admins", needs=approvers,
        remind="12h", expires="2 days", default=False,
    )  # fmt: skip
    if decision:
        await grant(account, decision.data)
        return Access(account, decision.data, f"allowed by {' and '.join(vote.by for vote in decision.votes)}")
    return Access(account, [], "nobody decided in time" if decision.expired else f"{decision.by}: {decision.note}")


@holdfast.agent
async def accounts(person: str, groups: list[str]) -> Access:
    """IT: first the account, then what it may do, then a mail that says so."""
    todo = await holdfast.plan(["account", "privileges", "mail"])
    account = await create_account(person)
    await todo.done("account")
    access = await privileges(account, groups)
    await todo.done("privileges")
    await send_mail(account, f"Welcome, {person}! Your account is {account}. You are {access}.")
    await todo.done("mail")
    return access


@holdfast.agent
async def onboard(person: str, role: Literal["engineer", "analyst"] = "engineer") -> str:
    """HR: knows which groups a role needs, and leaves the rest to IT."""
    access = await accounts(person, GROUPS[role])
    return f"{access.account} is {access}"
