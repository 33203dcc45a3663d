"""A release: what `make dist` writes is whole, lists all parts, and installs with every hash checked."""

import hashlib
import json
import re
import shutil
import subprocess
import sys

import pytest
from tests.deploy.files import ROOT


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
        parts = json.loads(listed.read_text())["components"]
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
