"""`holdfast audit`, and `show --audit`: who did what to which run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from holdfast.cli.view.console import answer, console, print_json, say
from holdfast.cli.view.draw import clean, day_and_time
from holdfast.cli.view.read import existing, row_of
from holdfast.cli.view.screen import Text
from holdfast.client.approvals import LISTED_BYTES, Room
from holdfast.client.documents import plain
from holdfast.client.run import Deed
from holdfast.values.text import cut


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deeds: to a run, by somebody, of some kinds, before one of them."""

    run: str | None = None
    by: str | None = None
    actions: tuple[str, ...] = ()
    before: int | None = None
    limit: int = 100


async def audit(url: str | None, wanted: Wanted, *, as_json: bool) -> None:
    """The command: the newest last, as a history reads."""
    async with existing(url) as hf:
        found = await hf._audited(  # noqa: SLF001 - of our own package
            Room(LISTED_BYTES), run=wanted.run, by=wanted.by, action=wanted.actions or None, before=wanted.before,
            limit=wanted.limit,
        )  # fmt: skip
        if not found and wanted.run is not None:
            await row_of(
                hf, wanted.run
            )  # what was done to a run outlives it: unknown is only one that has left nothing
    deeds = list(reversed(found))
    if as_json:
        print_json({"audit": deeds})
        return
    if not deeds:
        if wanted.by or wanted.actions or wanted.before:
            answer("The audit has nothing that fits.")
        else:
            answer("Nobody has done anything to " + (f"{wanted.run}" if wanted.run else "any run") + " from outside.")
        return
    run = wanted.run
    if len(found) == wanted.limit:
        say(f"The newest {wanted.limit}; --before {deeds[0].id} goes on.", "dim")
    console().print(_table(deeds, of_one=all(deed.run == run for deed in deeds)))


async def erase(url: str | None, run: str | None, by: str | None, older_than: str | None, *, as_json: bool) -> None:
    """`--erase`: values and free text go, the rows stay."""
    async with existing(url) as hf:
        count = await hf.erase_audit(run=run, by=by, older_than=older_than)
    if as_json:
        print_json({"erased": count})
    else:
        answer(f"Erased what {count} deed{'' if count == 1 else 's'} were about; who did them and when is kept.")


def _table(deeds: list[Deed], *, of_one: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("when", "who", "via", "what", *(() if of_one else ("run",)), "why"):
        table.add_column(name)
    for deed in deeds:
        cells = [day_and_time(round(deed.at.timestamp() * 1000)), clean(deed.by), clean(deed.via), deed.action,
                 *([] if of_one else [deed.run]), _why(deed)]  # fmt: skip
        table.add_row(*[Text(cell) for cell in cells])
    return table


def _why(deed: Deed) -> str:
    """What a person wants to know of it: what it was about, and why."""
    if deed.erased_at is not None:
        return "(erased)"
    about = "" if deed.value is None else cut(_in_one_line(deed.value), 60)
    if deed.action == "refused":
        said = [str(deed.data[name]) for name in ("tried", "code", "address") if name in deed.data]
        said += [f"token {deed.data['token']}"] if "token" in deed.data else []
        return clean(" ".join([*said, *([f"{deed.data['count']} times"] if deed.data["count"] > 1 else [])]))
    if deed.action == "delegate":
        about = f"to {deed.data.get('to', '')} {about}"
    why = deed.data.get("reason") or deed.data.get("note") or deed.data.get("name") or deed.data.get("topic") or ""
    return clean(" ".join(part for part in (about, str(why)) if part))


def _in_one_line(value: Any) -> str:
    return " ".join((value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)).split())
