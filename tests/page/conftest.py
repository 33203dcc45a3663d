"""What the tests of the page share: a browser, and a scene that is made once and left as it was found."""

import pytest
from tests.page.browser import DESK, PHONE, Visitor, chromium
from tests.page.scene import scene

# Each visit costs a browser two seconds of a processor. By day it comes once to each view and to all that is decided; these
# details are looked at in the night.
AT_NIGHT = {
    "test_a_delivery_that_failed_says_why_and_is_tried_again_or_let_be",
    "test_a_file_that_is_downloaded_has_a_name_of_ours",
    "test_a_filter_shows_what_fits_and_stands_in_the_address",
    "test_a_journal_is_read_once_while_nothing_is_new",
    "test_a_link_that_is_not_good_is_told_and_what_to_do",
    "test_a_long_list_keeps_few_rows_in_the_page",
    "test_a_new_run_waits_behind_a_button_and_no_row_moves",
    "test_a_run_on_a_phone_is_strips_and_a_sheet",
    "test_a_run_that_is_retried_by_somebody_else_is_followed_on",
    "test_a_server_that_dies_stops_the_clock_and_one_that_comes_back_is_caught_up_with",
    "test_a_token_that_may_only_read_is_offered_nothing_else",
    "test_all_of_a_long_line_must_be_on_the_page_before_one_can_agree",
    "test_all_of_a_text_that_is_decided_is_shown",
    "test_characters_that_cannot_be_seen_are_shown_where_they_stand",
    "test_doubt_is_resolved_by_what_a_person_knows",
    "test_keys_choose_fold_and_move",
    "test_many_runs_are_cancelled_together_and_those_that_refuse_say_why",
    "test_no_text_does_anything_on_a_phone",
    "test_of_a_fork_it_is_said_which_results_it_has_and_which_it_paid_for_again",
    "test_offline_nothing_is_decided_and_nothing_is_queued",
    "test_one_field_finds_runs_questions_and_agents",
    "test_pausing_and_resuming_is_one_press_each",
    "test_questions_are_followed_from_now_on",
    "test_rows_are_chosen_by_keys_and_the_bar_offers_what_fits",
    "test_signing_out_ends_the_session_everywhere",
    "test_what_an_agent_calls_cut_is_shown",
    "test_what_cannot_be_seen_in_a_field_is_told_under_it",
    "test_what_matters_is_chosen_first",
    "test_what_needs_a_person_is_counted_once_for_all",
    "test_what_the_form_starts_is_a_command_that_starts_the_same",
    "test_what_was_passed_on_is_for_who_got_it",
    "test_who_agrees_twice_is_told_that_and_what_is_missing",
}


def pytest_collection_modifyitems(config, items):
    here = [item for item in items if item.nodeid.startswith("tests/page/")]
    for item in here:
        if item.originalname in AT_NIGHT:
            item.add_marker(pytest.mark.nightly)
    gone = AT_NIGHT - {item.originalname for item in here}
    if gone and config.args == config.getini("testpaths"):
        raise pytest.UsageError(f"AT_NIGHT names what is not there: {', '.join(sorted(gone))}")


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """A store with a run in every state, workers that carry them, and a server."""
    with scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def browser():
    """A browser for a module: its driver has a loop in this thread, in which tests of other modules run theirs."""
    with chromium() as made:
        yield made


@pytest.fixture
def visit(stage, browser):
    """Somebody who visits: `visit("ana")`, `visit("bo", phone=True)`, `visit(None)` for a stranger."""
    here = []

    def come(name, *, phone=False, dark=False, size=None):
        visitor = Visitor(
            browser, stage.address, stage.tokens.get(name), size=size or (PHONE if phone else DESK), dark=dark
        )
        here.append(visitor)
        return visitor

    yield come
    for each in here:
        each.leave()
