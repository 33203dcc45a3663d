"""Differences: two runs side by side. Calls in, pairs of calls out; no database and no loop.

Look here for where two runs part. A call of one run is paired with the call of the same key in the other; so each call is
compared with the one that stands in its place, whatever order things came in. Runs part at the first pair, in the order of the
first run, whose calls are not the same call with the same outcome. What differs in time, attempts or cost parts nobody. Of the
answer of a model counts what it said, and what it asks tools for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar

from holdfast.values.codec import preview
from holdfast.values.text import cut, show
from holdfast.words.calls import Call
from holdfast.words.events import error_line, is_request
from holdfast.words.model import FINISHED, Event, RunRow
from holdfast.words.spent import NOTHING, Spent

Part = Literal["only here", "only there", "arguments", "state", "result", "error", "attempts", "cost"]
_PARTS: Final = ("only here", "only there", "arguments", "state", "result", "error")  # those at which runs part
_TOOL: Final = re.compile(r"(?P<agent>.*):[^/:]+/(?P<tool>[^/]+)#\d+")  # the key of a tool call of Pydantic AI
_LONGEST: Final = 300
_SHORT: Final = 60


@dataclass(frozen=True, slots=True)
class Made:
    """One call, as a difference shows it.

    Attributes:
        state: "running", "waiting", "completed", "failed" or "cancelled".
        input: Its arguments in a line.
        result: Its result in a line; empty if it has none.
        error: The type and text of its error; empty if it has none.
        attempts: How many bodies ran.
        seconds: How long it took; None if it has not ended.
        spent: What it spent.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        difference = await hf.diff("r-1", "r-2")
        took = [pair.one.seconds for pair in difference.pairs if pair.one]
        ```
    """

    state: str
    input: str
    result: str
    error: str
    attempts: int
    seconds: float | None
    spent: Spent = NOTHING


@dataclass(frozen=True, slots=True)
class Pair:
    """The calls of one key in two runs.

    Attributes:
        key: The key.
        name: The name of the step, the child, or the verb.
        sort: "step", "timer", "child", "question" and so on.
        differs: In what they differ: "only here" (in the first run alone), "only there", "arguments", "state", "result",
            "error", "attempts", "cost"; empty if in nothing.
        one: The call of the first run.
        other: The call of the second run.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        difference = await hf.diff("r-1", "r-2")
        print([pair.key for pair in difference.pairs if pair.parts])
        ```
    """

    key: str
    name: str
    sort: str
    differs: tuple[Part, ...]
    one: Made | None
    other: Made | None

    @property
    def parts(self) -> bool:
        """Are these not the same call with the same outcome?"""
        return any(part in _PARTS for part in self.differs)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the runs that are compared.

    Attributes:
        run: The run.
        agent: The name of its agent.
        status: Its state.
        input: Its arguments in a line.
        result: Its result in a line; empty if it has none.
        error: The type and text of its error; empty if it has none.
        calls: How many calls it made.
        seconds: How long it took from its start to its end, or to now.
        spent: What its own steps spent.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        difference = await hf.diff("r-1", "r-2")
        print(difference.one.spent, difference.other.spent)
        ```
    """

    run: str
    agent: str
    status: str
    input: str
    result: str
    error: str
    calls: int
    seconds: float
    spent: Spent = NOTHING


