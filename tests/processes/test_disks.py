"""A disk that is full or fails while runs work: nothing acknowledged is lost, and work goes on when it is well."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from tests.disks import full, unavailable
from tests.processes.forks import ROOT
from tests.processes.ledger import Place, check_tokens, until
from tests.processes.worker_process import send, serve, start


@pytest.mark.parametrize("fate", ["lives", "is killed"])
def test_a_full_disk_only_delays(forks, small_disk, tmp_path, fate):
    """On a full disk nothing is acknowledged and nothing begins; when there is room, the run goes on from there."""
    place = Place(tmp_path, small_disk)
    settings = {"durability": "power", "lease_ttl_s": 1.0}
    worker = serve(forks, place, "bulky", "quick", runs=[("bulky", [60], "run")], **settings)
    until(lambda: len(place.lines()) > 5)
    with full(small_disk):
        until(lambda: "cannot be written" in worker.log.read_text())
        until(lambda: place.run("run", "due_at") < time.time() * 1000)  # its lease is over, and cannot be renewed
        recorded, happened = place.events(), place.lines()
        assert 0 <= len(happened) - len(recorded) <= 1  # the next one begins when the one before is durable
        assert place.run("run", "status") == "running"
        if fate == "is killed":
            worker.kill()
    if fate == "is killed":
        serve(forks, place, "bulky", "quick", **settings)
    until(lambda: place.run("run", "status") == "completed")
    assert place.run("run", "result", "steps") == ("1200000", 60)
    lines = place.lines()
    assert lines[: len(happened)] == happened
    again = [line for line in lines if [other.key for other in lines].count(line.key) > 1]
    assert not again if fate == "lives" else {line.key for line in again} <= {happened[-1].key}
    check_tokens(lines)
    start(place, ("quick", [3], "next"))  # and it takes new work
    until(lambda: place.run("next", "status") == "completed")
    assert place.query("PRAGMA integrity_check") == [("ok",)]


def test_a_run_that_cannot_be_loaded_is_tried_again(forks, place):
    """A run of which a part cannot be read stays nobody's: when that is there again it goes on, in the same process."""
    worker = serve(forks, place, "large", "quick", runs=[("large", [], "run")], lease_ttl_s=0.9)
    until(lambda: place.run("run", "status") == "waiting")
    ((digest, content),) = place.query("SELECT digest, content FROM blobs")
    place.query("DELETE FROM blobs")
    send(place, "run", "hello")
    until(lambda: "could not be carried on" in worker.log.read_text())
    start(place, ("quick", [2], "other"))
    until(lambda: place.run("other", "status") == "completed")
    place.query("INSERT INTO blobs (digest, content) VALUES (?, ?)", digest, content)
    until(lambda: place.run("run", "status") == "completed")
    assert place.run("run", "result", "crash_count") == ('["100000","did hello"]', 0)
    assert [line.what for line in place.lines() if line.run == "run"] == ["read", "hello"]


SCRIPT = """
import asyncio, sys
import holdfast
from tests.processes import scenes, workers
from tests.processes.ledger import Place

async def main():
    scenes.place = Place(sys.argv[1])
    async with scenes.Client([workers.quick], park_grace_s=0.0, lease_ttl_s=0.9) as hf:
        for number in range(12):
            while True:
                try:
                    run = await hf.start(workers.quick, 5, id=f"run-{number}")
                    assert len(await run.result()) == 5
                    break
                except holdfast.StoreUnavailable:
                    await asyncio.sleep(0.02)
    print("done")

asyncio.run(main())
"""


@pytest.mark.by_day("30..60")
@pytest.mark.parametrize("when", ["30..60", "60..100"])
def test_reads_that_fail_for_a_while(place, when):
    """A process whose reads fail with EIO for a while goes on when they work again, and does each step once."""
    probe = ["strace", "-f", "true"]
    if not shutil.which("strace") or subprocess.run(probe, capture_output=True, check=False).returncode:
        unavailable("strace is not installed, or may not trace here")
    fault = ["-e", "trace=pread64", "-e", f"inject=pread64:error=EIO:when={when}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    trace = place.folder / "trace"
    strace = ["strace", "-f", "-qqq", "-o", str(trace), *fault]
    command = [*strace, sys.executable, "-c", SCRIPT, str(place.folder)]
    ended = subprocess.run(command, env=environment, text=True, capture_output=True, check=False, timeout=50)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    assert "(INJECTED)" in trace.read_text()
    lines = place.lines()
    assert len(lines) == 60
    check_tokens(lines)
    assert place.query("PRAGMA integrity_check") == [("ok",)]
