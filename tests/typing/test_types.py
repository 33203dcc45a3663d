"""What users write is checked by mypy and pyright: their types pass through ours, and their mistakes are found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.typing import stub

import holdfast

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join([str(Path(holdfast.__file__).parents[1]), str(ROOT)])
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in Path(__file__).parent.glob("*.py")
    if path.name not in (Path(__file__).name, "stub.py")
)


def _checked(command: list[str], **variables: str) -> str:
    """What a checker says; nothing when all is well."""
    made = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return "" if made.returncode == 0 else made.stdout + made.stderr


def test_the_stub_of_the_sync_client_is_that_of_the_async_one() -> None:
    """Whoever changes the client makes it anew: `python -m tests.typing.stub`."""
    assert stub.STUB.read_text("utf-8") == stub.stub()


@pytest.mark.nightly  # by day `make types` does the same
@pytest.mark.timeout(300)
def test_mypy_sees_the_types() -> None:
    """Strict, with every expected error in its place and none besides; without our own settings, as users have it."""
    pytest.importorskip("mypy")
    options = [
        "--config-file=",
        "--strict",
        "--explicit-package-bases",
        "--python-version=3.11",
        "--follow-imports=silent",
        f"--cache-dir={os.devnull}",  # to write one takes as long as to check
    ]
    assert not _checked([sys.executable, "-m", "mypy", *options, *FILES], MYPYPATH=PATHS)


@pytest.mark.nightly  # as above
@pytest.mark.timeout(300)
def test_pyright_sees_the_types() -> None:
    """The same in pyright's strict mode; its settings are in pyproject.toml."""
    beside = Path(sys.executable).with_name("pyright")
    pyright = str(beside) if beside.exists() else shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    assert not _checked([pyright, "--pythonpath", sys.executable, *FILES], PYTHONPATH=PATHS)
