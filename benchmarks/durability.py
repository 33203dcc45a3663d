"""8. Where the time goes: the same with `durability=process`, which waits for no disk, and the processor's time."""

from __future__ import annotations

from functools import partial

from measuring import Bench, Row, alternating, ratios, spread
from rates import holdfast_told


def measure(bench: Bench) -> list[Row]:
    steps, runs = bench.size(1000, 50), bench.size(500, 20)
    return [*compared(bench, 1, steps), *compared(bench, runs, 20)]


def compared(bench: Bench, runs: int, steps: int) -> list[Row]:
    busy: dict[str, list[float]] = {"power": [], "process": []}

    def rate(durability: str) -> float:
        told = holdfast_told(bench, runs, steps, durability)
        busy[durability].append(told["processor_us"])
        return told["rate"]

    found = alternating(bench.size(5, 1), power=partial(rate, "power"), process=partial(rate, "process"))
    gain = f"{spread(ratios(found['process'], found['power']), '.2f')} x power"
    what = "1 run" if runs == 1 else f"{runs} runs"
    return [
        Row(8, f"{what} of {steps} steps, durability={name}",
            f"{spread(found[name], unit=' steps/s')}; processor {spread(busy[name], '.0f')} us/step",
            gain if name == "process" else "")
        for name in ("power", "process")
    ]  # fmt: skip
