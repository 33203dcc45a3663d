"""`holdfast export`, `import` and `receipt`: a run and all below it as a file, into another store, and the word that it came."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import click

from holdfast.cli.agents import load_apps
from holdfast.cli.options import db_option, json_option, run_argument, seconds_of, subcommand
from holdfast.cli.stores import at_terminal, existing, tried
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import FAILED, answer, print_json, say
from holdfast.cli.view.draw import clean
from holdfast.client.bundles import Bundle, Imported, write_receipt
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.documents import plain
from holdfast.client.edge import Edge, describe
from holdfast.errors import BadArguments, HoldfastError
from holdfast.rehearsal.replay import Replay
from holdfast.values.bundle import EFFECTS
from holdfast.values.text import size
from holdfast.words.spent import count

_WORD: Final = "-"  # no receipt: the word of the person who says it
# What programs say -> what is typed for it
_OPTIONS: Final = (
    (re.compile(r"without=\[(\d+)\]"), r"--without-decision \1"),
    (re.compile(r"force=True, or --force|force=True"), "--force"),
    (re.compile(r"now=True"), "--now"),
    (re.compile(r"a larger timeout"), "a larger --timeout"),
    (re.compile(r"\b(move|id|effects)=(?=')"), r"--\1 "),
    (
        re.compile(r"there, `await hf.store_id\(\)` reads it and `holdfast doctor` shows it"),
        "there, `holdfast doctor` shows it",
    ),
)
_AGAIN: Final = (
    'a step whose body was running runs again in the copy, without asking, unless it says in_doubt="ask" or "fail".'
)


@subcommand()
@run_argument
@click.option(
    "--to", "file", metavar="FILE", type=click.Path(dir_okay=False), help="The file. Default, for a copy: stdout."
)
@click.option(
    "--move", metavar="STORE", help="Move the run to this store: its id, as `holdfast doctor` shows it, or its URL."
)
@click.option("--effects", type=click.Choice(EFFECTS), default="ask", show_default=True,
              help="Of a copy: what becomes of calls that were going on.")  # fmt: skip
@click.option("--key", metavar="NAME", help="The key that signs. Default: $HOLDFAST_KEY, else the only one.")
@click.option("--for", "recipient", metavar="NAME", help="Encrypt it for the owner of this key.")
@click.option(
    "--now", is_flag=True, help="Of a move: stop bodies that are running; they are in doubt, as after a crash."
)
@click.option(
    "--timeout", metavar="TIME", callback=seconds_of, help="Of a move: how long to wait until bodies have ended."
)
@click.option("--confirm", metavar="[RECEIPT]", is_flag=False, flag_value=_WORD,
              help="The destination of a move has the run: its receipt, or your word. Its bundle is not kept.")  # fmt: skip
@click.option("--undo", is_flag=True, help="Take back a run that was moved; needs --force.")
@click.option("--force", is_flag=True, help="With --undo: nobody has imported its bundle, and nobody will.")
@db_option
@json_option
async def export(
    run: str, file: str | None, move: str | None, effects: str, key: str | None, recipient: str | None, now: bool,
    timeout: float | None, confirm: str | None, undo: bool, force: bool, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a run and all below it to a file.

    A copy leaves the run as it is; a move makes it a run of another store. The file is signed with your key (`holdfast key new`).
    The same command finishes an export that was interrupted.
    """
    if confirm is not None and undo:
        raise click.UsageError("--confirm says that the run came, --undo that it never will: give one of them")
    async with existing(db) as hf:
        if confirm is not None or undo:
            await _settle(hf, run, confirm, force=force)
            return
        info = await hf.get(run).info()
        if file is None and (move is not None or info.status == "moved"):
            raise click.UsageError("a move goes to a file, which is flushed before the run is given up: --to FILE")
        if file is None and sys.stdout.isatty():
            raise click.UsageError("a bundle is no text for a terminal: --to FILE, or `> FILE`")
        how: dict[str, Any] = {"key": key, "recipient": recipient, "now": now, "timeout": timeout}
        with _in_options():
            if (
                move is not None and ":" in move and file is not None
            ):  # its URL: it can be asked whether it takes the run
                async with existing(move) as there:
                    made = await Edge(hf).move(run, file, there, effects=effects, **how)
            else:
                made = await hf.get(run).export(
                    sys.stdout.buffer if file is None else file, move=move, effects=effects, **how
                )
    if file is None:
        sys.stdout.buffer.flush()
    elif as_json:
        print_json({"file": file, "bundle": made})
    else:
        _report(made, file, db, move if move is not None and ":" in move else None)


