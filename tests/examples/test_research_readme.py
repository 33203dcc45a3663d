"""The story in the example's README: every command is typed into a real shell, and what the page shows is what one sees."""

import asyncio
import json
import shutil
import socket
import urllib.request

import pytest
from tests.examples.research import EXAMPLE
from tests.examples.story import Shell, play, story

import holdfast

ROOT = EXAMPLE.parents[1]
SITE = "http://127.0.0.1:8710"
CHANGES = [  # what depends on the moment of a kill
    (r'"(asked|paid)": \d+', r'"\1": N'),
    (r"^Going on with atlas: \d+", "Going on with atlas: N"),
    (r"by \w+ ─", "by SOMEBODY ─"),
]


@pytest.fixture
def site():
    """Where the site will be: a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def shell(tmp_path, site):
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "research")
    with socket.create_server(("127.0.0.1", 0)) as free:
        model = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    started = Shell(tmp_path, SITE_URL=site, MODEL_URL=model)
    yield started
    started.close()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_story_is_what_one_sees(shell, site, tmp_path):
    """Each command works in the order of the page and prints each line that the page shows; the hotfix costs six requests."""
    paid = []

    def books():
        with urllib.request.urlopen(f"{site}/books") as page:
            return json.load(page)["model"]

    def is_open():
        try:
            return books() == {"asked": 0, "paid": 0}
        except OSError:
            return False

    def noted():
        paid.append(books()["paid"])
        return True

    def waits(run):
        async def main():
            async with holdfast.open(f"sqlite:{tmp_path / 'examples' / 'research' / 'holdfast.db'}") as hf:
                return bool(await hf.approvals(run=run))

        return asyncio.run(main())

    told = [(command.replace(SITE, site), [line.replace(SITE, site) for line in shown])
            for command, shown in story(EXAMPLE / "README.md")]  # fmt: skip
    readers_wait = [
        (f"holdfast run release1.py:research {site}/tide-pools.html 6 --id pools 2> pools.log &", is_open),
        ("kill -9 $!", lambda: waits("pools")),
        ("kill -9 $!", lambda: books()["asked"] >= 7 + 12),
        ("holdfast retry atlas", noted),
        ("holdfast approve atlas --by ana", lambda: waits("atlas")),
        ("kill %1", noted),
    ]
    play(told, shell, readers_wait, CHANGES)
    failed, mended = paid
    assert mended - failed == 6
    assert 53 <= mended <= 53 + 4  # an answer may have left when its reader was killed


@pytest.mark.nightly
def test_the_page_is_one_page_and_linked():
    """It is short, and so are the releases; the README of the project leads to it."""
    assert len((EXAMPLE / "README.md").read_text().splitlines()) <= 130
    assert len((EXAMPLE / "release2.py").read_text().splitlines()) <= 30
    assert "examples/research/" in (ROOT / "README.md").read_text()
