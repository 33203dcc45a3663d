"""A server that speaks PostgreSQL's protocol and lacks what the store relies on is refused before anything is created.

CockroachDB is such a server: its advisory locks always say yes, and it has no LISTEN. Here a real PostgreSQL stands behind a proxy
that puts other functions in the place of its own: one that says yes to every lock, and one that tells nobody.
"""

import asyncio
import contextlib
import secrets
from urllib.parse import urlsplit

import asyncpg
import pytest

import holdfast

WRONG = {"locks": (b"pg_try_advisory_lock", b"pg_yes_advisory_lock"), "notifications": (b"pg_notify", b"pg_nobody")}


@contextlib.asynccontextmanager
async def proxy(url, before, after):
    """Let a client reach the server, with one word in the place of another of its length."""
    to = urlsplit(url)

    async def pump(reader, writer, change):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data.replace(before, after) if change else data)
                await writer.drain()
        writer.close()

    async def serve(reader, writer):
        there, back = await asyncio.open_connection(to.hostname, to.port)
        await asyncio.gather(pump(reader, back, True), pump(there, writer, False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield to._replace(netloc=f"{to.username}@127.0.0.1:{port}").geturl()
    finally:
        server.close()


@pytest.mark.parametrize("lacks", WRONG)
async def test_a_server_without_what_we_rely_on_is_refused(lacks, postgres_server):
    schema = f"test_{secrets.token_hex(6)}"
    db = await asyncpg.connect(postgres_server)
    await db.execute(f"CREATE SCHEMA {schema}")
    await db.execute(
        f"CREATE FUNCTION {schema}.pg_yes_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )
    await db.execute(f"CREATE FUNCTION {schema}.pg_nobody(text, text) RETURNS void LANGUAGE sql AS ''")
    try:
        async with proxy(postgres_server, *WRONG[lacks]) as url:
            with pytest.raises(holdfast.StoreUnavailable, match=lacks) as refused:
                async with holdfast.open(f"{url}?schema={schema}"):
                    pass
            assert refused.value.lasting
            assert "CockroachDB" in str(refused.value)
        made = await db.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = $1", schema)
        assert made == 0
    finally:
        await db.close()


async def test_postgresql_itself_passes(postgres_server, postgres_url):
    schema = urlsplit(postgres_url).query.partition("=")[2]
    async with proxy(postgres_server, b"nothing", b"nothing") as url, holdfast.open(f"{url}?schema={schema}") as hf:
        assert await hf.runs() == []
