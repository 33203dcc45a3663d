"""A real Temporal server for tests: one for the whole session, on the loopback interface, a namespace for each process.

`own_cluster` is one that a test may kill and start again on its file.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.server import free_port
from tests.sharing import shared

WAIT_S = 150.0


class Cluster:
    """`temporal server start-dev` on a file."""

    def __init__(self, folder: Path, namespaces: Sequence[str] = ()) -> None:
        self.folder, self._namespaces = folder, namespaces
        self.port, self._others = free_port(), [free_port(), free_port()]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = str(Path(sys.executable).parent / "temporal")
        http, metrics = map(str, self._others)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--http-port", http,
                 "--metrics-port", metrics, "--db-filename", str(self.folder / "temporal.db"), "--log-level", "warn",
                 *[f"--namespace={name}" for name in self._namespaces]],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        asyncio.run(self._ready())

    async def _ready(self) -> None:
        from temporalio.client import Client

        end = time.monotonic() + WAIT_S
        while True:
            try:
                client = await Client.connect(f"127.0.0.1:{self.port}")
                await client.count_workflows()
                return
            except Exception:
                if time.monotonic() > end or self.process is None or self.process.poll() is not None:
                    raise RuntimeError(f"Temporal does not answer: {(self.folder / 'log').read_text()}") from None
                await asyncio.sleep(0.05)

    def kill(self) -> None:
        """End it with -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def url(self, namespace: str = "default", **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"temporal://127.0.0.1:{self.port}/{namespace}" + (f"?{query}" if query else "")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server that all tests share."""
    with shared(tmp_path_factory, "temporal", _start, signal.SIGKILL) as said:
        found = Cluster(Path(said["folder"]))
        found.port = said["port"]
        yield found


def _start(place: Path) -> dict[str, Any]:
    made = Cluster(place, [f"gw{number}" for number in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")))])
    made.start()
    assert made.process is not None
    made.process.returncode = 0  # whoever is the last stops it: not our child to wait for
    return {"pid": made.process.pid, "port": made.port, "folder": str(place)}


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server that a test may kill."""
    folder = tempfile.mkdtemp(prefix="holdfast-temporal-")
    made = Cluster(Path(folder))
    made.start()
    yield made
    made.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def temporal_url(cluster: Cluster) -> str:
    """A place of its own on the shared server: a namespace of this process, task queues with a name that nobody else has."""
    return cluster.url(os.environ.get("PYTEST_XDIST_WORKER", "default"), queue=f"t{secrets.token_hex(4)}")
