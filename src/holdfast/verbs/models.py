"""`fallback`: an ordered list of models, of which the next is asked when one fails for good. Plain code over steps.

Which one answered is remembered for the run: the next call begins with it. Agent code sets it, in an order that replay
repeats, so it needs no record of its own; a checkpoint carries it. What each model was asked is in the journal, as a step.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, get_origin, overload

from pydantic import TypeAdapter

from holdfast.errors import BadArguments, HoldfastError, StepFailed, StepTimeout, Unanswered
from holdfast.runtime import StepContext, here
from holdfast.words.durations import Duration, seconds

# `lively`: what comes piece by piece must not fall silent.

T = TypeVar("T")


async def lively(pieces: AsyncIterable[T], idle: Duration) -> AsyncIterator[T]:
    """Pass on the pieces of a stream, and fail when none has come for a while. For the body of a step.

    The step's `timeout=` limits the whole; this limits the silence between two pieces. What the body itself does with a
    piece does not count. `retry=` applies to the failure.

    Raises:
        StepTimeout: No piece has come for `idle`.
        BadArguments: `idle` is no time.

    Example:
        ```python
        text = "".join([token async for token in holdfast.lively(tokens(), "10s")])
        ```
    """
    idle_s = seconds(idle)
    if idle_s <= 0:
        raise BadArguments(f"lively(idle={idle!r}): give the longest silence, for example '10s'")
    coming = aiter(pieces)
    while True:
        limit = asyncio.timeout(idle_s)
        try:
            async with limit:
                piece = await anext(coming)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            if not limit.expired():  # the source's own
                raise
            raise StepTimeout(f"nothing came for {idle_s:g} s") from error
        yield piece


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_MOST_TRIES: Final = 100
_LONGEST_PROBLEM: Final = 2_000


class Fallback(Generic[P, R_co]):
    """An ordered list of models behind one call, made by `fallback`. Call it as the step, without the model.

    Raises:
        Unanswered: No model gave an answer that can be used.

    Example:
        ```python
        answer = holdfast.fallback(ask, ["large", "small"])
        text = await answer("What do otters do?")
        ```
    """

    def __init__(
        self,
        ask: Callable[..., Coroutine[Any, Any, Any]],
        models: Sequence[str],
        check: Callable[[Any], Any] | None,
        tries: int,
        name: str,
    ) -> None:
        self.name, self.models, self.tries = name, tuple(models), tries
        self._ask, self._check = ask, check
        self._key = f"{name} {' '.join(map(repr, models))}"
        self._explains = "problem" in inspect.signature(ask).parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        answering: Any = self._answer(args, kwargs)
        answering.__name__ = self.name  # a task of its own (`gather`) is named by it
        made: Coroutine[Any, Any, R_co] = answering
        return made

    async def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        choices = _choices()
        failed: list[tuple[str, Exception]] = []
        for model in self._in_order(choices):
            try:
                value = await self._insist(model, args, kwargs)
            except (_Unusable, StepFailed) as error:
                failed.append((model, error))
            except HoldfastError:
                raise  # about the call or the run, not about the model
            except Exception as error:  # noqa: BLE001 - a builtin one comes from a body as itself
                failed.append((model, error))
            else:
                choices[self._key] = model
                return value
        raise _unanswered(self.name, failed)

    def _in_order(self, choices: dict[str, Any]) -> Iterator[str]:
        first = choices.get(self._key)
        place = self.models.index(first) if first in self.models else 0
        yield from self.models[place:] + self.models[:place]

    async def _insist(self, model: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask one model until its answer can be used, a few times."""
        said: dict[str, str] = {}
        for left in reversed(range(self.tries)):
            answer = await self._ask(model, *args, **{**kwargs, **said})
            try:
                value = self._used(answer)
            except (ValueError, AssertionError) as error:
                problem = _in_words(error)
                if not left:
                    raise _Unusable(f"{problem} (asked {self.tries} times)") from error
                said = {"problem": problem} if self._explains else {}
            else:
                break
        return value

    def _used(self, answer: Any) -> Any:
        if answer is None or (isinstance(answer, str) and not answer.strip()):
            raise ValueError("the answer was empty")
        return answer if self._check is None else self._check(answer)

    def __repr__(self) -> str:
        return f"<fallback {self.name}: {', '.join(self.models)}>"


