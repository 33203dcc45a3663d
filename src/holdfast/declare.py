"""`@agent` and `@step`: plain functions become objects that frameworks still take for coroutine functions."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, overload

from holdfast.errors import BadArguments, LeafError, NotInRun
from holdfast.resources import plain_context, step_outside_run
from holdfast.runtime import AgentSpec, CallChild, Called, Isolation, Placed, StepContext, StepSpec, call_plainly, here
from holdfast.values.signature import Signature
from holdfast.words.announcements import On, checked_on
from holdfast.words.budget import Budget, checked_budget
from holdfast.words.calls import KeptAs, checked_inputs
from holdfast.words.durations import Duration, seconds
from holdfast.words.limits import NORMAL, Limit, Rate, declared
from holdfast.words.loops import Loops, checked_loops
from holdfast.words.retry import Retry, as_retry
from holdfast.words.schedules import Schedule, checked_schedule
from holdfast.words.triggers import checked_trigger

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

_NAME = re.compile(r"[\w][\w.:@-]{0,99}")
_ISOLATION: Final[dict[Any, Isolation | None]] = {False: None, True: "read committed", "serializable": "serializable"}
step_names: Final[set[str]] = set()  # that were declared in this process: a name given by hand can be held against them


class NotDone:
    """The type of `NOT_DONE`, for the annotation of a probe.

    Example:
        ```python
        async def was_it_sent(to: str) -> str | holdfast.NotDone:
            return holdfast.NOT_DONE
        ```
    """

    def __repr__(self) -> str:
        return "NOT_DONE"


NOT_DONE: Final = NotDone()
"""Returned by a probe when the effect did not happen, so that the body runs."""


async def _marker() -> None: ...


class _CoroutineFunction:
    """Makes an object look like an `async def` to inspect, asyncio and frameworks that check for one."""

    _is_coroutine_mark: Any
    name: str
    fn: Callable[..., Any]

    def _dress(self, fn: Callable[..., Any]) -> None:
        dressed: Any = self
        functools.update_wrapper(dressed, fn)
        # inspect (3.11) reads these off anything that looks like a function; later versions read the mark.
        self.__code__ = _marker.__code__
        self.__defaults__ = getattr(fn, "__defaults__", None)
        self.__kwdefaults__ = getattr(fn, "__kwdefaults__", None)
        self.__signature__ = inspect.signature(fn)
        self._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", True)
        self._is_coroutine_mark = getattr(inspect, "_is_coroutine_mark", True)

    def __copy__(self) -> Self:  # as functions are: frameworks copy what they hold, and this is the same thing still
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _checked_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArguments(f"{name!r} cannot be the name of {what}; use letters, digits and any of '_ . : @ -'")
    return name


class Step(_CoroutineFunction, Generic[P, R_co]):
    """A recorded action of an agent, made by `@holdfast.step`; `.fn` is the function as it was written.

    Inside an agent a call is recorded. Outside a run the function just runs.

    Raises:
        StepFailed: The step failed for good. Exceptions named in `raises=`, and builtin ones, come back as themselves.
        StepTimeout: The body did not end within `timeout=`.
        LeafError: A step was called inside the body of a step.

    Example:
        ```python
        @holdfast.step
        async def search(topic: str) -> list[str]:
            return [f"{topic}/1"]


        assert asyncio.run(search("otters")) == ["otters/1"]  # outside a run: a plain call
        ```
    """

    def __init__(self, spec: StepSpec, target: object = None) -> None:
        self.spec, self.name, self.fn, self._target = spec, spec.name, spec.fn, target
        self._dress(spec.fn)
        if target is not None:
            parameters = list(self.__signature__.parameters.values())
            self.__signature__ = self.__signature__.replace(parameters=parameters[1:])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Called[R_co]:
        place = here()
        if place is None and self.spec.transaction is not None:
            raise NotInRun(
                f"step {self.name!r} was called outside a run, where there is no transaction to be part of. Call it from an "
                "agent; in a test, from one in `holdfast.testing.open(agents=[...])`, which has a database of its own"
            )
        if place is None:
            plainly: Any = self._plainly if self.spec.threaded and _get_running_loop() is None else self._outside
            outside: Called[R_co] = plainly(args, kwargs)
            return outside
        if isinstance(place, StepContext):
            raise LeafError(
                f"step {self.name!r} was called inside the step at {place.key!r}; a step's body is a leaf. "
                f"Call the plain function, `{self.fn.__name__}.fn(...)`, or move the call into the agent"
            )
        return place.step(self.spec, self._target, args, kwargs)

    def _plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A plain function where no loop runs: a plain call. A decorator may have hidden that it is `async` after all."""
        context = plain_context(self.name)
        with Placed(context):
            value = self.fn(*args, **kwargs) if self._target is None else self.fn(self._target, *args, **kwargs)
        return _placed(value, context) if inspect.iscoroutine(value) else value

    async def _outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._target is not None:
            args = (self._target, *args)
        async with step_outside_run(self.name) as context:
            with Placed(context):
                if not self.spec.threaded:
                    return await self.fn(*args, **kwargs)
                value = await asyncio.to_thread(call_plainly, functools.partial(self.fn, *args, **kwargs))
                return await value if inspect.iscoroutine(value) else value

    @overload
    def __get__(self, obj: None, owner: type, /) -> Self: ...
    @overload
    def __get__(self: Step[Concatenate[S, P2], R], obj: S, owner: type | None = None, /) -> Step[P2, R]: ...
    def __get__(self, obj: Any, owner: type | None = None, /) -> Any:
        return self if obj is None else Step(self.spec, obj)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


