"""Servers that all processes of a test session share: the first that needs one starts it, the last one to leave stops it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def shared(
    tmp_path_factory: pytest.TempPathFactory, name: str, start: Callable[[Path], dict[str, Any]], end: signal.Signals
) -> Iterator[dict[str, Any]]:
    """What `start` told of the server that it started in a folder: its `pid`, and where it is. `end` stops it."""
    session = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        session = session.parent
    known = session / f"{name}.json"
    with _held(known):
        state = json.loads(known.read_text()) if known.exists() else {"users": 0}
        if not state["users"]:
            place = tempfile.mkdtemp(prefix=f"holdfast-{name}-")
            state = {"users": 0, "place": place, "said": start(Path(place))}
        state["users"] += 1
        known.write_text(json.dumps(state))
    try:
        yield state["said"]
    finally:
        with _held(known):
            state = json.loads(known.read_text())
            state["users"] -= 1
            known.write_text(json.dumps(state))
            if not state["users"]:
                _stop(state["said"]["pid"], end)
                shutil.rmtree(state["place"], ignore_errors=True)


@contextmanager
def _held(known: Path) -> Iterator[None]:
    with known.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stop(pid: int, end: signal.Signals) -> None:
    os.kill(pid, end)  # nothing in it is wanted any more
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:  # another process of the session had started it
            status = Path(f"/proc/{pid}/stat")
            if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.02)
