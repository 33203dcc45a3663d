"""A real PostgreSQL for tests: one server for the whole session, an empty store in a database of its own for each test.

`HOLDFAST_TEST_POSTGRES` names a server to use instead, as somebody who may create databases.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.chaos.server import Server
from tests.sharing import shared

import holdfast.client.client

_connect = asyncpg.connect  # as it is: a test may put its own in that place
NEVER_FLUSH = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB")
TEMPLATE = "holdfast_template"


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may kill. Not in pytest's folder: each session closes that to other users, such as the server's."""
    with tempfile.TemporaryDirectory(prefix="holdfast-postgres-") as place:
        server = Server(Path(place) / "cluster")
        server.create()
        server.start(("shared_buffers=32MB",))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server; its database may be used by others too."""
    named = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if named:
        yield named
        return
    with shared(tmp_path_factory, "postgres", _start, signal.SIGQUIT) as said:
        yield said["url"]


def _start(place: Path) -> dict[str, Any]:
    server = Server(place / "cluster")
    server.create()
    server.start(NEVER_FLUSH)
    server._process.returncode = 0  # whoever is the last stops it: not our child to wait for
    _tell(server.url, f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
    _aside(_made(_at(server.url, TEMPLATE)))
    return {"url": server.url, "pid": server._process.pid}


@pytest.fixture
def postgres_url(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL of an empty store in a database of its own: what a server does grows with the tables of a database.

    It is a copy of a store that was made once. A list of events waits for transactions of the whole server, and those of other
    tests may be long.
    """
    monkeypatch.setattr(holdfast.client.client, "_IN_FLIGHT_S", 60.0)
    name = f"test_{secrets.token_hex(6)}"
    template = "template0" if os.environ.get("HOLDFAST_TEST_POSTGRES") else TEMPLATE
    _tell(postgres_server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield _at(postgres_server, name)
    _tell(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_nothing(postgres_url: str) -> str:
    """A URL of a schema that is not there yet."""
    return postgres_url.replace("schema=test", "schema=later")


def _at(server: str, database: str) -> str:
    parts = urlsplit(server)
    mark = "&" if parts.query else ""
    return parts._replace(path=f"/{database}", query=f"{parts.query}{mark}schema=test").geturl()


def _tell(server: str, statement: str) -> None:
    async def tell() -> None:
        connection = await _connect(server)
        await connection.execute(statement)
        await connection.close()

    _aside(tell())


async def _made(url: str) -> None:
    async with holdfast.open(url):
        """An empty store is all that is wanted."""


def _aside(doing: Coroutine[Any, Any, None]) -> None:
    with ThreadPoolExecutor(1) as aside:  # the test may have a loop here
        aside.submit(asyncio.run, doing).result()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'holdfast.db'}?durability=process"
    url: str = request.getfixturevalue("postgres_url")
    return url
