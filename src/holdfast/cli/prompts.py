"""A person at the terminal: one question after the other is shown, and decided, edited, answered or left."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console

from holdfast.cli.options import value_of
from holdfast.cli.signals import Stop
from holdfast.cli.stores import door
from holdfast.cli.view.console import block, console, glyphs, lines_of, say, shown_value
from holdfast.cli.view.draw import clean
from holdfast.cli.view.live import Display, Watch
from holdfast.cli.view.screen import Text
from holdfast.client.approvals import Approval, offers_result
from holdfast.client.client import Client
from holdfast.client.documents import plain
from holdfast.client.edge import user
from holdfast.errors import BadArguments, HoldfastError
from holdfast.words.durations import spoken
from holdfast.words.harmless import harmless_json
from holdfast.words.people import GROUP, Actor, held_by

_CHOICES: Final = {
    "approve": {"a": "approve", "d": "deny", "e": "edit"},
    "ask": {"a": "answer", "e": "edit"},
    "in_doubt": {"h": "happened", "r": "run", "f": "fail"},
}
_AGAIN: Final = {"u": "use", "r": "run", "g": "give another result", "f": "fail"}  # of a step that was done before
_ALWAYS: Final = {"s": "skip", "q": "quit"}
_ALSO: Final = {"y": "approve", "n": "deny"}  # what people type where a question can be approved
_YES: Final = {"y": ("yes", True), "yes": (True,), "n": ("no", False), "no": (False,)}


def actor(by: str | None) -> Actor:
    """Name the person who acts: the owner of a store may act for anybody, and the audit says so."""
    if by is not None and by.startswith(GROUP):
        raise BadArguments(f"--by {by}: a group decides nothing itself; name one of its people")
    return Actor(by or user(), via=door())


async def answered(hf: Client, question: Approval | str, text: str, by: Actor, note: str = "") -> Approval:
    """Answer with what was typed: as data if it is JSON, as text, and `y` also where yes or true is meant."""
    meant = [value_of(text), text, *_YES.get(text.strip().lower(), ())]
    for place, value in enumerate(meant):
        try:
            return await hf.answer(question, value, by=by, note=note)
        except BadArguments as error:
            if place == 0:
                refused = error  # of what was typed, not of what it might have meant
    raise refused


def is_at_terminal() -> bool:
    """Is there a person to ask?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def headline(question: Approval) -> Text:
    """Write where a question comes from, whose it is and how long there is time."""
    made = Text(question.id, "bold").append(f"  run {question.run}", "cyan")
    if len(question.path) > 1:
        made.append(f"  {' > '.join(question.path)}", "cyan")
    made.append(f"  asked {spoken(max((datetime.now(UTC) - question.asked_at).total_seconds(), 0))} ago", "dim")
    if question.status != "open":
        return made
    passed = [(each.by, each.to) for each in question.delegations]
    if question.to:
        made.append(f"  for {', '.join(held_by(question.to, passed))}", "dim")
    if passed:
        made.append(f"  passed on by {', '.join(dict.fromkeys(by for by, _ in passed))}", "dim")
    if question.not_by:
        made.append(f"  not by {', '.join(question.not_by)}", "dim")
    if question.needs != 1 or question.votes:
        needs = "" if question.needs is None else f" of {question.needs}"
        made.append(f"  {len(question.votes)}{needs} votes", "yellow")
    if question.expires_at is not None:
        left_s = (question.expires_at - datetime.now(UTC)).total_seconds()
        made.append(f"  expires in {spoken(left_s)}" if left_s > 0 else "  expired", "yellow")
    return made


def show(on: Console, question: Approval, **entered: Any) -> None:
    """Print the whole question as a person needs it, and what is to be entered, as `data`, if something is."""
    on.print(headline(question), soft_wrap=True)
    on.print(Text(f"  digest {question.digest}", "dim"))
    on.print(Text(f"  {clean(question.question)}", "bold yellow"), soft_wrap=True)
    for passed in question.delegations:
        on.print(Text(f"  {passed.by} passed it on to {passed.to}{_noted(passed.note)}", "dim"), soft_wrap=True)
    for vote in question.votes:
        on.print(Text(f"  {vote.by} says {'yes' if vote.yes else 'no'}{_noted(vote.note)}", "dim"), soft_wrap=True)
    if question.shown is not None and question.kind != "in_doubt":
        block(on, shown_value(question.data), margin=f"  {glyphs(on).bar}")
        if question.data != question.shown:
            on.print(Text("  as edited:", "dim"))
            _print_change(on, shown_value(question.shown), shown_value(question.data))
    if "data" in entered:
        on.print(Text("  you enter:", "dim"))
        block(on, shown_value(entered["data"]), margin=f"  {glyphs(on).bar}")


def _noted(note: str) -> str:
    return f": {note}" if note else ""


def _print_change(on: Console, before: str, after: str) -> None:
    for line in list(difflib.unified_diff(lines_of(before), lines_of(after), lineterm="", n=2))[2:]:
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        on.print(Text(f"  {glyphs(on).bar}").append(line, style), soft_wrap=True)


