"""The story in the example's README: every command is typed into a real shell, and what the page shows is what one sees."""

import asyncio
import shutil
import socket

import pytest
from tests.examples.inbox import EXAMPLE
from tests.examples.story import Shell, play, story

import holdfast

ROOT = EXAMPLE.parents[1]
CHANGES = [(r"\bletter-[0-9a-f]{16}\b", "letter-ID"), (r"digest@\S+", "digest@A-TIME")]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def shell(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "inbox", ignore=shutil.ignore_patterns("__pycache__"))
    started = Shell(tmp_path, HOLDFAST_SMTP_URL=f"smtp://127.0.0.1:{free_port()}", INBOX_PORT=str(free_port()))
    yield started
    started.close()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_story_is_what_one_sees(shell, tmp_path):
    """Each command works in the order of the page, killed twice, and prints what the page shows of each line."""
    place = tmp_path / "examples" / "inbox"

    def says(log, text):
        return lambda: (place / log).exists() and text in (place / log).read_text()

    def has(name, many):
        """Are so many mails in this mailbox?"""
        return lambda: (box := place / "world" / name).exists() and len(box.read_text().splitlines()) >= many

    def told():
        async def main():
            async with holdfast.open(f"sqlite:{place / 'holdfast.db'}") as hf:
                return (await hf.get_notification("clerk").info()).done == 2

        return asyncio.run(main())

    writes = 'python world.py write ana@example.com "Hours" "When are you open?"'
    finds = "cy=$(holdfast runs --label from=cy@example.com --json | grep -o 'letter-[0-9a-f]*' | head -1)"
    readers_wait = [
        ("python receive.py > receive.log &", says("world.log", "mail is at")),
        (writes, says("receive.log", "are taken at")),
        ("python world.py read clerk@example.com", has("clerk@example.com", 2)),
        ("kill -9 $!", told),
        ("kill -9 $!", has("ana@example.com", 1)),
        (finds, has("clerk@example.com", 3)),
        ("holdfast schedules digest --trigger", has("cy@example.com", 1)),
        ("python world.py read chief@example.com", has("chief@example.com", 1)),
    ]
    play(story(EXAMPLE / "README.md"), shell, readers_wait, CHANGES)


def test_the_page_is_one_page_and_linked():
    """It is short, and so is the agent; the README of the project leads to it."""
    assert len((EXAMPLE / "README.md").read_text().splitlines()) <= 110
    assert len((EXAMPLE / "agents.py").read_text().splitlines()) <= 110
    assert "(examples/inbox/)" in (ROOT / "README.md").read_text()
