"""Hooks of the site: pages that stand elsewhere in the repository, the commands' reference, and a look at what was built.

Look here when a page of the site comes from a file outside docs/. `PAGES` says where such a file appears. A link to any
other file of the repository, such as a Dockerfile, leads to a page that shows its text.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from holdfast.cli import main
from holdfast.cli.group import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/README.md": "benchmarks/method.md",
    "benchmarks/results.md": "benchmarks.md",
    "deploy/README.md": "deploy.md",
    "deploy/kubernetes/README.md": "deploy/kubernetes.md",
    "deploy/systemd/README.md": "deploy/systemd.md",
    "examples/onboarding/README.md": "examples/onboarding.md",
    "examples/research/README.md": "examples/research.md",
    "examples/support/README.md": "examples/support.md",
    "examples/inbox/README.md": "examples/inbox.md",
    "tests/README.md": "tests.md",
}
SOURCES: dict[str, Path] = {}  # page of the site -> the file outside docs/ that it comes from
LINK = re.compile(r"(?<=\]\()(?P<file>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"^```python\n# [\w: .]+\n", re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(?![$])", re.MULTILINE)
LANGUAGES = {".py": "python", ".sql": "sql", ".yaml": "yaml", ".json": "json", "": "docker"}
OUTSIDE = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//|<link[^>]+stylesheet[^>]+href=\"?(?:https?:)?//"
)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that stand outside docs/, and every file that one of the pages links to."""
    left = [Path(file.abs_src_path) for file in files if file.src_uri.endswith(".md")]
    left += [ROOT / source for source in PAGES if (ROOT / source).exists()]
    seen: set[Path] = set()
    for source in left:
        if source in seen:
            continue
        seen.add(source)
        if ROOT / "docs" not in source.parents:
            SOURCES[place(source)] = source
            files.append(File.generated(config, place(source), content=text_of(source)))
        if source.suffix == ".md":
            left += [target for target in targets(source) if ROOT / "docs" not in target.parents]
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead links to where their files appear on the site, and fill the reference of the command line.

    The first line of a block of Python, by which its test finds it, is left out. Commands without a prompt are no output.
    """
    markdown = CONSOLE.sub("```bash\n", NAME.sub("```python\n", markdown))
    source = SOURCES.get(page.file.src_uri) or ROOT / "docs" / page.file.src_uri
    if page.file.src_uri == "reference/cli.md":
        return re.sub(r"(?<=<!-- commands -->\n)(?=<!-- /commands -->)", lambda _: commands(), markdown)
    if not source.exists():
        return markdown

    def led(match: re.Match[str]) -> str:
        target = file_at((source.parent / match["file"]).resolve())
        if target is None:
            return match[0]
        return os.path.relpath(place(target), Path(page.file.src_uri).parent) + (match["anchor"] or "")

    parts = re.split(f"({FENCE.pattern})", markdown, flags=FENCE.flags)
    return "".join(part if FENCE.fullmatch(part) else LINK.sub(led, part) for part in parts)


def on_post_build(*, config: Any) -> None:
    """Refuse a site that would ask another host for anything."""
    for file in Path(config.site_dir).rglob("*.html"):
        if found := OUTSIDE.search(file.read_text("utf-8")):
            raise PluginError(f"{file.name} asks another host: {found[0]}")


def targets(source: Path) -> list[Path]:
    links = LINK.finditer(FENCE.sub("", source.read_text("utf-8")))
    found = [file_at((source.parent / match["file"]).resolve()) for match in links]
    return [file for file in found if file is not None]


def file_at(path: Path) -> Path | None:
    """Find the file that a link means: of a folder its README, if it has one; None if the link leads nowhere of ours."""
    file = path / "README.md" if (path / "README.md").exists() else path
    return file if file.exists() and ROOT in file.parents else None


def place(source: Path) -> str:
    """Name the page on which a file of the repository appears."""
    name = source.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGES.get(name) or f"files/{name.replace('.', '_')}.md"


def text_of(source: Path) -> str:
    """Give a page its text: a page's own, that of a file as a block of code, of a folder that of all its files."""
    if source.suffix == ".md":
        return source.read_text("utf-8")
    name, files = source.relative_to(ROOT), sorted(source.iterdir()) if source.is_dir() else [source]
    blocks = [f"````{LANGUAGES.get(file.suffix, '')}\n{file.read_text('utf-8')}\n````\n" for file in files]
    if len(files) > 1:
        blocks = [f"## {file.name}\n\n{text}" for file, text in zip(files, blocks, strict=True)]
    return "\n".join([f"# {name}\n", *blocks])


def commands() -> str:
    """Write the reference of the command line, from the commands themselves."""
    above, lines = click.Context(main, info_name="holdfast"), [""]
    for section, names in COMMANDS.items():
        lines += [f"## {section}", ""]
        for name in names:
            command = main.get_command(above, name)
            if command is not None and not command.hidden:
                lines += command_lines(command, click.Context(command, info_name=name, parent=above))
    return "\n".join(lines)


def command_lines(command: click.Command, context: click.Context) -> list[str]:
    help_text = inspect.cleandoc(re.sub(r"(?m)^\s*\x08\n", "", command.help or ""))
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    lines = [f"### {context.info_name}", "", f"```console\n$ {usage}\n```", "", help_text, ""]
    options = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [(cell(record[0]), cell(record[1], code=False)) for record in options if record is not None and record[1]]
    if rows:
        lines += ["| option | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows), ""]
    return lines


def cell(text: str, *, code: bool = True) -> str:
    """Write a cell of a table. In code a bar needs no backslash, and would show it."""
    plain = " ".join(text.split())
    return f"`{plain}`" if code else plain.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
