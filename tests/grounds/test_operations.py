"""What operators of a cluster do: mutual TLS, API keys, tokens, the audit, versions of agents, workers that are told to stop."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from urllib.parse import quote

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds import scenes
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal.address import Address
from holdfast.client import links
from holdfast.client.edge import Edge
from holdfast.words.people import Ballot
from holdfast.words.urls import redacted

QUICK = holdfast.Settings(lease_ttl_s=3.0)


class Certificates:
    """An authority, and what it has signed, as files."""

    def __init__(self, folder):
        self.folder = folder
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), self._named("authority")
        self._write("ca.pem", self._signed(self._name, self._key, is_authority=True))

    def _named(self, name):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def _signed(self, name, key, *, is_authority=False):
        now = dt.datetime.now(dt.UTC)
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(1))
        builder = builder.not_valid_after(now + dt.timedelta(1))
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _write(self, name, content):
        (self.folder / name).write_bytes(content)
        return self.folder / name

    def make(self, name):
        """A certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        plain = serialization.NoEncryption()
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return self._write(f"{name}.pem", self._signed(self._named(name), key)), self._write(f"{name}.key", text)


@contextlib.asynccontextmanager
async def behind_tls(port, certificates):
    """The cluster behind TLS, which lets in whoever has a certificate of this authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.folder / "ca.pem")
    context.load_cert_chain(*certificates.make("server"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    tasks = set()

    async def pump(reader, writer):
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while content := await reader.read(65536):
                writer.write(content)
                await writer.drain()
        writer.close()

    async def serve(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port)
        for pair in ((reader, there[1]), (there[0], writer)):
            tasks.add(asyncio.create_task(pump(*pair)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
async def test_a_cluster_that_wants_a_certificate_gets_one(cluster, tmp_path):  # noqa: F811
    certificates = Certificates(tmp_path)
    cert, key = certificates.make("client")
    async with behind_tls(cluster.port, certificates) as port:
        url = f"temporal://localhost:{port}/default?queue=tls&ca={tmp_path}/ca.pem"
        with pytest.raises(holdfast.StoreUnavailable):
            async with holdfast.open(url):
                pass
        (tmp_path / "api").write_text("a key\n")
        url += f"&cert={cert}&key={key}&api_key_file={tmp_path}/api"
        async with holdfast.open(url, agents=[scenes.sequential], settings=QUICK) as hf:
            assert await hf.run(scenes.sequential, 2) == ["W0", "W1"]
            assert hf.store.client.api_key == "a key"
            assert "a key" not in hf.store.url


def test_the_database_beside_a_cluster_is_named_by_a_url_or_a_variable(monkeypatch):
    monkeypatch.setenv("BESIDE", "postgresql://u:secret@host/db?schema=x")
    assert Address.of("temporal://h:1/ns?side=$BESIDE").side == "postgresql://u:secret@host/db?schema=x"
    url = "temporal://h:1/ns?side=postgresql%3A%2F%2Fu%3Asecret%40host%2Fdb%3Fschema%3Dx%26a%3Db&queue=q"
    address = Address.of(url)
    assert (address.side, address.queue) == ("postgresql://u:secret@host/db?schema=x&a=b", "q")
    assert "secret" not in address.url
    assert "secret" not in redacted("temporal://h:1/ns?side=postgresql://u:secret@host/db")
    for wrong in ("temporal://h:1/ns?side=$NOWHERE", "temporal://h:1/ns?side=temporal://h:1/ns"):
        with pytest.raises(holdfast.BadArguments, match="side="):
            Address.of(wrong)


@pytest.mark.slow
async def test_tokens_and_the_audit_lie_beside_the_cluster(temporal_url, postgres_url):  # noqa: F811
    """A server lets people in, shows runs, tells what it has not with 501, and who did what is noted."""
    url = f"{temporal_url}&side={quote(postgres_url, safe='')}"
    async with holdfast.open(url, agents=[scenes.approvals, scenes.paused], settings=QUICK) as hf:
        _, secret = await hf.create_token("ann")
        transport = httpx2.ASGITransport(app=hf.asgi())
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as web:
            assert (await web.get("/api/runs", headers={"Authorization": "Bearer no"})).status_code == 401
            started = await web.post("/api/runs", json={"agent": "paused", "args": [], "id": "op-1"})
            assert started.status_code in (200, 201), started.text
            await hf.get("op-1").wait("waiting", waits_for="message", timeout="60s")
            for path in (
                "/api/runs/op-1",
                "/api/runs/op-1/events",
                "/api/events",
                "/api/approvals",
                "/api/agents",
                "/api/audit",
            ):
                assert (await web.get(path)).status_code == 200, path
            refused = await web.get("/api/fleet")
            assert (refused.status_code, refused.json()["error"]["code"]) == (501, "unsupported")
            assert (await web.post("/api/runs/op-1/pause", json={"reason": "lunch"})).status_code == 200
            await hf.get("op-1").wait("paused", timeout="60s")
            await web.post("/api/runs/op-1/cancel", json={})
        deeds = {(row.action, row.by) for row in await hf.audit(run="op-1")}
        assert {("start", "ann"), ("pause", "ann"), ("cancel", "ann")} <= deeds
        assert (await hf.revoke_token("ann"))[0].name == "ann"


@holdfast.agent
async def asks_two() -> bool:
    return bool(await holdfast.approve("Really?", needs=2))


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["sqlite", "temporal"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_link_is_good_for_one_vote(temporal_url, postgres_url, tmp_path, ground, at_once):  # noqa: F811
    url = (
        f"{temporal_url}&side={quote(postgres_url, safe='')}" if ground == "temporal" else f"sqlite:{tmp_path}/runs.db"
    )
    async with holdfast.open(url, agents=[asks_two], settings=QUICK) as hf:
        run = await hf.start(asks_two)
        question = await run.wait_for_question(timeout="60s")
        secret = (await hf.approval_link(question, by="ana", base_url="https://agents.example.com")).partition(
            "#link="
        )[2]
        who = await links.link_of(hf.store, secret)
        first, again, second = (
            Ballot(f"{nth}-{run.id}", who.actor, yes, via=who.via, seen=who.shown)
            for nth, yes in ((1, True), (1, True), (2, False))
        )
        if at_once:
            ends = await asyncio.gather(
                *(hf.store.decide(question.id, each) for each in (first, second)), return_exceptions=True
            )
            assert [type(end) for end in ends].count(holdfast.AlreadyDecided) == 1
        else:
            for each in (first, again):  # whoever does not know whether it was counted says it again
                assert (await hf.store.decide(question.id, each)).status == "open"
            with pytest.raises(holdfast.AlreadyDecided, match="this link is over"):
                await hf.store.decide(question.id, second)
            await hf.approve(question, by="ben")
            assert await run.result(timeout="60s") is True
        assert await links.link_of(hf.store, secret) is None
        assert "was used on" in await links.why_over(hf.store, secret)


@holdfast.agent
async def asks_one() -> bool:
    return bool(await holdfast.approve("Really?"))


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["sqlite", "postgresql", "cells", "temporal"])
async def test_a_link_ends_with_its_decision_and_with_its_question(
    temporal_url, postgres_url, cells_url, tmp_path, ground  # noqa: F811
):  # fmt: skip
    """On every ground alike: the link that decided, and the link of another person to the same question."""
    beside = f"{temporal_url}&side={quote(postgres_url, safe='')}"
    url = {
        "sqlite": f"sqlite:{tmp_path}/runs.db", "postgresql": postgres_url, "cells": cells_url, "temporal": beside,
    }[ground]  # fmt: skip
    async with holdfast.open(url, agents=[asks_one], settings=QUICK) as hf:
        run = await hf.start(asks_one)
        question = await run.wait_for_question(timeout="60s")
        made = [await hf.approval_link(question, by=each, base_url="https://a.example") for each in ("ana", "ben")]
        ana, ben = (link.partition("#link=")[2] for link in made)
        who = await links.link_of(hf.store, ana)
        through = Edge(hf).through(who.actor, who.via)
        await through.approve(await through.approval(question.id), by=who.actor, digest=who.shown)
        assert await run.result(timeout="60s") is True
        assert [await links.link_of(hf.store, each) for each in (ana, ben)] == [None, None]
        assert "this link was used on" in await links.why_over(hf.store, ana)
        said = await links.why_over(hf.store, ben)
        assert said.startswith(f"this link is over: question {question.id!r} was decided before: approved by 'ana' on ")


@pytest.mark.slow
async def test_a_body_that_runs_may_end_when_its_worker_is_told_to_stop(temporal_url):  # noqa: F811
    scenes.begun.clear()
    settings = holdfast.Settings(lease_ttl_s=30.0, stop_grace_s=60.0)
    async with holdfast.open(temporal_url, agents=[scenes.lingers], settings=settings) as hf:
        run = await hf.start(scenes.lingers)
        while not scenes.begun:
            await asyncio.sleep(0.02)
    async with holdfast.open(temporal_url, agents=[scenes.lingers], settings=settings) as hf:
        run = hf.get(run.id)
        assert await run.result(timeout="60s") == ["late", "AFTER"]
    assert set(scenes.begun.values()) == {1}


@pytest.mark.slow
async def test_a_version_of_an_agent_is_a_deployment_to_temporal(temporal_url):  # noqa: F811
    @holdfast.agent(name="deployed", version="7")
    async def deployed() -> str:
        return await scenes.work("seven")

    async with holdfast.open(temporal_url, agents=[deployed], settings=QUICK) as hf:
        assert await hf.run(deployed) == "SEVEN"
        address = hf.store.address
        asked = DescribeTaskQueueRequest(
            namespace=address.namespace, task_queue=TaskQueue(name=address.task_queue("deployed", "7", "default")),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )  # fmt: skip
        found = await hf.store.client.workflow_service.describe_task_queue(asked)
        told = {(each.deployment_options.deployment_name, each.deployment_options.build_id) for each in found.pollers}
        assert told == {(f"{address.queue}-deployed", "7")}
