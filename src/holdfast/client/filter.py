"""Filters of runs: which ones lists, counts, `hf.prune` and the verbs for many runs are about, and where a page begins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, get_args

from holdfast.client.info import RunInfo
from holdfast.declare import Agent
from holdfast.errors import BadArguments
from holdfast.store.runs import Filter, Order
from holdfast.store.store import Store
from holdfast.values.text import is_whole, short
from holdfast.words.durations import Duration, past_ms
from holdfast.words.model import WaitsFor, checked_statuses

_ORDERS: Final = get_args(Order)
_WAITS: Final = get_args(WaitsFor)


class Which(TypedDict, total=False):
    """A choice of runs, as callers give it to `hf.runs` and `hf.run_counts`."""

    status: str | Iterable[str] | None
    agent: str | Agent[..., Any] | Iterable[str | Agent[..., Any]] | None
    labels: Mapping[str, str] | None
    since: Duration | datetime | None
    until: Duration | datetime | None
    search: str | None
    waits_for: str | Iterable[str] | None
    queue: str | Iterable[str] | None
    version: str | None
    root: bool | None
    stuck: bool | None
    needs: bool | None
    cost: float | None
    attempt: int | None


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


async def whole_filter(store: Store, which: Which, only: Mapping[str, str] | None = None) -> Filter:
    """Check a filter with all that lists can be filtered by; what depends on live workers is read. `only` is all that is there."""
    agent = which.get("agent")
    many = agent is not None and not isinstance(agent, str | Agent)
    found = filter_of(
        store.clock.now(), which.get("status"), None if many else agent,  # type: ignore[arg-type]
        which.get("labels"), which.get("since"), which.get("until"), which.get("search"),
    )  # fmt: skip
    if many:
        found["agents"] = [each.name if isinstance(each, Agent) else each for each in agent]  # type: ignore[union-attr]
    waits = _listed(which.get("waits_for"))
    for each in waits or ():
        if each not in _WAITS:
            raise BadArguments(f"{each!r} is nothing that a run waits for; there are: {', '.join(_WAITS)}")
    flags = {"root": which.get("root"), "stuck": which.get("stuck"), "needs": which.get("needs")}
    for name, flag in flags.items():
        if flag is not None and not isinstance(flag, bool):
            below = ". To list the runs that a run started, write parent=ID" if name == "root" else ""
            raise BadArguments(f"{name}={short(flag)}: this is a flag; give True, False or None{below}")
    attempt, cost = which.get("attempt"), which.get("cost")
    if attempt is not None and not is_whole(attempt, 1):
        raise BadArguments(f"attempt={short(attempt)}: give a whole number from 1 on")
    if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf):
        raise BadArguments(f"cost={short(cost)}: give US dollars, from 0 on")
    found |= {
        "waits_for": waits, "queues": _listed(which.get("queue")), "version": which.get("version"),
        "top": flags["root"], "stuck": flags["stuck"], "needs": flags["needs"], "attempt": attempt,
        "usd": round(cost * 1_000_000_000) if cost else None,  # nothing spent is nothing kept
        "only": only,
    }  # fmt: skip
    if waits is not None or which.get("stuck") is not None or which.get("needs") is not None:
        found |= await working(store)
    return found


async def working(store: Store) -> Filter:
    """Read what live workers serve, as a filter needs it."""
    served = [f"{name} {version}" for name, (_, _, versions) in (await store.agents()).items() for version in versions]
    return {"served": served, "taken_queues": await store.queues_taken()}


def _listed(given: str | Iterable[str] | None) -> list[str] | None:
    return None if given is None else [given] if isinstance(given, str) else list(given)


# Where a page begins


def checked_order(order: str) -> Order:
    """The order itself, or `BadArguments` that says which there are."""
    for known in _ORDERS:
        if order == known:
            found: Order = known
            return found
    raise BadArguments(f"order={short(order)}: runs are listed {', '.join(map(repr, _ORDERS))}")


def place_of(info: RunInfo, order: Order) -> str:
    """Name the place of a run in a list, for `after` of the next page: its id, and when it changed if that is the order."""
    if order != "updated":
        return info.id
    changed = info.finished_at or info.updated_at
    return info.id if changed is None else f"{info.id} {round(changed.timestamp() * 1000)}"


def read_place(after: str | RunInfo | None, order: Order) -> tuple[str | None, int | None]:
    """Read such a place: the id of the last run of the page before, and the time by which it stood there, if it is told."""
    if after is None:
        return None, None
    text = place_of(after, order) if isinstance(after, RunInfo) else after
    run, _, at = text.partition(" ")
    return run, int(at) if at.isdecimal() and order == "updated" else None
