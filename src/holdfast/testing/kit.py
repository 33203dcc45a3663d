"""`holdfast.testing.open`: a client over a temporary SQLite file whose time jumps and whose process can crash."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import json
import math
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.client.announcements import Published
from holdfast.client.client import Client
from holdfast.client.triggers import DeliveryInfo
from holdfast.client.waiters import Waiter
from holdfast.declare import Agent, Step
from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.resources import Resource
from holdfast.runtime import StepSpec
from holdfast.store.migrate import migrate
from holdfast.store.operations import Faults
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.store import Store
from holdfast.testing.clock import JumpClock
from holdfast.verbs.triggers import Trigger
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.files import file_key
from holdfast.words.overrides import Override, active
from holdfast.words.triggers import delivery_key
from holdfast.worker.agents import code_of
from holdfast.worker.files import told_of
from holdfast.worker.settings import Settings

_LOOK_EVERY_S = 0.002
_QUIET_LOOKS = 3  # nothing may move for this many looks before time jumps
_STILL_LOOKS = 50  # a run that does not move for so long while a body runs waits for that body


class Bodies(Counter[str]):
    """Counts of how often each step's body ran: `bodies[publish]` or `bodies["publish"]`."""

    def __getitem__(self, step: Any) -> int:
        return super().__getitem__(getattr(step, "name", step))


