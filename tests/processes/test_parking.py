"""A run that waits costs a row: no process holds it, and any process wakes it."""

import asyncio
import time

import pytest
from tests.processes import workers
from tests.processes.ledger import until
from tests.processes.worker_process import executions, serve, stop

import holdfast

FAR_S = 3600.0

WAITS = {
    "napping": ([FAR_S], "timer"),
    "listening": ([], "message"),
    "parenting": ([FAR_S], "child"),
    "several": ([FAR_S], "retry"),
}


@pytest.mark.parametrize("agent", WAITS)
@pytest.mark.parametrize("grace_s", [0.0, 0.05])
def test_a_waiting_run_leaves_memory(forks, place, agent, grace_s):
    """A run that waits for a timer, a message or a child is a row with no owner, and no process has it in memory."""
    arguments, waits_for = WAITS[agent]
    process = serve(forks, place, agent, "napping", runs=[(agent, arguments, "run")], park_grace_s=grace_s)
    until(lambda: place.run("run", "status", "waits_for", "lease_owner") == ("waiting", waits_for, None))
    until(lambda: not place.query("SELECT 1 FROM runs WHERE status <> 'waiting'"))
    until(lambda: executions(process) == [])


def test_a_wait_for_a_retry_leaves_memory(forks, place):
    """Between two attempts of a step the run is a row, and the next attempt comes in time."""
    serve(forks, place, "trying", runs=[("trying", [], "run")])
    until(lambda: place.query("SELECT 1 FROM runs WHERE status = 'waiting' AND waits_for = 'retry'"))
    until(lambda: place.run("run", "status") == "completed")
    assert [line.attempt for line in place.lines()] == [1, 2]


@pytest.mark.parametrize("fate", ["closed", "killed", "stopped"])
def test_a_timer_wakes_the_run_in_another_process(forks, place, fate):
    """Whatever became of the process that parked it, a run goes on in another one when its time has come."""
    first = serve(forks, place, "napping", runs=[("napping", [0.5], "run")])
    until(lambda: place.run("run", "status") == "waiting")
    due = place.run("run", "due_at")
    {"closed": lambda: first.tell("close"), "killed": first.kill, "stopped": lambda: stop(place, first)}[fate]()
    second = serve(forks, place, "napping")
    until(lambda: place.run("run", "status") == "completed")
    assert [(line.what, line.pid) for line in place.lines()] == [("before", first.pid), ("after", second.pid)]
    (fired,) = place.query("SELECT at FROM events WHERE kind = 'timer.fired'")
    assert due <= fired[0] < due + 2000  # never early, and not at the next poll either


@pytest.mark.parametrize("fate", ["killed", "stopped"])
def test_a_message_wakes_the_run_in_another_process(forks, place, fate):
    """A message wakes a run that another process parked, at once: no lease has to end."""
    first = serve(forks, place, "listening", runs=[("listening", [], "run")])
    until(lambda: place.run("run", "status") == "waiting")
    first.kill() if fate == "killed" else stop(place, first)
    second = serve(forks, place, "listening")

    async def send():
        async with holdfast.open(f"sqlite:{place.store}") as hf:
            run = hf.get("run")
            await run.send("topic", "hello")
            return await run.result(timeout=20)

    began = time.monotonic()
    assert asyncio.run(send()) == ["did before", "did hello"]
    assert time.monotonic() - began < workers.LONG_S / 2
    assert [line.pid for line in place.lines()] == [first.pid, second.pid]


def test_a_message_is_not_overlooked_while_its_run_is_claimed(forks, place):
    """Messages that come while their runs are being claimed and loaded are seen then, not at some heartbeat."""
    process = forks.start(workers.start_and_send, folder=str(place.folder), runs=200)
    assert process.read()["results"] == [["did before", f"did run-{n}"] for n in range(200)]
    process.ends()


def test_a_deadline_passes_while_no_process_lives(forks, place):
    """A durable timeout that passed while nothing ran is a TimeoutError when a process comes."""
    first = serve(forks, place, "limited", runs=[("limited", [], "run")])
    until(lambda: place.run("run", "status") == "waiting")
    due = place.run("run", "due_at")
    first.kill()
    until(lambda: time.time() * 1000 > due)
    serve(forks, place, "limited")
    until(lambda: place.run("run", "status") == "completed")
    assert place.run("run", "result") == '["late","did after"]'


def test_a_child_outlives_its_parent_and_its_process(forks, place):
    """A process that was told of the parent only goes on with the child that the parent left behind."""
    first = serve(forks, place, "leaving", runs=[("leaving", [0.3], "run")])
    until(lambda: place.query("SELECT 1 FROM runs WHERE parent_id = 'run' AND status = 'waiting'"))
    assert place.run("run", "status") == "completed"
    first.kill()
    serve(forks, place, "leaving")
    until(lambda: place.query("SELECT 1 FROM runs WHERE parent_id = 'run' AND status = 'completed'"))


def test_two_thousand_waiting_runs_cost_no_memory(forks, place):
    """2,000 more runs that wait leave the serving process as it was: not one object per run."""
    process = serve(forks, place, "deaf", park_grace_s=0.01)

    def memory():
        process.tell("memory")
        return process.read()

    async def start(first, last):
        async with holdfast.open(f"sqlite:{place.store}?durability=process") as hf:
            await asyncio.gather(*[hf.start(workers.deaf, id=f"run-{n}") for n in range(first, last)])

    def wait_for(count):
        until(lambda: place.query("SELECT count(*) FROM runs WHERE status = 'waiting'") == [(count,)], timeout=50)
        until(lambda: executions(process) == [])

    asyncio.run(start(0, 1000))
    wait_for(1000)
    before = memory()
    asyncio.run(start(1000, 3000))
    wait_for(3000)
    until(lambda: memory()["blocks"] - before["blocks"] < 500)  # the last of them may still be leaving
    assert memory()["kib"] - before["kib"] < 12_000  # SQLite's caches, which are bounded
