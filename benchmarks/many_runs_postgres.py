"""10. Many runs at once on PostgreSQL, in one worker process: against DBOS on the same server."""

from __future__ import annotations

import itertools
from statistics import median

from measuring import Bench, Row, alternating, finished, ratios, spread, told_by
from postgres_here import postgres
from rates import rate_at

TO_DBOS = 20.0
STEPS = 20


def measure(bench: Bench) -> list[Row]:
    runs, share, rounds = bench.size(500, 20), bench.size(100, 3), bench.size(5, 1)
    schemas = itertools.count()
    with postgres(bench) as server:
        found = alternating(
            rounds,
            ours=lambda: finished(rate_at(f"{server.url}?schema=round{next(schemas)}", runs, STEPS)),
            alone=lambda: finished(rate_at(f"{server.url}?schema=round{next(schemas)}", 1, bench.size(1000, 50))),
            dbos=lambda: float(told_by("dbos_peer.py", server.url, share, STEPS)["rate"]),
        )
    to_dbos = ratios(found["ours"], found["dbos"])
    return [
        Row(10, f"PostgreSQL: 1 run of {bench.size(1000, 50)} steps", spread(found["alone"], unit=" steps/s")),
        Row(10, f"PostgreSQL: {runs} runs of {STEPS} steps", spread(found["ours"], unit=" steps/s"),
            f"{median(found['ours']) / median(found['alone']):.1f} x one run"),
        Row(10, f"DBOS on the same server: {share} runs of {STEPS} steps, its rate taken for {runs}",
            spread(found["dbos"], unit=" steps/s"), f"ours is {spread(to_dbos, '.0f')} x", f">= {TO_DBOS:g} x",
            median(to_dbos) >= TO_DBOS),
    ]  # fmt: skip
