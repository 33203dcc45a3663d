"""Slots of limits when a worker is killed in the middle: real processes."""

CODE = """
import asyncio, os, time
from pathlib import Path
import holdfast

FOLDER = Path(os.environ["FLEET"])

def note(text):
    with (FOLDER / "slots").open("a") as file:
        file.write(f"{text}\\n")

@holdfast.step(limit=1)
async def work(name: str) -> str:
    note(f"begin {name} {os.getpid()}")
    while not (FOLDER / "go").exists():
        await asyncio.sleep(0.01)
    note(f"end {name} {os.getpid()}")
    return name

@holdfast.agent(limit=1)
async def one_at_a_time(name: str) -> str:
    return await work(name)

@holdfast.agent
async def many_at_a_time(name: str) -> str:
    return await work(name)
"""


def test_a_killed_workers_slots_are_free_at_once(fleet):
    """The run that had the slot goes on in another process, the held ones after it; never two bodies at once."""
    path = fleet.folder / "slotted.py"
    path.write_text(CODE)

    def serve():
        return fleet.worker("--lease", "30", agents=path)

    def noted():
        file = fleet.folder / "slots"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    runs = [f"{agent}-{n}" for agent in ("one_at_a_time", "many_at_a_time") for n in range(3)]

    async def start(hf):
        for run in runs:
            await hf.start(run.rpartition("-")[0], run, id=run)

    first = serve()
    fleet.ask(start)
    fleet.until(noted)
    second = serve()
    first.kill()
    fleet.until(lambda: any(pid == str(second.pid) for _, _, pid in noted()))
    (fleet.folder / "go").touch()
    assert fleet.results(runs) == {run: run for run in runs}
    inside = None
    for what, name, pid in noted():
        if pid == str(second.pid):
            assert (inside is None) if what == "begin" else (inside == name)
            inside = name if what == "begin" else None
    assert [name for what, name, _ in noted() if what == "end"].count(runs[0]) == 1