async def _placed(coroutine: Coroutine[Any, Any, Any], context: StepContext) -> Any:
    with Placed(context):
        return await coroutine


class Agent(_CoroutineFunction, Generic[P, R_co]):
    """A durable agent, made by `@holdfast.agent`; `.fn` is the function as it was written.

    A client starts it. Inside another agent a call starts a child run and waits for its result.

    Raises:
        NotInRun: It was called outside a run, where nothing would be durable.
        LeafError: It was called inside the body of a step.

    Example:
        ```python
        text = await research("otters")  # in another agent: a child run
        ```
    """

    def __init__(self, spec: AgentSpec) -> None:
        self.spec, self.name, self.fn = spec, spec.name, spec.fn
        self._dress(spec.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Called[R_co]:
        place = here()
        if place is None:
            raise NotInRun(
                f"agent {self.name!r} was called outside a run, where nothing would be durable. Start it with "
                f"`await hf.start({self.fn.__name__}, ...)` inside `async with holdfast.open(...) as hf`, or with "
                f"`holdfast run FILE.py:{self.fn.__name__} ...`; `{self.fn.__name__}.fn(...)` is the plain function"
            )
        if isinstance(place, StepContext):
            raise LeafError(
                f"agent {self.name!r} was called inside the step at {place.key!r}; a step's body is a leaf. "
                "Call the agent from the agent, not from the step"
            )
        return place.call(CallChild(self.spec, args, kwargs))

    def __set_name__(self, owner: type, name: str) -> None:
        if self.fn.__qualname__ == f"{owner.__qualname__}.{self.fn.__name__}":
            raise _refused_method(self.fn)

    def __repr__(self) -> str:
        return f"<agent {self.name}>"


class _StepDeco(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


class _AgentDeco(Protocol):
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: int | Retry = 1,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    in_doubt: Literal["retry", "ask", "fail"] = "retry",
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    migrate: Callable[[Any], Any] | None = None,
    inputs: KeptAs | None = None,
    effects: bool = True,
) -> _StepDeco: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: int | Retry = 1,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    in_doubt: Callable[P, Coroutine[Any, Any, R | NotDone]],
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    migrate: Callable[[Any], Any] | None = None,
    inputs: KeptAs | None = None,
    effects: bool = True,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]] | Callable[P, R]], Step[P, R]]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: int | Retry = 1,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    transaction: Literal[True, "serializable"],
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    migrate: Callable[[Any], Any] | None = None,
    inputs: KeptAs | None = None,
    effects: bool = True,
) -> _StepDeco: ...
def step(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    retry: int | Retry = 1,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    in_doubt: Any = None,
    transaction: Any = False,
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    migrate: Callable[[Any], Any] | None = None,
    inputs: KeptAs | None = None,
    effects: bool = True,
) -> Any:
    """Declare a step: one action whose result is recorded.

    Args:
        name: The name in the journal; that of the function unless given. Keep it when you rename the function.
        retry: Attempts in all, or a `Retry`.
        timeout: How long each attempt may take.
        raises: Exceptions that come back to the agent as themselves, instead of as `StepFailed`.
        in_doubt: What to do when nobody knows whether the body had its effect: "retry", "ask" a person, "fail", or a
            probe, an async function with the step's parameters that returns the result or `NOT_DONE`.
        transaction: With True the body gets a `connection()`, and what it writes there is committed with the step's
            record, or not at all. "serializable" asks PostgreSQL for that isolation.
        limit: How many bodies run at once, in all workers together.
        rate: How many bodies begin in a time, in all workers together.
        migrate: Called with the plain data of a recorded result that no longer fits the annotated type. It returns plain
            data, or a value, that does.
        inputs: "full" keeps its whole arguments in the history, "digest" a digest and 120 characters. Unless given, its agent
            says it, then the store; then it is "digest".
        effects: With False the body only reads: a fork, or a retry from an earlier step, runs it again unasked.

    Raises:
        BadArguments: The function or an option cannot be used.
        NotStorable: The annotated result could never be stored.

    Example:
        ```python
        @holdfast.step(retry=5, timeout="30s", raises=(LookupError,))
        async def summarise(url: str) -> str:
            return f"what {url} says"
        ```
    """

    def declare(fn: Callable[..., Any]) -> Step[Any, Any]:
        return _declare_step(
            fn,
            name,
            retry,
            timeout,
            raises,
            in_doubt,
            transaction,
            limit,
            rate,
            migrate,
            checked_inputs(inputs),
            effects,
        )

    return declare if fn is None else declare(fn)


