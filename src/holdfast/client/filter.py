"""Filters of runs: which ones `hf.runs`, `hf.count_runs`, `hf.prune` and the verbs for many runs are about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.declare import Agent
from holdfast.store.runs import Filter
from holdfast.words.durations import Duration, past_ms
from holdfast.words.model import checked_statuses


def filter_of(
    now: int,
    status: str | Iterable[str] | None = None,
    agent: str | Agent[..., Any] | None = None,
    labels: Mapping[str, str] | None = None,
    since: Duration | datetime | None = None,
    until: Duration | datetime | None = None,
    search: str | None = None,
) -> Filter:
    """Check a filter that a caller gave, and write it as the store takes it."""
    return {
        "statuses": None if status is None else checked_statuses(status),
        "agent": agent.name if isinstance(agent, Agent) else agent,
        "labels": dict(labels) if labels else None,
        "since": None if since is None else past_ms(since, now),
        "until": None if until is None else past_ms(until, now),
        "search": search or None,
    }
