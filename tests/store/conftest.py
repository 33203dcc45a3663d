"""The store suite: every test here runs on every store in `STORES`. A new store is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.places import Place

from holdfast.store.urls import store_at

STORES = {
    "sqlite": lambda request: f"sqlite:{request.getfixturevalue('tmp_path') / 'runs.db'}",
    "postgres": lambda request: request.getfixturevalue("postgres_url"),
}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    """An empty database of one kind, which a test may open as often as it likes."""
    return Place(store_at, STORES[request.param](request))


@pytest.fixture
def file(tmp_path: Path) -> Place:
    """An empty SQLite file, for what is particular to files."""
    return Place(store_at, f"sqlite:{tmp_path / 'runs.db'}")


@pytest.fixture
def database(postgres_url: str) -> Place:
    """An empty store of PostgreSQL, for what is particular to it."""
    return Place(store_at, postgres_url)


@pytest.fixture
def nothing(postgres_nothing: str) -> Place:
    """A schema of PostgreSQL that is not there yet."""
    return Place(store_at, postgres_nothing)
