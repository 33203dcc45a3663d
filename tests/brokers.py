"""Real brokers for tests, each a process of its own on the loopback interface that can be killed and started again.

NATS comes with a package, Kafka is the cluster for tests inside librdkafka, and SQS is the server of moto. Redis and RabbitMQ must
be installed: without them their tests are skipped and say what to install, and with CI=true they fail.

What moto and librdkafka's cluster have is gone when they end: tests that restart a broker leave these out.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.server import free_port

WAIT_S = 150.0
REGION = "eu-west-1"


def needed(program: str, package: str, *places: str) -> str:
    """Where a program is; the test is skipped without it, or fails where that must not be."""
    found = shutil.which(program, path=os.pathsep.join([*places, os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None:
        told = f"{program} is not here; install it, on Debian with: apt-get install --no-install-recommends {package}"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)
    return found


class Broker:
    """A server in a folder. `publish` gives the ids by which the messages can be told apart."""

    lasts = True  # what it has survives its end
    id: str | None = None  # where the messages that `publish` makes have theirs
    counts = True  # it tells how often a message was given
    notices = False  # it notices by itself when a connection is gone
    long_s = 30.0  # after which it gives a message again, where that should not happen

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                env={**os.environ, **self.environment()}, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + WAIT_S
        while True:
            try:
                asyncio.run(self.ping())
                return
            except Exception:
                if self._process.poll() is not None or time.monotonic() > end:
                    told = (self.folder / "log").read_text()
                    self.kill()
                    raise RuntimeError(f"{type(self).__name__} does not answer: {told}") from None
                time.sleep(0.2)  # each try costs what the server needs to start

    def kill(self) -> None:
        """End it with -9, and all that it has started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self, away_s: float = 0.0) -> None:
        self.kill()
        time.sleep(away_s)
        self.start()

    stop = kill

    def url(self, queue: str) -> str:
        raise NotImplementedError

    async def ping(self) -> None:
        """Raise unless it answers."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.close()
        await writer.wait_closed()

    async def make(self, queue: str) -> None:
        """Make a queue."""
        raise NotImplementedError

    async def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        raise NotImplementedError


class Nats(Broker):
    def command(self) -> list[str]:
        program = needed("nats-server", "nats-server", str(Path(sys.executable).parent))
        return [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "data")]

    def url(self, queue: str) -> str:
        return f"nats://127.0.0.1:{self.port}/{queue}"

    async def _client(self) -> Any:
        from nats.aio.client import Client

        async def ignore(_: Exception) -> None: ...

        client = Client()
        try:
            await client.connect(
                f"nats://127.0.0.1:{self.port}", connect_timeout=5, allow_reconnect=False, max_reconnect_attempts=1,
                reconnect_time_wait=0.1, error_cb=ignore,
            )  # fmt: skip
        except BaseException:
            await client.close()
            raise
        return client

    async def ping(self) -> None:
        await super().ping()
        client = await self._client()
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()

    async def make(self, queue: str) -> None:
        client = await self._client()
        await client.jetstream().add_stream(name=queue, subjects=[f"{queue}.>"])
        await client.close()

    async def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        client = await self._client()
        stream = client.jetstream()
        for start in range(0, len(bodies), 200):
            await asyncio.gather(*[stream.publish(f"{queue}.new", body) for body in bodies[start : start + 200]])
        await client.close()


class Redis(Broker):
    def command(self) -> list[str]:
        program = needed("redis-server", "redis-server")
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                "--appendonly", "yes", "--appendfsync", "always"]  # fmt: skip

    def url(self, queue: str) -> str:
        return f"redis://127.0.0.1:{self.port}/{queue}"

    def _client(self) -> Any:
        from redis.asyncio import Redis as Client

        return Client(host="127.0.0.1", port=self.port)

    async def ping(self) -> None:
        async with self._client() as client:
            await client.ping()

    async def make(self, queue: str) -> None:
        """Nothing: a stream is made by its first message, or by its first reader."""

    async def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        async with self._client() as client, client.pipeline(transaction=False) as pipe:
            for body in bodies:
                pipe.xadd(queue, {"body": body, "Colour": "grün"})
            await pipe.execute()


class RabbitMQ(Broker):
    id = "header:message-id"
    notices = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._names, self._between = free_port(), free_port()

    def command(self) -> list[str]:
        needed("rabbitmq-server", "rabbitmq-server")
        names = needed("epmd", "rabbitmq-server")  # ends with the session of the server: it would stay for ever
        server = needed("rabbitmq-server", "rabbitmq-server", "/usr/lib/rabbitmq/bin")
        return ["/bin/sh", "-c", f"{names} -port {self._names} -address 127.0.0.1 & exec {server}"]

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder), "RABBITMQ_NODENAME": f"test{self.port}@localhost", "ERL_EPMD_PORT": str(self._names),
            "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._between), "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"), "RABBITMQ_LOGS": "-", "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }  # fmt: skip

    def url(self, queue: str) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{queue}"

    async def _client(self) -> Any:
        import aio_pika

        return await aio_pika.connect(host="127.0.0.1", port=self.port, timeout=5)

    async def ping(self) -> None:
        await super().ping()
        await (await self._client()).close()

    async def make(self, queue: str) -> None:
        async with await self._client() as client:
            await (await client.channel()).declare_queue(queue, durable=True)

    async def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        import aio_pika

        async with await self._client() as client:
            channel = await client.channel()
            for start in range(0, len(bodies), 200):
                messages = [
                    aio_pika.Message(body, message_id=os.urandom(8).hex(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                                     headers={"Colour": "grün"})
                    for body in bodies[start : start + 200]
                ]  # fmt: skip
                await asyncio.gather(*[channel.default_exchange.publish(each, routing_key=queue) for each in messages])


class Kafka(Broker):
    lasts = counts = False
    notices = True
    id = "header:id"
    long_s = 6.0  # librdkafka's cluster does not let a member leave before its time

    def command(self) -> list[str]:
        return [sys.executable, "-c", _KAFKA, str(self.folder / "address")]

    async def ping(self) -> None:
        if not self._address:
            raise ConnectionError("it has not begun")

    @property
    def _address(self) -> str:
        place = self.folder / "address"
        return place.read_text() if place.exists() else ""

    def kill(self) -> None:
        super().kill()
        (self.folder / "address").unlink(missing_ok=True)

    stop = kill

    def url(self, queue: str) -> str:
        return f"kafka://{self._address}/{queue}"

    async def make(self, queue: str) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._address})  # it makes the topics that producers ask for
        await asyncio.to_thread(producer.list_topics, queue, 10)

    async def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        from confluent_kafka import Producer

        def work() -> None:
            producer = Producer({"bootstrap.servers": self._address, "linger.ms": 5})
            for body in bodies:
                producer.produce(queue, body, headers={"id": os.urandom(8).hex(), "Colour": "grün"})
            assert producer.flush(20) == 0

        await asyncio.to_thread(work)


_KAFKA = """
import pathlib, sys, time
from confluent_kafka import Producer
holder = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
for _ in range(500):
    found = [f"{each.host}:{each.port}" for each in holder.list_topics(timeout=10).brokers.values()]
    if found:
        break
