"""`holdfast backup` and `holdfast restore`: a copy of a store as a file, and a store of such a file."""

from __future__ import annotations

from holdfast.cli.view.console import answer, command, print_json, user
from holdfast.cli.view.read import existing
from holdfast.client.client import restore_backup
from holdfast.words.people import Actor


async def backup(url: str | None, path: str, *, as_json: bool) -> None:
    """Copy a store in use."""
    async with existing(url) as hf:
        runs = await hf.backup(path)
        store = hf.store.url
    if as_json:
        print_json({"file": path, "runs": runs, "store": store})
    else:
        answer(f"{_counted(runs)} of {store} in {path}.")


async def restore(url: str | None, path: str, *, as_json: bool) -> None:
    """Make a store of a backup."""
    runs = await restore_backup(path, url, by=Actor(user(), via=f"cli:{user()}"))
    if as_json:
        print_json({"file": path, "runs": runs})
        return
    answer(f"{_counted(runs)} restored from {path}. Nothing of it is carried until you say so.")
    answer("When the original surely does nothing any more:", "", command("restore", "--activate", db=url))


async def activate(url: str | None, *, as_json: bool) -> None:
    """Let a restored store go on."""
    async with existing(url) as hf:
        runs = await hf.activate()
    if as_json:
        print_json({"unfinished": runs})
    else:
        answer(f"The store is active: {_counted(runs)} not ended, which workers carry from now on.")


def _counted(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"
