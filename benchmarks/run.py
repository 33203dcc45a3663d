"""Run the benchmarks: `python benchmarks/run.py [--quick] [--only N] [--folder FOLDER]`; or `make bench`.

Prints a table and, unless it is a smoke run or only a part, writes it to benchmarks/results.md. Ends with 1 when a
target is missed or a measurement broke.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import apsw
from measuring import HERE, Bench, Row
from rich.console import Console
from rich.table import Table

import holdfast

MEASUREMENTS = {
    1: "sequential",
    2: "many_runs",
    3: "wakeups",
    4: "first_step",
    5: "resuming",
    6: "journal_size",
    7: "many_waiting",
    8: "durability",
    9: "across_processes",
    10: "many_runs_postgres",
    11: "claims",
    12: "streaming",
    13: "pydantic_agents",
    14: "history",
    15: "carrying",
    16: "checking",
    17: "forks",
    18: "schedules",
    19: "queues",
    20: "reducers",
    21: "dashboard",
    22: "followers",
}
HEADS = ("", "what", "measured", "ratio", "target", "")


def main() -> int:
    arguments = parsed()
    console = Console(width=None if sys.stdout.isatty() else 180)
    began = time.monotonic()
    facts = about_this_machine()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix=".bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder).resolve(), arguments.quick)
        for number in arguments.only or MEASUREMENTS:
            console.print(f"{number}. {MEASUREMENTS[number].replace('_', ' ')} ...", style="dim")
            rows += measured(number, bench)
    facts.append(f"{(time.monotonic() - began) / 60:.0f} minutes in all; load of the machine at the end {load()}")
    console.print(table(rows, bench))
    for fact in facts:
        console.print(fact, style="dim")
    if not arguments.quick and not arguments.only:
        (HERE / "results.md").write_text(markdown(rows, bench, facts), encoding="utf-8")
    bad = [row for row in rows if row.passed is False and not (bench.quick and row.target)]
    return 1 if bad else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Holdfast, side by side with a bare loop and with a peer.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works; no verdicts")
    parser.add_argument("--only", type=int, action="append", choices=list(MEASUREMENTS), help="only this one, or these")
    # Not the system's temporary folder, which is often in memory: there a flush costs nothing.
    parser.add_argument("--folder", type=Path, default=HERE, help="where the files are made: the disk that is measured")
    return parser.parse_args()


def measured(number: int, bench: Bench) -> list[Row]:
    """The rows of one measurement; one that breaks is a row too, and the others go on."""
    rows: list[Row] = []
    os.sync()  # what the one before has left to the disk is not this one's
    try:
        rows.extend(import_module(MEASUREMENTS[number]).measure(bench))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        traceback.print_exc()
        what = f"broke: {type(error).__name__}: {error}".splitlines()[0]
        rows.append(Row(number, MEASUREMENTS[number].replace("_", " "), what[:150], passed=False))
    return rows


def verdict(row: Row, bench: Bench) -> str:
    if row.passed is None or (bench.quick and row.target):
        return ""
    return "pass" if row.passed else "FAIL"


def table(rows: list[Row], bench: Bench) -> Table:
    colours = {"pass": "[green]pass[/]", "FAIL": "[bold red]FAIL[/]", "": ""}
    shown = Table(*HEADS, title="Holdfast, a smoke run: small sizes, no verdicts" if bench.quick else "Holdfast")
    last = 0
    for row in rows:
        if last not in (0, row.number):
            shown.add_section()
        head = "" if row.number == last else str(row.number)
        shown.add_row(head, row.what, row.measured, row.ratio, row.target, colours[verdict(row, bench)])
        last = row.number
    return shown


def markdown(rows: list[Row], bench: Bench, facts: list[str]) -> str:
    lines = ["| # | what | measured | ratio | target | |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (str(row.number), row.what, row.measured, row.ratio, row.target, verdict(row, bench))
        lines.append(f"| {' | '.join(cells)} |")
    text = "Values are medians; least and greatest of all rounds in brackets. How it is measured: [README](README.md)."
    return "\n".join(["# Results", "", text, "", *lines, "", *[f"- {fact}" for fact in facts], ""])


def about_this_machine() -> list[str]:
    kind = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors ({processor()})"
    versions = {"Python": platform.python_version(), "SQLite": apsw.sqlite_lib_version()}
    versions |= {"Holdfast": holdfast.__version__, "DBOS": version_of("dbos")}
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, {kind}",
        ", ".join(f"{name} {number}" for name, number in versions.items()),
        f"load of the machine at the beginning {load()}",
    ]


def version_of(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "(not installed)"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    sys.exit(main())
