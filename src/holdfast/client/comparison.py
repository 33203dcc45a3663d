"""Comparisons of long runs: call by call, a page at a time. `hf.diff` compares the same in one piece.

Of each call a digest is made while the histories are read, so that neither is ever in memory whole; of the calls on a page all is
read once more. Which calls belong together, and what makes them the same, is said in `rehearsal/difference.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.client.base import Base
from holdfast.client.info import RunEvent, RunInfo
from holdfast.errors import BadArguments
from holdfast.store.store import Store
from holdfast.words.calls import ARRIVALS, Call, Calls, Passing
from holdfast.words.events import error_line, words_of
from holdfast.words.model import RunRow, checked_place

if TYPE_CHECKING:
    from holdfast.rehearsal.difference import Part

_CHUNK: Final = 200  # events that are read together, with their values
_MOST_EVENTS: Final = 200_000
_MOST_ROWS: Final = 1_000
_KEPT: Final = 4  # comparisons that are kept for their next pages


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """One call of a comparison.

    Attributes:
        seq: The place of its first event in the run's history.
        status: "running", "waiting", "completed", "failed" or "cancelled".
        input: Its arguments in a line.
        digest: The digest of its arguments.
        preview: Its result in a line; of a question what was decided, and by whom.
        error: The type and text of its error.
        ms: How long it took; None if it has not ended.
        usd: What it spent.
        attempts: How many bodies ran.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        rows = (await hf.compare("r-1", "r-2")).rows
        print([row.a.preview for row in rows if row.a])
        ```
    """

    seq: int
    status: str
    input: str
    digest: str
    preview: str | None
    error: str | None
    ms: int | None
    usd: float
    attempts: int


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """The calls of one place in two runs.

    Attributes:
        key: The key, in the first run if it has the call.
        name: The name of the step, the child, or the verb.
        kind: "step", "timer", "child", "question" and so on.
        same: Whether both are the same call with the same outcome.
        a: The call of the first run.
        b: The call of the second run.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        rows = (await hf.compare("r-1", "r-2")).rows
        print([row.key for row in rows if not row.same])
        ```
    """

    key: str
    name: str
    kind: str
    same: bool
    a: ComparedCall | None
    b: ComparedCall | None


@dataclass(frozen=True, slots=True)
class Parting:
    """The place at which two runs part.

    Attributes:
        key: The call.
        why: In what it differs.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        parts = (await hf.compare("r-1", "r-2")).parts
        print(parts.why if parts else "nowhere")
        ```
    """

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, call by call: a page of it.

    Attributes:
        a: The first run.
        b: The second run.
        shared: How many calls at the beginning are the same.
        parts: Where they part; None if they do not.
        rows: The calls of this page, in the order of the first run.
        next: Where the next page begins; None at the end.

    Example:
        ```python
        await hf.start(report, "bees", id="r-2")
        found = await hf.compare("r-1", "r-2", differences=True)
        print(found.shared, found.parts)
        ```
    """

    a: RunInfo
    b: RunInfo
    shared: int
    parts: Parting | None
    rows: tuple[ComparedRow, ...]
    next: int | None


class _Brief(NamedTuple):
    """As much of a call as is kept of every one."""

    key: str
    sort: str
    seq: int
    meaning: bytes


_Pairs = list[tuple[_Brief | None, _Brief | None]]
# One for each store that is open, as long as it is; by the runs and how far each had come.
_compared: Final[WeakKeyDictionary[Store, OrderedDict[tuple[str, int, str, int], _Pairs]]] = WeakKeyDictionary()


async def compare(
    client: Base,
    rows: tuple[RunRow, RunRow],
    info: Callable[[RunRow], Awaitable[RunInfo]],
    after: int,
    limit: int,
    differences: bool,
) -> Comparison:
    """Compare two runs, and read the calls of one page."""
    place = max(checked_place(after), 0)
    if not 1 <= limit <= _MOST_ROWS:
        raise BadArguments(f"limit={limit}: give a whole number from 1 to {_MOST_ROWS}")
    pairs = await _aligned(client, *rows)
    parted = next((nth for nth, pair in enumerate(pairs) if not _same(*pair)), None)
    chosen = list[int]()
    following = None
    for nth in range(place, len(pairs)):
        if len(chosen) == limit:
            following = nth
            break
        if not (differences and _same(*pairs[nth])):
            chosen.append(nth)
    wanted = sorted({*chosen, *([] if parted is None else [parted])})
    told = await _told(client, rows, [pairs[nth] for nth in wanted])
    by_place = dict(zip(wanted, told, strict=True))
    parts = None
    if parted is not None:
        row, differs = by_place[parted]
        parts = Parting(row.key, ", ".join(differs) or "result")
    page = tuple(by_place[nth][0] for nth in chosen)
    shared = len(pairs) if parted is None else parted
    return Comparison(await info(rows[0]), await info(rows[1]), shared, parts, page, following)


def _same(one: _Brief | None, other: _Brief | None) -> bool:
    return one is not None and other is not None and one.meaning == other.meaning


async def _aligned(client: Base, one: RunRow, other: RunRow) -> _Pairs:
    from holdfast.rehearsal.difference import aligned  # noqa: PLC0415 - loaded when runs are compared

    kept = _compared.setdefault(client.store, OrderedDict())
    key = (one.uid, one.next_seq, other.uid, other.next_seq)
    found = kept.get(key)
    if found is None:
        here, there = await _briefs(client, one), await _briefs(client, other)
        found = kept[key] = list(aligned(here, there))
        while len(kept) > _KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return found


async def _briefs(client: Base, row: RunRow) -> dict[str, _Brief]:
    """Read a history, and keep a digest of each of its calls, by their keys in the order of their first events."""
    from holdfast.rehearsal.difference import meaning  # noqa: PLC0415 - loaded when runs are compared

    if row.next_seq > _MOST_EVENTS:
        raise BadArguments(f"run {row.id!r} has {row.next_seq} events; up to {_MOST_EVENTS} of each run are compared")
    passing, made, place = Passing(), list[_Brief](), 0
    while place < row.next_seq and (page := await client.store.journal(row.id, place, _CHUNK)):
        made += [_Brief(call.key, call.sort, call.seq, meaning(call)) for call in passing.ended(page)]
        for event in page:
            event.value = None  # those of calls that are still open are kept
        place = page[-1].seq + 1
    made += [_Brief(call.key, call.sort, call.seq, meaning(call)) for call in passing.open.made]
    return {brief.key: brief for brief in sorted(made, key=lambda brief: brief.seq)}


async def _told(client: Base, rows: tuple[RunRow, RunRow], pairs: _Pairs) -> list[tuple[ComparedRow, tuple[Part, ...]]]:
    """Read all of these calls: each pair with that in which it differs."""
    from holdfast.rehearsal.difference import differs  # noqa: PLC0415 - loaded when runs are compared

    ones = await _calls(client, rows[0].id, [one for one, _ in pairs if one is not None])
    others = await _calls(client, rows[1].id, [other for _, other in pairs if other is not None])
    made = []
    for one, other in pairs:
        here = None if one is None else ones.get(one.key)
        there = None if other is None else others.get(other.key)
        call = here or there
        brief = one or other
        assert brief is not None
        name, kind = (brief.key, brief.sort) if call is None else (call[0].name, call[0].sort)
        row = ComparedRow(
            brief.key,
            name,
            kind,
            _same(one, other),
            None if here is None else here[1],
            None if there is None else there[1],
        )
        made.append((row, differs(None if here is None else here[0], None if there is None else there[0])))
    return made


async def _calls(client: Base, run: str, briefs: list[_Brief]) -> dict[str, tuple[Call, ComparedCall]]:
    """Read calls by their keys, with the beginnings of their results."""
    keys = [brief.key for brief in briefs]
    found = Calls(await client.store.outline_of(run, keys, ARRIVALS)) if keys else Calls()
    calls = [call for key in keys if (call := found.find(key)) is not None]
    seqs = [call.outcome.seq for call in calls if call.outcome is not None]
    results = {line.seq: line for line in await client.store.lines_at(run, seqs)} if seqs else {}
    made = {}
    for call in calls:
        line = None if call.outcome is None else results.get(call.outcome.seq)
        if line is not None and call.outcome is not None:
            call.outcome.value = line.value  # its beginning: enough to say that it differs
        preview = None if line is None else RunEvent.of(line).preview
        if call.sort == "question" and call.outcome is not None:
            said = words_of(call.outcome).says(call.outcome)  # who decided what: most decisions have no value
            preview = said if preview is None else f"{said}: {preview}"
        error = None if call.error is None else error_line(call.error)
        ms = None if call.ended is None else max(0, call.ended - call.began)
        made[call.key] = (
            call,
            ComparedCall(
                call.seq, call.state, call.input, call.digest, preview, error, ms, call.spent.usd, call.attempts
            ),
        )
    return made