@contextlib.contextmanager
def _in_options() -> Iterator[None]:
    """Say an error in the words of the command line, where it has those of a program."""
    try:
        yield
    except (HoldfastError, TimeoutError) as error:
        told = str(error)
        for words, option in _OPTIONS:
            told = words.sub(option, told)
        error.args = (told, *error.args[1:])
        raise


async def _settle(hf: Client, run: str, confirm: str | None, *, force: bool) -> None:
    if confirm is None:
        with _in_options():
            await hf.get(run).take_back(force=force)
        answer(f"Run {clean(run)} is this store's again, and goes on here.")
        return
    await hf.get(run).confirm_move(None if confirm == _WORD else confirm)
    how = ", on your word: a receipt of that store would prove it" if confirm == _WORD else ", as the receipt proves"
    answer(f"Run {clean(run)} came to its destination{how}. Its bundle is kept here no longer.")


def _report(made: Bundle, file: str, url: str | None, destination: str | None) -> None:
    what = "Moved" if made.kind == "move" else "Copied"
    runs = made.summary.get("runs", 1)
    answer(
        f"{what} {clean(made.run)} to {file}: {count(runs, 'run')}, {size(made.size_bytes)}, signed by {clean(made.signed_by)}."
    )
    if made.kind == "move":
        receipt = f"{file}.receipt"
        answer(
            f"Only store {made.destination} can go on with it now. There:",
            "",
            command("import", file, "--receipt", receipt, db=destination),
        )
        answer("Then here, with the receipt:", "", command("export", made.run, "--confirm", receipt, db=url))
    for run in made.at_work:
        say(f"A worker was on run {clean(run)}: {_AGAIN}", "yellow")


@subcommand()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--id", "run_id", metavar="ID", help="Of a copy: the id of the run that it becomes here.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and tell what would happen.")
@click.option("--receipt", metavar="FILE", type=click.Path(dir_okay=False),
              help="Of a move: write a signed receipt, by which its source confirms the move.")  # fmt: skip
@click.option(
    "--key", metavar="NAME", help="The key that signs the receipt. Default: $HOLDFAST_KEY, else the only one."
)
@click.option("--without-decision", "without", metavar="N", type=click.IntRange(1), multiple=True,
              help="Leave the Nth decision in FILE out; repeatable.")  # fmt: skip
@click.option("--code", "apps", metavar="APP", multiple=True,
              help="With --dry-run: a file or module with agents that the runs are held against; repeatable.")  # fmt: skip
