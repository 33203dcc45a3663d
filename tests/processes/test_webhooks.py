"""Workers and the server killed with -9 while a sender sends, and sends again: every delivery is handled once, none is lost."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
import socket
import time
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs

import apsw
import asyncpg
import httpx2
import pytest
from tests.processes import hook_agents
from tests.workers import PATIENCE_S, Worker

import holdfast
from holdfast.words.model import FINISHED, TRANSITIONS

UNFINISHED = [each for each in TRANSITIONS if each not in FINISHED]
FILE = Path(hook_agents.__file__)
SECRET = base64.b64encode(b"a secret of 24 bytes or so").decode()


def table(url):
    """The ledger, as any connection to the database knows it."""
    return "handled" if url.startswith("sqlite:") else f"{parse_qs(url.partition('?')[2])['schema'][0]}.handled"


async def asked(url, *statements):
    """Ask the database of the store; the rows of the last statement."""
    if url.startswith("sqlite:"):
        db = apsw.Connection(url.removeprefix("sqlite:").partition("?")[0])
        try:
            db.set_busy_timeout(10_000)
            return [db.execute(each).fetchall() for each in statements][-1]
        finally:
            db.close()
    db = await asyncpg.connect(url.partition("?")[0])
    try:
        return [await db.fetch(each) for each in statements][-1]
    finally:
        await db.close()


class Sender:
    """Sends orders until it is told to end, each again and again until it is answered with 2xx, and some once more."""

    def __init__(self, address):
        self.address, self.sent, self.repeated, self.failed, self.over = address, 0, 0, 0, asyncio.Event()

    async def send(self):
        async with httpx2.AsyncClient(timeout=10) as web, asyncio.TaskGroup() as group:
            for lane in range(4):
                group.create_task(self._lane(web, lane))

    async def _lane(self, web, lane):
        count = 0
        while not self.over.is_set():
            order = f"order-{lane}-{count}"
            count += 1
            await self._post(web, order)
            self.sent += 1
            if count % 3 == 0:  # it did not hear the answer, say
                assert (await self._post(web, order))["repeated"]
                self.repeated += 1

    async def _post(self, web, order):
        body = json.dumps({"order": order}).encode()
        while True:
            at = str(int(time.time()))
            made = hmac.new(base64.b64decode(SECRET), f"{order}.{at}.".encode() + body, hashlib.sha256).digest()
            signature = f"v1,{base64.b64encode(made).decode()}"
            headers = {"webhook-id": order, "webhook-timestamp": at, "webhook-signature": signature}
            try:
                answer = await web.post(f"{self.address}/hooks/orders", content=body, headers=headers)
            except httpx2.TransportError:
                self.failed += 1
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 200:
                return answer.json()
            assert answer.status_code in (404, 503), (
                answer.text
            )  # before a worker has declared it; or the store is busy
            self.failed += 1
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.by_day("sqlite-3-1")
@pytest.mark.parametrize(("kills", "restarts"), [(3, 1), (30, 5)])
async def test_every_delivery_is_handled_once_whoever_is_killed(store_url, commands, tmp_path, kills, restarts):
    dice, began, handled = random.Random(16), time.monotonic(), table(store_url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def begun(*words):
        env = {"HOOK_SECRET": f"whsec_{SECRET}", "HANDLED": handled}
        return Worker(commands.start([*words, "--db", store_url], tmp_path, env))

    def served():
        return begun("serve", "--port", port)

    async with holdfast.open(store_url):  # makes the schema
        await asked(store_url, f"CREATE TABLE {handled} (id TEXT)")
    alive = [served(), begun("worker", FILE), begun("worker", FILE)]
    sender = Sender(f"http://127.0.0.1:{port}")
    sending = asyncio.get_running_loop().create_task(sender.send())
    try:
        at = set(dice.sample(range(kills), restarts))
        for kill in range(kills):
            before = sender.sent
            await asyncio.sleep(dice.uniform(0.02, 0.2))
            if kill in at:
                alive[0].kill()
                alive[0] = served()
            which = dice.choice([1, 2])
            alive[which].kill()
            alive[which] = begun("worker", FILE)
            while sender.sent < before + (5 if kills < 10 else 20):  # some get through between any two
                assert not sending.done() and time.monotonic() < began + 20 * PATIENCE_S, sending
                await asyncio.sleep(0.005)
        sender.over.set()
        await sending
        async with asyncio.timeout(PATIENCE_S * 2), holdfast.open(store_url) as hf:
            while await hf.deliveries(status="new", limit=1) or await hf.runs(status=UNFINISHED, limit=1):
                await asyncio.sleep(0.02)
            deliveries = await hf.deliveries(limit=100_000)
            statuses = Counter(info.status for info in await hf.runs(limit=100_000))
    finally:
        sending.cancel()
        for each in alive:
            each.kill()
    times = Counter(row[0] for row in await asked(store_url, f"SELECT id FROM {handled}"))
    twice = sum(count > 1 for count in times.values())
    print(  # noqa: T201 - the row of the table of all triggers
        f"\n| webhooks | {store_url.partition(':')[0]} | {kills} kills, {restarts} restarts of the server | {sender.sent} sent, "
        f"{sender.repeated} twice, {sender.failed} tries failed | {len(times)} handled | {sender.sent - len(times)} lost | "
        f"{twice} twice | {time.monotonic() - began:.0f} s |"
    )
    assert twice == 0
    assert len(times) == sender.sent == len(deliveries) == statuses.total()
    assert {each.status for each in deliveries} == {"done"}
    assert set(statuses) == {"completed"}
