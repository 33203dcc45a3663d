"""What type checkers see of the sync client. Made by tests/typing/stub.py: do not edit."""

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import ModuleType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from holdfast.client.approvals import Approval
from holdfast.client.conversations import ConversationInfo, Message
from holdfast.client.run import AgentInfo, Deed, RunEvent, RunInfo
from holdfast.client.streams import Chunk, StreamInfo
from holdfast.client.tokens import Token
from holdfast.declare import Agent
from holdfast.words.budget import Budget
from holdfast.words.durations import Duration
from holdfast.words.people import Actor
from holdfast.worker.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

class Run(Generic[R_co]):
    """A handle to a run. It holds nothing open. `created` is true for the `start` that made it, and for nobody else."""

    id: str
    created: bool

    def info(self) -> RunInfo:
        """Its state now."""

    def arguments(self) -> dict[str, Any]:
        """What its agent was called with, by name, as plain data; those at their defaults too."""

    def wait(
        self, *states: str, waits_for: str | Iterable[str] | None = ..., timeout: Duration | None = ...
    ) -> RunInfo:
        """Until it is in one of these states (any finished one by default).

        A run that is "waiting" may wait for a timer, a message, the next attempt of a step and more; `waits_for=` says which
        of these is meant, as in `wait("waiting", waits_for="message")`.
        """

    def wait_for_question(self, *, timeout: Duration | None = ...) -> Approval:
        """Until it, or a run below it, asks a person: the question. `RunFinished` or `RunPaused` if it will not ask."""

    def result(self, *, timeout: Duration | None = ...) -> R_co:
        """What the agent returned. `RunFailed`, `RunCancelled`, `NondeterminismError` or `RunPaused` otherwise."""

    def events(self, *, after: int = ..., follow: bool = ...) -> Iterator[RunEvent]:
        """Its history from a seq on (`after` is the number of events already seen), live until it ends."""

    def stream(self, name: str, after: int = ..., *, follow: bool = ...) -> Iterator[Chunk]:
        """What it writes to a stream, from an offset on (that of the last chunk seen), live until the run is over."""

    def streams(self) -> list[StreamInfo]:
        """The streams it has written to."""

    def send(self, topic: str, value: Any = ..., *, key: str | None = ...) -> Receipt:
        """Send a message; with a key, the same message twice is one. It is kept for the run when this returns."""

    def approvals(self) -> list[Approval]:
        """Its open questions and those of the runs below it."""

    def pause(self, *, reason: str = ..., by: str = ..., family: bool = ..., now: bool = ...) -> None:
        """Stop it and all below it at the next safe point, until it is resumed. Messages still reach it.

        A body that runs may end; with `now` it is stopped, and is in doubt as after a crash. `family=False`: only this run.
        """

    def cancel(self, *, reason: str = ..., by: str = ..., grace: Duration = ...) -> None:
        """Stop it: its children first, then its agent gets `asyncio.CancelledError` and may tidy up with further steps.

        When the grace is over, or at a second call, it ends whatever its code does.
        """

    def resume(self, *, by: str = ..., family: bool = ...) -> None:
        """Let a paused run go on, and with it those below it that were paused by the same request."""

    def retry(self, *, by: str = ..., budget: Budget | None = ...) -> None:
        """Let a failed run go on from its failure: what was recorded before stays, the failed step runs again.

        Failed children are retried with it, unless the agent had dealt with their failure before. A paused run is resumed.
        `budget` takes the place of the run's own; what was spent is spent.
        """

    def delete(self) -> int:
        """Delete a finished run with its children; returns how many runs went."""

class Receipt:
    """A message was accepted: it is the n-th thing in the inbox of its run."""

    run: Run[Any]
    position: int

    def seen_at(self) -> int | None:
        """The number of the event with which it came into the run's history; None while it has not."""

class Transcript(Generic[T]):
    """What was said in one conversation."""

    id: str

    def info(self) -> ConversationInfo | None:
        """How long it is and who has it; None if nobody ever entered it."""

    def messages(self, *, last: int | None = ..., after: int = ..., limit: int | None = ...) -> list[Message[T]]:
        """What was said, oldest first: all of it, the `last` few, or up to `limit` after the first `after`."""

    def delete(self) -> int:
        """Delete it, for good; returns how many messages it had. `ConversationBusy` while a run has it."""

