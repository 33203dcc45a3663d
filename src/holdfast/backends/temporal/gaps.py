"""Gaps: what a cluster does not have, why, and what to do instead; one table for all callers.

The store refuses the operations of a gap with its words. Commands, the server and the page ask the store what it lacks, and offer
nothing of that. A gap that a database beside the cluster (`?side=`) closes is none where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.words.features import Feature

_BESIDE: Final = "Name a database that stands beside it in its URL: ?side=postgresql://..."
_OWN: Final = "or use a database of Holdfast's own (sqlite: or postgresql://)"

# Why a run is paused that uses what it has not, and what then.
_NEEDS: Final = "which needs a database of Holdfast's own (sqlite: or postgresql://), and it is on a Temporal cluster"
_CHANGE: Final = "Change the agent and resume the run, or cancel it"
LACKS_STORE: Final = f"{_NEEDS}. Nothing of that was done. {_CHANGE}"
LACKS_START: Final = (
    f"{_NEEDS}. Nothing of that was done. It can lie in one beside the cluster (?side=), for runs that are started with it. "
    f"{_CHANGE}"
)
LACKS_SIDE: Final = (
    f"{_NEEDS}. Nothing of that was done. It can lie in one beside the cluster: start the workers with ?side=postgresql://... in "
    "their URL, and resume the run; the body of the step runs again then"
)


@dataclass(frozen=True, slots=True)
class Gap:
    """A feature that a cluster lacks: what there is none of, what to do instead, and the operations of a store that are refused."""

    what: str
    instead: str
    operations: tuple[str, ...] = ()

    def told(self, url: str) -> str:
        """Say it of a cluster."""
        return f"{url!r} is a Temporal cluster, which has no {self.what}. {self.instead}"


GAPS: Final[dict[Feature, Gap]] = {
    "schedules": Gap(
        "schedules", f"Let cron call `holdfast start`, {_OWN}",
        ("make_schedule", "steer_schedule", "delete_schedule", "begin_at"),
    ),
    "triggers": Gap(
        "triggers", f"Start runs with hf.start() where messages come in, {_OWN}",
        ("receive", "delete_trigger", "replay_dead", "replay_delivery", "dismiss_delivery", "apply"),
    ),
    "notifications": Gap(
        "notifications", f"Follow hf.events() with ?side=, and tell whom you like, {_OWN}",
        ("make_notification", "steer_notification", "delete_notification", "tell"),
    ),
    "announcements": Gap("announcements", f"Send messages to runs by their ids (`holdfast send`), {_OWN}", ("announce",)),
    "forks": Gap(
        "forks", "A copy becomes a fork in a database: `holdfast export RUN`, then `holdfast import` with --db sqlite:FILE",
        ("fork",),
    ),
    "deletion": Gap(
        "deletion of runs", "It forgets what has ended after the retention of its namespace; `temporal workflow delete` is sooner",
        ("delete", "prune", "would_prune"),
    ),
    "backup": Gap(
        "backups of Holdfast's", "Copy the cluster's own database, and the one beside it by its own URL",
        ("backup", "restore", "activate", "_copy_out"),
    ),
    "fleet": Gap(
        "overview of the fleet", "Temporal's own pages show its workers; `holdfast doctor` says which agents are served",
        ("fleet_workers", "lost_workers"),
    ),
}  # fmt: skip
# What a database beside the cluster has: it is asked for these operations.
BESIDE: Final[dict[Feature, Gap]] = {
    "tokens": Gap("tokens", _BESIDE, (
        "add_token", "use_token", "revoke_tokens", "token", "tokens", "begin_session", "session", "use_once", "end_sessions_of",
        "end_session", "add_link", "link",
    )),
    "audit": Gap("audit", f"The histories of runs name who decided. {_BESIDE}", ("note_refusals", "erase_audit")),
    "feed": Gap("feed of all runs", _BESIDE, ("feed", "feed_lines")),
    "budgets": Gap("budgets", _BESIDE),
    "conversations": Gap(
        "conversations", _BESIDE, ("said", "conversations", "fill_conversation", "delete_conversation"),
    ),
}  # fmt: skip


def lacked(url: str, *, side: bool) -> dict[Feature, str]:
    """Say of each feature that is lacked why, and what to do instead."""
    return {feature: gap.told(url) for feature, gap in (GAPS if side else {**GAPS, **BESIDE}).items()}
