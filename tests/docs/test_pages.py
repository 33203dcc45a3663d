"""The documentation is complete and true: names, kinds, commands, and the pictures made from tables."""

import asyncio
import functools
import os
import re
import runpy
import shlex
import subprocess
import sys

import click
import pytest
from tests.docs.pages import BLOCK, FENCE, ROOT, anchors, between, block, module, page, pages

import holdfast
import holdfast.testing
from holdfast.words.model import KINDS, TRANSITIONS


async def test_the_readme_example_runs_and_is_short():
    """The example at the top of the README has at most 15 non-blank lines and survives a crash at every point."""
    code = block("README.md", "readme: research")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    readme = module("README.md", "readme: research")

    async def at_once(url):
        return url.upper()

    replace = {readme.summarise: at_once}
    async for hf in holdfast.testing.crash_everywhere(agents=[readme.research], replace=replace):
        run = await hf.start(readme.research, "o", id="o")
        async for event in run.events():
            if event.kind == "approval.asked":
                await hf.approve("o", by="ana")
        assert await run.result() == "published: O.EXAMPLE/0, O.EXAMPLE/1, O.EXAMPLE/2"


def test_the_readme_runs_as_it_is_pasted(terminal):
    """The package comes first, then a file, then what is typed: killed at work, it goes on, and a person decides."""
    consoles = re.findall(r"```console\n(.*?)```", page("README.md"), re.DOTALL)
    assert consoles[0] == "$ pip install holdfast\n"
    assert page("README.md").index("pip install holdfast") < page("README.md").index("```python")
    (terminal.folder / "research.py").write_text(f"# readme: research\n{block('README.md', 'readme: research')}")
    typed = [shlex.split(line[2:], comments=True)[1:] for line in consoles[1].splitlines()]
    assert [words[0] for words in typed] == ["run", "run", "approvals", "approve", "show"]
    first = terminal.start(*typed[0])
    first.until("search(topic='otters') done")
    first.kill()
    second = terminal.start(*typed[1])
    second.until("Publish this?")
    assert "otters.example/2 says" in terminal.run(*typed[2])[1]
    assert terminal.run(*typed[3])[0] == 0
    assert second.wait() == 0
    told = "published: what otters.example/0 says, what otters.example/1 says, what otters.example/2 says"
    assert second.output().splitlines()[-1] == told
    shown = terminal.run(*typed[4])[1]
    assert told in shown
    assert shown.count(" search(topic='otters')") == 1


def test_the_readme_story_is_a_file_that_runs():
    """A question, a crash and a decision in at most 15 lines: the file of the examples, word for word."""
    code = block("README.md", "readme: approve")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    file = ROOT / "examples" / "approve.py"
    assert file.read_text() == code
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, check=True, timeout=50
    )
    assert ran.stdout == "All about otters. The report was written 1 time.\n"


def test_the_readme_starts_a_run_from_python(tmp_path, monkeypatch, capsys):
    """The client of the README, with its first agent."""
    monkeypatch.chdir(tmp_path)
    research = module("docs/guide/start.md", "guide: research").research
    asyncio.run(module("README.md", "readme: python").main(research))
    assert capsys.readouterr().out == "published 44 characters\n"
    assert (tmp_path / "agents.db").exists()


def test_the_readme_names_exactly_two_commands_to_set_up():
    """`make demo` and `make test` are the commands of the README's set-up block."""
    blocks = re.findall(r"```console\n(.*?)```", page("README.md"), re.DOTALL)
    commands = [line.split("#")[0].strip() for text in blocks for line in text.splitlines() if line.startswith("make")]
    assert commands == ["make demo", "make test"]


def test_the_states_on_the_page_are_those_of_the_table():
    """The design page lists the transitions of the table in model.py, and no others."""
    rows = [f"| {state} | {', '.join(following)} |" for state, following in TRANSITIONS.items() if following]
    assert between(page("docs/design.md"), "states").strip().splitlines()[2:] == rows


