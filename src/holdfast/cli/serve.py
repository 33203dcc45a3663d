"""`holdfast serve`: answers HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import sys
from typing import Any, Final

import click
from click.core import ParameterSource

from holdfast.cli.options import db_option, seconds_of, subcommand
from holdfast.cli.run import listen_to_logs
from holdfast.cli.signals import Stop
from holdfast.cli.stores import at_terminal
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import answer, say
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge, user
from holdfast.client.tokens import SCOPES
from holdfast.errors import BadArguments, HoldfastError, Unsupported
from holdfast.worker.settings import Settings

_GRACE_S: Final = 5.0


@subcommand()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address; any but this computer's needs a token."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8010, show_default=True, help="0: any free port.")
@click.option(
    "--deadline",
    "deadline_s",
    callback=seconds_of,
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long a request may wait for the store.",
)
@click.option(
    "--socket", "path", metavar="PATH", help="Listen at a Unix socket instead, for your account and root alone."
)
@click.option(
    "--url", "address", metavar="URL", envvar="HOLDFAST_SERVER_URL",
    help="How browsers reach it through a proxy that speaks TLS: https://agents.example.com. People sign in there.",
)  # fmt: skip
@click.option(
    "--oidc", metavar="URL", envvar="HOLDFAST_OIDC", help="A provider of OpenID Connect with which people sign in."
)
@click.option("--oidc-client", metavar="ID", envvar="HOLDFAST_OIDC_CLIENT",
              help="The id under which the provider knows it; $HOLDFAST_OIDC_SECRET has the secret, if there is one.")  # fmt: skip
@click.option("--oidc-grant", metavar="GROUP=SCOPES", multiple=True, envvar="HOLDFAST_OIDC_GRANTS",
              help="Let members of a group of the provider in: ops=read+write+decide; '*' is everybody. Repeatable.")  # fmt: skip
@click.option(
    "--oidc-name", metavar="TEXT", envvar="HOLDFAST_OIDC_NAME", help="The name of the provider on the button."
)
@click.option("--oidc-claims", metavar="NAME=CLAIM,...", default="", envvar="HOLDFAST_OIDC_CLAIMS",
              help="The claims that name people and their groups. Default: name=email,groups=groups.")  # fmt: skip
@click.option(
    "--limits",
    default="",
    metavar="NAME=VALUE,...",
    envvar="HOLDFAST_LIMITS",
    help="Limits of connections; default: connections=2000,address=200,token=1000,work=8,head=10s,body=30s,send=20s.",
)
@db_option
def serve(
    host: str, port: int, deadline_s: float, path: str | None, address: str | None, oidc: str | None, oidc_client: str | None,
    oidc_grant: tuple[str, ...], oidc_name: str | None, oidc_claims: str, limits: str, db: str | None,
) -> int:  # fmt: skip
    """Serve the store over HTTP until stopped.

    Clients start and follow runs, and people decide. The server carries no run: workers do that. Needs holdfast[server].

    Webhooks come in at /hooks/NAME; this server's environment has their secrets.

    The dashboard is at /, and the table of all paths at /api.

    Every other request needs a token. If the store has none, one is made for you, and a link is printed that opens a session in a
    browser.

    SIGTERM or Ctrl-C: clients that follow something are told to come back, and the exit code is 0. A second signal stops at once.
    """
    context, named = click.get_current_context(), (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    if path is not None and any(context.get_parameter_source(name) in named for name in ("host", "port")):
        raise click.UsageError("--socket is in the place of --host and --port: give one or the other")
    settings = Settings(deadline_s=deadline_s)
    server = server_module()
    known = server.Limits.parse(limits)
    provider = server.Provider.parse(
        oidc, oidc_client, oidc_grant, secret=os.environ.get("HOLDFAST_OIDC_SECRET", ""), label=oidc_name or "", claims=oidc_claims
    )  # fmt: skip
    listen_to_logs(logging.WARNING)
    with server.listening(host, port, path) as listener:
        asyncio.run(_serve(server, db, listener, settings, known, address, provider))
    return 0  # to be stopped is how a server ends


def server_module() -> Any:
    """Import what serves, or say what is missing."""
    try:
        from holdfast.http import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise BadArguments(
            f'a server needs {error.name}, which is not installed: pip install "holdfast[server]"'
        ) from None
    return server


async def _serve(
    server: Any, url: str | None, listener: socket.socket, settings: Settings, limits: Any, reached: str | None,
    provider: Any,
) -> None:  # fmt: skip
    with Stop(lambda: say("Stopped at once.", "yellow"), grace_s=_GRACE_S, late_code=0) as stop:
        codes = server.Codes()
        async with open_store(url, settings=settings) as hf, contextlib.AsyncExitStack() as life:
            if (why := Edge(hf).lacks.get("tokens")) is not None:
                raise Unsupported(
                    f"every request needs a token. {why}, or mount hf.asgi(auth=...) in an application that says who asks"
                )
            address = await life.enter_async_context(server.serving(hf, listener, limits, codes, reached, provider))
            for_browsers = f", for browsers at {reached}" if reached else ""
            say(f"Serving {Edge(hf).url} at {address}{for_browsers}. Ctrl-C stops.")
            if (server.is_local(listener) or reached) and listener.family != socket.AF_UNIX:
                await _invite(hf, codes, (reached or address).rstrip("/"))
            await stop.asked.wait()
            say("Stopping: clients that follow something come back by themselves.", "yellow")
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that requests are cut off now is no news
        say("Stopped.")


async def _invite(hf: Client, codes: Any, address: str) -> None:
    """Tell the user that started this server how to come in, where no other user of this computer reads it."""
    found, name = await hf.tokens(), user()
    if found:
        good = [each for each in found if each.name == name and each.is_good() and set(each.scopes) == set(SCOPES)]
        if not good:
            made = command("token", name)
            say(f"Every request needs a token: `{made}` makes one, and a link to open when you start again.")
            return
        token = good[-1]
    else:
        try:
            token, secret = await at_terminal(hf).create_token(name)
        except HoldfastError as error:
            say(f"Nobody can come in, because no token could be made: {error}", "yellow")
            return
        if sys.stdout.isatty():  # and not in a file or a log, where others look
            say(f"This store had no token. This one, of {name}, is for your programs. It is shown once:")
            answer(secret)
        else:
            say(
                f"This store had no token, and has one of {name} now; `holdfast token NAME` makes others, for programs."
            )
    if others_read():
        say(
            "For a link that opens a session in a browser, start it at a terminal: others may read what is written here."
        )
    else:
        say(f"In a browser, once and within a minute: {link_for(codes, address, token.id)}")


def link_for(codes: Any, address: str, token: str) -> str:
    """Make the link that opens a session of a token, once and within a minute."""
    return f"{address}/#code={codes.code(token)}"


def others_read() -> bool:
    """Does what is said go to a file that other accounts may read, or to the journal of the system?"""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    journal = os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return journal or bool(stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_IRGRP | stat.S_IROTH))
