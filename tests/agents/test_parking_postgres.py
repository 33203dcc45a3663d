"""A parked run on PostgreSQL, whose message is in its journal before its code runs again."""

import asyncio

import holdfast


@holdfast.step
async def act(value: int) -> int:
    return value


@holdfast.agent(name="waking-listener")
async def listener(messages: int) -> list[object]:
    seen: list[object] = []
    for _ in range(messages):
        before = holdfast.this_run().replaying
        value = await holdfast.receive("mail", int)
        seen.append((before, holdfast.this_run().replaying, await act(value)))
    return seen


@holdfast.agent(name="waking-either")
async def either() -> str:
    try:
        async with holdfast.timeout("1s"):
            await holdfast.receive("mail", int)
    except TimeoutError:
        return "timeout"
    return "message"


async def test_code_past_the_message_runs_for_the_first_time(postgres_url):
    """What ran before the wait is a replay, what runs after it is not; bodies run once and messages come in order."""
    settings = holdfast.Settings(park_grace_s=0.0)
    async with holdfast.open(postgres_url, agents=[listener], settings=settings) as hf:
        run = await hf.start(listener, 3)
        for number in range(3):
            while (info := await run.wait("waiting", timeout=20)).steps < number:
                await asyncio.sleep(0.005)
            assert info.status == "waiting"
            await run.send("mail", number)
        seen = await run.result(timeout=20)
        assert [value for _, _, value in seen] == [0, 1, 2]
        assert [after for _, after, _ in seen[-1:]] == [False]
        kinds = [event.kind async for event in run.events(follow=False)]
        assert kinds == ["message.received", "step.completed"] * 3 + ["run.completed"]


async def test_a_timer_that_was_due_first_comes_first(postgres_url):
    """A message that came after the end of the wait, while no worker was there, is not received in its place."""
    settings = holdfast.Settings(park_grace_s=0.0)
    async with holdfast.open(postgres_url, agents=[either], settings=settings) as hf:
        run = await hf.start(either)
        await run.wait("waiting", timeout=20)
    async with holdfast.open(postgres_url) as hf:
        await asyncio.sleep(1.1)  # the time passes, and nobody is there
        await hf.get(run.id).send("mail", 1)
    async with holdfast.open(postgres_url, agents=[either], settings=settings) as hf:
        assert await hf.get(run.id).result(timeout=20) == "timeout"
