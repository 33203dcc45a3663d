"""Announcements: what was published, and how it is passed on to the runs and triggers that wait for it.

To publish is one row, in the transaction of the event that says so, or in one of its own: the publisher's cost does not
grow with the number of waiters. The row's id is unique, so what is published again under it is not. Any worker passes
on what waits: a signal into the inbox of each run that waits for it, a delivery for each trigger. These and the note
that it was passed on are one transaction, and of two workers one passes on at a time. So each hears of it once, and a
run hears of announcements in their order.

A subscription counts from the announcements that were there when it was made. Where several write at a time, a position is taken
before its commit, so positions alone do not tell: there each announcement has its transaction, and each subscription the snapshot
that it was made in. A subscription lies in a table, by the fields and values that
are compared, and says nothing that the history of its run does not: a run that comes from elsewhere, by a fork or in a
bundle, gets its subscriptions from there (`resubscribe`). The subscription of an ended run goes when the next
announcement finds it.

An announcement that cannot be passed on, whatever the reason, must not hold up the others. It is tried by itself, and
if that fails too it is set aside: it counts as passed on, keeps its value for as long as its id is known, and is in the
audit and the log.

Large crowds. So many subscriptions are served in a transaction; the row notes the last, and the next transaction goes on behind it.

Lock order: the lock of all announcements, then runs in the order of their ids. Crash points: each work is one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.errors import NotStorable, StoreUnavailable
from holdfast.store import audit, declarations
from holdfast.store.inbox import put_signal
from holdfast.store.triggers import PREFIX, DeclaredTrigger, NewDelivery, TriggerRow, keep
from holdfast.store.work import Asking, Feature, Transaction, rows, to_json
from holdfast.values import tagged
from holdfast.values.codec import digest
from holdfast.values.text import cut, type_name
from holdfast.words.announcements import KEYED, KIND, fields_of, topic_of, wanted
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
NEWS: Final = " announcements"  # under this name listeners hear of a change; no run has it
_AT_ONCE: Final = 100  # announcements in a transaction
_MOST_TOLD: Final = 500  # subscriptions in a transaction
_PRUNED_AT_ONCE: Final = 500
_DIGEST: Final = "#"  # before the digest of a value that was passed on
OVER: Final = ("completed", "cancelled")  # what waits no more, and will not again


@dataclass(frozen=True, slots=True)
class AnnouncementRow:
    """An announcement that waits."""

    position: int
    id: str
    name: str
    value: str
    run: str | None
    reached_run: str
    reached: str
    published_at: int
    xact: int | None


@dataclass(frozen=True, slots=True)
class NewAnnouncement:
    """Publish: done with the owner's append, or by itself."""

    id: str
    name: str
    value: str

    def __call__(self, tx: Transaction, run: str | None) -> Asking[bool]:
        made = yield from tx.row("announce", id=self.id, name=self.name, value=self.value, run=run)
        tx.changed(NEWS)
        return made is not None


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """Have a run wait for announcements from now on."""

    name: str
    match: Mapping[str, Any]

    def __call__(self, tx: Transaction, run: str | None) -> Asking[None]:
        fields, topic = fields_of(self.match), topic_of(self.name, self.match)
        digest = wanted(fields, self.match)
        yield from tx.rows("subscribe", run=run or "", topic=topic, name=self.name, fields=fields, wanted=digest)


Announcing = NewAnnouncement | NewSubscription  # what the owner of a run has done with an append


@dataclass(frozen=True, slots=True)
class Announced:
    """Outcome of publishing from outside: whether it was published now, when it was published before, and whether with this value.

    `same` is None where that is not known: an earlier version did not keep what tells it.
    """

    made: bool
    before: int | None = None
    same: bool | None = None


class Passed(NamedTuple):
    """Outcome of a turn: how many announcements were passed on to all, and whether another worker is at it instead."""

    done: int
    busy: bool


