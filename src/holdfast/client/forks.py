"""Forks, from outside: a run made from an earlier point of another, and the tree of such runs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from holdfast.client.aside import aside
from holdfast.client.base import Base
from holdfast.errors import BadArguments, NotStorable
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.forks import NewFork
from holdfast.values.codec import UNTYPED, preview
from holdfast.values.tagged import read_noting
from holdfast.values.text import is_whole, short
from holdfast.words.durations import moment
from holdfast.words.model import RunRow, checked_run_id, is_awkward
from holdfast.words.people import Actor, checked_text
from holdfast.worker.agents import results_of

EFFECTS: Final = ("ask", "new", "refuse")
_MESSAGE: Final = "message:"
_SPAWN: Final = ":spawn."
_ARGUMENTS: Final = "arguments"
_LONGEST: Final = 180  # characters of a run's id that its fork's begins with
_MOST: Final = 1_000  # forks in a tree that is shown


@dataclass(frozen=True, slots=True)
class ForkInfo:
    """A run in a tree of forks.

    Attributes:
        id: The run.
        of: The run that it was made from; None for the first.
        at: The first event that it does not share with that run; None for the first.
        agent: The name of its agent; None if it was deleted.
        status: The state of the run; "deleted"; or "elsewhere": it is in the store from which a fork of it was imported.
        created_at: When it was made; None if it is not here.
        replaced: What it got instead of what that run had, by key, each value cut to a few words.
        imported_from: Of one that is elsewhere: the id of that store.

    Example:
        ```python
        tree = await run.forks()
        assert [(each.id, each.of) for each in tree] == [("r-1", None)]
        ```
    """

    id: str
    of: str | None
    at: int | None
    agent: str | None
    status: str
    created_at: datetime | None
    replaced: dict[str, str] = field(default_factory=dict)
    imported_from: str | None = None


def checked_point(at: Any) -> int | str | None:
    """A point of a history, or `BadArguments` that says how one is named."""
    if at is None or (isinstance(at, str) and at) or is_whole(at, 0):
        point: int | str | None = checked_text(at, "at") if isinstance(at, str) else at
        return point
    raise BadArguments(
        f"at={short(at)}: name an event by its number, a call by its key or the name of its step, or say 'checkpoint'"
    )


def checked_effects(effects: Any) -> str:
    """The policy for steps that were done before, or `BadArguments`."""
    if effects not in EFFECTS:
        raise BadArguments(
            f"effects={short(effects)}: say 'ask', 'new' or 'refuse', for steps that were done behind the point before"
        )
    policy: str = effects
    return policy


async def fork(
    client: Base,
    row: RunRow,
    at: int | str | None,
    replace: Mapping[str, Any] | None,
    effects: str,
    id: str | None,
    actor: Actor,
    via: str,
) -> tuple[str, bool]:
    """Make a fork; returns its id, and whether it was made by this call."""
    name = f"{row.id[:_LONGEST]}.fork-{secrets.token_hex(3)}" if id is None else checked_run_id(id)
    if is_awkward(name):
        raise BadArguments(f"{name!r} can be mistaken for a folder or an option; let the id begin otherwise")
    if replace is not None and not isinstance(replace, Mapping):
        raise BadArguments(
            f"replace={short(replace)}: give the values by the keys of calls, as {{'fetch#0': 'a text'}}"
        )
    point, policy = checked_point(at), checked_effects(effects)
    values, messages = dict[str, str](), dict[int, str]()
    given: tuple[str, str | None] | None = None
    blobs: dict[str, bytes] = {}
    for key, value in (replace or {}).items():
        if not isinstance(key, str):
            raise BadArguments(f"replace={{{short(key)}: ...}}: calls are named by their keys, which are texts")
        checked_text(key, "replace")
        if key == _ARGUMENTS:
            given, more = await _arguments(client, row, value)
            blobs |= more
            continue
        text = await aside(value, lambda value: UNTYPED.store(value, "replace")[0], value)
        client._sized(text, f"what replaces {key!r}")
        if key.startswith(_MESSAGE):
            text, more = spilled(text)
            blobs |= more
            messages[_place(key)] = text
        else:
            _check_fits(client, row, key, text)
            values[key] = text
    new = NewFork(
        row.id, name, secrets.token_hex(16), point, policy, actor, via, given, values, messages, blobs
    )  # fmt: skip
    look = f"`await hf.get({name!r}).info()` says whether it was made; forking again with id={name!r} is safe"
    made, created = await client._written(client.store.fork(new), look)
    return made.id, created


def _check_fits(client: Base, row: RunRow, key: str, text: str) -> None:
    """Refuse a value that does not fit the type of the result that it replaces, if the code of the agent is at hand.

    If it is not, the fork itself finds out when its code comes to the call, and says that another one is needed.
    """
    spec = client._spec(row.agent, row.version)
    label = (key.rpartition("#")[0] or key).rpartition("/")[2]
    shapes = [] if spec is None else results_of(spec, label.removeprefix(_SPAWN))
    value, notes = read_noting(text)
    refused: NotStorable | None = None
    for shape in shapes:
        try:
            shape.revive(value, notes=notes)
        except NotStorable as error:
            refused = error
        else:
            return
    if refused is not None:
        raise BadArguments(
            f"replace={{{short(key)}: {preview(text, 60)}}}: that does not fit the type of its result: {refused}. No fork was made"
        )


def _place(key: str) -> int:
    number = key.removeprefix(_MESSAGE)
    if not (number.isascii() and number.isdigit() and len(number) < 18):
        raise BadArguments(
            f"replace={{{short(key)}: ...}}: a message is named by the number of its event, as 'message:12'"
        )
    return int(number)


async def _arguments(client: Base, row: RunRow, changed: Any) -> tuple[tuple[str, str | None], dict[str, bytes]]:
    """The arguments of a run with some of them changed, as a row keeps them."""
    if not isinstance(changed, Mapping) or not all(isinstance(name, str) for name in changed):
        raise BadArguments("replace={'arguments': ...}: give the arguments to change by name, as {'topic': 'otters'}")
    before = await unspilled(client.store, row.input) or "{}"
    made = await client._changed_input(row, before, changed)
    stored, blobs = spilled(client._sized(made.text, "the arguments"))
    return (stored, made.digest), blobs


async def tree(client: Base, run: str) -> list[ForkInfo]:
    """The first of the runs that this one comes from, and all forks of it, each behind the one it was made from."""
    store = client.store
    await client._run_row(run)
    base, top = run, ForkInfo(run, None, None, None, "deleted", None)
    while (origin := await store.origin(base)) is not None:
        fork, base = base, origin[2]
        if base.startswith("#"):  # it is not here: it was deleted, or never was
            there = await store.imported_from(fork)
            status = "deleted" if there is None else "elsewhere"
            top = ForkInfo(origin[0], None, None, None, status, None, imported_from=there)
            break
    row = await store.run(base)
    if row is not None:
        top = ForkInfo(row.id, None, None, row.agent, row.status, moment(row.created_at))
    found: dict[str, list[ForkInfo]] = {}
    names, level, count = {base: top.id}, [base], 0
    while level and count < _MOST:
        rows = await store.forks(level)
        for each in rows:
            info = ForkInfo(
                each.run, names[each.base], each.at, each.agent, each.status, moment(each.created_at), each.instead
            )
            found.setdefault(names[each.base], []).append(info)
            names[each.run] = each.run
        level, count = [each.run for each in rows], count + len(rows)
    listed: list[ForkInfo] = []
    waiting = [top]
    while waiting:
        listed.append(waiting.pop())
        waiting += reversed(found.pop(listed[-1].id, []))
    return listed


# What a fork has of the runs below its origin


async def shared_below(client: Base, run: str) -> dict[str | None, list[RunRow]]:
    """List the runs that a fork has from the run it was made from, each below the one that started it, the oldest first.

    Those are the children that had ended at the point, which stand below the fork here, and the runs below them. Nothing if the
    run is no fork.
    """
    store = client.store
    origin = await store.origin(run)
    rows = {} if origin is None else {row.id: row for row in await store.below(run)}
    if origin is None or not rows:
        return {}
    ended = {
        event.data["child"]
        for event in await store.outline_of(run, (), ("child.ended",))
        if event.seq < origin[1] and event.data["child"] in rows
    }
    found: dict[str | None, list[RunRow]] = {run: [rows[name] for name in rows if name in ended]}
    waiting = list(ended)
    while waiting:
        name = waiting.pop()
        found[name] = [row for row in rows.values() if row.parent_id == name]
        waiting += [row.id for row in found[name]]
    return found


async def shared_child(client: Base, run: str, child: str) -> RunRow | None:
    """Read the row of a run that a call of this one started: its own child's, or that of the run it was made from."""
    row = await client.store.run(child)
    if row is not None and row.parent_id == run:
        return row
    return next((each for each in await client.store.below(run) if each.id == child), row)


def merged(before: str, changed: Mapping[str, Any]) -> str:
    """The text of arguments, with some of them changed."""
    known = json.loads(before)
    return json.dumps(known | {name: json.loads(UNTYPED.store(value, name)[0]) for name, value in changed.items()})
