"""The group of all commands: how errors are told, and the options that several commands have."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
STORE = (
    "The store: sqlite:PATH or postgresql://USER@HOST/DATABASE. Default: $HOLDFAST_URL, else sqlite:holdfast.db in the"
    " current folder."
)
STATUSES = ("ready", "running", "waiting", "paused", "completed", "failed", "cancelled")


# How `--help` lists the commands; one that is not here comes last.
SECTIONS = {
    "Run agents": ("run", "start", "worker", "serve", "demo"),
    "Look": ("runs", "show", "tail", "conversations", "audit", "doctor"),
    "Decide": ("approvals", "approve", "deny", "answer", "delegate"),
    "Steer": ("send", "pause", "resume", "cancel", "retry"),
    "Keep": ("prune", "delete", "backup", "restore", "token", "completion"),
}


class Coloured(click.HelpFormatter):
    """Help with coloured names. What goes into a pipe has no colours: click takes them out."""

    def write_heading(self, heading: str) -> None:
        super().write_heading(_style(heading, fg="yellow"))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(_style(prog, bold=True), args, _style("Usage: ", fg="yellow") if prefix is None else prefix)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(_style(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing)


def _style(text: str, **how: Any) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, **how)


class Context(click.Context):
    """With coloured help."""

    formatter_class = Coloured


class Command(click.Command):
    """A command with coloured help."""

    context_class = Context


class Holdfast(click.Group):
    """Lists commands in sections, and turns our errors into one line and an exit code."""

    context_class = Context
    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the sections."""
        known = [name for names in SECTIONS.values() for name in names if name in self.commands]
        return [*known, *(name for name in self.commands if name not in known)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names))
        sections = {
            **SECTIONS,
            "More": tuple(name for name in names if all(name not in each for each in SECTIONS.values())),
        }
        for heading, wanted in sections.items():
            rows = [(name, self.commands[name].get_short_help_str(room)) for name in wanted if name in self.commands]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(max(map(len, names))), text) for name, text in rows])

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show is no reason to stop
                stream.reconfigure(errors="backslashreplace")
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = _traceback
        return super().main(*args, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _told_to_people():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _told_to_people():
                return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001 - what is not ours is raised again
            _explain(ctx, error)


class _BadUsage(click.UsageError):
    """Told on the screen, as all other errors are."""

    def show(self, file: Any = None) -> None:
        from holdfast.cli.view.console import say

        if self.ctx is not None:
            hint = f"Try '{self.ctx.command_path} {self.ctx.help_option_names[-1]}' for help."
            click.echo(f"{self.ctx.get_usage()}\n{hint}\n", file, err=True, color=self.ctx.color)
        say(f"Error: {self.format_message()}")


@contextmanager
def _told_to_people() -> Iterator[None]:
    """An error of usage repeats what was typed, perhaps a URL in the wrong place, or text that somebody else wrote."""
    try:
        yield
    except click.UsageError as error:
        from holdfast.words.urls import redacted_words

        raise _BadUsage(redacted_words(error.format_message()), error.ctx) from None


def _traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """As Python prints it, but for what the error says."""
    import traceback

    from holdfast.words.harmless import harmless

    sys.stderr.write(harmless("".join(traceback.format_exception(kind, error, trace)), keep="\n"))


def _explain(ctx: click.Context, error: Exception) -> None:
    from holdfast.errors import HoldfastError

    if not isinstance(error, HoldfastError):
        raise error
    from holdfast.cli.view.console import BAD_USAGE, say

    say(f"Error: {error}", "red")
    ctx.exit(BAD_USAGE)


def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a short command's work."""
    import asyncio

    return asyncio.run(work)


# Options and arguments that several commands have


def _same_everywhere(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """`--db` may stand before the command or after it."""
    return value if value is not None else ctx.find_root().params.get("db")


def db_option(command: F) -> F:
    """`--db`."""
    return click.option("--db", metavar="URL", callback=_same_everywhere, help=STORE)(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Completes the id of a run."""
    from holdfast.cli.runs import ids
    from holdfast.words.harmless import harmless

    try:
        return [
            run for run in wait_for(ids(ctx.params.get("db"))) if run.startswith(incomplete) and harmless(run) == run
        ]
    except Exception:  # noqa: BLE001 - a completion that fails offers nothing
        return []


def run_argument(command: F) -> F:
    """The id of a run."""
    return click.argument("run", metavar="ID", shell_complete=run_ids)(command)


def _one_agent(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    """A second `--agent` must not take the place of the first without a word."""
    named = list(dict.fromkeys(values))
    if len(named) > 1:
        raise click.BadParameter(
            f"it takes one agent, and {len(named)} were given ({', '.join(named)}); give the command once for each",
            ctx,
            parameter,
        )
    return named[0] if named else None


def agent_option(help: str) -> Callable[[F], F]:
    """`--agent`."""
    return click.option("--agent", metavar="NAME", multiple=True, callback=_one_agent, help=help)


def pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`name=value`, any number of times."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not of the form name=value", ctx, parameter)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, parameter)
        found[name] = text
    return found


def past(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """A moment that was: `2h` ago, or a day or time as ISO 8601 writes it, where this computer is."""
    if value is None:
        return None
    from datetime import datetime

    from holdfast.errors import BadArguments
    from holdfast.words.durations import seconds

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
    """`a,b,c`."""
    found = None if value is None else [word.strip() for word in value.split(",")]
    if found is not None and not all(found):
        raise click.BadParameter(f"{value!r} is not a list of names with commas between them", ctx, parameter)
    return found


def seconds_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time, `90d` or `12h`, in seconds."""
    from holdfast.errors import BadArguments
    from holdfast.words.durations import seconds

    try:
        return None if value is None else seconds(value)
    except BadArguments as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"holdfast {getattr(sys.modules['holdfast'], '__version__', 'unknown')}")
        ctx.exit()


@click.group(cls=Holdfast, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--db", metavar="URL", help=STORE)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def holdfast(db: str | None) -> None:
    """Agents that go on where they stopped. Try `holdfast demo` first."""
