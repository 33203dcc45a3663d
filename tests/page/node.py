"""Node, which runs the tests of the page's own scripts where they need no browser."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "src" / "holdfast" / "http" / "static"


def run(*args, text=None):
    """Run node with modules as browsers have them; the output of a program that failed is in the error."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        missing = "node is not installed, so the scripts of the page are not tested: apt-get install nodejs"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    major = int(
        subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout[1:].split(".")[0]
    )
    modules = ["--experimental-default-type=module"] if major < 22 else []  # later ones see it by themselves
    return subprocess.run(
        [node, *modules, *args], input=text, capture_output=True, text=True, check=False, timeout=120, cwd=HERE
    )


def said(questions):
    """Ask the page for its words."""
    answer = run("words.mjs", text=json.dumps(questions))
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)
