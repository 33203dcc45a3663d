"""Pictures of the dashboard for the pages of the documentation: `python -m tests.page.pictures` writes docs/images.

What is drawn is real: workers carried the runs, one of them was killed, and a person was waited for. The fonts are those of
`fonts.conf`: Inter and JetBrains Mono (Debian's fonts-inter and fonts-jetbrains-mono).
"""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
import tempfile
import time
import zlib
from pathlib import Path

from tests.page.browser import DESK, PHONE, Visitor, chromium
from tests.page.scene import Scene, scene

import holdfast

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs" / "images"
WAIT_S = 75  # so long the editors think about it: a wait of more than a minute is folded
# name: (path, what must be there before the picture is taken, is there one for phones)
VIEWS = {
    "runs": ("/runs", "[data-row]", True),
    "run": ("/runs/otters-2026-07", ".pill, .across", True),
    "doubt": ("/runs/payout-8841", ".asked-part, .dw-row", True),
    "journal": ("/runs/otters-2026-07/journal", ".ev-row[data-seq]", False),
    "conversation": ("/runs/otters-2026-07/conversation", ".turn", False),
    "approvals": ("/approvals", ".inbox-item", True),
    "question": ("/approvals/{question}", ".pick-pill", True),
    "compare": ("/compare?a=otters-2026-07&b=seals-2026-07", ".cmp-row:not(.is-same)", True),
    "fleet": ("/fleet", ".workers", True),
    "agents": ("/agents/atlas", ".start", True),
    "schedules": ("/schedules", "tr[data-row=janitor]", True),
}
SEEN = """() => {
  const strip = document.querySelector(".across");
  strip?.scrollIntoView({ block: "center" });
  return strip?.getBoundingClientRect().bottom < innerHeight;
}"""
SIZES = {"1440": DESK, "390": PHONE}


def named(view: str, size: str, *, dark: bool) -> str:
    return f"{view}-{size}-{'dark' if dark else 'light'}.png"


def every():
    """Tell each picture that there is: (view, size, dark)."""
    for view, (_, _, phones) in VIEWS.items():
        for size in SIZES:
            if size == "1440" or phones:
                yield from ((view, size, dark) for dark in (False, True))


def act_two(made: Scene, wait_s: float) -> None:
    """Let the scene go on: the articles are written, the editors take their time, one is published now."""

    async def first(hf: holdfast.Client) -> None:
        for id in ("otters-2026-07", "seals-2026-07"):
            await hf.get(id).wait_for_question()

    async def second(hf: holdfast.Client) -> None:
        for id, note in (("otters-2026-07", "Good. Mind the caption."), ("seals-2026-07", "")):
            (asked,) = await hf.approvals(run=id)
            await hf.approve(asked, by=holdfast.Actor("bo", groups=["editors"]), note=note)
        await hf.acting_as("ana").start("atlas", "puffins", id="puffins-2026-07", labels={"desk": "nature"})
        async with asyncio.timeout(60):
            while (await hf.get("puffins-2026-07").info()).spent.usd < 0.6:
                await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)  # workers publish what runs longer than a second

    made.hold.unlink()
    made.act(first)
    time.sleep(wait_s)
    made.hold.touch()
    made.act(second)


def question_of(made: Scene) -> str:
    """Name the question that has a form."""
    (asked,) = made.act(lambda hf: hf.approvals(run="noor"))
    return str(asked.id)


def taken(visitor: Visitor, view: str, question: str) -> bytes:
    """Take a picture of a view, as PNG, when all of it is there."""
    path, wanted, _ = VIEWS[view]
    page = visitor.goto(path.format(question=question), wanted)
    page.wait_for_function("() => document.querySelectorAll('.ghost').length === 0")
    visitor.settle()
    if (
        view == "run" and visitor.page.viewport_size == PHONE
    ):  # there the tear is further down, and drawn anew each second
        page.wait_for_function(SEEN)
    return page.screenshot()


def packed(page, picture: bytes) -> bytes:
    """Write a picture with a palette, which is a third of the size."""
    made = page.evaluate((HERE / "palette.js").read_text(), base64.b64encode(picture).decode())
    width, height = made["width"], made["height"]
    places = base64.b64decode(made["places"])
    lines = b"".join(b"\0" + places[row * width : (row + 1) * width] for row in range(height))

    def part(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    return b"".join((
        b"\x89PNG\r\n\x1a\n",
        part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        part(b"PLTE", bytes(value for colour in made["colours"] for value in colour)),
        part(b"IDAT", zlib.compress(lines, 9)),
        part(b"IEND", b""),
    ))  # fmt: skip


def main(*wanted: str) -> None:
    """Write all pictures, or those of the views that are named."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as made, chromium() as browser:
        act_two(made, WAIT_S)
        question = question_of(made)
        blank = browser.new_page()  # no policy holds there: it turns pictures into palettes
        for size, viewport in SIZES.items():
            for dark in (False, True):
                visitor = Visitor(browser, made.address, made.tokens["ana"], size=viewport, dark=dark)
                for view, of, shade in every():
                    if (of, shade) != (size, dark) or (wanted and view not in wanted):
                        continue
                    picture = packed(blank, taken(visitor, view, question))
                    path = IMAGES / named(view, size, dark=dark)
                    path.write_bytes(picture)
                    print(f"{path.name} {len(picture):,}", flush=True)  # noqa: T201
                visitor.leave()
    print(f"{sum(each.stat().st_size for each in IMAGES.glob('*.png')):,} bytes in all")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
