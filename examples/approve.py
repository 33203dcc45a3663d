import asyncio, holdfast, holdfast.testing

@holdfast.step
async def write(topic: str) -> str:
    return f"All about {topic}."

@holdfast.agent
async def research(topic: str) -> str:
    report = await write(topic)
    return report if await holdfast.approve("Publish this?", show=report) else "kept as a draft"

async def main() -> None:
    async with holdfast.testing.open(agents=[research]) as hf:
        run = await hf.start(research, "otters", id="otters")
        await run.wait("waiting"); await hf.crash()       # as kill -9; it goes on in a new process
        await hf.approve("otters", by="ana")
        print(await run.result(), f"The report was written {hf.bodies[write]} time.")
asyncio.run(main())