place = pathlib.Path(sys.argv[1])
place.with_suffix(".new").write_text(",".join(found))
place.with_suffix(".new").rename(place)
while True:
    holder.poll(60)
"""


class SQS(Broker):
    lasts = False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def url(self, queue: str) -> str:
        return f"sqs://test:test-secret@{REGION}/{queue}?endpoint=http://127.0.0.1:{self.port}"

    def _client(self) -> Any:
        from aiobotocore.session import get_session

        return get_session().create_client(
            "sqs", region_name=REGION, endpoint_url=f"http://127.0.0.1:{self.port}", aws_access_key_id="test",
            aws_secret_access_key="test-secret",
        )  # fmt: skip

    async def make(self, queue: str) -> None:
        async with self._client() as client:
            await client.create_queue(QueueName=queue)

    async def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        async with self._client() as client:
            url = (await client.get_queue_url(QueueName=queue))["QueueUrl"]
            for start in range(0, len(bodies), 10):
                colour = {"Colour": {"DataType": "String", "StringValue": "grün"}}
                await client.send_message_batch(QueueUrl=url, Entries=[
                    {"Id": str(number), "MessageBody": body.decode(), "MessageAttributes": colour}
                    for number, body in enumerate(bodies[start : start + 10])
                ])  # fmt: skip


BROKERS: dict[str, type[Broker]] = {"nats": Nats, "redis": Redis, "rabbitmq": RabbitMQ, "kafka": Kafka, "sqs": SQS}
