"""Workers killed with -9 and a receiver started anew, while they tell it of runs: it hears of each, and under one id."""

import base64
import random
from collections import defaultdict
from pathlib import Path

import pytest
from tests.receivers import Receiver, until
from tests.workers import Worker, ask

from holdfast import Retry
from holdfast.words.notifications import scheme
from holdfast.words.webhooks import check
from holdfast.worker.senders import NETWORKS

AGENTS = Path(__file__).with_name("notification_agents.py")
SECRET = b"a secret of the tests, 32 bytes."
EACH = 15  # runs for each kill


@pytest.mark.slow
@pytest.mark.by_day("postgres-3-1")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kills", "restarts"), [(3, 1), (30, 5)])
def test_each_is_heard_of_under_one_id_whoever_is_killed(commands, store_url, tmp_path, kills, restarts):
    """Two workers, one of which is always being killed; the receiver fails, breaks off, and is away now and then."""
    dice = random.Random(f"{kills} {store_url.partition(':')[0]}")

    def behave(_):
        return dice.choices([204, 500, "close", "half"], [8, 1, 1, 1])[0]

    secret = f"whsec_{base64.b64encode(SECRET).decode()}"

    def begun():
        words = ["worker", AGENTS, "--db", store_url]
        started = Worker(commands.start(words, tmp_path, {NETWORKS: "127.0.0.0/8 ::1", "OPS_SECRET": secret}))
        started.until("Serving")
        return started

    with Receiver(behave) as receiver:
        workers = [begun(), begun()]

        async def register(hf):
            quick = Retry(10_000, first="20ms", factor=1, max="20ms")
            await hf.notify(receiver.url, "run.completed", secret="env:OPS_SECRET", name="ops", retry=quick)

        ask(store_url, register)
        away = set(dice.sample(range(kills), restarts))
        try:
            for kill in range(kills):

                async def start(hf, kill=kill):
                    for number in range(EACH):
                        await hf.start("doubled", number, id=f"r-{kill}-{number}")

                seen = len(receiver.requests)
                ask(store_url, start)
                more = dice.randrange(EACH)
                until(lambda seen=seen, more=more: len(receiver.requests) > seen + more)
                workers.pop(0).kill()
                workers.append(begun())
                if kill in away:
                    receiver.stop()
                    receiver.start()

            async def told(hf):
                handle = hf.get_notification("ops")
                return (await handle.info()).done == kills * EACH

            until(lambda: ask(store_url, told))
        finally:
            for each in workers:
                each.kill()

    async def ledger(hf):
        handle = hf.get_notification("ops")
        events = [(event.position, event.run) async for event in hf.events(kinds="run.completed", follow=False)]
        return {info.id for info in await handle.deliveries(limit=10_000)}, await handle.info(), events

    ids, info, events = ask(store_url, ledger)
    heard = defaultdict(set)
    for request in receiver.requests:
        data = request.json()["data"]
        heard[data["position"], data["run"]].add(request.id)
        at = int(request.headers["webhook-timestamp"]) * 1000
        assert check(scheme(), [SECRET], request.headers.items(), request.body, at).id == request.id
    assert sorted(heard) == sorted(events) and len(events) == kills * EACH
    assert all(len(each) == 1 for each in heard.values())
    assert set.union(*heard.values()) == ids
    assert (info.waiting, info.dead, info.done) == (0, 0, kills * EACH)
