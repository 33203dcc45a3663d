"""What a step costs on each ground in processor time, and how many cores a day of steps needs: `python benchmarks/grounds.py`.

The worker's share and that of the server are measured apart, in runs of 20 steps that do nothing, 10 at once. Processor time and
not the clock: it is the same on a busy machine, but for its caches. `--write` puts the figures into docs/growing.md; without it
they are held against those there, and one that has more than doubled fails.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

PAGE: Final = Path(__file__).parents[1] / "docs" / "growing.md"
BEGIN: Final = "<!-- made by benchmarks/grounds.py -->"
END: Final = "<!-- end of costs -->"
DAYS: Final = (10**5, 10**7, 10**9)  # steps
PEAK: Final = 5  # times the average, in the busiest minute
BUSY: Final = 0.5  # of each core, then
_ROW: Final = re.compile(r"^\| (SQLite|PostgreSQL|two cells|Temporal) \| ([\d.]+) ms \| ([\d.]+) ms \|", re.MULTILINE)
Costs = dict[str, tuple[float, float]]  # milliseconds of a worker and of a server


def cores(steps: int, cost_ms: float) -> float:
    """Say how many cores it takes to make so many steps a day, with a peak, at which each core is half idle."""
    return steps / 86_400 * PEAK * cost_ms / 1000 / BUSY


def table(costs: Costs) -> str:
    """Tell what a step costs on each ground, and the cores of a day."""
    head = " | ".join(f"10^{len(str(day)) - 1} steps a day" for day in DAYS)
    lines = [f"| ground | a step: worker | server | {head} |", "|---|---|---|---|---|---|"]
    for name, (worker, server) in costs.items():
        told = " | ".join(_told(cores(day, worker), cores(day, server)) for day in DAYS)
        lines.append(f"| {name} | {worker:.2f} ms | {server:.2f} ms | {told} |")
    return "\n".join(lines)


def _told(worker: float, server: float) -> str:
    both = (worker, server) if server else (worker,)
    return " + ".join(f"{each:,.0f}" if each >= 10 else f"{max(each, 0.1):.1f}" for each in both)


def written() -> Costs:
    """Read what the page says."""
    return {name: (float(worker), float(server)) for name, worker, server in _ROW.findall(PAGE.read_text())}


def page(costs: Costs) -> str:
    """Make the page with this table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(costs)}\n\n{END}{after}"


# Measuring


def used_s(root: int) -> float:
    """Seconds of processor time of a process and all below it, those that have ended included."""
    below: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        times[pid] = sum(map(int, fields[11:15])) / 100
    waiting, total = [root], 0.0
    while waiting:
        pid = waiting.pop()
        total += times.get(pid, 0.0)
        waiting += below.get(pid, [])
    return total


async def cost(url: str, servers: Sequence[int], runs: int, steps: int) -> tuple[float, float]:
    """Milliseconds that a step costs the worker, and the servers with these process ids."""
    import holdfast  # noqa: PLC0415 - only whoever measures needs it

    @holdfast.step
    async def nothing(n: int) -> int:
        return n

    @holdfast.agent
    async def sequential(steps: int) -> int:
        return sum([await nothing(n) for n in range(steps)])

    async with holdfast.open(url, agents=[sequential]) as hf:
        for count in (2, runs):  # the first to warm up
            began, before = time.process_time(), sum(map(used_s, servers))
            found = await asyncio.gather(
                *[hf.run(sequential, steps, id=f"g-{secrets.token_hex(6)}") for _ in range(count)]
            )
            assert found == [sum(range(steps))] * count
            worker, there = time.process_time() - began, sum(map(used_s, servers)) - before
    return round(worker * 1000 / (runs * steps), 2), round(there * 1000 / (runs * steps), 2)  # as the page tells them


def measure(runs: int, steps: int) -> Costs:
    from tests.cells import written as cells_of  # noqa: PLC0415
    from tests.chaos.server import Server  # noqa: PLC0415
    from tests.temporal import Cluster  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(prefix="holdfast-grounds-", dir=Path(__file__).parent))
    databases, cluster = {name: Server(folder / name) for name in "ab"}, Cluster(folder / "temporal")
    try:
        costs = {"SQLite": asyncio.run(cost(f"sqlite:{folder}/runs.db", (), runs, steps))}
        for database in databases.values():
            database.create()
            database.start()
        pids = {name: int(next((folder / name).rglob("postmaster.pid")).read_text().split()[0]) for name in databases}
        costs["PostgreSQL"] = asyncio.run(cost(databases["a"].url, [pids["a"]], runs, steps))
        cells = cells_of(folder / "cells.toml", {name: f"{each.url}?schema=cells" for name, each in databases.items()})
        costs["two cells"] = asyncio.run(cost(cells, [*pids.values()], runs, steps))
        cluster.start()
        assert cluster.process is not None
        costs["Temporal"] = asyncio.run(cost(cluster.url(), [cluster.process.pid], runs, steps))
        return costs
    finally:
        cluster.kill()
        for database in databases.values():
            database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    costs = measure(*((5, 5) if given.quick else (10, 20)))
    print(table(costs))
    if given.write:
        PAGE.write_text(page(costs))
        return
    before = written()
    worse = [name for name in costs if name in before and sum(costs[name]) > 2 * sum(before[name])]
    sys.exit(f"a step costs more than twice what docs/growing.md says: {', '.join(worse)}" if worse else 0)


if __name__ == "__main__":
    main()
