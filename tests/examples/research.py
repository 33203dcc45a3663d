"""The research example's parts for its tests: its modules, and its site and model open in this process."""

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "research"
START = "/kelp-forests.html"


def part(name):
    """A file of the example as a module."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLE))


@contextmanager
def open_coast(**options):
    """The real site and the scripted model, which nobody has asked yet."""
    coast = part("coast")
    with coast.Site().open() as site, coast.scripted_model(site, **options) as model:
        yield site, model
