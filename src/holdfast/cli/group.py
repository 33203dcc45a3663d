"""The group of all commands: which there are, where each is, how help lists them, and how errors are told.

`holdfast --help` must not wait for the rest of the package. So only click is imported here, and what `--help` says of a command
stands in `COMMANDS`; a test holds it against the commands themselves.
"""

from __future__ import annotations

import importlib
import inspect
import io
import keyword
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final

import click
from click.core import augment_usage_errors
from click.shell_completion import CompletionItem

STORE: Final = (
    "The store: sqlite:PATH, postgresql://USER@HOST/DATABASE, cells:FILE or temporal://HOST:7233/NAMESPACE. Default:"
    " $HOLDFAST_URL, else sqlite:holdfast.db in the current folder."
)

# Section of `--help` -> command -> its module in this package, and its help in a line.
COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Run agents": {
        "run": ("run", "Run an agent here, or go on with a run of it."),
        "start": ("start", "Start a run for the workers, and return at once."),
        "worker": ("worker", "Serve the agents of modules or files until stopped."),
        "serve": ("serve", "Serve the store over HTTP until stopped."),
        "dev": ("dev", "Serve agents and the dashboard while you write them."),
        "demo": ("demo", "See an agent survive being killed."),
    },
    "Look": {
        "runs": ("runs", "List runs, newest first, or count them."),
        "show": ("show", "Show a run as a tree."),
        "snapshot": ("history", "Show what a run has come to."),
        "steps": ("history", "List the calls of a run, or show one whole."),
        "state": ("history", "Print the state that a run stored last."),
        "tail": ("tail", "Follow the events of a run or of all, or a stream."),
        "forks": ("forks", "Draw the tree of forks that a run is in."),
        "schedules": ("schedules", "List what begins by itself, or steer it."),
        "notify": ("notifications", "List who is told of what happens to runs; have others told."),
        "triggers": ("triggers", "List what starts agents by itself, and what came for it."),
        "conversations": ("conversations", "List conversations, or show what was said in one."),
        "audit": ("audit", "Print who did what to which run, schedule or trigger."),
        "doctor": ("doctor", "Check the store and say what is wrong."),
    },
    "Decide": {
        "approvals": ("approvals", "List what waits for a person, here or in the bundle FILE."),
        "approve": ("approvals", "Approve what a run asks for."),
        "deny": ("approvals", "Deny what a run asks for; the agent sees the note."),
        "answer": ("approvals", "Answer a question with a value."),
        "delegate": ("approvals", "Pass a question on to somebody else."),
    },
    "Steer": {
        "send": ("control", "Send a message to a run."),
        "publish": ("announcements", "Publish an announcement."),
        "pause": ("control", "Stop runs at their next safe point."),
        "resume": ("control", "Let paused runs go on."),
        "cancel": ("control", "Stop runs for good."),
        "retry": ("control", "Let failed runs go on from their failure."),
        "fork": ("forks", "Make a run that goes on from an earlier point of another."),
    },
    "Carry": {
        "export": ("bundles", "Write a run and all below it to a file."),
        "import": ("bundles", "Put the run of a bundle into this store."),
        "receipt": ("bundles", "Sign that a run was moved into this store."),
        "key": ("keys", "Make, list and trust keys that sign bundles."),
    },
    "Try": {
        "replay": ("rehearsal", "Replay a run with today's code, and look inside."),
        "rehearse": ("rehearsal", "Run recorded runs again with one thing changed."),
        "diff": ("difference", "Compare two runs: where they part, and what came of it."),
        "check": ("rehearsal", "Tell which runs the code on disk would not go on with."),
    },
    "Keep": {
        "prune": ("runs", "Delete old finished runs with their children."),
        "delete": ("runs", "Delete a finished run with its children."),
        "backup": ("backup", "Copy the store to FILE while it is in use."),
        "restore": ("backup", "Fill an empty store from the backup in FILE."),
        "cells": ("cells", "List cells, find a run's, add one, move and check slots."),
        "token": ("tokens", "Make a token for users of `holdfast serve`."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}
_TABLE: Final = {name: row for section in COMMANDS.values() for name, row in section.items()}
_SDK: Final = "temporalio.bridge.runtime"  # if it was loaded, it may have threads
# Calls by which a program looks how something stands -> what is typed for it
_LOOKS: Final = {
    r"hf\.get\('([^']*)'\)\.info\(\)": "holdfast show {}",
    r"hf\.approval\('([^']*)'\)": "holdfast approvals --all",
    r"hf\.conversation\('([^']*)'\)\.info\(\)": "holdfast conversations {}",
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
    """A command with coloured help. It may be async, and the number that it returns is the exit code."""

    context_class = Context

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        if inspect.iscoroutine(result):
            import asyncio

            with augment_usage_errors(ctx):
                result = asyncio.run(result)
        if isinstance(result, int):
            ctx.exit(result)
        return result


class Commands(Mapping[str, click.Command]):
    """All commands by name; the module of one is imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module, _ = _TABLE[name]
        spelled = f"{name}_" if keyword.iskeyword(name) else name
        found: click.Command = getattr(importlib.import_module(f"holdfast.cli.{module}"), spelled)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLE)

    def __len__(self) -> int:
        return len(_TABLE)


class Holdfast(click.Group):
    """Lists commands in sections, and turns our errors into one line and an exit code."""

    context_class = Context

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands: Any = Commands()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the sections."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, _TABLE))
        room = formatter.width - 6 - widest
        for heading, section in COMMANDS.items():
            with formatter.section(heading):
                cut = {name: click.Command(name, help=says) for name, (_, says) in section.items()}
                rows = [(name.ljust(widest), each.get_short_help_str(room)) for name, each in cut.items()]
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=says) for name, (_, says) in _TABLE.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Be the whole process: the command of a shell, not one that a test calls."""
        try:
            return super().__call__(*args, **options)
        except SystemExit as ended:
            if _SDK in sys.modules:
                _leave(ended.code)
            raise

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


def _leave(code: object) -> None:
    """End the process with all that Python does at its end, but the last: it does not take the interpreter apart.

    Threads of Temporal's SDK cannot be stopped. One that comes back for the interpreter meanwhile ends the process with SIGABRT,
    whatever its exit code was to be.
    """
    import atexit
    import threading

    # As Python does it, in this order: it waits for threads, and calls what was registered for the end.
    for module, end in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):
        getattr(module, end)()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


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
    """Print a traceback as Python does, with what the error says made harmless."""
    import traceback

    from holdfast.words.harmless import harmless

    sys.stderr.write(harmless("".join(traceback.format_exception(kind, error, trace)), keep="\n"))


def _explain(ctx: click.Context, error: Exception) -> None:
    from holdfast.errors import HoldfastError

    if not isinstance(error, HoldfastError | TimeoutError):
        raise error
    from holdfast.cli.view.console import BAD_USAGE, say

    say(f"Error: {_in_commands(str(error)) or 'it took too long'}", "red")
    ctx.exit(BAD_USAGE)


def _in_commands(told: str) -> str:
    """Name commands where an error names calls of a program by which one looks."""
    import re
    import shlex

    for call, command in _LOOKS.items():
        for found in [*re.finditer(rf"`await {call}`", told)]:
            told = told.replace(found[0], f"`{command.format(shlex.quote(found[1]))}`")
    return told


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"holdfast {getattr(sys.modules['holdfast'], '__version__', 'unknown')}")
        ctx.exit()


@click.group(cls=Holdfast, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--db", metavar="URL", help=STORE)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def holdfast(db: str | None) -> None:
    """Agents that go on where they stopped. Try `holdfast demo` first."""
