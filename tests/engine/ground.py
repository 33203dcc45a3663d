"""Another ground under the engine: runs that are kept in lists and dicts, and a host that carries them, without a worker.

`MemoryStore` is an `EngineStore`: rows by id, journals and inboxes as lists. `Ground` is a `Host`: it claims what is due, begins
it, and tells an attempt what came for it. Nothing here knows SQL or files; words and pure rules of the project are reused.

The store is as unkind as a store may be. A write waits for a random number of turns of the loop, shares its commit with others or
does not, and may be told before `post` returns if nothing else is on its way. Chance decides whether the store takes what came to
a run or the engine reads it, and whether a claim brings the journal along. Nothing of that may change a journal. `late_s` also
lets time pass before a commit, which may.

`drop` is a crash: every attempt is lost at that moment, and of the writes on their way the first ones may be there.
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from holdfast.engine.execute import begin
from holdfast.engine.host import EARLY_MS
from holdfast.engine.performer import perform
from holdfast.engine.slots import Freed
from holdfast.errors import LeaseLost, RunFinished
from holdfast.runtime import outside
from holdfast.store.appends import InboxMoved, QueuedAppend
from holdfast.store.contract import EngineStore
from holdfast.store.inbox import MOST, Taken, wake_token
from holdfast.store.work import settle, to_json
from holdfast.values.codec import DEFAULT_LIMIT_BYTES
from holdfast.words.model import FINISHED, Claimed, Event, RunRow, Signal

_SIMPLE = ("message.received", "child.ended")  # kinds of signals that the store takes by itself


class MemoryStore:
    """Keeps runs. `tell` hears which of them a commit made due, or ended."""

    def __init__(self, clock, dice, late_s=0.0):
        self.clock, self._dice, self._late_s = clock, dice, late_s
        self.runs, self.events, self.signals, self.blobs = {}, {}, {}, {}
        self._sent = {}  # positions of signals, by run and id
        self._queue, self._pumping = deque(), False
        self._due, self.tell = [], None
        self.trouble = None  # what was asked for that is not here
        self._loop, self._context = asyncio.get_running_loop(), outside()

    # The owner's writes

    def post(self, append, told, *, alone=False):
        queued = QueuedAppend(append, told)
        if alone and not self._queue and self._dice.random() < 0.5:
            self._commit(functools.partial(self._append, queued), told)
            self._announce()
        else:
            self._enqueue(functools.partial(self._append, queued), told)

    def append(self, append):
        future = self._loop.create_future()
        self.post(append, functools.partial(settle, future))
        return future

    def _enqueue(self, do, told):
        self._queue.append((do, told))
        if not self._pumping:
            self._pumping = True
            self._soon()

    def _soon(self):
        if self._late_s:
            self._loop.call_later(self._dice.random() * self._late_s, self._pump, context=self._context)
        else:
            self._loop.call_soon(self._pump, context=self._context)

    def _pump(self):
        """Commit the first of what waits, or wait for another turn."""
        if self._queue and self._dice.random() < 0.6:
            for _ in range(self._dice.randint(1, len(self._queue))):
                self._commit(*self._queue.popleft())
                if not self._queue:  # what it was told may have dropped all
                    break
        self._announce()
        self._pumping = bool(self._queue)
        if self._pumping:
            self._soon()

    def _commit(self, do, told):
        value = error = None
        try:
            value = do()
        except (LeaseLost, InboxMoved, RunFinished) as refused:
            error = refused
        except Exception as trouble:  # whoever waits for the runs must hear
            self.trouble = error = trouble
        told(value, error)

    def _announce(self):
        due, self._due = self._due, []
        if due:
            self.tell(due)

    def crash(self):
        """Forget what was not committed; of that the first writes may have been."""
        for do, _ in list(self._queue)[: self._dice.randint(0, len(self._queue))]:
            with contextlib.suppress(LeaseLost, InboxMoved, RunFinished):
                do()
        self._queue.clear()
        self._due.clear()

    def _append(self, queued):
        append, transition, now = queued.append, queued.append.transition, self.clock.now()
        if append.approvals or append.withdraws or append.talks or append.pieces or queued.spendings:
            raise NotImplementedError(f"{append}: only events, large values, children and transitions are kept here")
        if append.announces:
            raise NotImplementedError(f"{append}: nothing is published here")
        row = self._fenced(append.run, append.epoch, append.expected_seq)
        if transition is not None and transition.inbox_seen is not None and row.inbox_count > transition.inbox_seen:
            raise InboxMoved
        self.blobs |= append.blobs or {}
        for child in append.children:
            self.create(child)
        self._record(row, queued.rows, now)
        row.steps += queued.steps
        if append.checkpoint_seq is not None:
            row.checkpoint_seq = append.checkpoint_seq
        if append.inbox_seen is not None:
            row.inbox_seen = append.inbox_seen
        if transition is not None:
            self._leave(row, transition, now)
        return now

    def _fenced(self, run, epoch, seq):
        row = self.runs[run]
        if (row.status, row.lease_epoch, row.next_seq) != ("running", epoch, seq):
            raise LeaseLost(f"{run} is {row.status} at epoch {row.lease_epoch}, seq {row.next_seq}")
        return row

    def _record(self, row, rows, now):
        """Keep events as a database would: as texts."""
        assert [each[1] for each in rows] == list(range(row.next_seq, row.next_seq + len(rows)))
        self.events[row.id] += [(*each, now) for each in rows]
        row.next_seq += len(rows)

    def _leave(self, row, transition, now):
        waits = transition.status == "waiting"
        row.status, row.lease_owner = transition.status, None
        row.due_at = now if row.status == "ready" else transition.due_at if waits else None
        row.waits_for = transition.waits_for if waits else None
        row.awaits = to_json(list(transition.awaits)) if waits and transition.awaits is not None else None
        row.result, row.error, row.reason = transition.result, transition.error, transition.reason
        self._due.append(row.id)
        if row.status in FINISHED:
            if transition.ends_below is not None:
                raise NotImplementedError("no run is cancelled here")
            row.finished_at = now
            if row.parent_id is not None:
                error = None if row.error is None else json.loads(row.error)
                data = {"child": row.id, "status": row.status, "error": error}
                signal_id = f"child:{row.id}:{row.lease_epoch}"
                with contextlib.suppress(RunFinished):
                    self.put_signal(row.parent_id, signal_id, "child.ended", row.id, row.result, data)

    # From outside

    def create(self, new):
        """Keep a run that is not there yet."""
        if new.id in self.runs:
            return
        now = self.clock.now()
        if new.lane.limit_key or new.lane.rate_key or new.lane.singleton_key or new.budget:
            raise NotImplementedError(f"{new}: no run is limited here")
        self.runs[new.id] = RunRow(
            new.id, new.uid, new.agent, "ready", new.input, new.version, new.queue, now + new.delay_ms, labels=new.labels,
            parent_id=new.parent_id, parent_key=new.parent_key, root_id=new.root_id or new.id, created_at=now,
            updated_at=now, identity=new.identity,
        )  # fmt: skip
        self.events[new.id], self.signals[new.id] = [], []
        self._due.append(new.id)

    async def send(self, run, signal_id, kind, topic, value, data):
        """Send a signal, as a client does."""
        future = self._loop.create_future()
        put = functools.partial(self.put_signal, run, signal_id, kind, topic, value, data)
        self._enqueue(put, functools.partial(settle, future))
        return await future

    def put_signal(self, run, signal_id, kind, topic, value, data):
        row = self.runs[run]
        if (run, signal_id) in self._sent:
            return self._sent[run, signal_id]
        if row.status in FINISHED:
            raise RunFinished(f"{run} is {row.status}")
        now = self.clock.now()
        row.inbox_count += 1
        awaited = row.awaits is None or wake_token(kind, topic) in json.loads(row.awaits)
        if row.status == "waiting" and awaited and (row.due_at is None or row.due_at > now):
            row.due_at = now
        self._sent[run, signal_id] = row.inbox_count
        self.signals[run].append((row.inbox_count, kind, topic, value, to_json(data), now))
        self._due.append(run)
        return row.inbox_count

    def claim(self, run):
        """Take a run under the next epoch; one that was running lost its owner."""
        row = self.runs[run]
        row.lease_epoch += 1
        if row.status == "running":
            data = to_json({"owner": row.lease_owner, "epoch": row.lease_epoch - 1, "by": "ground", "how": "dead"})
            interrupted = (run, row.next_seq, "run.interrupted", None, data, None, None, row.lease_epoch)
            self._record(row, [interrupted], self.clock.now())
        row.status, row.lease_owner, row.due_at, row.waits_for, row.awaits = "running", "ground", None, None, None
        if self._dice.random() < 0.5:
            return dataclasses.replace(row)
        given = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        return Claimed(**given, journal=self.read(run, row.checkpoint_seq or 0), silent=True)

    # Reading

    def read(self, run, from_seq=0):
        """The events of a run, each made anew."""
        return [
            Event(seq, kind, key, json.loads(data or "{}"), value, blob, at, epoch, run)
            for _, seq, kind, key, data, value, blob, epoch, at in self.events[run]
            if seq >= from_seq
        ]

    async def run(self, run):
        row = self.runs.get(run)
        return None if row is None else dataclasses.replace(row)

    async def journal(self, run, from_seq=0):
        await self._a_while()
        return self.read(run, from_seq)

    async def inbox(self, run, after):
        await self._a_while()
        return self._after(run, after)

    def _after(self, run, after):
        found = [
            Signal(position, kind, topic, value, json.loads(data), sent_at)
            for position, kind, topic, value, data, sent_at in self.signals[run]
        ]
        return [signal for signal in found if signal.position > after]

    async def blob(self, digest):
        return self.blobs[digest]

    async def streams(self, run):
        return []

    async def _a_while(self):
        for _ in range(self._dice.choice((0, 0, 1, 3))):
            await asyncio.sleep(0)

    def take(self, run, epoch, expected_seq, seen):
        if self._dice.random() < 0.5:
            return None
        future = self._loop.create_future()
        self._enqueue(functools.partial(self._take, run, epoch, expected_seq, seen), functools.partial(settle, future))
        return future

    def _take(self, run, epoch, seq, seen):
        row, came = self._fenced(run, epoch, seq), self._after(run, seen)
        fits = len(came) < MOST and all(signal.kind in _SIMPLE and signal.recorded() is not None for signal in came)
        if not came or not fits:
            return Taken([], more=bool(came))
        now, rows = self.clock.now(), []
        for nth, signal in enumerate(came):
            position = {"position": signal.position} if signal.kind == "message.received" else {}
            data = to_json(signal.recorded() | position)
            rows.append((run, seq + nth, signal.kind, None, data, signal.value, None, epoch))
        self._record(row, rows, now)
        row.inbox_seen = came[-1].position
        return Taken(self.read(run, seq), more=False)


def _absent(name):
    def method(self, *args, **kwargs):
        raise NotImplementedError(f"{name}{args}: no program here needs it")

    method.absent = True
    return method


for _name in set(dir(EngineStore)) - set(dir(MemoryStore)):
    if not _name.startswith("_"):
        setattr(MemoryStore, _name, _absent(_name))


class Ground:
    """Carries the runs of one store. It is the `Host` of their attempts."""

    value_limit_bytes, recorded, resources, inputs = DEFAULT_LIMIT_BYTES, None, None, None
    perform, ahead_ms = staticmethod(perform), 0

    def __init__(self, clock, specs, *, seed=0, park_s=None, replace=None, late_s=0.0):
        dice = random.Random(f"ground {seed}")
        self.clock, self.store, self.slots, self.threads = (
            clock,
            MemoryStore(clock, dice, late_s),
            Freed(),
            ThreadPoolExecutor(2),
        )
        self.attempts, self.drops, self._down = {}, 0, False
        self._specs, self._park_s, self._replace = {spec.name: spec for spec in specs}, park_s, replace or {}
        self._came = {}  # runs that are being loaded: did something come meanwhile?
        self._carriers, self._strays, self._ended = set(), set(), asyncio.Event()
        self._loop, self._context = asyncio.get_running_loop(), outside()
        self.store.tell = self._changed

    # Carrying

    def start(self, new):
        """Keep a run, and begin it."""
        self.store.create(new)
        self.store._announce()

    async def ended(self):
        """Wait until every run has ended; returns how each did."""
        while any(row.status not in (*FINISHED, "paused") for row in self.store.runs.values()):
            self._ended.clear()
            await self._ended.wait()
            if self.store.trouble is not None:
                raise self.store.trouble
        while self._carriers:
            await asyncio.wait(self._carriers)
        return {run: (row.status, row.result, row.error, row.reason) for run, row in self.store.runs.items()}

    def _changed(self, runs):
        for run in dict.fromkeys(runs):
            attempt = self.attempts.get(run)
            if attempt is not None and not attempt.leaves:
                attempt.notice(sure=True)
            elif run in self._came:
                self._came[run] = True
            else:
                self._look(run)
        self._ended.set()

    def _look(self, run):
        """Begin a run that is due; look again when it will be."""
        row, now = self.store.runs[run], self.clock.now()
        if self._down or row.due_at is None or row.status not in ("ready", "waiting") or run in self._came:
            return
        due = row.due_at - (EARLY_MS if row.status == "waiting" else 0)
        if due > now:
            self.clock.call_at(due, lambda: self._look(run))
        elif run not in self.attempts:
            self._carry(run)

    def _carry(self, run):
        self._came[run] = False
        carrier = self._loop.create_task(
            self._carry_on(self.store.claim(run), self.drops), context=self._context.copy()
        )
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carried)

    def _carried(self, carrier):
        self._carriers.discard(carrier)
        self.store.trouble = self.store.trouble or carrier.exception()
        self._ended.set()

    async def _carry_on(self, row, drops):
        attempt = await begin(self, row, self._specs[row.agent])
        if drops != self.drops:
            attempt.abandon()
        else:
            self.attempts[row.id] = attempt
            if self._came.pop(row.id):
                attempt.notice()
        outcome = await attempt.ended
        await attempt.unwound()
        if drops == self.drops:
            assert outcome in ("ended", "parked", "paused"), f"{row.id} is {outcome}: {attempt.unfit}"
            del self.attempts[row.id]
            self._look(row.id)

    async def drop(self):
        """Lose every attempt, as a crash does, and begin all that was running under the next epoch."""
        self.drops, self._down = self.drops + 1, True
        self.store.crash()
        for attempt in self.attempts.values():
            attempt.abandon()
        self.attempts.clear()
        self._came.clear()
        while self._carriers:
            await asyncio.wait(self._carriers)
        self._down = False
        for run, row in list(self.store.runs.items()):
            if row.status == "running":
                self._carry(run)
            else:
                self._look(run)

    async def close(self):
        for stray in self._strays:
            stray.cancel()
        await asyncio.gather(*self._strays, return_exceptions=True)
        self.threads.shutdown()

    # What a run needs of its host

    def park_grace_s(self, run):
        return self._park_s

    def serve(self, spec):
        self._specs.setdefault(spec.name, spec)

    def spec_of(self, agent):
        return self._specs.get(agent)

    def new_task(self, make):
        return make()

    def patched(self, patch):
        return None

    def replacement(self, spec):
        return self._replace.get(spec)

    def overrides(self, root):
        return ()

    def body_runs(self, spec, key):
        pass

    def body_ended(self, how, seconds):
        pass

    def spent(self, agent, spendings):
        raise NotImplementedError("nothing costs anything here")

    def trusted(self, lease_until):
        return True

    async def trust(self):
        raise NotImplementedError("every lease is trusted here")

    def keep(self, stray):
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)
