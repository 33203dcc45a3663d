"""How far a run has come, as `show` and `runs` tell it: a bar on a terminal, words in a pipe."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli import main
from holdfast.cli.show import drawn
from holdfast.cli.stores import existing
from holdfast.cli.view.console import ASCII, Glyphs
from holdfast.client.family import account


@holdfast.agent(name="in-steps")
async def in_steps(said: list[int], total: int, text: str) -> None:
    for number in said:
        await holdfast.progress(number, total, text)
    await holdfast.receive("never")


def told(url, *arguments):
    result = CliRunner().invoke(main, ["--db", url, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def picture(url, run, width, signs):
    async def draw():
        async with existing(url) as hf:
            return [line.plain for line in await drawn(hf, await account(hf, run), width, signs, url)]

    return asyncio.run(draw())


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:{tmp_path / 'runs.db'}"

    async def prepare() -> None:
        async with holdfast.open(url, agents=[in_steps], settings=holdfast.Settings(park_grace_s=0)) as hf:
            for name, said, total, text in (
                ("some", [1, 2, 3], 4, "pages"),
                ("more", [7], 4, ""),
                ("none", [2], 0, "?"),
                ("long", [1], 2, "x" * 400),
            ):
                run = await hf.start(in_steps, said, total, text, id=name)
                await run.wait("waiting")

    asyncio.run(prepare())
    return url


def test_a_pipe_gets_words(url):
    """In the list and in the picture; of progress after progress the last is shown."""
    assert "3 of 4, pages" in told(url, "runs")
    shown = told(url, "show", "some")
    assert shown.count("3 of 4, pages") == 2  # at the top, and where it was said
    assert "1 of 4" not in shown
    assert "━" not in shown


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("some", "  " + "━" * 22 + "─" * 8 + "  75%  3 of 4, pages"),
        ("more", "  " + "━" * 30 + "  100%  7 of 4"),
        ("none", None),
    ],
)
def test_a_terminal_gets_a_bar(url, run, line):
    """As long as there is a total; more than all is all."""
    bars = [each for each in picture(url, run, 100, Glyphs()) if "%" in each]
    assert bars == ([line] if line else [])


def test_a_bar_fits_the_terminal(url):
    """Whatever is said with it, and where there is only ASCII."""
    (line,) = [each for each in picture(url, "long", 60, ASCII) if "50%" in each]
    assert len(line) <= 60
    assert line.startswith("  " + "=" * 15 + "-" * 15)
