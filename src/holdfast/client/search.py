"""Search: one text for everything that has a name. Runs, agents, labels, open questions and workers, a few of each.

It is for people who type: it looks at ids by their beginnings, in new ones also at the middle, and never at all there is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from holdfast.client.base import Base
from holdfast.errors import BadArguments
from holdfast.words.people import checked_text

_MOST: Final = 8
_LENGTH: Final = 200
_RECENT: Final = 1_000  # runs and questions that are looked at


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that was found.

    Attributes:
        id: The run.
        agent: The name of its agent.
        status: Its state.

    Example:
        ```python
        assert [found.agent for found in (await hf.search("r-1")).runs] == ["report"]
        ```
    """

    id: str
    agent: str
    status: str


@dataclass(frozen=True, slots=True)
class FoundQuestion:
    """An open question that was found.

    Attributes:
        id: The question.
        question: Its text.
        run: The run that asks.

    Example:
        ```python
        print([found.question for found in (await hf.search("publish")).questions])
        ```
    """

    id: str
    question: str
    run: str


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that a text finds, at most 8 things in all.

    Attributes:
        runs: Runs whose id begins with it, or has it if they are new.
        agents: Agents whose name has it.
        labels: Labels of new runs that have it, as `name=value`.
        questions: Open questions whose text or id has it.
        workers: Workers whose id has it.

    Example:
        ```python
        found = await hf.search("rep")
        assert "report" in found.agents
        ```
    """

    runs: tuple[FoundRun, ...]
    agents: tuple[str, ...]
    labels: tuple[str, ...]
    questions: tuple[FoundQuestion, ...]
    workers: tuple[str, ...]


class Search(Base):
    """The part of a client that finds things by a text."""

    async def search(self, text: str) -> Found:
        """Find runs, agents, labels, open questions and workers by a piece of their names, in capitals or not; a few of each.

        Raises:
            BadArguments: The text is empty or too long.

        Example:
            ```python
            found = await hf.search("r-1")
            assert [run.id for run in found.runs] == ["r-1"]
            ```
        """
        wanted = checked_text(text, "search", _LENGTH).strip()
        if not wanted:
            raise BadArguments("search: give at least one character that is no space")
        store, low = self.store, wanted.lower()
        recent = await store.recent_runs(_RECENT, self._only)
        runs = [FoundRun(*row) for row in await store.runs_beginning(wanted, _MOST, self._only)]
        known = {run.id for run in runs}
        runs += [
            FoundRun(id, agent, status) for id, agent, status, _ in recent if low in id.lower() and id not in known
        ]
        labels = dict.fromkeys(
            each
            for *_, told in recent
            for each in (f"{name}={value}" for name, value in json.loads(told).items())
            if low in each.lower()
        )
        questions = [
            FoundQuestion(row.id, row.question, row.run_id)
            for row in await store.approvals(limit=_RECENT, only=self._only)
            if low in row.question.lower() or row.id.startswith(wanted)
        ]
        agents = [name for name in sorted(await store.agents()) if low in name.lower()]
        all_workers = await store.worker_ids() if self._only is None else ()  # they are the whole store's
        workers = [id for id in all_workers if low in id.lower()]
        kept = _few(runs, agents, list(labels), questions, workers)
        return Found(*(tuple(each) for each in kept))


def _few(*found: Sequence[Any]) -> list[list[Any]]:
    """Take the first of each kind, then the second, and so on, up to so many in all."""
    kept: list[list[Any]] = [[] for _ in found]
    none, left = object(), _MOST
    for row in zip_longest(*found, fillvalue=none):
        for kind, each in enumerate(row):
            if each is not none and left:
                kept[kind].append(each)
                left -= 1
    return kept
