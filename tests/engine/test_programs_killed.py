"""A few random programs on each store; `make nightly` runs thousands."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.by_day("sqlite")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_random_programs_with_families_go_on_over_kills_pauses_and_cancels(store):
    arguments = ["-m", "tests.engine.programs_killed", "--programs", "15", "--seed", "7", "--store", store]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.endswith("all well\n")
