"""`spawn` and `Child`: runs that an agent starts and that live on their own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast.declare import Agent
from holdfast.errors import BadArguments
from holdfast.runtime import AwaitChild, Called, Spawn, current

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Child(Generic[R_co]):
    """A child run. Await it for its result, now or later; it can be stored in the agent's state.

    Attributes:
        id: The id of the child run.
        agent: The name of its agent.

    Raises:
        RunFailed: The child failed.
        RunCancelled: The child was cancelled.

    Example:
        ```python
        child = await holdfast.spawn(research, "otters")
        text = await child
        ```
    """

    id: str
    agent: str

    def __await__(self) -> Generator[Any, Any, R_co]:
        return current("awaiting a child").call(AwaitChild(self.id, self.agent)).__await__()


def spawn(agent: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Called[Child[R]]:
    """Start a child run and go on at once. The child outlives the return of its parent.

    Raises:
        BadArguments: It is no agent, or the arguments do not fit it.

    Example:
        ```python
        later = await holdfast.spawn(research, "otters")
        now = await research("urchins")
        both = [now, await later]
        ```
    """
    if not isinstance(agent, Agent):
        raise BadArguments(f"spawn takes an agent (a function with @holdfast.agent), not {agent!r}")
    name = agent.name
    return current("spawn").call(Spawn(agent.spec, args, kwargs)).then(lambda child: Child(child, name))
