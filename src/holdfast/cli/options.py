"""Options and arguments that several commands have, and the texts that are typed for them.

Look here when a command needs an option that another one has.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from holdfast.cli.group import STORE, Command
from holdfast.cli.stores import existing
from holdfast.cli.view.console import say
from holdfast.client.bundles import is_bundle
from holdfast.errors import BadArguments
from holdfast.values.text import cut
from holdfast.words.budget import Budget
from holdfast.words.durations import is_number, seconds
from holdfast.words.harmless import harmless
from holdfast.words.model import TRANSITIONS

F = TypeVar("F", bound=Callable[..., Any])
STATUSES: Final = tuple(TRANSITIONS)
_OFFERED: Final = 500  # ids of runs, the newest, that are completed
subcommand: Final = functools.partial(click.command, cls=Command)


# Texts


def value_of(text: str | None) -> Any:
    """Read a typed value: JSON if it is JSON, else the text itself."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def message_of(text: str | None) -> Any:
    """Read a value that is sent to others, and say so if it was meant as JSON, perhaps, and is taken as text."""
    value = value_of(text)
    if isinstance(value, str) and value == text and value.lstrip().startswith(("{", "[")):
        say(f"Note: {cut(value, 60)} begins like JSON and is none, so it is sent as text.", "yellow")
    return value


def pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read `name=value`, any number of times."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not of the form name=value", ctx, parameter)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, parameter)
        found[name] = text
    return found


def past(ctx: click.Context, parameter: click.Parameter, value: str | None) -> datetime | float | None:
    """Read a moment that was: `2h` ago, or a day or time as ISO 8601 writes it, where this computer is."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        pass
    try:
        return seconds(value)
    except BadArguments:
        what = f"{value!r} is no time; write how long ago it was, 2h or 3d, or a moment, 2026-01-31 or 2026-01-31T14:00"
        raise click.BadParameter(what, ctx, parameter) from None


def words(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Read `a,b,c`."""
    found = None if value is None else [word.strip() for word in value.split(",")]
    if found is not None and not all(found):
        raise click.BadParameter(f"{value!r} is not a list of names with commas between them", ctx, parameter)
    return found


def seconds_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Read how long to wait, `30s`, or `30` for seconds, in seconds."""
    return _seconds(ctx, parameter, f"{value}s" if value is not None and is_number(value) else value)


def age_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Read an age, `90d` or `12h`, in seconds. It has a unit, because what is older is lost, and who writes 90 may mean days."""
    return _seconds(ctx, parameter, value)


def _seconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else seconds(value)
    except BadArguments as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


# Options


def _same_everywhere(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """Take `--db` where it stands: before the command or after it."""
    return value if value is not None else ctx.find_root().params.get("db")


def db_option(command: F) -> F:
    """Add `--db`."""
    return click.option("--db", metavar="URL", callback=_same_everywhere, help=STORE)(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def label_option(help: str) -> Callable[[F], F]:
    """Add `--label`."""
    return click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help=help)


def agent_option(help: str) -> Callable[[F], F]:
    """Add `--agent`."""
    return click.option("--agent", metavar="NAME", multiple=True, callback=_one_agent, help=help)


def _one_agent(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Refuse a second `--agent`, which must not take the place of the first without a word."""
    named = list(dict.fromkeys(values))
    if len(named) > 1:
        raise click.BadParameter(
            f"it takes one agent, and {len(named)} were given ({', '.join(named)}); give the command once for each",
            ctx,
            parameter,
        )
    return named[0] if named else None


# Runs


def run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the id of a run."""

    async def ids() -> list[str]:
        async with existing(ctx.params.get("db")) as hf:
            return [info.id for info in await hf.runs(limit=_OFFERED)]

    try:
        return [run for run in asyncio.run(ids()) if run.startswith(incomplete) and harmless(run) == run]
    except Exception:  # noqa: BLE001 - a completion that fails offers nothing
        return []


def stored(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse the file of a bundle where only a run of a store can be named."""
    if value is not None and is_bundle(value):
        raise click.BadParameter(
            f"{value!r} is a bundle, and this command takes no file; `holdfast show`, `steps` and `snapshot` do. Or import it, and "
            "name the run",
            ctx,
            parameter,
        )
    return value


def run_argument(command: F) -> F:
    """Add the id of a run."""
    return click.argument("run", metavar="ID", shell_complete=run_ids)(command)


@dataclass(frozen=True, slots=True)
class Typed:
    """A start as it was typed."""

    target: str
    strings: tuple[str, ...]
    named: dict[str, str]
    id: str | None
    labels: dict[str, str]
    budget: Budget | None


def typed_options(target: str, id_help: str) -> Callable[[F], Callable[..., Any]]:
    """Add what a run is started with: the agent, its arguments, and the options that a run has; they come as a `Typed`."""

    def add(command: F) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(
            target: str, args: tuple[str, ...], named: dict[str, str], run_id: str | None, labels: dict[str, str],
            budget: str | None, **more: Any,
        ) -> Any:  # fmt: skip
            limits = None if budget is None else Budget.parse(budget)
            return command(Typed(target, args, named, run_id, labels, limits), **more)

        made: Callable[..., Any] = call
        for option in (
            label_option("A label, for lists."),
            click.option("--id", "run_id", metavar="ID", help=id_help),
            click.option("--arg", "named", metavar="NAME=VALUE", multiple=True, callback=pairs, help="An argument by name."),
            click.argument("args", nargs=-1),
            click.argument("target", metavar=target),
        ):  # fmt: skip
            made = option(made)
        return made

    return add


def budget_option(help: str) -> Callable[[F], F]:
    """Add `--budget`."""
    return click.option("--budget", metavar="usd=5,tokens=100000", help=help)
