"""`holdfast worker`: serves agents until it is stopped, and says what it does."""

from __future__ import annotations

import asyncio
import logging
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast.cli.lines import is_quiet, line, told_now
from holdfast.cli.loading import load_apps
from holdfast.cli.output import console, say
from holdfast.cli.reading import carried_here, latest_position, open_calls
from holdfast.cli.running import listen_to_logs
from holdfast.cli.stopping import Stop, first, leave_if_held
from holdfast.client import Client, specs_of
from holdfast.client import open as open_store
from holdfast.declaring import Agent
from holdfast.worker.probes import Probes, listening
from holdfast.worker.settings import Settings


def worker(url: str | None, targets: tuple[str, ...], concurrency: int, host: str, port: int | None) -> int:
    """The command; returns its exit code."""
    apps = load_apps(targets)
    listen_to_logs(logging.WARNING)
    with listening(host, port) as probes:  # a port that is in use is told before any run is claimed
        asyncio.run(_serve(url, apps, Settings(concurrency=concurrency), probes))
    leave_if_held(0)
    return 0  # to be stopped is how a worker ends


async def _serve(
    url: str | None, apps: list[ModuleType | Agent[..., Any]], settings: Settings, probes: Probes | None
) -> None:
    names = ", ".join(spec.name for spec in specs_of(apps))
    async with open_store(url) as hf:
        position = await latest_position(hf)
    last_words = "Stopped at once; another worker goes on with what was in the middle."
    with Stop(lambda: say(last_words, "yellow")) as stop:
        await _serve_until(stop, url, apps, settings, names, position, probes)


async def _serve_until(
    stop: Stop, url: str | None, apps: list[ModuleType | Agent[..., Any]], settings: Settings, names: str, position: int,
    probes: Probes | None,
) -> None:  # fmt: skip
    async with open_store(url, agents=apps, settings=settings) as hf:
        if probes is not None and hf._worker is not None:  # noqa: SLF001
            probes.health.watch(hf._worker)  # noqa: SLF001
            say(f"Health and metrics at {probes.url}/healthz, /readyz and /metrics.")
        say(f"Serving {names} from {hf.store.url}. Ctrl-C stops at a safe point.")
        await _report(hf, position, stop)
        busy, grace = sum(map(len, open_calls(hf).values())), f"{settings.stop_grace_s:g} s"
        steps = f"{busy} running step{'' if busy == 1 else 's'}"
        waiting = f" Waiting up to {grace} for {steps}; Ctrl-C again stops at once." if busy else ""
        say(f"Stopping.{waiting}", "yellow")
    say("Stopped at a safe point: every run was given back.")


async def _report(hf: Client, position: int, stop: Stop) -> None:
    """Print the events of the runs that are carried here, until asked to stop."""
    on, heard = console(stderr=True), asyncio.Event()
    carried: set[str] = set()
    mine: set[str] = set()

    def changed(_: object) -> None:
        # At a commit, before anyone hears of it: a run that ends with this very commit is still in memory.
        mine.update(carried_here(hf))
        heard.set()

    hf.store.on_change(changed)
    while True:
        heard.clear()
        gone = mine - carried_here(hf)  # all that these did here is in the feed already
        while page := await hf.store.feed(position, None):
            for event in page:
                position = event.position
                if event.run in mine and not is_quiet(event):
                    _print(on, line(event))
        here = carried_here(hf)
        mine.update(here)
        for run in sorted(carried - here):
            await _say_left(hf, on, run)
        carried = here
        mine -= gone - here
        if await first(stop, heard, 1.0):
            return


async def _say_left(hf: Client, on: Console, run: str) -> None:
    """A run that is no longer in memory and has not ended waits for something."""
    row = await hf.store.run(run)
    if row is not None and row.status in ("waiting", "paused"):
        told = f"waits for a {row.waits_for}" if row.status == "waiting" else f"paused: {row.reason}"
        _print(on, told_now(run, told))


def _print(on: Console, text: Text) -> None:
    on.print(text, soft_wrap=True)
    on.file.flush()
