"""`holdfast backup` and `holdfast restore`: a copy of a store as a file, and a store of such a file."""

from __future__ import annotations

import click

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.stores import door, existing
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import answer, print_json
from holdfast.client.client import restore_backup
from holdfast.client.edge import Edge, user
from holdfast.words.people import Actor
from holdfast.words.spent import count


@subcommand()
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
@json_option
async def backup(file: str, db: str | None, as_json: bool) -> None:
    """Copy the store to FILE while it is in use.

    FILE is a store itself, in which nothing is carried: `holdfast --db sqlite:FILE runs` looks at it, `holdfast restore FILE`
    makes a store of either kind of it.
    """
    async with existing(db) as hf:
        runs, store = await hf.backup(file), Edge(hf).url
    if as_json:
        print_json({"file": file, "runs": runs, "store": store})
    else:
        answer(f"{count(runs, 'run')} of {store} in {file}.")


@subcommand()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@click.option("--activate", is_flag=True, help="Let workers carry the runs of a store that was restored.")
@db_option
@json_option
async def restore(file: str | None, activate: bool, db: str | None, as_json: bool) -> None:
    """Fill an empty store from the backup in FILE.

    Until `holdfast restore --activate` no run of it is carried and no timer fires, because the original may live on beside it.
    """
    if activate is (file is not None):
        raise click.UsageError("give the FILE of a backup, or --activate")
    if file is None:
        await _activate(db, as_json=as_json)
        return
    runs = await restore_backup(file, db, by=Actor(user(), via=door()))
    if as_json:
        print_json({"file": file, "runs": runs})
        return
    answer(f"{count(runs, 'run')} restored from {file}. Nothing of it is carried until you say so.")
    answer("When the original surely does nothing any more:", "", command("restore", "--activate", db=db))


async def _activate(url: str | None, *, as_json: bool) -> None:
    """Let a restored store go on."""
    async with existing(url) as hf:
        runs = await hf.activate()
    if as_json:
        print_json({"unfinished": runs})
    else:
        answer(f"The store is active: {count(runs, 'run')} not ended, which workers carry from now on.")
