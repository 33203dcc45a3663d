"""What type checkers see of the sync client. Made by tests/typing/stub.py: do not edit."""

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from types import ModuleType
from typing import Any, BinaryIO, Generic, Literal, ParamSpec, Self, TypeVar, overload

from holdfast.client.approvals import Approval
from holdfast.client.bundles import Bundle, Imported, MoveReceipt
from holdfast.client.calls import OpenCall
from holdfast.client.comparison import Comparison
from holdfast.client.control import Bulk
from holdfast.client.conversations import ConversationInfo, Message
from holdfast.client.fleet import Fleet
from holdfast.client.forks import ForkInfo
from holdfast.client.history import CheckpointInfo, Pending
from holdfast.client.info import AgentInfo, Deed, RunCounts, RunEvent, RunInfo
from holdfast.client.keys import Keys
from holdfast.client.needs import Needs
from holdfast.client.notifications import NotificationInfo
from holdfast.client.outline import Outline
from holdfast.client.rehearsal import Checked
from holdfast.client.schedules import ScheduleInfo
from holdfast.client.streams import Chunk, StreamInfo
from holdfast.client.tokens import Token
from holdfast.client.triggers import DeliveryInfo, TriggerInfo
from holdfast.declare import Agent
from holdfast.rehearsal.difference import Difference
from holdfast.rehearsal.replay import Replay
from holdfast.verbs.triggers import Trigger
from holdfast.words.budget import Budget
from holdfast.words.calls import KeptAs
from holdfast.words.durations import Duration
from holdfast.words.model import Published
from holdfast.words.people import Actor
from holdfast.words.retry import Retry
from holdfast.words.schedules import Schedule
from holdfast.words.spent import Spent
from holdfast.words.triggers import Action, Delivery
from holdfast.worker.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

