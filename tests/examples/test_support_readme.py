"""The story in the example's README: every command is typed into a real shell, and what the page shows is what one sees."""

import asyncio
import re
import shutil
import socket

import pytest
from tests.examples.story import Shell, story, until, usual
from tests.examples.support import EXAMPLE

import holdfast

ROOT = EXAMPLE.parents[1]
CHANGES = [(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "A TIME")]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def shell(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "support")
    started = Shell(
        tmp_path, SHOP_URL=f"http://127.0.0.1:{free_port()}", MODEL_URL=f"http://127.0.0.1:{free_port()}/v1"
    )
    yield started
    started.close()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_story_is_what_one_sees(shell, tmp_path):
    """Each command works in the order of the page, killed twice, and prints what the page shows of each line."""
    place = tmp_path / "examples" / "support"

    def asks(number):
        """Does the clerk ask for the money of this order?"""

        async def main():
            async with holdfast.open(f"sqlite:{place / 'holdfast.db'}") as hf:
                return [question.shown["number"] for question in await hf.approvals()] == [number]

        return (place / "holdfast.db").exists() and asyncio.run(main())

    def is_open():
        log = place / "shop.log"
        return log.exists() and "answers at" in log.read_text()

    waits = iter([
        ('python chat.py ana "Where is order 101?"', is_open),
        ("kill -9 $!", lambda: asks(101)),
        ("holdfast approvals --list", lambda: asks(101)),
        ("holdfast approvals --list", lambda: asks(102)),
    ])  # fmt: skip
    before, ready = next(waits)
    for command, shown in story(EXAMPLE / "README.md"):
        if command == before:
            until(ready)
            before, ready = next(waits, (None, None))
        printed = usual(" ".join(shell.type(command).splitlines()), CHANGES)
        for line in (usual(line, CHANGES) for line in shown):
            place_of = printed.find(line)
            assert place_of >= 0, f"$ {command}\nprints no such line: {line}\nbut: {printed}"
            printed = printed[place_of + len(line) :]
    assert before is None


@pytest.mark.nightly
def test_the_page_is_one_page_and_linked():
    """It is short, and so is the agent; the README of the project leads to it."""
    assert len((EXAMPLE / "README.md").read_text().splitlines()) <= 110
    assert len((EXAMPLE / "agents.py").read_text().splitlines()) <= 110
    assert re.search(r"\(examples/support/\)", (ROOT / "README.md").read_text())
