"""Pictures in docs/images: all are there, small, and still what the page looks like from the other end of the room."""

import base64
import struct
import subprocess

import pytest
from tests.page.browser import FONTS, Visitor, missing
from tests.page.pictures import HERE, IMAGES, SIZES, VIEWS, act_two, every, named, question_of, taken
from tests.page.scene import scene

ALL = {named(view, size, dark=dark): (view, size, dark) for view, size, dark in every()}
# Of 255, in a grid of 24 cells across. Other times and fonts are below 3; another view is above 5, another theme above 100.
MEAN, WORST = 4.0, 120.0


def test_every_picture_is_there_and_they_are_small():
    found = {path.name for path in IMAGES.glob("*")}
    assert found == set(ALL), "run: python -m tests.page.pictures"
    assert sum(path.stat().st_size for path in IMAGES.glob("*")) < 3_000_000
    for name, (_, size, _) in ALL.items():
        width, height = struct.unpack(">II", (IMAGES / name).read_bytes()[16:24])
        assert (width, height) == (SIZES[size]["width"], SIZES[size]["height"]), name


def apart(page, one, other):
    """How far two pictures are from each other: on average, and where most."""
    cells = [page.evaluate((HERE / "cells.js").read_text(), base64.b64encode(each).decode()) for each in (one, other)]
    far = [sum(abs(a - b) for a, b in zip(*pair, strict=True)) / 3 for pair in zip(*cells, strict=True)]
    return sum(far) / len(far), max(far)


@pytest.mark.slow
def test_a_picture_is_told_from_another_and_from_nothing(browser):
    """The comparison is worth something."""
    page = browser.new_page()
    blank, runs, dark = (
        IMAGES / each for each in ("fleet-1440-light.png", "runs-1440-light.png", "runs-1440-dark.png")
    )
    assert apart(page, runs.read_bytes(), runs.read_bytes()) == (0, 0)
    assert apart(page, runs.read_bytes(), dark.read_bytes())[0] > 100
    assert apart(page, runs.read_bytes(), blank.read_bytes())[0] > MEAN
    page.close()


def differences(browser, made, names):
    """Tell which of these pictures the page does not look like any more, and by how much."""
    blank, question, found = browser.new_page(), question_of(made), {}
    for size, dark in sorted({ALL[name][1:] for name in names}):
        visitor = Visitor(browser, made.address, made.tokens["ana"], size=SIZES[size], dark=dark)
        for name in (name for name in names if ALL[name][1:] == (size, dark)):
            found[name] = apart(blank, taken(visitor, ALL[name][0], question), (IMAGES / name).read_bytes())
        visitor.leave()
    blank.close()
    return {name: far for name, far in found.items() if far[0] > MEAN or far[1] > WORST}


def lacking():
    """Name the fonts of the pictures that are not installed here. With wider ones, lines of a phone break elsewhere."""
    wanted = {r"system\-ui": "Inter", "monospace": "JetBrains Mono"}
    found = {
        name: subprocess.run(["fc-match", name, "family"], capture_output=True, text=True, check=False, env=FONTS)
        for name in wanted
    }
    return [font for name, font in wanted.items() if font not in found[name].stdout]


@pytest.mark.nightly
@pytest.mark.timeout(900)  # a wait of a minute is in the pictures, and there are forty
def test_all_pictures_are_what_the_page_shows(tmp_path, browser):
    if lacking():
        missing(f"no {' and no '.join(lacking())}: apt-get install fontconfig fonts-inter fonts-jetbrains-mono")
    with scene(tmp_path) as made:
        act_two(made, 65)
        found = differences(browser, made, ALL)
    assert found == {}, "if it is meant: python -m tests.page.pictures"


def test_every_view_has_a_picture():
    """A view that is added is photographed too; sign-in, lost and lists without a picture are named here."""
    views = {path.stem for path in (HERE.parents[1] / "src/holdfast/http/static/js/views").glob("*.js")}
    plain = {"sign-in", "lost", "schedules", "conversations", "audit"}
    assert views - plain == {"runs", "run", "approvals", "compare", "fleet", "agents"}
    assert {"runs", "run", "approvals", "compare", "fleet", "agents"} <= set(VIEWS)
