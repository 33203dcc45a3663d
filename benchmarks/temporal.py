"""Holdfast on Temporal against a hand-written workflow with the same activities: `python benchmarks/temporal.py --quick`.

Both have one worker in this process, on the same development server, and take turns. What is told is the ratio of each round, by
the clock and by processor time, this process and the server together: the second is the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from tests.temporal import Cluster

import holdfast
from grounds import used_s

QUEUE = "by-hand"


@holdfast.step
async def nothing(n: int) -> int:
    return n


@holdfast.agent
async def sequential(steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await nothing(n)
    return total


@activity.defn(name="nothing")
async def nothing_by_hand(n: int) -> int:
    return n


@workflow.defn(name="by-hand")
class ByHand:
    @workflow.run
    async def run(self, steps: int) -> int:
        total = 0
        for n in range(steps):
            total += await workflow.execute_activity(
                nothing_by_hand, n, start_to_close_timeout=timedelta(minutes=1), heartbeat_timeout=timedelta(seconds=10)
            )
        return total


async def by_hand(client, runs, steps):
    began = time.perf_counter()
    handles = [
        await client.start_workflow(ByHand.run, steps, id=f"h-{secrets.token_hex(6)}", task_queue=QUEUE)
        for _ in range(runs)
    ]
    assert await asyncio.gather(*(handle.result() for handle in handles)) == [sum(range(steps))] * runs
    return runs * steps / (time.perf_counter() - began)


async def on_holdfast(hf, runs, steps):
    began = time.perf_counter()
    handles = [await hf.start(sequential, steps, id=f"f-{secrets.token_hex(6)}") for _ in range(runs)]
    results = [hf.store.client.get_workflow_handle(handle.id).result() for handle in handles]
    assert await asyncio.gather(*results) == [str(sum(range(steps)))] * runs
    return runs * steps / (time.perf_counter() - began)


async def measure(cluster, rounds, runs, steps):
    client = await Client.connect(f"127.0.0.1:{cluster.port}")
    worker = Worker(
        client, task_queue=QUEUE, workflows=[ByHand], activities=[nothing_by_hand], workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=200, max_concurrent_workflow_tasks=100,
    )  # fmt: skip
    ratios, told, costs = {}, {}, {}

    async def turn(do, what, many, each):
        before = time.process_time() + used_s(cluster.process.pid)
        speed = await do(what, many, each)
        return speed, (time.process_time() + used_s(cluster.process.pid) - before) * 1000 / (many * each)

    async with worker, holdfast.open(cluster.url(), agents=[sequential]) as hf:
        await by_hand(client, 1, 5)
        await on_holdfast(hf, 1, 5)
        for name, many, each in (("one run", 1, steps * 5), (f"{runs} runs", runs, steps)):
            for nth in range(rounds):
                turns = [("hand", by_hand, client), ("holdfast", on_holdfast, hf)]
                found = {who: await turn(do, what, many, each) for who, do, what in (turns if nth % 2 else turns[::-1])}
                (hand, hand_ms), (ours, ours_ms) = found["hand"], found["holdfast"]
                ratios.setdefault(name, []).append(ours / hand)
                told.setdefault(name, []).append((hand, ours))
                costs.setdefault(name, []).append((hand_ms, ours_ms, hand_ms / ours_ms))
    for name, found in ratios.items():
        hand, ours = (statistics.median(each) for each in zip(*told[name], strict=True))
        hand_ms, ours_ms, ratio = (statistics.median(each) for each in zip(*costs[name], strict=True))
        print(
            f"{name}: by hand {hand:.1f} steps/s, Holdfast {ours:.1f}, ratio {statistics.median(found):.2f} "
            f"({min(found):.2f}-{max(found):.2f}) in {rounds} rounds; processor by hand {hand_ms:.1f} ms/step, Holdfast "
            f"{ours_ms:.1f}, ratio {ratio:.2f}"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="holdfast-temporal-bench-", dir=Path(__file__).parent)
    cluster = Cluster(Path(folder))
    try:
        cluster.start()
        sizes = (1, 5, 5) if given.quick else (given.rounds, given.runs, given.steps)
        asyncio.run(measure(cluster, *sizes))
    finally:
        cluster.kill()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
