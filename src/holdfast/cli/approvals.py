"""Commands for people who decide: what waits is listed, stepped through, or decided by one command."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from holdfast.cli import prompts
from holdfast.cli.control import kept_back
from holdfast.cli.options import F, db_option, json_option, run_ids, subcommand
from holdfast.cli.stores import BundleFile, existing, held, looked_into
from holdfast.cli.view.advice import command
from holdfast.cli.view.choices import ANEW, VALUE, to_decide, value_line
from holdfast.cli.view.console import FAILED, console, print_json, say
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.approvals import LISTED_BYTES, Approval, Room
from holdfast.client.bundles import is_bundle
from holdfast.client.client import Client
from holdfast.client.edge import Edge, decisions_in, describe
from holdfast.client.keys import Keys
from holdfast.client.links import LINK_LASTS, SERVER
from holdfast.client.refusals import Try
from holdfast.errors import AlreadyDecided, BadArguments, Stale, UnknownApproval
from holdfast.words.model import FINISHED
from holdfast.words.people import GROUP, Actor, deciders

_DEEDS: Final = {"Approve": "approve", "Deny": "deny", "Answer": "answer"}  # as the audit calls them


@subcommand()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--run", metavar="ID", help="Only questions of this run and those below it.", shell_complete=run_ids)
@click.option("--for", "to", metavar="NAME", help="Only what this person or group:NAME may decide.")
@click.option(
    "--by", metavar="NAME", help="The person who decides. Default: that of --for, else the user of this computer."
)
@click.option("--all", "every", is_flag=True, help="Also what was decided, expired or withdrawn.")
@click.option("--list", "listed", is_flag=True, help="Only list them, on a terminal too.")
@click.option(
    "--link", metavar="NAME", help="Print for each a link by which this person may decide it once, without a token."
)
@click.option(
    "--group", "groups", metavar="GROUP", multiple=True, help="With --link: a group that NAME is in; repeatable."
)
@click.option(
    "--expires", metavar="TIME", default=LINK_LASTS, show_default=True, help="With --link: how long a link is good."
)
@click.option(
    "--base-url", metavar="URL", default=SERVER, show_default=True, envvar="HOLDFAST_SERVER_URL",
    help="With --link: where `holdfast serve` is reached.",
)  # fmt: skip
@db_option
@json_option
async def approvals(
    file: str | None,
    run: str | None,
    to: str | None,
    by: str | None,
    every: bool,
    listed: bool,
    link: str | None,
    groups: tuple[str, ...],
    expires: str,
    base_url: str,
    db: str | None,
    as_json: bool,
) -> None:
    """List what waits for a person, here or in the bundle FILE.

    On a terminal the questions come one after the other: approve, deny, edit in $EDITOR, or skip. What is decided in a bundle is
    signed with your key and written into it.

    With --link, whoever has a link decides in the name of that person: send it to nobody else. To open it decides nothing.
    """
    if link is not None:
        if file is not None or every or to is not None or by is not None:
            raise click.UsageError("--link is for what is open in a store: leave out FILE, --all, --for and --by")
        await _link(db, run, Actor(link, groups), expires, base_url, as_json=as_json)
        return
    if file is not None:
        db, by = _bundle(file, db), None if listed or as_json else by
    async with looked_into(file or "", db, by) as hf:
        edge = Edge(hf)
        if run is not None:
            await edge.row(run)
        asks_anew = isinstance(db, BundleFile) and db.is_copy
        decides = not listed and not every and not as_json and not asks_anew and prompts.is_at_terminal()
        room = Room() if decides else Room(LISTED_BYTES)  # the person who decides sees all of it
        found, _ = await edge.approvals(room, run=run, to=to, open=not every, limit=100)
        if isinstance(db, BundleFile) and not as_json:
            for one in decisions_in(db):
                if one.why is not None:
                    why = clean(one.why)
                    say(
                        f"Decision {one.place} in it, by {clean(one.by)}, would not count with the keys that are here: {why}",
                        "yellow",
                    )
        asleep = await held(hf, db)
        if asleep is not None and not as_json:
            say(f"Note: {asleep}", "yellow")
        if as_json:
            print_json({"questions": found})
        elif not found:
            tell("Nothing waits for a person." if to is None else f"Nothing waits for {to}.")
        elif decides:
            if isinstance(db, BundleFile):
                by = Keys().own(by).name
            who = by or (None if to is None or to.startswith(GROUP) else to)
            if who is not None:
                say(f"You decide as {clean(who)}.", "dim")
            await _step_through(hf, found, who)
        else:
            for each in found:
                _print(each, db, console(), await _how_it_stands(edge, each))


async def _link(url: str | None, run: str | None, person: Actor, expires: str, base_url: str, *, as_json: bool) -> None:
    """Print links to all that a person may decide."""
    async with existing(url) as hf:
        if run is not None:
            await Edge(hf).row(run)
        found, _ = await Edge(hf).approvals(Room(LISTED_BYTES), run=run, to=person, open=True, limit=100)
        made = [(each, await hf.approval_link(each, by=person, expires=expires, base_url=base_url)) for each in found]
    if as_json:
        print_json(
            {"links": [{"question": each.id, "run": each.run, "by": person.name, "link": link} for each, link in made]}
        )
    elif not made:
        say(f"Nothing waits for {clean(person.name)}.")
    for each, link in () if as_json else made:
        say(f"{each.id} of run {clean(each.run)}: {clean(each.question)}")
        tell(link)


async def _step_through(hf: Client, found: list[Approval], by: str | None) -> None:
    never = asyncio.Event()
    for place, question in enumerate(found, 1):
        say(f"{place} of {len(found)}", "dim")
        if not await prompts.decide(hf, question, by, never):
            return
        say()


async def _how_it_stands(edge: Edge, question: Approval) -> str:
    """Say what the run of a question does not do about it yet."""
    row = await edge.find(question.run)
    if row is None or row.status in FINISHED:
        return ""
    paused = "its run is paused" if row.status == "paused" else ""
    if question.status == "open":
        return paused
    untaken = any(signal.topic == question.id for signal in await edge.untaken(row))
    return (f"{paused}, and" if paused else "its run") + " has not taken it yet" if untaken else paused


def _print(question: Approval, url: str | None, on: Console, stands: str = "") -> None:
    on.print(prompts.headline(question), soft_wrap=True)
    on.print(Text(f"  {clean(question.question)}"), soft_wrap=True)
    if question.status == "open":
        for line in to_decide(question, url):
            on.print(line, soft_wrap=True)
    else:
        how = question.decision or question.status
        agreed = [vote.by for vote in question.votes if vote.yes]
        how += f" by {deciders(how, agreed, question.decided_by)}" if question.decided_by else ""
        how += f" on {question.decided_at.astimezone():%Y-%m-%d %H:%M:%S}" if question.decided_at else ""
        on.print(Text(f"  {how}" + (f": {clean(question.note)}" if question.note else ""), "dim"), soft_wrap=True)
        if question.decision in ("approved", "answered") and question.data is not None:
            on.print(Text(f"  {value_line(question.data)}"), soft_wrap=True)
    if stands:
        on.print(Text(f"  {stands}", "yellow"), soft_wrap=True)


def _bundle(file: str, url: str | None) -> BundleFile:
    """Name the bundle where commands have the URL of a store."""
    if not is_bundle(file):
        raise BadArguments(f"{file!r} is no bundle; `holdfast export` writes one")
    if url is not None:
        raise BadArguments(f"{file!r} is a bundle, and --db names a store; give one of them")
    return BundleFile(file, is_copy=describe(file).kind == "copy")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A question to decide, and the person who decides."""

    url: str | None
    id: str  # of a question, or of a run
    digest: str | None  # of what the person has seen before, if that is said
    by: str | None
    note: str
    as_json: bool


