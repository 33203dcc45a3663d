"""The list of all events on PostgreSQL, where a transaction that is open keeps back what was committed after it began."""

import asyncio
import time
from contextlib import asynccontextmanager

import asyncpg

import holdfast
import holdfast.client.client


@holdfast.agent(name="watching-nothing")
async def nothing() -> None:
    pass


@asynccontextmanager
async def transaction(url):
    """Somebody else's, in the same database, that has written something."""
    connection = await asyncpg.connect(url.partition("?")[0])
    opened = connection.transaction()
    await opened.start()
    await connection.fetchval("SELECT pg_current_xact_id()::text")
    try:
        yield opened
    finally:
        await connection.close()


async def ended(hf):
    """The runs that a list of events tells of."""
    return [event.run async for event in hf.events(kinds="run.completed", follow=False)]


async def test_a_list_has_what_was_there_when_it_was_asked_for(postgres_url):
    """It waits for somebody's open transaction, and then has the run whose result was seen before."""
    async with holdfast.open(postgres_url, agents=[nothing]) as hf, transaction(postgres_url) as opened:
        run = await hf.start(nothing)
        await run.result(timeout=20)
        listing = asyncio.create_task(ended(hf))
        done, _ = await asyncio.wait([listing], timeout=0.2)
        assert not done
        await opened.commit()
        assert await listing == [run.id]


async def test_a_transaction_that_stays_open_is_not_waited_for_forever(postgres_url, monkeypatch):
    """After a while the list ends without what comes behind it; nothing is lost to who goes on from there."""
    async with holdfast.open(postgres_url, agents=[nothing]) as hf:
        first = await hf.start(nothing)
        await first.result(timeout=20)
        assert await ended(hf) == [first.id]
        async with transaction(postgres_url):
            second = await hf.start(nothing)
            await second.result(timeout=20)
            with monkeypatch.context() as patch:
                patch.setattr(holdfast.client.client, "_IN_FLIGHT_S", 0.3)
                began = time.monotonic()
                assert await ended(hf) == [first.id]
                assert time.monotonic() - began >= 0.3
        assert await ended(hf) == [first.id, second.id]


async def test_a_list_beside_writers_ends(postgres_url):
    """Transactions that begin later do not keep it waiting."""
    async with holdfast.open(postgres_url, agents=[nothing]) as hf:

        async def start():
            while True:
                await hf.start(nothing)

        writers = [asyncio.create_task(start()) for _ in range(3)]
        run = await hf.start(nothing)
        await run.result(timeout=20)
        assert run.id in await asyncio.wait_for(ended(hf), 20)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
