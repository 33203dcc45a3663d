"""A transactional step: what its body writes to the store's database is committed with its record, or not at all."""

import asyncio
import random
import threading

import apsw
import pytest
from tests.agents.runs import fail, history, kinds, with_client

import holdfast
import holdfast.testing
from holdfast.engine import transactions
from holdfast.store.sqlite.transactions import LONGEST_S, Loan


def rows(hf, query="SELECT name, amount FROM accounts ORDER BY name"):
    """What anybody else sees in the file."""
    db = apsw.Connection(str(hf.path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def prepare(hf):
    """A table of the user's own, in the same file."""
    db = apsw.Connection(str(hf.path))
    try:
        db.set_busy_timeout(10_000)
        db.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, amount INTEGER NOT NULL) STRICT")
        db.execute("INSERT INTO accounts VALUES ('ana', 100), ('bo', 0)")
    finally:
        db.close()


def on_table(test, *agents, **options):
    """Run a test with a client on a file that has the table."""

    async def with_table(hf):
        prepare(hf)
        return await asyncio.wait_for(test(hf), 60)

    return with_client(with_table, agents=agents, **options)


@holdfast.step(transaction=True)
async def transfer(amount: int) -> int:
    db = holdfast.connection()
    db.execute("UPDATE accounts SET amount = amount - ? WHERE name = 'ana'", (amount,))
    db.execute("UPDATE accounts SET amount = amount + ? WHERE name = 'bo'", (amount,))
    return db.execute("SELECT amount FROM accounts WHERE name = 'bo'").get


@holdfast.step(transaction=True)
def transfer_in_thread(amount: int) -> int:
    assert threading.current_thread() is not threading.main_thread()
    db = holdfast.connection()
    db.execute("UPDATE accounts SET amount = amount + ? WHERE name = 'bo'", (amount,))
    return db.execute("SELECT amount FROM accounts WHERE name = 'bo'").get


@holdfast.agent
async def pays() -> list[int]:
    return [await transfer(10), await transfer_in_thread(5), await transfer(1)]


def test_its_writes_are_there_when_it_is_recorded():
    """The body's writes are in the file once the step is, from the loop and from a thread."""

    async def test(hf):
        assert await hf.run(pays) == [10, 15, 16]
        assert rows(hf) == [("ana", 89), ("bo", 16)]
        assert hf.bodies == {"transfer": 2, "transfer_in_thread": 1}

    on_table(test, pays)


# Undoing

keys: list[str] = []


@holdfast.step(transaction=True, retry=holdfast.Retry(3, first="10ms"))
async def fails_at_first(amount: int) -> int:
    db = holdfast.connection()
    keys.append(holdfast.idempotency_key())
    db.execute("UPDATE accounts SET amount = amount + ? WHERE name = 'bo'", (amount,))
    if holdfast.this_step().attempt < 3:
        raise ConnectionError("not yet")
    return db.execute("SELECT amount FROM accounts WHERE name = 'bo'").get


@holdfast.agent
async def tries() -> int:
    return await fails_at_first(7)


def test_each_attempt_has_a_transaction_of_its_own():
    """What failed attempts wrote is gone; the one that succeeds writes once. All have the same idempotency key."""

    async def test(hf):
        keys.clear()
        assert await hf.run(tries) == 7
        assert rows(hf) == [("ana", 100), ("bo", 7)]
        assert hf.bodies[fails_at_first] == 3
        assert len(keys) == 3
        assert len(set(keys)) == 1

    on_table(test, tries)


@holdfast.step(transaction=True)
async def leaves_a_connection() -> object:
    holdfast.connection().execute("DELETE FROM accounts")
    return threading.Lock()


@holdfast.agent
async def deletes() -> object:
    return await leaves_a_connection()


def test_a_result_that_cannot_be_stored_undoes_it():
    """A step whose result has no form in the journal has written nothing either."""

    async def test(hf):
        with pytest.raises(holdfast.RunFailed, match="cannot be stored"):
            await hf.run(deletes)
        assert rows(hf) == [("ana", 100), ("bo", 0)]

    on_table(test, deletes)


@holdfast.step(transaction=True)
async def owes() -> str:
    db = holdfast.connection()
    db.execute("CREATE TABLE debts (account TEXT REFERENCES accounts DEFERRABLE INITIALLY DEFERRED)")
    db.execute("INSERT INTO debts VALUES ('nobody')")
    return "owed"


@holdfast.agent
async def owing() -> list[str]:
    try:
        return [await owes()]
    except holdfast.StepFailed as error:
        return [error.type, await after()]


@holdfast.step
async def after() -> str:
    return "after"


def test_what_only_the_commit_finds_wrong_is_a_failure_of_the_step():
    """A constraint that is checked at the commit fails the step with nothing written, and the journal goes on."""

    async def test(hf):
        run = await hf.start(owing, id="r")
        assert await run.result() == ["apsw.ConstraintError", "after"]
        assert rows(hf, "SELECT count(*) FROM sqlite_schema WHERE name = 'debts'") == [(0,)]
        assert await kinds(hf, "r") == ["step.failed", "step.completed", "run.completed"]

    on_table(test, owing)


late = threading.Event()
found: list[object] = []


@holdfast.step(transaction=True, timeout="500ms", raises=(holdfast.StepTimeout,))
async def hangs() -> None:
    holdfast.connection().execute("DELETE FROM accounts")
    await asyncio.Event().wait()


@holdfast.step(transaction=True, timeout="500ms")
def hangs_in_thread() -> None:
    db = holdfast.connection()
    db.execute("DELETE FROM accounts")
    late.wait(20)
    try:
        db.execute("INSERT INTO accounts VALUES ('late', 1)")
    except apsw.Error as error:
        found.append(type(error))


@holdfast.agent
async def hanging(in_thread: bool) -> str:
    try:
        await (hangs_in_thread() if in_thread else hangs())
    except TimeoutError as error:
        return str(error)
    return "it ended"


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_timeout_undoes_it(in_thread):
    """Past its timeout a body has written nothing, nor can a thread that goes on; it is a failure, not a doubt."""

    async def test(hf):
        late.clear()
        found.clear()
        run = await hf.start(hanging, in_thread, id="r")
        assert "no end within 0.5 s" in await run.result()
        assert rows(hf) == [("ana", 100), ("bo", 0)]
        late.set()
        while in_thread and not found:
            await asyncio.sleep(0.001)
        assert found == ([apsw.ConnectionClosedError] if in_thread else [])
        assert rows(hf) == [("ana", 100), ("bo", 0)]

    on_table(test, hanging)


def test_a_body_may_not_keep_the_file_for_long(monkeypatch):
    """A body without a timeout has one all the same: nobody else can write meanwhile."""
    monkeypatch.setattr(Loan, "longest_s", 0.05)

    @holdfast.step(transaction=True)
    async def forever() -> None:
        await asyncio.Event().wait()

    @holdfast.agent
    async def waits() -> None:
        await forever()

    assert "no end within 0.05 s" in str(fail(waits))
    assert holdfast.Settings().lease_ttl_s > LONGEST_S


@holdfast.step(transaction=True)
async def stopped() -> None:
    holdfast.connection().execute("DELETE FROM accounts")
    await asyncio.Event().wait()


@holdfast.step
async def quick() -> str:
    return "quick"


@holdfast.agent
async def stops() -> str:
    other = asyncio.create_task(stopped())
    await quick()
    await asyncio.sleep(0)
    other.cancel()
    await asyncio.wait([other])
    return f"{other.cancelled()}"


def test_a_cancelled_body_is_undone():
    """Cancelled, its writes are gone, and the history says that this is known."""

    async def test(hf):
        run = await hf.start(stops, id="r")
        assert await run.result() == "True"
        assert rows(hf) == [("ana", 100), ("bo", 0)]
        (event,) = [event for event in await history(hf, "r") if event.kind == "step.cancelled"]
        assert event.data["in_doubt"] is False

    on_table(test, stops)


@holdfast.step(transaction=True)
async def stubborn() -> str:
    holdfast.connection().execute("DELETE FROM accounts")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "never mind"


@holdfast.step
async def stubborn_too() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "never mind"


@holdfast.agent
async def insists(plainly: bool) -> str:
    other = asyncio.create_task(stubborn_too() if plainly else stubborn())
    await quick()
    await asyncio.sleep(0)
    other.cancel()
    await asyncio.wait([other])
    return f"{other.cancelled()}, {await after()}"


@pytest.mark.parametrize("plainly", [False, True])
def test_a_body_that_will_not_be_cancelled(plainly):
    """A body that swallows its cancellation and returns has no outcome any more, and its writes are gone."""

    async def test(hf):
        run = await hf.start(insists, plainly, id="r")
        assert await run.result() == "True, after"
        assert rows(hf) == [("ana", 100), ("bo", 0)]
        assert (await hf.store.run("r")).lease_epoch == 1  # nobody had to begin anew

    on_table(test, insists)


# What a body may not do

FORBIDDEN = {
    "COMMIT": "may not use COMMIT",
    "ROLLBACK": "may not use ROLLBACK",
    "BEGIN": "may not use BEGIN",
    "END": "may not use COMMIT",
    "PRAGMA user_version = 7": "may not set PRAGMA user_version",
    "UPDATE runs SET status = 'completed'": "'runs' belongs to Holdfast",
    "DELETE FROM Events": "'events' belongs to Holdfast",
    "DROP TABLE blobs": "'blobs' belongs to Holdfast",
    "CREATE TEMP TABLE RUNS (id)": "'runs' belongs to Holdfast",
    "CREATE TRIGGER mine AFTER INSERT ON events BEGIN SELECT 1; END": "'events' belongs to Holdfast",
    "INSERT OR ROLLBACK INTO accounts VALUES ('ana', 1)": "may not end its transaction",
    "ATTACH ':memory:' AS other": "may not attach another file",
}


@holdfast.step(transaction=True)
async def tries_to(statement: str, go_on: bool) -> None:
    db = holdfast.connection()
    db.execute("DELETE FROM accounts WHERE name = 'bo'")
    try:
        db.execute(statement)
    except apsw.ConstraintError:
        if go_on:
            db.execute("DELETE FROM accounts")


@holdfast.agent
async def forbidden(statement: str, go_on: bool) -> None:
    await tries_to(statement, go_on)


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_a_body_cannot_end_its_transaction_or_write_our_tables(statement):
    """The step fails and says why, and nothing of the body is in the file."""

    async def test(hf):
        with pytest.raises(holdfast.RunFailed, match=FORBIDDEN[statement]):
            await hf.run(forbidden, statement, False)
        assert rows(hf) == [("ana", 100), ("bo", 0)]

    on_table(test, forbidden)


def test_after_a_rollback_no_statement_commits_itself():
    """A conflict clause that rolls back leaves the body without a transaction; what it writes then is refused."""

    async def test(hf):
        with pytest.raises(holdfast.RunFailed, match="may not go on after its transaction was rolled back"):
            await hf.run(forbidden, "INSERT OR ROLLBACK INTO accounts VALUES ('ana', 1)", True)
        assert rows(hf) == [("ana", 100), ("bo", 0)]

    on_table(test, forbidden)


@holdfast.step(transaction=True)
async def uses_much() -> list[str]:
    db = holdfast.connection()
    db.set_row_trace(lambda _cursor, _row: ("not", "what", "was", "asked"))
    db.set_exec_trace(lambda *_: True)
    db.execute("CREATE TABLE mine (a, runs)")
    with db:
        db.execute("INSERT INTO mine VALUES (1, 1)")
    db.execute("SAVEPOINT events; INSERT INTO mine VALUES (2, 2); ROLLBACK TO events; RELEASE events")
    db.execute("UPDATE mine SET runs = 2")
    db.execute("SELECT count(*) FROM runs; PRAGMA table_info(mine)").fetchall()
    return ["x" * 100_000]


@holdfast.agent
async def large() -> int:
    return len((await uses_much())[0])


def test_a_body_may_do_what_sqlite_can():
    """Tables, savepoints, traces and reads of anything are a body's own affair; a large result is stored with it."""

    async def test(hf):
        assert await hf.run(large) == 100_000
        assert rows(hf, "SELECT a, runs FROM mine") == [(1, 2)]
        assert rows(hf, "SELECT length(content) > 100000 FROM blobs") == [(1,)]

    on_table(test, large)


def test_where_there_is_no_transaction():
    """Outside a run, outside a step and in another step there is no connection, and the error says what to do."""

    @holdfast.step
    async def plain() -> None:
        holdfast.connection()

    @holdfast.agent
    async def asks() -> None:
        await plain()

    assert "declare it @step(transaction=True)" in str(fail(asks))
    with pytest.raises(holdfast.NotInRun, match=r"@step\(transaction=True\)"):
        holdfast.connection()
    with pytest.raises(holdfast.NotInRun, match=r"holdfast\.testing\.open"):
        asyncio.run(transfer(1))


@pytest.mark.parametrize(
    "options", [{"in_doubt": "ask"}, {"in_doubt": "retry"}, {"transaction": "maybe"}, {"transaction": []}]
)
def test_declarations_that_mean_nothing_are_refused(options):
    """There is no doubt about a transaction, and only two kinds of them."""
    with pytest.raises(holdfast.BadArguments, match=r"in_doubt=|transaction="):
        holdfast.step(**{"transaction": True, **options})(transfer.fn)


# In company


@holdfast.step(transaction=True)
async def adds(n: int) -> int:
    db = holdfast.connection()
    (before,) = db.execute("SELECT amount FROM accounts WHERE name = 'bo'").fetchone()
    await asyncio.sleep(noise.random() * 0.003)
    db.execute("UPDATE accounts SET amount = ? WHERE name = 'bo'", (before + n,))
    if n % 5 == 4:
        raise ValueError(n)
    return n


@holdfast.step(transaction=True)
def adds_in_thread(n: int) -> int:
    holdfast.connection().execute("UPDATE accounts SET amount = amount + ? WHERE name = 'bo'", (n,))
    return n


@holdfast.step
async def works(n: int) -> int:
    await asyncio.sleep(noise.random() * 0.003)
    return n


noise = random.Random()


@holdfast.agent
async def mixed(seed: int) -> list[str]:
    """Transactional and plain steps side by side; the order in which they end is part of the result."""
    order, plan = list[str](), random.Random(seed)
    kinds = [(plan.choice([adds, adds_in_thread, works]), n) for n in range(plan.randint(2, 9))]

    async def one(step, n):
        try:
            order.append(f"{await step(n)}")
            if plan.random() < 0.5:
                order.append(f"and {await works(n)}")
        except ValueError as error:
            order.append(f"no {error}")

    await asyncio.gather(*(one(step, n) for step, n in kinds))
    return order


def expected(seed):
    """What bo has after the run: every addition that did not fail, once."""
    plan = random.Random(seed)
    kinds = [(plan.choice([adds, adds_in_thread, works]), n) for n in range(plan.randint(2, 9))]
    return sum(n for step, n in kinds if step is adds_in_thread or (step is adds and n % 5 != 4))


@pytest.mark.slow
@pytest.mark.by_day("40")
@pytest.mark.parametrize("schedules", [40, 200])
def test_beside_other_steps_in_any_order(schedules):
    """In random schedules each with a crash, resumed runs see the same order, and each write is there once."""

    async def test(hf):
        total = 0
        for seed in range(schedules):
            noise.seed(seed)
            run = await hf.start(mixed, seed, id=f"r{seed}")
            await asyncio.sleep(noise.random() * 0.02)
            await hf.crash()
            order = await run.result()
            total += expected(seed)
            assert rows(hf) == [("ana", 100), ("bo", total)], seed
            ended = [int(one.removeprefix("no ")) for one in order if not one.startswith("and")]
            assert sorted(ended) == list(range(len(ended))), order
        assert hf.crashes == schedules

    on_table(test, mixed)


def test_many_runs_at_once():
    """Thirty runs that read, wait and write the same row lose nothing: their transactions come one after another."""

    @holdfast.agent
    async def twice(n: int) -> None:
        await asyncio.gather(adds(5 * n), adds_in_thread(1))

    async def test(hf):
        runs = [await hf.start(twice, n, id=f"r{n}") for n in range(30)]
        await asyncio.gather(*(run.result() for run in runs))
        assert rows(hf) == [("ana", 100), ("bo", 5 * sum(range(30)) + 30)]

    on_table(test, twice)


# Crashes and trouble


@holdfast.agent
async def story() -> list[int]:
    first = await transfer(10)
    both = await asyncio.gather(transfer(1), works(1), adds_in_thread(3))
    return [first, *sorted(both), await transfer_in_thread(5)]


@pytest.mark.slow
async def test_a_crash_at_every_commit():
    """Whatever commit a crash comes before or after, each transfer happens once and the run ends as it would have."""
    crashes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[story]):
        prepare(hf)
        assert (await hf.run(story))[0] == 10
        assert rows(hf) == [("ana", 89), ("bo", 19)]
        crashes += hf.crashes
    returned = crashes
    assert returned > 10


