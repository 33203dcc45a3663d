"""`holdfast token`: who may use a server."""

from __future__ import annotations

import dataclasses

from rich.table import Table
from rich.text import Text

from holdfast.cli.output import answer, console, print_json, say
from holdfast.cli.reading import at_terminal, existing
from holdfast.client import open as open_store
from holdfast.tokens import Token


async def create(
    url: str | None, name: str, groups: tuple[str, ...], scopes: tuple[str, ...], *, as_json: bool
) -> None:
    """A new token; its secret alone goes to standard output, so that it can be piped."""
    async with at_terminal(open_store(url)) as hf:  # a store may begin with who may use it
        made, secret = await hf.create_token(name, groups=groups, scopes=scopes)
    if as_json:
        print_json({"token": dataclasses.asdict(made), "secret": secret})
        return
    say(f"Token {made.id} of {made.name} may {_may(made)}. It is shown once; the store has only a digest of it:")
    answer(secret)


async def revoke(url: str | None, which: str, *, as_json: bool) -> None:
    """Take tokens back."""
    async with existing(url) as hf:
        revoked = await hf.revoke_token(which)
    if as_json:
        print_json({"revoked": [dataclasses.asdict(each) for each in revoked]})
        return
    for each in revoked:
        answer(f"Token {each.id} of {each.name} is refused from now on.")


async def tokens(url: str | None, *, as_json: bool) -> None:
    """All of them."""
    async with existing(url) as hf:
        found = await hf.tokens()
    if as_json:
        print_json({"tokens": [dataclasses.asdict(each) for each in found]})
    elif not found:
        answer("There are no tokens; `holdfast token NAME` makes one.")
    else:
        made = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("id", "name", "groups", "may", "made", ""):
            made.add_column(column, no_wrap=True)
        for each in found:
            revoked = "" if each.revoked_at is None else f"revoked {each.revoked_at:%Y-%m-%d %H:%M}"
            made.add_row(Text(each.id, "bold"), each.name, ", ".join(each.groups), _may(each),
                         f"{each.created_at:%Y-%m-%d %H:%M}", Text(revoked, "yellow"))  # fmt: skip
        console().print(made, soft_wrap=True)


def _may(token: Token) -> str:
    return ", ".join(token.scopes)
