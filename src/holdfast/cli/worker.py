"""`holdfast worker`: serves agents until it is stopped, and says what it does."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
from types import ModuleType
from typing import Any, Final, Self

import click

from holdfast.cli.agents import load_apps
from holdfast.cli.options import age_of, db_option, subcommand, words
from holdfast.cli.run import listen_to_logs
from holdfast.cli.signals import Stop, leave, leave_if_held
from holdfast.cli.view.console import console, say
from holdfast.cli.view.lines import line, told_now
from holdfast.cli.view.screen import Text
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge
from holdfast.declare import Agent
from holdfast.words.events import is_quiet
from holdfast.words.model import Event
from holdfast.worker.agents import specs_of, triggers_of
from holdfast.worker.health import Probes, listening
from holdfast.worker.settings import Settings

_LOUD: Final = ("aio_pika", "aiormq")  # log each try to reach a broker that is away, which the worker tells once
_MOST_LINES: Final = 1_000  # that wait to be printed: a slow terminal must not cost memory, nor hold up the runs


@subcommand()
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@click.option("--concurrency", type=click.IntRange(1), default=200, show_default=True, help="Runs in memory at once.")
@click.option("--queues", metavar="A,B", callback=words, help="Serve only runs of these queues. Default: all.")
@click.option("--grace", "stop_grace_s", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
              help="How long running steps may go on when the worker is told to stop.")  # fmt: skip
@click.option("--lease", "lease_ttl_s", type=click.FloatRange(1), default=10.0, show_default=True, metavar="SECONDS",
              help="Others take its runs over after so long without a sign of life.")  # fmt: skip
@click.option("--name", default="", metavar="NAME", help="Prefix for the worker's id, as shown in histories.")
@click.option("--code-version", "version", metavar="TEXT", envvar="HOLDFAST_CODE_VERSION",
              help="The version of the code, for people: `doctor` shows which ones run.")  # fmt: skip
@click.option("--audit-retention", "audit_retention_s", metavar="TIME", callback=age_of,
              help="Erase values in the audit that are older than this, 90d for example. Default: they stay.")  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Answer /healthz, /readyz and /metrics here; 0: any free port."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address of --port; 0.0.0.0 for a cluster's probes."
)
@click.option("--quiet", is_flag=True, help="Do not print what runs do; warnings and errors are still printed.")
@db_option
def worker(apps: tuple[str, ...], host: str, port: int | None, quiet: bool, db: str | None, **behaviour: Any) -> int:
    """Serve the agents of modules or files until stopped.

    SIGTERM or Ctrl-C: nothing more is begun, running steps may end within the grace, every run is given back as soon as it
    can be, and the exit code is 0. A second signal stops at once.
    """
    found, settings = load_apps(apps), Settings(**behaviour)  # the options are fields of it
    listen_to_logs(logging.WARNING)
    for driver in map(logging.getLogger, _LOUD):
        if driver.level == logging.NOTSET:
            driver.setLevel(logging.CRITICAL)
    gc.collect()
    gc.freeze()  # loaded code stays, and all runs would wait while the collector looks at it again and again
    with listening(host, port) as probes:  # a port that is in use is told before any run is claimed
        asyncio.run(_serve(db, found, settings, probes, quiet=quiet))
    leave_if_held(0)
    return 0  # to be stopped is how a worker ends


async def _serve(
    url: str | None, apps: list[ModuleType | Agent[..., Any]], settings: Settings, probes: Probes | None, *, quiet: bool
) -> None:
    names = ", ".join(spec.name if spec.version is None else f"{spec.name} {spec.version}" for spec in specs_of(apps))
    report = Report()
    observed = settings if quiet else dataclasses.replace(settings, observer=report)
    last_words = "Stopped at once; another worker goes on with what was in the middle."
    with Stop(lambda: say(last_words, "yellow"), grace_s=settings.stop_grace_s, late_code=0) as stop:
        async with report, open_store(url, agents=apps, settings=observed) as hf:
            edge = Edge(hf)
            on_temporal = edge.url.startswith("temporal:")
            if probes is not None:
                edge.show_worker(probes.health.watch)
                say(f"Health and metrics at {probes.url}/healthz, /readyz and /metrics.")
            of = f" of {', '.join(settings.queues)}" if settings.queues else ""
            named = f" as {edge.worker_id}" if settings.name else ""
            say(f"Serving {names or 'no agents'}{of} from {edge.url}{named}. Ctrl-C stops at a safe point.")
            if triggers := triggers_of(apps):
                say(f"Triggers: {', '.join(f'{each.name} ({each.kind})' for each in triggers)}.")
            await stop.asked.wait()
            busy, grace = sum(map(len, edge.open_calls().values())), f"{settings.stop_grace_s:g} s"
            steps = f"{busy} running step{'' if busy == 1 else 's'}"
            waiting = f" Waiting up to {grace} for {steps}; Ctrl-C again stops at once." if busy else ""
            say(f"Stopping.{waiting}", "yellow")
        say("Stopped at a safe point: every run was given back.")
        if on_temporal:  # threads of its SDK may keep a process whose cluster is away, and nothing is left to do
            leave(0)


class Report:
    """Prints what the runs carried here do, as it becomes durable, in a thread: the loop has better things to do."""

    def __init__(self) -> None:
        self._on = console(stderr=True)
        self._waiting: list[Event | Text] = []
        self._left_out, self._over = 0, False
        self._heard = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._printing = asyncio.get_running_loop().create_task(self._print())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        self._heard.set()
        await self._printing

    def recorded(self, event: Event) -> None:
        if not is_quiet(event):
            self._keep(event)

    def left(self, run: str, status: str, why: str) -> None:
        self._keep(told_now(run, f"waits for a {why}" if status == "waiting" else f"paused: {why}"))

    def _keep(self, what: Event | Text) -> None:
        if len(self._waiting) < _MOST_LINES:
            self._waiting.append(what)
            self._heard.set()
        else:
            self._left_out += 1

    async def _print(self) -> None:
        while self._waiting or not self._over:
            await self._heard.wait()
            self._heard.clear()
            waiting, self._waiting = self._waiting, []
            left_out, self._left_out = self._left_out, 0
            await asyncio.to_thread(self._print_these, waiting, left_out)

    def _print_these(self, waiting: list[Event | Text], left_out: int) -> None:
        for each in waiting:
            self._on.print(each if isinstance(each, Text) else line(each), soft_wrap=True)
        if left_out:
            self._on.print(Text(f"{left_out} more events came too quickly to be printed", "dim"), soft_wrap=True)
        self._on.file.flush()