class Breaks:
    """A disk that fails at some commits of transactions: before, or after they happened."""

    def __init__(self, when, *commits):
        self.when, self.commits, self.count = when, commits, 0

    def before_commit(self, writes):
        self._at("before")

    def after_commit(self, writes):
        self._at("after")

    def _at(self, when):
        if threading.current_thread().name.startswith("holdfast-transaction") and when == self.when:
            self.count += 1
            if self.count in self.commits:
                raise OSError("the disk is gone for a moment")


@pytest.mark.parametrize("when", ["before", "after"])
def test_trouble_at_the_commit(when):
    """A commit that failed or of which nobody knows is looked up: if it is not there, the body runs again."""
    faults = Breaks(when, 1, 2, 4)

    async def test(hf):
        assert await hf.run(pays) == [10, 15, 16]
        assert rows(hf) == [("ana", 89), ("bo", 16)]
        again = 3 if when == "before" else 0
        assert sum(hf.bodies.values()) == 3 + again

    on_table(test, pays, faults=faults)


def test_trouble_that_does_not_end_is_a_failure(monkeypatch):
    """A transaction that the database undoes again and again fails with the database's reason."""
    monkeypatch.setattr(transactions, "MOST_UNDONE", 3)

    async def test(hf):
        with pytest.raises(holdfast.RunFailed, match="the disk is gone for a moment"):
            await hf.run(pays)
        assert hf.bodies[transfer] == 4
        assert rows(hf) == [("ana", 100), ("bo", 0)]

    on_table(test, pays, faults=Breaks("before", *range(100)))


class Holds:
    """Stops the commit of a transaction until it is let go, and then fails it."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def before_commit(self, writes):
        if threading.current_thread().name.startswith("holdfast-transaction") and not self.go.is_set():
            self.reached.set()
            assert self.go.wait(20)
            raise OSError("the disk is gone for a moment")

    def after_commit(self, writes): ...


holds = Holds()


@holdfast.agent
async def regrets() -> str:
    paying = asyncio.create_task(transfer(10))
    await quick()
    while not holds.reached.is_set():
        await asyncio.sleep(0)
    paying.cancel()
    await asyncio.wait([paying])
    holds.go.set()
    return f"{paying.cancelled()}, {await after()}"


def test_cancelled_while_its_commit_fails():
    """If nobody waits any more when the commit turns out not to have happened, the step was cancelled."""
    holds.reached.clear()
    holds.go.clear()

    async def test(hf):
        run = await hf.start(regrets, id="r")
        assert await run.result() == "True, after"
        assert rows(hf) == [("ana", 100), ("bo", 0)]
        assert (await kinds(hf, "r"))[1:] == ["step.cancelled", "step.completed", "run.completed"]

    on_table(test, regrets, faults=holds)
