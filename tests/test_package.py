"""The package as installed: what it exports, how quickly it imports, what it is locked to."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import holdfast

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_import_takes_less_than_0_3_seconds():
    # Processor time, not the clock on the wall: the tests beside this one must not decide it.
    script = "import time; start = time.process_time(); import holdfast; print(time.process_time() - start)"
    times = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5)]
    assert min(times) < 0.3, times


def test_every_exported_name_exists():
    assert [name for name in holdfast.__all__ if not hasattr(holdfast, name)] == []


def test_no_name_is_exported_twice():
    assert len(holdfast.__all__) == len(set(holdfast.__all__))


@pytest.mark.parametrize("lock", ["runtime", "dev"])
def test_the_lock_satisfies_what_the_package_asks_for(lock):
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))
    wants = [Requirement(line) for line in PROJECT["dependencies"]]
    assert [str(want) for want in wants if not want.specifier.contains(pins.get(want.name, "0"))] == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("requirements/*.txt")), ids=lambda path: path.stem)
def test_every_locked_file_has_hashes_and_names_no_host(path):
    entries = re.findall(r"^[\w-]+==(?:.*\\\n)*.*", path.read_text("utf-8"), re.MULTILINE)
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry or "://" in entry] == []


def test_every_public_name_has_a_home():
    """Names that are imported when first used are those of `__all__`, and each is found where the table says."""
    import holdfast

    assert sorted(holdfast._HOME) == sorted(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert holdfast.testing.open is not None
