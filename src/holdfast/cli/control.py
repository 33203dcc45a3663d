"""Commands that steer runs: pause, resume, cancel and retry one, several or all that fit; send one a message."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from holdfast.cli.forks import POINT, point_of
from holdfast.cli.options import (
    STATUSES,
    F,
    agent_option,
    budget_option,
    db_option,
    json_option,
    label_option,
    message_of,
    run_argument,
    run_ids,
    seconds_of,
    subcommand,
)  # fmt: skip
from holdfast.cli.stores import existing, held
from holdfast.cli.view.advice import GOES_ON, code_of, command, held_back, how_to_go_on
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.console import print_json
from holdfast.client.client import Client
from holdfast.client.edge import Edge, user
from holdfast.client.forks import EFFECTS
from holdfast.client.info import RunInfo
from holdfast.client.run import Run
from holdfast.errors import BadArguments
from holdfast.words.budget import Budget
from holdfast.words.durations import written
from holdfast.words.model import FINISHED, TRANSITIONS

_NAMED: Final = 20  # runs that are told of one by one


@dataclass(frozen=True)
class Wanted:
    """The runs that a command is about, and the person who gives it."""

    url: str | None
    runs: tuple[str, ...]
    agent: str | None
    statuses: tuple[str, ...]
    labels: dict[str, str]
    by: str
    as_json: bool

    @property
    def is_filter(self) -> bool:
        return bool(self.agent or self.statuses or self.labels)

    def filters(self) -> dict[str, Any]:
        """Write the filter as a client takes it."""
        return {"agent": self.agent, "status": self.statuses or None, "labels": self.labels or None}


def wanted_options(command: F) -> Callable[..., Any]:
    """Add which runs: by id, or by what they are; they come as a `Wanted`."""

    @functools.wraps(command)
    def call(
        runs: tuple[str, ...], by: str | None, agent: str | None, statuses: tuple[str, ...], labels: dict[str, str],
        db: str | None, as_json: bool, **more: Any,
    ) -> Any:  # fmt: skip
        return command(Wanted(db, runs, agent, statuses, labels, user() if by is None else by, as_json), **more)

    made: Callable[..., Any] = call
    for option in (
        label_option("Runs so labelled."),
        click.option("--status", "statuses", type=click.Choice(STATUSES), multiple=True, help="Runs in this state."),
        agent_option("Runs of this agent."),
        click.option("--by", metavar="NAME", help="The person who acts. Default: the user of this computer."),
        click.argument("runs", metavar="[ID]...", nargs=-1, shell_complete=run_ids),
    ):
        made = option(made)
    return made


def _reason_option(command: F) -> F:
    return click.option("--reason", default="", metavar="TEXT", help="The reason, which is shown and kept.")(command)


def _only_option(command: F) -> F:
    return click.option("--only", is_flag=True, help="These runs only, not those below them.")(command)


@subcommand()
@wanted_options
@_reason_option
@_only_option
@click.option("--now", is_flag=True, help="Stop steps that run; they are in doubt then, as after a crash.")
@db_option
@json_option
async def pause(wanted: Wanted, reason: str, only: bool, now: bool) -> None:
    """Stop runs at their next safe point.

    Runs below them stop too. A step that runs may end. They go on when they are resumed.
    """
    how: dict[str, Any] = {"reason": reason, "by": wanted.by, "family": not only, "now": now}
    may_end = "steps that run are stopped" if now else "a step that runs may end first"
    states = {
        "paused": "is paused" if only else "is paused, with all below it",
        "running": f"stops at its next safe point; {may_end}",
        **dict.fromkeys(("ready", "waiting"), "was told to pause, and is paused in a moment"),
    }
    await _each(wanted, lambda hf: hf.pause(**wanted.filters(), **how), lambda run: run.pause(**how), states,
                unserved="was told to pause")  # fmt: skip


@subcommand()
@wanted_options
@_only_option
@db_option
@json_option
async def resume(wanted: Wanted, only: bool) -> None:
    """Let paused runs go on.

    Runs below them that were paused by the same request go on too.
    """
    _only(wanted, "paused", "resumed")
    those: dict[str, Any] = {"agent": wanted.agent, "labels": wanted.labels or None}
    how: dict[str, Any] = {"by": wanted.by, "family": not only}
    told = "is no longer paused"
    await _each(wanted, lambda hf: hf.resume(**those, **how), lambda run: run.resume(**how),
                dict.fromkeys(TRANSITIONS, told), unserved=told)  # fmt: skip


@subcommand()
@wanted_options
@_reason_option
@click.option("--grace", "grace_s", default="30s", show_default=True, metavar="TIME", callback=seconds_of,
              help="How long the agent may tidy up.")  # fmt: skip
@db_option
@json_option
async def cancel(wanted: Wanted, reason: str, grace_s: float) -> None:
    """Stop runs for good.

    Children first, then the agent may tidy up. A second time ends them at once.
    """
    how: dict[str, Any] = {"reason": reason, "by": wanted.by, "grace": grace_s}
    states = dict.fromkeys(TRANSITIONS, f"was told to stop; it ends within {written(round(grace_s * 1000))}") | {
        "cancelled": "is cancelled"
    }
    done = await _each(wanted, lambda hf: hf.cancel(**wanted.filters(), **how), lambda run: run.cancel(**how), states,
                       unserved="was told to stop")  # fmt: skip
    if left := [info.id for info in done if info.waits_for in ("worker", "group")]:
        again = command("cancel", *left[:_NAMED], db=wanted.url)
        tell("The worker that goes on with it lets it tidy up and ends it. To end it now, as it is:", "yellow", again)


@subcommand()
@wanted_options
@budget_option("What each may spend instead of its declared budget; grants stay on top.")
@click.option("--at", metavar="POINT", help=f"Go back further, to before this point. {POINT}")
@click.option("--effects", type=click.Choice(EFFECTS),
              help="With --at, for steps that were done behind it: ask a person (default), do them anew or fail them.")  # fmt: skip
@db_option
@json_option
async def retry(wanted: Wanted, budget: str | None, at: str | None, effects: Any) -> None:
    """Let failed runs go on from their failure.

    What was recorded before stays; the failed step runs again. A paused run is resumed. `--status failed` means all failed
    runs; children go on with the runs that they brought down, and by themselves if --agent names theirs.
    """
    _only(wanted, "failed", "retried")
    if at is not None and len(wanted.runs) != 1:
        raise BadArguments("--at is a point in the history of one run: name that run, and no other")
    if at is None and effects is not None:
        raise BadArguments("--effects is for steps that were done behind a point: name that with --at")
    how: dict[str, Any] = {"by": wanted.by, "budget": None if budget is None else Budget.parse(budget)}
    back: dict[str, Any] = {} if at is None else {"at": point_of(at), "effects": effects or "ask"}
    told = "goes on from its failure; what was recorded before stays"
    if back:
        told = "goes on from there; what came after is dropped, and stays marked so in its history"
    await _each(wanted, lambda hf: hf.retry(**wanted.filters(), **how), lambda run: run.retry(**how, **back),
                dict.fromkeys(TRANSITIONS, told), unserved=told, paused="is no longer paused")  # fmt: skip


def _only(wanted: Wanted, status: str, done: str) -> None:
    """A filter by another state fits no run, and must not fit all."""
    if others := [each for each in wanted.statuses if each != status]:
        raise BadArguments(
            f"only {status} runs are {done}, not {' or '.join(others)} ones; --status {status} means all of them"
        )


async def _each(
    wanted: Wanted, those: Callable[[Client], Awaitable[list[str]]], one: Callable[[Run[Any]], Awaitable[None]],
    states: dict[str, str], *, unserved: str, paused: str = "",
) -> list[RunInfo]:  # fmt: skip
    """Act, and say what became of each; of a run that no worker serves, `unserved`, and how it could go on.

    Of one that is held back after crashes it says `unserved` too, and when it goes on; of one that was paused, `paused` instead.
    """
    if wanted.runs and wanted.is_filter:
        raise BadArguments("name runs or give a filter (--agent, --status, --label), not both")
    if not wanted.runs and not wanted.is_filter:
        raise BadArguments("name a run, or say which with --agent, --status or --label")
    async with existing(wanted.url) as hf:
        edge = Edge(hf)
        before = {row.id: row.status for row in [await edge.row(run) for run in wanted.runs]}
        named = list(before)
        for name in sorted(named, reverse=True):  # children first: their ids begin with their parent's
            await one(hf.get(name))
        done = [await hf.get(name).info() for name in named or await those(hf)]
        if wanted.as_json:
            print_json({"runs": done})
            return []
        asleep = await held(hf, wanted.url)
        for info in done[:_NAMED]:
            resumed = paused if before.get(info.id) == "paused" else ""
            what = resumed or unserved
            if asleep is not None and info.waits_for in ("group", "worker"):
                tell(f"{info.id} {what}, but {asleep}")
            elif info.waits_for == "group":
                tell(f"{info.id} {what}. It is {held_back(info)}; it {GOES_ON}.")
            elif info.waits_for == "worker":
                nobody = f"{info.id} {what}, but no live worker serves {code_of(info)}, so nothing happens by itself."
                tell(nobody, "", " ".join(how_to_go_on(info, wanted.url)))
            else:
                tell(f"{info.id} {resumed or states.get(info.status, f'is {info.status}')}.")
        if len(done) > _NAMED:
            tell(f"So it is with {len(done) - _NAMED:,} more.")
        if not done:
            tell("No run fits.", "yellow")
        return done


# Messages


@subcommand()
@run_argument
@click.argument("topic")
@click.argument("value", required=False)
@click.option("--key", metavar="KEY", help="A second message with this key is not delivered.")
@db_option
@json_option
async def send(run: str, topic: str, value: str | None, key: str | None, db: str | None, as_json: bool) -> None:
    """Send a message to a run. VALUE is JSON, or else text."""
    async with existing(db) as hf:
        await Edge(hf).row(run)
        sent = message_of(value)
        receipt = await hf.get(run).send(topic, sent, key=key)
        if as_json:
            told = {"run": run, "topic": topic, "value": sent, "key": key, "position": receipt.position}
            print_json(told | {"seen_at": await receipt.seen_at()})
            return
        place = f": number {receipt.position} in its inbox" if receipt.position else ""  # a cluster tells none
        tell(f"Sent to {run} on {topic!r}{place}.")
        if (kept := await kept_back(hf, run, db)) is not None:
            tell(kept[0], "", *kept[1:])


async def kept_back(hf: Client, run: str, url: str | None) -> tuple[str, ...] | None:
    """Say why a run does not take its new signals now, and the command that lets it; None if a worker takes them."""
    info, asleep = await hf.get(run).info(), await held(hf, url)
    if info.status in FINISHED:
        return None
    if asleep is not None:
        return (f"It is kept for run {run}, but {asleep}",)
    if info.status == "paused":
        return f"Run {run} is paused; it takes this when it goes on:", command("resume", run, db=url)
    if info.waits_for == "group":
        return (f"Run {run} takes it when it goes on. It is {held_back(info)}; it {GOES_ON}.",)
    if info.waits_for == "worker":
        told = f"It is kept for run {run}, but no live worker serves {code_of(info)}, so nothing happens by itself."
        return told, " ".join(how_to_go_on(await Edge(hf).row(info.root), url))
    return None
