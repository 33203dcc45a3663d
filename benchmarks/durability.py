"""8. Where the time goes: the same with `durability=process`, which waits for no disk, and the processor's time."""

from __future__ import annotations

import time
from functools import partial

from measuring import Bench, Row, alternating, ratios, spread
from rates import holdfast_rate


def measure(bench: Bench) -> list[Row]:
    steps, runs = bench.size(1000, 50), bench.size(500, 20)
    return [*compared(bench, 1, steps), *compared(bench, runs, 20)]


def compared(bench: Bench, runs: int, steps: int) -> list[Row]:
    busy: dict[str, list[float]] = {"power": [], "process": []}

    def rate(durability: str) -> float:
        before = time.process_time()
        found = holdfast_rate(bench, runs, steps, durability)
        busy[durability].append((time.process_time() - before) / (runs * steps) * 1e6)
        return found

    found = alternating(bench.size(5, 1), power=partial(rate, "power"), process=partial(rate, "process"))
    gain = f"{spread(ratios(found['process'], found['power']), '.2f')} x power"
    what = "1 run" if runs == 1 else f"{runs} runs"
    return [
        Row(8, f"{what} of {steps} steps, durability={name}",
            f"{spread(found[name], unit=' steps/s')}; processor {spread(busy[name], '.0f')} us/step",
            gain if name == "process" else "")
        for name in ("power", "process")
    ]  # fmt: skip
