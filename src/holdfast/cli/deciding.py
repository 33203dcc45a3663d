"""What waits for people: listed, stepped through, decided by one command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from holdfast.cli import asking
from holdfast.cli.output import answer as tell
from holdfast.cli.output import console, decide_command, glyphs, print_json, say
from holdfast.cli.picture import clean
from holdfast.cli.reading import existing, row_of
from holdfast.client import Client
from holdfast.documents import plain
from holdfast.errors import BadArguments
from holdfast.people import Actor
from holdfast.questions import LISTED_BYTES, Approval, Room

_PREVIEW: Final = 200


async def approvals(
    url: str | None, run: str | None, to: str | None, by: str | None, *, every: bool, as_json: bool, ask: bool
) -> None:
    """The command: a list, or one after the other for a person at a terminal."""
    async with existing(url) as hf:
        if run is not None:
            await row_of(hf, run)
        decides = ask and not every and not as_json and asking.is_at_terminal()
        room = Room() if decides else Room(LISTED_BYTES)  # who decides sees all of it
        found = await hf._listed(room, run=run, to=to, open=not every, limit=100)  # noqa: SLF001 - of our own package
        if as_json:
            print_json({"questions": found})
        elif not found:
            tell("Nothing waits for a person." if to is None else f"Nothing waits for {to}.")
        elif decides:
            await _step_through(hf, found, by or to)
        else:
            for each in found:
                _print(each, url)


async def _step_through(hf: Client, found: list[Approval], by: str | None) -> None:
    never = asyncio.Event()
    for place, question in enumerate(found, 1):
        say(f"{place} of {len(found)}", "dim")
        if not await asking.decide(hf, question, by, never):
            return
        say()


def _print(question: Approval, url: str | None) -> None:
    on = console()
    on.print(asking.headline(question), soft_wrap=True)
    on.print(Text(f"  {clean(question.question)}"), soft_wrap=True)
    if question.data is not None and question.kind != "in_doubt":
        shown = clean(json.dumps(plain(question.data), ensure_ascii=False))
        on.print(Text(f"  {shown[:_PREVIEW]}{glyphs(on).more if len(shown) > _PREVIEW else ''}"), soft_wrap=True)
    if question.status == "open":
        on.print(Text(f"  {decide_command(question, url)}", "dim"), soft_wrap=True)
    else:
        how = f"{question.decision or question.status} by {question.decided_by or 'nobody'}"
        on.print(Text(f"  {how}" + (f": {clean(question.note)}" if question.note else ""), "dim"), soft_wrap=True)


async def approve(
    url: str | None, question: str, by: str | None, note: str, data: str | None, digest: str | None, *, as_json: bool
) -> None:
    """The command."""
    more = {} if data is None else {"data": _entered(data)}
    await _do(url, lambda hf, who: hf.approve(question, by=who, note=note, digest=digest, **more), by, as_json=as_json)


async def deny(url: str | None, question: str, by: str | None, note: str, *, as_json: bool) -> None:
    """The command."""
    await _do(url, lambda hf, who: hf.deny(question, by=who, note=note), by, as_json=as_json)


async def answer(url: str | None, question: str, value: str, by: str | None, note: str, *, as_json: bool) -> None:
    """The command."""
    if value.startswith("@"):
        given = _entered(value)
        await _do(url, lambda hf, who: hf.answer(question, given, by=who, note=note), by, as_json=as_json)
    else:
        await _do(url, lambda hf, who: asking.answered(hf, question, value, who, note), by, as_json=as_json)


async def delegate(url: str | None, question: str, to: str, by: str | None, note: str, *, as_json: bool) -> None:
    """The command."""
    async with existing(url) as hf:
        passed = await hf.delegate(question, to=to, by=asking.actor(by), note=note)
    if as_json:
        print_json({"question": passed})
    else:
        tell(f"{passed.id} of run {passed.run} is now for {to}.")


async def _do(
    url: str | None, act: Callable[[Client, Actor], Awaitable[Approval]], by: str | None, *, as_json: bool
) -> None:
    async with existing(url) as hf:
        decided = await act(hf, asking.actor(by))
    if as_json:
        print_json({"question": decided})
    else:
        tell(asking.outcome(decided))


def _entered(text: str) -> Any:
    """JSON as it was typed, or in a file that was named with an @."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except OSError as error:
            raise BadArguments(f"{text[1:]!r} cannot be read: {error.strerror}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadArguments(f"{text[:60]!r} is no JSON: {error}. A text needs quotes of its own: '\"text\"'") from None
