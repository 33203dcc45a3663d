"""Triggers and deliveries: what may come from outside, each delivery that came, and its end.

The edge commits a delivery before it answers its sender; a worker that has the trigger's code takes it, maps it, and applies the
actions. They and the end of the delivery are one transaction, so a delivery is done exactly if its actions are. A delivery is
known by its trigger and its key: to receive it again does nothing.

Clocks. A clock that was ahead has written times that are far away once it is right again. No wait is longer than a worker says for
its trigger, so what is due later than that is due now.

A worker that takes a delivery has it until `due_at`, or until it is found dead. Then another takes it. `claims` is the fence: the
one that took it before can neither end it nor fail it. A delivery that fails is due again later, and dead after so many attempts;
so is one whose workers died with it again and again, because it may be the reason.

Lock order: runs in the order of their ids (the caller names them), then rows of deliveries. Crash points: each work is one
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from holdfast.errors import LeaseLost, RunExists, RunFinished, UnknownRun, UnknownTrigger
from holdfast.store import approvals, audit, declarations, inbox, runs
from holdfast.store.work import TAKEN, Asking, Feature, Transaction, rows, to_json
from holdfast.words.model import RunRow
from holdfast.words.people import writable
from holdfast.words.triggers import OUTGOING

NEWS: Final = " deliveries"  # under this name listeners hear of a change; no run has it
_DAY_MS: Final = 24 * 3600 * 1000
RETENTION_MS: Final = 30 * _DAY_MS  # that a delivery is known after its end
_MOST_CRASHES: Final = 25  # of workers that had a delivery
_AT_ONCE: Final = 500  # deliveries that are replayed or pruned in a transaction
_LONGEST_ERROR: Final = 2_000
_AHEAD_MS: Final = 10_000  # by which clocks may differ
STATUSES: Final = ("new", "done", "dead")
UNDONE: Final = ("new", "dead")
_AWAY: Final = "away "  # before the name of a trigger among what workers declare: this one cannot reach its broker
PREFIX: Final = "on "  # of a trigger's name among declarations; no schedule has a space in its name


# Names of triggers; or each with the kind of which its deliveries must be, because code of another kind would not know what to do.
Wanted = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A trigger as the store keeps it."""

    name: str
    kind: str
    config: str
    digest: str
    created_at: int
    updated_at: int
    taken: int  # messages, except messages that workers have counted and that were not added up yet (`Triggers.taken`)
    taken_at: int | None
    lag: int | None  # messages that waited with the broker


@dataclass(frozen=True, slots=True)
class Absence:
    """A broker that workers cannot reach: how many of them, since when the first, and what one of them was told last."""

    workers: int
    since: int
    error: str


