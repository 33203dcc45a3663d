"""Pages of the documentation: their text, their headings, and their code blocks as modules."""

import functools
import itertools
import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n# (?P<name>[\w:. ]+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```(?P<language>[a-z]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_count = itertools.count()


def page(name: str) -> str:
    """The text of a page, or of all pages of a folder."""
    path = ROOT / name
    return (
        "\n".join(file.read_text("utf-8") for file in sorted(path.glob("*.md"))) if path.is_dir() else path.read_text()
    )


def between(text: str, mark: str) -> str:
    return text.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->", maxsplit=1)[0]


def block(name_of_page: str, name: str) -> str:
    """The code block whose first line is `# name`."""
    found = [match["code"] for match in BLOCK.finditer(page(name_of_page)) if match["name"] == name]
    assert len(found) == 1, f"{name_of_page} has {len(found)} blocks named {name!r}"
    return found[0]


def module(page: str, name: str) -> types.ModuleType:
    """The block as a freshly imported module."""
    made = types.ModuleType(f"docs_{next(_count)}")
    sys.modules[made.__name__] = made  # annotations are resolved by module name
    code = compile(block(page, name), f"{page}:{name}", "exec", dont_inherit=True)
    exec(code, made.__dict__)
    return made


def pages() -> list[Path]:
    """Every page that people read, wherever it stands."""
    folders = ["docs", "examples", "deploy", "benchmarks"]
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), ROOT / "tests" / "README.md", *inside])


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """What a link can point to behind `#`: the headings of a page, in the spelling that browsers get."""
    text = FENCE.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings]
    slugs = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in plain]
    return frozenset(re.sub(r"[-\s]+", "-", slug) for slug in slugs)
