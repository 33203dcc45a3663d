"""Senders: what goes out over HTTP and by mail, and what a receiver or a name cannot make a worker do."""

import asyncio
import datetime as dt
import ipaddress
import re
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.receivers import MailServer, Receiver

from holdfast import Permanent
from holdfast.worker import senders
from holdfast.worker.senders import Undelivered

HERE = "127.0.0.0/8 ::1"


@pytest.fixture(autouse=True)
def allowed(monkeypatch):
    monkeypatch.setenv(senders.NETWORKS, HERE)


async def refused(url: str, error: type[Exception] = Undelivered) -> Exception:
    with pytest.raises(error) as caught:
        await senders.post(url, b"{}", [])
    assert "hidden" not in str(caught.value) and "secret" not in str(caught.value)
    return caught.value


async def test_a_post():
    with Receiver() as receiver:
        assert (
            await senders.post(receiver.url, b'{"a": 1}', [("content-type", "application/json"), ("webhook-id", "m")])
            == 204
        )
        (request,) = receiver.requests
        assert (request.path, request.body, request.id) == ("/hooks/T0/secret?key=hidden", b'{"a": 1}', "m")
        assert request.headers["host"] == f"localhost:{receiver.port}"
        assert request.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("answer", "says", "wait"),
    [
        (400, "answered 400", None), (404, "answered 404", None), (500, "answered 500", None),
        (b"HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/hidden\r\ncontent-length: 0\r\n\r\n", "302 .redirects", None),
        (b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", "answered 429", 7),
        (b"HTTP/1.1 503 X\r\nretry-after: 99999999\r\ncontent-length: 0\r\n\r\n", "answered 503", 86_400),
        (b"HTTP/1.1 503 X\r\nretry-after: Wed, 21 Oct 2099 07:28:00 GMT\r\ncontent-length: 0\r\n\r\n", "answered 503", None),
        (b"HTTP/1.1 500 X\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", "answered 500", None),
        ("close", "without an answer|broke off", None), ("half", "broke off", None),
        (b"SSH-2.0-hidden\r\n", "does not speak HTTP", None), (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "does not speak", None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n", "answered 500", None),
    ],
)  # fmt: skip
async def test_what_is_no_success_is_tried_again(answer, says, wait):
    with Receiver(lambda _: answer) as receiver:
        error = await refused(receiver.url)
        assert re.search(says, str(error)) and error.retry_after == wait


async def test_a_receiver_that_is_gone_is_not_asked_again():
    with Receiver(lambda _: 410) as receiver:
        assert "nobody is there" in str(await refused(receiver.url, Permanent))


async def test_nobody_listens():
    with Receiver() as receiver:
        pass
    assert "no connection" in str(await refused(receiver.url))


async def test_an_answer_without_end_is_not_read_to_its_end():
    """And the status counts, which came first."""
    with Receiver(lambda _: b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000) as receiver:
        assert await senders.post(receiver.url, b"{}", []) == 200


@pytest.mark.parametrize("answer", ["hang", "drip"])
async def test_a_receiver_that_hangs_has_a_deadline(answer, monkeypatch):
    monkeypatch.setattr(senders, "DEADLINE_S", 0.05)
    with Receiver(lambda _: answer) as hangs:
        assert "has not answered within 0.05 s" in str(await refused(hangs.url))


# Where it goes


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0"]
)
async def test_a_private_address_is_refused_however_it_is_spelled(host, monkeypatch):
    """And nobody there hears of it."""
    monkeypatch.delenv(senders.NETWORKS)
    with Receiver() as receiver:
        for scheme in ("http", "https"):
            told = str(await refused(f"{scheme}://{host}:{receiver.port}/hidden"))
            assert "is not a public address" in told and senders.NETWORKS in told
        assert receiver.requests == []


def resolver(monkeypatch, *answers: list[str]) -> list[str]:
    """Let names resolve to these, one list at each question; returns the names that were asked for."""
    asked: list[str] = []
    left = list(answers)

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        try:
            found = [str(ipaddress.ip_address(host))]
        except ValueError:
            asked.append(host)
            found = left.pop(0)
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, type, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


async def test_a_name_with_any_private_address_is_refused(monkeypatch):
    monkeypatch.delenv(senders.NETWORKS)
    for answer in (
        ["10.0.0.7"],
        ["8.8.8.8", "169.254.169.254"],
        ["2606:4700::1", "::ffff:192.168.1.1"],
        ["fd00:ec2::254"],
    ):
        resolver(monkeypatch, answer)
        told = await refused("https://evil.example/hidden")
        assert "evil.example is not a public address" in str(told)
        assert not any(each in str(told) for each in answer)  # whoever registers notifications sees it
        assert told.aside.removeprefix("evil.example is ") in " ".join(answer)


async def test_a_name_is_resolved_once(monkeypatch):
    """One that means something else a moment later changes nothing: the connection goes to the address that was judged."""
    with Receiver() as receiver:
        asked = resolver(monkeypatch, ["127.0.0.1"], ["10.255.255.1"], ["10.255.255.1"])
        url = f"http://rebinding.example:{receiver.port}/hidden"
        assert await senders.post(url, b"{}", []) == 204
        assert asked == ["rebinding.example"]
        assert receiver.requests[0].headers["host"] == f"rebinding.example:{receiver.port}"


async def test_networks_that_cannot_be_read_are_mended_and_nothing_is_lost(monkeypatch):
    monkeypatch.setenv(senders.NETWORKS, "10.0.0.0/99")
    assert "cannot be used: '10.0.0.0/99' is not a network" in str(await refused("https://public.example/hidden"))


