"""`holdfast steps`, `snapshot` and `state`: a run from inside, for people and as JSON."""

import asyncio
import json

import holdfast


@holdfast.step(inputs="full")
async def summarise(pages: list[str]) -> str:
    return f"{len(pages)} pages"


@holdfast.step(retry=holdfast.Retry(2, first=0))
async def flaky() -> int:
    if holdfast.this_step().attempt == 1:
        raise ValueError("not yet")
    return 1


@holdfast.agent
async def asks(n: int) -> int:
    return n if await holdfast.approve("Publish it?", show={"n": n}, to="editors") else 0


@holdfast.agent
async def research(topic: str) -> str:
    state = await holdfast.restore({"pages": []})
    pages = [f"{topic} {n} {'long ' * 100}" for n in range(3)]
    await holdfast.plan(["read", "ask"])
    said = await summarise(pages)
    await flaky()
    state = await holdfast.checkpoint({"pages": ["one"]})
    await asks(len(state["pages"]))
    return said


def begin(url):
    async def main():
        async with holdfast.open(url, agents=[research, asks]) as hf:
            run = await hf.start(research, "otters", id="r")
            await run.wait_for_question(timeout=20)
            await run.wait("waiting", timeout=20)

    asyncio.run(main())


def test_steps(cli):
    """They are listed with how each ended, in pages, and one is shown with its arguments and result."""
    begin("sqlite:holdfast.db")
    shown = cli("steps", "r").stdout
    assert "✓ summarise#0(pages=['otters 0 long" in shown
    assert "✓ flaky#0()  2 attempts" in shown or "✓ flaky#0  2 attempts" in shown
    assert "○ @1/asks#0(n=1)  waiting" in shown
    assert shown.count("worker") == 1
    listed = cli.json("steps", "r")
    assert [step["name"] for step in listed["steps"]] == [":plan", "summarise", "flaky", ":checkpoint", "asks"]
    assert listed["next"] is None
    page = cli.json("steps", "r", "--limit", "2")
    assert page == {"steps": listed["steps"][:2], "next": 1}
    assert cli.json("steps", "r", "--after", "1")["steps"] == listed["steps"][2:]
    assert "holdfast steps r --after 1" in cli("steps", "r", "--limit", "2").stderr
    whole = cli.json("steps", "r", "summarise#0")["step"]
    assert (whole["result"], [page[:9] for page in whole["arguments"]["pages"]]) == (
        "3 pages",
        ["otters 0 ", "otters 1 ", "otters 2 "],
    )
    assert cli.json("steps", "r", whole["seq"])["step"] == whole
    one = cli("steps", "r", "flaky#0").stdout
    assert "attempt 1: ValueError: not yet" in one
    assert "only their digest is kept" in one
    assert "result  1" in one
    assert "has no call 'nothing'" in cli("steps", "r", "nothing").stderr


def test_snapshot(cli):
    """Its goal, its plan, what it waits for, its state, and the run below it, which asks."""
    begin("sqlite:holdfast.db")
    shown = cli("snapshot", "r").stdout
    for told in ("research(topic='otters')", "0 of 2, read", "waits for   ○ child r.asks-", "plan        · read", "checkpoint 1",
                 "runs below", "asks(n=1)", "○ Publish it?  q-", "for editors"):  # fmt: skip
        assert told in shown, shown
    found = cli.json("snapshot", "r")["snapshot"]
    assert (found["arguments"], found["state"]["value"]) == ({"topic": "otters"}, {"pages": ["one"]})
    assert found["plan"] == [["read", False], ["ask", False]]
    assert found["children"][0]["pending"][0]["text"] == "Publish it?"


def test_state(cli):
    """The last one, or the one that held at an event; none before the first checkpoint."""
    begin("sqlite:holdfast.db")
    assert json.loads(cli("state", "r").stdout) == {"pages": ["one"]}
    assert cli.json("state", "r")["state"]["value"] == {"pages": ["one"]}
    assert "had stored no state at event 0" in cli("state", "r", "--at", "0").stdout
    assert cli.json("state", "r", "--at", "0") == {"state": None}
    assert "has a history of" in cli("state", "r", "--at", "99").stderr
