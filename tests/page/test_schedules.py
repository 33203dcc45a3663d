"""The view of schedules: what is declared of one is seen there."""

import pytest

pytestmark = pytest.mark.slow


def test_a_schedule_shows_what_is_declared_beside_its_times(stage, visit):
    options = ["--overlap", "queue", "--catch-up", "all", "--jitter", "5m"]
    stage.run("schedules", "swept", "--agent", "janitor", "--every", "6h", *options)
    try:
        page = visit("ana").goto("/schedules", "tr[data-row=swept]")
        told = page.locator("tr[data-row=swept]").inner_text()
        for each in ("every 6h", "overlap: queue", "catch up: all", "jitter: 5 min"):
            assert each in told, told
        assert "overlap" not in page.locator("tr[data-row=janitor]").inner_text()
    finally:
        stage.run("schedules", "swept", "--delete")
