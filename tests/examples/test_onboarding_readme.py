"""The story in the example's README: every command is typed into a real shell, and what the page shows is what one sees."""

import asyncio
import shutil
import socket

import pytest
from tests.examples.onboarding import EXAMPLE
from tests.examples.story import Shell, play, story

import holdfast

ROOT = EXAMPLE.parents[1]
CHANGES = [(r"\b(accounts|privileges)-[0-9a-f]{8}\b", r"\1-ID")]


@pytest.fixture
def shell(tmp_path):
    place = tmp_path / "examples" / "onboarding"
    place.mkdir(parents=True)
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, place)
    with socket.create_server(("127.0.0.1", 0)) as free:
        office = f"http://127.0.0.1:{free.getsockname()[1]}"
    started = Shell(tmp_path, OFFICE_URL=office)
    yield started
    started.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_story_is_what_one_sees(shell, tmp_path):
    """Each command works in the order of the page, and prints each line that the page shows of it."""
    place = tmp_path / "examples" / "onboarding"

    def needs(run, many):
        """Has this run a question that so many must agree to?"""

        async def main():
            async with holdfast.open(f"sqlite:{place / 'holdfast.db'}") as hf:
                return [each.needs for each in await hf.approvals(run=run)] == [many]

        return (place / "holdfast.db").exists() and asyncio.run(main())

    readers_wait = [  # until the page's next step makes sense; in the order of the commands they come before
        ("holdfast run agents.py:onboard ada --id ada 2> run.log &", lambda: "mails" in shell.type("python services.py books")),
        ("kill -9 $!", lambda: needs("ada", 1)),
        ("holdfast approve ada --by ana", lambda: needs("ada", 2)),
        ("kill -9 $!", lambda: "Welcome" in shell.type("python services.py books")),
        ('holdfast delegate bob --to eve --by ana --note "on leave"', lambda: needs("bob", 1)),
    ]  # fmt: skip
    play(story(EXAMPLE / "README.md"), shell, readers_wait, CHANGES)


def test_the_page_is_one_page_and_linked():
    """It is short, and the README of the project leads to it."""
    assert len((EXAMPLE / "README.md").read_text().splitlines()) <= 110
    assert len((EXAMPLE / "agents.py").read_text().splitlines()) <= 110
    assert "examples/onboarding/" in (ROOT / "README.md").read_text()
