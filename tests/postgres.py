"""A real PostgreSQL for tests: one server for the whole session, an empty database for each test.

`HOLDFAST_TEST_POSTGRES` names a server to use instead, as somebody who may create databases. Without it the first process of the
session that needs one starts it, and the last one to leave stops it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.chaos.server import Server

import holdfast.client.client

_connect = asyncpg.connect  # as it is: a test may put its own in that place
NEVER_FLUSH = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """The URL of the server that all processes of this test session share."""
    known = folder / "postgres.json"
    with _held(folder):
        state = json.loads(known.read_text()) if known.exists() else {"users": 0}
        if not state["users"]:
            place = tempfile.mkdtemp(prefix="holdfast-postgres-")
            server = Server(Path(place) / "cluster")
            server.create()
            server.start(NEVER_FLUSH)
            state = {"users": 0, "url": server.url, "pid": server._process.pid, "place": place}
            server._process.returncode = 0  # whoever is the last stops it: not our child to wait for
        state["users"] += 1
        known.write_text(json.dumps(state))
    try:
        yield state["url"]
    finally:
        with _held(folder):
            state = json.loads(known.read_text())
            state["users"] -= 1
            known.write_text(json.dumps(state))
            if not state["users"]:
                _stop(state["pid"])
                shutil.rmtree(state["place"])


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGQUIT)  # nothing in it is wanted any more
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:  # another process of the session had started it
            status = Path(f"/proc/{pid}/stat")
            if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.02)


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
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    with shared_server(folder) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL of an empty schema in a database of its own: what a server does grows with the tables of a database.

    A list of events waits for transactions of the whole server, and those of other tests may be long.
    """
    monkeypatch.setattr(holdfast.client.client, "_IN_FLIGHT_S", 60.0)
    name = f"test_{secrets.token_hex(6)}"
    _tell(postgres_server, f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
    parts = urlsplit(postgres_server)
    mark = "&" if parts.query else ""
    yield parts._replace(path=f"/{name}", query=f"{parts.query}{mark}schema={name}").geturl()
    _tell(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


def _tell(server: str, statement: str) -> None:
    async def tell() -> None:
        connection = await _connect(server)
        await connection.execute(statement)
        await connection.close()

    with ThreadPoolExecutor(1) as aside:  # the test may have a loop here
        aside.submit(lambda: asyncio.run(tell())).result()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'holdfast.db'}?durability=process"
    url: str = request.getfixturevalue("postgres_url")
    return url
