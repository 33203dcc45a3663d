"""The example's parts for its tests: its agents as a module, and its office open in this process."""

import importlib.util
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "onboarding"


def part(name):
    """A file of the example as a module; under a name of its own, for others have an agents.py too."""
    full = f"onboarding_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, EXAMPLE / f"{name}.py")
        sys.modules[full] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[full]


@contextmanager
def open_office(folder, mail_s=0.0):
    """The real services, with empty books."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with part("services").Office(folder / "office.db", mail_s).open() as office:
        yield office
