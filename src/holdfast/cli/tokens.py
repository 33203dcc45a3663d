"""`holdfast token`: who may use a server."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from rich.table import Table

from holdfast.cli.view.console import answer, console, print_json, say
from holdfast.cli.view.read import at_terminal, existing
from holdfast.cli.view.screen import Text
from holdfast.client.client import open as open_store
from holdfast.client.tokens import RENEW, SCOPES, Token


async def create(
    url: str | None, name: str, groups: tuple[str, ...], scopes: tuple[str, ...], expires: str, *, as_json: bool
) -> None:
    """A new token; its secret alone goes to standard output, so that it can be piped."""
    async with at_terminal(open_store(url)) as hf:  # a store may begin with who may use it
        ends = None if expires == "never" else expires
        made, secret = await hf.create_token(name, groups=groups, scopes=scopes, expires=ends)
    if as_json:
        print_json({"token": dataclasses.asdict(made), "secret": secret})
        return
    say(
        f"Token {made.id} of {made.name} may {_may(made)}{_until(made)}. It is shown once; the store has only a digest of it:"
    )
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
        for column in ("id", "name", "groups", "may", "made", "used", ""):
            made.add_column(column, no_wrap=True)
        for each in found:
            made.add_row(Text(each.id, "bold"), each.name, ", ".join(each.groups), _may(each),
                         _at(each.created_at), _at(each.used_at), _end(each))  # fmt: skip
        console().print(made, soft_wrap=True)
    for each in found:
        if not as_json and each.ends_soon():
            say(f"Token {each.id} of {each.name} expires soon, at {_at(each.expires_at)} UTC: {RENEW}.", "yellow")


def _at(when: datetime | None) -> str:
    return "" if when is None else f"{when:%Y-%m-%d %H:%M}"


def _until(token: Token) -> str:
    return "" if token.expires_at is None else f" until {_at(token.expires_at)} UTC"


def _end(token: Token) -> Text:
    """How it ended, or will."""
    if token.revoked_at is not None:
        return Text(f"revoked {_at(token.revoked_at)}", "yellow")
    if token.expires_at is None:
        return Text("never expires", "dim")
    good, soon = token.is_good(), token.ends_soon()
    return Text(f"{'expires' if good else 'expired'} {_at(token.expires_at)}", "dim" if good and not soon else "yellow")


def _may(token: Token) -> str:
    return ", ".join(scope for scope in SCOPES if scope in token.scopes)
