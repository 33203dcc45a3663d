"""The documentation is complete and true: names, kinds, commands, and the pictures made from tables."""

import asyncio
import os
import re
import shlex
import subprocess
import sys

import pytest
from tests.docs.pages import ROOT, block, module

import holdfast
import holdfast.testing
from holdfast.words.model import KINDS, TRANSITIONS


def page(name):
    return (ROOT / name).read_text()


def between(text, mark):
    return text.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0]


def test_the_readme_example_runs_and_is_short():
    """The example at the top of the README has at most 15 non-blank lines and survives a crash at every point."""
    code = block("README.md", "readme: research")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    readme = module("README.md", "readme: research")

    async def at_once(url):
        return url.upper()

    async def main():
        replace = {readme.summarise: at_once}
        async for hf in holdfast.testing.crash_everywhere(agents=[readme.research], replace=replace):
            run = await hf.start(readme.research, "o", id="o")
            async for event in run.events():
                if event.kind == "approval.asked":
                    await hf.approve("o", by="ana")
            assert await run.result() == "published: O.EXAMPLE/0, O.EXAMPLE/1, O.EXAMPLE/2"

    asyncio.run(main())


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


def test_the_readme_names_exactly_two_commands_to_set_up():
    """`make demo` and `make test` are the commands of the README's set-up block."""
    blocks = re.findall(r"```console\n(.*?)```", page("README.md"), re.DOTALL)
    commands = [line.split("#")[0].strip() for text in blocks for line in text.splitlines() if line.startswith("make")]
    assert commands == ["make demo", "make test"]


def test_the_picture_of_states_is_drawn_from_the_table():
    """The diagram in the design page shows the transitions of the table in model.py, and no others."""
    drawn = re.findall(r"^    (\w+) --> (\w+)$", between(page("docs/design.md"), "states"), re.MULTILINE)
    assert drawn == [(a, b) for a, following in TRANSITIONS.items() for b in following]


def test_the_table_of_kinds_is_made_from_the_table():
    """The design page lists every kind of event with its meaning."""
    rows = ["| kind | meaning | |", "|---|---|---|"]
    for name, kind in KINDS.items():
        rows.append(f"| `{name}` | {kind.meaning} | {'closes' if kind.closes else 'arrives' if kind.arrives else ''} |")
    assert between(page("docs/design.md"), "kinds").strip() == "\n".join(rows)


@pytest.mark.parametrize("name", [name for name in holdfast.__all__ if not name.startswith("_")])
def test_every_public_name_is_in_the_guide(name):
    """A public name that no page explains does not exist for a user."""
    assert f"`{name}`" in page("docs/guide.md")


def test_every_command_and_promise_is_documented():
    """Every command of the command line is in the guide."""
    from holdfast.cli import main

    for command in main.commands:
        assert f"holdfast {command}" in page("docs/guide.md"), command


def test_links_between_pages_lead_somewhere():
    """Every relative link of the README and the docs names a file that is there."""
    for source in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", source.read_text()):
            assert (source.parent / target).exists(), f"{source.name}: {target}"