async def test_in_the_clear_only_where_the_operator_says(monkeypatch):
    resolver(monkeypatch, ["8.8.8.8"])
    assert "use https" in str(await refused("http://public.example/hidden"))


async def test_a_name_without_an_address(monkeypatch):
    def getaddrinfo(*args, **named):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert "nowhere.example has no address" in str(await refused("https://nowhere.example/hidden"))


async def test_a_name_that_takes_long_to_be_resolved_holds_up_nothing_else(monkeypatch):
    """Who names the host may have its name server hang: neither other receivers nor the threads of the worker wait for it."""
    real, answers, asked = socket.getaddrinfo, threading.Event(), []

    def getaddrinfo(host, *args, **named):
        if host == "slow.example":
            asked.append(host)
            assert answers.wait(30)
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    slow = [asyncio.ensure_future(refused("https://slow.example/hidden")) for _ in range(40)]
    try:
        while not asked:
            await asyncio.sleep(0.005)
        with Receiver() as receiver:
            async with asyncio.timeout(10):
                assert await senders.post(receiver.url, b"{}", []) == 204
                assert await asyncio.to_thread(int, "7") == 7
        slow[0].cancel()  # one that is given up takes the answer from none of the others
    finally:
        answers.set()
    told = await asyncio.gather(*slow, return_exceptions=True)
    assert isinstance(told[0], asyncio.CancelledError)
    assert {str(each) for each in told[1:]} == {"slow.example has no address: check the name"}
    assert asked == ["slow.example"]  # at once, by all of them
    await refused("https://slow.example/hidden")
    assert len(asked) == 2


async def test_the_next_address_is_tried(monkeypatch):
    with Receiver() as receiver:
        resolver(monkeypatch, ["127.0.0.2", "127.0.0.1"])  # nobody listens at the first
        assert await senders.post(f"http://two.example:{receiver.port}/", b"{}", []) == 204


@pytest.mark.parametrize(
    "url", ["mailto:a@b.c", "ftp://x/hidden", "https://u:hidden@x/", "postgresql://u:hidden@x/", "hidden"]
)
async def test_a_variable_may_hold_anything(url):
    assert "URL" in str(await refused(url))


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A context of a server that is named good.example, and the file of the authority that says so."""
    folder = tmp_path_factory.mktemp("tls")
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")]),
    )
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(1))
        .not_valid_after(now + dt.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("good.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    return context, certificate


async def test_the_certificate_is_that_of_the_name(authority, monkeypatch):
    """Of the host in the URL, not of the address that it has."""
    context, certificate = authority
    with Receiver(secure=context) as receiver:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        resolver(monkeypatch, *[["127.0.0.1"]] * 3)
        assert await senders.post(f"https://good.example:{receiver.port}/", b"{}", []) == 204
        assert "certificate of other.example is not good" in str(
            await refused(f"https://other.example:{receiver.port}/hidden")
        )
        monkeypatch.delenv("SSL_CERT_FILE")
        assert "certificate of good.example is not good" in str(
            await refused(f"https://good.example:{receiver.port}/hidden")
        )
        assert len(receiver.requests) == 1


# Mail

DOCUMENT = {"type": "run.failed", "timestamp": "2026-11-17T07:00:00Z",
            "data": {"run": "r", "agent": "research", "text": "failed: no room"}}  # fmt: skip


@pytest.fixture
def from_us(monkeypatch):
    monkeypatch.setenv(senders.SMTP_FROM, "holdfast@example.com")


async def test_mail_is_handed_over(monkeypatch, from_us):
    with MailServer() as server:
        monkeypatch.setenv(senders.SMTP_URL, f"smtp://127.0.0.1:{server.port}")
        for _ in range(2):
            await senders.mail("msg_1", DOCUMENT, "ana@example.com")
        first, second = server.mails
        assert first.content == second.content
        assert (first.mail_from, first.rcpt_tos) == ("holdfast@example.com", ["ana@example.com"])
        assert b"Message-ID: <msg_1@example.com>" in first.content
        assert b"Subject: [holdfast] run.failed: research, run r" in first.content


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("smtp://127.0.0.1:{port}", "answered 451"), ("smtp://127.0.0.1:1", "cannot be reached"),
        ("smtp://u:hidden@127.0.0.1:{port}", "cannot be reached"),  # it has no TLS, and the password is not told
        ("smtp://localhost.example.invalid:{port}", "cannot be reached"), ("http://hidden", "no address of a mail server"),
        ("smtp://[hidden", "no address of a mail server"), ("", "has no HOLDFAST_SMTP_URL"),
    ],
)  # fmt: skip
async def test_mail_that_is_not_taken(url, says, monkeypatch, from_us):
    with MailServer(lambda _: "451 hidden words") as server:
        monkeypatch.setenv(senders.SMTP_URL, url.format(port=server.port))
        with pytest.raises(Undelivered, match=says) as caught:
            await senders.mail("msg_1", DOCUMENT, "ana@example.com")
        assert "hidden" not in str(caught.value)


async def test_mail_needs_a_sender(monkeypatch):
    monkeypatch.delenv(senders.SMTP_FROM, raising=False)
    with pytest.raises(Undelivered, match="has no HOLDFAST_SMTP_FROM"):
        await senders.mail("msg_1", DOCUMENT, "ana@example.com")
    monkeypatch.setenv(senders.SMTP_FROM, "nobody")
    monkeypatch.setenv(senders.SMTP_URL, "smtp://127.0.0.1:1")
    with pytest.raises(Undelivered, match="none of a mailbox"):
        await senders.mail("msg_1", DOCUMENT, "ana@example.com")
