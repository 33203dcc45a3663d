"""Queues in a worker: it takes messages from brokers, maps them, has the actions applied, and acknowledges them then.

Look here when messages are not taken, come again and again, or are not acknowledged.

The broker keeps a message until it is acknowledged, and that is after the commit. So a worker may die at any moment: the message
comes again, and its actions have the keys that they had, which makes them nothing new. The store sees a message only through its
actions.

A message whose mapping fails is kept in the store as a delivery, with its first attempt counted, and is acknowledged. From then on
it is tried again and dies like any other (triggers.py), its waits hold up no other message, and a person sees it.

A message that was taken while too many calls of the mapping hang in this worker is kept as a delivery too, with no attempt counted,
and no more are taken: other workers read the queue.

One task reads, so that the rest of a batch is mapped and committed while the next comes. Mapped messages are committed together,
as all writes of one turn of the loop are, and one that fails fails alone. `in_flight` bounds what is taken and not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.contract import WorkerStore
from holdfast.store.triggers import NewDelivery
from holdfast.values.text import cut
from holdfast.words.durations import moment
from holdfast.words.harmless import logger
from holdfast.words.queues import Address, Message, address_of, key_of, makeshift_key, why_no_key
from holdfast.words.triggers import Delivery, TriggerSpec, actions, delivery_key
from holdfast.worker.agents import Served
from holdfast.worker.brokers.contract import CONNECT_S, TAKE_S, Connect, Connection, QueueMissing, Reading
from holdfast.worker.mappings import Mapper, Raised, told_of
from holdfast.worker.measures import Measures
from holdfast.worker.rounds import Round
from holdfast.worker.triggers import Apply, failure

_log = logger("holdfast")
KIND: Final = "queue"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0  # before a broker is tried again
_TELL_EVERY_S: Final = 60.0  # that a broker is still away
_LONGEST_REASON: Final = 500
_LAG_EVERY_S: Final = 5.0
_GRACE_S: Final = 2.0  # for mappings when the connection or the worker ends
_GOODBYE_S: Final = 5.0  # for a broker, to acknowledge, give back and close
_STORE_S: Final = 1.0  # before a store that cannot be written is tried again
_HANGS_S: Final = 1.0  # before a mapping of which too many calls hang is looked at again
_MOST_BEFORE: Final = 25  # times that a message was given before it is suspected to end its workers


def adapter(address: Address) -> Connect:
    """Import the adapter of a broker; `BadArguments` if the package it needs is not installed."""
    broker = address.broker
    try:
        module = importlib.import_module(f"holdfast.worker.brokers.{broker.name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in (broker.package, "botocore"):
            raise
        raise BadArguments(
            f'{address.shown} needs a package that is not installed ({error}): pip install "holdfast[{broker.extra}]"'
        ) from error
    return cast("Connect", module.connect)


class Queues(Round):
    """One worker's part in reading queues. A copy that was restored and is held reads none."""

    what, news = "queues", " queues"

    def __init__(self, store: WorkerStore, measures: Measures, mapper: Mapper, apply: Apply) -> None:
        super().__init__(store.clock)
        self._store, self._measures, self._mapper, self._apply = store, measures, mapper, apply
        self._worker = f"worker-{secrets.token_hex(6)}"  # as brokers know it
        self._wanted: dict[str, Consumer] = {}
        self._reading: dict[str, Consumer] = {}

    def serve(self, served: Served) -> None:
        """Read the queues of these triggers from now on. `BadArguments` if a package or a variable is not there."""
        wanted: dict[str, Consumer] = {}
        for spec in served.triggers:
            if spec.kind != KIND:
                continue
            known = self._wanted.get(spec.name)
            wanted[spec.name] = known if known is not None and known.spec is spec else self._consumer(spec)
        self._wanted = wanted
        self.wake()

    def _consumer(self, spec: TriggerSpec) -> Consumer:
        address = address_of(spec.url).resolved(os.environ)
        reading = Reading(
            f"holdfast-{spec.name}", self._worker, spec.config["in_flight"], spec.config["redeliver_ms"] / 1000
        )
        return Consumer(
            spec, address, reading, adapter(address), self._store, self._measures, self._mapper, self._apply
        )

    async def turn(self) -> int | None:
        """Begin to read what is wanted, and end what is not any more."""
        gone = [each for name, each in self._reading.items() if self._wanted.get(name) is not each]
        await asyncio.gather(*[each.stop() for each in gone])
        self._reading = {name: each for name, each in self._reading.items() if each not in gone}
        if len(self._reading) < len(self._wanted) and not await self._store.held():
            for name, each in self._wanted.items():
                if name not in self._reading:
                    each.start()
                    self._reading[name] = each
        return None

    async def keep(self) -> None:
        """Take turns for ever. At the end messages that are mapped may be applied, and the others are given back."""
        try:
            await super().keep()
        finally:
            ending = asyncio.gather(*[each.stop() for each in self._reading.values()])
            while not ending.done():
                with contextlib.suppress(asyncio.CancelledError):  # told again: it takes a few seconds at most
                    await asyncio.shield(ending)


