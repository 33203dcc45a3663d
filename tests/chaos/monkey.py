"""What goes wrong while the fleet works, drawn from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.proxy import Proxy
from tests.chaos.server import Server

ROOT = Path(__file__).parents[2]


class Fleet:
    """Worker processes that are started again when they are gone."""

    def __init__(self, url: str, size: int, folder: Path, lease_s: float) -> None:
        self._url, self._folder, self._lease_s = url, folder, lease_s
        self._workers: list[subprocess.Popen[bytes]] = []
        self._stopped: set[int] = set()
        self.size, self.started = size, 0

    def fill(self) -> None:
        """Start as many as are missing."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < self.size:
            self.started += 1
            command = [sys.executable, "-m", "holdfast", "--db", self._url, "worker", "tests/chaos/agents.py"]
            environment = os.environ | {
                "CHAOS_LEDGER": str(self._folder / "ledger"),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            }
            with (self._folder / "workers.log").open("ab") as log:
                options = ["--lease", str(self._lease_s), "--grace", "5"]
                made = subprocess.Popen([*command, *options], cwd=ROOT, env=environment, stdout=log, stderr=log)
            self._workers.append(made)

    def kill(self, rng: random.Random) -> None:
        rng.choice(self._workers).kill()
        self.fill()

    async def stop_beyond_lease(self, rng: random.Random) -> None:
        """SIGSTOP until its leases are over and others have its runs, then SIGCONT."""
        awake = [worker for worker in self._workers if worker.pid not in self._stopped]
        if len(awake) < 3:
            return
        worker = rng.choice(awake)
        self._stopped.add(worker.pid)
        worker.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._lease_s + rng.uniform(1, 2))
        finally:
            worker.send_signal(signal.SIGCONT)
            self._stopped.discard(worker.pid)

    def terminate(self, rng: random.Random) -> None:
        """As a deploy does: SIGTERM, and another one in its place."""
        worker = rng.choice(self._workers)
        worker.terminate()
        self._workers.remove(worker)
        self._leaving = [*getattr(self, "_leaving", []), worker]
        self.fill()

    def explain(self) -> None:
        """Have each say in the log what its tasks wait for."""
        for worker in self._workers:
            worker.send_signal(signal.SIGUSR1)
        time.sleep(1)

    def end(self) -> None:
        for worker in [*self._workers, *getattr(self, "_leaving", [])]:
            worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()


async def faults(fleet: Fleet, server: Server | None, proxy: Proxy | None, rng: random.Random, seconds: float,
                 say: Callable[[str], None]) -> Counter[str]:  # fmt: skip
    """Break things at random moments until the time is over; how often each was done."""
    done: Counter[str] = Counter()
    asleep: set[asyncio.Task[None]] = set()
    until = time.monotonic() + seconds
    kinds = ["kill -9 a worker"] * 4 + ["SIGSTOP beyond the lease"] * 3 + ["SIGTERM a worker"] * 2
    if proxy is not None:
        kinds += ["cut connections"] * 4 + ["cut at random bytes for a while"] * 2
    if server is not None:
        kinds += ["kill -9 PostgreSQL"] * 2
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, rng.expovariate(1 / 0.8)))
        fleet.fill()
        kind = rng.choice(kinds)
        done[kind] += 1
        say(kind)
        if kind == "kill -9 a worker":
            fleet.kill(rng)
        elif kind == "SIGTERM a worker":
            fleet.terminate(rng)
        elif kind == "SIGSTOP beyond the lease":
            task = asyncio.create_task(fleet.stop_beyond_lease(rng))
            asleep.add(task)
            task.add_done_callback(asleep.discard)
        elif kind == "cut connections" and proxy is not None:
            proxy.reset(rng.choice([0.2, 0.5, 1.0]))
        elif kind == "cut at random bytes for a while" and proxy is not None:
            proxy.budget = rng.choice([5_000, 50_000])
            proxy.reset(1.0)
            await asyncio.sleep(rng.uniform(0.5, 2))
            proxy.budget = None
        elif server is not None:
            server.kill()
            await asyncio.sleep(rng.uniform(0, 1))
            await asyncio.to_thread(server.start)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*asleep)
    fleet.fill()
    return done