async def typed(prompt: str, over: asyncio.Event) -> str | None:
    """Read a line from the terminal; None at its end, or when it is not needed any more. The loop goes on meanwhile."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    line: asyncio.Future[str | None] = loop.create_future()

    def ready() -> None:
        if not line.done():
            text = os.read(descriptor, 65_536).decode(errors="replace")
            line.set_result(text.strip() if text else None)

    on = console(stderr=True)
    on.print(Text(prompt, "bold"), end=" ")
    on.file.flush()
    loop.add_reader(descriptor, ready)
    stopped = asyncio.ensure_future(over.wait())
    try:
        waiting: list[asyncio.Future[Any]] = [line, stopped]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        stopped.cancel()
    if not line.done():
        say()
        return None
    return line.result()


async def decide(hf: Client, question: Approval, by: str | None, over: asyncio.Event) -> bool:
    """Show a question and do what the person says; False when the person wants to stop."""
    on = console(stderr=True)
    show(on, question)
    again = question.kind == "in_doubt" and offers_result(question.shown)
    choices = (_AGAIN if again else _CHOICES[question.kind]) | _ALWAYS
    if question.kind == "approve" and not question.editable:
        choices = {key: word for key, word in choices.items() if key != "e"}
    edited: list[Any] = []
    while True:
        told = ", ".join(
            f"[{key}]{word[1:]}" if word.startswith(key) else f"[{key}] {word}" for key, word in choices.items()
        )
        told += "; [y] approves and [n] denies, too" if "d" in choices else ""
        picked = await typed(f"{told}:", over)
        if picked is None or picked.lower() in ("q", "quit"):
            return False
        word = choices.get(picked.lower()[:1]) or (_ALSO.get(picked.lower()[:1], "") if "d" in choices else "")
        if word == "skip":
            return True
        if not word and picked:
            say(f"Type one of {', '.join(choices)}.", "yellow")
        try:
            if word == "edit":
                edited = await _edit(on, question, edited)
            elif word and await _act(hf, question, word, actor(by), edited, over):
                return True
        except HoldfastError as error:
            say(f"Error: {error}", "red")
            before, question = question, await hf.approval(question.id)
            if question.status != "open":
                return True
            if question.digest != before.digest:  # what is decided next is this, and what was made of the other is void
                show(on, question)
                edited = []


async def _act(hf: Client, question: Approval, word: str, by: Actor, edited: list[Any], over: asyncio.Event) -> bool:
    """Do what the person chose; true when that was their decision."""
    if word == "approve":
        decided = await hf.approve(question, by=by, **({"data": edited[-1]} if edited else {}))
    elif word == "deny":
        why = await typed("Why?", over)
        if why is None:
            return False
        decided = await hf.deny(question, by=by, note=why)
    elif word in ("run", "fail", "use"):
        decided = await hf.answer(question, word, by=by)
    elif word in ("happened", _AGAIN["g"]):
        result = edited[-1] if edited else value_of(await typed("Its result (JSON):", over) or "null")
        decided = await hf.answer(question, {"result": result}, by=by)
    elif edited:
        decided = await hf.answer(question, edited[-1], by=by)
    else:
        decided = await answered(hf, question, await typed("Answer:", over) or "null", by)
    report(console(stderr=True), decided, "green")
    return True


async def _edit(on: Console, question: Approval, edited: list[Any]) -> list[Any]:
    """Let the person edit the value in an editor of their own."""
    before = harmless_json(json.dumps(plain(edited[-1] if edited else question.data), indent=2, ensure_ascii=False))
    text = await asyncio.to_thread(click.edit, before + "\n", extension=".json")
    if text is None or text.strip() == before:
        say("Nothing was changed.")
        return edited
    try:
        value = json.loads(text)
    except ValueError as error:
        say(f"Error: that is no JSON: {error}", "red")
        return edited
    _print_change(on, json.dumps(plain(question.shown), indent=2, ensure_ascii=False), text)
    return [value]


def report(on: Console, decided: Approval, style: str = "") -> None:
    """Print what became of a decision, and the value that counts now, if a person entered it."""
    on.print(Text(_outcome(decided), style), soft_wrap=True)
    if decided.kind != "in_doubt" and decided.decision != "denied" and decided.data != decided.shown:
        block(on, clean(json.dumps(plain(decided.data), ensure_ascii=False)), style)


def _outcome(decided: Approval) -> str:
    where = f"{decided.id} of run {decided.run}"
    if decided.status == "open":
        needs = "as many as the run says" if decided.needs is None else decided.needs
        return f"Your vote on {where} counts; {len(decided.votes)} so far, {needs} must agree."
    return f"{(decided.decision or decided.status).capitalize()}: {where}."


# `holdfast run` on a terminal: what its run asks is put to the person who sits there.

_LOOK_S: Final = 0.2


class Offers:
    """Questions offered at the terminal, each once; one that was skipped can still be decided by a command."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._offered: set[str] = set()
        self._possible = is_at_terminal()

    async def make(self, watch: Watch, display: Display) -> None:
        """Ask about what is new, while the picture stands still; the run goes on meanwhile where it can."""
        new = [each for each in watch.questions if each.id not in self._offered] if self._possible else []
        if not new:
            return
        display.give_way()
        try:
            for question in new:
                self._offered.add(question.id)
                if not self._stop.asked.is_set():
                    await self._ask(watch, question)
        finally:
            display.begin()

    async def _ask(self, watch: Watch, question: Approval) -> None:
        over = asyncio.Event()
        looking = asyncio.ensure_future(self._until_over(watch, question, over))
        try:
            if not await decide(watch.hf, question, None, over) and not over.is_set():
                self._possible = False  # a person who said 'quit' is not asked again
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    async def _until_over(self, watch: Watch, question: Approval, over: asyncio.Event) -> None:
        """Wait until the question is not open any more, or the user wants to stop."""
        while not self._stop.asked.is_set():
            if all(each.id != question.id for each in await watch.hf.approvals(run=question.run)):
                say("It was decided elsewhere, or nobody waits for it any more.", "yellow")
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.asked.wait(), _LOOK_S)
        over.set()
