"""The seam between verbs and engines: what a verb may ask of whatever runs the agent.

One context variable says where code is: in an agent (a `Runtime`, one per asyncio task of the run), in a step's body (a
`StepContext`), or neither. Verbs know nothing else, so that the same agent runs on the local engine and on another one.

A context of its own, such as an empty one, may know nothing of it. Then the task or the callback that is running tells.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import datetime
from types import CodeType, FrameType
from typing import Any, ClassVar, Final, Generic, Literal, Never, NoReturn, Protocol, TypeVar, cast

from holdfast.errors import BadArguments, HoldfastError, LeafError, NotInRun
from holdfast.values.codec import Migrate, Shape
from holdfast.values.signature import Signature
from holdfast.values.text import is_whole, short
from holdfast.words.announcements import On
from holdfast.words.budget import Budget
from holdfast.words.calls import KeptAs
from holdfast.words.limits import Flow
from holdfast.words.loops import Loops
from holdfast.words.model import Recorded
from holdfast.words.retry import Retry
from holdfast.words.salvage import Reason, Salvaged
from holdfast.words.schedules import Schedule
from holdfast.words.spent import Spent

S = TypeVar("S")
Isolation = Literal["read committed", "serializable"]
T_co = TypeVar("T_co", covariant=True)
# A durable call, as type checkers see it. `Never` fits wherever somebody names a yield type, and so does `Any`; but with
# an explicit `Any` mypy gives up on `asyncio.gather(one(), other())` and makes both results `Any`.
Called = Coroutine[Never, object, T_co]


@dataclass(frozen=True, eq=False, slots=True)
class StepSpec:
    """A step as declared."""

    name: str
    fn: Callable[..., Any]
    signature: Signature
    retry: Retry
    timeout_s: float | None
    raises: tuple[type[Exception], ...]
    in_doubt: str  # 'retry', 'probe', 'ask', 'fail'
    probe: Callable[..., Coroutine[Any, Any, Any]] | None
    threaded: bool
    transaction: Isolation | None = None  # its body and its record are one transaction of the store
    flow: Flow | None = None  # its limit and rate, if it has any
    migrate: Migrate | None = None  # makes what fits of a recorded result that does not
    # Whether its inputs are kept: 'full' or 'digest', None: as its agent says; or what makes the value to be kept of a call's
    # arguments.
    inputs: KeptAs | Callable[..., Any] | None = None
    effects: bool = True  # its body changes something outside; else it may run again unasked


@dataclass(frozen=True, eq=False, slots=True)
class AgentSpec:
    """An agent as declared."""

    name: str
    fn: Callable[..., Coroutine[Any, Any, Any]]
    signature: Signature
    flow: Flow
    version: str | None = None
    budget: Budget | None = None
    loops: Loops | None = None
    strict: bool = False  # its code may do nothing that is not recorded
    inputs: KeptAs | None = None  # of its steps; None: as the store says
    schedule: Schedule | None = None
    on: On | None = None  # the announcements that start it
    folding: Folding | None = None  # of a reducer: the function that its code folds events with


Watch = Callable[[int, Any], None]  # is told how many events were folded, and the state they came to


@dataclass(frozen=True, eq=False, slots=True)
class Folding:
    """A reducer as declared."""

    fn: Callable[[Any, Any], Any]
    state: Shape
    first: Any  # the state to begin with, or `NO_DEFAULT`
    events: Any  # the shape of events from outside; it has their types, `members`
    takes_outcomes: bool  # an outcome of a command is one of its events
    every: int  # events between two checkpoints, at least
    migrate: Migrate | None
    watched: Callable[
        [Watch | None], Callable[..., Coroutine[Any, Any, Any]]
    ]  # its code as an agent, which tells of each state


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that `this_run()` tells."""

    id: str
    agent: str
    labels: dict[str, str]
    parent: str | None
    root: str
    replaying: bool


