"""`holdfast serve`: answers HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final

from holdfast.cli.output import say
from holdfast.cli.running import listen_to_logs
from holdfast.cli.stopping import Stop
from holdfast.client import open as open_store
from holdfast.durations import seconds
from holdfast.errors import BadArguments
from holdfast.worker.settings import Settings

_GRACE_S: Final = 5.0


def serve(url: str | None, host: str, port: int, deadline: str, limits: str) -> int:
    """The command; returns its exit code."""
    settings = Settings(deadline_s=seconds(deadline))
    server = _server()
    known = server.Limits.parse(limits)
    listen_to_logs(logging.WARNING)
    with server.listening(host, port) as listener:
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
        async with open_store(url, settings=settings) as hf, server.serving(hf, listener, limits) as address:
            say(f"Serving {hf.store.url} at {address}. Ctrl-C stops.")
            await stop.asked.wait()
            say("Stopping: whoever follows something comes back by itself.", "yellow")
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that requests are cut off now is no news
        say("Stopped.")
