"""Two versions of the code in one fleet: real processes that run different files."""

import pytest

PINNED = """
import holdfast

@holdfast.step
async def act(what: str) -> str:
    return f"{what} by version {VERSION}"

@holdfast.agent(name="research", version=VERSION)
async def research() -> list[str]:
    first = await act("first")
    await holdfast.receive("go")
    return [first, await act("last")]
"""

UNPINNED = """
import holdfast

@holdfast.step
async def act(what: str) -> str:
    return what

@holdfast.agent
async def patient() -> list[str]:
    done = [await act("first")]
    await holdfast.receive("begin")
    PATCH
    await holdfast.receive("go")
    return [*done, await act("last")]
"""
NEW_LINE = 'done += [await act("between")] if holdfast.patched("between") else []'


def serve(fleet, name, code, *options):
    """A worker process with this code."""
    path = fleet.folder / f"{name}.py"
    path.write_text(code)
    return fleet.worker(*options, agents=path)


def begin(fleet, agent, run):
    fleet.ask(lambda hf: hf.start(agent, id=run))


def send(fleet, run, topic):
    fleet.ask(lambda hf: hf.get(run).send(topic))


def until_waiting(fleet, run, steps=1):
    def waits():
        info = fleet.ask(lambda hf: hf.get(run).info())
        return info.status == "waiting" and info.steps >= steps

    fleet.until(waits)


def listed(fleet):
    """All runs, as the command line lists them: by a clock that is behind the database's by as much as the way there takes."""
    said = fleet.command("runs")
    assert said.ended() == 0
    return said.said()


@pytest.mark.by_day("postgres")
def test_a_run_is_carried_on_by_its_version(fleet):
    """With both versions at work each run keeps to its own; without a worker of its version a run waits, and says so."""
    old = serve(fleet, "old", f'VERSION = "1"{PINNED}', "--code-version", "abc")
    begin(fleet, "research", "one")
    until_waiting(fleet, "one")
    serve(fleet, "new", f'VERSION = "2"{PINNED}', "--code-version", "def")
    begin(fleet, "research", "two")  # the newest that was published
    until_waiting(fleet, "two")
    facts = fleet.ask(lambda hf: hf.store.facts())
    assert facts["code_versions"] == {"abc": 1, "def": 1}
    old.kill()
    for run in ("one", "two"):
        send(fleet, run, "go")
    assert fleet.results(["two"]) == {"two": ["first by version 2", "last by version 2"]}
    fleet.until(lambda: fleet.ask(lambda hf: hf.get("one").info()).waits_for == "worker")
    fleet.until(lambda: "waits for a worker with version 1 of research" in listed(fleet))
    serve(fleet, "old", f'VERSION = "1"{PINNED}')
    assert fleet.results(["one"]) == {"one": ["first by version 1", "last by version 1"]}


@pytest.mark.by_day("sqlite")
def test_one_process_serves_two_versions(fleet):
    """Two functions of one name with different versions: runs go to their own, new ones to the last."""
    both = PINNED.replace("VERSION", "'1'") + PINNED.replace("VERSION", "'2'").replace("def research", "def research_2")
    old = serve(fleet, "old", f'VERSION = "1"{PINNED}')
    begin(fleet, "research", "one")
    until_waiting(fleet, "one")
    old.stop()
    assert old.ended() == 0
    serve(fleet, "both", both)
    begin(fleet, "research", "two")
    until_waiting(fleet, "two")
    for run in ("one", "two"):
        send(fleet, run, "go")
    versions = {run: fleet.ask(lambda hf, run=run: hf.get(run).info()).version for run in ("one", "two")}
    assert versions == {"one": "1", "two": "2"}
    results = fleet.results(["one", "two"])
    assert [len(result) for result in results.values()] == [2, 2]


@pytest.mark.by_day("postgres")
def test_patched_in_a_fleet(fleet):
    """Old and new code by turns on unpinned runs: who passed the line keeps the old side, who did not takes the new one.

    Old code that claims a run which took the new side does nothing and pauses it; with the new code it goes on.
    """
    old = serve(fleet, "old", UNPINNED.replace("PATCH", "pass"))
    for run in ("passed", "before"):
        begin(fleet, "patient", run)
        until_waiting(fleet, run)
    send(fleet, "passed", "begin")
    fleet.until(lambda: len([e for e in fleet.events("message.received") if e.run == "passed"]) == 1)
    until_waiting(fleet, "passed")
    old.kill()
    new = serve(fleet, "new", UNPINNED.replace("PATCH", NEW_LINE))
    send(fleet, "before", "begin")
    until_waiting(fleet, "before", steps=2)
    new.kill()
    old = serve(fleet, "old", UNPINNED.replace("PATCH", "pass"))
    send(fleet, "before", "go")
    fleet.until(lambda: fleet.status("before") == "paused")
    info = fleet.ask(lambda hf: hf.get("before").info())
    assert info.steps == 2  # the old code did nothing
    assert "between" in info.reason
    old.kill()
    serve(fleet, "new", UNPINNED.replace("PATCH", NEW_LINE))
    fleet.ask(lambda hf: hf.get("before").resume())
    send(fleet, "passed", "go")
    assert fleet.results(["before", "passed"])["before"] == ["first", "between", "last"]
