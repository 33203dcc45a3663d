"""`holdfast state --code` and `holdfast check` of a reducer: the very state, and where another function comes to something else."""

import asyncio
import runpy
import textwrap

import holdfast

CODE = """
    from dataclasses import dataclass
    import holdfast

    @dataclass(frozen=True)
    class Paid:
        cents: int

    @holdfast.reducer(int, every=2)
    def total(state: int, event: Paid) -> int:
        return state + {value}

    @holdfast.agent
    async def other() -> None: ...
"""
STORE = "sqlite:totals.db"


def written(cli, name, value):
    file = cli.folder / name
    file.write_text(textwrap.dedent(CODE).format(value=value))
    return runpy.run_path(str(file), run_name="totals")


async def folded(code, *cents):
    async with holdfast.open(STORE, agents=[code["total"]]) as hf:
        run = await hf.start(code["total"], id="r")
        for each in cents:
            await run.send(code["Paid"](each))
            await run.wait("waiting", timeout=10)
        async with asyncio.timeout(10):
            while (await run.state()).folded < len(cents):
                await asyncio.sleep(0.005)


def test_state_and_check(cli):
    asyncio.run(folded(written(cli, "totals.py", "event.cents"), 1, 2, 3, 4, 5))
    assert cli("state", "r", "--db", STORE, "--code", "totals.py").stdout.strip() == "15"
    found = cli.json("state", "r", "--db", STORE, "--code", "totals.py", "--at", "1")["state"]
    assert (found["value"], found["folded"]) == (3, 2)
    stored = cli.json("state", "r", "--db", STORE)["state"]
    assert (stored["value"], stored["folded"]) == (10, 4)
    assert cli("check", "totals.py", "--db", STORE).exit_code == 0
    refused = cli("state", "r", "--db", STORE, "--code", "totals.py:other")
    assert refused.exit_code != 0
    assert "'total', which is not among the agents" in refused.output
    written(cli, "doubled.py", "event.cents * 2")
    told = cli("check", "doubled.py", "--db", STORE)
    assert told.exit_code == 0
    assert "folds otherwise" in told.stdout
    assert "the function comes to 6" in told.stdout