def _declare_step(
    fn: Callable[..., Any],
    name: str | None,
    retry: int | Retry,
    timeout: Duration | None,
    raises: tuple[type[Exception], ...],
    in_doubt: Any,
    transaction: Any,
    limit: int | Limit | None,
    rate: str | Rate | None,
    migrate: Callable[[Any], Any] | None,
    inputs: KeptAs | None,
    effects: bool,
) -> Step[Any, Any]:
    if isinstance(fn, staticmethod | classmethod) or not inspect.isfunction(fn):
        raise BadArguments(f"@step belongs on a function or method written with def or async def, not on {fn!r}")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        reason = "a step returns one value; return a list"
        raise BadArguments(f"@step on the generator {fn.__qualname__!r} is refused: {reason}")
    if not isinstance(transaction, bool | str) or transaction not in _ISOLATION:
        raise BadArguments(f"transaction={transaction!r}: use True, or 'serializable'")
    if transaction and in_doubt is not None:
        raise BadArguments(
            f"step {fn.__qualname__!r}: in_doubt= with transaction= is refused: what the body writes is committed with the "
            "record or not at all, so there is no doubt. Leave in_doubt= out"
        )
    policy, probe = "retry" if in_doubt is None else in_doubt, None
    if callable(in_doubt):
        policy, probe = "probe", getattr(in_doubt, "fn", in_doubt)
        if not inspect.iscoroutinefunction(probe):
            raise BadArguments(f"in_doubt={in_doubt!r}: a probe is an async function that takes the step's arguments")
    elif policy not in ("retry", "ask", "fail"):
        raise BadArguments(f"in_doubt={in_doubt!r}: use 'retry', 'ask', 'fail', or an async probe function")
    if not isinstance(effects, bool):
        raise BadArguments(f"effects={effects!r}: say False if the body only reads, or leave it out")
    raises = tuple(raises) if isinstance(raises, tuple | list) else (raises,)
    for kind in raises:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise BadArguments(f"raises={raises!r}: every entry must be an exception class")
    own_name = _checked_name(fn.__name__.lstrip("_").strip("<>") or "step" if name is None else name, "a step")
    signature = Signature(fn, skip_self=_is_method(fn))
    signature.promise()
    step_names.add(own_name)
    spec = StepSpec(
        name=own_name,
        fn=fn,
        signature=signature,
        retry=as_retry(retry),
        timeout_s=None if timeout is None else seconds(timeout),
        raises=raises,
        in_doubt=policy,
        probe=probe,
        threaded=not inspect.iscoroutinefunction(fn),
        transaction=_ISOLATION[transaction],
        flow=None if limit is None and rate is None else declared("step", own_name, fn, limit=limit, rate=rate),
        migrate=migrate,
        inputs=inputs,
        effects=effects,
    )
    return Step(spec)


def _is_method(fn: Callable[..., Any]) -> bool:
    """A function written in a class body, with `self` or `cls` first: decorated before it knows its class."""
    parameters = list(inspect.signature(fn).parameters)
    outer = fn.__qualname__.rpartition(".")[0]
    return parameters[:1] in (["self"], ["cls"]) and bool(outer) and not outer.endswith("<locals>")


def _refused_method(fn: Callable[..., Any]) -> BadArguments:
    return BadArguments(
        f"@agent on the method {fn.__qualname__!r} is refused: a run outlives the object. Use a plain function, and "
        "pass what it needs as arguments"
    )


