"""`holdfast token`: the users of a server."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Final

import click

from holdfast.cli.options import db_option, json_option, pairs, subcommand
from holdfast.cli.stores import at_terminal, existing
from holdfast.cli.view.console import answer, console, print_json, say, table
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.client import open as open_store
from holdfast.client.tokens import LIFETIME, RENEW, SCOPES, Token
from holdfast.values.text import cut

_SHOWN: Final = 40  # characters of labels


@subcommand()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--group", "groups", metavar="GROUP", multiple=True, help="A group that NAME is in; repeatable.")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True,
              help="What it may do: look, start and control runs, decide questions; repeatable. Default: all.")  # fmt: skip
@click.option("--read-only", is_flag=True, help="The same as --scope read.")
@click.option("--only", "only", metavar="LABEL=VALUE", multiple=True, callback=pairs,
              help="Let it see only runs with this label, and those below them; repeatable: they have all of them.")  # fmt: skip
@click.option("--expires", metavar="TIME", help="How long it is accepted: 30d, 12h, or never. Default: 90d.")
@click.option("--list", "listed", is_flag=True, help="List all tokens.")
@click.option("--revoke", metavar="ID|NAME", help="Refuse a token, or all of a name, from now on.")
@db_option
@json_option
async def token(
    name: str | None, groups: tuple[str, ...], scopes: tuple[str, ...], read_only: bool, only: dict[str, str],
    expires: str | None, listed: bool, revoke: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make a token for users of `holdfast serve`.

    NAME is the actor in histories and in the audit. The token is printed once; the store has only a digest of it.
    """
    if sum((name is not None, listed, revoke is not None)) != 1:
        raise click.UsageError("give a NAME, or --list, or --revoke ID")
    if name is None and (groups or scopes or read_only or only or expires):
        raise click.UsageError("--group, --scope, --read-only, --only and --expires are for a new token: give a NAME")
    if revoke is not None:
        await _revoke(db, revoke, as_json=as_json)
    elif name is None:
        await _list(db, as_json=as_json)
    else:
        async with at_terminal(open_store(db)) as hf:  # a store may begin with its users
            may, ends = (
                ("read",) if read_only else scopes or SCOPES,
                None if expires == "never" else expires or LIFETIME,
            )
            made, secret = await hf.create_token(name, groups=groups, scopes=may, expires=ends, only=only or None)
        if as_json:
            print_json({"token": dataclasses.asdict(made), "secret": secret})
            return
        until = "" if made.expires_at is None else f" until {_at(made.expires_at)} UTC"
        what = " ".join(filter(None, (f"Token {made.id} of {made.name} may {_may(made)}{until}.", _only(made))))
        say(f"{what} It is shown once; the store has only a digest of it:")
        answer(secret)  # alone on standard output, so that it can be piped


async def _revoke(url: str | None, which: str, *, as_json: bool) -> None:
    async with existing(url) as hf:
        revoked = await hf.revoke_token(which)
    if as_json:
        print_json({"revoked": [dataclasses.asdict(each) for each in revoked]})
        return
    if not revoked:
        answer(f"The sessions of {clean(which)} are over.")
    for each in revoked:
        answer(f"Token {each.id} of {each.name} is refused from now on.")


async def _list(url: str | None, *, as_json: bool) -> None:
    async with existing(url) as hf:
        found = await hf.tokens()
    if as_json:
        print_json({"tokens": [dataclasses.asdict(each) for each in found]})
        return
    if not found:
        answer("There are no tokens; `holdfast token NAME` makes one.")
        return
    made = table("id", "name", "groups", "may", "made", "used", "", no_wrap=True)
    for each in found:
        made.add_row(Text(each.id, "bold"), each.name, ", ".join(each.groups), _may(each),
                     _at(each.created_at), _at(each.used_at), _end(each))  # fmt: skip
    console().print(made, soft_wrap=True)
    for each in found:
        if each.only is not None:
            say(f"Token {each.id}: {_only(each)}", "dim")
        if each.ends_soon():
            say(f"Token {each.id} of {each.name} expires soon, at {_at(each.expires_at)} UTC: {RENEW}.", "yellow")


def _at(when: datetime | None) -> str:
    return "" if when is None else f"{when:%Y-%m-%d %H:%M}"


def _end(token: Token) -> Text:
    """Write how a token ended, or will."""
    if token.revoked_at is not None:
        return Text(f"revoked {_at(token.revoked_at)}", "yellow")
    if token.expires_at is None:
        return Text("never expires", "dim")
    good, soon = token.is_good(), token.ends_soon()
    return Text(f"{'expires' if good else 'expired'} {_at(token.expires_at)}", "dim" if good and not soon else "yellow")


def _may(token: Token) -> str:
    return ", ".join(scope for scope in SCOPES if scope in token.scopes)


def _only(token: Token) -> str:
    """Write which runs are there for a token, if not all are."""
    labels = ", ".join(f"{name}={value}" for name, value in (token.only or {}).items())
    return f"It is for runs with {cut(clean(labels), _SHOWN)} alone." if labels else ""
