"""The scripts of the page without a browser: their own tests, what they may not do, and how large they are."""

import gzip
import re

import pytest
from tests.page.node import HERE, STATIC, run

SCRIPTS = sorted(STATIC.glob("js/**/*.js"))
FORBIDDEN = {
    r"\b(inner|outer)HTML\b": "markup from a text",
    r"\binsertAdjacentHTML\b": "markup from a text",
    r"\bdocument\.write": "markup from a text",
    r"\bcreateContextualFragment\b|\bDOMParser\b|\bsetHTML": "markup from a text",
    r"\beval\s*\(|\bnew Function\b|\bsetTimeout\(\s*[\"'`]": "code from a text",
    r"setAttribute\(\s*[\"'](on|style|src)": "an attribute that runs or styles",
    r"\bstyle\s*=|\.cssText\b": "an inline style",
    r"https?://(?!www\.w3\.org/2000/svg)": "another server",
    r"\bdocument\.cookie\b": "a credential within reach of scripts",
}


@pytest.mark.slow
def test_the_tests_of_the_scripts_pass():
    found = sorted(str(each) for each in HERE.glob("*.test.mjs"))
    assert found
    answer = run("--test", *found)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: str(each.relative_to(STATIC)))
def test_no_script_makes_markup_or_code_of_a_text(script):
    text = re.sub(r"^\s*//.*$", "", script.read_text(), flags=re.MULTILINE)
    for pattern, why in FORBIDDEN.items():
        assert not re.search(pattern, text), f"{script.name}: {why}"
    if script.name != "dom.js":
        assert not re.search(r"\bcreateElement(NS)?\b", text), f"{script.name}: elements are made in dom.js"


def test_no_style_is_in_the_markup_and_no_colour_outside_the_tokens():
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\bsrc=)", (STATIC / "index.html").read_text())
    for sheet in STATIC.glob("css/*.css"):
        if sheet.name != "tokens.css":
            colours = re.findall(r"#[0-9a-f]{3,8}\b|\brgb\(|\bhsl\(|light-dark\(", sheet.read_text())
            assert not colours, f"{sheet.name}: {colours}"


def test_the_page_is_small():
    """At most 60 kB for the first view and 120 kB in all, as gzip."""
    sizes = {each: len(gzip.compress(each.read_bytes())) for each in STATIC.rglob("*") if each.is_file()}
    views = STATIC / "js" / "views"
    first = sum(size for each, size in sizes.items() if not each.is_relative_to(views)) + max(
        (size for each, size in sizes.items() if each.is_relative_to(views)), default=0
    )
    assert first < 60_000, first
    assert sum(sizes.values()) < 120_000, sum(sizes.values())
