"""Commands that do something to a run or to the store: send, prune, delete."""

from __future__ import annotations

import json
from typing import Any

from holdfast.cli.view.console import GOES_ON, code_of, command, held_back, how_to_go_on, print_json, user
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.read import existing, held, row_of
from holdfast.client.client import Client
from holdfast.words.model import FINISHED


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
