"""A small file system that tests can fill up."""

import contextlib
import os
import shutil
import subprocess

import pytest


def unavailable(what):
    """Skip with the reason; in CI, where it must work, fail instead."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; set up the CI so that this test can run")
    pytest.skip(f"NOT TESTED: {what}")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        unavailable("a small file system cannot be mounted (are you root?)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def full(folder):
    """Take all the room there is, and give it back."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()
