"""Commands that pause, resume, cancel and retry: one run, several, or all that fit."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cli.view.console import GOES_ON, code_of, command, held_back, how_to_go_on, print_json, user
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.read import existing, held, row_of
from holdfast.client.client import Client
from holdfast.client.run import Run, RunInfo
from holdfast.errors import BadArguments
from holdfast.words.budget import Budget
from holdfast.words.model import FINISHED, TRANSITIONS

_NAMED: Final = 20  # runs that are told of one by one


@dataclass(frozen=True)
class Wanted:
    """Which runs a command is about."""

    runs: tuple[str, ...]
    agent: str | None
    statuses: tuple[str, ...]
    labels: dict[str, str]

    @property
    def is_filter(self) -> bool:
        return bool(self.agent or self.statuses or self.labels)

    def filters(self) -> dict[str, Any]:
        """As a client takes it."""
        return {"agent": self.agent, "status": self.statuses or None, "labels": self.labels or None}


async def pause(
    url: str | None, wanted: Wanted, reason: str, by: str | None, *, only: bool, now: bool, as_json: bool
) -> None:
    """The command."""
    how: dict[str, Any] = {"reason": reason, "by": who(by), "family": not only, "now": now}
    may_end = "steps that run are stopped" if now else "a step that runs may end first"
    states = {
        "paused": "is paused" if only else "is paused, with all below it",
        "running": f"stops at its next safe point; {may_end}",
    }
    await _each(url, wanted, lambda hf: hf.pause(**wanted.filters(), **how), lambda run: run.pause(**how), states,
                as_json=as_json, unserved="was told to pause")  # fmt: skip


async def cancel(url: str | None, wanted: Wanted, reason: str, grace: str, by: str | None, *, as_json: bool) -> None:
    """The command."""
    how: dict[str, Any] = {"reason": reason, "by": who(by), "grace": grace}
    states = dict.fromkeys(TRANSITIONS, f"was told to stop; it ends within {grace}") | {"cancelled": "is cancelled"}
    done = await _each(url, wanted, lambda hf: hf.cancel(**wanted.filters(), **how), lambda run: run.cancel(**how),
                       states, as_json=as_json, unserved="was told to stop")  # fmt: skip
    if left := [info.id for info in done if info.waits_for in ("worker", "group")]:
        again = command("cancel", *left[:_NAMED], db=url)
        tell("The worker that goes on with it lets it tidy up and ends it. To end it now, as it is:", "yellow", again)


async def resume(url: str | None, wanted: Wanted, by: str | None, *, only: bool, as_json: bool) -> None:
    """The command."""
    _only(wanted, "paused", "resumed")
    states = dict.fromkeys(TRANSITIONS, "is no longer paused")
    those: dict[str, Any] = {"agent": wanted.agent, "labels": wanted.labels or None}
    how: dict[str, Any] = {"by": who(by), "family": not only}
    await _each(url, wanted, lambda hf: hf.resume(**those, **how), lambda run: run.resume(**how), states,
                as_json=as_json, unserved="is no longer paused")  # fmt: skip


async def retry(url: str | None, wanted: Wanted, budget: str | None, by: str | None, *, as_json: bool) -> None:
    """The command."""
    _only(wanted, "failed", "retried")
    how: dict[str, Any] = {"by": who(by), "budget": None if budget is None else Budget.parse(budget)}
    told = "goes on from its failure; what was recorded before stays"
    await _each(url, wanted, lambda hf: hf.retry(**wanted.filters(), **how), lambda run: run.retry(**how),
                dict.fromkeys(TRANSITIONS, told), as_json=as_json, unserved=told, paused="is no longer paused")  # fmt: skip


def _only(wanted: Wanted, status: str, done: str) -> None:
    """A filter by another state fits no run, and must not fit all."""
    if others := [each for each in wanted.statuses if each != status]:
        raise BadArguments(
            f"only {status} runs are {done}, not {' or '.join(others)} ones; --status {status} means all of them"
        )


async def _each(
    url: str | None, wanted: Wanted, those: Callable[[Client], Awaitable[list[str]]],
    one: Callable[[Run[Any]], Awaitable[None]], states: dict[str, str], *, as_json: bool, unserved: str,
    paused: str = "",
) -> list[RunInfo]:  # fmt: skip
    """Act, and say what became of each; of one that nobody serves, `unserved`, and who could go on with it.

    Of one that is held back after crashes it says `unserved` too, and when it goes on; of one that was paused, `paused` instead.
    """
    if wanted.runs and wanted.is_filter:
        raise BadArguments("name runs or give a filter (--agent, --status, --label), not both")
    if not wanted.runs and not wanted.is_filter:
        raise BadArguments("name a run, or say which with --agent, --status or --label")
    async with existing(url) as hf:
        before = {row.id: row.status for row in [await row_of(hf, run) for run in wanted.runs]}
        named = list(before)
        for name in sorted(named, reverse=True):  # children first: their ids begin with their parent's
            await one(hf.get(name))
        done = [await hf.get(name).info() for name in named or await those(hf)]
        if as_json:
            print_json({"runs": done})
            return []
        asleep = await held(hf, url)
        for info in done[:_NAMED]:
            resumed = paused if before.get(info.id) == "paused" else ""
            what = resumed or unserved
            if asleep is not None and info.waits_for in ("group", "worker"):
                tell(f"{info.id} {what}, but {asleep}")
            elif info.waits_for == "group":
                tell(f"{info.id} {what}. It is {held_back(info)}; it {GOES_ON}.")
            elif info.waits_for == "worker":
                nobody = f"{info.id} {what}, but no live worker serves {code_of(info)}, so nothing happens by itself."
                tell(nobody, "", " ".join(how_to_go_on(info, url)))
            else:
                tell(f"{info.id} {resumed or states.get(info.status, f'is {info.status}')}.")
        if len(done) > _NAMED:
            tell(f"So it is with {len(done) - _NAMED:,} more.")
        if not done:
            tell("No run fits.", "yellow")
        return done


# Commands that do something to a run or to the store: send, prune, delete.


def who(by: str | None) -> str:
    """The name given, or that of the user of this computer."""
    return user() if by is None else by


def value_of(text: str | None) -> Any:
    """What a typed value means: JSON if it is JSON, else the text itself."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