def _decider_options(wanted: F) -> Callable[..., Any]:
    """Add options for the question, the person who decides it and the reason; they come as a `Wanted`."""

    @functools.wraps(wanted)
    def call(
        question: tuple[str, ...],
        digest: str | None,
        by: str | None,
        key: str | None,
        note: str,
        db: str | None,
        as_json: bool,
        **more: Any,
    ) -> Any:
        if len(question) > 2:
            raise click.UsageError(f"{len(question)} ids were given; give one, or the FILE of a bundle and one")
        id = question[-1]
        if len(question) == 2 or is_bundle(id):
            db = _bundle(question[0], db)
            if db.is_copy:
                raise BadArguments(f"{question[0]!r} is a copy. {ANEW} A move takes its questions along")
            by = Keys().own(key or by).name
            if len(question) == 1:
                id = describe(id).run  # if it asks one thing only, that is meant
        elif key is not None:
            raise click.UsageError("--key signs decisions in the FILE of a bundle; in a store, --by names the person")
        return wanted(Wanted(db, id, digest, by, note, as_json), **more)

    made: Callable[..., Any] = call
    for option in (
        click.option(
            "--digest", metavar="HEX", help="Digest of what you were shown: decide exactly that, without being asked."
        ),
        click.option(
            "--note", default="", metavar="TEXT", help="A note; of a denial it is the reason that the agent sees."
        ),
        click.option("--by", metavar="NAME", help="The person who decides. Default: the user of this computer."),
        click.option(
            "--key",
            metavar="NAME",
            help="In a bundle: the key that signs. Default: that of --by, $HOLDFAST_KEY, the only one.",
        ),
        click.argument("question", metavar="[FILE] ID", nargs=-1, required=True, shell_complete=run_ids),
    ):
        made = option(made)
    return json_option(db_option(made))


