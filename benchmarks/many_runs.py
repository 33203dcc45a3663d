"""2. Many runs at once: against one run alone, and against DBOS on SQLite."""

from __future__ import annotations

from statistics import median

from measuring import Bench, Row, alternating, ratios, spread, told_by
from rates import holdfast_rate

TO_ONE_RUN, TO_DBOS = 4.0, 30.0
STEPS = 20


def measure(bench: Bench) -> list[Row]:
    runs, share, alone = bench.size(500, 20), bench.size(100, 3), bench.size(1000, 50)
    rounds = bench.size(9, 1)
    found = alternating(
        rounds,
        alone=lambda: holdfast_rate(bench, 1, alone),
        many=lambda: holdfast_rate(bench, runs, STEPS),
        dbos=lambda: dbos_rate(bench, share, "delete"),
    )
    many = found["many"]
    to_one, to_dbos = ratios(many, found["alone"]), ratios(many, found["dbos"])
    wal = [dbos_rate(bench, share, "wal") for _ in range(bench.size(3, 1))]
    return [
        Row(2, f"1 run of {alone} steps", spread(found["alone"], unit=" steps/s")),
        Row(2, f"{runs} runs of {STEPS} steps", spread(many, unit=" steps/s"), f"{spread(to_one, '.1f')} x one run",
            f">= {TO_ONE_RUN:g} x", median(to_one) >= TO_ONE_RUN),
        Row(2, f"DBOS on SQLite: {share} runs of {STEPS} steps, its rate taken for {runs}",
            spread(found["dbos"], unit=" steps/s"), f"ours is {spread(to_dbos, '.0f')} x", f">= {TO_DBOS:g} x",
            median(to_dbos) >= TO_DBOS),
        Row(2, "the same, its file switched to WAL by hand", spread(wal, unit=" steps/s"),
            f"ours is {median(many) / median(wal):.0f} x"),
    ]  # fmt: skip


def dbos_rate(bench: Bench, runs: int, journal_mode: str) -> float:
    with bench.place() as folder:
        return float(told_by("dbos_peer.py", folder, runs, STEPS, journal_mode)["rate"])
