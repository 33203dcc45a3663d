"""A worker's probes while somebody holds connections to them."""

import time
from pathlib import Path

import pytest
from tests.security import agents

from holdfast.worker import health


@pytest.fixture
def worker(target):
    return target("worker", agents.__file__, "--port", "0")


def test_pages_of_other_sites_read_nothing(worker):
    """Neither health nor numbers; a browser that was led there by its user does."""
    for path in ("/healthz", "/readyz", "/metrics", "/"):
        assert (
            worker.ask(path, Sec_Fetch_Site="cross-site")[0] == worker.ask(path, Sec_Fetch_Site="same-site")[0] == 403
        )
    assert worker.ask("/healthz", Sec_Fetch_Site="none")[0] == 200


def test_silent_connections_keep_no_probe_from_its_answer(worker):
    """Two hundred that say nothing, or half a request: each probe is answered before the first of them has lost its time."""
    silent = [worker.connect() for _ in range(200)]
    for each in silent[::2]:
        each.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
    try:
        for path in ("/healthz", "/readyz", "/metrics") * 3:
            began = time.monotonic()
            status, headers, _ = worker.ask(path)
            assert (status in (200, 503), headers["x-content-type-options"]) == (True, "nosniff")
            assert time.monotonic() - began < health._REQUEST_S
        assert len(list(Path(f"/proc/{worker.process.pid}/fd").iterdir())) < 180
    finally:
        for each in silent:
            each.close()
