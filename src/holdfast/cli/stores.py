"""Stores as the user of this computer opens them at a terminal, and why the runs of one may not be carried."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Self

from holdfast.cli.view.advice import command
from holdfast.client.bundles import is_bundle
from holdfast.client.client import Client
from holdfast.client.edge import Edge, describe, open_bundle, open_existing, open_trial, user
from holdfast.client.keys import Keys
from holdfast.words.people import Actor


def existing(url: str | None) -> AbstractAsyncContextManager[Client]:
    """Open a store that must be there: a command that only looks makes no new file."""
    return open_existing(url, Actor(user()), door())


def looked_at(url: str | None) -> AbstractAsyncContextManager[Client]:
    """Open a store that must be there, and refuse every write to it."""
    return open_existing(url, Actor(user()), door(), only_looks=True)


def tried(url: str | None) -> AbstractAsyncContextManager[tuple[Client, bool]]:
    """Open a store to try something in that leaves nothing behind; also tells whether it is there."""
    return open_trial(url, Actor(user()), door())


def at_terminal(hf: Client) -> Client:
    """Make the client that of the user of this computer, whom the audit names with this door."""
    return Edge(hf).through(Actor(user()), door())


def door() -> str:
    """Name the door of the command line, for the audit."""
    return f"cli:{user()}"


class BundleFile(str):
    """The name of a bundle, where commands otherwise have the URL of a store."""

    __slots__ = ("is_copy",)
    is_copy: bool

    def __new__(cls, name: str, *, is_copy: bool) -> Self:
        made = super().__new__(cls, name)
        made.is_copy = is_copy
        return made


def looked_into(target: str, url: str | None, by: str | None = None) -> AbstractAsyncContextManager[Client]:
    """Open the bundle that is named, or, if it is the id of something, the store."""
    if not is_bundle(target):
        return existing(url)
    return open_bundle(target, Actor(user()), door(), lambda: Keys().own(by))


def run_in(target: str) -> str:
    """Name the run that a bundle is about; an id is itself."""
    return describe(target).run if is_bundle(target) else target


@dataclass(frozen=True, slots=True)
class Held:
    """The hold on a store that is a copy: none of its runs is carried, and what to do."""

    what: str
    when: str
    command: str

    @property
    def advice(self) -> str:
        return f"{self.when} {self.command}"

    def __str__(self) -> str:
        return f"{self.what}. {self.advice}"


async def held(hf: Client, url: str | None) -> Held | None:
    """Say what holds the runs of this store; None when they are carried."""
    edge = Edge(hf)
    if not await edge.is_held():
        return None
    if edge.is_backup:
        made = command("restore", edge.url.removeprefix("sqlite:").partition("?")[0], db="sqlite:NEW.db")
        return Held("this is a backup: no run is carried in it, and it cannot be changed", "Make a store of it:", made)
    let_go = command("restore", "--activate", db=url)
    return Held("this store is a copy and held: no run is carried", "When the original does nothing any more:", let_go)