class Run(Generic[R_co]):
    """A handle to a run, made by `hf.start` and `hf.get`. It holds nothing open.

    `created` is true for the `start` that made the run, and for no other.
    """

    id: str
    created: bool

    def info(self) -> RunInfo:
        """Read its state now.

        Raises:
            UnknownRun: There is no such run.
        """

    def open_calls(self) -> list[OpenCall]:
        """List the steps whose bodies have run for longer than a second, the longest first, as its worker last said.

        Workers tell it once a second, so it is a second old at most; of more than 50 the oldest are told.

        Raises:
            UnknownRun: There is no such run.
        """

    def arguments(self) -> dict[str, Any]:
        """Read what its agent was called with, by name, as plain data; those at their defaults too.

        Raises:
            UnknownRun: There is no such run.
        """

    def wait(
        self, *states: str, waits_for: str | Iterable[str] | None = ..., timeout: Duration | None = ...
    ) -> RunInfo:
        """Wait until it is in one of these states; in any finished one if none is named.

        Args:
            states: The states to wait for.
            waits_for: What a "waiting" run must wait for, such as "message".
            timeout: How long to wait.

        Raises:
            RunFinished: It has ended and will never be in such a state.
            TimeoutError: It did not come so far in time. The text says what it needs.
            UnknownRun: There is no such run.
            BadArguments: There is no such state.
        """

    def wait_for_question(self, *, timeout: Duration | None = ...) -> Approval:
        """Wait until it, or a run below it, asks a person; returns the question.

        Raises:
            RunFinished: It has ended and will not ask.
            RunPaused: It is paused.
            TimeoutError: It did not ask in time.
        """

    def result(self, *, timeout: Duration | None = ...) -> R_co:
        """Wait for what the agent returned.

        Raises:
            RunFailed: The agent raised.
            RunCancelled: The run was cancelled.
            RunFinished: The run was moved to another store.
            RunPaused: The run is paused.
            NondeterminismError: The run is paused because its code no longer fits its journal.
            TimeoutError: It did not end in time. The text says what it needs.
            UnknownRun: There is no such run.
        """

    def events(
        self,
        *,
        after: int = ...,
        before: int | None = ...,
        limit: int | None = ...,
        kinds: str | Iterable[str] | None = ...,
        key: str | None = ...,
        search: str | None = ...,
        dropped: bool = ...,
        follow: bool = ...,
    ) -> Iterator[RunEvent]:
        """Iterate over its history, live until it ends.

        Args:
            after: How many events were seen already.
            before: Only events before this one, which are not followed: the last of them, if there are more than `limit`, which
                is 100 unless given.
            limit: How many at most.
            kinds: One kind or several; "approval" is all that happens to questions.
            key: Only events of this call.
            search: Only events with this text in their kind, key or data, or at the beginning of their value.
            dropped: Whether events are listed too that a retry took out of the history.
            follow: Whether to wait for more.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: `after` is beyond its history, or a filter cannot be used.
        """

    def event(self, seq: int) -> RunEvent:
        """Find one event of its history; `run.value(seq)` reads the value that it holds.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such event.
        """

    def value(self, seq: int) -> Any:
        """Read the value that an event of its history holds, as plain data; None if it holds none.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such event.
            NotStorable: The value is damaged.
        """

    def checkpoints(self) -> list[CheckpointInfo]:
        """List the checkpoints of its history, the first first; `run.state(at)` has the state of one.

        Raises:
            UnknownRun: There is no such run.
        """

    def outline(self, *, buckets: int = ..., under: str | None = ...) -> Outline:
        """Look at its history in groups of calls, however long it is: how many of each name, and when they ended.

        Args:
            buckets: In how many pieces the time is cut, in which calls are counted.
            under: The key of a group, to see what is in it; all of the run unless given.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: `buckets` or `under` cannot be used.
        """

    def steps(self, *, after: int = ..., limit: int | None = ..., dropped: bool = ...) -> Iterator[StepInfo]:
        """Iterate over its calls, in the order in which they were first recorded. Values are read when they are asked for.

        Args:
            after: The `seq` of the last call of the page before.
            limit: How many at most.
            dropped: Whether calls are listed too that a retry took out of the history.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: `after` is beyond its history, or `limit` is no number.
        """

    def step(self, which: int | str) -> StepInfo:
        """Find one of its calls, by its key, by its name if it was called once, or by the place of its first event.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such call, or several with that name: the text says which keys there are.
        """

    def snapshot(self) -> Snapshot:
        """Look at all that it has come to: its goal and plan, what it waits for, what it spent, and the runs below it.

        Raises:
            UnknownRun: There is no such run.
        """

    def state(
        self, at: int | None = ..., *, agents: Iterable[Agent[..., Any] | ModuleType] | None = ...
    ) -> State | None:
        """Find the state that its agent stored last by `checkpoint`; None if it never did.

        Of a reducer whose code is here it is the very state that held: its events are folded again, and nothing is written.

        Args:
            at: Up to this event of its history; unless given, up to now.
            agents: The code to fold a reducer's events with: agents, or modules with agents. Unless given, that of the client.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such event, or its reducer is not among the agents.
            NondeterminismError: The code of the reducer does not fit what was recorded.
        """

    def stream(self, name: str, after: int = ..., *, follow: bool = ...) -> Iterator[Chunk]:
        """Iterate over what it writes to a stream: a `Chunk` at a time, live until the run is over.

        Args:
            name: The stream.
            after: The offset of the last chunk seen.
            follow: Whether to wait for more.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: The name or offset cannot be used.
        """

    def streams(self) -> list[StreamInfo]:
        """List the streams it has written to.

        Raises:
            UnknownRun: There is no such run.
        """

    @overload
    def send(self, topic: str, value: Any = ..., *, key: str | None = ...) -> Receipt: ...
    @overload
    def send(self, topic: object, *, key: str | None = ...) -> Receipt: ...
    def approvals(self) -> list[Approval]:
        """List its open questions and those of the runs below it."""

    def pause(self, *, reason: str = ..., by: str = ..., family: bool = ..., now: bool = ...) -> None:
        """Stop it and all runs below it at the next safe point, until it is resumed. Messages still reach it.

        Args:
            reason: Why.
            by: The person who pauses it.
            family: With False only this run is paused.
            now: Stop bodies that are running, instead of letting them end; they are in doubt, as after a crash.

        Raises:
            RunFinished: It has ended.
            RunActive: It is about to stop.
            UnknownRun: There is no such run.
        """

    def cancel(self, *, reason: str = ..., by: str = ..., grace: Duration = ...) -> None:
        """Stop it for good: its children first, then its agent gets `asyncio.CancelledError` and may tidy up with further steps.

        When the grace is over, or at a second call, it ends whatever its code does.

        Args:
            reason: Why.
            by: The person who cancels it.
            grace: How long the agent may tidy up.

        Raises:
            RunFinished: It has ended, and was not cancelled.
            UnknownRun: There is no such run.
        """

    def resume(self, *, by: str = ..., family: bool = ...) -> None:
        """Let a paused run go on, and with it the runs below it that were paused by the same request.

        Raises:
            RunActive: It is not paused.
            RunFinished: It has ended.
            UnknownRun: There is no such run.
        """

    def fork(
        self,
        *,
        at: int | str | None = ...,
        replace: Mapping[str, Any] | None = ...,
        effects: Literal["ask", "new", "refuse"] = ...,
        id: str | None = ...,
        by: str | Actor = ...,
    ) -> Run[R_co]:
        """Make a run that shares the history of this one up to a point, and goes on from there by itself.

        Everything up to the point is as it was, without being done again. What was open there begins anew; children that had
        ended are shared. This run is not touched, and whatever becomes of it does not change the fork.

        Args:
            at: The first event that is not shared, by its number; a call, by its key or the name of a step that was called once,
                which is then made again; or "checkpoint", to go on from the last one. Unless given: the end of what there is,
                or before its failure.
            replace: What calls get instead of what they would do, by their keys. For a step it is the result, for a question
                true, false or the answer. `"arguments"` has the arguments to change, by name; `"message:12"` is sent
                instead of the message of event 12. The point is then before the first of these.
            effects: What happens to steps that this run did behind the point: "ask" a person, "new" does them again with new
                idempotency keys, "refuse" fails them. Steps that only read (`@step(effects=False)`) always run.
            id: The id of the fork; random unless given. The same request with the same id is the same fork.
            by: The person who forks it.

        Raises:
            BadArguments: There is no such event or call, or a value cannot be used.
            NotAllowed: A question is replaced that is not this person's to decide.
            NotStorable: A value cannot be stored.
            RunExists: The id is that of a fork from another point, or with other replacements or effects.
            UnknownRun: There is no such run.
        """

    def forks(self) -> list[ForkInfo]:
        """List the tree of forks that it is in: the first run, then each fork behind the one that it was made from.

        Raises:
            UnknownRun: There is no such run.
        """

    def retry(
        self,
        *,
        by: str = ...,
        budget: Budget | None = ...,
        at: int | str | None = ...,
        effects: Literal["ask", "new", "refuse"] = ...,
    ) -> None:
        """Let a failed run go on from its failure: what was recorded before stays, and the failed step runs again.

        Failed children are retried with it, unless the agent had dealt with their failure before. A paused run is resumed.

        Args:
            by: The person who retries it.
            budget: Replaces the run's own; what was spent is spent.
            at: An earlier point to go on from, as for `fork`. Work asked for after it is dropped, and stays in the history
                so marked.
            effects: What happens then to steps that were done behind that point, as for `fork`. They keep their idempotency keys
                unless it is "new".

        Raises:
            RunActive: It has not ended.
            RunFinished: It has ended, and has not failed.
            BadArguments: There is no such event or call.
            UnknownRun: There is no such run.
        """

    def export(
        self,
        to: str | os.PathLike[str] | BinaryIO,
        *,
        move: str | None = ...,
        effects: str = ...,
        key: str | None = ...,
        recipient: str | None = ...,
        keys: str | os.PathLike[str] | Keys | None = ...,
        now: bool = ...,
        timeout: Duration | None = ...,
        by: str = ...,
    ) -> Bundle:
        """Write it and all runs below it to one signed file, a bundle, which another store can import.

        A copy leaves the run as it is. A move makes it "moved" here, as soon as the file is flushed: from then on only the store
        that it names can go on with it, and the same call writes the same file again until `confirm_move`.

        Args:
            to: The name of a new file; of a copy also a binary file that is open.
            move: The id of the store that the run moves to; a copy unless given.
            effects: Of a copy: what becomes of calls that were going on: "ask" a person, run them with "new" keys, or "refuse".
            key: The name of the key that signs; the only one there is unless given.
            recipient: The name of the key it is encrypted for; nobody unless given.
            keys: The folder of keys; `Keys` says which it is unless given.
            now: Of a move: stop bodies that are running, instead of letting them end; they are in doubt, as after a crash.
            timeout: Of a move: how long to wait until bodies have ended.
            by: The person who exports it.

        Raises:
            BadArguments: It is not a root run, there is no key, or the file is there already.
            RunFinished: It has ended, or was moved elsewhere.
            RunActive: It is about to stop.
            TimeoutError: Bodies did not end in time. Nothing was moved.
            UnknownRun: There is no such run.
        """

    def confirm_move(
        self,
        receipt: str | os.PathLike[str] | MoveReceipt | None = ...,
        *,
        keys: str | os.PathLike[str] | Keys | None = ...,
        by: str = ...,
    ) -> None:
        """Note that the store it was moved to has it: its bundle is not kept here any longer, and the run can be deleted.

        From then on its bundle is not written again, and the move cannot be undone. Without a receipt it is your word, and the
        audit has that.

        Args:
            receipt: The receipt of the destination, as `hf.import_run(receipt=...)` writes it and `run.move_receipt()` gives it,
                or its file. It must be of this very move, and signed by a key that is trusted here for bundles.
            keys: The folder of keys; `Keys` says which it is unless given.
            by: The person who confirms it.

        Raises:
            BadBundle: It is no receipt, not signed by anybody who is trusted, or of another move. Nothing was changed.
            RunActive: It was not moved, or was taken back.
            UnknownRun: There is no such run.
        """

    def move_receipt(self, *, key: str | None = ..., keys: str | os.PathLike[str] | Keys | None = ...) -> MoveReceipt:
        """Sign that it was moved into this store, for the store it came from; also of a run that is not here any more.

        Args:
            key: The name of the key that signs; the only one there is unless given.
            keys: The folder of keys; `Keys` says which it is unless given.

        Raises:
            UnknownRun: No such run was ever moved here.
            BadArguments: There is no key to sign with, or there are several.
        """

    def take_back(self, *, force: bool = ..., by: str = ...) -> None:
        """Go on with it here although it was moved to another store. The audit has that you did.

        Args:
            force: You know that its bundle was not imported there, and never will be: else two stores go on with it.
            by: The person who takes it back.

        Raises:
            BadArguments: `force` is not given.
            RunActive: It was not moved.
            RunFinished: The other store is known to have it.
            UnknownRun: There is no such run.
        """

    def delete(self) -> int:
        """Delete a finished run with its children; returns how many runs went.

        Raises:
            RunActive: It has not ended.
            UnknownRun: There is no such run.
        """

