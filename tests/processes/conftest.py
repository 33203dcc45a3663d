"""Processes for tests: each worker of pytest has one fork server; each test's processes end with the test."""

import sys

import pytest
from tests.processes.conversation_workers import workers  # noqa: F401 - a fixture
from tests.processes.fleet import fleet  # noqa: F401 - a fixture
from tests.processes.forks import Forks, Server
from tests.processes.ledger import Place
from tests.processes.office import office  # noqa: F401 - a fixture

if sys.platform != "linux":  # they look into /proc, and the fork server needs a kind of socket that others have not
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def fork_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def forks(fork_server, tmp_path):
    """Starts processes; what is left of them when the test ends is killed."""
    starts = Forks(fork_server, tmp_path)
    yield starts
    starts.close()


@pytest.fixture
def place(tmp_path):
    """A store and a ledger that several processes share."""
    return Place(tmp_path)
