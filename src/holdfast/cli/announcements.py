"""`holdfast publish`: an announcement to its waiters."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.options import db_option, json_option, message_of, subcommand
from holdfast.cli.stores import existing
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.console import print_json
from holdfast.client.announcements import Published
from holdfast.words.durations import day_and_time


@subcommand()
@click.argument("name")
@click.argument("value", required=False)
@click.option(
    "--key", metavar="KEY", help="A second announcement of this name and key is not published: the first one holds."
)
@db_option
@json_option
async def publish(name: str, value: str | None, key: str | None, db: str | None, as_json: bool) -> None:
    """Publish an announcement. VALUE is JSON, or else text."""
    async with existing(db) as hf:
        told = message_of(value)
        done = await hf.publish(name, told, key=key)
        if as_json:
            happened = {"created": done.created, "before": done.before, "differs": done.differs}
            print_json({"id": str(done), "name": name, "value": told, "key": key, **happened})
        elif done.created:
            tell(f"Published {name!r}: {done}. Workers pass it on to the agents and runs that wait for it.")
        else:
            tell(
                f"{name!r} was published before with this key{_when(done)}: {done}. Nothing was sent again.{_HOLDS[done.differs]}"
            )


def _when(done: Published) -> str:
    return "" if done.before is None else f", at {day_and_time(round(done.before.timestamp() * 1000))}"


_HOLDS: Final = {
    True: " Its value was another, and that one holds; publish this one with another key.",
    False: "",
    None: " Its value holds, whatever it was.",
}
