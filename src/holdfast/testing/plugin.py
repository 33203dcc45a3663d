"""The pytest fixture: `async with holdfast_open(agents=[...]) as hf` inside a test."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def holdfast_open(tmp_path: Any) -> Any:
    """Give a pytest test `holdfast.testing.open`, with its file in the test's own folder.

    Example:
        ```python
        def test_research(holdfast_open):
            async def main() -> str:
                async with holdfast_open(agents=[research]) as hf:
                    return await hf.run(research, "otters")

            assert asyncio.run(main()) == "published"
        ```
    """
    import functools

    import holdfast.testing

    return functools.partial(holdfast.testing.open, path=tmp_path / "holdfast.db")
