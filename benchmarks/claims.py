"""11. Claims on PostgreSQL among very many runs: 100,000 that wait, 10,000 that are ready."""

from __future__ import annotations

import asyncio
import time

import asyncpg
from measuring import Bench, Row, finished
from postgres_here import postgres

from holdfast.store.urls import store_at

P99_S = 0.005
FILL = """
INSERT INTO runs (id, status, due_at, uid, agent, input, queue, root_id, labels, created_at, updated_at)
SELECT 'run-' || n, CASE WHEN n <= $1 THEN 'ready' ELSE 'waiting' END, CASE WHEN n <= $1 THEN n END,
       'uid', 'agent', '{}', 'default', 'run-' || n, '{}', n, n
FROM generate_series(1, $1::bigint + $2::bigint) AS n
"""


def measure(bench: Bench) -> list[Row]:
    ready, waiting, claims = bench.size(10_000, 200), bench.size(100_000, 2_000), bench.size(1_000, 20)
    with postgres(bench) as server:
        found = finished(claimed(server.url, ready, waiting, claims))
    rows = []
    for limit, seconds in found.items():
        p50, p99 = (sorted(seconds)[round(share * (len(seconds) - 1))] for share in (0.5, 0.99))
        text = f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms, n={len(seconds)}"
        rows.append(Row(11, f"PostgreSQL: claim {limit} of {ready:,} ready runs, {waiting:,} wait", text, "",
                        f"p99 < {P99_S * 1000:g} ms", p99 < P99_S))  # fmt: skip
    return rows


async def claimed(url: str, ready: int, waiting: int, claims: int) -> dict[int, list[float]]:
    """How long claims took, by how many runs each might take."""
    store = store_at(url)
    await store.open()
    db = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
    found: dict[int, list[float]] = {}
    for limit in (1, 10):
        await db.execute("TRUNCATE runs CASCADE")
        await db.execute(FILL, ready, waiting)
        await db.execute("ANALYZE runs")
        found[limit] = []
        for _ in range(min(claims, ready // limit)):
            began = time.perf_counter()
            await store.claim(["agent"], limit, 600_000, sure=True)
            found[limit].append(time.perf_counter() - began)
            await asyncio.sleep(0)
    await db.close()
    await store.close()
    return found
