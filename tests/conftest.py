"""What the whole session shares."""

import os
import sys

from tests.cli.processes import terminal  # noqa: F401 - a fixture
from tests.servers import own_server, postgres_server, postgres_url, store_url  # noqa: F401 - fixtures
from tests.warm import commands  # noqa: F401 - a fixture

# Tests start hundreds of processes, and each would compile the package anew if none may keep what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
