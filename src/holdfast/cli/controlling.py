"""Commands that pause, resume and cancel: one run, several, or all that fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.cli.acting import who
from holdfast.cli.output import answer as tell
from holdfast.cli.output import print_json
from holdfast.cli.reading import existing, row_of
from holdfast.cli.showing import info_document
from holdfast.client import Client
from holdfast.errors import BadArguments, RunActive, RunFinished
from holdfast.model import TRANSITIONS
from holdfast.run import Run


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


async def pause(url: str | None, wanted: Wanted, reason: str, by: str | None, *, as_json: bool) -> None:
    """The command."""
    states = {"paused": "is paused", "running": "stops at its next safe point; a step that runs may end first"}
    await _each(url, wanted, ("ready", "running", "waiting"), lambda run: run.pause(reason=reason, by=who(by)), states,
                as_json=as_json)  # fmt: skip


async def cancel(url: str | None, wanted: Wanted, reason: str, grace: str, by: str | None, *, as_json: bool) -> None:
    """The command."""
    states = dict.fromkeys(TRANSITIONS, f"was told to stop; it ends within {grace}") | {"cancelled": "is cancelled"}
    await _each(url, wanted, ("ready", "running", "waiting", "paused"),
                lambda run: run.cancel(reason=reason, by=who(by), grace=grace), states, as_json=as_json)  # fmt: skip


async def resume(url: str | None, wanted: Wanted, by: str | None, *, as_json: bool) -> None:
    """The command."""
    states = dict.fromkeys(TRANSITIONS, "is no longer paused")
    await _each(url, wanted, ("paused",), lambda run: run.resume(by=who(by)), states, as_json=as_json)


async def _each(url: str | None, wanted: Wanted, possible: tuple[str, ...], act: Callable[[Run[object]], Awaitable[None]],
                states: dict[str, str], *, as_json: bool) -> None:  # fmt: skip
    if wanted.runs and wanted.is_filter:
        raise BadArguments("name runs or give a filter (--agent, --status, --label), not both")
    if not wanted.runs and not wanted.is_filter:
        raise BadArguments("name a run, or say which with --agent, --status or --label")
    async with existing(url) as hf:
        done = []
        for name in await _names(hf, wanted, possible):
            run = hf.get(name)
            try:
                await act(run)
            except (RunFinished, RunActive):
                if wanted.runs:
                    raise
                continue  # it has moved on since the list was made
            info = await run.info()
            done.append(info)
            if not as_json:
                tell(f"{name} {states.get(info.status, f'is {info.status}')}.")
        if as_json:
            print_json({"runs": [info_document(info) for info in done]})
        elif not done:
            tell("No run fits.", "yellow")


async def _names(hf: Client, wanted: Wanted, possible: tuple[str, ...]) -> list[str]:
    if wanted.runs:
        return [(await row_of(hf, run)).id for run in wanted.runs]
    names: list[str] = []
    after = None
    statuses = wanted.statuses or possible
    while page := await hf.runs(
        status=statuses, agent=wanted.agent, labels=wanted.labels or None, limit=500, after=after
    ):
        names += [info.id for info in page]
        after = page[-1].id
    return names
