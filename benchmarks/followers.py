"""22. Readers of one run over HTTP: a server process, a worker process, and hundreds of event streams that are read here.

What is measured is from the end of a step's body to its event in the hands of a reader, with the commit between the two. All
processes read the same monotonic clock: the step returns the moment its body ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from across_processes import worker
from measured_agents import listener, ticking
from measuring import Bench, Row, finished, latency, percentile
from postgres_here import postgres

import holdfast

READERS, RATE, SECONDS = 200, 50, 30
DELIVERY_S = 0.250
IDLE, RSS_MB = 1_000, 150
MESSAGE = re.compile(rb"id: (\d+)\ndata: .*?\n\n")


def measure(bench: Bench) -> Iterator[Row]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if most == resource.RLIM_INFINITY else min(most, 8_192), most))
    with bench.place() as folder:
        yield from rows(bench, "SQLite", f"sqlite:{folder / 'bench.db'}")
    with postgres(bench) as server:
        yield from rows(bench, "PostgreSQL", server.url)


def rows(bench: Bench, name: str, url: str) -> Iterator[Row]:
    readers, events = bench.size(READERS, 20), bench.size(SECONDS * RATE, RATE)
    with worker(url, 60.0), serving(url) as site:
        waits, wrong, spent_us = finished(read(site, url, readers, events))
    told = f"{latency(waits)}, greatest {max(waits) * 1000:.0f} ms"
    yield Row(22, f"{name}: {readers} readers of a run with {RATE} events a second", told,
              f"{spent_us:.0f} µs of the server's processor each", f"p99 < {DELIVERY_S * 1000:g} ms",
              percentile(waits, 99) < DELIVERY_S)  # fmt: skip
    yield Row(22, "events that one of them lost, or had twice", f"{wrong} of {len(waits):,}", "", "none", wrong == 0)
    idle = bench.size(IDLE, 50)
    with worker(url, 0.0), serving(url) as site:
        before_mb, after_mb = finished(wait(site, url, idle))
    yield Row(22, f"{name}: memory of the server with {idle:,} followers of a run in which nothing happens",
              f"{after_mb:.0f} MB ({before_mb:.0f} MB with one)",
              f"{(after_mb - before_mb) * 1000 / (idle - 1):.1f} kB for each", f"< {RSS_MB} MB",
              after_mb < RSS_MB)  # fmt: skip


class Site:
    """A server in a process of its own."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid, self.port, self.token = pid, port, ""

    @property
    def resident_mb(self) -> float:
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

    @property
    def worked_s(self) -> float:
        user, system = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    async def history(self, run: str) -> list[dict[str, Any]]:
        """Every event of a run."""
        found: list[dict[str, Any]] = []
        while page := (await asyncio.to_thread(self.get, f"/api/runs/{run}/events?limit=1000&after={len(found)}"))[
            "events"
        ]:
            found += page
        return found


@contextmanager
def serving(url: str) -> Iterator[Site]:
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--db", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if "http://" in line)
            yield Site(process.pid, int(re.search(r"http://127\.0\.0\.1:(\d+)", said)[1]))  # type: ignore[index]
        finally:
            process.terminate()


class Reader(asyncio.Protocol):
    """Somebody who follows a run: which events came, and when."""

    def __init__(self, asked: bytes) -> None:
        self._asked, self._rest = asked, b""
        self.got: list[tuple[int, float]] = []
        self.begun, self.over = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        now, self._rest, end = monotonic(), self._rest + data, 0
        if not self.begun.is_set() and b"retry: " in self._rest:
            assert self._rest.startswith(b"HTTP/1.1 200"), self._rest[:300]
            self.begun.set()
        for found in MESSAGE.finditer(self._rest):
            self.got.append((int(found[1]), now))
            end = found.end()
        self._rest = self._rest[end:]
        if b"event: end" in self._rest:
            self.over.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.begun.set()
        self.over.set()


@asynccontextmanager
async def following(site: Site, run: str, number: int) -> AsyncIterator[list[Reader]]:
    """So many who follow a run, each of whom the server has answered."""
    loop, readers, lines = asyncio.get_running_loop(), [], []
    asked = (
        f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {site.token}\r\n\r\n"
    ).encode()
    try:
        for _ in range(number):
            transport, reader = await loop.create_connection(lambda: Reader(asked), "127.0.0.1", site.port)
            lines.append(transport)
            readers.append(reader)
            await reader.begun.wait()
        yield readers
    finally:
        for each in lines:
            each.abort()


async def read(site: Site, url: str, readers: int, events: int) -> tuple[list[float], int, float]:
    """How long each event took to each reader; how many were lost or came twice; what each cost the server."""
    async with holdfast.open(url) as hf:
        site.token = (await hf.create_token("ana"))[1]
        run = await hf.start(ticking, events, RATE)
        async with following(site, run.id, readers) as here:
            await run.send("ping", 1)
            worked_s = site.worked_s
            await asyncio.gather(*[each.over.wait() for each in here])
            worked_s = site.worked_s - worked_s
        history = await site.history(run.id)
    ticks = [event for event in history if (event["key"] or "").startswith("tick#")]
    moments = {event["seq"] + 1: float(event["preview"]) for event in ticks}
    assert len(moments) == events
    wrong = sum(len({event["seq"] + 1 for event in history} ^ {id for id, _ in each.got}) for each in here)
    wrong += sum(len(each.got) - len({id for id, _ in each.got}) for each in here)
    waits = [at - moments[id] for each in here for id, at in each.got if id in moments]
    return waits, wrong, worked_s / len(waits) * 1e6


async def wait(site: Site, url: str, number: int) -> tuple[float, float]:
    """What the server holds, in MB: with one follower, and with so many."""
    async with holdfast.open(url) as hf:
        site.token = (await hf.create_token("ben"))[1]
        run = await hf.start(listener, 1)
        await run.wait("waiting")
        async with following(site, run.id, 1):
            await asyncio.sleep(2.0)
            before_mb = site.resident_mb
            async with following(site, run.id, number - 1) as here:
                await asyncio.sleep(20.0)  # signs of life have come to each
                assert not any(each.over.is_set() for each in here)
                return before_mb, site.resident_mb