class Announcements(Feature):
    """Announcements, published and passed on."""

    async def announce(self, new: NewAnnouncement, *, by: str, via: str) -> Announced:
        """Publish from outside a run, unless there is one with this id."""
        return await self._submit(lambda tx: _announce(tx, new, by, via), journal=False, small=True, runs=())

    async def declare_subscriptions(self, declared: Sequence[DeclaredTrigger]) -> None:
        """Write down what the agents of this worker are started by, '' for nothing, and let it take effect where it should."""
        await self._submit(lambda tx: _declare(tx, declared), journal=False)

    async def next_announcement(self) -> tuple[int | None, int | None]:
        """Find the first announcement that waits, and when the next gathering is due."""
        found = await self._glance(rows, "next_announcement")
        return (found[0][0], found[0][1]) if found else (None, None)

    async def pass_on(self) -> Passed:
        """Pass waiting announcements on to the runs and triggers that wait for them."""
        trying: list[AnnouncementRow] = []
        try:
            return await self._submit(lambda tx: _pass_on(tx, _AT_ONCE, trying))
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - one of them is the reason; which, is not known
            _log.debug("announcements could not be passed on together", exc_info=True)
        try:
            return await self._submit(lambda tx: _pass_on(tx, 1, trying))
        except StoreUnavailable:
            raise
        except Exception as error:
            if not trying:
                raise
            row, told = trying[0], f"{type_name(type(error))}: {cut(str(error), 500)}"
            done = await self._submit(lambda tx: _set_aside(tx, row, told))
            _log.error(
                "announcement %r, %s, was set aside: not all that wait for it have heard of it. Once the reason is mended, "
                "publish it again under another key: %s", row.name, row.id, told, exc_info=error,
            )  # fmt: skip
            return Passed(done, busy=False)

    async def prune_announcements(self, before: int) -> int:
        """Forget some announcements that were passed on, and debounced ones that were started, before a time; returns how many."""
        return await self._submit(lambda tx: _prune(tx, before), journal=False)


def _announce(tx: Transaction, new: NewAnnouncement, by: str, via: str) -> Asking[Announced]:
    made = yield from new(tx, None)
    if made:
        yield from audit.note(tx, "", by, via, "publish", {"event": new.name, "id": new.id})
    if made or tx.again:
        return Announced(made=True, same=True)
    found = yield from tx.row("announced", id=new.id)
    if found is None:
        return Announced(made=False)  # it was forgotten, or committed, in this very moment
    before, value = found
    return Announced(False, before, None if value is None else _kept(value) == _kept(new.value))


def _kept(value: str) -> str:
    """The digest of a value, which stays when it was passed on; no text of a value begins with the mark."""
    return value if value.startswith(_DIGEST) else _DIGEST + digest(value)


def _prune(tx: Transaction, before: int) -> Asking[int]:
    some = yield from tx.rows("prune_announcements", before=before, limit=_PRUNED_AT_ONCE)
    others = yield from tx.rows("prune_debounced", before=before, limit=_PRUNED_AT_ONCE)
    return len(some) + len(others)


# Agents that announcements start


def _declare(tx: Transaction, declared: Sequence[DeclaredTrigger]) -> Asking[None]:
    yield from declarations.forget_gone(tx)
    for each in sorted(declared, key=lambda each: each.name):
        row = yield from tx.row("lock_trigger", name=each.name)
        present = None if row is None else TriggerRow(*row)
        if not each.config and (present is None or present.kind != KIND):
            continue  # the agent never was started by any; or what has this name comes from outside
        yield from declarations.declare(tx, PREFIX + each.name, each.digest)
        before = None if present is None else present.digest
        if before == each.digest or not (
            yield from declarations.takes_effect(
                tx, PREFIX + each.name, each.digest, before, alike=present is None or present.kind == KIND
            )
        ):
            continue
        if each.config:
            yield from tx.rows("put_trigger", name=each.name, kind=KIND, config=each.config, digest=each.digest)
            name = json.loads(each.config)["event"]
            yield from tx.rows("subscribe", run="", topic=each.name, name=name, fields="", wanted="")
        else:
            yield from tx.rows("delete_trigger", name=each.name)
            yield from tx.rows("unsubscribe", run="", topic=each.name)


# Runs


def resubscribe(tx: Transaction, run: str) -> Asking[None]:
    """Have a run that has its history from elsewhere wait for what that says."""
    for (text,) in (yield from tx.rows("awaited", run=run)):
        data = json.loads(text)
        yield from NewSubscription(data["event"], data["match"])(tx, run)


