"""A PostgreSQL of our own on the disk under test, with its own defaults: every commit is flushed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from measuring import HERE, Bench

sys.path.append(str(HERE.parent))  # the server that the tests use

from tests.chaos.server import Server


@contextmanager
def postgres(bench: Bench) -> Iterator[Server]:
    with bench.place() as folder:
        server = Server(folder / "postgres")
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