@subcommand()
@_decider_options
@click.option("--data", metavar="JSON|@FILE", help="Replacement for all that is shown, if it may be edited.")
async def approve(wanted: Wanted, data: str | None) -> None:
    """Approve what a run asks for.

    ID is the question's, or a run's with one open question below it. The value is shown, and exactly what was shown is
    approved; on a terminal you are asked first.
    """
    more = {} if data is None else {"data": _entered(data)}
    await _do(wanted, "Approve", lambda hf, it, who: hf.approve(it, by=who, note=wanted.note, **more), **more)


@subcommand()
@_decider_options
async def deny(wanted: Wanted) -> None:
    """Deny what a run asks for; the agent sees the note."""
    await _do(wanted, "Deny", lambda hf, it, who: hf.deny(it, by=who, note=wanted.note))


@subcommand()
@_decider_options
@click.argument("value")
async def answer(wanted: Wanted, value: str) -> None:
    """Answer a question with a value.

    ID is the question's, or a run's with one open question. VALUE is JSON, or text, or @FILE. About a step in doubt it is
    run (it did not happen, run it), fail, or '{"result": ...}' (it happened, with this result).
    """
    if value == VALUE:  # as it is printed
        raise BadArguments(f"write your answer in the place of {VALUE}; if it is that word, as '\"{VALUE}\"'")
    if value.startswith("@"):
        given = _entered(value)
        await _do(wanted, "Answer", lambda hf, it, who: hf.answer(it, given, by=who, note=wanted.note), data=given)
    else:
        act = lambda hf, it, who: prompts.answered(hf, it, value, who, wanted.note)  # noqa: E731
        await _do(wanted, "Answer", act, data=value)


@subcommand()
@_decider_options
@click.option("--to", required=True, metavar="NAME", help="The person or group that is to decide it.")
async def delegate(wanted: Wanted, to: str) -> None:
    """Pass a question on to somebody else."""
    told = f"is now for {to}."
    await _do(wanted, f"Pass on to {to}", lambda hf, it, who: hf.delegate(it, to=to, by=who, note=wanted.note), told)


