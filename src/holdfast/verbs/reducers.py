"""Reducers: agents written as one pure function from a state and an event to the next state and commands.

Look here for `@reducer`, for the commands such a function returns, and for the program that carries them out.

That program (`_Life`) is an ordinary agent over the verbs that every agent has. It takes the next event, folds it, and begins what
the function asked for: a step is a task that calls it, a child is spawned and awaited, a question is a child that asks, and of all
timers the next one is slept for. What they come to goes into the line of events like messages do. The gate delivers one outcome at
a time and in the order of the journal, so a replay folds the same events in the same order.

Before it folds an event it may take a checkpoint: once so many events were folded since the last one, and no step is under way. The
checkpoint holds the state, by what changed in it if that is less; beside it, in the choices that checkpoints carry, is what the
next era must know of commands (timers, children) and the events that are in line but not folded. Waiting for messages, timers and
children is ended before a checkpoint and begun again behind it, which loses nothing: messages stay in the inbox, timers have
absolute times, and children are runs. A step cannot be left alone like that. If one is always under way, after a while no further
message is taken, and after another nothing is folded, until all have ended. Then it goes on, with a checkpoint or without.

Whether a checkpoint is due is asked only when the run is live. No replay comes to one, because it starts at the last; so the answer
may depend on what no history has, and another `every=` moves nothing that is recorded. What does order events (`_limit`) is the
same in every life: it is carried by the checkpoint.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import json
import re
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from types import FunctionType, UnionType
from typing import (
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
    overload,
)

from holdfast.declare import Agent, Step, agent
from holdfast.errors import BadArguments, NotStorable
from holdfast.runtime import (
    NO_DEFAULT,
    AgentSpec,
    Answer,
    AwaitChild,
    Called,
    Checkpoint,
    Folding,
    Look,
    Question,
    Receive,
    Restore,
    Runtime,
    Sleep,
    StepSpec,
    Watch,
    current,
)
from holdfast.runtime import Spawn as SpawnChild
from holdfast.values.codec import UNTYPED, Migrate, Shape, shape_of
from holdfast.values.hints import resolved
from holdfast.values.text import annotation_name, cut, is_whole, short, type_name
from holdfast.verbs.approvals import checked_question, shape_of_value
from holdfast.verbs.names import reached
from holdfast.verbs.purity import check_pure
from holdfast.verbs.replay import note
from holdfast.words.budget import Budget
from holdfast.words.durations import Duration, epoch_ms, milliseconds
from holdfast.words.harmless import logger
from holdfast.words.limits import NORMAL
from holdfast.words.people import checked_names

S = TypeVar("S")
E = TypeVar("E")

TOPIC: Final = "event"
"""The topic of messages that are events of a reducer."""
EVERY: Final = 100  # events between two checkpoints, unless the reducer says otherwise
_BYTES: Final = 1_000  # of state for which one event more comes between two checkpoints, so that their cost stays small
_WAITING: Final = 4  # events that are folded for each that stands in line and is stored again by a checkpoint
_COMING: Final = 8  # messages that a checkpoint only counts up, for each event that is folded: it looks at all of them
_APART: Final = "a message was kept apart, because it is no event of this reducer: "
_WITH_MAKER: Final = 5  # parts of a stored outcome that names its step or agent
_log: Final = logger("holdfast")
_NAMED: Final = re.compile(r'\{\s*"(\w+)"\s*:')
_MOST_TIMER_MS: Final = 100 * 366 * 24 * 3600 * 1000
_PLAIN: Final = (str, int, float, bool, bytes, type(None), dict, list, tuple, set, frozenset)


# What a reducer may ask for, and what comes of it


@dataclass(frozen=True)
class Outcome:
    """An event: what a command of a reducer came to.

    Attributes:
        tag: The tag of the command.
        value: The result of the step or child, or the answer as plain data.
        error: The type and text of the exception, if it failed; then there is no value.

    Example:
        ```python
        paid = holdfast.Outcome("charge", value=5)
        assert paid.ok
        ```
    """

    tag: str
    value: Any = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Tell whether it ended without an error.

        Example:
            ```python
            assert not holdfast.Outcome("charge", error="ValueError: too little").ok
            ```
        """
        return self.error is None


