"""A claim that was given up and happened all the same."""

import asyncpg

import holdfast


@holdfast.agent(name="unknown-claims")
async def quick() -> str:
    return "done"


async def test_a_run_that_is_ours_and_not_here_is_given_back(postgres_url):
    """Its lease is not kept for ever: two heartbeats later it is free, and done."""
    settings = holdfast.Settings(lease_ttl_s=0.9)
    async with holdfast.open(postgres_url, agents=[quick], settings=settings) as hf:
        run = await hf.start(quick, id="r", after="1h")
        # As a server does that commits a claim after the connection it came by was cut and the claim made again.
        server, _, schema = postgres_url.partition("?schema=")
        connection = await asyncpg.connect(server, server_settings={"search_path": schema})
        claim = "UPDATE runs SET status = 'running', lease_owner = $1, lease_epoch = 1, due_at = due_at - 3590000"
        await connection.execute(claim, hf.store.worker_id)
        await connection.close()
        assert await run.result(timeout=20) == "done"