class Receipt:
    """The confirmation that a message is in the inbox of its run.

    Attributes:
        run: The run.
        position: Its place in the inbox; 0 on a Temporal cluster, which does not tell it.
    """

    run: Run[Any]
    position: int

    def seen_at(self) -> int | None:
        """Find the number of the event with which the message came into the run's history; None while it has not."""

class NotificationHandle:
    """A notification that can be steered, from `hf.notify` or `hf.get_notification`.

    Attributes:
        name: Its name.
    """

    name: str

    def info(self) -> NotificationInfo:
        """Read it as it is now.

        Raises:
            UnknownNotification: There is no such notification.
        """

    def pause(self) -> NotificationInfo:
        """Send nothing until `resume`. It is not told of what happens meanwhile; what was to go out waits.

        Raises:
            UnknownNotification: There is no such notification.
        """

    def resume(self) -> NotificationInfo:
        """Send what waits, and tell it of what happens from now on.

        Raises:
            UnknownNotification: There is no such notification.
        """

    def test(self) -> str:
        """Have a message of the kind "notification.test" sent, to see whether it arrives; returns its id.

        Raises:
            UnknownNotification: There is no such notification.
            BadArguments: It is paused, or this store is a copy that is held.
        """

    def deliveries(self, *, status: str | None = ..., limit: int = ...) -> list[DeliveryInfo]:
        """List its messages, the newest first, with what became of each.

        Args:
            status: "new", "done" or "dead".
            limit: How many at most.

        Raises:
            BadArguments: A filter cannot be used.
        """

    def replay(self, id: str) -> DeliveryInfo:
        """Try a dead message again from the beginning, under the same id. One that went out stays so.

        Raises:
            UnknownNotification: It has no such message.
        """

    def delete(self) -> None:
        """Delete it, with what has not gone out.

        Raises:
            UnknownNotification: There is no such notification.
        """

