"""Servers and workers to attack: real processes on a real store, asked through real sockets."""

import asyncio
import contextlib
import functools
import json
import re
import socket

import pytest
from tests.workers import Worker

import holdfast


class Target:
    """A process that answers HTTP somewhere."""

    def __init__(self, process, url, folder):
        self.process, self.url, self.folder, self.held = process, url, folder, []
        found = re.search(r"http://([\d.]+):(\d+)", process.until("http://"))
        self.place = (found[1], int(found[2]))

    @functools.cached_property
    def token(self):
        """The secret of one that may do all."""
        return with_store(self, lambda hf: hf.create_token("tess"))[1]

    def connect(self, source=None, room=None):
        """A connection from an address of this computer, with so much room for what is not read. It ends with the test."""
        connection = socket.socket()
        self.held.append(connection)
        connection.settimeout(20)
        if room is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        if source is not None:
            connection.bind((source, 0))
        connection.connect(self.place)
        return connection

    def close(self):
        for each in self.held:
            each.close()

    def send(self, head, source=None):
        """All that comes back to these bytes, until the other side closes."""
        with self.connect(source) as connection:
            try:
                connection.sendall(head)
                return rest(connection)
            except (ConnectionError, TimeoutError) as error:
                return repr(error).encode()

    def ask(self, path, method="GET", body=None, source=None, token=..., **headers):
        """The status, the headers and the document of an answer; with a token of the target unless another is given, or None."""
        if token is ...:
            token = self.token if path.startswith("/api/") else None
        named = {"Host": "127.0.0.1", "Connection": "close"} | headers
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        if body is not None:
            named = {"Content-Type": "application/json", "Content-Length": str(len(body))} | named
        lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {text}" for name, text in named.items())]
        return parsed(self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""), source))


def rest(connection):
    """All that comes until the other side closes, or does not take what is still sent to it."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            found += part
    return found


def parsed(answer):
    """Status, headers and document of the first answer in these bytes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    assert first.startswith("HTTP/1.1 "), answer[:200]
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    if headers.get("content-type") == "application/json" and body:
        body = json.loads(body)
    return int(first.split()[1]), headers, body


@pytest.fixture
def target(commands, tmp_path):
    """Starts `holdfast serve` or another command with a port of its own: `target("serve", "--port", "0")`."""
    started, targets, url = [], [], f"sqlite:{tmp_path / 'runs.db'}"

    def start(*words, env=()):
        process = Worker(commands.start([*words, "--db", url], tmp_path, dict(env)))
        started.append(process)
        targets.append(Target(process, url, tmp_path))
        return targets[-1]

    yield start
    for each in targets:
        each.close()
    for each in started:
        each.kill()


@pytest.fixture
def server(target):
    """A server with its limits as they are."""
    return target("serve", "--port", "0")


def with_store(target, what):
    """Do something in the store of a target."""

    async def main():
        async with holdfast.open(target.url) as hf:
            return await what(hf)

    return asyncio.run(main())
