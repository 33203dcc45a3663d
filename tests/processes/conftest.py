"""Processes for tests: each worker of pytest has one fork server; each test's processes end with the test."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
from tests.processes.forks import Forks, Server
from tests.processes.ledger import Place

if sys.platform != "linux":  # they look into /proc, and the fork server needs a kind of socket that others have not
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def fork_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, if possible: a killed process leaves the same there as on a disk, and it is quicker."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="holdfast-") as name:
        yield Path(name)


@pytest.fixture
def forks(fork_server, folder):
    """Starts processes; what is left of them when the test ends is killed."""
    starts = Forks(fork_server, folder)
    yield starts
    starts.close()


@pytest.fixture
def place(folder):
    """A store and a ledger that several processes share."""
    return Place(folder)
