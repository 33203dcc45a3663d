"""The store suite: every test here runs on every store in `STORES`. A new store is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.scenes import Place

from holdfast.store.sqlite import SQLiteStore

STORES = {
    "sqlite": (SQLiteStore.from_url, lambda folder: f"sqlite:{folder / 'runs.db'}"),
}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty database of one kind, which a test may open as often as it likes."""
    connect, url = STORES[request.param]
    return Place(connect, url(tmp_path))