class _Unusable(Exception):
    """A model answered, again and again, what nobody asked for."""


@overload
def fallback(
    ask: Callable[Concatenate[str, P], Coroutine[Any, Any, R]],
    models: Sequence[str],
    /,
    *,
    tries: int = 3,
    name: str = "",
) -> Fallback[P, R]: ...
@overload
def fallback(
    ask: Callable[Concatenate[str, P], Coroutine[Any, Any, Any]],
    models: Sequence[str],
    /,
    *,
    check: type[T],
    tries: int = 3,
    name: str = "",
) -> Fallback[P, T]: ...
@overload
def fallback(
    ask: Callable[Concatenate[str, P], Coroutine[Any, Any, R]],
    models: Sequence[str],
    /,
    *,
    check: Callable[[R], T],
    tries: int = 3,
    name: str = "",
) -> Fallback[P, T]: ...
def fallback(
    ask: Any, models: Sequence[str], /, *, check: Any = None, tries: int = 3, name: str = ""
) -> Fallback[Any, Any]:
    """Ask the first of these models, and the next one when it fails for good. The model that answered is asked first from then on.

    Args:
        ask: A step, or an async function that calls steps, whose first parameter is the model. If it has a parameter
            `problem`, it is told what was wrong with the answer before.
        models: The names, the one to be asked first first.
        check: A type into which the answer is read (a text as JSON), or a function that returns what the agent gets or
            raises `ValueError`. It is agent code and must do the same on every replay.
        tries: How often each model is asked when its answer is empty or refused by `check`.
        name: A name for errors and tasks; that of `ask` unless given.

    Raises:
        BadArguments: An option cannot be used.

    Example:
        ```python
        answer = holdfast.fallback(ask, ["large", "small"], check=str.split)
        words = await answer("What do otters do?")
        ```
    """
    if not callable(ask) or not inspect.iscoroutinefunction(ask):
        raise BadArguments(f"fallback({ask!r}, ...): give a step, or an async function that calls steps")
    if isinstance(models, str) or not models or not all(isinstance(model, str) and model for model in models):
        raise BadArguments(
            f"fallback(..., {models!r}): give the names of models in a list, the one to be asked first first"
        )
    if len(set(models)) != len(models):
        raise BadArguments(f"fallback(..., {models!r}): each model is asked in its turn; name it once")
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries <= _MOST_TRIES:
        raise BadArguments(f"fallback(tries={tries!r}): give a whole number from 1 to {_MOST_TRIES}")
    if check is not None and not callable(check):
        raise BadArguments(f"fallback(check={check!r}): give a type, or a function that takes the answer")
    named = name or getattr(ask, "name", "") or ask.__name__
    return Fallback(ask, models, _reader(check), tries, named)


def _reader(check: Any) -> Any:
    """A function that checks; of a type, what reads it."""
    if check is None or not (isinstance(check, type) or get_origin(check) is not None):
        return check
    adapter = TypeAdapter(check)

    def read(answer: Any) -> Any:
        return adapter.validate_json(answer) if isinstance(answer, str | bytes) else adapter.validate_python(answer)

    return read


def _choices() -> dict[str, Any]:
    place = here()
    return {} if place is None or isinstance(place, StepContext) else place.kept.choices


def _in_words(error: Exception) -> str:
    """Tell an error in words that a model can use, without the links of pydantic, which are for people."""
    lines = [line for line in str(error).splitlines() if "https://errors.pydantic.dev" not in line]
    return "\n".join(lines).strip()[:_LONGEST_PROBLEM] or type(error).__name__


def _unanswered(name: str, failed: list[tuple[str, Exception]]) -> Unanswered:
    told = {model: str(error) if isinstance(error, HoldfastError | _Unusable) else f"{type(error).__name__}: {error}"
            for model, error in failed}  # fmt: skip
    words = "; ".join(f"{model}: {problem}" for model, problem in told.items())
    error = Unanswered(f"{name}: no model gave an answer that can be used. {words}", problems=told)
    error.exceptions = tuple(each for _, each in failed)  # a retry of the run asks all of them again
    return error
