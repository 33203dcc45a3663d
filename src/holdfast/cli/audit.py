"""`holdfast audit`, and `show --audit`: what people did to which run, schedule, trigger or notification."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import click
from rich.table import Table

from holdfast.cli.options import db_option, json_option, run_ids, stored, subcommand
from holdfast.cli.stores import existing
from holdfast.cli.view.console import answer, print_json, print_list, say, table
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.approvals import LISTED_BYTES, Room
from holdfast.client.documents import plain
from holdfast.client.edge import Edge
from holdfast.client.info import Deed
from holdfast.values.text import cut
from holdfast.words.durations import day_and_time

_TO: Final = 4  # the column that says what a deed was done to


@subcommand()
@click.argument("run", metavar="[ID]", required=False, shell_complete=run_ids, callback=stored)
@click.option("--by", metavar="NAME", help="Only deeds of this person.")
@click.option(
    "--action", "actions", metavar="WORD", multiple=True, help="Only deeds of this kind: start, approve; repeatable."
)
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="At most the newest N."
)
@click.option("--before", type=click.IntRange(1), metavar="N", help="Only deeds before number N: the page before.")
@click.option("--erase", is_flag=True, help="Erase values and free text from the deeds that fit.")
@click.option("--older-than", metavar="TIME", help="With --erase: only deeds older than this: 90d.")
@db_option
@json_option
async def audit(
    run: str | None, by: str | None, actions: tuple[str, ...], limit: int, before: int | None, erase: bool,
    older_than: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print who did what to which run, schedule or trigger.

    Also through which door, and what was approved. --erase takes values out; who did what, and when, stays.
    """
    if erase and (actions or before is not None):
        raise click.UsageError("--erase takes an ID, --by and --older-than, and neither --action nor --before")
    if erase and run is None and by is None and older_than is None:
        raise click.UsageError("an erased value is gone: say which with an ID, --by or --older-than")
    if older_than is not None and not erase:
        raise click.UsageError("--older-than is for --erase")
    if erase:
        await _erase(db, run, by, older_than, as_json=as_json)
    else:
        await print_deeds(db, run, by, actions, before, limit, as_json=as_json)


async def print_deeds(
    url: str | None, run: str | None, by: str | None = None, actions: tuple[str, ...] = (), before: int | None = None,
    limit: int = 100, *, as_json: bool,
) -> None:  # fmt: skip
    """Print deeds, the newest last, as a history reads."""
    async with existing(url) as hf:
        edge = Edge(hf)
        found = await edge.audit(
            Room(LISTED_BYTES), run=run, by=by, action=actions or None, before=before, limit=limit
        )  # fmt: skip
        if not found and run is not None:
            await edge.row(run)  # what was done to a run outlives it: unknown is only one that has left nothing
    deeds = list(reversed(found))
    if as_json:
        print_json({"audit": deeds})
        return
    if not deeds:
        if by or actions or before:
            answer("The audit has nothing that fits.")
        else:
            answer(f"Nobody has done anything to {run or 'any run'} from outside.")
        return
    if len(found) == limit:
        say(f"The newest {limit}; --before {deeds[0].id} goes on.", "dim")
    of_one = all(deed.run == run for deed in deeds)
    print_list(_table(deeds, of_one=of_one), *([] if of_one else [_TO]))


async def _erase(url: str | None, run: str | None, by: str | None, older_than: str | None, *, as_json: bool) -> None:
    """Take out values and free text; the rows stay."""
    async with existing(url) as hf:
        count = await hf.erase_audit(run=run, by=by, older_than=older_than)
    if as_json:
        print_json({"erased": count})
    else:
        answer(f"Erased what {count} deed{'' if count == 1 else 's'} were about; who did them and when is kept.")


def _table(deeds: list[Deed], *, of_one: bool) -> Table:
    made = table("when", "who", "via", "what", *(() if of_one else ("to",)), "why")
    for deed in deeds:
        cells = [day_and_time(round(deed.at.timestamp() * 1000)), clean(deed.by), clean(deed.via), deed.action,
                 *([] if of_one else [deed.run or clean(deed.subject)]), _why(deed)]  # fmt: skip
        made.add_row(*[Text(cell) for cell in cells])
    return made


def _why(deed: Deed) -> str:
    """Say what a deed was about, and why it was done."""
    if deed.erased_at is not None:
        return "(erased)"
    about = "" if deed.value is None else cut(_in_one_line(deed.value), 60)
    if deed.action == "refused":
        said = [str(deed.data[name]) for name in ("tried", "code", "address") if name in deed.data]
        said += [f"token {deed.data['token']}"] if "token" in deed.data else []
        return clean(" ".join([*said, *([f"{deed.data['count']} times"] if deed.data["count"] > 1 else [])]))
    if deed.action == "fork":
        about = f"{deed.data.get('fork')} before event {deed.data.get('at')}" + _replaced(deed.data)
    if deed.action == "start" and "fork_of" in deed.data:
        about = f"a fork of {deed.data['fork_of']} before event {deed.data.get('at')}" + _replaced(deed.data)
    if deed.action in _CARRIED:
        about = _CARRIED[deed.action](deed.data)
    if deed.action == "delegate":
        about = f"to {deed.data.get('to', '')} {about}"
    if deed.via.startswith("bundle:") and "at" in deed.data:
        about = f"{about} said at {day_and_time(deed.data['at'])}".strip()
    if deed.run and deed.subject:
        about = f"{deed.subject} {about}".strip()
    if not deed.run and deed.subject:
        about = " ".join(str(deed.data[name]) for name in _DETAILS if name in deed.data)
    why = deed.data.get("reason") or deed.data.get("note") or deed.data.get("name") or deed.data.get("topic") or ""
    return clean(" ".join(part for part in (about, str(why)) if part))


_DETAILS: Final = (
    "agent",
    "type",
    "message",
    "delivery",
    "id",
    "error",
)  # of what was done to something else than a run


def _replaced(data: dict[str, Any]) -> str:
    told = ", ".join(f"{key} = {value}" for key, value in (data.get("values") or {}).items())
    return f", replaced: {cut(told, 100)}" if told else ""


def _imported(data: dict[str, Any]) -> str:
    left = ", ".join(map(str, data.get("without") or ()))
    return f"a {data.get('kind')} from store {data.get('from')}" + (f", without decision {left}" if left else "")


def _confirmed(data: dict[str, Any]) -> str:
    proof = data.get("receipt")
    if not isinstance(proof, dict):
        return "on a person's word, without a receipt"
    return f"by a receipt of {proof.get('by')}, imported {day_and_time(proof.get('imported_at', 0))}"


_CARRIED: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "import": _imported,
    "confirm_move": _confirmed,
    "move": lambda data: f"to store {data.get('to')}",
    "take_back": lambda data: f"it was moved to store {data.get('to')}",
    "export": lambda data: f"a copy, bundle {data.get('bundle')}",
}


def _in_one_line(value: Any) -> str:
    return " ".join((value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)).split())
