"""`holdfast conversations`: which there are, and what was said in one."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.stores import existing
from holdfast.cli.view.console import answer, console, fail, print_json, print_list, table
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.documents import plain
from holdfast.client.edge import Edge
from holdfast.values.text import cut
from holdfast.words.durations import day_and_time

_CHARACTERS: Final = 200  # of what is no text; --json has all of it


@subcommand()
@click.argument("conversation", metavar="[ID]", required=False)
@click.option("--last", type=click.IntRange(1), default=50, show_default=True, help="At most so many, the newest.")
@click.option("--delete", is_flag=True, help="Delete the conversation with all that was said in it.")
@db_option
@json_option
async def conversations(conversation: str | None, last: int, delete: bool, db: str | None, as_json: bool) -> None:
    """List conversations, or show what was said in one."""
    if delete and conversation is None:
        raise click.UsageError("--delete: name the conversation to be deleted")
    async with existing(db) as hf:
        if conversation is None:
            await _list(hf, last, as_json=as_json)
        elif delete:
            await _delete(hf, conversation, as_json=as_json)
        else:
            await _show(hf, conversation, last, as_json=as_json)


async def _list(hf: Client, limit: int, *, as_json: bool) -> None:
    """List them by their ids."""
    found = await hf.conversations(limit=limit)
    if as_json:
        print_json({"conversations": found})
        return
    if not found:
        answer(f"No conversations in {Edge(hf).url}.")
        return
    made = table("id", "messages", "last", "run", "waiting")
    for each in found:
        last = day_and_time(round(each.updated_at.timestamp() * 1000))
        made.add_row(Text(each.id, "bold"), str(each.messages), last, Text(each.run or ""), str(each.waiting or ""))
    print_list(made, 0, 3)
    if len(found) == limit:
        answer(f"The first {limit} are shown; --last shows more.", "dim")


async def _show(hf: Client, conversation: str, last: int, *, as_json: bool) -> None:
    """Show the newest messages of one, oldest first."""
    transcript = hf.conversation(conversation)
    if await transcript.info() is None:
        fail(f"there is no conversation {conversation!r}")
    found = await transcript.messages(last=last)
    if as_json:
        rows = [{"position": each.position, "at": each.at, "run": each.run, "value": each.value} for each in found]
        print_json({"conversation": conversation, "messages": rows})
        return
    made = table("", "when", "run", "message")
    for each in found:
        at = day_and_time(round(each.at.timestamp() * 1000))
        made.add_row(str(each.position), Text(at, "dim"), Text(each.run, "cyan"), Text(clean(_said(each.value))))
    console().print(made)


async def _delete(hf: Client, conversation: str, *, as_json: bool) -> None:
    count = await hf.conversation(conversation).delete()
    if as_json:
        print_json({"conversation": conversation, "deleted": count})
    else:
        answer(f"Deleted {count} messages of conversation {conversation}.")


def _said(value: Any) -> str:
    return value if isinstance(value, str) else cut(json.dumps(plain(value), ensure_ascii=False), _CHARACTERS)