class Consumer:
    """A queue that is read for a trigger, over as many connections as it takes."""

    def __init__(
        self, spec: TriggerSpec, address: Address, reading: Reading, connect: Connect, store: WorkerStore,
        measures: Measures, mapper: Mapper, apply: Apply,
    ) -> None:  # fmt: skip
        self.spec = spec
        self._address, self._reading, self._connect = address, reading, connect
        self._store, self._measures, self._mapper, self._apply = store, measures, mapper, apply
        self._taken: dict[int, tuple[Message, float]] = {}  # and not acknowledged, with the time to hold each
        self._ended: list[Message] = []  # to be acknowledged
        self._ends, self._room, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._told_at: float | None = None  # when the log was told that the broker is away
        self._since: int | None = None  # the broker is away since then
        self._noted: tuple[int, str] | None = None  # what the store was told of that
        self._connected = False
        self._empty = 0  # messages without actions since the store was told; the others are counted with their actions
        self._lately = False  # some were applied since then
        self._lag: int | None = None
        self._told_lag: int | None = None

    # Life

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Take no more, let messages that are mapped be applied, acknowledge them, and give the others back."""
        self._over.set()
        self._room.set()
        if self._task is not None and not self._connected:
            self._task.cancel()  # nothing was taken
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=TAKE_S + _GRACE_S + 2 * _GOODBYE_S)
            if not done:
                self._task.cancel()

    async def _keep(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._over.is_set():
            began = time.monotonic()
            try:
                await self._read_once()
            except Exception as problem:
                await self._trouble(problem)
            if time.monotonic() > began + _LONGEST_WAIT_S:
                wait_s = _FIRST_WAIT_S  # it had worked for a while
            self._connected = self._measures.connected[self.spec.name] = False
            self._lag = self._told_lag = None
            self._measures.lag.pop(self.spec.name, None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s * random.uniform(0.75, 1)):
                    await self._over.wait()
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        for told in (self._measures.connected, self._measures.lag, self._measures.away):
            told.pop(self.spec.name, None)
        await self._note_broker(None)

    async def _trouble(self, problem: Exception) -> None:
        """Say that the broker is away, in the store at once and where the reason changes, in the log once a minute."""
        text = str(problem) if isinstance(problem, QueueMissing) else f"{type(problem).__name__}: {problem}"
        told, now = cut(self._address.told(text), _LONGEST_REASON), time.monotonic()
        if self._since is None:
            self._since = self._measures.away[self.spec.name] = self._store.clock.now()
        await self._note_broker((self._since, told))
        if self._told_at is not None and now < self._told_at + _TELL_EVERY_S:
            return
        self._told_at = now
        _log.warning("trigger %r cannot read %s and tries again: %s", self.spec.name, self._address.shown, told)

    async def _note_broker(self, away: tuple[int, str] | None) -> None:
        """Note in the store, for people, whether the broker is away."""
        if away == self._noted:
            return
        try:
            await self._store.note_broker(self.spec.name, *(away or (None,)))
            self._noted = away
        except StoreUnavailable:
            pass  # the next try tells it

    # One connection

    async def _read_once(self) -> None:
        async with asyncio.timeout(CONNECT_S * 2):
            connection = await self._connect(self._address, self._reading)
        if self._told_at is not None:
            _log.warning("trigger %r reads %s again", self.spec.name, self._address.shown)
        self._told_at = self._since = None
        self._measures.away.pop(self.spec.name, None)
        await self._note_broker(None)
        self._connected = self._measures.connected[self.spec.name] = True
        tasks = [
            asyncio.get_running_loop().create_task(each)
            for each in (self._read(connection), self._acknowledge(connection), self._tend(connection))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._leave(connection, tasks)
        for each in tasks:
            if not each.cancelled() and (error := each.exception()) is not None:
                raise error

    async def _leave(self, connection: Connection, tasks: list[asyncio.Task[None]]) -> None:
        """End a connection: what is being mapped may end, and is acknowledged; the rest is given back."""
        for each in (tasks[0], tasks[2]):
            each.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=_GRACE_S)
        for each in (tasks[1], *self._busy):
            each.cancel()
        await asyncio.gather(*tasks, *self._busy, return_exceptions=True)
        self._busy.clear()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self._send_ends(connection)
                await connection.give_back([message for message, _ in self._taken.values()])
        except Exception as problem:
            _log.debug("what %s had could not be given back: %s", self._address.shown, self._address.told(problem))
        self._taken.clear()
        self._ended.clear()
        await self._tell()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await connection.close()
        except Exception as problem:
            _log.debug("%s could not be closed: %s", self._address.shown, self._address.told(problem))

    async def _read(self, connection: Connection) -> None:
        while not self._over.is_set():
            self._room.clear()
            room = self._reading.in_flight - len(self._taken)
            if room <= 0:
                await self._room.wait()
                continue
            if self._mapper.hangs(self.spec.name):
                await asyncio.sleep(_HANGS_S)
                continue
            messages = await connection.take(room)
            if not messages:
                continue
            hold_at = time.monotonic() + self._reading.redeliver_s / 3
            self._taken.update((id(each), (each, hold_at)) for each in messages)
            if self._over.is_set():
                return
            task = asyncio.get_running_loop().create_task(self._handle(messages))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)

    async def _acknowledge(self, connection: Connection) -> None:
        while True:
            await self._ends.wait()
            self._ends.clear()
            await self._send_ends(connection)

    async def _send_ends(self, connection: Connection) -> None:
        ended, self._ended = self._ended, []
        if ended:
            await connection.done(ended)
            for each in ended:
                self._taken.pop(id(each), None)
            self._room.set()

    async def _tend(self, connection: Connection) -> None:
        """Hold what takes long, and ask how much there is to do."""
        lag_at = 0.0
        while True:
            now = time.monotonic()
            if now >= lag_at:
                self._lag, lag_at = await connection.lag(), now + _LAG_EVERY_S
                if self._lag is not None:
                    self._measures.lag[self.spec.name] = self._lag
                await self._tell()
            late = [message for message, hold_at in self._taken.values() if now >= hold_at]
            if late:
                await connection.hold(late)
                hold_at = now + self._reading.redeliver_s / 3
                self._taken.update((id(each), (each, hold_at)) for each in late if id(each) in self._taken)
            await asyncio.sleep(min(self._reading.redeliver_s / 6, 1.0))

    async def _tell(self) -> None:
        """Note in the store, for people, how many messages had no actions to be counted with, and how many wait."""
        count, lag, lately, self._empty, self._lately = self._empty, self._lag, self._lately, 0, False
        if not lately and lag == self._told_lag:
            return
        try:
            await self._store.note_taken(self.spec.name, count, lag, lately=lately)
            self._told_lag = lag
        except StoreUnavailable:
            self._empty, self._lately = self._empty + count, True

    # Messages

    async def _handle(self, messages: Sequence[Message]) -> None:
        """Map messages and settle each. A plain function maps many in one go; one that is async all at once."""
        known: list[tuple[Message, Delivery]] = []
        async with asyncio.TaskGroup() as group:
            for each in messages:
                key = key_of(each, self.spec.config.get("id"))
                if key is None or each.before >= _MOST_BEFORE:
                    group.create_task(self._settle(each, functools.partial(self._keep_unmapped, each, key)))
                else:
                    known.append((each, self._delivery(each, delivery_key(key))))
            if inspect.iscoroutinefunction(self.spec.fn):
                for message, delivery in known:
                    group.create_task(self._map(message, delivery, self._mapper.one(self.spec, delivery)))
                return
            while known and not self._mapper.hangs(self.spec.name):
                returned = await self._mapper.some(self.spec, [delivery for _, delivery in known])
                for (message, delivery), value in zip(known, returned, strict=False):
                    if inspect.isawaitable(value):
                        group.create_task(self._map(message, delivery, self._mapper.awaited(self.spec, value)))
                        continue
                    group.create_task(self._settle(message, functools.partial(self._finish, delivery, value)))
                known = known[len(returned) :]
            for message, delivery in known:  # the function hangs here: any worker maps them from the store
                group.create_task(self._settle(message, functools.partial(self._keep_for_others, delivery)))

    def _delivery(self, message: Message, key: str) -> Delivery:
        return Delivery(message.body, message.headers, key, self.spec.name, moment(self._store.clock.now()))

    async def _map(self, message: Message, delivery: Delivery, mapping: Awaitable[Any]) -> None:
        returned: Any
        try:
            returned = await mapping
        except Exception as error:
            returned = Raised(error)
        await self._settle(message, functools.partial(self._finish, delivery, returned))

    async def _settle(self, message: Message, write: Callable[[], Awaitable[None]]) -> None:
        """Write what becomes of a message, however long the store is away: then it can be acknowledged.

        What the store refuses for another reason is refused again, so it is kept as a dead letter with nothing but its body. If not
        even that is possible it stays with its broker, and holds up no other.
        """
        plain = False
        while True:
            try:
                await write()
            except StoreUnavailable as problem:
                _log.warning("a message of trigger %r waits with its broker: %s", self.spec.name, problem)
                await asyncio.sleep(_STORE_S)
            except Exception as problem:
                if plain:
                    _log.exception("a message of trigger %r stays with its broker: it cannot be kept", self.spec.name)
                    self._taken.pop(id(message), None)
                    self._room.set()
                    return
                _log.exception("a message of trigger %r could not be kept as it is", self.spec.name)
                plain, write = True, functools.partial(self._keep_plain, message, told_of(problem))
            else:
                self._ended.append(message)
                self._ends.set()
                return

    async def _finish(self, delivery: Delivery, returned: Any) -> None:
        """Apply what a mapping returned; or keep the message as a delivery that is tried again, or dead."""
        if isinstance(returned, Raised):
            await self._failed(delivery, returned.error)
            return
        try:
            found = actions(returned, self.spec.name)
            if found:
                await self._apply(self.spec, None, found, delivery.id)
        except StoreUnavailable:
            raise
        except Exception as error:
            await self._failed(delivery, error)
        else:
            assert delivery.received_at is not None
            self._empty, self._lately = self._empty + (not found), True
            after_s = self._store.clock.now() / 1000 - delivery.received_at.timestamp()
            self._measures.deliver(self.spec.name, "done", after_s)

    async def _failed(self, delivery: Delivery, error: Exception) -> None:
        told, wait_s = failure(self.spec, delivery.id, 1, error, told_of(error))
        wait_ms = None if wait_s is None else round(wait_s * 1000)
        await self._store.receive(
            NewDelivery(self.spec.name, delivery.id, KIND, delivery.headers, delivery.body, 1, told, wait_ms)
        )
        self._measures.deliver(self.spec.name, "dead" if wait_s is None else "failed", None)

    async def _keep_for_others(self, delivery: Delivery) -> None:
        await self._store.receive(NewDelivery(self.spec.name, delivery.id, KIND, delivery.headers, delivery.body))

    async def _keep_plain(self, message: Message, why: str) -> None:
        told = f"it could not be kept with its headers and its outcome: {why}"
        await self._store.receive(
            NewDelivery(self.spec.name, makeshift_key(message), KIND, {}, message.body, attempts=1, error=told)
        )
        self._measures.deliver(self.spec.name, "dead", None)

    async def _keep_unmapped(self, message: Message, key: str | None) -> None:
        """Keep a message that is not mapped here: without its id it is dead, and one that may end its workers is counted there."""
        if key is None:
            told = why_no_key(message, str(self.spec.config.get("id")))
            new = NewDelivery(
                self.spec.name, makeshift_key(message), KIND, message.headers, message.body, attempts=1, error=told
            )
            _log.warning("a message of trigger %r is kept as dead letter %r: %s", self.spec.name, new.key, told)
            self._measures.deliver(self.spec.name, "dead", None)
        else:
            new = NewDelivery(self.spec.name, delivery_key(key), KIND, message.headers, message.body)
            _log.warning(
                "message %r of trigger %r was given %d times and never acknowledged: it is tried from the store now",
                key, self.spec.name, message.before,
            )  # fmt: skip
        await self._store.receive(new)
