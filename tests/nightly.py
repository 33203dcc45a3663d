"""Scenes that `make nightly` runs and `make test` does not: each shows again, more widely, what another one shows by day."""

from __future__ import annotations

from typing import Final

import pytest

# By the beginning of their names. What stays by day of the same mechanism stands beside it.
LONG: Final = (
    "tests/agents/test_doubts_answered.py::test_no_effect_is_lost_or_done_twice[fail]",  # [ask], [probe]
    "tests/agents/test_doubts_answered.py::test_no_effect_is_lost_or_done_twice[retry]",
    "tests/agents/test_control.py::test_cancelling_is_the_same_with_a_crash_at_every_point[above]",  # [middle]
    "tests/agents/test_control.py::test_cancelling_is_the_same_with_a_crash_at_every_point[beside]",
    "tests/agents/test_families.py::test_a_child_that_is_started_while_its_parent_is_told_is_not_left_behind[1]",  # [0]
    "tests/agents/test_families.py::test_a_child_that_is_started_while_its_parent_is_told_is_not_left_behind[2]",
    "tests/agents/test_families.py::test_a_child_that_is_started_while_its_parent_is_told_is_not_left_behind[3]",
    "tests/agents/test_approvals_votes.py::test_a_crash_between_each_two_actions",  # the rest of its file, tests/processes
    "tests/processes/test_conversations.py::test_a_crash_at_every_commit[kept]",  # [parked]
    "tests/docs/test_operations.py::test_a_backup_under_load_goes_on_with_the_same_keys[copied_database]",  # [copied_file]
    "tests/docs/test_operations.py::test_a_backup_under_load_goes_on_with_the_same_keys[copied_schema]",
    "tests/engine/test_closing.py::test_a_hostile_agent_leaves[crash-",  # [park-...] of each, and those of BY_DAY
    "tests/engine/test_closing.py::test_a_hostile_agent_leaves[lost-",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[1",  # [0], [2]
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[3]",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[4]",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[5]",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[6]",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[7]",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[8]",
    "tests/engine/test_gate.py::test_results_on_their_ways_arrive_in_one_order[9]",
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[1]",  # [0]
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[2]",
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[4]",  # [0], [3], [5]
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[6]",
    "tests/engine/test_programs.py::test_a_random_program_goes_on_as_if_nothing_had_happened[7]",
    "tests/engine/test_programs_killed.py::test_random_programs_with_families_go_on_over_kills_pauses_and_cancels[postgres]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[cancellation]",  # [mixed]
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[locks]",  # [mixed]
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[mailing]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[nested]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[parallel]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[queues]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[races]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[ticking]",
    "tests/engine/test_schedules.py::test_a_dropped_run_goes_on_as_if_nothing_had_happened[waiting]",
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[approved]",  # ..._killed.py
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[delegated]",  # ..._killed.py
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[denied]",
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[edited]",
    "tests/examples/test_onboarding.py::test_killed_everywhere_it_ends_right_with_each_effect_once[expired]",
    "tests/examples/test_research.py::test_killed_everywhere_and_deployed_then_it_ends_right_and_pays_once",  # ..._killed.py
    "tests/examples/test_research_readme.py",  # test_onboarding_readme.py
    "tests/examples/test_support.py::test_steered_with_a_crash_everywhere",
    "tests/examples/test_support_readme.py",
    "tests/processes/test_control.py::test_a_run_that_does_not_stop_is_ended[postgres-True-",  # [sqlite-True-], [postgres-False-]
    "tests/processes/test_control.py::test_a_run_that_does_not_stop_is_ended[sqlite-False-",
    "tests/processes/test_hangs.py::test_a_hog_is_named_and_nobody_loses_a_lease[postgres]",  # [sqlite]
    "tests/processes/test_claims_sixty.py",  # test_claims.py, with few workers
    "tests/processes/test_suspects.py::test_one_of_many_that_ends_its_process_is_found[postgres-60]",  # [sqlite-60]
    "tests/processes/test_suspects.py::test_two_hundred_runs_whose_worker_was_killed_twice[postgres]",  # [sqlite]
    "tests/processes/test_versions.py::test_patched_in_a_fleet[sqlite]",  # [postgres]
    "tests/integrations/test_pydantic_ai_crashes.py::test_a_dropped_run_ends_right_and_pays_no_recorded_request_again[three_agents]",
    "tests/processes/test_approvals.py::test_killed_between_each_two_actions[postgres-delegated]",  # [sqlite-...]
    "tests/processes/test_approvals.py::test_killed_between_each_two_actions[postgres-denied]",
    "tests/processes/test_approvals.py::test_killed_between_each_two_actions[postgres-edited]",
    "tests/processes/test_approvals.py::test_killed_between_each_two_actions[postgres-expired]",
    "tests/processes/test_approvals.py::test_killed_between_each_two_actions[postgres-two for admins]",
    "tests/processes/test_backup.py::test_a_backup_is_put_into_another_store_and_goes_on_there_when_it_is_told[postgres-postgres]",
    "tests/processes/test_backup.py::test_a_backup_is_put_into_another_store_and_goes_on_there_when_it_is_told[sqlite-sqlite]",
    "tests/processes/test_backup.py::test_from_the_command_line[postgres-postgres]",  # [postgres-sqlite], [sqlite-postgres]
    "tests/processes/test_backup.py::test_from_the_command_line[sqlite-sqlite]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit[child-kept]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit[messages-kept]",  # [...-parked] of each
    "tests/processes/test_crash_points.py::test_killed_at_every_commit[sleep-kept]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit[timeout-kept]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[checkpoints]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[child]",  # [messages], [notes], doubts
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[doubt_fail]",  # [messages], [doubt_ask]
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[doubt_probe]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[doubt_retry]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[notes]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[parallel]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[retry]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[sequential]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[sleep]",
    "tests/processes/test_crash_points.py::test_killed_at_every_commit_on_postgres[timeout]",
    "tests/processes/test_random_kills.py::test_killed_at_random[cancellation]",  # [mixed]
    "tests/processes/test_random_kills.py::test_killed_at_random[locks]",
    "tests/processes/test_random_kills.py::test_killed_at_random[mailing]",
    "tests/processes/test_random_kills.py::test_killed_at_random[nested]",
    "tests/processes/test_random_kills.py::test_killed_at_random[parallel]",
    "tests/processes/test_random_kills.py::test_killed_at_random[queues]",
    "tests/processes/test_random_kills.py::test_killed_at_random[races]",
    "tests/processes/test_random_kills.py::test_killed_at_random[ticking]",
    "tests/processes/test_random_kills.py::test_killed_at_random[waiting]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[checkpoints-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[child-kept]",  # [child-parked], [messages-kept], a doubt
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[doubt_fail-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[doubt_probe-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[doubt_retry-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[messages-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[notes-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[parallel-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[retry-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[sequential-parked]",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[sleep-",
    "tests/processes/test_shutdown.py::test_closed_at_every_commit[timeout-",
    "tests/processes/test_streams.py::test_a_reader_sees_every_token_once_up_to_the_mark_and_then_the_continuation[postgres-True]",
    "tests/processes/test_streams.py::test_a_reader_sees_every_token_once_up_to_the_mark_and_then_the_continuation[sqlite-False]",
    "tests/processes/test_transactions.py::test_killed_at_every_statement[postgres]",  # [sqlite]
    "tests/processes/test_transactions.py::test_leases_outlive_transactions[postgres]",  # [sqlite]
    "tests/security/test_decisions.py::test_two_people_and_an_attacker[postgres-10]",  # [sqlite-50]
    "tests/security/test_lists.py::test_so_it_is_on_postgres",  # the rest of its file
    "tests/store/test_limits.py::test_a_rate_gives_all_that_it_declares_and_never_more[postgres-1000-1000]",  # [sqlite-...]
    "tests/store/test_limits.py::test_a_rate_gives_all_that_it_declares_and_never_more[postgres-3-3600000]",
    "tests/store/test_limits.py::test_a_rate_gives_all_that_it_declares_and_never_more[postgres-500-60000]",
    "tests/store/test_limits.py::test_a_rate_gives_all_that_it_declares_and_never_more[postgres-60-60000]",
    "tests/store/test_postgres_trouble.py::test_a_slow_way_to_the_database_makes_no_clock_fast[back]",  # [there]
)
BY_DAY: Final = (  # of these, what stays
    "tests/engine/test_closing.py::test_a_hostile_agent_leaves[crash-has_tasks_that_ignore_cancellation]",
    "tests/engine/test_closing.py::test_a_hostile_agent_leaves[crash-swallows_everything]",
    "tests/engine/test_closing.py::test_a_hostile_agent_leaves[lost-spins_when_interrupted]",
    "tests/engine/test_closing.py::test_a_hostile_agent_leaves[lost-swallows_around_every_verb]",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, before what is marked is left out. Whoever names one on the command line gets it by `-m nightly`."""
    for item in items:
        if item.nodeid.startswith(LONG) and item.nodeid not in BY_DAY:
            item.add_marker(pytest.mark.nightly)