@dataclass(frozen=True, slots=True)
class Difference:
    """Two runs, compared.

    Attributes:
        one: The first run.
        other: The second run.
        pairs: The calls of both, each beside the one that stands in its place, in the order of the first run.
        parted: The pair at which they part; None if they do not.
        differs: In what the runs as wholes differ: "agent", "arguments", "status", "result", "error", "cost".

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        difference = await hf.diff("r-1", "r-2")
        print(difference.same, difference.parted)
        ```
    """

    one: Side
    other: Side
    pairs: tuple[Pair, ...]
    parted: Pair | None
    differs: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Did both make the same calls, with the same outcomes, to the same end?"""
        return self.parted is None and not set(self.differs) - {"cost"}


@dataclass(slots=True)
class Told:
    """A run, with its texts loaded, and its calls."""

    row: RunRow
    input: str
    result: str
    error: str
    calls: Sequence[Call]
    now: int


def compare(one: Told, other: Told, *, so_far: bool = False) -> Difference:
    """Compare two runs. With `so_far` calls that only the second made, and that have no outcome, part nobody."""
    pairs = tuple(_pairs(one.calls, other.calls, so_far))
    sides = _side(one), _side(other)
    differs: list[str] = []
    whole: dict[str, Callable[[Told], Any]] = {
        "agent": lambda told: told.row.agent,
        "arguments": lambda told: told.input,
        "status": lambda told: told.row.status,
        "result": lambda told: told.result,
        "error": lambda told: told.error,
    }
    for name, read in whole.items():
        if read(one) != read(other) and not (so_far and name == "status"):
            differs.append(name)
    if sides[0].spent != sides[1].spent:
        differs.append("cost")
    return Difference(*sides, pairs, next((pair for pair in pairs if pair.parts), None), tuple(differs))


def _side(told: Told) -> Side:
    row = told.row
    ended = row.finished_at if row.status in FINISHED and row.finished_at is not None else told.now
    spent = sum((call.spent for call in told.calls), NOTHING)
    return Side(
        row.id, row.agent, row.status, _line(told.input), _line(told.result), told.error, len(told.calls),
        max(0, ended - row.created_at) / 1000, spent,
    )  # fmt: skip


def _pairs(ones: Iterable[Call], others: Iterable[Call], so_far: bool) -> Iterator[Pair]:
    here = {call.key: call for call in ones if call.dropped is None}
    there = {call.key: call for call in others if call.dropped is None}
    for one, other in aligned(here, there):
        if not (so_far and one is None and other is not None and other.outcome is None):
            yield _pair(one, other)


class _Sorted(Protocol):
    """A call, or what is left of one."""

    @property
    def sort(self) -> str: ...


C = TypeVar("C", bound=_Sorted)


def aligned(here: dict[str, C], others: dict[str, C]) -> Iterator[tuple[C | None, C | None]]:
    """Pair each call of the first run with that of the second; calls of the second alone stand where they were made."""
    there = _placed(others, here)
    waiting = iter(list(there.items()))
    told: set[str] = set()
    for key, call in here.items():
        if key in there and key not in told:
            for new, added in waiting:
                told.add(new)
                if new == key:
                    break
                yield here.get(new), added
        elif key in there:
            continue
        yield call, there.get(key)
        told.add(key)
    for new, added in waiting:
        if new not in told:
            yield here.get(new), added


def _placed(there: dict[str, C], here: dict[str, C]) -> dict[str, C]:
    """The calls of the second run under the keys that they have in the first: a tool call has an id of the model's in its key."""
    free: dict[Any, list[str]] = {}  # by agent and tool
    for key, call in here.items():
        if key not in there and (place := _TOOL.fullmatch(key)) and call.sort == "step":
            free.setdefault(place.group("agent", "tool"), []).append(key)
    placed = {}
    for key, call in there.items():
        place = None if key in here else _TOOL.fullmatch(key)
        alike = free.get(place.group("agent", "tool")) if place is not None and call.sort == "step" else None
        placed[alike.pop(0) if alike else key] = call
    return placed


def _pair(one: Call | None, other: Call | None) -> Pair:
    call = one or other
    assert call is not None
    return Pair(call.key, call.name, call.sort, tuple(_differs(one, other)), _made(one), _made(other))


def differs(one: Call | None, other: Call | None) -> tuple[Part, ...]:
    """Say in what two calls of one place differ, as far as runs part at it."""
    return tuple(part for part in _differs(one, other) if part in _PARTS)


