"""Transactional steps on PostgreSQL, from the declaration to the rows."""

import asyncio
import random
import secrets

import asyncpg
import pytest

import holdfast
from holdfast.store.postgres.connection import parse_url


class Bank:
    """An account in a schema of its own, which the steps' connections find by its plain name."""

    def __init__(self, url):
        self.schema = f"bank_{secrets.token_hex(6)}"
        self.url = f"{url}&search_path={self.schema}"

    async def ask(self, *statements):
        db = await asyncpg.connect(parse_url(self.url).dsn)
        try:
            return [await db.fetch(statement) for statement in statements][-1]
        finally:
            await db.close()

    async def amount(self):
        return (await self.ask("SELECT amount FROM account"))[0][0]


def with_bank(postgres_url, test, *agents, amount=0):
    """Run a test with a client and a bank."""

    async def main():
        bank = Bank(postgres_url)
        made = f"INSERT INTO account VALUES ({amount})"
        await bank.ask(f"CREATE SCHEMA {bank.schema}", "CREATE TABLE account (amount bigint)", made)
        try:
            async with holdfast.open(bank.url, agents=agents) as hf:
                await asyncio.wait_for(test(hf, bank), 50)
        finally:
            await bank.ask(f"DROP SCHEMA {bank.schema} CASCADE")

    asyncio.run(main())


@holdfast.step(transaction=True)
async def add(n: int) -> int:
    db = holdfast.connection()
    amount = await db.fetchval("SELECT amount FROM account FOR UPDATE")
    await asyncio.sleep(noise.random() * 0.003)
    await db.execute("UPDATE account SET amount = $1", amount + n)
    if n % 5 == 4:
        raise ValueError(n)
    return n


@holdfast.step(transaction="serializable")
async def add_strictly(n: int) -> int:
    db = holdfast.connection()
    amount = await db.fetchval("SELECT amount FROM account")
    await asyncio.sleep(noise.random() * 0.003)
    await db.execute("UPDATE account SET amount = $1", amount + n)
    return n


@holdfast.step
async def work(n: int) -> int:
    await asyncio.sleep(noise.random() * 0.003)
    return n


noise = random.Random()


def plan(seed):
    chance = random.Random(seed)
    return [(chance.choice([add, add_strictly, work]), n) for n in range(chance.randint(2, 7))]


@holdfast.agent
async def mixed(seed: int) -> list[int]:
    ended = list[int]()

    async def one(step, n):
        try:
            ended.append(await step(n))
        except ValueError:
            ended.append(-n)

    await asyncio.gather(*(one(step, n) for step, n in plan(seed)))
    return ended


def test_in_any_order_and_company(postgres_url):
    """Forty runs at once, with parallel steps that conflict, lose no update and do none twice."""

    async def test(hf, bank):
        runs = [await hf.start(mixed, seed, id=f"r{seed}") for seed in range(40)]
        for seed, run in enumerate(runs):
            failed = {n for step, n in plan(seed) if step is add and n % 5 == 4}
            assert sorted(await run.result(), key=abs) == [-n if n in failed else n for _, n in plan(seed)]
        wanted = sum(
            n for seed in range(40) for step, n in plan(seed) if step is not work and (step, n % 5) != (add, 4)
        )
        assert await bank.amount() == wanted

    with_bank(postgres_url, test, mixed)


@holdfast.step(transaction=True)
def in_a_thread() -> None: ...


@holdfast.step(transaction=True)
async def ends_it(statement: str) -> None:
    db = holdfast.connection()
    await db.execute("UPDATE account SET amount = 7")
    await db.execute(statement)


@holdfast.step(transaction=True, timeout="100ms")
async def takes_long() -> None:
    await holdfast.connection().execute("UPDATE account SET amount = 7; SELECT pg_sleep(30)")


@holdfast.step(transaction=True, retry=holdfast.Retry(3, first="5ms"))
async def succeeds_at_last() -> str:
    await holdfast.connection().execute("UPDATE account SET amount = amount + 7")
    if holdfast.this_step().attempt < 3:
        raise ConnectionError("not yet")
    return "x" * 100_000


@holdfast.agent
async def tries(what: str) -> str:
    match what:
        case "a thread":
            await in_a_thread()
        case "a timeout":
            await takes_long()
        case "again":
            return f"{len(await succeeds_at_last())}"
        case statement:
            await ends_it(statement)
    return "done"


@pytest.mark.parametrize(
    ("what", "error", "amount"),
    [
        ("a thread", "write it with `async def`", 0),
        ("a timeout", "no end within 0.1 s", 0),
        ("ROLLBACK", "may not end its transaction", 0),
        ("COMMIT", "may not end its transaction", 7),  # it is committed, and nobody can change that any more
        ("SELECT 1/0", "division by zero", 0),
    ],
)
def test_what_fails(postgres_url, what, error, amount):
    """A body that fails has written nothing, whatever the server was at; and what is refused says why."""

    async def test(hf, bank):
        with pytest.raises(holdfast.RunFailed, match=error):
            await hf.run(tries, what)
        assert await bank.amount() == amount
        await bank.ask("UPDATE account SET amount = 1")  # no lock was left behind

    with_bank(postgres_url, test, tries)


def test_attempts_begin_afresh(postgres_url):
    """What failed attempts wrote is gone, and a large result is stored with the one that succeeds."""

    async def test(hf, bank):
        assert await hf.run(tries, "again") == "100000"
        assert await bank.amount() == 7

    with_bank(postgres_url, test, tries)


go = asyncio.Event()


@holdfast.step(transaction=True)
async def waits() -> str:
    await holdfast.connection().execute("UPDATE account SET amount = 7")
    await go.wait()
    return "waited"


@holdfast.agent
async def side_by_side() -> list[str]:
    waiting = asyncio.create_task(waits())
    done = [f"{await work(n)}" for n in range(5)]
    go.set()
    return [*done, await waiting]


def test_other_steps_are_recorded_meanwhile(postgres_url):
    """While a body has its transaction open, other steps of the run go on and are durable."""

    async def test(hf, bank):
        go.clear()
        assert await hf.run(side_by_side) == ["0", "1", "2", "3", "4", "waited"]
        assert await bank.amount() == 7

    with_bank(postgres_url, test, side_by_side)


reached: asyncio.Event = asyncio.Event()


@holdfast.step(transaction=True)
async def add_for_long(n: int) -> None:
    await holdfast.connection().execute("UPDATE account SET amount = amount + $1", n)
    reached.set()
    await asyncio.Event().wait()


@holdfast.agent
async def stopped() -> None:
    try:
        await add_for_long(1)
    except asyncio.CancelledError:
        await add(10)
        raise


def test_a_cancel_undoes_the_transaction_that_is_open(postgres_url):
    """What the step wrote is not there, and neither is a record of it; what the agent does to tidy up is."""

    async def main(hf, bank):
        reached.clear()
        run = await hf.start(stopped, id="r")
        await reached.wait()
        await run.cancel(grace="1h")
        assert (await run.wait()).status == "cancelled"
        assert await bank.amount() == 10
        done = [event.data["name"] async for event in run.events(follow=False) if event.kind == "step.completed"]
        assert done == ["add"]

    with_bank(postgres_url, main, stopped)