async def _do(
    wanted: Wanted,
    verb: str,
    act: Callable[[Client, Approval, Actor], Awaitable[Approval]],
    told: str = "",
    **entered: Any,
) -> None:
    """Show a question and decide what was shown: it is read once, and the decision is bound to what was read."""
    bundle = wanted.url if isinstance(wanted.url, BundleFile) else ""
    async with looked_into(bundle, wanted.url, wanted.by) as hf:
        question = await _found(hf, wanted)
        _check_fits(question, verb, wanted.url)
        asks = wanted.digest is None and prompts.is_at_terminal()
        if question.status == "open" and (asks or not wanted.as_json):
            prompts.show(console(stderr=True), question, **entered)
        try:
            if question.status == "open" and wanted.digest not in (None, question.digest):
                who = prompts.actor(wanted.by)
                Edge(hf).note_refused(Try(_DEEDS.get(verb, "delegate"), "stale", who.name, who.via, question.run))
                raise Stale(
                    f"question {question.id!r} shows something else than you were shown; look at it, then decide"
                )
            if asks and question.status == "open" and not await _confirmed(verb):
                say("Nothing was decided.", "yellow")
                click.get_current_context().exit(FAILED)
            decided = await act(hf, question, prompts.actor(wanted.by))
            kept = await kept_back(hf, decided.run, wanted.url) if decided.status != "open" and not bundle else None
        except AlreadyDecided:
            ended = await hf.approval(question.id)
            if ended.decision in ("approved", "answered") and ended.data is not None and not wanted.as_json:
                say(f"This was {ended.decision}: {value_line(ended.data)}", "yellow")
            raise
        except Stale as stale:
            if stale.approval is not None:
                say("This is there now:", "yellow")
                prompts.show(console(stderr=True), stale.approval)
            raise
    if wanted.as_json:
        print_json({"question": decided})
    elif told:
        tell(f"{decided.id} of run {decided.run} {told}")
    else:
        prompts.report(console(), decided)
    if bundle and not wanted.as_json:
        if question.to and wanted.by not in question.to:
            named = clean(", ".join(question.to))
            say(f"It is for {named}: where it is imported, {wanted.by} must be one of them.", "yellow")
        tell(
            f"Signed as {wanted.by} and written into {bundle}. It counts where that is imported:",
            "",
            command("import", bundle),
        )
    if kept is not None and not wanted.as_json:
        tell(kept[0], "", *kept[1:])


def _check_fits(question: Approval, verb: str, url: str | None) -> None:
    """Refuse a command that does not fit the question, and print the commands that do."""
    wanted = ("Approve", "Deny") if question.kind == "approve" else ("Answer",)
    if question.status == "open" and verb not in wanted and verb in ("Approve", "Deny", "Answer"):
        for line in to_decide(question, url):
            console(stderr=True).print(line, soft_wrap=True)
        wants = "a yes or a no" if question.kind == "approve" else "an answer"
        raise BadArguments(f"question {question.id!r} wants {wants}, by one of these commands")


async def _found(hf: Client, wanted: Wanted) -> Approval:
    try:
        return await hf.approval(wanted.id)
    except UnknownApproval:
        row, asked = await Edge(hf).find(wanted.id), await hf.approvals(run=wanted.id)
        for each in asked:
            _print(each, wanted.url, console(stderr=True))
    if row is None:
        listed = command("approvals", *([str(wanted.url)] if isinstance(wanted.url, BundleFile) else []))
        raise UnknownApproval(
            f"there is no question and no run {wanted.id!r} in {Edge(hf).url}; `{listed}` lists what waits for people"
        )
    if asked:
        raise UnknownApproval(f"run {wanted.id!r} has {len(asked)} open questions: name the one that you mean")
    raise UnknownApproval(f"run {wanted.id!r} is {row.status} and asks nobody anything")


async def _confirmed(verb: str) -> bool:
    said = await prompts.typed(f"{verb} this? [y]es, [n]o:", asyncio.Event())
    return (said or "").lower() in ("y", "yes")


def _entered(text: str) -> Any:
    """Read JSON as it was typed, or from a file that was named with an @."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except OSError as error:
            raise BadArguments(f"{text[1:]!r} cannot be read: {error.strerror}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadArguments(f"{text[:60]!r} is no JSON: {error}. A text needs quotes of its own: '\"text\"'") from None
