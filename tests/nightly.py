"""Scenes that `make nightly` runs and `make test` does not: each shows again, more widely, what another one shows by day."""

from __future__ import annotations

from typing import Final

import pytest

# By the beginning of their names. What stays by day of the same mechanism stands beside it.
LONG: Final = (
    "tests/agents/test_control.py::test_cancelling_is_the_same_with_a_crash_at_every_point[above]",  # [middle]
    "tests/agents/test_control.py::test_cancelling_is_the_same_with_a_crash_at_every_point[beside]",
    "tests/agents/test_voting.py::test_a_crash_between_each_two_actions",  # the rest of its file, tests/processes
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[1]",  # [0]
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[2]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[cancellation]",  # [parallel]
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[nested]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[queues]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[races]",
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[delegated]",  # [approved]
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[denied]",
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[edited]",
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[expired]",
    "tests/examples/test_research.py::test_killed_everywhere_and_deployed_then_it_ends_right_and_pays_once",  # ..._killed.py
    "tests/examples/test_research_readme.py",  # test_onboarding_readme.py
    "tests/examples/test_support.py::test_steered_with_a_crash_everywhere",
    "tests/examples/test_support_readme.py",
    "tests/fleet/test_sixty.py",  # tests/fleet, with few workers
    "tests/fleet/test_suspects.py::test_one_of_many_that_ends_its_process_is_found[postgres-60]",  # [sqlite-60]
    "tests/integrations/test_pydantic_ai_lives.py::test_a_dropped_run_ends_right_and_pays_no_recorded_request_again[three_agents]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[child]",  # [messages], [notes], doubts
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[checkpoints]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[parallel]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[retry]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[sleep]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[timeout]",
    "tests/processes/test_random_kills.py::test_killed_at_random[cancellation]",  # [races]
    "tests/processes/test_random_kills.py::test_killed_at_random[nested]",
    "tests/processes/test_random_kills.py::test_killed_at_random[parallel]",
    "tests/processes/test_random_kills.py::test_killed_at_random[queues]",
    "tests/processes/test_transactions.py::test_killed_at_every_statement[postgres]",  # [sqlite]
    "tests/store/test_postgres_trouble.py::test_a_slow_way_to_the_database_makes_no_clock_fast[back]",  # [there]
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, before what is marked is left out. Whoever names one on the command line gets it by `-m nightly`."""
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.nightly)