class _Steadfast:
    """The store as a test sees it: a call that a crash interrupted is made again once the store is open again.

    Every method of a store is idempotent or fenced, which is what makes this right.
    """

    def __init__(self, client: TestClient) -> None:
        self._client, self.clock = client, client.clock

    def __getattr__(self, name: str) -> Any:
        if not inspect.iscoroutinefunction(getattr(SQLiteStore, name, None)):
            return getattr(self._client._store or self._client._crashed, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            while True:
                await self._client._up.wait()
                used = self._client._store
                if used is None and not self._client._up.is_set():
                    continue  # it was open, and crashed again before this could go on
                try:
                    return await getattr(used, name)(*args, **kwargs)
                except StoreUnavailable:
                    if self._client._faults is None and used is self._client._store:
                        raise
                    await asyncio.sleep(_LOOK_EVERY_S)

        return call


@dataclasses.dataclass
class _Time:
    """The state of time in a test: the task that lets it jump, and the calls for which it stands still.

    Attributes:
        jumper: The task that lets it jump.
        waiting: What the test waits to hear.
        settling: How many calls let things settle: time jumps for nobody meanwhile, or it would run away from them.
    """

    jumper: asyncio.Task[None] | None = None
    waiting: set[Waiter] = dataclasses.field(default_factory=set)
    settling: int = 0


class TestClient(Client):
    """A client for tests. Time passes only while the test waits for a run, and then as fast as the runs allow.

    `bodies` counts the bodies that ran, by step; `keys` by the key of the call; `crashes` counts crashes.

    Example:
        ```python
        async def test(hf: holdfast.testing.TestClient) -> None:
            run = await hf.start(research, "otters")
            await hf.crash()
            assert await run.result() == "published"
            assert hf.bodies[publish] == 1
        ```
    """

    __test__ = False  # not a class of tests, whatever pytest thinks of its name
    _listens = False  # things come by `fire`

    def __init__(
        self,
        path: Path,
        agents: Iterable[Agent[..., Any] | Trigger[..., Any] | ModuleType],
        settings: Settings,
        replace: Mapping[Any, Callable[..., Any]],
        faults: Faults | None = None,
    ) -> None:
        self.bodies = Bodies()
        self.keys: Counter[str] = Counter()  # the same by key: bodies that ran for each call
        self.crashes = 0
        self.clock = JumpClock()
        self.path = path
        self._faults = faults
        self._time = _Time()
        self._up = asyncio.Event()
        self._crashing = asyncio.Lock()
        self._crashed: Store | None = None  # the store as it was, until it is open again
        self._over = False
        self._carried: dict[str, tuple[Override, ...]] = {}
        settings = dataclasses.replace(
            settings, replace=replace, observe=self._observe, overrides=lambda root: self._carried.get(root, ())
        )
        super().__init__(f"sqlite:{path}", agents=agents, settings=settings)

    def _begins(self, run: str) -> None:
        """Keep the overrides that hold where a run is started: they hold in it and its children, in all their lives."""
        self._carried.setdefault(run, active())

    def _observe(self, spec: StepSpec, key: str) -> None:
        self.bodies[spec.name] += 1
        self.keys[key] += 1

    def _make_store(self) -> Store:
        return SQLiteStore(self.path, durability="none", clock=self.clock, faults=self._faults)

    @property
    def store(self) -> Any:
        """The store behind this client: private, and free to change."""
        self._check_loop()
        return _Steadfast(self) if self._store is not None or not self._up.is_set() else super().store

    async def _open(self) -> None:
        await super()._open()
        self._up.set()
        if self._time.jumper is None:
            self._time.jumper = asyncio.get_running_loop().create_task(self._jump())

    async def __aexit__(self, *exc: object) -> None:
        if self._time.jumper is not None:
            self._time.jumper.cancel()
            await asyncio.gather(self._time.jumper, return_exceptions=True)
        async with self._crashing:
            self._over = True
            await self._close(grace_s=5.0)

    async def crash(self) -> None:
        """Crash and start anew, as kill -9 would: what is committed stays, everything else is gone.

        Example:
            ```python
            await hf.crash()
            await run.wait("waiting")  # it has come so far again
            ```
        """
        self._up.clear()
        self.crashes += 1
        async with self._crashing:
            while not self._over:
                self._up.clear()
                await self._drop()
                try:
                    await self._open()
                    break
                except StoreUnavailable:  # a crash came while it was starting
                    continue
        self._waiters.look_again()

    def deploy(self, agents: Iterable[Agent[..., Any] | Trigger[..., Any] | ModuleType]) -> None:
        """Serve the runs with this code from the next crash on, as after a deploy.

        Example:
            ```python
            hf.deploy([research])
            await hf.crash()
            ```
        """
        self._code = code_of(agents)

    async def _drop(self) -> None:
        store, self._store = self._store, None
        self._crashed = store or self._crashed
        worker, self._worker = self._worker, None
        if store is not None:
            store.abandon()
        if worker is not None:
            await worker.abandon()

    async def advance(self, duration: Duration) -> None:
        """Let this much time pass at once, then let what became due begin.

        What is under way is waited for first: a timer that the agent is just setting counts from before the jump. Time passes by
        so much and no more, also if another task of the test waits for a run meanwhile.

        Example:
            ```python
            await hf.advance("3 days")
            ```
        """
        await self._settled()
        self.clock.jump_to(self.clock.now() + milliseconds(duration))
        self._wake()
        await self._settled()

    async def fire(
        self,
        trigger: Trigger[..., Any] | str,
        value: Any = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        file: str | Path | None = None,
    ) -> DeliveryInfo:
        """Let something come for a trigger, as if its sender had been verified, and have it mapped once.

        Args:
            trigger: The trigger, or its name. No broker is asked and no folder watched in tests: a message or a file comes by this.
            value: The body, which becomes JSON.
            body: The bytes of the body instead.
            headers: Its headers, with names in lower case.
            id: The same id again is the same delivery; random unless given.
            file: A file that comes for a trigger of files: it becomes headers and id.

        Raises:
            BadArguments: No such trigger is served here.

        Example:
            ```python
            @holdfast.on.webhook("mail", verify=holdfast.Verify.bearer("env:MAIL_TOKEN"))
            def mail(delivery: holdfast.Delivery) -> holdfast.Start:
                return holdfast.Start(research, delivery.json()["topic"])


            async def test() -> None:
                async with holdfast.testing.open(agents=[mail]) as hf:
                    info = await hf.fire(mail, {"topic": "otters"}, id="1")
                    assert info.status == "done"
                    assert await hf.get("mail@1").result() == "published"


            asyncio.run(test())
            ```
        """
        name = trigger.name if isinstance(trigger, Trigger) else trigger
        spec = next((spec for spec in self._code.triggers if spec.name == name), None)
        if spec is None:
            raise BadArguments(f"no trigger {name!r} is served here; name it in agents=[...]")
        content = json.dumps(value).encode() if body is None else body
        if file is not None:
            told, content = told_of(str(file), Path(file).name), b""
            headers, id = {**told, **(headers or {})}, id or file_key(Path(file).name, told["digest"])
        key = f"test-{secrets.token_hex(4)}" if id is None else id
        await self._receive(name, spec.kind, key, headers or {}, content)
        self._wake()
        await self._settled()
        row, _ = await self.store.delivery(name, delivery_key(key))
        return DeliveryInfo.of(row)

    async def publish(self, name: str, value: Any = None, *, key: str | None = None) -> Published:
        """Publish an announcement, and let what waits for it begin.

        Raises:
            BadArguments: The name or the key cannot be used.
            NotStorable: The value cannot be stored, or is too large.

        Example:
            ```python
            await hf.publish("order.paid", {"order": 7})
            ```
        """
        id = await super().publish(name, value, key=key)
        self._wake()
        await self._settled()
        return id

    def _wake(self) -> None:
        """Let the worker look at what is due after a jump."""
        if self._worker is not None:
            self._worker.scheduler.wake()
            for each in self._worker.rounds:
                each.wake()

    # Time jumps when every run waits and the test waits for a run

    async def _pause_for(self, waiter: Waiter) -> None:
        self._time.waiting.add(waiter)
        try:
            await super()._pause_for(waiter)
        finally:
            self._time.waiting.discard(waiter)

    async def _jump(self) -> None:
        quiet = 0
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self.clock.fire()
            quiet = quiet + 1 if self._may_jump() else 0
            if quiet < _QUIET_LOOKS:
                continue
            quiet = 0
            with contextlib.suppress(StoreUnavailable):
                before = self._moves()
                due = await self._next_due()
                if due is not None and self._may_jump() and before == self._moves():
                    self.clock.jump_to(due)
                    self._wake()

    def _may_jump(self) -> bool:
        """Does nothing move, does the test wait for a run, and has nothing happened that it is about to look at?"""
        heard = any(waiter.up for waiter in self._time.waiting)
        return bool(self._time.waiting) and not heard and not self._time.settling and self._idle()

    def _moves(self) -> object:
        """A value that differs once any run has moved."""
        attempts = self._worker.attempts.values() if self._worker is not None else ()
        return [attempt.moves for attempt in attempts]

    def _idle(self) -> bool:
        """Does nothing move: no body, no write on its way, no run that could still act by itself?"""
        worker = self._worker
        if worker is None or not self._up.is_set() or worker.loading:
            return False
        if not worker.scheduler.asleep or not all(each.asleep for each in worker.rounds):
            return False
        leaves_first = self._settings.park_grace_s <= 0
        return all(
            attempt.is_idle and not (attempt.is_leaving_soon and leaves_first) for attempt in worker.attempts.values()
        )

    async def _next_due(self) -> int | None:
        worker = self._worker
        if worker is None:  # it is crashing right now
            return None
        # Not when a schedule is due: these go on for ever, and a test that waits for a person would see years go by.
        parked, inside = await self.store.next_due(worker.serves), self.clock.next_timer()
        return min((due for due in (parked, inside) if due is not None), default=None)

    async def _settled(self) -> None:
        """Wait until what became due has begun or ended, so that the next line of the test sees its effect."""
        quiet, still, before = 0, 0, None
        self._time.settling += 1
        try:
            while quiet < _QUIET_LOOKS and still < _STILL_LOOKS:
                await asyncio.sleep(_LOOK_EVERY_S)
                quiet = quiet + 1 if self._idle() and not self._due_now() and not await self._unclaimed() else 0
                still, before = (still + 1 if before == self._moves() and not self._writing() else 0), self._moves()
        finally:
            self._time.settling -= 1

    def _writing(self) -> bool:
        """Is a write on its way?"""
        return self._worker is not None and any(attempt.is_writing for attempt in self._worker.attempts.values())

    async def _unclaimed(self) -> bool:
        """Is a parked or new run due that no worker has taken yet?"""
        served = self._worker.serves if self._worker is not None else []
        rows = await self.store.runs(statuses=("ready", "waiting"), limit=1000)
        return any(row.agent in served and (row.due_at or math.inf) <= self.clock.now() for row in rows)

    def _due_now(self) -> bool:
        due = self.clock.next_timer()
        return due is not None and due <= self.clock.now()


@functools.cache
def _empty() -> bytes:
    """A store without a run, as a file."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        file = Path(folder) / "empty.db"
        db = connect(str(file), "none", writer=True)
        migrate(db, 0)
        db.close()
        return file.read_bytes()


def _lay(file: Path) -> None:
    """Make a store of a copy, with an identity of its own: a fifth of the work of all migrations."""
    file.write_bytes(_empty())
    db = connect(str(file), "none", writer=True)
    db.execute("UPDATE identity SET id = ?", (secrets.token_hex(16),))
    db.close()


@contextlib.asynccontextmanager
async def open(
    *,
    agents: Iterable[Agent[..., Any] | Trigger[..., Any] | ModuleType] = (),
    replace: Mapping[Step[..., Any] | Any, Callable[..., Any]] | None = None,
    park: bool = True,
    path: str | Path | None = None,
    settings: Settings | None = None,
    faults: Faults | None = None,
) -> AsyncIterator[TestClient]:
    """Open a client over a temporary SQLite file.

    Args:
        agents: Agents and triggers to serve, or modules with them.
        replace: Other functions instead of steps' bodies and resources.
        park: Let a run leave memory at every wait, so that each wait is also a test of resuming.
        path: A file to use, instead of a temporary one.
        settings: How the client and its worker behave.
        faults: Where to crash; `crash_everywhere` uses it.

    Raises:
        BadArguments: A key of `replace` is no step or resource.

    Example:
        ```python
        async def fake_search(topic: str) -> list[str]:
            return ["one", "two"]


        async def test() -> None:
            async with holdfast.testing.open(agents=[research], replace={search: fake_search}) as hf:
                assert await hf.run(research, "otters") == "published"


        asyncio.run(test())
        ```
    """
    for key in replace or ():
        if not isinstance(key, Step | Resource):
            raise BadArguments(f"replace= takes steps and resources as keys, not {key!r}")
    settings = settings or Settings(park_grace_s=0.0 if park else 3600.0, lease_ttl_s=30.0)
    with contextlib.ExitStack() as stack:
        if not path:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))) / "test.db"
            _lay(path)
        client = TestClient(Path(path), agents, settings, dict(replace or {}), faults)
        async with client:
            yield client