@db_option
@json_option
async def import_(
    file: str, run_id: str | None, dry_run: bool, receipt: str | None, key: str | None, without: tuple[int, ...],
    apps: tuple[str, ...], db: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Put the run of a bundle into this store.

    All of it or nothing. It goes on at once if a worker serves its agents; decisions that were written into FILE count. Who signed
    FILE must be trusted here: `holdfast key trust`.

    With --dry-run and --code the exit code is 1 if a run would not go on with that code, or if that cannot be told.
    """
    if apps and not dry_run:
        raise click.UsageError("--code is held against the runs by --dry-run; what serves them here is a worker's")
    if receipt is not None and dry_run:
        raise click.UsageError(
            "a receipt says that the run has come, and with --dry-run it does not: leave one of them out"
        )
    agents = load_apps(apps) if apps else []
    if not dry_run:
        await _check_new(file, db, run_id)
    async with tried(db) if dry_run else _existing_or_new(db) as (hf, is_there):
        with _in_options():
            told = await hf.import_run(
                file, id=run_id, dry_run=dry_run, agents=agents, without=without, receipt=receipt, key=key
            )
    if as_json:
        print_json(plain(told))
    else:
        _print(told, db, without)
        if not is_there:
            say("There is no such store yet: the import would make it. Nothing was made.", "yellow")
        if receipt is not None:
            answer(f"The receipt is in {receipt}. Where the run came from:", "",
                   command("export", told.run, "--confirm", receipt))  # fmt: skip
    return FAILED if any(each.stops for each in told.replays) else 0


import_.name = "import"


async def _check_new(file: str, url: str | None, run_id: str | None) -> None:
    """Refuse what cannot be imported into a store that is not there yet, before one is made."""
    async with tried(url) as (hf, is_there):
        if is_there:
            return
        bundle = describe(file)
        if bundle.kind == "move":
            raise BadArguments(
                f"there is no store yet where it is to be imported, and {file!r} is a move for store {bundle.destination}; name "
                "that one with --db"
            )
        with _in_options():
            await hf.import_run(file, id=run_id, dry_run=True)


@contextlib.asynccontextmanager
async def _existing_or_new(url: str | None) -> AsyncIterator[tuple[Client, bool]]:
    async with at_terminal(open_store(url)) as hf:
        yield hf, True


@subcommand()
@run_argument
@click.option("--to", "file", metavar="FILE", type=click.Path(dir_okay=False), help="A new file. Default: stdout.")
@click.option("--key", metavar="NAME", help="The key that signs. Default: $HOLDFAST_KEY, else the only one.")
@db_option
@json_option
async def receipt(run: str, file: str | None, key: str | None, db: str | None, as_json: bool) -> None:
    """Sign that a run was moved into this store.

    Its source takes the receipt: `holdfast export ID --confirm RECEIPT`. `holdfast import --receipt` writes the same.
    """
    async with existing(db) as hf:
        word = await hf.get(run).move_receipt(key=key)
    if file is not None:
        write_receipt(word, file)
    if as_json:
        print_json(word)
    elif file is None:
        click.echo(word.text, nl=False)
    else:
        answer(
            f"The receipt is in {file}. Where the run came from:", "", command("export", word.run, "--confirm", file)
        )


def _print(told: Imported, url: str | None, without: tuple[int, ...]) -> None:
    done = "Would import" if told.dry_run else "Imported"
    answer(f"{done} run {clean(told.run)}, a {told.kind}: {count(told.runs, 'run')}, {count(told.events, 'event')}, "
           f"{size(told.size_bytes)}.")  # fmt: skip
    if told.decisions:
        answer(f"{count(told.decisions, 'decision')} in it {'would count' if told.dry_run else 'counted'}.")
    if without:
        left = ", ".join(map(str, sorted(set(without))))
        answer(f"Left out, as you said: decision {left}. {'What it is about' if len(set(without)) == 1 else 'What they are about'} "
               "is open unless others decided it.")  # fmt: skip
    if told.questions:
        asks = ", ".join(told.questions[:5]) + (" and others" if len(told.questions) > 5 else "")
        answer(f"It waits for people: {asks}")
    for run in told.at_work:
        say(f"A worker was on run {clean(run)} when it was copied: {_AGAIN}", "yellow")
    for agent in told.missing:
        say(f"No worker here serves {clean(agent)!r}: it waits until one does.", "yellow")
    for agent in told.changed:
        say(f"The arguments of {clean(agent)!r} are others here than where it comes from.", "yellow")
    for each in told.replays:
        _print_replay(each)
    if not told.dry_run:
        answer("See how it stands:", "", command("show", told.run, db=url))


def _print_replay(each: Replay) -> None:
    """Say of one run whether the code fits it."""
    run = clean(each.run)
    if each.verdict in ("diverges", "unfit"):
        say(f"The code does not fit run {run}: {clean(each.line)}: {clean(each.reason)}", "red")
    elif each.stops:
        say(f"It cannot be told whether run {run} would go on: {clean(each.reason)}", "red")
    elif each.fits:
        answer(f"The code fits run {run}: {each.seen} of {count(each.of, 'outcome')} seen.")
    else:
        say(f"Run {run} is over: {clean(each.reason)}", "yellow")
