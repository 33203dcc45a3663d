"""What tests do with workers in other processes: start one, give it runs, and ask what it holds."""

import asyncio

from tests.processes import workers

import holdfast


def serve(forks, place, *agents, ready=True, **settings):
    """A worker process for these agents. `ready`: wait until it says that it is."""
    disk = str(place.store.parent)
    process = forks.start(workers.serve, folder=str(place.folder), disk=disk, agents=agents, **settings)
    while ready and "ready" not in process.read():
        pass
    return process


def start(place, *runs):
    """Start runs (agent, arguments, id) from here: a client that serves nothing."""

    async def main():
        async with holdfast.open(f"sqlite:{place.store}?durability=process") as hf:
            for agent, arguments, run in runs:
                await hf.start(workers.AGENTS[agent], *arguments, id=run)

    asyncio.run(main())


def send(place, run, text):
    """Send a message from here."""

    async def main():
        async with holdfast.open(f"sqlite:{place.store}?durability=process") as hf:
            await hf.get(run).send("topic", text)

    asyncio.run(main())


def stop(place, process):
    """SIGSTOP between two commits: SQLite's lock has no lease, a process stopped inside one would keep it."""
    process.stop()
    while place.locked():
        process.go_on()
        process.stop()


def executions(process):
    """The runs that a worker has in memory."""
    process.tell("executions")
    while "executions" not in (said := process.read()):
        pass
    return said["executions"]
