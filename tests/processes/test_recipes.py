"""The recipes of the documentation across processes, killed in the middle of what they do."""

import pytest
from tests.processes.office_recipes import trip, write_book

TRIPS = {"kept": "Bern", "failed": "Atlantis", "cancelled": "Lima"}


@pytest.mark.by_day("sqlite")
def test_undone_once_in_reverse(office):
    """A failure and a cancel undo, though killed in the middle of that; a kill in mid-body and a pause undo nothing."""
    office.allow("book Rome", "book Bern")
    office.start_worker()

    def bodies(what):
        return len([body for body in office.bodies() if f" {what} " in body])

    async def start(hf):
        for run, last in TRIPS.items():
            await hf.start(trip, ["Rome", "Oslo", last], id=run)

    office.ask(start)
    office.until(lambda: bodies("book Oslo") == 3)
    office.restart_worker()
    office.until(lambda: bodies("book Oslo") == 6)
    assert len(office.ask(lambda hf: hf.pause(agent=trip, by="ana"))) == 3

    async def heard(hf):
        for run in TRIPS:
            async for event in hf.get(run).events():
                if event.kind == "run.pausing":
                    break

    office.ask(heard)  # a request that nobody has heard of yet stops no run
    office.allow("book Oslo")

    async def paused(hf):
        for run in TRIPS:
            await hf.get(run).wait("paused")

    office.ask(paused)
    assert bodies("cancel") == 0
    assert len(office.meanwhile(lambda hf: hf.resume(agent=trip, by="ana"))) == 3
    office.until(lambda: bodies("book Lima") == bodies("book Atlantis") == 1)
    office.meanwhile(lambda hf: hf.get("cancelled").cancel(by="ana", grace="1h"))
    office.allow("book Atlantis")  # which there is not
    office.until(lambda: bodies("cancel") == 2)
    office.restart_worker()
    office.until(lambda: bodies("cancel") == 4)
    office.allow("cancel")

    async def ends(hf):
        return {run: (await hf.get(run).wait()).status for run in TRIPS}

    assert office.ask(ends) == {"kept": "completed", "failed": "failed", "cancelled": "cancelled"}
    for run, last in TRIPS.items():
        done = [effect.split() for effect in office.effects() if effect.startswith(f"{run} ")]
        places = {of[1]: of[0] for _, what, *of in done if what == "book"}
        deeds = [f"{what} {places.get(of[-1])}" for _, what, *of in done]
        booked = [f"book {place}" for place in ("Rome", "Oslo", last)]
        undone = [] if run == "kept" else [f"cancel {place}" for place in (last, "Oslo", "Rome")]
        assert deeds == booked + undone


@pytest.mark.by_day("postgres")
def test_an_interrupt_is_handled_though_its_handler_is_killed(office):
    """While the main work goes on: each part of the handler counts once, in a branch of its own, and the work uses it."""
    office.start_worker()
    office.ask(lambda hf: hf.start(write_book, 2, id="b"))
    office.until(lambda: office.bodies() == ["b chapter 0"])
    office.ask(lambda hf: hf.get("b").send("wish", "dragons", key="w"))
    office.until(lambda: office.bodies()[-1] == "b consider dragons")
    office.meanwhile(lambda hf: hf.get("b").send("wish", "dragons", key="w"))
    office.until(lambda: office.bodies().count("b consider dragons") == 2)
    office.allow("consider")
    office.until(lambda: office.bodies()[-1] == "b acknowledge dragons")
    office.restart_worker()
    office.until(lambda: office.bodies().count("b acknowledge dragons") == 2)
    office.allow("acknowledge", "chapter 0", "chapter 1")
    told = office.ask(lambda hf: hf.get("b", write_book).result())
    assert told == ["chapter 0 with nothing", "chapter 1 with many dragons"]
    assert office.effects() == ["b chapter 0", "b consider dragons", "b acknowledge dragons", "b chapter 1"]
    assert office.bodies().count("b chapter 0") == 3  # once in each process: only a kill touches it
    assert office.bodies().count("b consider dragons") == 2
    shown = office.say("show", "b").splitlines()
    branch = shown[next(at for at, line in enumerate(shown) if line.strip().startswith("listen#0")) + 1 :]
    inside = [line.split("─ ")[1].split("(")[0] for line in branch if "├─ " in line or "└─ " in line]
    assert [inside[0], inside[-1]] == ["✓ consider", "✓ acknowledge"]
