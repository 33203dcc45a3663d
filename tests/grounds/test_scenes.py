"""The same agents on every ground: equal results, bodies and journals, but for the order of what happened at the same time."""

import asyncio
from urllib.parse import quote

import pytest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds.scenes import SCENES, play
from tests.grounds.test_kills import replays
from tests.temporal import cluster, own_cluster, temporal_url  # noqa: F401 - fixtures

# Whether a run that is asked to pause is in memory, and so is told, is its worker's own affair, as is whether a turn is waited for.
_OF_WORKERS = ("run.pausing", "step.held")


def told(played):
    journal = {what: n for what, n in played["journal"].items() if what.split()[0] not in _OF_WORKERS}
    return {**played, "journal": journal}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_is_the_same_on_temporal(name, temporal_url, tmp_path, request):  # noqa: F811
    if SCENES[name].side:
        temporal_url += f"&side={quote(request.getfixturevalue('postgres_url'), safe='')}"
    there = await play(f"sqlite:{tmp_path}/runs.db", name)
    assert told(await play(temporal_url, name, lease_ttl_s=3.0)) == told(there)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_the_history_of_every_scene_replays_and_none_needs_a_cache(own_cluster, postgres_url, tmp_path):  # noqa: F811
    """Played with a cache of one workflow, so that most workflow tasks replay; then replayed under three hash seeds."""
    for name in SCENES:
        there = await play(f"sqlite:{tmp_path}/{name}.db", name)
        url = own_cluster.url(queue=name, side=quote(postgres_url, safe=""))
        assert told(await play(url, name, lease_ttl_s=3.0, concurrency=1)) == told(there), name
    await asyncio.sleep(1.5)  # the index of the cluster is a moment behind
    await asyncio.to_thread(replays, own_cluster.url(), ["0", "1", "77"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_is_the_same_on_postgresql(name, postgres_url, tmp_path):
    there = await play(f"sqlite:{tmp_path}/runs.db", name)
    assert told(await play(postgres_url, name)) == told(there)


@pytest.mark.slow
@pytest.mark.by_day(
    "approvals", "budget", "cancelled_family", "conversations", "family", "in_doubt", "in_line", "messages", "streams"
)
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_is_the_same_on_two_cells(name, cells_url, tmp_path):  # noqa: F811
    there = await play(f"sqlite:{tmp_path}/runs.db", name)
    assert told(await play(cells_url, name)) == told(there)