@dataclass(frozen=True, slots=True)
class DeclaredTrigger:
    """A trigger as a worker declares it."""

    name: str
    kind: str
    config: str
    digest: str


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery as the store keeps it, without its body."""

    trigger: str
    key: str
    kind: str
    headers: str
    status: str
    attempts: int
    claims: int
    due_at: int | None
    owner: str | None
    error: str | None
    outcome: str | None
    received_at: int
    settled_at: int | None
    size: int


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A delivery that came. With an `error` it was tried so often before it was kept, and is dead, or tried again after a while."""

    trigger: str
    key: str
    kind: str
    headers: Mapping[str, str]
    body: bytes
    attempts: int = 0
    error: str | None = None
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Deliveries of one trigger in one state: how many, and when the first and the last came."""

    trigger: str
    status: str
    count: int
    first_at: int
    last_at: int


# Actions, as work. Each is harmless when it is done again.


class Act(Protocol):
    """Something to be done about a delivery; returns what was done. `run` is the one that it changes, if that exists."""

    @property
    def run(self) -> str | None: ...
    def __call__(self, tx: Transaction, /) -> Asking[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class StartAct:
    """Start a run. If its id was chosen, a run that has it must be of the same agent and arguments."""

    create: runs.Create
    chosen: bool
    run: None = None

    def __call__(self, tx: Transaction) -> Asking[dict[str, Any]]:
        row, created = yield from self.create(tx)
        return self.told(row, created)

    def told(self, row: RunRow, created: bool) -> dict[str, Any]:
        """Tell what was done. `RunExists` if nothing was, because another run has the id that was chosen."""
        new = self.create.run
        if self.chosen and row.id != new.id:
            raise RunExists(
                f"Start({new.agent}, id={new.id!r}) has started nothing: the agent is a singleton, and its run {row.id!r} has not "
                "ended. Replay the delivery when it has, or leave id= out: then the run that is there counts as started"
            )
        same = row.agent == new.agent and (row.identity is None or row.identity == new.identity)
        if self.chosen and not created and not same:
            raise RunExists(
                f"Start({new.agent}, id={new.id!r}) has started nothing: there is a run {row.id!r} of {row.agent!r} already, with "
                "another agent or other arguments. The same again would be harmless. Dismiss the delivery if that run is meant; "
                "else have the mapping give another id, and replay it"
            )
        return {"start": row.id, "agent": row.agent, **({} if created else {"was_there": True})}


@dataclass(frozen=True, slots=True)
class SendAct:
    """Send a message."""

    send: inbox.Send

    @property
    def run(self) -> str:
        return self.send.run

    def __call__(self, tx: Transaction) -> Asking[dict[str, Any]]:
        asked = f"Send({self.send.run!r}, {self.send.topic!r})"
        try:
            position = yield from self.send(tx)
        except UnknownRun:
            raise UnknownRun(
                f"{asked} has sent nothing: there is no such run. Check the id, or have a delivery that comes first start it, "
                f"Start(..., id={self.send.run!r})"
            ) from None
        except RunFinished as ended:
            raise RunFinished(
                f"{asked} has sent nothing: {ended}. Dismiss the delivery, or have the mapping start another run"
            ) from None
        return {"send": self.send.run, "topic": self.send.topic, "position": position}


@dataclass(frozen=True, slots=True)
class DecideAct:
    """Decide a question of a run.

    `named` is the run, if that was named and not its question: then the question depends on when it is looked for, and a ballot
    that was cast for any question of the run is cast for no other.
    """

    decide: approvals.Decide
    run: str
    named: str | None = None

    def __call__(self, tx: Transaction) -> Asking[dict[str, Any]]:
        row = None
        if self.named is not None:
            # A next question was found only if what decided the one before is committed: so it is seen here.
            row = yield from approvals.voted(self.named, self.decide.ballot.id)
        if row is None:
            row = yield from self.decide(tx)
        return {"decide": row.id, "run": row.run_id, "by": self.decide.ballot.by.name, "status": row.status}


class Triggers(Feature):
    """Triggers, declared and read; deliveries, received, taken, ended and read."""

    async def declare_triggers(self, declared: Sequence[DeclaredTrigger]) -> list[TriggerRow]:
        """Write down what the code of this worker declares, and let it take effect where it should.

        Returns the triggers that other workers declare as another kind: they stay as they are.
        """
        return await self._submit(lambda tx: _declare(tx, declared), journal=False)

    async def trigger(self, name: str) -> TriggerRow | None:
        """Read one trigger."""
        found = await self._glance(rows, "trigger", name=name)
        return TriggerRow(*found[0]) if found else None

    async def triggers(self) -> list[tuple[TriggerRow, int]]:
        """Read all triggers by name, each with the number of workers that have its code."""
        found = await self._read(rows, "triggers", mark=PREFIX)
        return [(TriggerRow(*row[:-1]), row[-1]) for row in found]

    async def note_taken(self, name: str, count: int, lag: int | None, *, lately: bool = False) -> None:
        """Add messages that a worker took from a broker and that had no actions, and note how many still wait there.

        `lately` says that it has taken some with actions, which were counted when these were applied. What workers that are gone
        have counted is added up here.
        """
        await self._submit(lambda tx: _taken(tx, name, count, lag, lately), journal=False)

    async def taken(self) -> dict[str, int]:
        """Count the messages of each queue that workers have applied since they began, to be added to what rows of triggers say."""
        return dict(await self._read(rows, "taken", mark=TAKEN))

    async def note_broker(self, name: str, since: int | None, error: str = "") -> None:
        """Note that this worker cannot reach the broker of a trigger, since when and why; or, with None, that it can."""
        await self._submit(lambda tx: _note_broker(tx, name, since, error), journal=False)

    async def absences(self) -> dict[str, Absence]:
        """Read which brokers workers that are there cannot reach, by trigger."""
        found: dict[str, Absence] = {}
        for name, text in await self._read(rows, "absences", mark=_AWAY):
            told, trigger = json.loads(text), name.removeprefix(_AWAY)
            before = found.get(trigger, Absence(0, told["since"], told["error"]))
            since = min(before.since, told["since"])
            found[trigger] = Absence(before.workers + 1, since, before.error)
        return found

    async def tally_deliveries(self, statuses: Iterable[str] = STATUSES) -> list[Tally]:
        """Count deliveries by trigger and state, from an index."""
        return [Tally(*row) for row in await self._read(rows, "tally_deliveries", statuses=to_json(list(statuses)))]

    async def receive(self, new: NewDelivery) -> bool:
        """Keep a delivery; False if it is there already."""
        return await self._submit(lambda tx: keep(tx, new), journal=False, small=len(new.body) < 65_536, runs=())

    async def next_delivery(self, triggers: Wanted) -> int | None:
        """Read when the next delivery of these triggers is due."""
        found = await self._glance(rows, "next_delivery", names=to_json(_kinds(triggers)))
        return min((due for (due,) in found if due is not None), default=None)

    async def claim_deliveries(self, triggers: Wanted, limit: int, ttl_ms: int) -> list[tuple[DeliveryRow, bytes]]:
        """Take deliveries that are due, those longest due of each trigger first; two workers at once take different ones.

        Triggers of which some are due share what there is room for, in the order given; some may be left although more were due.
        The rows say since when each was due.
        """
        return await self._submit(lambda tx: _claim(tx, triggers, limit, ttl_ms), journal=False)

    async def apply(
        self, acts: Sequence[Act], taken: DeliveryRow | None = None, *, counted: str = ""
    ) -> list[dict[str, Any]]:
        """Do all of these or none, and with them end the delivery that this worker has taken; returns what was done.

        `counted` is the trigger of a message that is no delivery: it is counted with what it does, unless all was done before.
        `LeaseLost` if another worker has the delivery.
        """
        if (
            taken is None and len(acts) == 1 and isinstance(acts[0], StartAct)
        ):  # as `create`, which databases do quickly
            create = replace(acts[0].create, counted=counted) if counted else acts[0].create
            return [acts[0].told(*await self._submit(create, small=not create.blobs, runs=()))]
        locked = sorted({act.run for act in acts if act.run is not None})
        return await self._submit(lambda tx: _apply(tx, acts, taken, counted), runs=locked)

    async def fail_delivery(self, taken: DeliveryRow, error: str, wait_ms: int | None) -> None:
        """Let a delivery be due again after a while, or, without one, be dead. `LeaseLost` if another worker has it."""
        await self._submit(lambda tx: _fail(tx, taken, error, wait_ms), journal=False)

    async def leave_delivery(self, taken: DeliveryRow, why: str) -> None:
        """Leave a delivery to another worker, with no attempt counted. `LeaseLost` if one has it."""
        await self._submit(lambda tx: _leave(tx, taken, why), journal=False)

    async def recall_deliveries(self, longest_ms: Mapping[str, int], ttl_ms: int) -> int:
        """Make some due that are due later than the longest wait of their trigger; returns how many, and 0 when none is left."""
        return await self._submit(lambda tx: _recall(tx, longest_ms, ttl_ms), journal=False)

    async def replay_delivery(self, trigger: str, key: str, *, by: str, via: str) -> DeliveryRow:
        """Let a dead delivery be tried again from the beginning; one that is new is due at once, and one that is done stays so."""
        return await self._submit(lambda tx: _steer(tx, "replay_delivery", trigger, key, by, via), journal=False)

    async def dismiss_delivery(self, trigger: str, key: str, *, by: str, via: str) -> DeliveryRow:
        """Let a delivery be done that is dead, or waits, without doing anything; one that a worker has stays as it is."""
        return await self._submit(lambda tx: _steer(tx, "dismiss_delivery", trigger, key, by, via), journal=False)

    async def replay_dead(self, trigger: str, until: int, *, by: str, via: str) -> int:
        """Let some of the deliveries be tried again that were dead at a time; returns how many, and 0 when none is left."""
        return await self._submit(lambda tx: _replay_dead(tx, trigger, until, by, via), journal=False)

    async def delete_trigger(self, name: str, *, by: str, via: str) -> None:
        """Forget a trigger that no worker declares. Its deliveries stay for as long as others do that have ended."""
        await self._submit(lambda tx: _delete(tx, name, by, via), journal=False)

    async def prune_deliveries(self, before: int) -> int:
        """Delete some deliveries that ended before a time, or came before it for what no code declares; returns how many."""
        return await self._submit(lambda tx: _prune(tx, before), journal=False)

    async def give_up_messages(self, before: int) -> int:
        """Let some messages of notifications be dead that have been due since before a time; returns how many."""
        return await self._submit(lambda tx: _give_up(tx, before), journal=False)

    async def deliveries(
        self, trigger: str, status: str, *, before: int | None = None, limit: int = 100
    ) -> list[DeliveryRow]:
        """Read deliveries of a trigger in a state, the latest first."""
        until = (1 << 62) if before is None else before
        found = await self._read(rows, "deliveries", trigger=trigger, status=status, before=until, limit=limit)
        return [DeliveryRow(*row) for row in found]

    async def delivery(self, trigger: str, key: str) -> tuple[DeliveryRow, bytes]:
        """Read one with its body; `UnknownTrigger` if there is none."""
        found = await self._read(rows, "delivery", trigger=trigger, key=key)
        if not found:
            raise unknown_delivery(trigger, key)
        return DeliveryRow(*found[0][:-1]), bytes(found[0][-1])


def unknown_delivery(trigger: str, key: str) -> UnknownTrigger:
    """Make the error for a delivery that is not there."""
    return UnknownTrigger(f"trigger {trigger!r} has no delivery {key!r}; `holdfast triggers {trigger}` lists them")


def _prune(tx: Transaction, before: int) -> Asking[int]:
    ended = yield from tx.rows("prune_deliveries", before=before, limit=_AT_ONCE)
    left = yield from tx.rows("prune_undeclared", before=before, mark=OUTGOING, limit=_AT_ONCE)
    return len(ended) + len(left)


def _declare(tx: Transaction, declared: Sequence[DeclaredTrigger]) -> Asking[list[TriggerRow]]:
    others: list[TriggerRow] = []
    yield from declarations.forget_gone(tx)
    for each in sorted(declared, key=lambda each: each.name):
        yield from declarations.declare(tx, PREFIX + each.name, each.digest)
        row = yield from tx.row("lock_trigger", name=each.name)
        present = None if row is None else TriggerRow(*row)
        if present is not None and present.digest == each.digest:
            continue
        before, alike = (None, True) if present is None else (present.digest, present.kind == each.kind)
        if (yield from declarations.takes_effect(tx, PREFIX + each.name, each.digest, before, alike=alike)):
            yield from tx.rows("put_trigger", name=each.name, kind=each.kind, config=each.config, digest=each.digest)
        elif present is not None and not alike:
            others.append(present)
    return others


def _taken(tx: Transaction, name: str, count: int, lag: int | None, lately: bool) -> Asking[None]:
    left = yield from tx.rows("end_taken", name=TAKEN + name)  # each row is deleted by one worker, which adds it
    more = count + sum(int(each) for (each,) in left)
    yield from tx.rows("note_taken", name=name, taken=more, lag=lag, taken_at=tx.now if count or lately else None)


def _note_broker(tx: Transaction, name: str, since: int | None, error: str) -> Asking[None]:
    if since is None:
        yield from tx.rows("undeclare", name=_AWAY + name)
    else:
        yield from declarations.declare(tx, _AWAY + name, to_json({"since": since, "error": _kept(error)}))


def _delete(tx: Transaction, name: str, by: str, via: str) -> Asking[None]:
    row = yield from tx.row("lock_trigger", name=name)
    if row is None:
        raise UnknownTrigger(f"there is no trigger {name!r}; `holdfast triggers` lists them")
    yield from tx.rows("delete_trigger", name=name)
    yield from tx.rows("unsubscribe", run="", topic=name)
    yield from tx.rows("forget_schedule", name=PREFIX + name)
    yield from audit.note(tx, "", by, via, "delete_trigger", {"trigger": name})


def _kept(error: str) -> str:
    return writable(error[:_LONGEST_ERROR])  # it may repeat what others wrote


def _kinds(triggers: Wanted) -> dict[str, str]:
    return dict(triggers) if isinstance(triggers, Mapping) else dict.fromkeys(triggers, "")


def keep(tx: Transaction, new: NewDelivery) -> Asking[bool]:
    """Keep a delivery; False if it is there already."""
    dead = new.error is not None and new.wait_ms is None
    made = yield from tx.row(
        "receive_delivery", trigger=new.trigger, key=new.key, kind=new.kind, headers=to_json(dict(new.headers)),
        status="dead" if dead else "new", attempts=new.attempts, due_at=None if dead else tx.now + (new.wait_ms or 0),
        error=None if new.error is None else _kept(new.error), settled_at=tx.now if dead else None,
        size=len(new.body), content=new.body,
    )  # fmt: skip
    if made is not None:
        tx.changed(NEWS)
    return made is not None


def _claim(tx: Transaction, triggers: Wanted, limit: int, ttl_ms: int) -> Asking[list[tuple[DeliveryRow, bytes]]]:
    taken: list[tuple[DeliveryRow, bytes]] = []
    kinds = _kinds(triggers)
    due = {name for (name,) in (yield from tx.rows("due_triggers", names=to_json(kinds)))}
    share = max(limit // max(len(due), min(len(kinds), 2), 1), 1)  # half for one alone: more may come for another
    for name in [name for name in kinds if name in due]:
        if len(taken) >= limit:
            break
        for found in (yield from tx.rows("due_deliveries", trigger=name, kind=kinds[name], limit=share)):
            row, body = DeliveryRow(*found[:-1]), bytes(found[-1])
            crashed = row.claims - row.attempts >= _MOST_CRASHES
            made = yield from tx.row(
                "take_delivery", trigger=row.trigger, key=row.key, due_at=None if crashed else tx.now + ttl_ms,
                status="dead" if crashed else "new", settled_at=tx.now if crashed else None,
                error=f"{_MOST_CRASHES} workers ended while they had it" if crashed else row.error,
            )  # fmt: skip
            if crashed:
                yield from _note_death(tx, DeliveryRow(*made))
            else:
                taken.append((replace(DeliveryRow(*made), due_at=row.due_at), body))
    return taken


def _apply(
    tx: Transaction, acts: Sequence[Act], taken: DeliveryRow | None, counted: str
) -> Asking[list[dict[str, Any]]]:
    if taken is not None and tx.again:
        found = yield from tx.row("delivery", trigger=taken.trigger, key=taken.key)
        before = None if found is None else DeliveryRow(*found[:-1])
        if before is not None and before.status == "done" and before.claims == taken.claims:
            return outcome_of(before)  # our own commit, which was unknown
    outcome: list[dict[str, Any]] = []
    told = tx.told
    for act in acts:
        done = yield from act(tx)
        outcome.append(done)
    if counted and tx.told > told:
        tx.took(counted)
    if taken is not None:
        ended = yield from tx.row(
            "end_delivery", trigger=taken.trigger, key=taken.key, claims=taken.claims, outcome=to_json(outcome),
            status="done", due_at=None, settled_at=tx.now, attempts=taken.attempts, error=None,
        )  # fmt: skip
        yield from _fenced(tx, taken, ended)
    return outcome


def _fail(tx: Transaction, taken: DeliveryRow, error: str, wait_ms: int | None) -> Asking[None]:
    dead = wait_ms is None
    ended = yield from tx.row(
        "end_delivery", trigger=taken.trigger, key=taken.key, claims=taken.claims, outcome=None,
        status="dead" if dead else "new", due_at=None if wait_ms is None else tx.now + wait_ms,
        settled_at=tx.now if dead else None, attempts=taken.attempts + 1, error=_kept(error),
    )  # fmt: skip
    yield from _fenced(tx, taken, ended)
    if dead and ended is not None:
        yield from _note_death(tx, taken)


def _leave(tx: Transaction, taken: DeliveryRow, why: str) -> Asking[None]:
    left = yield from tx.row(
        "leave_delivery",
        trigger=taken.trigger,
        key=taken.key,
        claims=taken.claims,
        due_at=taken.due_at,
        error=_kept(why),
    )
    if left is None and not tx.again:
        raise LeaseLost
    tx.changed(NEWS)


def _recall(tx: Transaction, longest_ms: Mapping[str, int], ttl_ms: int) -> Asking[int]:
    count = 0
    for trigger in sorted(longest_ms):
        until = tx.now + max(longest_ms[trigger], ttl_ms) + _AHEAD_MS
        due = yield from tx.rows("recall_deliveries", trigger=trigger, until=until, ttl=ttl_ms, limit=_AT_ONCE)
        came = yield from tx.rows("recall_received", trigger=trigger, until=tx.now + _AHEAD_MS, limit=_AT_ONCE)
        count += len(due) + len(came)
    if count:
        tx.changed(NEWS)
    return count


def _give_up(tx: Transaction, before: int) -> Asking[int]:
    error = f"it has not gone out for {RETENTION_MS // _DAY_MS} days: no worker could send it, or its notification was paused"
    found = yield from tx.rows("give_up_deliveries", mark=OUTGOING, before=before, error=error, limit=_AT_ONCE)
    for row in found:
        yield from _note_death(tx, DeliveryRow(*row))
    return len(found)


def _note_death(tx: Transaction, row: DeliveryRow) -> Asking[None]:
    """Have it in the audit that a message did not go out, because nobody else would know. The sender of a dead letter does."""
    if row.trigger.startswith(OUTGOING):
        name = row.trigger.removeprefix(OUTGOING)
        about = {"notification": name, "message": row.key, "type": json.loads(row.headers).get("type")}
        yield from audit.note(tx, "", "worker", f"notify:{name}", "notification_dead", about)


def _fenced(tx: Transaction, taken: DeliveryRow, ended: Any) -> Asking[None]:
    """Raise `LeaseLost` if a delivery was not ours to end, unless our own lost commit has ended it."""
    if ended is not None:
        return
    found = yield from tx.row("delivery", trigger=taken.trigger, key=taken.key)
    now = None if found is None else DeliveryRow(*found[:-1])
    if not (tx.again and now is not None and now.owner is None and now.claims == taken.claims):
        raise LeaseLost


def release(tx: Transaction) -> Asking[None]:
    """Give back the deliveries of this worker, which has not begun to apply them."""
    if (yield from tx.rows("release_deliveries")):
        tx.changed(NEWS)


def orphan(tx: Transaction, worker: str) -> Asking[None]:
    """Make the deliveries due that a dead worker had."""
    if (yield from tx.rows("orphan_deliveries", worker=worker)):
        tx.changed(NEWS)


def _steer(tx: Transaction, what: str, trigger: str, key: str, by: str, via: str) -> Asking[DeliveryRow]:
    row = yield from tx.row(what, trigger=trigger, key=key)
    if row is not None:
        tx.changed(NEWS)
        yield from audit.note(tx, "", by, via, what, {"trigger": trigger, "delivery": key})
        return DeliveryRow(*row)
    found = yield from tx.row("delivery", trigger=trigger, key=key)
    if found is None:
        raise unknown_delivery(trigger, key)
    return DeliveryRow(*found[:-1])


def _replay_dead(tx: Transaction, trigger: str, until: int, by: str, via: str) -> Asking[int]:
    found = yield from tx.rows("replay_dead_deliveries", trigger=trigger, until=until, limit=_AT_ONCE)
    if found:
        tx.changed(NEWS)
        yield from audit.note(tx, "", by, via, "replay_delivery", {"trigger": trigger, "count": len(found)})
    return len(found)


def outcome_of(row: DeliveryRow) -> list[dict[str, Any]]:
    """Read what was done about a delivery."""
    found: list[dict[str, Any]] = [] if row.outcome is None else json.loads(row.outcome)
    return found
