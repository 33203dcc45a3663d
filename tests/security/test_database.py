"""PostgreSQL with roles of its own: what each may do, what others hear, and what goes over the network in the clear."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest
from tests.chaos.server import Server, programs
from tests.deploy.files import DEPLOY
from tests.postgres import NEVER_FLUSH

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.http.errors import problem
from holdfast.store.postgres.connection import parse_url


@holdfast.agent
async def asks(secret: str) -> str:
    return secret if await holdfast.approve("Go on?") else ""


@pytest.fixture(scope="module")
def database():
    """URLs of a database made by the roles that are deployed: for its owner, a person who may only look, and a stranger."""
    with tempfile.TemporaryDirectory(prefix="holdfast-postgres-") as place:
        server = Server(Path(place) / "cluster")
        server.create()
        server.start(NEVER_FLUSH)
        for script in (
            (DEPLOY / "postgres" / "roles.sql").read_text(),
            "CREATE ROLE eve LOGIN IN ROLE holdfast_reader; CREATE ROLE mallory LOGIN",
            "GRANT CONNECT ON DATABASE holdfast TO mallory",
        ):
            command = [programs() / "psql", "--quiet", "--set=ON_ERROR_STOP=1", server.url]
            subprocess.run(command, input=script, text=True, check=True, env={"STORE_PASSWORD": "p'w"})
        place = f"127.0.0.1:{server.port}/holdfast"
        yield {role: f"postgresql://{role}@{place}" for role in ("holdfast", "eve", "mallory")}
        server.stop()


async def test_the_role_that_is_deployed_is_enough_and_no_more(database):
    """It is no superuser, makes neither roles nor databases, and carries runs to their end."""
    async with holdfast.open(database["holdfast"], agents=[asks]) as hf:
        run = await hf.start(asks, "s3cret")
        question = await run.wait_for_question()
        await hf.approve(question.id, by="ana")
        assert await run.result(timeout=20) == "s3cret"
    db = await asyncpg.connect(database["holdfast"])
    try:
        row = await db.fetchrow(
            "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles WHERE rolname = user"
        )
        assert list(row) == [False] * 4
    finally:
        await db.close()


async def test_a_role_that_may_only_read_looks_and_changes_nothing(database):
    """It lists, shows and follows; each write is refused with the reason, and the command line says the same."""
    async with holdfast.open(database["holdfast"], agents=[asks]) as hf:
        run = await hf.start(asks, "s3cret", id="seen")
        question = await run.wait_for_question()
        async with holdfast.open(database["eve"]) as eve:
            assert "seen" in [each.id for each in await eve.runs()]
            assert [each.id for each in await eve.approvals()] == [question.id]
            for write in (
                eve.start("asks", "x"),
                eve.approve(question.id, by="eve"),
                eve.get("seen").cancel(by="eve"),
            ):
                with pytest.raises(StoreUnavailable, match="can only be looked at") as refused:
                    await write
                status, document, headers = problem(refused.value)  # as a server says it: no reason to ask again
                assert (status, headers) == (503, None)
                assert "server that may write" in document["error"]["hint"]
        said = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "holdfast", "--db", database["eve"], "show", "seen"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Go on?" in said.stdout
        await run.wait("waiting", timeout="30s")
        await run.cancel(by="ana")


async def test_other_roles_hear_nothing(database):
    """One that knows the schema listens to every name that it could guess while runs are started and decided."""
    heard = []

    async with holdfast.open(database["holdfast"], agents=[asks]) as hf:
        mallory = await asyncpg.connect(database["mallory"])
        try:
            names = [
                row[0] for row in await mallory.fetch("SELECT query FROM pg_stat_activity WHERE query ILIKE '%listen%'")
            ]
            assert not [name for name in names if "holdfast_" in name and "pg_stat" not in name]
            for channel in ("holdfast_holdfast", "holdfast", "holdfast_"):
                await mallory.add_listener(channel, lambda *said: heard.append(said))
            async with holdfast.open(database["holdfast"]) as other:  # whoever listens elsewhere does hear
                run = await hf.start(asks, "s3cret", id="unheard")
                waiting = asyncio.create_task(other.get("unheard").wait("waiting"))
                await run.wait_for_question()
                await asyncio.wait_for(waiting, 20)
                await run.cancel(by="ana")
            await asyncio.sleep(0.1)
        finally:
            await mallory.close()
    assert heard == []


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://u@localhost/d", None),
        ("postgresql://u@127.0.0.3:5433/d", None),
        ("postgresql://u@[::1]:5433/d", None),
        ("postgresql:///d?host=/run/postgresql", None),
        ("postgresql://u@%2Frun%2Fpostgresql/d", None),
        ("postgresql://u@db.example.com/d", "require"),
        ("postgresql://u@10.1.2.3/d", "require"),
        ("postgresql://u@localhost,db.example.com/d", "require"),
        ("postgresql://u@/d?host=db.example.com", "require"),
        ("postgresql://u@[2001:db8::1]/d", "require"),
        ("postgresql://u@db.example.com/d?sslmode=verify-full", "verify-full"),
        ("postgresql://u@db.example.com/d?sslmode=disable", "disable"),
    ],
)
def test_what_leaves_this_machine_is_encrypted(monkeypatch, url, mode):
    """Where the URL says nothing, TLS is needed if one host is another machine; what it says is what holds."""
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGSSLMODE", raising=False)
    dsn = parse_url(url).dsn
    assert ("sslmode=" in dsn) == (mode is not None)
    assert mode is None or f"sslmode={mode}" in dsn


def test_a_server_is_checked_with_the_authorities_of_the_system(monkeypatch, tmp_path):
    """Unless the URL, the environment or a file of the user names others: a worker in a container has no such file."""
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGHOST"):
        monkeypatch.delenv(name, raising=False)
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    monkeypatch.setenv("HOME", str(tmp_path))

    def root(more):
        return dict(parse_qsl(urlsplit(parse_url(f"postgresql://u@db.example.com/d{more}").dsn).query)).get(
            "sslrootcert"
        )

    assert root("?sslmode=verify-full") == root("?sslmode=verify-full&sslrootcert=system") == str(trusted)
    assert root("?sslmode=verify-full&sslrootcert=ours.pem") == "ours.pem"
    assert root("") is root("?sslmode=verify-ca") is root("?sslmode=disable") is None
    monkeypatch.setenv("PGSSLROOTCERT", "theirs.pem")
    assert root("?sslmode=verify-full") is None
    monkeypatch.delenv("PGSSLROOTCERT")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert root("") == str(trusted)
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").write_text("")
    assert root("") is root("?sslmode=verify-full") is None


def test_a_server_that_cannot_be_reached_is_told_with_what_to_do(database):
    """A port where nobody listens, a file that is not there."""

    async def main(url):
        async with holdfast.open(url):
            pass

    url = urlsplit(database["holdfast"])
    where = f"{url.hostname}:{url.port}"
    for wrong, told in (
        (f"postgresql://u@{url.hostname}:1/postgres", "is a PostgreSQL server there"),
        (f"postgresql://u@{where}/postgres?sslmode=verify-full&sslrootcert=/none.pem", "sslrootcert="),
        ("postgresql://u@/postgres?host=/nowhere", "its socket is in the folder that host= names"),
    ):
        with pytest.raises(StoreUnavailable, match=told):
            asyncio.run(main(wrong))


@pytest.mark.skipif("PGSSLMODE" in os.environ, reason="the environment says what is wanted")
def test_a_server_without_tls_is_not_spoken_to_in_the_clear(database):
    """A name that may be another machine's: refused with both ways out; one of them works."""
    far = database["holdfast"].replace("127.0.0.1", "2130706433")  # an address that only resolving makes loopback

    async def main(url):
        async with holdfast.open(url) as hf:
            return await hf.count_runs()

    with pytest.raises(StoreUnavailable, match=r"verify-full.*sslmode=disable"):
        asyncio.run(main(far))
    asyncio.run(main(far + "?sslmode=disable"))


async def test_a_role_that_may_not_use_the_store_is_told_what_to_grant(database):
    """The store is there and whole: to its eyes there are no tables."""
    async with holdfast.open(database["holdfast"]):
        pass
    with pytest.raises(StoreUnavailable, match='GRANT USAGE ON SCHEMA "holdfast" TO mallory; GRANT SELECT') as refused:
        async with holdfast.open(database["mallory"]):
            pass
    assert "does not exist" not in str(refused.value)
