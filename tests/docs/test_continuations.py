"""The blocks of docs/continuations.md, run as they stand there."""

import asyncio

from tests.docs.examples import report
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