@dataclass(frozen=True, init=False)
class Do:
    """A command: call a step. Its `Outcome` comes back as an event.

    Attributes:
        step: The step.
        args: Its arguments by position.
        kwargs: Its arguments by name.
        tag: The tag of the outcome; the name of the step unless given.

    Raises:
        BadArguments: It is no step, or the tag is no text.

    Example:
        ```python
        command = holdfast.Do(search, "otters", tag="first")
        assert command == holdfast.Do(search, "otters", tag="first")
        ```
    """

    step: Step[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tag: str

    def __init__(self, step: Step[..., Any], /, *args: Any, tag: str | None = None, **kwargs: Any) -> None:
        if not isinstance(step, Step):
            raise BadArguments(f"Do takes a step (a function with @holdfast.step) and its arguments, not {step!r}")
        _set(self, step=step, args=args, kwargs=kwargs, tag=_checked_tag(step.name if tag is None else tag))


@dataclass(frozen=True, init=False)
class Spawn:
    """A command: start a child run. Its `Outcome` comes back when the child has ended.

    Attributes:
        agent: The agent, which may be another reducer.
        args: Its arguments by position.
        kwargs: Its arguments by name.
        tag: The tag of the outcome; the name of the agent unless given.

    Raises:
        BadArguments: It is no agent, or the tag is no text.

    Example:
        ```python
        command = holdfast.Spawn(research, "otters")
        assert command.tag == "research"
        ```
    """

    agent: Agent[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tag: str

    def __init__(self, agent: Agent[..., Any], /, *args: Any, tag: str | None = None, **kwargs: Any) -> None:
        if not isinstance(agent, Agent):
            raise BadArguments(f"Spawn takes an agent (a function with @holdfast.agent), not {agent!r}")
        _set(self, agent=agent, args=args, kwargs=kwargs, tag=_checked_tag(agent.name if tag is None else tag))


@dataclass(frozen=True)
class After:
    """A command: have this event come when a time has passed, across restarts.

    Attributes:
        duration: How long from now, such as "5m".
        event: An event of the reducer.

    Raises:
        BadArguments: The duration cannot be used.

    Example:
        ```python
        command = holdfast.After("5m", Reminder("otters"))
        ```
    """

    duration: Duration
    event: Any

    def __post_init__(self) -> None:
        if milliseconds(self.duration) > _MOST_TIMER_MS:
            raise BadArguments(f"After({self.duration!r}, ...): that is more than a hundred years")


@dataclass(frozen=True)
class Ask:
    """A command: ask people. Its `Outcome` comes back with the answer, as plain data that fits the type.

    Attributes:
        question: What the person is asked.
        type: The type of the answer.
        show: A value to look at.
        to: The people and groups who may answer; anybody if there is none.
        expires: After this time the `default` is the answer; without a default the outcome is an error.
        default: The answer if nobody answers in time.
        remind: Record an event `approval.reminded` each time this has passed.
        tag: The tag of the outcome.

    Raises:
        BadArguments: An option cannot be used.

    Example:
        ```python
        command = holdfast.Ask("Refund this?", bool, to="group:support", expires="2 days", default=False)
        ```
    """

    question: str
    type: Any
    show: Any = None
    to: str | Sequence[str] = ()
    expires: Duration | None = None
    default: Any = NO_DEFAULT
    remind: Duration | None = None
    tag: str = "ask"

    def __post_init__(self) -> None:
        _checked_tag(self.tag)
        checked_question(
            "Ask", self.question, self.show, UNTYPED, UNTYPED, True, self.to, 1, self.expires, None, self.remind
        )


@dataclass(frozen=True)
class Done:
    """A command: end the run. Its result is the state.

    Steps that are under way end first. Timers are forgotten; children, and questions to people, are left as they are. No other
    event is folded.

    Example:
        ```python
        commands = [holdfast.Do(search, "otters"), holdfast.Done()]
        ```
    """


Command: TypeAlias = Do | Spawn | After | Ask | Done
"""A command that a reducer may return."""


def _set(command: Any, **values: Any) -> None:
    for each in fields(command):
        object.__setattr__(command, each.name, values[each.name])


def _checked_tag(tag: object) -> str:
    if not isinstance(tag, str) or not 0 < len(tag) <= 200:
        raise BadArguments(f"tag={short(tag)}: use a text of 1 to 200 characters")
    return tag


class Events(Shape):
    """Events as text: each with the name of its type, `{"Paid": {"cents": 5}}`, so that types may have the same fields."""

    __slots__ = ("_shapes", "members")

    def __init__(self, members: tuple[type, ...]) -> None:
        super().__init__()
        self.members, self.name = members, " | ".join(each.__name__ for each in members) or "none from outside"
        self._shapes = {each.__name__: shape_of(each) for each in members}

    def text(self, value: Any, where: str = "event", *, argument: bool = False) -> str:
        name = type(value).__name__
        return f'{{"{name}":{self._shapes[name].text(value, where, argument=argument)}}}'

    def load(self, text: str, where: str = "event", *, migrate: Migrate | None = None, drop: bool = False) -> Any:
        named = _NAMED.match(text)
        shape = self._shapes.get(named[1]) if named is not None else None
        if named is None or shape is None:
            raise NotStorable(f'{where}: {cut(text, 80)} is none of {self.name}; write it as {{"Name": {{...}}}}')
        return shape.load(text[named.end() : -1], where, migrate=migrate, drop=drop)

    def promise(self, where: str) -> None:
        for shape in self._shapes.values():
            shape.promise(where)


class _Text(Shape):
    """The text of a message as it was sent."""

    __slots__ = ()

    def load(self, text: str, where: str = "event", *, migrate: Migrate | None = None, drop: bool = False) -> str:
        return text


_TEXT: Final = _Text()


# Declaring one


class Reducer(Agent[..., S], Generic[S, E]):
    """An agent that is one pure function, made by `@holdfast.reducer`; `.fn` is the function as it was written.

    Called with a state and an event it is that function, so a unit test needs nothing else. A client starts it, with its first
    state if that is to be another than `State()`, and sends it events: `await run.send(event)`. In another agent, called with a
    state or nothing, it is a child run.

    Example:
        ```python
        @holdfast.reducer(int)
        def total(state: int, event: holdfast.Outcome) -> int:
            return state + event.value


        assert total(1, holdfast.Outcome("more", 2)) == 3
        ```
    """

    @overload
    def __call__(self, state: S = ..., /) -> Called[S]: ...
    @overload
    def __call__(self, state: S, event: E, /) -> S | tuple[S, list[Command]]: ...
    def __call__(self, *given: Any) -> Any:
        if len(given) == 2:
            return self.fn(*given)
        return super().__call__(*given)

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        self.fn = spec.folding.fn

    def __repr__(self) -> str:
        return f"<reducer {self.name}>"


def reducer(
    state: type[S],
    /,
    *,
    name: str | None = None,
    version: str | None = None,
    queue: str | None = None,
    priority: int = NORMAL,
    budget: Budget | None = None,
    every: int = EVERY,
    migrate: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[[S, E], S | tuple[S, list[Command]]]], Reducer[S, E]]:
    """Declare a reducer: an agent that is one pure function from its state and an event to the next state, and commands.

    The function is plain, not async, and does nothing but compute: code that can be seen to use a clock, chance, files or sockets
    is refused. It returns the next state, or a tuple of that and a list of commands.

    Args:
        state: The type of the state. A run begins with `state()`, unless it is started with another one.
        name: The name under which runs are started; that of the function unless given.
        version: Pins runs: a run keeps the version it was started with, and only workers that have it carry the run on.
        queue: The queue that workers choose by `--queues`.
        priority: 0 to 9; of the runs that are due, the highest goes first.
        budget: What a run may spend, with all runs below it.
        every: Store the state after about so many events; a run that resumes folds the events since then again. A large state is
            stored less often, and while a step is under way it is not stored.
        migrate: Called with the plain data of a stored state that no longer fits its type. It returns plain data, or a state, that
            does.

    Raises:
        BadArguments: The function or an option cannot be used, or the function is not pure. The text names the line.

    Example:
        ```python
        from dataclasses import dataclass


        @dataclass(frozen=True)
        class Ordered:
            cents: int


        @holdfast.reducer(int)
        def revenue(state: int, event: Ordered) -> int:
            return state + event.cents


        assert revenue(5, Ordered(10)) == 15
        ```
    """
    if not is_whole(every, 1):
        raise BadArguments(f"every={short(every)}: say after how many events the state is stored, 1 or more")

    def declare(fn: Callable[[S, E], S | tuple[S, list[Command]]]) -> Reducer[S, E]:
        folding = _folding(fn, state, every, migrate)
        options: dict[str, Any] = {"version": version, "queue": queue, "priority": priority, "budget": budget}
        made = agent(name=name, strict=True, **options)(folding.watched(None))
        return Reducer(replace(made.spec, folding=folding))

    return declare


def _folding(fn: Any, state: Any, every: int, migrate: Callable[[Any], Any] | None) -> Folding:
    if not isinstance(fn, FunctionType):
        raise BadArguments(f"@reducer belongs on a plain function of a state and an event, not on {fn!r}")
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise BadArguments(
            f"@reducer on {fn.__qualname__!r} is refused: a reducer is a plain function, written with `def`, that returns the next "
            "state. What takes time is a step: return it as a command, Do(step, ...)"
        )
    parameters = list(inspect.signature(fn).parameters)
    if len(parameters) != 2 or "self" in parameters:
        raise BadArguments(
            f"@reducer on {fn.__qualname__!r}: it takes two parameters, the state and the event, as in "
            "`def order(state, event): ...`"
        )
    if state is tuple or get_origin(state) is tuple:
        raise BadArguments(
            f"@reducer({annotation_name(state)}): a tuple cannot be told from a state with commands; use a class"
        )
    hints = resolved(fn, f"reducer {fn.__name__!r}")
    if parameters[1] not in hints:
        raise BadArguments(
            f"reducer {fn.__name__!r}: annotate its parameter {parameters[1]!r} with the types of its events, such as "
            "`Ordered | Paid | holdfast.Outcome`"
        )
    check_pure(fn)
    given = hints[parameters[1]]
    members = get_args(given) if get_origin(given) in (Union, UnionType) else (given,)
    for member in members:
        if not isinstance(member, type) or member in _PLAIN or is_typeddict(member) or get_origin(member) is not None:
            raise BadArguments(
                f"reducer {fn.__name__!r}: {annotation_name(member)} cannot be the type of an event; use classes, such as "
                "dataclasses or pydantic models"
            )
    own = tuple(member for member in members if member is not Outcome)
    twice = [member.__name__ for member in own if [each.__name__ for each in own].count(member.__name__) > 1]
    if twice:
        raise BadArguments(f"reducer {fn.__name__!r}: two types of its events are named {twice[0]!r}; rename one")
    events = Events(own)
    events.promise(f"an event of reducer {fn.__name__!r}")
    shape = shape_of(state)
    shape.promise("state")

    def made(watch: Watch | None) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def life(state: Any) -> Any:
            # Named here, so that workers see that this agent may start runs of those: what `fn` names, and the agent that asks.
            return await _Life(current("reducer"), folding, fn, question, watch).run(state)

        life.__name__, life.__qualname__, life.__module__ = fn.__name__, fn.__qualname__, fn.__module__
        life.__doc__ = fn.__doc__
        life.__annotations__ = {"state": state, "return": state}
        life.__defaults__ = None if first is NO_DEFAULT else (first,)
        return life

    first = _first(state)
    folding = Folding(fn, shape, first, events, Outcome in members, every, migrate, made)
    return folding


def _first(state: Any) -> Any:
    """The state that a run begins with if none is given, or `NO_DEFAULT`."""
    try:
        return state()
    except Exception:  # noqa: BLE001 - whatever it says: then it must be given
        return NO_DEFAULT


@agent(name="holdfast.question")
async def question(
    text: str,
    schema: dict[str, Any],
    show: Any,
    to: list[str],
    expires_ms: int | None,
    default: list[Any],
    remind_ms: int | None,
) -> Any:
    """Ask people what a reducer wants to know: a run of its own, so that it outlives the checkpoints of the reducer."""
    asked = Question(
        "ask",
        text,
        show,
        UNTYPED,
        UNTYPED,
        True,
        to,
        1,
        expires_ms,
        default[0] if default else NO_DEFAULT,
        remind_ms,
        schema,
    )
    answer: Answer = await current("ask").call(asked)
    return answer.value


# Carrying it out


@dataclass(slots=True)
class _Child:
    """A child that was started, or is about to be."""

    tag: str
    agent: str
    id: str = ""


class _Came(NamedTuple):
    """An event that came, and the step or agent that an outcome is of, if that is known."""

    event: Any
    spec: StepSpec | AgentSpec | None = None


class _Life:
    """One run of a reducer in memory."""

    def __init__(
        self, runtime: Runtime, folding: Folding, fn: Callable[..., Any], question: Agent[..., Any], watch: Watch | None
    ) -> None:
        self._runtime, self._folding, self._fn, self._question, self._watch = runtime, folding, fn, question, watch
        self._folded = self._begun = 0  # events so far; commands so far
        self._live = False  # past all that is recorded, as far as is known
        self._stored = 0  # of these: events that the last checkpoint has
        self._interval = min(folding.every, EVERY)  # events from one checkpoint to the next
        self._span = 2 * EVERY  # events from one limit to the next
        self._limit = self._span  # when so many are folded, messages wait until the steps under way have ended
        self._line: deque[_Came] = deque()  # events that came and are not folded
        self._timers: list[tuple[int, int, str]] = []  # a heap: when, which command, its event
        self._children: dict[int, _Child] = {}
        self._acting: dict[int, asyncio.Task[Any]] = {}  # steps, and children that have no id yet
        self._waiting: dict[int, asyncio.Task[Any]] = {}  # for children, by command
        self._timer: asyncio.Task[Any] | None = None
        self._hearing: asyncio.Task[Any] | None = None  # takes messages while something else may come too
        self._makers: dict[tuple[str, str], StepSpec | AgentSpec] | None = (
            None  # that the function uses, once looked for
        )
        self._came: asyncio.Future[None] | None = None  # the loop waits for the line

    async def run(self, first: Any) -> Any:
        """Fold events until a command says that it is done."""
        folding = self._folding
        state = await self._runtime.call(Restore(first, folding.state, None, folding.migrate))
        self._restore(self._runtime.kept.choices.get("reducer"))
        self._see(state)
        try:
            while True:
                came = await self._next()
                if self._folded >= self._limit and not self._acting:
                    self._limit = self._folded + self._span  # also if nothing is stored now: messages come again
                if self._folded >= self._stored + self._interval and not self._acting:
                    state = await self._store(state, came)
                try:
                    state, commands = self._fold(state, came.event)
                except Exception:
                    await self._end()  # what steps under way come to is recorded, and folded when the run is retried
                    raise
                self._folded += 1
                self._see(state)
                for command in commands:
                    self._begin(command)
                if any(isinstance(command, Done) for command in commands):
                    await self._end()
                    return state
        finally:
            self._stop()
            for task in self._acting.values():
                task.cancel()

    def _see(self, state: Any) -> None:
        if self._watch is not None:
            self._watch(self._folded, state)

    def _fold(self, state: Any, event: Any) -> tuple[Any, Sequence[Any]]:
        made = self._fn(state, event)
        state, commands = made if type(made) is tuple and len(made) == 2 else (made, ())
        kind = self._folding.state.annotation
        if isinstance(kind, type) and not isinstance(state, kind):
            raise BadArguments(
                f"reducer {self._fn.__name__!r} returned {short(made)} for the event {short(event)}; it returns a "
                f"{type_name(kind)}, or a tuple of that and a list of commands"
            )
        if not isinstance(commands, list | tuple):
            raise BadArguments(
                f"reducer {self._fn.__name__!r} returned {short(commands)} as its commands; they are a list, as in "
                "`return state, [Done()]`"
            )
        for command in commands:
            self._check(command)
        return state, commands

    def _check(self, command: Any) -> None:
        name = self._fn.__name__
        if not isinstance(command, Do | Spawn | After | Ask | Done):
            raise BadArguments(
                f"reducer {name!r} returned {short(command)} among its commands; they are Do, Spawn, After, Ask and Done"
            )
        if isinstance(command, Do | Spawn | Ask) and not self._folding.takes_outcomes:
            raise BadArguments(
                f"reducer {name!r} returned {type(command).__name__}, whose outcome comes back as an event; add "
                "`| holdfast.Outcome` to the types of its events"
            )
        if isinstance(command, After) and type(command.event) not in self._folding.events.members:
            raise BadArguments(
                f"reducer {name!r} returned After with {short(command.event)}, which is no event of it; it takes "
                f"{self._folding.events.name}"
            )

    # The line of events

    async def _next(self) -> _Came:
        """The next event: of a message, a timer, or what a command came to.

        Steps that begin one another could always be under way: far behind the limit nothing is folded until all have ended.
        """
        while not self._line or (self._acting and self._folded >= self._limit + self._span):
            alone = not (self._acting or self._waiting or self._timers)
            if alone and self._hearing is None:
                return _Came(await self._message())
            if self._acting and self._folded >= self._limit:
                self._stop_hearing()  # until the steps under way have ended, and the state is stored
            elif self._hearing is None:
                self._hearing = asyncio.create_task(self.events())
            self._came = asyncio.get_running_loop().create_future()
            await self._came
        came = self._line.popleft()
        if isinstance(came.event, NotStorable):
            raise came.event
        return came

    async def _message(self) -> Any:
        """The next message that is an event. One that is none is kept apart: a line in the history tells of it.

        What was kept apart once stays so, also for code that knows the type: nothing may happen in the middle of what is recorded.
        """
        while True:
            text = await self._call(Receive(TOPIC, _TEXT, None))
            if await self._look():
                await note(_APART + cut(text, 500))
                continue
            try:
                return self._folding.events.load(text)
            except NotStorable as error:
                _log.warning(
                    "run %r: a message was kept apart, because it is no event of the reducer %r (%s): %s. If it was meant, send it "
                    "again when the code takes it", self._runtime.facts.id, self._fn.__name__, self._folding.events.name, error,
                )  # fmt: skip
                await note(_APART + cut(text, 500))

    def _call(self, request: Any) -> Called[Any]:
        return current("reducer").call(request)

    def _put(self, event: Any, spec: StepSpec | AgentSpec | None = None) -> None:
        self._line.append(_Came(event, spec))
        self._look_again()

    def _look_again(self) -> None:
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    # Tasks: their names are seen in the history

    async def events(self) -> None:
        """Take messages."""
        while True:
            self._put(await self._message())

    async def do(self, number: int, command: Do) -> None:
        """Call a step."""
        try:
            event = Outcome(command.tag, await command.step(*command.args, **command.kwargs))
        except Exception as error:  # noqa: BLE001 - whatever it is, the reducer decides
            event = _failed(command.tag, error)
        del self._acting[number]
        self._put(event, command.step.spec)

    async def child(self, number: int, request: SpawnChild | None = None) -> None:
        """Start a child, unless that was done before, and wait for its end."""
        child = self._children[number]
        try:
            if request is not None:
                child.id = await self._call(request)
                self._waiting[number] = self._acting.pop(number)
                self._look_again()
            event = Outcome(child.tag, await self._call(AwaitChild(child.id, child.agent)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the reducer decides
            event = _failed(child.tag, error)
        del self._children[number]
        self._acting.pop(number, None)
        self._waiting.pop(number, None)
        self._put(event, self._named("agent", child.agent))

    async def timer(self) -> None:
        """Wait for one time after the other."""
        while self._timers:
            due = self._timers[0][0]
            await self._call(Sleep(None, due))
            while self._timers and self._timers[0][0] <= due:
                self._put(self._read(heapq.heappop(self._timers)[2]))
        self._timer = None

    # Commands

    def _begin(self, command: Any) -> None:
        number, self._begun = self._begun, self._begun + 1
        if isinstance(command, Do):
            self._acting[number] = asyncio.create_task(self.do(number, command))
        elif isinstance(command, Spawn):
            self._start(number, command.tag, command.agent, command.args, dict(command.kwargs))
        elif isinstance(command, Ask):
            self._start(number, command.tag, self._question, _asked(command), {})
        elif isinstance(command, After):
            due = epoch_ms(self._runtime.now() + timedelta(milliseconds=milliseconds(command.duration)))
            heapq.heappush(self._timers, (due, number, self._folding.events.text(command.event, "event")))
            if self._timers[0][1] == number:
                self._set_timer()

    def _start(
        self, number: int, tag: str, agent: Agent[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._children[number] = _Child(tag, agent.name)
        self._acting[number] = asyncio.create_task(self.child(number, SpawnChild(agent.spec, args, kwargs)))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.create_task(self.timer()) if self._timers else None

    # Checkpoints

    async def _look(self) -> bool:
        """Find out whether the run is live; tells whether a message was kept apart here before."""
        if self._live:
            return False
        self._live, apart, _ = await self._call(Look(":note"))
        return bool(apart)

    async def _store(self, state: Any, came: _Came) -> Any:
        """Store the state before this event is folded, if the run is live, little waits, and what is in line can be stored."""
        live, _, waiting = await self._call(Look(":note"))
        if not live or self._folded - self._stored < max(_WAITING * len(self._line), waiting // _COMING):
            return state
        try:
            line = [self._saved(each) for each in (came, *self._line)]
        except NotStorable:
            return state
        timers, children = sorted(self._timers), sorted(self._children.items())
        saved = {
            "folded": self._folded,
            "begun": self._begun,
            "line": line,
            "timers": [list(each) for each in timers],
            "children": [[number, child.tag, child.agent, child.id] for number, child in children],
        }
        size = len(self._folding.state.text(state, "state")) + len(json.dumps(saved))
        self._interval, self._stored = max(self._folding.every, size // _BYTES), self._folded
        self._span = 2 * self._interval
        self._limit = self._folded + self._span
        self._runtime.kept.choices["reducer"] = {**saved, "interval": self._interval}
        await self._quiet()
        state = await self._runtime.call(Checkpoint(state, by_change=True))
        self._resume()
        return state

    def _restore(self, saved: dict[str, Any] | None) -> None:
        if saved is None:
            return
        self._folded, self._begun, self._interval = saved["folded"], saved["begun"], saved["interval"]
        self._stored, self._span = self._folded, 2 * self._interval
        self._limit = self._folded + self._span
        self._line.extend(_Came(self._read(each), self._maker(each)) for each in saved["line"])
        self._timers = [(due, number, text) for due, number, text in saved["timers"]]
        self._children = {number: _Child(tag, agent, id) for number, tag, agent, id in saved["children"]}
        self._resume()

    def _resume(self) -> None:
        """Wait for timers and children: in one order, behind a checkpoint and when the run goes on from it."""
        for number in sorted(self._children):
            self._waiting[number] = asyncio.create_task(self.child(number))
        self._set_timer()

    def _stop_hearing(self) -> list[asyncio.Task[Any]]:
        task, self._hearing = self._hearing, None
        if task is None:
            return []
        task.cancel()
        return [task]

    def _stop(self) -> list[asyncio.Task[Any]]:
        """End all waiting, except for steps."""
        stopped = [*self._waiting.values(), *self._stop_hearing()]
        if self._timer is not None:
            stopped.append(self._timer)
        self._waiting, self._timer = {}, None
        for task in stopped:
            task.cancel()
        return stopped

    async def _quiet(self) -> None:
        await asyncio.gather(*self._stop(), return_exceptions=True)

    async def _end(self) -> None:
        """Let steps end that are under way; nothing else is waited for any more."""
        self._timers.clear()
        while self._acting:
            await asyncio.gather(*self._acting.values(), return_exceptions=True)
        await self._quiet()

    # Events as text

    def _saved(self, came: _Came) -> Any:
        """An event for a checkpoint. A result is stored as what its step or agent returns, if the code will find that again."""
        event, spec = came.event, came.spec
        if not isinstance(event, Outcome):
            return self._folding.events.text(event, "event")
        if spec is not None and event.ok:
            kind = _kind(spec)
            if self._named(kind, spec.name) is spec:
                return [event.tag, spec.signature.returns.text(event.value, "value"), None, kind, spec.name]
        return [event.tag, UNTYPED.text(event.value, "value"), event.error]

    def _read(self, saved: Any) -> Any:
        """An event that the reducer had before; if its code cannot read it any more, the error, which ends the run in its place."""
        try:
            if isinstance(saved, str):
                return self._folding.events.load(saved, "event")
            tag, text, failure, *of = saved
            if not of:
                return Outcome(tag, UNTYPED.load(text), failure)
            spec = self._maker(saved)
            if spec is None:
                raise NotStorable(f"it names no {of[0]} {of[1]!r} any more, which {tag!r} is the outcome of")
            migrate = spec.migrate if isinstance(spec, StepSpec) else None
            return Outcome(tag, spec.signature.returns.load(text, "value", migrate=migrate))
        except NotStorable as error:
            return NotStorable(
                f"reducer {self._fn.__name__!r} cannot read an event that it had before: {error}. Bring its type back, then "
                f"`holdfast retry {self._runtime.facts.id}`: nothing is lost"
            )

    def _maker(self, saved: Any) -> StepSpec | AgentSpec | None:
        """The step or agent that a stored event is of."""
        return None if isinstance(saved, str) or len(saved) < _WITH_MAKER else self._named(saved[3], saved[4])

    def _named(self, kind: str, name: str) -> StepSpec | AgentSpec | None:
        """Find a step or agent by its name, among the ones that the function can be seen to use."""
        if self._makers is None:
            self._makers = {}
            for value in reached(self._fn):
                if isinstance(value, Step | Agent):
                    self._makers.setdefault((_kind(value.spec), value.name), value.spec)
        return self._makers.get((kind, name))


def _kind(spec: StepSpec | AgentSpec) -> str:
    return "step" if isinstance(spec, StepSpec) else "agent"


def _failed(tag: str, error: Exception) -> Outcome:
    said = str(error)
    return Outcome(tag, error=f"{type_name(type(error))}: {said}" if said else type_name(type(error)))


def _asked(command: Ask) -> tuple[Any, ...]:
    """The arguments of the run that asks."""
    shape = shape_of(command.type)
    default = [] if command.default is NO_DEFAULT else [UNTYPED.load(shape.text(command.default, "default"))]
    show = UNTYPED.load(shape_of_value(command.show).text(command.show, "show"))
    expires = None if command.expires is None else milliseconds(command.expires)
    remind = None if command.remind is None else milliseconds(command.remind)
    return command.question, shape.schema(), show, checked_names(command.to), expires, default, remind


def checked_event(folding: Folding | None, agent: str, event: object) -> str:
    """The text of an event to be sent; `BadArguments` names what its reducer takes, if that is known and it is none."""
    if folding is None:
        return Events((type(event),)).text(event, "event")
    if type(event) not in folding.events.members:
        raise BadArguments(f"{short(event)} is no event of the reducer {agent!r}, which takes {folding.events.name}")
    text: str = folding.events.text(event, "event")
    return text
