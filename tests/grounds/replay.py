"""Replay every history of a cluster, or of one `?queue=`, under whatever hash seed it has: `python -m tests.grounds.replay URL`."""

from __future__ import annotations

import asyncio
import os
import sys

from temporalio.worker import Replayer
from tests.grounds import canonical, loads, neighbour, scenes, shoppers

from holdfast.backends.temporal.address import RUN, Address
from holdfast.backends.temporal.worker import House
from holdfast.backends.temporal.workflow import Runner, RunWorkflow
from holdfast.store.urls import store_at
from holdfast.worker.agents import Served, specs_of
from holdfast.worker.settings import Settings


async def replay(url: str) -> tuple[int, list[str]]:
    """Count the histories that were replayed, and tell which of them diverged."""
    address = Address.of(url)
    client = await address.connect()
    served = Served(specs_of([canonical, neighbour, scenes, loads, shoppers]))
    beside = store_at("sqlite:nothing.db")  # a replay asks no database; runs that have one want a worker that has one
    house = House(address, served, Settings(), "replay", beside)
    replayer = Replayer(
        workflows=[RunWorkflow],
        workflow_runner=Runner(house),
        data_converter=address.converter(),
        namespace=address.namespace,
    )
    wrong, count = [], 0
    own = f" AND TaskQueue STARTS_WITH '{address.queue}:'" if "queue=" in url else ""
    async for execution in client.list_workflows(f"WorkflowType = '{RUN}'{own}"):
        history = await client.get_workflow_handle(execution.id, run_id=execution.run_id).fetch_history()
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        count += 1
        if result.replay_failure is not None:
            wrong.append(f"{execution.id}: {result.replay_failure}")
    return count, wrong


if __name__ == "__main__":
    _, diverged = asyncio.run(replay(sys.argv[1]))
    sys.stdout.write("\n".join(each[:1000] for each in diverged))
    sys.stdout.flush()
    os._exit(bool(diverged))  # threads of the SDK may end an interpreter that ends with a signal