class NoDefault:
    """Says that nothing holds when a question expires."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault()
_MOST_PEOPLE: Final = 1_000  # that one question needs


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """A question of an agent to people, as `approve` and `ask` put it."""

    kind: str  # 'approve' or 'ask'
    text: str
    shown: object
    shown_shape: Shape
    shape: Shape  # of what may be edited or answered
    editable: bool
    to: list[str]  # people and groups; empty: anybody
    needs: int | Callable[[Any], int]
    expires_ms: int | None
    default: object
    remind_ms: int | None
    given_schema: dict[str, Any] | None = None  # of what may be edited, if its type does not tell
    not_by_starter: bool = False  # the starter of the run may not decide

    @property
    def verb(self) -> str:
        return self.kind

    @property
    def schema(self) -> str | None:
        """The JSON schema of what may be edited or answered, None if nothing may."""
        if not self.editable:
            return None
        return json.dumps(self.shape.schema() if self.given_schema is None else self.given_schema)

    def needed(self, value: Any) -> int:
        """Count the people who must agree to this value."""
        needs = self.needs(value) if callable(self.needs) else self.needs
        if not is_whole(needs, 1, _MOST_PEOPLE):
            raise BadArguments(
                f"needs={short(needs)}: say how many different people must agree, 1 or more and at most {_MOST_PEOPLE:,}"
            )
        return needs


@dataclass(slots=True)
class Answer:
    """The end of a question."""

    value: Any
    at: datetime
    yes: bool = True
    by: str | None = None
    note: str = ""
    expired: bool = False
    votes: list[dict[str, Any]] = field(default_factory=list)


class Outlet(Protocol):
    """A stream, seen from its writer. It has its identity already."""

    salvaged: Salvaged | None

    def open(self) -> Awaitable[None]: ...
    def write(self, text: str) -> Awaitable[None] | None:
        """Take the text; what is returned must be awaited first, because the store is far behind."""
        ...

    def keep(self) -> None:
        """Go on from what was salvaged."""
        ...

    def close(self, reason: Reason | None) -> Awaitable[None] | None:
        """End the stream here; `reason` says why if not by itself."""
        ...


@dataclass(slots=True)
class StepContext:
    """The facts that `this_step()` tells, and the means that a body may use."""

    key: str
    derive: Callable[[], str]  # the idempotency key, made when it is asked for: most steps have no use for one
    attempt: int  # of this call, as far as the journal tells
    run: RunFacts | None = None
    resources: Resources | None = None
    connection: Any = None  # of the transaction that the body is in, if it is in one
    spendings: list[tuple[Spent, str | None]] = field(default_factory=list)  # of this call, each with its model
    left: dict[str, Any] = field(default_factory=dict)  # of the budgets that hold, when the body began
    clock: Callable[[], int] = lambda: 0  # what time it is to the store
    stream: Callable[[str], Outlet] | None = None  # a stream of the run that the step belongs to, if it belongs to one
    tell: Callable[[dict[str, Any]], None] | None = (
        None  # how far the body has come: to the run's history, from any thread
    )
    publish: Callable[[Publish], str] | None = None  # with the outcome of the step, from any thread; None: it cannot
    again: bool = False  # the body may have run before: an attempt failed, or a process died after the call was made

    @property
    def idempotency_key(self) -> str:
        """A key that every attempt of this call has, and no other call."""
        return self.derive()


class Resources(Protocol):
    """The opened resources of one worker."""

    async def get(self, resource: Any) -> Any: ...


class Durable(Coroutine[Any, Any, T_co], Generic[T_co]):
    """A durable call: it has its identity already and happens when it is awaited, once.

    It is no truth value, because `if approve(...)` without await would always hold.
    """

    __slots__ = ("__name__", "__qualname__", "_begin", "_steps", "_unawaited", "number")

    def __init__(
        self,
        name: str,
        begin: Callable[[], Generator[Any, Any, T_co]],
        number: int = 0,
        unawaited: dict[int, Durable[Any]] | None = None,
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self._begin, self.number = begin, number
        self._unawaited = unawaited  # has it by its number until it is awaited or closed
        self._steps: Generator[Any, Any, T_co] | None = None

    def __await__(self) -> Generator[Any, Any, T_co]:
        if self._steps is not None:
            raise RuntimeError(f"{self.__name__}: this call was awaited before; call it again for another one")
        if self._unawaited is not None:
            self._unawaited.pop(self.number, None)
        self._steps = self._begin()
        return self._steps

    def send(self, value: Any, /) -> Any:
        return (self._steps or self.__await__()).send(value)

    def throw(self, *error: Any) -> Any:
        return (self._steps or self.__await__()).throw(*error)

    def close(self) -> None:
        if self._steps is None and self._unawaited is not None:
            self._unawaited.pop(self.number, None)
        if self._steps is not None:
            self._steps.close()

    def then(self, make: Callable[[Any], S]) -> Durable[S]:
        """Pass the value of this call through `make`."""
        begin = self._begin

        def steps() -> Generator[Any, Any, Any]:
            return make((yield from begin()))

        self._begin = steps
        return cast("Durable[S]", self)

    def __bool__(self) -> NoReturn:
        raise HoldfastError(
            f"{self.__name__}(...) was used as a truth value without await; write `if await {self.__name__}(...)`"
        )

    def _used(self, *_: object) -> NoReturn:
        """Refuse an operator: the value is meant, and there is none yet."""
        name = self.__name__
        raise HoldfastError(
            f"{name}(...) was used in an expression without await, so it did not happen; write `(await {name}(...))` there"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _used
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _used
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = (
        _used
    )
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __pos__ = __abs__ = __invert__ = _used
    __len__ = __getitem__ = __setitem__ = __delitem__ = __int__ = __float__ = __index__ = __complex__ = _used

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a call of {self.__name__!r} has no attribute {name!r}: it was not awaited, so it did not happen. Write "
            f"`(await {self.__name__}(...)).{name}` if its value is meant"
        )

    def __hash__(self) -> int:  # by order of creation, so that sets of calls iterate alike on replay
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<durable call {self.__name__}>"


class Deadline(Protocol):
    """A durable timer that calls back instead of being awaited."""

    def cancel(self) -> None: ...
    def blame(self, error: Exception) -> Exception:
        """The exception itself, marked as caused by this deadline."""
        ...


class Talk(Protocol):
    """A conversation that a run has."""

    @property
    def conversation(self) -> str: ...
    @property
    def length(self) -> int:
        """The number of its messages, as far as the agent has seen."""
        ...


# Requests: what a verb asks of the runtime, by `Runtime.call`. `verb` is how messages name it.


class Request(Protocol):
    """Something that an agent asks for, and waits for."""

    @property
    def verb(self) -> str: ...


@dataclass(slots=True)
class Sleep:
    """Wait this long, or until then."""

    verb: ClassVar[str] = "sleep"
    delay_ms: int | None
    until_ms: int | None


@dataclass(slots=True)
class Receive:
    """The next message of a topic."""

    verb: ClassVar[str] = "receive"
    topic: str
    shape: Shape
    timeout_ms: int | None


@dataclass(slots=True)
class CallChild:
    """Run another agent and wait for its result."""

    spec: AgentSpec
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def verb(self) -> str:
        return self.spec.name


@dataclass(slots=True)
class Spawn:
    """Start a child run; its id."""

    verb: ClassVar[str] = "spawn"
    spec: AgentSpec
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class AwaitChild:
    """The result of a child that was started before."""

    verb: ClassVar[str] = "awaiting a child"
    child: str
    agent: str


@dataclass(slots=True)
class EnterConversation:
    """Have a conversation to oneself, at once or after others: a `Talk`. `ConversationBusy` if it is not waited for."""

    verb: ClassVar[str] = "conversation"
    conversation: str
    wait: bool


@dataclass(slots=True)
class ReadConversation:
    """Messages of a conversation, from a position to before another."""

    verb: ClassVar[str] = "conversation.messages"
    talk: Any
    shape: Shape
    first: int
    end: int


@dataclass(slots=True)
class AddToConversation:
    """Say something in a conversation."""

    verb: ClassVar[str] = "conversation.add"
    talk: Any
    shape: Shape
    messages: tuple[Any, ...]


@dataclass(slots=True)
class LeaveConversation:
    """Give a conversation to the next."""

    verb: ClassVar[str] = "conversation.leave"
    talk: Any


@dataclass(slots=True)
class Note:
    """A line in the history."""

    verb: ClassVar[str] = "note"
    text: str
    data: dict[str, Any]


@dataclass(slots=True)
class Progress:
    """Record how far the run has come."""

    verb: ClassVar[str] = "progress"
    data: dict[str, Any]


@dataclass(slots=True)
class Plan:
    """Record what the run means to do: names, and whether each is done."""

    verb: ClassVar[str] = "plan"
    items: list[list[Any]]


@dataclass(slots=True)
class Publish:
    """Publish an announcement; its id."""

    verb: ClassVar[str] = "publish"
    name: str
    text: str  # of the value
    key: str | None


@dataclass(slots=True)
class NextEvent:
    """The next announcement of a name whose fields have these values."""

    verb: ClassVar[str] = "next_event"
    name: str
    match: dict[str, Any]
    shape: Shape
    timeout_ms: int | None


@dataclass(slots=True)
class Unfinished:
    """Ask for what was left in a stream, if anything was."""

    verb: ClassVar[str] = "unfinished"
    stream: str


@dataclass(slots=True)
class Restore:
    """The state of the last checkpoint, or the first one."""

    verb: ClassVar[str] = "restore"
    first: object
    shape: Shape
    build: Callable[[], Awaitable[Any]] | None
    migrate: Migrate | None


@dataclass(slots=True)
class Checkpoint:
    """Store this state; the stored copy."""

    verb: ClassVar[str] = "checkpoint"
    state: object
    by_change: bool = False  # store what changed since the one before, if that is less


@dataclass(slots=True)
class Look:
    """Look ahead: is the run live, is the outcome recorded of the call that takes the next key of this label, in this task?

    And how much has come that the agent has not seen. The first and the last are not the same each time: nothing that is recorded
    may depend on them.
    """

    verb: ClassVar[str] = "look"
    label: str


@dataclass(slots=True)
class Skip:
    """Pass over what the journal holds next, and go on as the task of this name."""

    verb: ClassVar[str] = "skip"
    keys: Sequence[str]
    task: str


class Kept(Protocol):
    """Choices that agent code has made so far, and facts it was told: equal on every replay, and carried over checkpoints."""

    plan: Sequence[list[Any]]  # the items of the last plan, each a name and whether it is done
    choices: dict[str, Any]  # plain values, by name
    means: dict[str, Any]  # what is left of the budgets that hold


class Runtime(Protocol):
    """One task of one run. What returns a `Durable` takes the call's identity before it returns."""

    @property
    def facts(self) -> RunFacts: ...
    def at_home(self) -> Runtime:
        """The runtime of the task that is running: a library may have copied the context variables of another one."""
        ...

    def step(self, spec: StepSpec, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Durable[Any]:
        """One recorded action; `target` is the `self` of a method, or None."""
        ...

    def call(self, request: Request) -> Durable[Any]:
        """Anything else that is asked for and waited for."""
        ...

    def deadline(self, delay_ms: int, callback: Callable[[], None]) -> Deadline: ...
    def messages(self, topic: str, shape: Shape) -> list[Any]:
        """Every message of a topic that has come and nobody has received."""
        ...

    def stream(self, name: str) -> Outlet: ...
    def watch(self, loops: Loops) -> None:
        """Look for loops from here on, unless that is done already."""
        ...

    @property
    def kept(self) -> Kept: ...

    def patched(self, patch: str) -> bool: ...
    def now(self) -> datetime: ...
    def seed(self, label: str) -> str:
        """A string that is the same on every replay of this call and unlike any other."""
        ...

    def scope(self, name: str) -> AbstractContextManager[None]: ...
    @property
    def label(self) -> str:
        """The name of this task among those beside it."""
        ...

    def place(self, name: str) -> str:
        """A name for what begins here, unlike any other in the scope around it, and the same in every run of this code."""
        ...

    def ahead(self, names: str) -> Iterator[Recorded]:
        """Records that the journal holds next in scopes whose names begin so, as far as they may be passed over."""
        ...


_here: ContextVar[Runtime | StepContext | None] = ContextVar("holdfast", default=None)
UNSET: Final[Any] = object()  # what `_here.get(UNSET)` is in a context that knows of nothing, as opposed to: in neither
# The methods that call a callback in a context, `self._context`: so does the loop, and so does what takes its place.
CALLERS: Final[set[CodeType]] = {asyncio.Handle._run.__code__}  # noqa: SLF001


def here() -> Runtime | StepContext | None:
    """Return the place of the running code: the runtime of an agent, the context of a step, or None."""
    place = _here.get(UNSET)
    if place is UNSET:
        return around()
    return place if place is None or isinstance(place, StepContext) else place.at_home()


def around() -> Runtime | None:
    """The agent whose code is running, in a context that does not say so: code may use one of its own for anything."""
    loop = _get_running_loop()
    if loop is None:
        return None
    task = asyncio.current_task(loop)
    place: Any = _of_callback(sys._getframe(1)) if task is None else getattr(task, "scope", None)  # noqa: SLF001
    return place if place is not None and getattr(place, "is_scope", False) else None


def _of_callback(frame: FrameType | None) -> Any:
    while frame is not None:
        if frame.f_code in CALLERS:
            return frame.f_locals["self"]._context.get(_here)  # noqa: SLF001
        frame = frame.f_back
    return None


def current(verb: str) -> Runtime:
    """The runtime of the agent that is running, or an error that says what to do instead."""
    place = here()
    if place is None:
        raise NotInRun(
            f"{verb} works only inside a running agent; start one with `await hf.start(agent, ...)` or "
            "`holdfast run file.py:agent`"
        )
    if isinstance(place, StepContext):
        raise LeafError(
            f"{verb} was called inside the step at {place.key!r}; a step's body is a leaf and cannot make durable calls. "
            "Move the call into the agent, or call the plain function with `.fn(...)`"
        )
    return place


def call_plainly(body: Callable[[], S]) -> S:
    """Call a plain function in a thread of its own; no future can carry a StopIteration, nor can a coroutine."""
    try:
        return body()
    except StopIteration as error:
        raise RuntimeError("the body of the step raised StopIteration") from error


@dataclass(slots=True)
class Placed:
    """Sets where code is, for one block."""

    place: Runtime | StepContext | None
    _token: Any = field(default=None)

    def __enter__(self) -> None:
        self._token = _here.set(self.place)

    def __exit__(self, *_: object) -> None:
        _here.reset(self._token)


def outside() -> Context:
    """A copy of this context in which code is in no run."""
    context = copy_context()
    if context.get(_here, UNSET) is not None:
        context.run(_here.set, None)
    return context
