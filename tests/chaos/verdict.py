"""What must hold when the dust has settled."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import holdfast
from holdfast.store.store import Store
from holdfast.words.model import CLOSING

_CLOCKS_MS = 100  # how far the database's time, as a worker knows it, may be from this machine's


def read(ledger: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What bodies said, by run and key."""
    said: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for text in ledger.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        said[line["run"], line["key"]].append(line)
    return said


async def judge(store: Store, runs: list[str], ledger: Path) -> tuple[list[str], dict[str, int]]:
    """All that is wrong, and some counts."""
    said = read(ledger)
    wrong: list[str] = []
    counts = {"runs": len(runs), "children": 0, "recorded steps": 0, "bodies": 0, "bodies beyond one": 0,
              "interruptions": 0}  # fmt: skip
    family = list(runs)
    for run in runs:
        family += [child.id for child in await store.runs(parent=run)]
    counts["children"] = len(family) - len(runs)
    for run in family:
        row = await store.run(run)
        if row is None or row.status != "completed":
            wrong.append(f"run {run} is {row and row.status} ({row and (row.waits_for, row.reason, row.error)})")
            continue
        wrong += _judge_run(run, await store.journal(run), said, counts)
    for lines in said.values():
        if len({line["idempotency"] for line in lines}) > 1:
            wrong.append(f"{lines[0]['run']} {lines[0]['key']}: attempts with different idempotency keys")
    return wrong, counts


def _judge_run(run: str, journal: list[Any], said: dict[tuple[str, str], list[dict[str, Any]]],
               counts: dict[str, int]) -> list[str]:  # fmt: skip
    wrong: list[str] = []
    epoch, recorded, closed = 0, dict[str, Any](), set[str]()
    for event in journal:
        if event.epoch < epoch:
            wrong.append(f"run {run}: event {event.seq} is of epoch {event.epoch}, after one of {epoch}")
        epoch = max(epoch, event.epoch)
        counts["interruptions"] += event.kind == "run.interrupted"
        if event.kind in CLOSING:
            if event.key in closed:
                wrong.append(f"run {run}: {event.key} has two outcomes")
            closed.add(event.key)
        if event.kind == "step.completed":
            recorded[event.key] = event
    for key, event in recorded.items():
        bodies = [line for line in said[run, key] if line["what"] == "begin"]
        counts["recorded steps"] += 1
        counts["bodies"] += len(bodies)
        counts["bodies beyond one"] += len(bodies) - 1
        token = json.loads(event.value).rpartition(":")[2]
        if token not in {line["token"] for line in bodies}:
            wrong.append(f"run {run}: {key} has an outcome that no body gave")
        wrong += [
            f"run {run}: {key} ran again {line['at'] * 1000 - event.at:.0f} ms after it was recorded"
            for line in bodies
            if line["at"] * 1000 > event.at + _CLOCKS_MS and line["token"] != token
        ]
    return wrong


async def check_results(hf: holdfast.Client, runs: list[str]) -> list[str]:
    """Each run returned what its code says, with its three messages in the order sent."""
    wrong = []
    for run in runs:
        result = await hf.get(run).result(timeout=5)
        if result["messages"] != ["0", "1", "2"]:
            wrong.append(f"run {run} received {result['messages']}")
    return wrong
