"""Code blocks of the documentation, as modules."""

import itertools
import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n# (?P<name>[\w:. ]+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_count = itertools.count()


def block(page: str, name: str) -> str:
    """The code block whose first line is `# name`."""
    found = [match["code"] for match in BLOCK.finditer((ROOT / page).read_text()) if match["name"] == name]
    assert len(found) == 1, f"{page} has {len(found)} blocks named {name!r}"
    return found[0]


def module(page: str, name: str) -> types.ModuleType:
    """The block as a freshly imported module."""
    made = types.ModuleType(f"docs_{next(_count)}")
    sys.modules[made.__name__] = made  # annotations are resolved by module name
    code = compile(block(page, name), f"{page}:{name}", "exec", dont_inherit=True)
    exec(code, made.__dict__)
    return made
