"""From outside: open a store, start runs, and ask and tell them things. From any process, by id."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, ParamSpec, Self, TypeVar, overload

from holdfast.client import forks
from holdfast.client.announcements import Announcements
from holdfast.client.approvals import Questions, Room
from holdfast.client.aside import aside
from holdfast.client.bundles import Bundles
from holdfast.client.control import BULK_PAGE, Control
from holdfast.client.conversations import Conversations
from holdfast.client.filter import Which, checked_order, filter_of, read_place, whole_filter, working
from holdfast.client.fleet import Fleet, fleet
from holdfast.client.info import AgentInfo, Deed, RunCounts, RunEvent, RunInfo, bury_owners, infos_of
from holdfast.client.links import Links
from holdfast.client.mount import Mount
from holdfast.client.needs import Needs, needs
from holdfast.client.notifications import Notifications
from holdfast.client.refusals import Refusals
from holdfast.client.rehearsal import Rehearsals
from holdfast.client.run import Run
from holdfast.client.schedules import Schedules
from holdfast.client.search import Search
from holdfast.client.tokens import Tokens
from holdfast.client.triggers import Triggers
from holdfast.client.waiters import Waiters
from holdfast.declare import Agent
from holdfast.errors import BadArguments, NotStorable, RunExists, UnknownAgent
from holdfast.runtime import AgentSpec
from holdfast.store import urls
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.changes import News
from holdfast.store.runs import Create, NewRun
from holdfast.store.store import Store
from holdfast.store.triggers import StartAct
from holdfast.values import tagged
from holdfast.values.codec import UNTYPED, arguments_text, digest, preview
from holdfast.values.sameness import difference
from holdfast.values.schema import arguments_from_published, check_against, filled
from holdfast.values.signature import Input
from holdfast.values.text import near, short, spell
from holdfast.verbs.triggers import Trigger
from holdfast.words.budget import Budget, checked_budget
from holdfast.words.calls import KeptAs
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.limits import Flow, Lane, lane_of
from holdfast.words.model import (
    FINISHED,
    RunRow,
    checked_kinds,
    checked_limit,
    checked_place,
    checked_run_id,
    checked_statuses,
    is_awkward,
    plain_id,
)
from holdfast.words.overrides import Override, active, check_seen
from holdfast.words.people import PYTHON, SOMEONE, Actor, Author, checked_text
from holdfast.words.triggers import Start
from holdfast.worker.agents import code_of
from holdfast.worker.settings import Settings
from holdfast.worker.worker import Worker

_IN_FLIGHT_S: Final = 5.0  # for so long a list of events waits for transactions that others have open
_LOOK_EVERY_S: Final = 0.02
_NOTING_S: Final = 5.0  # that notes of refusals wait for the store: closing a client takes no longer
_MOST_LABELS: Final = 64
_LABEL_LENGTH: Final = 200  # of a name, and of a value
_OPTIONS: Final = ("id", "labels", "kwargs", "after", "budget")  # of `start`
R = TypeVar("R")
P = ParamSpec("P")

DEFAULT_URL: Final = urls.DEFAULT_URL


def open(
    url: str | None = None,
    *,
    agents: Iterable[Agent[..., Any] | Trigger[..., Any] | ModuleType] = (),
    settings: Settings | None = None,
    inputs: KeptAs | None = None,
) -> Client:
    """Open a store; use it as `async with holdfast.open(...) as hf`. With agents there is a worker inside.

    Args:
        url: The store; `HOLDFAST_URL` unless given, then `sqlite:holdfast.db` in the current folder.
        agents: Agents and triggers to serve, or modules with them. Interrupted runs of theirs go on at once.
        settings: How the client and its worker behave.
        inputs: "full" keeps the whole arguments of all steps that run here, unless the step or its agent says otherwise. As part
            of the URL (`sqlite:runs.db?inputs=full`) it does the same.

    Raises:
        BadArguments: The URL names no store, or two agents have one name.
        StoreUnavailable: The store cannot be reached.
        NewerJournal: A newer Holdfast has written it.

    Example:
        ```python
        async def main() -> str:
            async with holdfast.open("sqlite:runs.db", agents=[research]) as hf:
                return await hf.run(research, "otters")


        asyncio.run(main())
        ```
    """
    kept = settings or Settings()
    return Client(url, agents=agents, settings=kept if inputs is None else replace(kept, inputs=inputs))


def store_for(url: str | None, name: str = "") -> Store:
    """The store that a URL names; `HOLDFAST_URL`, then a file in the current folder, when none is given.

    `name` begins the id under which this process holds leases.
    """
    return urls.store_at(os.environ.get("HOLDFAST_URL") or DEFAULT_URL if url is None else url, name=name)


async def restore_backup(path: str | os.PathLike[str], url: str | None = None, *, by: str | Actor = SOMEONE) -> int:
    """Fill an empty store from a backup; returns how many runs it has. No run is carried there before `hf.activate()`.

    Raises:
        BadArguments: The file is no whole backup, or the store is not empty. Nothing was changed.

    Example:
        ```python
        await hf.backup("runs.backup")
        await holdfast.restore_backup("runs.backup", "sqlite:copy.db")
        ```
    """
    actor = Actor.of(by)
    return await store_for(url).restore(path, by=actor.name, via=actor.via or PYTHON)


class _Arguments(NamedTuple):
    """The arguments that `start` was given for the agent: some by position, some by name."""

    args: tuple[Any, ...]
    named: dict[str, Any]
    kwargs: Mapping[str, Any] | None
    options: list[str]  # that were given too

    def by_name(
        self, agent: str, names: Collection[str], positional: Sequence[str], takes_any: bool = False
    ) -> dict[str, Any]:
        """Take those by name; refuse a keyword that could be an option of `start` or a parameter of the agent."""
        odd = [name for name in self.kwargs or () if type(name) is not str]
        if odd:
            raise BadArguments(f"agent {agent!r}: the name of an argument is a text, and kwargs= has {short(odd[0])}")
        filled = positional[: len(self.args)]
        for option in self.options if self.kwargs is None else ():
            if option in names and option not in filled:
                raise BadArguments(
                    f"agent {agent!r} has a parameter {option!r}, and `start` has an option of that name. "
                    f"Give the parameter as kwargs={{{option!r}: ...}}; beside kwargs=, even an empty one, {option}= is the option"
                )
        known = (*_OPTIONS, *names)
        for name in self.named:
            if name in (self.kwargs or ()):
                raise BadArguments(f"agent {agent!r}: {name!r} was given twice, as a keyword and in kwargs=")
            meant = None if takes_any or name in names else near(name, known, 0.75)
            if meant in _OPTIONS:
                raise BadArguments(
                    f"agent {agent!r} has no parameter and `start` no option {name!r}; did you mean {meant}="
                )
        return {**(self.kwargs or {}), **self.named}


class Client(
    Announcements,
    Questions,
    Conversations,
    Control,
    Links,
    Mount,
    Notifications,
    Rehearsals,
    Schedules,
    Search,
    Tokens,
    Triggers,
    Bundles,
):
    """An open store, made by `holdfast.open`. A client belongs to the event loop it was opened in.

    Example:
        ```python
        assert [info.id for info in await hf.runs()] == [run.id]
        ```
    """

    _listens = True  # its worker reads queues and folders

    def __init__(
        self,
        url: str | None = None,
        *,
        agents: Iterable[Agent[..., Any] | Trigger[..., Any] | ModuleType] = (),
        settings: Settings | None = None,
    ) -> None:
        self._url, self._code, self._settings = url, code_of(agents), settings or Settings()
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it was opened
        self._worker: Worker | None = None
        self._waiters = Waiters()
        self._overrides: tuple[Override, ...] = ()  # overrides that hold where the worker is, and so in its runs
        self._actor, self._door = SOMEONE, PYTHON
        self._base: Self | None = None  # the client that this one is a view of

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    def _make_store(self) -> Store:
        return store_for(self._url, self._settings.name)

    async def _open(self) -> None:
        if self._store is not None:
            raise BadArguments("this client is open already")
        self._loop = asyncio.get_running_loop()
        store = self._make_store()
        store.read_limit_s = self._read_limit_s
        await store.open()
        self._store, self._refusals = store, Refusals(self._note_refusals)
        store.on_change(self._waiters.wake)
        if any(self._code):
            try:
                await self._work(store)
            except BaseException:  # nobody will close what was never open
                await self._close()
                raise

    async def _work(self, store: Store) -> None:
        specs, settings, triggers = self._code.specs, self._settings, self._code.triggers
        worker: Any = store.worker(specs, settings, triggers, self._apply, listens=self._listens)
        if worker is None:
            worker = Worker(store, specs, settings, triggers, self._apply, listens=self._listens)
        await worker.start()
        self._worker, self._overrides = worker, active()

    async def _close(self, grace_s: float | None = None) -> None:
        worker, self._worker = self._worker, None
        try:
            if worker is not None:
                await worker.stop(grace_s)  # what it has mapped is applied through this client
            if self._store is not None:
                await self._refusals.close()
        finally:
            store, self._store = self._store, None
            if store is not None:
                with self._limited():  # what closing writes: that this worker has left
                    await store.close()

    def _read_limit_s(self) -> float | None:
        """Say how long a read waits: a worker in this client reads through the same store, and waits as long as it takes."""
        return self._limit_s(math.inf if any(self._code) else self._settings.deadline_s)

    @property
    def store(self) -> Store:
        """The store behind this client: private, and free to change."""
        if self._store is None:
            how = "is not open" if self._loop is None else "was closed, and is not open any more"
            raise BadArguments(f"this client {how}; use `async with holdfast.open(...) as hf`")
        self._check_loop()
        return self._store

    def acting_as(self, by: str | Actor) -> Self:
        """Return this client for a person: what is done through it without a `by=` of its own is in the audit under that name.

        It shares everything with this client, and is open as long as this one is.

        Raises:
            BadArguments: It names nobody.

        Example:
            ```python
            await hf.acting_as("ana").start(research, "otters")
            ```
        """
        actor = Actor.of(by)
        return self._through(actor, actor.via or self._door)

    def _through(self, actor: Actor, door: str, only: Mapping[str, str] | None = None) -> Self:
        """Make a view of this client for an actor at a door; the audit names both. With `only`, it sees some runs alone."""
        view = object.__new__(type(self))
        view._base, view._actor, view._door, view._only = self, actor, door, self._only if only is None else only
        return view

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Look up on the client what its view has not of its own, as it is at the moment."""
            base = self.__dict__.get("_base")
            if base is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(base, name)

    def _author(self, by: str = "") -> Author:
        return {"by": by or self._actor.name, "via": self._door}

    async def _note_refusals(self, tries: list[tuple[str, str, str, dict[str, Any]]]) -> None:
        with self.deadline(_NOTING_S), self._limited():
            await self.store.note_refusals(tries)

    @property
    def settings(self) -> Settings:
        """Tell how this client, and a worker in it, behave."""
        return self._settings

    def _check_loop(self) -> None:
        if self._loop is not asyncio._get_running_loop() and asyncio._get_running_loop() is not None:
            raise BadArguments(
                "this client was opened in another event loop, which alone can use it. Open one in this loop too, with "
                "`async with holdfast.open(...)`; threads and plain code share one of `holdfast.sync.open(...)`"
            )

    async def serve(self, *agents: Agent[..., Any] | Trigger[..., Any] | ModuleType) -> None:
        """Serve these agents and triggers too. One that has the name and version of one served so far takes its place.

        That is a deploy: a run in memory goes on with the code it began with, and one that comes into memory later gets the new.

        Raises:
            BadArguments: It is no agent or module, or two agents have one name.

        Example:
            ```python
            await hf.serve(research)
            ```
        """
        if self._base is not None:
            await self._base.serve(*agents)
            return
        more = code_of(agents)
        store, self._code = self.store, self._code.with_more(more)
        if self._worker is None:
            await self._work(store)
        else:
            await self._worker.serve_instead(more.specs, more.triggers)

    # Starting

    @overload
    async def start(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, kwargs: Mapping[str, Any],
        id: str | None = None, labels: Mapping[str, str] | None = None, after: Duration | None = None,
        budget: Budget | None = None, **named: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, id: str | None,
        labels: Mapping[str, str] | None = None, after: Duration | None = None, budget: Budget | None = None,
        **named: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, labels: Mapping[str, str] | None,
        after: Duration | None = None, budget: Budget | None = None, **named: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, after: Duration | None,
        budget: Budget | None = None, **named: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, budget: Budget | None, **named: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, agent: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **named: P.kwargs
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, agent: str, /, *args: Any, id: str | None = None, labels: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None, after: Duration | None = None, budget: Budget | None = None,
        **named: Any,
    ) -> Run[Any]: ...  # fmt: skip
    async def start(  # type: ignore[misc]  # mypy: an agent's own parameter could have the name of an option
        self, agent: Any, /, *args: Any, id: str | None = None, labels: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None, after: Duration | None = None, budget: Budget | None = None,
        **named: Any,
    ) -> Run[Any]:  # fmt: skip
        """Start a run of `agent(*args, **named)` and return its handle at once.

        The same id again is the same run. While a singleton has not ended, that run is returned.

        Args:
            agent: The agent, or the name under which a worker has published it.
            args: Arguments of the agent by position; those by name follow as keywords.
            id: The run's id; random unless given.
            labels: Texts by which lists find it.
            kwargs: Arguments of the agent whose names are options of this method.
            after: Begin this much later.
            budget: In place of the agent's own.

        Raises:
            RunExists: The id is that of a run with other arguments, or a singleton runs under another id.
            UnknownAgent: No worker has published an agent of this name.
            BadArguments: The arguments do not fit the agent.
            NotStorable: An argument cannot be stored.
            StoreUnavailable: The store did not take it in time: nothing was started.
            Unconfirmed: It may have been started; start it again with the same id.

        Example:
            ```python
            run = await hf.start(research, "otters", id="otters", labels={"team": "docs"})
            ```
        """
        options = {"id": id, "labels": labels, "after": after, "budget": budget}
        arguments = _Arguments(args, named, kwargs, [option for option, given in options.items() if given is not None])
        new, given = await self._new_run(agent, arguments, budget)
        name = new.agent
        made = f"{plain_id(name)}-{secrets.token_hex(4)}"
        run_id = checked_run_id(id) if id is not None else self.store.placed(made, new.lane)
        blobs = await self._complete(new, run_id, given, labels, after)
        self._begins(run_id)
        look = f"`await hf.get({run_id!r}).info()` says whether it was started; starting it again with id={run_id!r} is safe"
        row, created = await self._written(self.store.create(new, blobs, **self._author()), look)
        if row.id != run_id and id is not None:
            raise RunExists(f"run {row.id!r} of {name!r} has not ended, and it is a singleton: {id!r} was not started")
        if not created and row.id == run_id:
            await self._check_same(row, name, given, agent.spec if isinstance(agent, Agent) else self._spec(name))
        return Run(self, row.id, agent if isinstance(agent, Agent) else None, created=created)

    async def _complete(
        self, new: NewRun, id: str, given: Input, labels: Mapping[str, str] | None, after: Duration | None
    ) -> dict[str, bytes]:
        """Give a run that is to be created what `start` was given for it; returns the large values to store with it."""
        if is_awkward(id) and await self.store.run(id) is None:
            raise BadArguments(f"{id!r} can be mistaken for a folder or an option; let the id begin otherwise")
        new.id, new.delay_ms = id, 0 if after is None else milliseconds(after)
        new.labels = json.dumps(_checked_labels(labels), sort_keys=True)
        new.input, blobs = spilled(self._sized(given.text, "the arguments"))
        return blobs

    async def _start_act(self, start: Start, key: str, author: Author) -> StartAct:
        options = {"id": start.id, "labels": start.labels, "after": start.after, "budget": start.budget}
        named = [option for option, given in options.items() if given is not None]
        arguments = _Arguments(start.args, dict(start.named), start.kwargs, named)
        new, given = await self._new_run(start.agent, arguments, start.budget)
        run_id = self.store.placed(key, new.lane) if start.id is None else checked_run_id(start.id)
        blobs = await self._complete(new, run_id, given, start.labels, start.after)
        return StartAct(Create(new, blobs, **author), chosen=start.id is not None)

    async def _new_run(self, agent: Any, arguments: _Arguments, budget: Budget | None) -> tuple[NewRun, Input]:
        """Make a run that is to be created, still without an id, and its arguments."""
        name, version, given, flow, lane, own_budget = await self._input(agent, arguments)
        new = NewRun("", secrets.token_hex(16), name, given.text, version, flow.queue or "default", lane=lane)
        limits = checked_budget(budget) or own_budget
        new.budget = None if limits is None else json.dumps(limits.published())
        new.identity = given.digest
        return new, given

    async def _scheduled_run(self, agent: Any, arguments: Mapping[str, Any]) -> NewRun:
        return (await self._new_run(agent, _Arguments((), {}, arguments, []), None))[0]

    def _begins(self, run: str) -> None:
        """Check that a run of this id may be started here."""
        check_seen(self._overrides, f"run {run!r}")

    async def _input(self, agent: Any, given: _Arguments) -> tuple[str, str | None, Input, Flow, Lane, Budget | None]:
        """The name, the version, the arguments, how the run is let through, and what it may spend."""
        if not isinstance(agent, Agent | str):
            raise BadArguments(f"start takes an agent (a function with @holdfast.agent) or its name, not {agent!r}")
        spec = agent.spec if isinstance(agent, Agent) else self._spec(agent)
        if spec is not None:
            self._check_served(spec)
            self.store.check_agent(spec)
            made = spec.signature.bind(given.args, given.by_name(spec.name, *spec.signature.names)).input
            lane = lane_of(spec.flow, spec.signature, made.identity)
            return spec.name, spec.version, made, spec.flow, lane, spec.budget
        published = await self.store.agents()
        if agent not in published:
            known = ", ".join(sorted(published)) or "none so far"
            raise UnknownAgent(
                f"no worker has published an agent {agent!r} in this store so far (published: {known}). Check the name, or "
                "start a worker that has it with `holdfast worker FILE.py`: it publishes the name and what the agent takes. "
                "The function itself can be started before there is one"
            )
        version, schema_text, _ = published[agent]
        schema = json.loads(schema_text)
        flow, defaults = Flow.from_published(schema.pop("x-flow"))
        budget = schema.pop("x-budget", None)
        made = await aside((given.args, given.named, given.kwargs), _published_input, agent, schema, given)
        identity = made.identity
        return agent, version, made, flow, flow.lane(identity, lambda: defaults), budget and Budget.of(budget)

    async def _changed_input(self, row: RunRow, before: str, changed: Mapping[str, Any]) -> Input:
        spec = self._spec(row.agent, row.version)
        if spec is not None:
            args, named = spec.signature.load(forks.merged(before, changed))
            return spec.signature.bind(args, named).input
        named = await aside(before, UNTYPED.load, before)
        given = _Arguments((), {}, {**named, **changed}, [])
        return (await self._input(row.agent, given))[2]

    def _check_served(self, spec: AgentSpec) -> None:
        """Refuse a function whose run would be carried by another one, as when a notebook's cell was run again."""
        known = self._spec(spec.name, spec.version)
        if known is not None and known.fn is not spec.fn:
            raise BadArguments(
                f"agent {spec.name!r} is served here by another function, {_place(known)}, and not by the one given, "
                f"{_place(spec)}. `await hf.serve({spec.name})` lets it take the name from now on; or give it another name or "
                "version, or open the client anew"
            )

    async def _check_same(self, row: RunRow, name: str, given: Input, spec: AgentSpec | None) -> None:
        before = await unspilled(self.store, row.input) or "{}"
        whole = digest(before)
        if row.agent == name and ((row.identity or whole) == given.digest or whole == digest(given.text)):
            return  # as a whole too, because a default may have become what is given, or was it then
        if row.agent == name and spec is not None and given.lean:
            with contextlib.suppress(BadArguments, NotStorable):  # or a field was added, which it lacks
                if spec.signature.bind(*spec.signature.load(before)).lean == given.lean:
                    return
        one, other = f"{row.agent}({preview(before)})", f"{name}({preview(given.text)})"
        found = difference(tagged.read(before), tagged.read(given.text)) if one == other else None
        differs = "" if found is None else f" (they differ in {spell('', found.path)})"
        raise RunExists(
            f"run {row.id!r} exists as {one}, and cannot be started as {other}{differs}. Use another id, or the same arguments "
            "to go on with it"
        )

    @overload
    async def run(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, kwargs: Mapping[str, Any],
        id: str | None = None, labels: Mapping[str, str] | None = None, after: Duration | None = None,
        budget: Budget | None = None, **named: Any,
    ) -> R: ...  # fmt: skip
    @overload
    async def run(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, id: str | None,
        labels: Mapping[str, str] | None = None, after: Duration | None = None, budget: Budget | None = None,
        **named: Any,
    ) -> R: ...  # fmt: skip
    @overload
    async def run(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, labels: Mapping[str, str] | None,
        after: Duration | None = None, budget: Budget | None = None, **named: Any,
    ) -> R: ...  # fmt: skip
    @overload
    async def run(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, after: Duration | None,
        budget: Budget | None = None, **named: Any,
    ) -> R: ...  # fmt: skip
    @overload
    async def run(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, budget: Budget | None, **named: Any,
    ) -> R: ...  # fmt: skip
    @overload
    async def run(
        self, agent: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **named: P.kwargs
    ) -> R: ...  # fmt: skip
    @overload
    async def run(
        self, agent: str, /, *args: Any, id: str | None = None, labels: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None, after: Duration | None = None, budget: Budget | None = None,
        **named: Any,
    ) -> Any: ...  # fmt: skip
    async def run(self, agent: Any, /, *args: Any, **named: Any) -> Any:
        """Start a run as `start` does, and wait for its result.

        Raises:
            RunFailed: The agent raised. `Run.result` says what else there is.

        Example:
            ```python
            text = await hf.run(research, "otters")
            ```
        """
        run: Run[Any] = await self.start(agent, *args, **named)
        return await run.result()

    # Finding

    @overload
    def get(self, id: str, /) -> Run[Any]: ...
    @overload
    def get(self, id: str, agent: Callable[..., Coroutine[Any, Any, R]], /) -> Run[R]: ...
    def get(self, id: str, agent: Any = None, /) -> Run[Any]:
        """Return a handle to a run. Nothing is read before the handle is used.

        Raises:
            BadArguments: It cannot be the id of a run.

        Example:
            ```python
            info = await hf.get("r-1").info()
            ```
        """
        return Run(self, checked_run_id(id), agent if isinstance(agent, Agent) else None)

    async def runs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        agent: str | Agent[..., Any] | Iterable[str | Agent[..., Any]] | None = None,
        labels: Mapping[str, str] | None = None,
        since: Duration | datetime | None = None,
        until: Duration | datetime | None = None,
        search: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        after: str | RunInfo | None = None,
        waits_for: str | Iterable[str] | None = None,
        queue: str | Iterable[str] | None = None,
        version: str | None = None,
        root: bool | None = None,
        stuck: bool | None = None,
        needs: bool | None = None,
        cost: float | None = None,
        attempt: int | None = None,
        order: Literal["newest", "oldest", "updated"] = "newest",
    ) -> list[RunInfo]:
        """List runs, newest first unless `order` says otherwise.

        Args:
            status: One state or several.
            agent: An agent or its name, or several.
            labels: Labels that the run has.
            since: Started after this moment, or at most so long ago.
            until: Started before this moment, or at least so long ago.
            search: A piece of text in the id, the agent, a label, the arguments, the reason or the error.
            parent: Children of this run.
            limit: How many at most.
            after: The last run of the page before, or its id.
            waits_for: What it waits for, such as "person" or "retry", or several.
            queue: One queue or several.
            version: The version of the agent that it is pinned to.
            root: True: nobody but a person or a program started it. False: a run did.
            stuck: It does not go on by itself.
            needs: It needs a person: it is stuck, or has an open question.
            cost: It has spent so many US dollars at least, with all runs below it.
            attempt: A step of it is at this attempt, or a later one.
            order: "newest" or "oldest" by their start, or "updated": those first that changed last.

        Raises:
            BadArguments: A filter cannot be used.

        Example:
            ```python
            for info in await hf.runs(status=["failed", "paused"], since="2h"):
                print(info.id, info.error or info.reason)
            ```
        """
        which: Which = {
            "status": status, "agent": agent, "labels": labels, "since": since, "until": until, "search": search,
            "waits_for": waits_for, "queue": queue, "version": version, "root": root, "stuck": stuck, "needs": needs, "cost": cost,
            "attempt": attempt,
        }  # fmt: skip
        in_order, limit = checked_order(order), checked_limit(limit)
        last, at = read_place(after, in_order)

        async def read() -> list[RunRow]:
            fits = await whole_filter(self.store, which, self._only)
            return await self.store.runs(**fits, parent=parent, limit=limit, order=in_order, after=last, at=at)

        rows = await read()
        if await bury_owners(self.store, rows):
            rows = await read()
        return await infos_of(self.store, rows)

    async def _some(self, which: Mapping[str, Any], after: str | None) -> list[RunInfo]:
        return await self.runs(**which, limit=BULK_PAGE, after=after)

    async def count_runs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        agent: str | Agent[..., Any] | None = None,
        labels: Mapping[str, str] | None = None,
        since: Duration | datetime | None = None,
        until: Duration | datetime | None = None,
        search: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """Count the runs that fit, by agent and state. The filters are those of `runs`.

        Raises:
            BadArguments: A filter cannot be used.

        Example:
            ```python
            assert await hf.count_runs() == {"report": {"waiting": 1}}
            ```
        """
        fits = filter_of(self.store.clock.now(), status, agent, labels, since, until, search)
        fits["only"] = self._only
        return await self.store.count_runs(**fits)

    async def run_counts(
        self,
        *,
        status: str | Iterable[str] | None = None,
        agent: str | Agent[..., Any] | Iterable[str | Agent[..., Any]] | None = None,
        labels: Mapping[str, str] | None = None,
        since: Duration | datetime | None = None,
        until: Duration | datetime | None = None,
        search: str | None = None,
        parent: str | None = None,
        waits_for: str | Iterable[str] | None = None,
        queue: str | Iterable[str] | None = None,
        version: str | None = None,
        root: bool | None = None,
        stuck: bool | None = None,
        needs: bool | None = None,
        cost: float | None = None,
        attempt: int | None = None,
    ) -> RunCounts:
        """Count the runs that fit, by state, and the runs that need a person. The filters are those of `runs`.

        It is quick however many have ended: of more than 100,000 that ended in one way, or 20,000 with a filter, only so many are
        counted, and the answer says that it is not exact.

        Raises:
            BadArguments: A filter cannot be used.

        Example:
            ```python
            found = await hf.run_counts(root=True)
            assert (found.counts["waiting"], found.needs, found.exact) == (1, 1, True)
            ```
        """
        which: Which = {
            "status": status, "agent": agent, "labels": labels, "since": since, "until": until, "search": search,
            "waits_for": waits_for, "queue": queue, "version": version, "root": root, "stuck": stuck, "needs": needs, "cost": cost,
            "attempt": attempt,
        }  # fmt: skip
        fits = await whole_filter(self.store, which, self._only) | await working(self.store)
        counted = await self.store.run_counts(**fits, parent=parent)
        return RunCounts(counted.states, counted.needs, counted.exact)

    async def needs(
        self, limit: int = 20, *, by: str | Actor | None = None, labels: Mapping[str, str] | None = None
    ) -> Needs:
        """List what needs a person, the most urgent first: questions, steps in doubt, and runs that do not go on by themselves.

        Args:
            limit: How many at most.
            by: The person who asks; unless given, the one that this client acts as.
            labels: Labels that the run has.

        Raises:
            BadArguments: It names nobody.

        Example:
            ```python
            (need,) = (await hf.needs(by="ana")).needs
            assert (need.kind, need.mine) == ("question", True)
            ```
        """
        actor = self._actor if by is None else Actor.of(by)
        return await needs(self.store, checked_limit(limit), actor, labels, self._only)

    async def fleet(self) -> Fleet:
        """Look at the workers, workers lost lately, queues, rates, missing versions, the last hour and the store.

        What workers say of themselves is as old as their last heartbeat, and numbers of a minute come when it is over.

        Example:
            ```python
            fleet = await hf.fleet()
            assert [worker.state for worker in fleet.workers] == ["alive"]
            ```
        """
        return await fleet(self.store)

    async def agents(self) -> list[AgentInfo]:
        """List the agents that workers have published in this store, by name.

        Example:
            ```python
            names = [agent.name for agent in await hf.agents() if agent.served]
            ```
        """
        return [AgentInfo.of(name, *told) for name, told in sorted((await self.store.agents()).items())]

    async def audit(
        self,
        *,
        run: str | None = None,
        by: str | None = None,
        action: str | Iterable[str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Deed]:
        """List the deeds of people, the newest first; of a root run, also what was done to the runs below it.

        Args:
            run: What was done to this run.
            by: What this person did.
            action: One action or several, such as "approve".
            before: The id of the last deed of the page before.
            limit: How many at most.

        Raises:
            BadArguments: A filter cannot be used.

        Example:
            ```python
            for deed in await hf.audit(run="r-1"):
                print(deed.at, deed.by, deed.via, deed.action)
            ```
        """
        return await self._audited(Room(), run=run, by=by, action=action, before=before, limit=limit)

    async def _audited(
        self, room: Room, *, run: str | None, by: str | None, action: str | Iterable[str] | None, before: int | None, limit: int
    ) -> list[Deed]:  # fmt: skip
        """List deeds with so much of their values as there is room for."""
        actions = [action] if isinstance(action, str) else action
        place = None if before is None else checked_place(before, "before")
        found = await self.store.audit(run, checked_limit(limit), by=by, actions=actions, before=place, only=self._only)
        return [Deed.of(row, await room.value(self.store, row["value"])) for row in found]

    async def erase_audit(
        self, *, run: str | None = None, by: str | None = None, older_than: Duration | None = None
    ) -> int:
        """Take values and free text out of the deeds that fit; actor, action and time stay. Returns how many there were.

        Raises:
            BadArguments: Neither `run`, `by` nor `older_than` says which.

        Example:
            ```python
            await hf.erase_audit(older_than="90d")
            ```
        """
        if run is None and by is None and older_than is None:
            raise BadArguments("an erased value is gone: say which: run=, by= or older_than=")
        before = None if older_than is None else self.store.clock.now() - milliseconds(older_than)
        write = self.store.erase_audit(run=run, actor=by, before=before, **self._author())
        return await self._written(write, "Erasing again is safe")

    async def events(
        self, *, after: int = 0, kinds: str | Iterable[str] | None = None, run: str | None = None, follow: bool = True
    ) -> AsyncIterator[RunEvent]:
        """Iterate over the events of all runs, in order; `event.position` of the last one seen is where to go on.

        An open transaction in PostgreSQL, anybody's, keeps back what was committed after it began, because it may yet take a
        place before that. Without `follow` it is waited for, at most 5 seconds.

        Args:
            after: The position of the last event seen.
            kinds: One kind or several; "approval" is all that happens to questions.
            run: Only events of this run.
            follow: Whether to wait for more.

        Raises:
            BadArguments: There is no such kind or position.

        Example:
            ```python
            async for event in hf.events(kinds="approval", follow=False):
                print(event.run, event.kind)
            ```
        """
        chosen, after = None if kinds is None else checked_kinds(kinds), checked_place(after)
        which = None if run is None else checked_run_id(run)
        all_fit = chosen is None and which is None and self._only is None
        with self._listening(which or "", News.GREW) as heard:
            end = 0 if follow else (await self.store.feed_reach())[1]
            patience: float | None = None
            while True:
                heard.clear()
                sure = 0 if follow and all_fit else (await self.store.feed_reach())[0]
                page, after = await self.store.feed_page(after, sure, chosen, which, only=self._only)
                for line in page:
                    yield RunEvent.of(line)
                if page:
                    continue
                if follow:
                    await self._pause_for(heard)
                    continue
                patience = patience or time.monotonic() + _IN_FLIGHT_S
                if not self.store.before(sure, end) or time.monotonic() > patience:
                    return
                await asyncio.sleep(_LOOK_EVERY_S)

    async def prune(
        self,
        older_than: Duration,
        *,
        status: str | Iterable[str] = ("completed", "cancelled"),
        agent: str | Agent[..., Any] | None = None,
        labels: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete runs that finished longer ago than this, with their children; returns how many root runs.

        Of more than a thousand that fit, a thousand are deleted; call it until it returns 0.

        Args:
            older_than: How long ago they ended.
            status: States of runs that have ended.
            agent: An agent, or its name.
            labels: Labels that the run has.
            dry_run: Delete nothing, and count all that would be deleted.

        Raises:
            BadArguments: A state is not that of a run that has ended.

        Example:
            ```python
            many = await hf.prune("30d", dry_run=True)
            ```
        """
        statuses = checked_statuses(status)
        unfinished = [each for each in statuses if each not in FINISHED]
        if unfinished:
            raise BadArguments(f"prune deletes only runs that have ended, not {' or '.join(unfinished)} ones")
        now = self.store.clock.now()
        before, fits = now - milliseconds(older_than), filter_of(now, None, agent, labels)
        of: dict[str, Any] = {"agent": fits["agent"], "labels": fits["labels"]}
        if dry_run:
            return len(await self.store.would_prune(before, statuses, **of))
        write = self.store.prune(before, statuses, **of, **self._author())
        return await self._written(write, "Pruning again is safe")

    # Copies

    async def backup(self, path: str | os.PathLike[str]) -> int:
        """Write all that the store has at this moment to a new file, while everything goes on; returns how many runs.

        The file is a SQLite store, whatever this one is. `holdfast.restore_backup` makes a store of either kind of it.

        Raises:
            BadArguments: The file exists.

        Example:
            ```python
            many = await hf.backup("runs.backup")
            ```
        """
        return await self._written(self.store.backup(path, **self._author()), "Backing up again is safe")

    async def activate(self) -> int:
        """Let workers carry the runs of a store that was restored from a backup; returns how many have not ended.

        Not while the original lives: both would do what is left to do, with the same idempotency keys.

        Raises:
            BadArguments: The store is not held.

        Example:
            ```python
            await hf.backup("runs.backup")
            await holdfast.restore_backup("runs.backup", "sqlite:copy.db")
            async with holdfast.open("sqlite:copy.db") as copy:
                assert await copy.activate() == 1
            ```
        """
        return await self._written(self.store.activate(**self._author()), "Activating it again is safe")

    def _spec(self, agent: str, version: str | None = None) -> AgentSpec | None:
        if self._worker is not None:
            return self._worker.spec_of(agent, version)
        fits = [spec for spec in self._code.specs if spec.name == agent and version in (None, spec.version)]
        return fits[-1] if fits else None


def _place(spec: AgentSpec) -> str:
    code = spec.fn.__code__
    return f"{spec.fn.__qualname__} ({code.co_filename}, line {code.co_firstlineno})"


def _published_input(agent: str, schema: dict[str, Any], given: _Arguments) -> Input:
    """The arguments of an agent of which only the published schema is known."""
    properties: list[str] = list(schema.get("properties", {}))
    by_name = given.by_name(agent, properties, schema.get("x-positional", properties), _takes_any(schema))
    arguments, identity = arguments_from_published(schema, given.args, by_name, agent)
    check_against(schema, arguments, agent)
    whole, notes = filled(schema, arguments)
    if id(whole) in notes:
        notes[id(whole)] = notes[id(whole)]._replace(unset=())  # the arguments themselves are no model
    return Input(arguments_text(whole, agent, notes), identity, digest(identity))


def _takes_any(schema: dict[str, Any]) -> bool:
    """Does an agent with this published schema take keywords of any name?"""
    return schema.get("additionalProperties") is not False


def _checked_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    found = dict(labels or {})
    if len(found) > _MOST_LABELS:
        raise BadArguments(f"a run has at most {_MOST_LABELS} labels, not {len(found)}; they are for lists")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadArguments(f"labels are strings: {short(name)}={short(value)} is not")
        if max(len(name), len(value)) > _LABEL_LENGTH:
            raise BadArguments(f"labels have at most {_LABEL_LENGTH} characters: {short(name)}={short(value)} has more")
        checked_text(name + value, "labels")
    return found
