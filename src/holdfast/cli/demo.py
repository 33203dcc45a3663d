"""`holdfast demo`: an agent that is killed, and goes on."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, subcommand
from holdfast.demo.play import play


@subcommand()
@click.option("--keep", metavar="DIR", help="A folder for the files of the demo; a temporary one by default.")
@json_option
def demo(keep: str | None, as_json: bool) -> int:
    """See an agent survive being killed."""
    return play(keep, as_json=as_json)
