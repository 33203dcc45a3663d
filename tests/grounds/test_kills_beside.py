"""Workers, the server and the database beside it are killed under runs that use it: everything is there, and once."""

import asyncio
import random
from collections import defaultdict
from urllib.parse import quote

import pytest
from tests.grounds import neighbour
from tests.grounds.test_kills import Fleet, kept, ran_again, replays, result
from tests.temporal import own_cluster  # noqa: F401 - a fixture

import holdfast

RUNS, MORE = 3, 5


async def read(run, name):
    """A stream as it is at last: what came before its text was begun anew does not count."""
    text = ""
    async for chunk in run.stream(name):
        text = "" if chunk.kind == "restart" else text + (chunk.data if chunk.kind == "data" else "")
    return text


async def more(ledger):
    """Wait until some more bodies have begun, or ended."""

    def lines():
        return len(ledger.read_text().splitlines()) if ledger.exists() else 0

    wanted = lines() + MORE
    while lines() < wanted:
        await asyncio.sleep(0.02)


async def everything(hf, names):
    """What lies beside the cluster: each message, each word and each event, once."""
    said = [message.value for message in await hf.conversation("all").messages()]
    assert sorted(said) == sorted(f"{n}-{nth}" for n in range(RUNS) for nth in range(neighbour.ROUNDS))
    fed = defaultdict(list)
    async for event in hf.events(follow=False):
        fed[event.run].append((event.seq, event.kind, event.key, event.preview))
    assert {*fed} == {*names}
    for name in names:
        run = hf.get(name)
        assert await read(run, "said") == "".join(neighbour.WORDS)
        assert await read(run, "notes") == "".join(f"{nth} " for nth in range(neighbour.ROUNDS))
        journal = [(event.seq, event.kind, event.key, event.preview) async for event in run.events(follow=False)]
        assert fed[name] == journal


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("events", [8000, 60])
async def test_what_lies_beside_a_cluster_is_there_once_under_kills(own_cluster, own_server, tmp_path, events):  # noqa: F811
    dice, names = random.Random(events), [f"n{n}" for n in range(RUNS)]
    url = own_cluster.url(events=events, side=quote(own_server.url, safe=""))
    fleet, over = Fleet(url, tmp_path, app=neighbour.__name__), asyncio.Event()
    async with holdfast.open(url) as hf:
        fleet.start()
        helpers = []
        try:
            for n, name in enumerate(names):
                await hf.start(neighbour.neighbour, n, id=name)
            for what in ("worker", "database", "worker", "server", "worker"):
                await more(tmp_path / "ledger")
                await asyncio.sleep(dice.uniform(0, 0.5))
                if what == "worker":
                    fleet.kill()
                    await asyncio.sleep(dice.uniform(0, 0.3))
                    fleet.start()
                    continue
                killed = own_server if what == "database" else own_cluster
                killed.kill()
                await asyncio.sleep(0.5)
                await asyncio.to_thread(killed.start)
            helpers.append(asyncio.create_task(kept(fleet, over)))
            found = await asyncio.gather(*(result(hf, name, over, "500s") for name in names))
            assert found == [[*range(neighbour.ROUNDS)]] * RUNS
            await everything(hf, names)
        finally:
            over.set()
            fleet.kill()
            await asyncio.gather(*helpers)
    _, again, two = await ran_again(f"127.0.0.1:{own_cluster.port}", tmp_path / "ledger")
    assert (again, two) == ([], [])
    await asyncio.sleep(1.5)  # the index of the cluster is a moment behind
    await asyncio.to_thread(replays, own_cluster.url(), ["0", "77"])
