"""Transactional steps happen exactly once: real processes are killed between any two of their statements, or lose the run."""

import asyncio
import secrets
import signal

import pytest
from tests.processes import transaction_program
from tests.processes.transaction_program import look

import holdfast

TABLES = (
    "CREATE TABLE entries (run TEXT, key TEXT, n INTEGER)", "CREATE TABLE total (n INTEGER)", "INSERT INTO total VALUES (0)",
)  # fmt: skip
RESULT = [1, 0, 2, 3, 0, 4, 0, 5]


class Books:
    """A store, and somebody's own tables in the same database."""

    def __init__(self, server, folder):
        name = secrets.token_hex(6)
        self.url, self._schemas, made = f"sqlite:{folder / name}.db?durability=process", [], []
        if server is not None:
            self._schemas = [f"our_{name}", f"own_{name}"]
            self.url = f"{server}{'&' if '?' in server else '?'}schema=our_{name}&search_path=own_{name}"
            made = [f"CREATE SCHEMA own_{name}"]
        asyncio.run(self._open())
        asyncio.run(look(self.url, *made, *TABLES))

    async def _open(self):
        async with holdfast.open(self.url):
            pass

    def ask(self, statement):
        return asyncio.run(look(self.url, statement))[0]

    def agree(self, run):
        """The steps that the journal has completed are exactly those whose entries are there, once each: their number."""
        completed = f"run_id = '{run}' AND kind = 'step.completed' AND key LIKE '%enter%'"
        entered, recorded, total, added = asyncio.run(
            look(
                self.url,
                f"SELECT key FROM entries WHERE run = '{run}' ORDER BY key",
                f"SELECT key FROM our.events WHERE {completed} ORDER BY key",
                "SELECT n FROM total",
                "SELECT coalesce(sum(n), 0) FROM entries",
            )
        )
        assert (entered, total) == (recorded, added)
        return len(entered)

    def total(self):
        return self.ask("SELECT n FROM total")[0][0]

    def close(self):
        for schema in self._schemas:
            asyncio.run(look(self.url, f"DROP SCHEMA IF EXISTS {schema} CASCADE"))


@pytest.fixture(params=["sqlite", "postgres"])
def books(request, tmp_path):
    made = Books(None if request.param == "sqlite" else request.getfixturevalue("postgres_server"), tmp_path)
    yield made
    made.close()


def carried(forks, folder, books, run, at=None):
    return forks.start(transaction_program.carry, folder=str(folder), url=books.url, run=run, at=at)


@pytest.mark.by_day("sqlite")
@pytest.mark.timeout(300)
def test_killed_at_every_statement(forks, tmp_path, books, request):
    """Killed between any two statements of any transaction, its writes and its record are both there or both not."""
    process = carried(forks, tmp_path, books, "whole")
    said = process.read()
    process.ends()
    assert said["result"] == RESULT
    assert books.agree("whole") == 5
    dead = []
    for at in range(1, said["statements"] + 1):
        process = carried(forks, tmp_path, books, f"run{at}", at)
        if process.wait() != 0:  # with other conflicts there are other statements
            assert process.code == -signal.SIGKILL, process.log.read_text()
            dead.append(f"run{at}")
        books.agree(f"run{at}")
    last = forks.start(transaction_program.carry_all, folder=str(tmp_path), url=books.url, runs=dead)
    assert last.read(60)["results"] == [RESULT] * len(dead)
    last.ends()
    assert {books.agree(run) for run in dead} == {5}
    request.node.user_properties.append(("crash_points", len(dead)))
    assert len(dead) > 20


def serving(forks, folder, books, ttl_s=1.0, **settings):
    process = forks.start(transaction_program.serve, folder=str(folder), url=books.url, ttl_s=ttl_s, **settings)
    assert process.read() == {"ready": True}
    return process


def start(books, agent, run, *args):
    async def main():
        async with holdfast.open(books.url) as hf:
            await hf.start(agent, *args, id=run)

    asyncio.run(main())


def result(books, run="run"):
    async def main():
        async with holdfast.open(books.url) as hf:
            return await hf.get(run).result(timeout=40)

    return asyncio.run(main())


@pytest.mark.timeout(60)
def test_a_stopped_process_leaves_nothing(forks, tmp_path, postgres_server):
    """Stopped in a body for longer than its lease, a process loses the run and all it wrote; its locks do not last."""
    books = Books(postgres_server, tmp_path)
    stale = serving(forks, tmp_path, books)
    start(books, transaction_program.holding, "run")
    assert stale.read() == {"body": stale.pid}
    stale.stop()
    other = serving(forks, tmp_path, books)
    assert other.read() == {"body": other.pid}  # it has changed the row that the other one had locked
    (tmp_path / "go").touch()
    assert result(books) == f"{other.pid}"
    stale.go_on()
    stale.tell("end")
    assert stale.wait() == 0
    other.tell("end")
    other.ends()
    assert (books.ask("SELECT key FROM entries"), books.total()) == ([(f"{other.pid}",)], 1)
    books.close()


@pytest.mark.timeout(60)
def test_a_body_that_begins_too_late_leaves_nothing(forks, tmp_path):
    """On SQLite a transaction has the file to itself; one that would begin when the run is somebody else's has no effect."""
    books = Books(None, tmp_path)
    stale = serving(forks, tmp_path, books, waits=True)
    start(books, transaction_program.holding, "run")
    assert stale.read() == {"before": stale.pid}
    stale.stop()
    other = serving(forks, tmp_path, books)
    assert other.read() == {"body": other.pid}
    (tmp_path / "go").touch()
    assert result(books) == f"{other.pid}"
    stale.go_on()
    (tmp_path / "begin").touch()
    stale.tell("end")
    assert stale.wait() == 0
    other.tell("end")
    other.ends()
    assert (books.ask("SELECT key FROM entries"), books.total()) == ([(f"{other.pid}",)], 1)


@pytest.mark.by_day("sqlite")
@pytest.mark.timeout(90)
def test_leases_outlive_transactions(forks, tmp_path, books):
    """Two processes whose transactions follow each other for longer than a lease lasts lose no lease by it."""
    workers = [serving(forks, tmp_path, books, ttl_s=3.0) for _ in range(2)]
    for n in range(2):
        start(books, transaction_program.waiting, f"waiting{n}")
    for n in range(20):
        start(books, transaction_program.slow, f"slow{n}", 1)
    assert [result(books, f"slow{n}") for n in range(20)] == [1] * 20  # one after another they take 6 s
    (tmp_path / "go").touch()
    assert [result(books, f"waiting{n}") for n in range(2)] == ["waited"] * 2
    for worker in workers:
        worker.tell("end")
        worker.ends()
    assert books.total() == 20
    assert books.ask("SELECT count(*), max(lease_epoch) FROM our.runs") == [(22, 1)]
