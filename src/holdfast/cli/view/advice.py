"""Advice about runs: the sentences and the commands to paste that several commands print."""

from __future__ import annotations

import re
import shlex
from typing import Final

import click

from holdfast.client.info import RunInfo
from holdfast.words.forks import advised
from holdfast.words.model import RunRow
from holdfast.words.urls import redacted

GOES_ON: Final = "goes on when the runs that are tried first have made progress or ended"


def command(*words: str, db: str | None = None) -> str:
    """Write a command that can be pasted into a shell, with the store that is used now; its password is not told."""
    program = click.get_current_context().find_root().info_name or "holdfast"
    more = ["--db", redacted(db)] if db else []
    return f"{program} {shlex.join([*words, *more])}"


def code_of(run: RunRow | RunInfo) -> str:
    """Name the code that a run needs."""
    return repr(run.agent) if run.version is None else f"version {run.version} of {run.agent!r}"


def without_id(told: str, run: str) -> str:
    """Leave a run's id out of what is told of it, where the id stands beside it: the room is for the rest."""
    own = re.compile(
        rf"(^|: |\. )run {re.escape(repr(run))}:? "
    )  # where a sentence begins with it; elsewhere it is missed
    return own.sub(r"\1", told, count=1)


NEVER: Final = (
    "Change the agent and resume the run, or cancel it"  # of what its ground lacks: with this code it never goes on
)


def after_pause(run: RunRow, url: str | None) -> tuple[str, str]:
    """Advise on a paused run: what then, and the command."""
    again = advised(run.reason)
    if again is not None:
        return "Fork the other run again:", command("fork", again[0], "--replace", f"{again[1]}=JSON", db=url)
    if (run.reason or "").endswith(NEVER):
        return "Or end it:", command("cancel", run.id, db=url)
    return "Then let it go on:", command("resume", run.id, db=url)


def held_back(run: RunInfo) -> str:
    """Say why live workers have not yet taken a run whose process ended more than once."""
    return f"held back: carried apart after {run.crashes + (run.status == 'running')} crashes"


def how_to_go_on(run: RunRow | RunInfo, url: str | None, *words: str) -> tuple[str, str]:
    """Advise on a run that no worker serves: where, and the command (`words` are those typed to run it, if known).

    A child is carried with the run that started it, whose agent is not known here; a worker carries both.
    """
    is_child = (run.parent_id if isinstance(run, RunRow) else run.parent) is not None
    where = "Go on:" if run.version is None else f"With the code of version {run.version}:"
    alone = ("worker", "FILE.py") if is_child else ("run", f"FILE.py:{run.agent}", "--id", run.id)
    return where, command(*(words or alone), db=url)
