"""`holdfast key`: the people who sign bundles and decisions here, and whose signatures count."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import json_option, subcommand
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import answer, print_json, print_list, say, table
from holdfast.cli.view.screen import Text
from holdfast.client.keys import USES, Key, Keys

_ACTIONS = ("new", "list", "show", "trust", "add")


@subcommand()
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("what", metavar="[NAME|LINE|FILE]", required=False)
@click.option("--shared", is_flag=True, help="With new: make a secret that both sides have, instead of a pair.")
@click.option(
    "--name", metavar="NAME", help="With trust and add: the person whose key it is. Default: the name in the line."
)
@click.option(
    "--group", "groups", metavar="GROUP", multiple=True, help="With trust: a group that the person is in; repeatable."
)
@click.option("--use", "uses", type=click.Choice(USES), multiple=True,
              help="With trust: what its signatures count for; repeatable. Default: all.")  # fmt: skip
@json_option
def key(
    action: str,
    what: str | None,
    shared: bool,
    name: str | None,
    groups: tuple[str, ...],
    uses: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make, list and trust keys that sign bundles.

    new NAME makes a key. show [NAME] prints the line that others need of it. trust LINE, or a FILE that has it, lets the
    signatures of somebody else's key count. add LINE lets you encrypt for its owner (`export --for`), and believes nothing of it.
    list lists all. They are in $HOLDFAST_KEYS, else in ~/.config/holdfast/keys.
    """
    keys = Keys()
    if action in ("new", "trust", "add") and what is None:
        raise click.UsageError(
            "say whose: holdfast key new NAME" if action == "new" else "give the LINE of a key, or its FILE"
        )
    if action == "list":
        _list(keys, as_json=as_json)
        return
    if action == "new":
        found = keys.new(what or "", shared=shared)
    elif action == "trust":
        before = [key for key in keys.all() if key.kind == "trusted"]
        found = keys.trust(_line(what or ""), name=name, groups=groups, uses=uses or USES)
    elif action == "add":
        found = keys.add(_line(what or ""), name=name)
    else:
        found = keys.own() if what is None else keys.named(what)
    if as_json:
        print_json(_document(found))
    elif action == "show":
        answer(found.public or f"The key of {found.name} is a shared secret, and has no public line.")
    elif action == "trust":
        answer(f"Trusted: {found.name}, key {found.id}, for {' and '.join(found.uses)}{_in(found)}.")
        for old in before:
            if (old.id, old.name) == (found.id, found.name) and not (
                set(old.uses) <= set(found.uses) and set(old.groups) <= set(found.groups)
            ):
                say(f"It was trusted for {' and '.join(old.uses)}{_in(old)} until now, and no longer is: what is to go on counting "
                    "is said again with the rest, as --use and --group.", "yellow")  # fmt: skip
    elif action == "add":
        answer(
            f"Known: {found.name}, key {found.id}. Bundles can be encrypted for it; its signatures count for nothing."
        )
    else:
        say(f"A key of {found.name} is in {keys.folder}. Who is to trust it needs this line:" if found.public else
            f"A shared secret of {found.name} is in {keys.folder}: carry its file to the other side by a safe way.")  # fmt: skip
        if found.public:
            answer(found.public)
            say("There:", "", command("key", "trust", found.public))


def _in(key: Key) -> str:
    return f", in {', '.join(key.groups)}" if key.groups else ""


def _line(what: str) -> str:
    """Read the line from a file, if it is the name of one."""
    path = Path(what)
    try:
        return path.read_text("ascii", "replace")[:10_000] if len(what) < 1_000 and path.is_file() else what
    except OSError:
        return what


def _document(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "id": key.id,
        "kind": key.kind,
        "groups": key.groups,
        "uses": key.uses,
        "public": key.public,
    }


def _list(keys: Keys, *, as_json: bool) -> None:
    found = keys.all()
    if as_json:
        print_json({"keys": [_document(key) for key in found]})
        return
    if not found:
        answer(f"There are no keys in {keys.folder}.")
        return
    shown = table("name", "kind", "counts for", "groups", "id")
    for key in found:
        shown.add_row(
            Text(key.name, "bold"),
            key.kind,
            ", ".join(key.uses) or "nothing",
            ", ".join(key.groups),
            Text(key.id, "dim"),
        )
    print_list(shown, 0, 4)
