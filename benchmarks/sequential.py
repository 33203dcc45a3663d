"""1. One run of many small steps, against a bare loop that inserts and commits."""

from __future__ import annotations

from statistics import median

from measuring import Bench, Row, alternating, ratios, spread
from rates import bare_rate, handed_over_rate, holdfast_rate, our_page_bytes

TARGET = 0.60


def measure(bench: Bench) -> list[Row]:
    steps, pages = bench.size(1000, 50), our_page_bytes(bench)
    found = alternating(
        bench.size(9, 2),
        bare=lambda: bare_rate(bench, steps, pages),
        small=lambda: bare_rate(bench, steps, 4096),
        handed=lambda: handed_over_rate(bench, steps, pages),
        ours=lambda: holdfast_rate(bench, 1, steps),
    )
    shares = ratios(found["ours"], found["bare"])
    return [
        Row(1, f"bare insert and commit, {steps} rows, {pages // 1024} KiB pages",
            spread(found["bare"], unit=" rows/s")),
        Row(1, f"bare insert and commit, {steps} rows, 4 KiB pages", spread(found["small"], unit=" rows/s"),
            f"ours is {spread(ratios(found['ours'], found['small']), '.0%')} of it"),
        Row(1, "the first loop, each row handed to a thread and awaited", spread(found["handed"], unit=" rows/s"),
            f"{spread(ratios(found['handed'], found['bare']), '.0%')} of bare"),
        Row(1, f"1 run of {steps} steps, synchronous=FULL", spread(found["ours"], unit=" steps/s"),
            f"{spread(shares, '.0%')} of bare", f">= {TARGET:.0%}", median(shares) >= TARGET),
    ]  # fmt: skip
