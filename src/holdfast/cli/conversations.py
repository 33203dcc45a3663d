"""`holdfast conversations`: which there are, and what was said in one."""

from __future__ import annotations

import json
from typing import Any, Final

from rich.table import Table

from holdfast.cli.view.console import answer, console, fail, print_json
from holdfast.cli.view.draw import clean, day_and_time
from holdfast.cli.view.read import existing
from holdfast.cli.view.screen import Text
from holdfast.client.documents import plain
from holdfast.values.text import cut

_CHARACTERS: Final = 200  # of what is no text; --json has all of it


async def conversations(url: str | None, limit: int, *, as_json: bool) -> None:
    """All, by their ids."""
    async with existing(url) as hf:
        found = await hf.conversations(limit=limit)
        where = hf.store.url
    if as_json:
        rows = [{"id": each.id, "messages": each.messages, "run": each.run, "waiting": each.waiting,
                 "created_at": each.created_at, "updated_at": each.updated_at} for each in found]  # fmt: skip
        print_json({"conversations": rows})
        return
    if not found:
        answer(f"No conversations in {where}.")
        return
    table = _table("id", "messages", "last", "run", "waiting")
    for each in found:
        last = day_and_time(round(each.updated_at.timestamp() * 1000))
        table.add_row(Text(each.id, "bold"), str(each.messages), last, Text(each.run or ""), str(each.waiting or ""))
    console().print(table)
    if len(found) == limit:
        answer(f"The first {limit} are shown; --last shows more.", "dim")


async def messages(url: str | None, conversation: str, last: int, *, as_json: bool) -> None:
    """The newest of one, oldest first."""
    async with existing(url) as hf:
        transcript = hf.conversation(conversation)
        if await transcript.info() is None:
            fail(f"there is no conversation {conversation!r}")
        found = await transcript.messages(last=last)
    if as_json:
        rows = [{"position": each.position, "at": each.at, "run": each.run, "value": each.value} for each in found]
        print_json({"conversation": conversation, "messages": rows})
        return
    table = _table("", "when", "run", "message")
    for each in found:
        at = day_and_time(round(each.at.timestamp() * 1000))
        table.add_row(str(each.position), Text(at, "dim"), Text(each.run, "cyan"), Text(clean(_said(each.value))))
    console().print(table)


async def delete(url: str | None, conversation: str, *, as_json: bool) -> None:
    """For good."""
    async with existing(url) as hf:
        count = await hf.conversation(conversation).delete()
    if as_json:
        print_json({"conversation": conversation, "deleted": count})
    else:
        answer(f"Deleted {count} messages of conversation {conversation}.")


def _said(value: Any) -> str:
    return value if isinstance(value, str) else cut(json.dumps(plain(value), ensure_ascii=False), _CHARACTERS)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name)
    return table