def forget_runs(tx: Transaction, runs: Sequence[str]) -> Asking[None]:
    """Forget what these runs waited for."""
    yield from tx.rows("unsubscribe_runs", ids=to_json(list(runs)))


# Passing on


class _Told(NamedTuple):
    """An announcement for one that waits for it; in the order in which runs are locked."""

    run: str
    position: int
    topic: str
    row: AnnouncementRow


def _set_aside(tx: Transaction, row: AnnouncementRow, error: str) -> Asking[int]:
    made = yield from tx.row("set_aside", position=row.position)
    if made is None:
        return 0  # another worker has passed it on after all
    about = {"event": row.name, "id": row.id, "error": error}
    yield from audit.note(tx, "", "worker", "announcements", "announcement_set_aside", about)
    return 1


def _pass_on(tx: Transaction, limit: int, trying: list[AnnouncementRow]) -> Asking[Passed]:
    """Pass on the first ones; `trying` has them then, also if it fails."""
    trying.clear()
    if (yield from tx.row("lock_announcements")) is None:
        return Passed(0, busy=True)
    waiting = [AnnouncementRow(*row) for row in (yield from tx.rows("waiting_announcements", limit=limit))]
    trying += waiting
    told: list[_Told] = []
    fields: dict[str, list[str]] = {}
    done = 0
    for row in waiting:
        if row.name not in fields:
            fields[row.name] = yield from _fields(tx, row.name)
        room = _MOST_TOLD - len(told)
        found = yield from _subscribers(tx, row, fields[row.name], room)
        told += [_Told(run, row.position, topic, row) for run, topic in found]
        if len(found) == room:  # there may be others
            run, topic = found[-1]
            yield from tx.rows("reach", position=row.position, run=run, topic=topic)
            break
        yield from tx.rows(
            "passed", position=row.position, value=_kept(row.value) if row.id.startswith(KEYED) else None
        )
        done += 1
    for each in sorted(told):
        if each.run:
            yield from _signal(tx, each)
        else:
            yield from keep(tx, _delivery(each))
    return Passed(done, busy=False)


def _fields(tx: Transaction, name: str) -> Asking[list[str]]:
    """List the sets of fields that are compared: one look at the index for each, however many wait."""
    found: list[str] = []
    while True:
        (after,) = yield from tx.row("compared_fields", name=name, after=found[-1] if found else "")
        if after is None:
            return found
        found.append(after)


def _subscribers(tx: Transaction, row: AnnouncementRow, fields: list[str], limit: int) -> Asking[list[tuple[str, str]]]:
    value = _plain(row.value) if fields else None
    digests = [digest for each in ("", *fields) if (digest := wanted(each, value)) is not None]
    return (
        yield from tx.rows(
            "subscribers", name=row.name, keys=to_json(digests), position=row.position, run=row.reached_run, topic=row.reached,
            xact=row.xact, limit=limit,
        )
    )  # fmt: skip


def _plain(text: str) -> Any:
    """Read a value for its fields. One that only a later version can read has none here, and is passed on all the same."""
    try:
        return tagged.read(text)
    except NotStorable:
        return None


def _signal(tx: Transaction, told: _Told) -> Asking[None]:
    row = told.row
    signal_id = f"{row.id} {told.topic}"
    if (yield from tx.row("signal_position", run=told.run, signal_id=signal_id)) is not None:
        return  # published again after its id was forgotten
    data = {"announcement": row.id, "at": row.published_at} | ({} if row.run is None else {"run": row.run})
    position = yield from put_signal(tx, told.run, signal_id, "message.received", told.topic, row.value, data)
    if position is None:
        found = yield from tx.row("fence", run=told.run)
        if found is None or found[0] in OVER:
            yield from forget_runs(tx, [told.run])


def _delivery(told: _Told) -> NewDelivery:
    row = told.row
    headers = {"event": row.name, "at": str(row.published_at), "position": str(row.position)}
    if row.run is not None:
        headers["run"] = row.run
    return NewDelivery(told.topic, row.id, KIND, headers, row.value.encode())
