"""Features that some grounds lack, by the names under which commands, the server and the page ask for them."""

from __future__ import annotations

from typing import Literal

Feature = Literal[
    "announcements", "audit", "backup", "budgets", "conversations", "deletion", "feed", "fleet", "forks", "notifications",
    "schedules", "tokens", "triggers",
]  # fmt: skip
