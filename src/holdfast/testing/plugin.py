"""The pytest fixture: `async with holdfast_open(agents=[...]) as hf` inside a test."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def holdfast_open(tmp_path: Any) -> Any:
    """`holdfast.testing.open`, with its file in the test's own folder: `async with holdfast_open(agents=[...]) as hf`."""
    import functools

    import holdfast.testing

    return functools.partial(holdfast.testing.open, path=tmp_path / "holdfast.db")
