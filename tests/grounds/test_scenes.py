"""The same agents on every ground: equal results, bodies and journals, but for the order of what happened at the same time."""

import pytest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds.scenes import SCENES, play
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

# Whether a run that is asked to pause is in memory, and so is told, is its worker's own affair.
_OF_WORKERS = ("run.pausing",)


def told(played):
    journal = {what: n for what, n in played["journal"].items() if what.strip() not in _OF_WORKERS}
    return {**played, "journal": journal}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_is_the_same_on_temporal(name, temporal_url, tmp_path):  # noqa: F811
    there = await play(f"sqlite:{tmp_path}/runs.db", name)
    assert told(await play(temporal_url, name, lease_ttl_s=3.0)) == told(there)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_is_the_same_on_postgresql(name, postgres_url, tmp_path):
    there = await play(f"sqlite:{tmp_path}/runs.db", name)
    assert told(await play(postgres_url, name)) == told(there)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_is_the_same_on_two_cells(name, cells_url, tmp_path):  # noqa: F811
    there = await play(f"sqlite:{tmp_path}/runs.db", name)
    assert told(await play(cells_url, name)) == told(there)
