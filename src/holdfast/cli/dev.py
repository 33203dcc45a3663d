"""`holdfast dev`: a server with its page, and a worker beside it that is started again whenever it ends or its code changes.

The worker is a process of its own, as where it matters: kill it, and the page shows how a run goes on in the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from holdfast.cli.options import db_option, subcommand
from holdfast.cli.run import listen_to_logs
from holdfast.cli.serve import link_for, others_read, server_module
from holdfast.cli.signals import Stop
from holdfast.cli.stores import at_terminal
from holdfast.cli.view.console import say
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge, user
from holdfast.client.tokens import SCOPES
from holdfast.errors import BadArguments

_LOOK_S: Final = 0.5  # between looks whether the code has changed
_AGAIN_S: Final = 0.2  # before a worker that was killed has a successor
_GRACE_S: Final = 5.0
# The worker ends with this process, also where that is killed: Linux tells it.
_CHILD: Final = """
import contextlib, ctypes, os, signal, sys
with contextlib.suppress(Exception):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(0)
sys.argv = sys.argv[2:]
from holdfast.cli import main
main()
"""


@subcommand()
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@click.option("--port", type=click.IntRange(0, 65_535), default=8010, show_default=True,
              help="Of the page, on 127.0.0.1; another free one if it is in use, unless it is named.")  # fmt: skip
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="A group you are in, for questions to it. Repeatable."
)
@click.option("--no-open", is_flag=True, help="Open no browser; the link is printed.")
@db_option
def dev(apps: tuple[str, ...], port: int, groups: tuple[str, ...], no_open: bool, db: str | None) -> int:
    """Serve agents and the dashboard while you write them.

    APP is a file or module with agents, as of `holdfast worker`. The link that is printed opens a session in a browser, once and
    within a minute.

    The worker is started again when a file beside APP changes, and when it is killed: then another one goes on with its runs.
    Ctrl-C ends it all.
    """
    files = [_file(app) for app in apps]
    named = click.get_current_context().get_parameter_source("port") is ParameterSource.COMMANDLINE
    server = server_module()
    listen_to_logs(logging.WARNING)
    with _listening(server, port, named=named) as listener:
        worker = _Worker(apps, db, {file.parent for file in files})
        asyncio.run(_develop(server, listener, worker, groups, db, opens=not no_open))
    return 0


def _file(app: str) -> Path:
    """Find the file of an APP; `BadArguments` if there is none."""
    name = app.partition(":")[0]
    if name.endswith(".py"):
        path = Path(name)
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        path = Path(found.origin) if found is not None and found.origin else Path(name)
    if not path.is_file():
        raise BadArguments(f"{app!r} is no file and no module here; give a file with agents, such as agents.py")
    return path.resolve()


@contextlib.contextmanager
def _listening(server: Any, port: int, *, named: bool) -> Iterator[socket.socket]:
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(server.listening("127.0.0.1", port))
        except BadArguments:
            if named:
                raise
            listener = stack.enter_context(server.listening("127.0.0.1", 0))
        yield listener


async def _develop(
    server: Any, listener: socket.socket, worker: _Worker, groups: tuple[str, ...], db: str | None, *, opens: bool
) -> None:
    with Stop(worker.kill, grace_s=2 * _GRACE_S, late_code=0) as stop:
        codes = server.Codes()
        async with open_store(db) as hf, server.serving(hf, listener, None, codes) as address:
            say(f"Serving {Edge(hf).url} at {address}. Ctrl-C ends it all.")
            link = await _link(hf, codes, address, groups)
            if others_read():
                say("For a link that opens a session, start it at a terminal: others may read what is written here.")
            else:
                say(f"In a browser of this computer, once and within a minute: {link}")
            if opens:
                await asyncio.to_thread(webbrowser.open, link)
            await worker.keep(stop)
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that requests are cut off now is no news
        say("Stopped.")


async def _link(hf: Client, codes: Any, address: str, groups: tuple[str, ...]) -> str:
    """Make a link for the developer, with a token that may do all in these groups: one there is, or a new one."""
    name = user()
    found = [each for each in await hf.tokens() if each.name == name and each.is_good() and each.only is None]
    good = [each for each in found if set(each.scopes) == set(SCOPES) and set(groups) <= set(each.groups)]
    token = good[-1] if good else (await at_terminal(hf).create_token(name, groups=groups))[0]
    return link_for(codes, address, token.id)


class _Worker:
    """A worker process, and its successors."""

    def __init__(self, apps: tuple[str, ...], db: str | None, folders: set[Path]) -> None:
        words = ["worker", *apps, "--grace", str(_GRACE_S), *(() if db is None else ("--db", db))]
        self._command = [sys.executable, "-c", _CHILD, str(os.getpid()), "holdfast", *words]
        self._folders = folders
        self._process: asyncio.subprocess.Process | None = None

    def kill(self) -> None:
        """End it now, before this process ends."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        say("Stopped at once; the next start goes on with what was in the middle.", "yellow")

    async def keep(self, stop: Stop) -> None:
        """Have a worker until asked to stop."""
        while not stop.asked.is_set():
            seen = self._seen()
            # In a group of its own: Ctrl-C at a terminal asks this process, which asks the worker.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=subprocess.DEVNULL, process_group=0
            )
            say(f"The worker is process {self._process.pid}.", "dim")
            changed = await self._ends(stop, seen)
            if stop.asked.is_set():
                break
            if changed:
                say("The code has changed: the worker starts again.", "yellow")
                await self._stop()
                continue
            code = self._process.returncode or 0
            if code <= 0:
                how = f"was killed ({signal.Signals(-code).name})" if code else "has stopped"
                say(f"Worker {self._process.pid} {how}: another one goes on.", "yellow")
                await asyncio.sleep(_AGAIN_S)
            else:
                say("The worker cannot begin. It is tried again when the code changes.", "yellow")
                while not stop.asked.is_set() and self._seen() == seen:
                    await _first(stop.asked.wait(), _LOOK_S)
        await self._stop()

    async def _ends(self, stop: Stop, seen: dict[Path, int]) -> bool:
        """Wait until it ends, or it is to end; True if that is because the code has changed."""
        assert self._process is not None
        ended = asyncio.ensure_future(self._process.wait())
        try:
            while not stop.asked.is_set() and not ended.done():
                await _first(stop.asked.wait(), _LOOK_S, ended)
                if not ended.done() and self._seen() != seen:
                    return True
        finally:
            ended.cancel()
        return False

    async def _stop(self) -> None:
        """Ask it to stop at a safe point, and wait."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_GRACE_S + 4):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _seen(self) -> dict[Path, int]:
        """Note when each file of code beside the agents was written."""
        found = {}
        for folder in self._folders:
            for path in folder.glob("*.py"):
                with contextlib.suppress(OSError):
                    found[path] = path.stat().st_mtime_ns
        return found


async def _first(waiting: Any, timeout_s: float, *others: asyncio.Future[Any]) -> None:
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([task, *others], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
