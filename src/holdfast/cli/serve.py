"""`holdfast serve`: answers HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
import stat
import sys
from typing import Any, Final

from holdfast.cli.run import listen_to_logs
from holdfast.cli.signals import Stop
from holdfast.cli.view.console import answer, say, user
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.tokens import SCOPES
from holdfast.errors import BadArguments, HoldfastError
from holdfast.words.durations import seconds
from holdfast.words.people import Actor
from holdfast.worker.settings import Settings

_GRACE_S: Final = 5.0


def serve(url: str | None, host: str, port: int, path: str | None, deadline: str, limits: str) -> int:
    """The command; returns its exit code."""
    settings = Settings(deadline_s=seconds(deadline))
    server = _server()
    known = server.Limits.parse(limits)
    listen_to_logs(logging.WARNING)
    with server.listening(host, port, path) as listener:
        asyncio.run(_serve(server, url, listener, settings, known))
    return 0  # to be stopped is how a server ends


def _server() -> Any:
    try:
        from holdfast.http import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise BadArguments(
            f'a server needs {error.name}, which is not installed: pip install "holdfast[server]"'
        ) from None
    return server


async def _serve(server: Any, url: str | None, listener: socket.socket, settings: Settings, limits: Any) -> None:
    with Stop(lambda: say("Stopped at once.", "yellow"), grace_s=_GRACE_S, late_code=0) as stop:
        sessions = server.Sessions()
        async with open_store(url, settings=settings) as hf, server.serving(hf, listener, limits, sessions) as address:
            say(f"Serving {hf.store.url} at {address}. Ctrl-C stops.")
            if server.is_local(listener) and listener.family != socket.AF_UNIX:
                await _invite(hf, sessions, address)
            await stop.asked.wait()
            say("Stopping: whoever follows something comes back by itself.", "yellow")
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that requests are cut off now is no news
        say("Stopped.")


async def _invite(hf: Client, sessions: Any, address: str) -> None:
    """Tell the user who started this server how to come in, where nobody else of this computer reads it."""
    found, name = await hf.tokens(), user()
    if found:
        good = [each for each in found if each.name == name and each.is_good() and set(each.scopes) == set(SCOPES)]
        if not good:
            say(
                f"Who asks needs a token; `holdfast token {shlex.quote(name)}` makes one, and a link to open when you start again."
            )
            return
        token = good[-1]
    else:
        try:
            token, secret = await hf._through(Actor(name), f"cli:{name}").create_token(name)  # noqa: SLF001
        except HoldfastError as error:
            say(f"Nobody can come in, for no token could be made: {error}", "yellow")
            return
        if sys.stdout.isatty():  # and not in a file or a log, where others look
            say(f"This store had no token. This one, of {name}, is for your programs. It is shown once:")
            answer(secret)
        else:
            say(
                f"This store had no token, and has one of {name} now; `holdfast token NAME` makes others, for programs."
            )
    if _others_read():
        say(
            "For a link that opens a session in a browser, start it at a terminal: others may read what is written here."
        )
    else:
        say(f"In a browser of this computer, once and within a minute: {address}/#code={sessions.code(token.id)}")


def _others_read() -> bool:
    """Does what is said go to a file that other accounts may read, or to the journal of the system?"""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    journal = os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return journal or bool(stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_IRGRP | stat.S_IROTH))