class Client:
    """An open store. Use it as `async with holdfast.open(...) as hf`."""

    def acting_as(self, by: str | Actor) -> Self:
        """This client for somebody: what is done through it without a `by=` of its own is in the audit under that name.

        It shares all with this one, and is open as long as this one is.
        """

    @property
    def settings(self) -> Settings:
        """How this client, and a worker in it, behave."""

    def serve(self, *agents: Agent[..., Any] | ModuleType) -> None:
        """Serve these agents too. One that has the name and version of an agent served so far takes its place.

        That is a deploy: a run in memory goes on with the code it began with, one that comes into memory later gets the new.
        """

    @overload
    def start(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        kwargs: Mapping[str, Any],
        id: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> Run[R]: ...
    @overload
    def start(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        id: str | None,
        labels: Mapping[str, str] | None = ...,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> Run[R]: ...
    @overload
    def start(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        labels: Mapping[str, str] | None,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> Run[R]: ...
    @overload
    def start(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        after: Duration | None,
        budget: Budget | None = ...,
        **named: Any,
    ) -> Run[R]: ...
    @overload
    def start(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, budget: Budget | None, **named: Any
    ) -> Run[R]: ...
    @overload
    def start(self, agent: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **named: P.kwargs) -> Run[R]: ...
    @overload
    def start(
        self,
        agent: str,
        /,
        *args: Any,
        id: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        kwargs: Mapping[str, Any] | None = ...,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> Run[Any]: ...
    @overload
    def run(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        kwargs: Mapping[str, Any],
        id: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> R: ...
    @overload
    def run(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        id: str | None,
        labels: Mapping[str, str] | None = ...,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> R: ...
    @overload
    def run(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        labels: Mapping[str, str] | None,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> R: ...
    @overload
    def run(
        self,
        agent: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        after: Duration | None,
        budget: Budget | None = ...,
        **named: Any,
    ) -> R: ...
    @overload
    def run(
        self, agent: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, budget: Budget | None, **named: Any
    ) -> R: ...
    @overload
    def run(self, agent: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **named: P.kwargs) -> R: ...
    @overload
    def run(
        self,
        agent: str,
        /,
        *args: Any,
        id: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        kwargs: Mapping[str, Any] | None = ...,
        after: Duration | None = ...,
        budget: Budget | None = ...,
        **named: Any,
    ) -> Any: ...
    @overload
    def get(self, id: str, /) -> Run[Any]: ...
    @overload
    def get(self, id: str, agent: Callable[..., Coroutine[Any, Any, R]], /) -> Run[R]: ...
    def runs(
        self,
        *,
        status: str | Iterable[str] | None = ...,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        since: Duration | datetime | None = ...,
        until: Duration | datetime | None = ...,
        search: str | None = ...,
        parent: str | None = ...,
        limit: int = ...,
        after: str | None = ...,
    ) -> list[RunInfo]:
        """Runs, newest first; `after` is the id of the last one of the page before.

        `since` and `until` are when they were started: a moment, or so long ago. `search` is a piece of text in the id, the
        agent, a label, the arguments, the reason or the error.
        """

    def count_runs(
        self,
        *,
        status: str | Iterable[str] | None = ...,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        since: Duration | datetime | None = ...,
        until: Duration | datetime | None = ...,
        search: str | None = ...,
    ) -> dict[str, dict[str, int]]:
        """How many runs fit, by agent and state: `{"research": {"completed": 12, "failed": 1}}`."""

    def agents(self) -> list[AgentInfo]:
        """The agents that workers have published in this store, by name."""

    def audit(
        self,
        *,
        run: str | None = ...,
        by: str | None = ...,
        action: str | Iterable[str] | None = ...,
        before: int | None = ...,
        limit: int = ...,
    ) -> list[Deed]:
        """Who did what to which run, the newest first; of a root run, to all below it too.

        `before` is the id of the last deed of the page before. No row is ever taken out; `erase_audit` takes out values.
        """

    def erase_audit(self, *, run: str | None = ..., by: str | None = ..., older_than: Duration | None = ...) -> int:
        """Take values and free text out of deeds that fit all that is given; who did what when stays. Returns how many."""

    def events(
        self, *, after: int = ..., kinds: str | Iterable[str] | None = ..., follow: bool = ...
    ) -> Iterator[RunEvent]:
        """Events of all runs in order; `event.position` of the last one seen is where to go on (`after=`).

        With `follow=False` those that are there now. An open transaction in PostgreSQL, anybody's, keeps back what was
        committed after it began, for it may yet take a place before that: it is waited for, at most 5 seconds.
        """

    def prune(
        self,
        older_than: Duration,
        *,
        status: str | Iterable[str] = ...,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        dry_run: bool = ...,
    ) -> int:
        """Delete runs that finished longer ago than this, with their children; returns how many root runs.

        Of more than a thousand that fit these are deleted; call it until it returns 0. With `dry_run=True` nothing is
        deleted, and all that would be are counted.
        """

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write all that the store has at this moment to a new file, while everything goes on; returns how many runs.

        The file is a SQLite store, whatever this one is. `holdfast.restore_backup` makes a store of either kind of it.
        """

    def activate(self) -> int:
        """Let workers carry the runs of a store that was restored from a backup; returns how many have not ended.

        Not while the original lives: both would do what is left to do, with the same idempotency keys.
        """

    def approvals(
        self, *, run: str | None = ..., to: str | Actor | None = ..., open: bool = ..., limit: int = ...
    ) -> list[Approval]:
        """Questions to people in the order asked; of a run and all below it, or for one person, if that is given.

        Only open ones unless told otherwise; then the newest, if there are more than `limit`.
        """

    def approval(self, approval: str) -> Approval:
        """One question, by its id or that of a run with exactly one open."""

    def approve(
        self, approval: Approval | str, *, by: str | Actor, note: str = ..., data: Any = ..., digest: str | None = ...
    ) -> Approval:
        """Approve what is shown, or `data` in its place where that may be edited.

        `digest` is that of what the person was shown, an `Approval` has it; if that was changed since, nothing is decided. By
        an id alone it is what the agent showed that is approved, and nothing that a person has made of it.
        """

    def deny(self, approval: Approval | str, *, by: str | Actor, note: str = ..., digest: str | None = ...) -> Approval:
        """Deny it; the agent sees the note as the reason."""

    def answer(
        self, approval: Approval | str, value: Any, *, by: str | Actor, note: str = ..., digest: str | None = ...
    ) -> Approval:
        """Answer a question with a value of its type.

        A step in doubt: {"result": ...} (it happened), "run" (it did not, run it), or "fail".
        """

    def delegate(
        self, approval: Approval | str, *, to: str, by: str | Actor, note: str = ..., digest: str | None = ...
    ) -> Approval:
        """Pass a question on to somebody else, a person or a group, by one of those who may decide it."""

    @overload
    def conversation(self, id: str, type: type[T], /) -> Transcript[T]: ...
    @overload
    def conversation(self, id: str, type: Any = ..., /) -> Transcript[Any]: ...
    def conversations(self, *, after: str = ..., limit: int = ...) -> list[ConversationInfo]:
        """Conversations in the order of their ids; `after` is the last id of the page before."""

    def pause(
        self,
        *,
        status: str | Iterable[str] | None = ...,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        reason: str = ...,
        by: str = ...,
        family: bool = ...,
        now: bool = ...,
    ) -> list[str]:
        """Pause every run that fits all that is given, with all below it; returns the ids of those that fit.

        Runs that are to stop are left alone. `family` and `now` as for one run.
        """

    def resume(
        self,
        *,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        by: str = ...,
        family: bool = ...,
    ) -> list[str]:
        """Let every paused run that fits go on, with those below it that the same request paused; returns the ids."""

    def cancel(
        self,
        *,
        status: str | Iterable[str] | None = ...,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        reason: str = ...,
        by: str = ...,
        grace: Duration = ...,
    ) -> list[str]:
        """Cancel every run that fits all that is given; returns their ids."""

    def retry(
        self,
        *,
        status: str | Iterable[str] | None = ...,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        by: str = ...,
        budget: Budget | None = ...,
    ) -> list[str]:
        """Let every failed run that fits go on from its failure; returns their ids. All of them: `status="failed"`.

        Children go on with the runs that they brought down. By themselves they are retried only if `agent=` names theirs: a
        parent may have dealt with the failure of a child.
        """

    def create_token(
        self, name: str, *, groups: Iterable[str] = ..., scopes: Iterable[str] = ..., expires: Duration | None = ...
    ) -> tuple[Token, str]:
        """A new token for a person or a program, and its secret, which cannot be shown again.

        It is refused once it has expired; with None it never does.
        """

    def tokens(self) -> list[Token]:
        """All tokens that were ever made here, the oldest first."""

    def revoke_token(self, which: str) -> list[Token]:
        """Revoke a token by its id, or all of a name; returns those revoked. It is refused from now on, everywhere."""

    def token_of(self, secret: str) -> Token | None:
        """The token with this secret, if it is good."""

    def good_token(self, id: str) -> Token | None:
        """The token with this id, if it is good."""

    def token_used(self, token: Token) -> None:
        """Note that it was shown: about when, so that few of many requests write."""

    @contextmanager
    def deadline(self, limit: Duration) -> Iterator[None]:
        """How long what is written or read in this block may wait for the store, in the place of `Settings.deadline_s`."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def close(self) -> None:
        """Stop the worker at a safe point, if there is one, and let go of the store. Done by itself when the program ends."""

def open(
    url: str | None = ..., *, agents: Iterable[Agent[..., Any] | ModuleType] = ..., settings: Settings | None = ...
) -> Client:
    """Open a store. With agents there is a worker inside, and interrupted runs go on at once."""
