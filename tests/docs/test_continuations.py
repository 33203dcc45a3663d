"""The blocks of docs/continuations.md, run as they stand there."""

import asyncio
import sys
import types

from tests.docs.examples import report, research
from tests.docs.pages import module

import holdfast

PAGE = "docs/continuations.md"


def test_move(tmp_path, monkeypatch, capsys):
    """A run moves from one store to another, and goes on there."""
    monkeypatch.chdir(tmp_path)
    holdfast.Keys("keys").new("ana")
    page = module(PAGE, "continuations: move")

    async def main():
        async with (
            holdfast.open("sqlite:a.db", agents=[report]) as here,
            holdfast.open("sqlite:b.db", agents=[report]) as there,
        ):
            run = await here.start(report, "otters", id="r")
            question = await run.wait_for_question()
            assert await page.move(here, there, "r", "keys") == "r"
            await there.approve(question.id, by="ana")
            return await there.get("r").result(timeout=20)

    assert asyncio.run(main()) == "published"
    assert "Publish this?" in capsys.readouterr().out


def test_replay(tmp_path, monkeypatch):
    """A run of production becomes a test in three lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_KEYS", "keys")
    holdfast.Keys().new("ana")

    async def main():
        async with holdfast.open("sqlite:a.db", agents=[research]) as hf:
            run = await hf.start(research, "otters", id="r-1")
            await run.result(timeout=20)
            await run.export("tuesday.bundle")

    asyncio.run(main())
    agents = types.ModuleType("agents")
    agents.research = research
    monkeypatch.setitem(sys.modules, "agents", agents)
    module(PAGE, "continuations: replay").test_the_run_of_last_tuesday()
