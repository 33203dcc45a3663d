"""Two cells for tests: two schemas of the server that all tests share, or two servers of our own that a test may kill."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.server import Server


def written(path: Path, urls: dict[str, str], slots: dict[str, str] | None = None) -> str:
    """Write a file of cells; returns the URL that names it."""
    divided = slots or {
        name: f"{1024 * n // len(urls)}-{1024 * (n + 1) // len(urls) - 1}" for n, name in enumerate(urls)
    }
    path.write_text(
        "".join(f'[cells.{name}]\nurl = "{url}"\nslots = "{divided[name]}"\n' for name, url in urls.items())
    )
    return f"cells:{path}"


@pytest.fixture
def cell_urls(postgres_server: str) -> dict[str, str]:
    """The URLs of two empty databases, for the cells a and b."""
    mark, word = "&" if "?" in postgres_server else "?", secrets.token_hex(5)
    return {name: f"{postgres_server}{mark}schema=test_{word}_{name}" for name in "ab"}


@pytest.fixture
def cells_url(cell_urls: dict[str, str], tmp_path: Path) -> str:
    """The URL of two cells that share the slots."""
    return written(tmp_path / "cells.toml", cell_urls)


@pytest.fixture
def own_servers() -> Iterator[dict[str, Server]]:
    """Two servers, for the cells a and b."""
    with tempfile.TemporaryDirectory(prefix="holdfast-postgres-") as place:
        servers = {name: Server(Path(place) / name) for name in "ab"}
        for server in servers.values():
            server.create()
            server.start(("shared_buffers=32MB",))
        yield servers
        for server in servers.values():
            server.stop()


@pytest.fixture
def own_cells_url(own_servers: dict[str, Server], tmp_path: Path) -> str:
    """The URL of two cells, each a server of its own."""
    return written(tmp_path / "cells.toml", {name: server.url for name, server in own_servers.items()})
