"""`holdfast publish`: an announcement for whoever waits for it."""

from __future__ import annotations

import click

from holdfast.cli.options import db_option, json_option, subcommand, value_of
from holdfast.cli.stores import existing
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.console import print_json


@subcommand()
@click.argument("name")
@click.argument("value", required=False)
@click.option("--key", metavar="KEY", help="A second announcement of this name and key is not published.")
@db_option
@json_option
async def publish(name: str, value: str | None, key: str | None, db: str | None, as_json: bool) -> None:
    """Publish an announcement. VALUE is JSON, or else text."""
    async with existing(db) as hf:
        told = value_of(value)
        id = await hf.publish(name, told, key=key)
        if as_json:
            print_json({"id": id, "name": name, "value": told, "key": key})
        else:
            tell(f"Published {name!r}: {id}. Workers pass it on to the agents and runs that wait for it.")