class ScheduleHandle:
    """A schedule that can be steered, from `hf.schedule` or `hf.get_schedule`.

    Attributes:
        name: Its name.
    """

    name: str

    def info(self) -> ScheduleInfo:
        """Read it as it is now.

        Raises:
            UnknownSchedule: There is no such schedule.
        """

    def pause(self) -> ScheduleInfo:
        """Begin no more runs, also after deploys, until `resume`. Runs that go on are left alone; times that wait are missed.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: It is retired.
        """

    def resume(self) -> ScheduleInfo:
        """Begin runs again, from the next time on: what was missed while it was paused is not caught up.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: It is retired.
        """

    def trigger(self) -> str:
        """Begin a run now, beside its times; returns its id.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: It has begun one in this very second, or its agent is a singleton that runs.
        """

    def backfill(self, start: date, end: date) -> list[str]:
        """Begin a run for each of its times from `start` until `end`, as far as there is none yet; returns their ids.

        Args:
            start: A datetime with its time zone, or a date, which is its midnight in UTC.
            end: As well; it must be past.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: The times are in the future, or too many.
        """

    def delete(self) -> None:
        """Delete it. One that an agent declares is taken out of the code instead, or paused.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: An agent declares it.
        """

class Transcript(Generic[T]):
    """A conversation seen from outside, made by `hf.conversation`."""

    id: str

    def info(self) -> ConversationInfo | None:
        """Tell how long it is and which run has it; None if no run ever entered it."""

    def messages(self, *, last: int | None = ..., after: int = ..., limit: int | None = ...) -> list[Message[T]]:
        """Read what was said, oldest first: all of it, the `last` few, or up to `limit` after the first `after`.

        Raises:
            BadArguments: A count cannot be used, or the messages are of another type.
        """

    def delete(self) -> int:
        """Delete it for good; returns how many messages it had.

        Raises:
            ConversationBusy: A run has it.
        """

class StepInfo:
    """One call of a run: a step, or a verb such as `sleep` or `approve`.

    Attributes:
        run: The run.
        seq: The place of its first event in the run's history.
        key: Its identity in the run.
        kind: "step", "timer", "child", "question", "conversation", "note", "progress", "plan", "checkpoint", "stream" or "tick".
        name: The name of the step, of the child's agent, or of the verb with a colon before it.
        status: "running", "waiting", "completed", "failed" or "cancelled".
        input: Its arguments in a line, cut to 120 characters.
        kept: Whether its whole arguments are in the history: `arguments()` reads them. If not, it returns None.
        attempts: How many bodies ran.
        failures: The attempts that failed and were tried again: type and text of each error.
        error: The type and text of the error it failed with.
        began_at: When its last body began; if that is not known, when it was first recorded.
        ended_at: When its outcome was recorded.
        worker: The worker that recorded it last; None in histories of versions that did not say.
        spent: What all its attempts have spent.
        child: The run it started.
        dropped: The event of the retry that took it out of the history.
    """

    run: str
    seq: int
    key: str
    kind: str
    name: str
    status: str
    input: str
    kept: bool
    attempts: int
    failures: tuple[str, ...]
    error: str | None
    began_at: datetime
    ended_at: datetime | None
    worker: str | None
    spent: Spent
    child: str | None
    dropped: int | None

    def arguments(self) -> Any:
        """Read its whole arguments by name, as plain data; None if the history has only their digest and `input`.

        Steps keep them with `inputs="full"`, model requests by default. What a question showed and the arguments of a child are
        always there.

        Raises:
            NotStorable: They name what is not in the store any more, or are damaged.
        """

    def result(self) -> Any:
        """Read what it came to, as plain data: what a step returned, a child's result, an answer; None if there is nothing.

        Raises:
            NotStorable: It is damaged.
        """

class State:
    """The state of an agent, as it stored it by `checkpoint`; or of a reducer, folded from its events.

    Attributes:
        run: The run.
        seq: The event that has it, or the last one that was folded into it.
        era: Which checkpoint it is, from 1 on; of a state that was folded, the one before it, or 0.
        at: When it was stored, or that event came.
        folded: Of a reducer: how many of its events the state is made of.
    """

    run: str
    seq: int
    era: int
    at: datetime
    folded: int | None

    def value(self) -> Any:
        """Read the state itself, as plain data."""

class MessageInfo:
    """A message that was sent to a run.

    Attributes:
        topic: Its topic.
        position: Its place in the run's inbox, from 1 on.
        sent_at: When it was sent.
        taken: Whether it is in the run's history; else it waits for a worker to take it there.
    """

    topic: str
    position: int
    sent_at: datetime
    taken: bool

    def value(self) -> Any:
        """Read the message itself, as plain data."""

