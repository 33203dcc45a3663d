"""What the whole session shares: fixtures for every folder, and where tests and their processes keep what they make."""

import os
import shutil
import sys
import tempfile

from tests.cli.processes import terminal  # noqa: F401 - a fixture
from tests.disks import small_disk  # noqa: F401 - a fixture
from tests.nightly import pytest_collection_modifyitems  # noqa: F401 - a hook
from tests.servers import own_server, postgres_server, postgres_url, store_url  # noqa: F401 - fixtures
from tests.warm import commands  # noqa: F401 - a fixture

# Tests start hundreds of processes, and each would compile the package anew if none may keep what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In memory, if there is room: a killed process leaves the same there as on a disk, and no test waits for one. What a loss of
# power leaves is tested on a record of all writes.
MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


def pytest_xdist_auto_num_workers(config):
    """More than processors: tests of several processes wait, for those and for time, half as long as they work."""
    return os.cpu_count() + 1