@overload
def agent(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    version: str | None = None,
    queue: str | None = None,
    priority: int = NORMAL,
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    singleton: str | bool = False,
    budget: Budget | None = None,
    loops: Loops | None = None,
    strict: bool = False,
    inputs: KeptAs | None = None,
    schedule: str | Schedule | None = None,
    on: On | None = None,
) -> _AgentDeco: ...
def agent(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    version: str | None = None,
    queue: str | None = None,
    priority: int = NORMAL,
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    singleton: str | bool = False,
    budget: Budget | None = None,
    loops: Loops | None = None,
    strict: bool = False,
    inputs: KeptAs | None = None,
    schedule: str | Schedule | None = None,
    on: On | None = None,
) -> Any:
    """Declare an agent: plain async code that goes on where it stopped.

    Args:
        name: The name under which runs are started; that of the function unless given.
        version: Pins runs: a run keeps the version it was started with, and only workers that have it carry the run on.
        queue: The queue that workers choose by `--queues`.
        priority: 0 to 9; of the runs that are due, the highest goes first.
        limit: How many runs run at once.
        rate: How many runs begin in a time.
        singleton: The name of a parameter: one unfinished run for each of its values. True: one in all.
        budget: What a run may spend, with all runs below it.
        loops: When a person is asked because the run repeats itself.
        strict: Pause a run before its code does something that is not recorded, such as opening a file. Otherwise that is
            only logged.
        inputs: "full" keeps the whole arguments of its steps in the history, "digest" a digest and 120 characters. A step may
            say otherwise. Unless given, the store says it.
        schedule: When runs begin by themselves: a cron line, or a `Schedule`.
        on: Which announcements start a run: an `On`. The agent gets the value as its only argument.

    Raises:
        BadArguments: The function or an option cannot be used.

    Example:
        ```python
        @holdfast.agent(queue="mail", limit=holdfast.Limit(2, per="customer"))
        async def answer_mail(customer: str, text: str) -> str:
            return await publish(f"{customer}: {text}")
        ```
    """
    flow = {"queue": queue, "priority": priority, "limit": limit, "rate": rate, "singleton": singleton}

    def declare(fn: Callable[..., Any]) -> Agent[Any, Any]:
        kept = checked_inputs(inputs)
        times = checked_schedule(schedule)
        return _declare_agent(
            fn, name, version, flow, checked_budget(budget), checked_loops(loops), strict, kept, times, checked_on(on)
        )

    return declare if fn is None else declare(fn)


def _declare_agent(
    fn: Callable[..., Any],
    name: str | None,
    version: str | None,
    flow: dict[str, Any],
    budget: Budget | None,
    loops: Loops | None,
    strict: bool,
    inputs: KeptAs | None,
    schedule: Schedule | None,
    on: On | None,
) -> Agent[Any, Any]:
    if inspect.isasyncgenfunction(fn):
        reason = "an agent returns one value; return a list"
        raise BadArguments(f"@agent on the generator {fn.__qualname__!r} is refused: {reason}")
    if not inspect.iscoroutinefunction(fn) or not inspect.isfunction(fn):
        raise BadArguments(f"@agent belongs on an `async def` function, not on {fn!r}")
    if _is_method(fn):
        raise _refused_method(fn)
    if version is not None and (not isinstance(version, str) or not _NAME.fullmatch(version)):
        raise BadArguments(f"version={version!r}: use a text of letters, digits and any of '_ . : @ -', such as '2'")
    if not isinstance(strict, bool):
        raise BadArguments(f"strict={strict!r}: use True or False")
    signature = Signature(fn, what=f"agent {fn.__name__ if name is None else name!r}", stored=True)
    signature.promise()
    own_name = _checked_name(fn.__name__ if name is None else name, "an agent")
    if on is not None:
        _check_on(fn, own_name)
    return Agent(
        AgentSpec(
            own_name,
            fn,
            signature,
            declared("agent", own_name, fn, **flow),
            version,
            budget,
            loops,
            strict,
            inputs,
            schedule,
            on,
        )
    )


def _check_on(fn: Callable[..., Any], name: str) -> None:
    """Refuse an agent that announcements cannot start: it is called with a value, and its name is that of a trigger."""
    checked_trigger(name)
    takes = list(inspect.signature(fn).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not takes or takes[0].kind not in by_position or any(each.default is each.empty for each in takes[1:]):
        raise BadArguments(
            f"agent {name!r} with on= is called with the value of the announcement alone, as in `async def {fn.__name__}(value)`"
        )
