"""The table of what becomes what on Temporal says what the scenes and tests of this folder show, and nothing else."""

import importlib.util

from tests.grounds.scenes import SCENES
from tests.grounds.table import PAGE, ROWS, page, shown


def test_each_row_is_shown_by_something_that_is_there():
    named = {name for _, _, names in ROWS for name in names.split()}
    assert named - shown() == set()


def test_each_scene_stands_in_a_row():
    named = {name for _, _, names in ROWS for name in names.split()}
    assert SCENES.keys() - named == set()


def test_the_costs_on_the_page_follow_from_what_was_measured():
    """The cores that it tells are those of the model; `python benchmarks/grounds.py` measures, and holds the page against that."""
    spec = importlib.util.spec_from_file_location("grounds", PAGE.parents[1] / "benchmarks" / "grounds.py")
    grounds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(grounds)
    costs = grounds.written()
    assert list(costs) == ["SQLite", "PostgreSQL", "two cells", "Temporal"]
    assert PAGE.read_text() == grounds.page(costs)
    assert (
        grounds.cores(86_400, 1.0) == 0.01
    )  # a step a second, of a millisecond, five times that at the peak, half idle


def test_the_page_is_current():
    """If not: `python -m tests.grounds.table`."""
    assert PAGE.read_text() == page()
