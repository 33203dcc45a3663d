"""The agents of the compose file: replace them with yours."""

import holdfast


@holdfast.step
async def greet(name: str) -> str:
    return f"hello {name}"


@holdfast.agent
async def welcome(name: str) -> str:
    greeting = await greet(name)
    await holdfast.sleep("1s")  # durable: the run waits in the store, not in a process
    return greeting
