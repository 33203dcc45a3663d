"""The scripts of the page without a browser: their own tests, what they may not do, and how large they are."""

import re

import pytest
from tests.page.node import HERE, STATIC, run

from holdfast.http.lean import lean_script, lean_style
from holdfast.http.page import Page

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
        raw = re.findall(r"\.textContent = (?=.*(?:error|model_name|response|answer)\b).*", text)
        assert not raw, f"{script.name}: what others wrote is shown by dom.js, which marks what cannot be seen: {raw}"


def test_no_style_is_in_the_markup_and_no_colour_outside_the_tokens():
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\bsrc=)", (STATIC / "index.html").read_text())
    for sheet in STATIC.glob("css/*.css"):
        if sheet.name != "tokens.css":
            colours = re.findall(r"#[0-9a-f]{3,8}\b|\brgb\(|\bhsl\(|light-dark\(", sheet.read_text())
            assert not colours, f"{sheet.name}: {colours}"


def test_every_class_that_has_a_style_is_given_to_something():
    """By its name in a text of a script, or by its beginning: `is-${state}`. What nothing uses is sent to everybody."""
    code = "\n".join(lean_script(each.read_text()) for each in SCRIPTS) + (STATIC / "index.html").read_text()
    given = set(re.findall(r"""(?<=["'`. ])[A-Za-z][\w-]*(?=["'`. $])""", code))
    begun = tuple(re.findall(r"""["'`. ]([A-Za-z][\w-]*-)\$\{""", code))
    for sheet in STATIC.glob("css/*.css"):
        rules = re.findall(r"([^{};]+)\{", lean_style(sheet.read_text()))
        styled = {name for rule in rules for name in re.findall(r"\.([A-Za-z][\w-]*)", rule)}
        assert not {name for name in styled - given if not name.startswith(begun)}, sheet.name


def test_every_name_that_a_script_exports_is_imported():
    """By another script or by a test of them."""
    code = {each: each.read_text() for each in (*SCRIPTS, *HERE.glob("*.mjs"))}
    for script in SCRIPTS:
        others = "\n".join(text for each, text in code.items() if each != script)
        for name in re.findall(
            r"^export (?:async )?(?:class|const|function|let) (\w+)", code[script], flags=re.MULTILINE
        ):
            assert re.search(rf"\b{name}\b", others), f"{script.name}: {name}"


FIRST = 60_000  # bytes of gzip before a view is there
LARGER = {"run.js": 95_000}  # its picture, its details and its words
IN_ALL = 171_000


def imported(script, found):
    """A script and all that it imports before it runs."""
    if script not in found:
        found.add(script)
        for name in re.findall(r'^(?:import|export)[^"]*? from "([^"]+)"', script.read_text(), flags=re.MULTILINE):
            imported((script.parent / name).resolve(), found)
    return found


def always():
    """What every view needs: the document, what it links to, and all that its script imports."""
    named = re.findall(r'(?:href|src)="static/([^"]+)"', (STATIC / "index.html").read_text())
    return {STATIC / "index.html", *(STATIC / each for each in named)} | imported(STATIC / "js" / "app.js", set())


def test_the_page_is_small():
    """Whichever view is opened first, and all of it together, as gzip."""
    page = Page(STATIC)
    sizes = {each: len(page._file(str(each.relative_to(STATIC))).small) for each in STATIC.rglob("*") if each.is_file()}
    for view in (STATIC / "js" / "views").glob("*.js"):
        files = imported(view, always())
        files |= {STATIC / "css" / f"{name}.css" for name in re.findall(r'styled\([^"]*"(\w+)"\)', view.read_text())}
        first = sum(sizes[each] for each in files)
        assert first < LARGER.get(view.name, FIRST), f"{view.name}: {first}"
    assert sum(sizes.values()) < IN_ALL, sum(sizes.values())


def test_what_every_view_imports_is_asked_for_at_once():
    """The document names all of it, so that no script is read to find the next."""
    preloaded = re.findall(r'rel="modulepreload" href="static/(js/[^"]+)"', (STATIC / "index.html").read_text())
    shell = imported(STATIC / "js" / "app.js", set())
    assert sorted([*preloaded, "js/app.js"]) == sorted(str(each.relative_to(STATIC)) for each in shell)