async def kept_back(hf: Client, run: str, url: str | None) -> tuple[str, ...] | None:
    """Why a run does not take now what came to it, and the command that lets it; None if a worker takes it."""
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
        return told, " ".join(how_to_go_on(await row_of(hf, info.root), url))
    return None


async def send(url: str | None, run: str, topic: str, value: str | None, key: str | None, *, as_json: bool) -> None:
    """The command."""
    async with existing(url) as hf:
        await row_of(hf, run)
        sent = value_of(value)
        receipt = await hf.get(run).send(topic, sent, key=key)
        if as_json:
            seen_at = await receipt.seen_at()
            print_json(
                {
                    "run": run,
                    "topic": topic,
                    "value": sent,
                    "key": key,
                    "position": receipt.position,
                    "seen_at": seen_at,
                }
            )
        else:
            tell(f"Sent to {run} on {topic!r}: number {receipt.position} in its inbox.")
            if (kept := await kept_back(hf, run, url)) is not None:
                tell(kept[0], "", *kept[1:])


async def prune(url: str | None, older_than: str, fits: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    """The command; `fits` narrows as `hf.prune` does."""
    async with existing(url) as hf:
        count, more = 0, 1
        while more:
            more = await hf.prune(older_than, **fits, dry_run=dry_run)
            count += more
            if dry_run:
                break
    if as_json:
        print_json({"deleted": 0 if dry_run else count, "older_than": older_than, **fits}
                   | ({"would_delete": count} if dry_run else {}))  # fmt: skip
        return
    what = " or ".join(fits["status"]) + (f" {fits['agent']}" if fits["agent"] else "")
    labelled = "".join(f" labelled {key}={value}" for key, value in (fits["labels"] or {}).items())
    runs = f"{count:,} {what} run{'' if count == 1 else 's'}{labelled} that ended more than {older_than} ago"
    tell(f"Would delete {runs}, with those below. Nothing was deleted." if dry_run else f"Deleted {runs}.")


async def delete(url: str | None, run: str, *, as_json: bool) -> None:
    """The command."""
    async with existing(url) as hf:
        await row_of(hf, run)
        count = await hf.get(run).delete()
        if as_json:
            print_json({"run": run, "deleted": count})
        else:
            below = f" and {count - 1} child run{'' if count == 2 else 's'}" if count > 1 else ""
            tell(f"Deleted {run}{below}.")