def meaning(call: Call) -> bytes:
    """Digest all by which runs part: two calls of one place are the same if it is the same. Its events have their values."""
    told = (call.sort, call.name, call.digest, call.state, _value(call.outcome), _error(call))
    return hashlib.blake2b(repr(told).encode(errors="backslashreplace"), digest_size=16).digest()


def _differs(one: Call | None, other: Call | None) -> Iterator[Part]:
    if one is None or other is None:
        yield "only there" if one is None else "only here"
        return
    if (one.sort, one.name, one.digest) != (other.sort, other.name, other.digest):
        yield "arguments"
    if one.state != other.state:
        yield "state"
    if _value(one.outcome) != _value(other.outcome):
        yield "result"
    if _error(one) != _error(other):
        yield "error"
    if one.attempts != other.attempts:
        yield "attempts"
    if one.spent != other.spent:
        yield "cost"


_SAYS: Final = ("yes", "note", "status", "text", "percent", "done", "total", "items", "length", "topic", "hash")


def _value(outcome: Event | None) -> Any:
    """The meaning of an outcome: its value, by its digest if it is large, and what its kind says besides."""
    if outcome is None:
        return None
    said = {name: outcome.data[name] for name in _SAYS if name in outcome.data}
    answer = _answer(outcome)
    return outcome.kind, outcome.value if answer is None else answer, outcome.blob, said


def _answer(outcome: Event) -> list[tuple[str, Any]] | None:
    """The answer of a model to a request of Pydantic AI: its texts, and the tools that it asks for; None for other outcomes.

    The ids, times and hashes beside it are others each time, and nobody's words.
    """
    if outcome.value is None or not is_request(outcome.key or "", str(outcome.data.get("name", ""))):
        return None
    try:
        parts = json.loads(outcome.value)["response"]["parts"]
        return [made for part in parts if (made := _part(part)) is not None]
    except (ValueError, TypeError, KeyError, AttributeError):  # written by something else
        return None


def _part(part: dict[str, Any]) -> tuple[str, Any] | None:
    if part["part_kind"] == "tool-call":
        given = part.get("args")
        with contextlib.suppress(ValueError):
            given = json.loads(given) if isinstance(given, str) else given
        return str(part["tool_name"]), given
    text = part.get("content")
    return ("", text) if part["part_kind"] == "text" and text else None


def _spoken(answer: list[tuple[str, Any]]) -> str:
    """An answer of a model in a line: its words, and what it asks tools for."""
    told = []
    for tool, given in answer:
        if not tool:
            told.append(cut(show(given, _LONGEST), _LONGEST))
        elif isinstance(given, dict):
            told.append(f"{tool}({', '.join(f'{name}={show(value, _SHORT)}' for name, value in given.items())})")
        else:
            told.append(f"{tool}({'' if given is None else show(given, _SHORT)})")
    return cut("; ".join(told), _LONGEST) or "nothing"


def _error(call: Call) -> str:
    error = call.error
    return "" if error is None else error_line(error)


def _made(call: Call | None) -> Made | None:
    if call is None:
        return None
    seconds = None if call.ended is None else max(0, call.ended - call.began) / 1000
    return Made(call.state, call.input, _result(call), _error(call), call.attempts, seconds, call.spent)


def _result(call: Call) -> str:
    outcome = call.outcome
    if outcome is None:
        return ""
    answer = _answer(outcome)
    if answer is not None:
        return _spoken(answer)
    if outcome.value is not None:
        return _line(outcome.value)
    if outcome.blob is not None:
        return f"a large value, {outcome.blob[:12]}"
    said = {name: outcome.data[name] for name in _SAYS if outcome.data.get(name) not in (None, "")}
    return ", ".join(f"{name}={value}" for name, value in said.items())[:_LONGEST]


def _line(text: str) -> str:
    """A stored text in a line for people."""
    return preview(text) if text else ""
