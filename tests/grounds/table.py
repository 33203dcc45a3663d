"""The table in docs/growing.md of what becomes what on Temporal: `python -m tests.grounds.table` writes it.

Each row names what shows it, a scene of `scenes.py` or a test of this folder, and each scene stands in a row. So a row cannot be
there that nothing shows, and a scene cannot be added without a word about it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.grounds.scenes import SCENES

PAGE: Final = Path(__file__).parents[2] / "docs" / "growing.md"
BEGIN: Final = "<!-- made by tests/grounds/table.py -->"
END: Final = "<!-- end -->"

# What Holdfast has, what that is on Temporal, and what shows it.
ROWS: Final[list[tuple[str, str, str]]] = [
    (
        "run",
        "workflow `holdfast.run`, its id is the run's; task queue `holdfast:AGENT[@VERSION][/QUEUE]`",
        "sequential",
    ),
    ("step", "activity; its id is the key of the call and the digest of its input", "sequential parallel"),
    ("`gather`, task groups, races, timeouts, queues", "the engine's own, in the order of outcomes", "races queues"),
    ("attempt, `retry`, `RetryAfter`, `Permanent`, `raises=`", "an activity each, and a timer between them", "retries"),
    (
        "`in_doubt`",
        "a body whose worker is gone comes back as a crash, and the policy decides; for `'retry'` the server runs it again",
        "in_doubt test_a_run_goes_on_when_its_worker_and_the_server_are_killed",
    ),
    (
        "methods, `Local`, context variables in bodies; Pydantic AI",
        "an activity on a task queue of the process that has the run, or of the next one",
        "at_home test_an_agent_of_pydantic_ai_runs_as_it_is",
    ),
    ("`sleep`, `now`, timeouts, reminders, expiry", "timers, and the time of the history", "sleeps approvals"),
    (
        "messages, ends of children, pause, resume, cancel",
        "signal `holdfast.arrive`",
        "messages paused tidies cancelled_family",
    ),
    (
        "decisions: edits, quorum, answers",
        "update `holdfast.decide`, behind a signal if the value is large; open questions are in the memo",
        "approvals",
    ),
    (
        "child agent, `spawn`",
        "child workflow that outlives its parent's executions, and tells it by a signal",
        "family",
    ),
    ("checkpoints", "the next execution begins with what they carry", "loops"),
    ("`patched`", "a patch of Temporal's", "patched"),
    ("`scope`, `note`, `uuid4`, labels", "the engine's own", "tells"),
    ("journal", "in the history: with the next activity, or in the memo `HoldfastJournal`", "tells"),
    (
        "state, what it waits for, labels, agent, family, open questions",
        "memo, and search attributes: `HoldfastStatus`, `HoldfastWaitsFor`, `HoldfastLabels`, `HoldfastQuestions` and others",
        "test_the_api_shows_runs_and_decides",
    ),
    ("`retry` of a failed run", "a new execution of the same id, from the journal without what failed", "retried"),
    (
        "long runs",
        "the next execution begins with the journal (continue-as-new); agents need no checkpoint for it",
        "test_an_agent_without_a_checkpoint_outlives_its_history",
    ),
    ("large values", "in a folder, by their digests (`?blobs=`)", "test_a_large_value_lies_beside_the_cluster"),
    (
        "bundles: a waiting run comes, and leaves",
        "updates `holdfast.tell` and `holdfast.leave`; workflows that nobody carries out remember it",
        "test_a_waiting_run_goes_to_temporal_and_on_to_postgresql",
    ),
    (
        "agents that workers publish",
        "a workflow `holdfast.agent` for each, which nobody carries out; its memo has the schema",
        "test_the_command_line_works_over_a_cluster",
    ),
    ("streams", "in the database beside the cluster (`?side=`)", "streams"),
    ("conversations", "in that database; whoever is next in line hears by a signal", "conversations in_line"),
    ("`rate=` of steps", "counted in that database", "rates"),
    (
        "`budget=`",
        "budgets, sums and questions lie in that database; an answer is an update of a run that waits, and a signal to all others",
        "budget family_budget family_refused budget_outlives budget_withdrawn budget_retried budget_resumed",
    ),
    (
        "the feed of all runs",
        "journals are copied into that database: by activity `holdfast.keep` when a run waits or ends, and beside bodies",
        "test_the_feed_has_each_event_of_all_runs_once test_the_feed_goes_on_over_executions",
    ),
    (
        "tokens, the audit",
        "in that database; a row of the audit is written behind the deed",
        "test_tokens_and_the_audit_lie_beside_the_cluster",
    ),
    (
        "`transaction=`, forks, prune, and what spans runs besides",
        "`Unsupported`",
        "test_what_spans_runs_is_refused_where_it_is_declared test_what_a_cluster_lacks_says_so",
    ),
]


def shown() -> set[str]:
    """The names of all scenes, and of all tests of this folder."""
    tests = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    return {
        *SCENES,
        *(name for text in tests for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)),
    }


def table() -> str:
    lines = ["| Holdfast | Temporal | shown by |", "|---|---|---|"]
    for what, becomes, names in ROWS:
        by = ", ".join(f"`{name}`" for name in names.split() if name in SCENES) or "a test"
        lines.append(f"| {what} | {becomes} | {by} |")
    return "\n".join(lines)


def page() -> str:
    """The page with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