class Snapshot:
    """All that a run has come to at a moment: its goal, its plan, what it waits for, and the runs below it.

    Attributes:
        run: The run as lists show it, with its progress, what it spent and what it may spend.
        goal: Its agent and arguments in a line; `run.arguments()` reads them.
        plan: What it means to do, and whether that is done.
        pending: What it waits for.
        messages: The last messages that were sent to it.
        messages_sent: How many messages were sent to it in all.
        conversations: The conversations it has now.
        request: The last request to a model: its arguments are the conversation so far.
        state: The state of its last checkpoint.
        streams: The streams it has written to.
        spent_by: Which steps spent most, with those of the runs below.
        children: The runs it started, in the order in which it did.
        left_out: How many runs below it are not shown, because there are too many.
    """

    run: RunInfo
    goal: str
    plan: tuple[tuple[str, bool], ...]
    pending: tuple[Pending, ...]
    messages: tuple[MessageInfo, ...]
    messages_sent: int
    conversations: tuple[str, ...]
    request: StepInfo | None
    state: State | None
    streams: tuple[StreamInfo, ...]
    spent_by: tuple[tuple[str, Spent], ...]
    children: tuple[Snapshot, ...]
    left_out: int

class Client:
    """An open store, made by `holdfast.open`. A client belongs to the event loop it was opened in."""

    def acting_as(self, by: str | Actor) -> Self:
        """Return this client for a person: what is done through it without a `by=` of its own is in the audit under that name.

        It shares everything with this client, and is open as long as this one is.

        Raises:
            BadArguments: It names nobody.
        """

    @property
    def settings(self) -> Settings:
        """Tell how this client, and a worker in it, behave."""

    def serve(self, *agents: Agent[..., Any] | Trigger[..., Any] | ModuleType) -> None:
        """Serve these agents and triggers too. One that has the name and version of one served so far takes its place.

        That is a deploy: a run in memory goes on with the code it began with, and one that comes into memory later gets the new.

        Raises:
            BadArguments: It is no agent or module, or two agents have one name.
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
        agent: str | Agent[..., Any] | Iterable[str | Agent[..., Any]] | None = ...,
        labels: Mapping[str, str] | None = ...,
        since: Duration | datetime | None = ...,
        until: Duration | datetime | None = ...,
        search: str | None = ...,
        parent: str | None = ...,
        limit: int = ...,
        after: str | RunInfo | None = ...,
        waits_for: str | Iterable[str] | None = ...,
        queue: str | Iterable[str] | None = ...,
        version: str | None = ...,
        root: bool | None = ...,
        stuck: bool | None = ...,
        needs: bool | None = ...,
        cost: float | None = ...,
        attempt: int | None = ...,
        order: Literal["newest", "oldest", "updated"] = ...,
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
        """Count the runs that fit, by agent and state. The filters are those of `runs`.

        Raises:
            BadArguments: A filter cannot be used.
        """

    def run_counts(
        self,
        *,
        status: str | Iterable[str] | None = ...,
        agent: str | Agent[..., Any] | Iterable[str | Agent[..., Any]] | None = ...,
        labels: Mapping[str, str] | None = ...,
        since: Duration | datetime | None = ...,
        until: Duration | datetime | None = ...,
        search: str | None = ...,
        parent: str | None = ...,
        waits_for: str | Iterable[str] | None = ...,
        queue: str | Iterable[str] | None = ...,
        version: str | None = ...,
        root: bool | None = ...,
        stuck: bool | None = ...,
        needs: bool | None = ...,
        cost: float | None = ...,
        attempt: int | None = ...,
    ) -> RunCounts:
        """Count the runs that fit, by state, and the runs that need a person. The filters are those of `runs`.

        It is quick however many have ended: of more than 100,000 that ended in one way, or 20,000 with a filter, only so many are
        counted, and the answer says that it is not exact.

        Raises:
            BadArguments: A filter cannot be used.
        """

    def needs(self, limit: int = ..., *, by: str | Actor | None = ..., labels: Mapping[str, str] | None = ...) -> Needs:
        """List what needs a person, the most urgent first: questions, steps in doubt, and runs that do not go on by themselves.

        Args:
            limit: How many at most.
            by: The person who asks; unless given, the one that this client acts as.
            labels: Labels that the run has.

        Raises:
            BadArguments: It names nobody.
        """

    def fleet(self) -> Fleet:
        """Look at the workers, workers lost lately, queues, rates, missing versions, the last hour and the store.

        What workers say of themselves is as old as their last heartbeat, and numbers of a minute come when it is over.
        """

    def agents(self) -> list[AgentInfo]:
        """List the agents that workers have published in this store, by name."""

    def audit(
        self,
        *,
        run: str | None = ...,
        by: str | None = ...,
        action: str | Iterable[str] | None = ...,
        before: int | None = ...,
        limit: int = ...,
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
        """

    def erase_audit(self, *, run: str | None = ..., by: str | None = ..., older_than: Duration | None = ...) -> int:
        """Take values and free text out of the deeds that fit; actor, action and time stay. Returns how many there were.

        Raises:
            BadArguments: Neither `run`, `by` nor `older_than` says which.
        """

    def events(
        self, *, after: int = ..., kinds: str | Iterable[str] | None = ..., run: str | None = ..., follow: bool = ...
    ) -> Iterator[RunEvent]:
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

        Of more than a thousand that fit, a thousand are deleted; call it until it returns 0.

        Args:
            older_than: How long ago they ended.
            status: States of runs that have ended.
            agent: An agent, or its name.
            labels: Labels that the run has.
            dry_run: Delete nothing, and count all that would be deleted.

        Raises:
            BadArguments: A state is not that of a run that has ended.
        """

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write all that the store has at this moment to a new file, while everything goes on; returns how many runs.

        The file is a SQLite store, whatever this one is. `holdfast.restore_backup` makes a store of either kind of it.

        Raises:
            BadArguments: The file exists.
        """

    def activate(self) -> int:
        """Let workers carry the runs of a store that was restored from a backup; returns how many have not ended.

        Not while the original lives: both would do what is left to do, with the same idempotency keys.

        Raises:
            BadArguments: The store is not held.
        """

    def publish(self, name: str, value: Any = ..., *, key: str | None = ...) -> Published:
        """Publish an announcement to its waiters: agents declared with `On`, and runs in `next_event`.

        Args:
            name: The name, such as "order.paid".
            value: The value, up to 64 KiB as JSON.
            key: Announcements of a name with one key are one, for 30 days. Give one where a request may be made again.

        Returns:
            The id of the announcement. `created` says whether it was published now; if not, `before` says when, and `differs`
            whether with another value, which holds.

        Raises:
            BadArguments: The name or the key cannot be used.
            NotStorable: The value cannot be stored, or is too large.
        """

    def approvals(
        self,
        *,
        run: str | None = ...,
        to: str | Actor | None = ...,
        open: bool = ...,
        limit: int = ...,
        status: str | Iterable[str] | None = ...,
        after: str | None = ...,
    ) -> list[Approval]:
        """List questions to people in the order asked.

        Args:
            run: Questions of a run and all runs below it.
            to: Questions that this person, or `group:NAME`, may decide.
            open: Only open ones; with False the newest, however they ended.
            limit: How many at most.
            status: One state or several, instead of `open`: "open", "decided", "expired", "withdrawn". The newest come first,
                unless only open ones are listed.
            after: Where the page before ended: the id of its last question; with `open=False` or `run=`, of its oldest.

        Raises:
            BadArguments: A filter cannot be used.
            UnknownApproval: The question `after` is not there any more.
        """

    def approval(self, approval: str) -> Approval:
        """Find one question, by its id or that of a run with exactly one open.

        Raises:
            UnknownApproval: There is none, or the run has several.
        """

    def approve(
        self, approval: Approval | str, *, by: str | Actor, note: str = ..., data: Any = ..., digest: str | None = ...
    ) -> Approval:
        """Approve the value shown, or `data` instead where it may be edited. Returns the question as it is then.

        Args:
            approval: The question, its id, or the id of a run with exactly one open. By an id alone only what the agent
                showed is approved, and nothing that a person has made of it.
            by: The person who decides.
            note: The reason; the agent sees it.
            data: The value to approve instead of the one shown. It must be whole.
            digest: The digest of what the person was shown; an `Approval` has it.

        Raises:
            Stale: Something else is shown by now; nothing was decided.
            AlreadyDecided: Somebody was quicker.
            NotAllowed: It is not this person's to decide.
            Expired: It expired.
            UnknownApproval: There is no such question.
            BadArguments: `data` does not fit, or the question wants an answer.
        """

    def deny(self, approval: Approval | str, *, by: str | Actor, note: str = ..., digest: str | None = ...) -> Approval:
        """Deny what is shown; the agent sees the note as the reason. The errors are those of `approve`.

        Raises:
            Stale: Something else is shown by now; nothing was decided.
            AlreadyDecided: Somebody was quicker.
            NotAllowed: It is not this person's to decide.
        """

    def answer(
        self, approval: Approval | str, value: Any, *, by: str | Actor, note: str = ..., digest: str | None = ...
    ) -> Approval:
        """Answer a question with a value of its type. The errors are those of `approve`.

        A step in doubt is answered with `{"result": ...}` (it happened), "run" (it did not happen, run it) or "fail".

        Raises:
            BadArguments: The value does not fit the question.
            AlreadyDecided: Somebody was quicker.
        """

    def delegate(
        self, approval: Approval | str, *, to: str, by: str | Actor, note: str = ..., digest: str | None = ...
    ) -> Approval:
        """Pass a question on to a person or a group, as a person who may decide it. The errors are those of `approve`.

        Raises:
            NotAllowed: It is not this person's to pass on.
            AlreadyDecided: It was decided before.
        """

    def store_id(self) -> str:
        """Read the id of the store, which no other store has: a move names its destination by it."""

    def import_run(
        self,
        path: str | os.PathLike[str],
        *,
        id: str | None = ...,
        dry_run: bool = ...,
        agents: Iterable[Agent[..., Any] | ModuleType] = ...,
        without: Iterable[int] = ...,
        receipt: str | os.PathLike[str] | None = ...,
        key: str | None = ...,
        keys: str | os.PathLike[str] | Keys | None = ...,
        by: str = ...,
    ) -> Imported:
        """Put the run of a bundle, and all below it, into this store: whole or not at all. It goes on here at once.

        Decisions that were written into the file count from now on.

        Args:
            path: The file.
            id: Of a copy: the id of the run that it becomes here. A move keeps its id.
            dry_run: Change nothing, and tell what would happen.
            agents: With `dry_run`: code that the runs are held against; none of it has effects.
            without: Places of decisions in the file that are left out, from 1: their questions stay open. An error that a
                decision does not count names its place.
            receipt: Of a move: a new file for the receipt, which the source confirms the move by; `run.move_receipt` gives it
                later too.
            key: With `receipt`: the name of the key that signs it; the only one there is unless given.
            keys: The folder of keys; `Keys` says which it is unless given.
            by: The person who imports it.

        Raises:
            BadBundle: The file is no whole bundle, is signed by nobody who is trusted here, is for another store, or was
                imported before. Nothing was imported.
            RunExists: There is a run with one of its ids.
            NotAllowed: A person may not decide what they decided in the file. Nothing was imported.
            BadArguments: There is no key for the receipt, or its file is there already. Nothing was imported.
        """

    @overload
    def conversation(self, id: str, type: type[T], /) -> Transcript[T]: ...
    @overload
    def conversation(self, id: str, type: Any = ..., /) -> Transcript[Any]: ...
    def conversations(self, *, after: str = ..., limit: int = ...) -> list[ConversationInfo]:
        """List conversations in the order of their ids; `after` is the last id of the page before.

        Raises:
            BadArguments: The limit cannot be used.
        """

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
        """Pause every run that fits all that is given, with all runs below it; returns the ids of the runs that fit.

        Runs that are about to stop are left alone. `family` and `now` are as for one run.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.
        """

    def resume(
        self,
        *,
        agent: str | Agent[..., Any] | None = ...,
        labels: Mapping[str, str] | None = ...,
        by: str = ...,
        family: bool = ...,
    ) -> list[str]:
        """Let every paused run that fits go on, with the runs below it that the same request paused; returns the ids."""

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
        """Cancel every run that fits all that is given; returns their ids.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.
        """

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

        Children go on with the runs that they brought down. By themselves they are retried only if `agent=` names theirs,
        because a parent may have dealt with the failure of a child.

        Raises:
            BadArguments: Nothing says which, or a state cannot be used.
        """

    def bulk(
        self,
        action: Action,
        *,
        ids: Iterable[str] | None = ...,
        expect: int | None = ...,
        reason: str = ...,
        by: str = ...,
        within: Duration = ...,
        **which: Any,
    ) -> Bulk:
        """Pause, resume, cancel, retry or delete many runs: these, or all that fit. What one of them refuses stops no other.

        Args:
            action: What is to be done to each: "pause", "resume", "cancel", "retry" or "delete".
            ids: The runs, at most 1,000.
            expect: How many are expected to fit; nothing is done if more than a tenth more do.
            reason: Why, for a pause or a cancel.
            by: The person who does it.
            within: How long it may take; `left` says for how many there was no time.
            which: The filters of `hf.runs`, instead of `ids`; at most 10,000 runs may fit.

        Raises:
            BadArguments: Nothing says which, too many fit, or a filter cannot be used.
            Changed: More fit than was expected. Nothing was done.
        """

    def notify(
        self,
        url: str,
        /,
        kinds: str | Iterable[str],
        *,
        secret: str | Sequence[str] | None = ...,
        name: str | None = ...,
        format: str | None = ...,
        agent: Any = ...,
        labels: Mapping[str, str] | None = ...,
        base_url: str | None = ...,
        retry: int | Retry | None = ...,
    ) -> NotificationHandle:
        """Tell a person or a service what happens to runs, from now on. Workers send the messages; the same name changes it.

        Args:
            url: An address on the web, `"mailto:ana@example.com"`, or `"env:NAME"`, a variable of the workers that has it.
            kinds: Kinds of events; "approval" is all that happens to questions. Beside those of `hf.events` there are "run.stuck"
                and "budget.reached".
            secret: Where the secret is that signs messages by Standard Webhooks, `"env:NAME"`; of several each signs.
            name: Its name; one made from the URL unless given.
            format: "json", "slack" for chats that take Slack's messages, or "mail".
            agent: Only runs of this agent.
            labels: Only runs with these labels.
            base_url: Where `holdfast serve` is reached, for links.
            retry: How often a message is tried, and how far apart. Twelve times in more than a day unless given.

        Raises:
            BadArguments: The URL, a kind or an option cannot be used.
        """

    def get_notification(self, name: str) -> NotificationHandle:
        """Return a handle to a notification. Nothing is read before the handle is used.

        Raises:
            BadArguments: This is no name of a notification.
        """

    def notifications(self) -> list[NotificationInfo]:
        """List all notifications, in the order of their names."""

    def replay(
        self,
        run: str,
        agents: Iterable[Agent[..., Any] | ModuleType],
        *,
        to: int | str | None = ...,
        full: bool = ...,
        debug: bool = ...,
        timeout: Duration = ...,
    ) -> Replay:
        """Replay a run with this code and tell whether it fits: no body runs, and nothing is written.

        Args:
            run: The run.
            agents: Its agent, and those it calls, or modules with agents.
            to: Stop when the run has seen this event, or where it makes the call of this key; `frames` then has what the
                variables of the agent's functions held at that moment.
            full: Show variables whole, up to 100,000 characters each, and not by their beginnings.
            debug: Open Python's debugger in this terminal where the replay would stop, or at the agent's first line. Calls get
                their recorded results while one steps on.
            timeout: How long the code may take, or keep the event loop; it is stopped then, and `line` says where it was.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: The run has no such event or call, or an agent or the timeout cannot be used.
        """

    def check(
        self,
        agents: Iterable[Agent[..., Any] | ModuleType],
        *,
        runs: Iterable[str] | None = ...,
        finished: int = ...,
        timeout: Duration = ...,
    ) -> Checked:
        """Replay every unfinished run with this code, and the newest finished ones, and tell which would not go on, and where.

        Runs that were moved to another store are left out.

        Args:
            agents: The agents, or modules with agents, that are about to serve the store.
            runs: Only these runs.
            finished: So many finished runs too.
            timeout: How long the code may take for one run, or keep the event loop. It is stopped then, and `line` says where it
                was; the other runs of an agent whose code has kept the loop get a tenth of that.

        Raises:
            UnknownRun: One of `runs` is not there.
            BadArguments: A number, a time or an agent cannot be used.
        """

    def diff(self, one: str, other: str) -> Difference:
        """Compare two runs: where they part, then their calls, results, times and costs side by side.

        Args:
            one: A run.
            other: Another run: a fork of it, the same again, a run of another version.

        Raises:
            UnknownRun: One of them is not there.
        """

    def compare(self, a: str, b: str, *, after: int = ..., limit: int = ..., differences: bool = ...) -> Comparison:
        """Compare two runs call by call, a page at a time, however long they are; `diff` compares short ones in one piece.

        Args:
            a: A run.
            b: Another run: a fork of it, the same again, a run of another version.
            after: The `next` of the page before.
            limit: How many calls at most.
            differences: Whether calls that are the same are left out.

        Raises:
            UnknownRun: One of them is not there.
            BadArguments: A run has more than 200,000 events, or a number cannot be used.
        """

    def schedule(self, name: str, agent: Any, schedule: str | Schedule, /) -> ScheduleHandle:
        """Have runs of an agent begin by themselves, from now on; the same name again changes it.

        Args:
            name: Begins the ids of its runs.
            agent: The agent, or its name.
            schedule: A cron line, or a `Schedule` with the arguments of its runs.

        Raises:
            BadArguments: It is no schedule, its arguments do not fit the agent, or an agent's code declares one of this name.
            UnknownAgent: No worker has published an agent of this name.
        """

    def get_schedule(self, name: str) -> ScheduleHandle:
        """Return a handle to a schedule. Nothing is read before the handle is used.

        Raises:
            BadArguments: This is no name of a schedule.
        """

    def schedules(self) -> list[ScheduleInfo]:
        """List all schedules, in the order of their names."""

    def create_token(
        self,
        name: str,
        *,
        groups: Iterable[str] = ...,
        scopes: Iterable[str] = ...,
        expires: Duration | None = ...,
        only: Mapping[str, str] | None = ...,
    ) -> tuple[Token, str]:
        """Make a token for a person or a program; returns it with its secret, which cannot be shown again.

        Args:
            name: The person or program that acts with it.
            groups: The groups that person is in.
            scopes: Any of "read", "write" and "decide".
            expires: How long it is good; None: for ever.
            only: Labels: only runs that have them, or are below a run that has them, are there for it.

        Raises:
            BadArguments: A name or scope cannot be used.
        """

    def tokens(self) -> list[Token]:
        """List all tokens that were ever made here, the oldest first."""

    def revoke_token(self, which: str) -> list[Token]:
        """Revoke a token by its id, or all of a name; returns those revoked. Every server refuses them from now on.

        Sessions end with their token. Those of a person whom a provider knows, by that name, end too.

        Raises:
            BadArguments: There is no such token.
        """

    def token_of(self, secret: str) -> Token | None:
        """Find the token with this secret, if it is good. For servers."""

    def good_token(self, id: str) -> Token | None:
        """Find the token with this id, if it is good. For servers."""

    def token_used(self, token: Token) -> None:
        """Note that a token was shown: about when, so that few of many requests write. For servers."""

    def triggers(self) -> list[TriggerInfo]:
        """List the triggers that workers have declared, in the order of their names."""

    def deliveries(
        self, *, trigger: str | None = ..., status: str | None = ..., limit: int = ...
    ) -> list[DeliveryInfo]:
        """List deliveries, the latest first.

        Args:
            trigger: Deliveries of this trigger.
            status: "new", "done" or "dead".
            limit: How many at most.

        Raises:
            BadArguments: A filter cannot be used.
        """

    def delivery(self, trigger: str, id: str) -> Delivery:
        """Read a delivery as its mapping gets it: `github(await hf.delivery("github", "72d3162e"))` tells what that returns.

        Raises:
            UnknownTrigger: There is no such delivery.
        """

    def replay_delivery(self, trigger: str, id: str) -> DeliveryInfo:
        """Try a dead delivery again from the beginning, when what it failed for is mended. One that is done stays done.

        Raises:
            UnknownTrigger: There is no such delivery.
        """

    def replay_dead(self, trigger: str) -> int:
        """Try all dead deliveries of a trigger again from the beginning; returns how many there were.

        Raises:
            UnknownTrigger: There is no such trigger, and nothing came for one.
        """

    def dismiss_delivery(self, trigger: str, id: str) -> DeliveryInfo:
        """Let a dead delivery be: it counts as done, and nothing is done about it. Its error and its body stay to be seen.

        Raises:
            UnknownTrigger: There is no such delivery.
        """

    def delete_trigger(self, name: str) -> None:
        """Forget a trigger whose code is gone. Its deliveries stay for 30 days; if a worker declares it, it comes back.

        Raises:
            UnknownTrigger: There is no such trigger.
        """

    @contextmanager
    def deadline(self, limit: Duration) -> Iterator[None]:
        """Bound, for a block, how long each write and read waits for the store, instead of `Settings.deadline_s`.

        Raises:
            StoreUnavailable: A write or read took longer: nothing was done, and nothing will be.
            Unconfirmed: The commit of a write was on its way: it may have happened.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def close(self) -> None:
        """Stop the worker at a safe point, if there is one, and let go of the store. Done by itself when the program ends."""

def open(
    url: str | None = ...,
    *,
    agents: Iterable[Agent[..., Any] | Trigger[..., Any] | ModuleType] = ...,
    settings: Settings | None = ...,
    inputs: KeptAs | None = ...,
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
    """
