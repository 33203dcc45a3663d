"""A release: what `make dist` writes is whole, lists all parts, and installs with every hash checked."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import date
from pathlib import Path

import apsw
import pytest
from tests.deploy.files import ROOT
from tests.docs.pages import block

import holdfast

TOLD = "All about otters. The report was written 1 time.\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_types_and_sql_and_no_tests(wheel):
    """Everything that the package reads at run time is in it, and nothing that is not the package."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in names if ".dist-info/" not in name} == {
        name for name in sources if "__pycache__" not in name
    }
    assert "holdfast/py.typed" in names
    assert "holdfast/store/queries.sql" in names


def test_the_wheel_in_an_empty_environment_runs_the_example_of_the_readme(wheel, tmp_path):
    """Nothing of this folder is there but what the wheel has, beside the packages it needs."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "needed.pth").write_text(f"{Path(apsw.__file__).parents[1]}\n")
    (tmp_path / "approve.py").write_text(block("README.md", "readme: approve"))
    where = "import holdfast; print(holdfast.__file__)"
    for command, expected in ([["approve.py"], TOLD], [["-c", where], f"{site / 'holdfast' / '__init__.py'}\n"]):
        ran = subprocess.run(
            [venv / "bin" / "python", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (ran.stdout, ran.returncode) == (expected, 0), ran.stderr


def test_the_version_stands_in_one_place_and_has_a_dated_section():
    """The wheel's version is the package's, the changelog says what is new in it and when it came, and no page repeats it."""
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.search(
        rf"^## {re.escape(holdfast.__version__)} - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert found, "no dated section of this version in CHANGELOG.md"
    assert date.fromisoformat(found[1])
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if holdfast.__version__ in page.read_text()] == []


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_release_lists_its_parts_and_installs_by_hash(tmp_path):
    """The parts listed are those locked, with their hashes; a wheel with one other byte is refused, the real one runs."""
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", "dist", ".bench-*", "__pycache__", ".*_cache")
    )
    subprocess.run(["make", "dist"], cwd=tree, check=True, capture_output=True)
    dist = tree / "dist"
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        told, name = line.split()
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == told
    for kind in ("runtime", "fleet"):
        (pinned,) = dist.glob(f"*-{kind}.txt")
        locked = dict(re.findall(r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==(\S+)", pinned.read_text(), re.MULTILINE))
        (listed,) = dist.glob(f"*-{kind}.cdx.json")
        document = json.loads(listed.read_text())
        assert document["metadata"]["component"]["version"] == holdfast.__version__
        parts = document["components"]
        assert {part["name"]: part["version"] for part in parts} == locked
        assert all(part["externalReferences"][0]["hashes"] for part in parts)
    (pinned,) = dist.glob("*-runtime.txt")
    (wheel,) = dist.glob("*.whl")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--require-hashes", "--find-links", dist, "-r", pinned]
    whole = wheel.read_bytes()
    wheel.write_bytes(whole + b"\0")
    refused = subprocess.run(install, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert "DO NOT MATCH" in refused.stderr
    wheel.write_bytes(whole)
    subprocess.run(install, check=True, capture_output=True)
    said = subprocess.run(
        [python, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert wheel.name.split("-")[1] in said.stdout
    (tmp_path / "approve.py").write_text(block("README.md", "readme: approve"))
    ran = subprocess.run([python, "approve.py"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout == TOLD