@pytest.mark.parametrize("name", ["states", "step", "move", "fork"])
def test_the_drawings_are_as_the_script_draws_them(name):
    """`python docs/drawings/draw.py` would change nothing."""
    scope = runpy.run_path(str(ROOT / "docs" / "drawings" / "draw.py"))
    assert (ROOT / "docs" / "drawings" / f"{name}.svg").read_text("utf-8") == scope[name]()


def test_the_design_page_has_a_glossary_of_words_in_order():
    """One noun for each thing, found by the eye."""
    table = page("docs/design.md").split("## Glossary")[1].split("\n## ")[0]
    words = re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE)[1:]
    assert words == sorted(words)
    assert len(words) >= 30


def test_tests_that_pages_name_are_there():
    """A promise names the tests that hold it."""
    named = {(path, test) for path in pages() for test in re.findall(r"`(tests/[\w/.]+)`", path.read_text("utf-8"))}
    assert [f"{path.name}: {test}" for path, test in sorted(named) if not (ROOT / test).exists()] == []


def test_the_table_of_kinds_is_made_from_the_table():
    """The design page lists every kind of event with its meaning."""
    rows = ["| kind | meaning | |", "|---|---|---|"]
    for name, kind in KINDS.items():
        rows.append(f"| `{name}` | {kind.meaning} | {'closes' if kind.closes else 'arrives' if kind.arrives else ''} |")
    assert between(page("docs/design.md"), "kinds").strip() == "\n".join(rows)


@pytest.mark.parametrize("name", [name for name in holdfast.__all__ if not name.startswith("_")])
def test_every_public_name_is_in_the_guide(name):
    """A public name that no page explains does not exist for a user."""
    assert f"`{name}`" in page("docs/guide/names.md")


def test_every_command_and_promise_is_documented():
    """Every command of the command line is in the guide."""
    from holdfast.cli import main

    names = main.list_commands(click.Context(main))
    assert len(names) > 20
    for command in names:
        assert f"holdfast {command}" in page("docs/guide/cli.md"), command


LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:a href|img src)=\"([^\"]+)\"")


@pytest.mark.parametrize("source", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(source):
    """Every relative link names a file that is there, and a heading that is in it."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", source.read_text("utf-8")))
    for target in ("".join(groups) for groups in LINK.findall(text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (source.parent / name).resolve() if name else source
        assert file.exists(), f"{target}: no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: no such heading"


def test_the_guide_lists_every_page():
    """A page that no list leads to is not read."""
    listed = re.findall(r"\(guide/(\w+\.md)\)", page("docs/guide.md"))
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("source", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_python_is_run_by_a_test(source):
    """Each has a name in its first line, and a test asks for it by that name."""
    text = source.read_text("utf-8")
    named = {match["name"] for match in BLOCK.finditer(text)}
    blocks = [match for match in FENCE.finditer(text) if match["language"] == "python"]
    assert len(named) == len(blocks), "a block without a name in its first line, or two with one name"
    assert [name for name in named if not is_asked_for(name)] == []


def is_asked_for(name):
    kind, _, rest = name.partition(": ")
    return any(f'"{name}"' in text or (f'f"{kind}: {{' in text and f'"{rest}"' in text) for text in sources())


@functools.cache
def sources():
    return [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")]


def commands_shown():
    """Every line of a page that calls the command line, as it is typed."""
    for source in pages():
        for match in FENCE.finditer(source.read_text("utf-8")):
            for line in match["text"].splitlines() if match["language"] == "console" else ():
                typed = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*holdfast ([^|&>]+)", line)
                if typed and "…" not in line:
                    yield re.sub(r" 2$", "", typed[1])


def test_every_command_on_a_page_is_understood():
    """Its name and its options exist, and it has all the arguments that it needs."""
    from holdfast.cli import main

    above = click.Context(main, info_name="holdfast")
    wrong = []
    for typed in commands_shown():
        try:
            name, command, rest = main.resolve_command(above, shlex.split(typed, comments=True))
            command.make_context(name, rest, parent=above)
        except click.ClickException as error:
            wrong.append(f"{typed}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)
