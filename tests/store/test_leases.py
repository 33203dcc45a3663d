from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time

import pytest
from tests.store.places import TTL, Place, files_beside, line, new, owned, python, recovered, step, write

from holdfast.store.store import Store

HOLDER = """
import asyncio, sys
from holdfast.store.appends import Append
from holdfast.store.urls import store_at

async def main():
    store = store_at(sys.argv[1])
    await store.open()
    rows = await store.claim(["agent"], int(sys.argv[2]), 600_000)
    print(store.worker_id, len(rows), flush=True)
    for _ in sys.stdin:
        print(len(await asyncio.to_thread(store.heartbeat, 600_000)), flush=True)

asyncio.run(main())
"""


async def waits_for_it(store: Store, count: int = 3) -> None:
    for number in range(count):
        await store.create(new(f"run-{number}"))


async def test_a_killed_worker_is_noticed_at_once(place: Place) -> None:
    """After kill -9 its runs are due at the next recover, long before the lease ends, and its files are gone."""
    async with place.open() as store:
        await waits_for_it(store)
        process = python(HOLDER, place.url, "3")
        worker, count = line(process).split()
        assert count == "3"
        assert await store.recover() == 0
        process.kill()
        process.wait()
        began = time.monotonic()
        assert await recovered(store) == 3
        rows = await store.claim(["agent"], 10, TTL)
        assert time.monotonic() - began < 5
        assert [row.crash_count for row in rows] == [1, 1, 1]
        (event,) = await store.journal("run-0")
        assert event.kind == "run.interrupted"
        seen = event.data.pop("seen")
        assert event.data == {"owner": worker, "epoch": 1, "by": store.worker_id, "how": "dead"}
        assert 0 < seen <= event.at
        assert await store.recover() == 0
        assert not [name for name in files_beside(place) if worker in name]
        assert (await store.facts())["workers"] == 1
        process.communicate()


async def test_a_stopped_worker_keeps_its_runs(place: Place) -> None:
    """A process under SIGSTOP is not dead: nothing is recovered from it, and it goes on after SIGCONT."""
    async with place.open() as store:
        await waits_for_it(store)
        process = python(HOLDER, place.url, "3")
        assert line(process).split()[1] == "3"
        process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED)
        try:
            for _ in range(5):
                assert await store.recover() == 0
            assert await store.claim(["agent"], 10, TTL) == []
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write("beat\n")
        process.stdin.flush()
        assert await asyncio.to_thread(line, process) == "3"
        process.kill()
        process.communicate()


@pytest.mark.slow
async def test_many_recoverers_at_once(place: Place) -> None:
    """Eight stores that recover three dead workers at the same time make each run due once and disturb no live one."""
    async with place.open() as store:
        await waits_for_it(store, 6)
        processes = [python(HOLDER, place.url, "2") for _ in range(3)]
        assert [line(process).split()[1] for process in processes] == ["2"] * 3
        for process in processes:
            process.kill()
            process.communicate()
        stores = [place.connect(place.url) for _ in range(8)]
        await asyncio.gather(*[each.open() for each in stores])
        alive = await owned(stores[0], "alive")
        counts = [0]
        while sum(counts) < 6:
            counts += await asyncio.gather(*[each.recover() for each in stores])
        assert sum(counts) == 6
        claimed = await asyncio.gather(*[each.claim(["agent"], 2, TTL) for each in stores])
        assert sorted(row.id for rows in claimed for row in rows) == [f"run-{number}" for number in range(6)]
        await stores[0].append(write(alive, step()))
        await asyncio.gather(*[each.close() for each in stores])


async def test_an_abandoned_store_is_as_a_killed_process(place: Place) -> None:
    """After abandon nothing queued is written, no row changes, and others recover its runs at once."""
    async with place.open() as store:
        dying = place.connect(place.url)
        await dying.open()
        row = await owned(dying, "a")
        await dying.append(write(row, step()))
        queued = [dying.append(write(row, step())) for _ in range(20)]
        dying.abandon()
        results = await asyncio.gather(*queued, return_exceptions=True)
        found = await store.run("a")
        assert found is not None
        assert (found.status, found.lease_owner) == ("running", dying.worker_id)
        written = len(await store.journal("a"))
        acknowledged = 1 + sum(isinstance(result, int) for result in results)
        assert acknowledged <= written <= 21
        assert await recovered(store) == 1
        assert [row.id for row in await store.claim(["agent"], 1, TTL)] == ["a"]


async def test_a_store_that_closes_gives_back_what_it_holds(place: Place) -> None:
    """What a closing store still holds is ready for others at once, and no crash is counted."""
    async with place.open() as store:
        closing = place.connect(place.url)
        await closing.open()
        row = await owned(closing, "a")
        await closing.append(write(row, step()))
        await closing.close()
        found = await store.run("a")
        assert found is not None and (found.status, found.lease_owner, found.crash_count) == ("ready", None, 0)
        (again,) = await store.claim(["agent"], 1, TTL)
        assert (again.crash_count, again.lease_epoch) == (0, 2)
        assert [event.kind for event in await store.journal("a")] == ["step.completed"]


async def test_a_client_needs_no_lock(file: Place) -> None:
    """A store that never claims has no lock file, and its death leaves nothing to recover."""
    async with file.open() as store:
        client = file.connect(file.url)
        await client.open()
        await client.create(new("a"))
        assert not [name for name in files_beside(file) if name.endswith(".lock")]
        client.abandon()
        assert await store.recover() == 0
        for number in itertools.count():
            if files_beside(file) == [f"{store.worker_id}.sock"]:
                break
            await store.create(new(f"b-{number}"))  # who writes finds the dead socket, and removes it
