"""`progress` and `plan`: how far a run has come, for people outside."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from typing import Any

from holdfast import runtime
from holdfast.errors import BadArguments
from holdfast.runtime import Called, Durable, Progress, StepContext, current, here
from holdfast.values.text import MOST, short

_MOST_ITEMS = 1_000
_LONGEST_TEXT = 500


def progress(done: float, total: float | None = None, text: str = "") -> Called[None]:
    """Say how far the run has come. Lists, `holdfast show` and events tell it.

    In the body of a step it is recorded at once, in a plain function too, and need not be awaited.

    Args:
        done: How much is done.
        total: Out of how much, if that is known.
        text: What the run is at.

    Raises:
        BadArguments: A number or text cannot be used.

    Example:
        ```python
        await holdfast.progress(3, 10, "page 3")
        ```
    """
    for name, value in (("done", done), ("total", total)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST
        ):
            raise BadArguments(f"progress({name}={short(value)}): give a number from 0 on, at most {MOST:,}")
    if not isinstance(text, str):
        raise BadArguments(f"progress(text={text!r}): give a text")
    data = {"done": done, "total": total, "text": text[:_LONGEST_TEXT]}
    place = here()
    if isinstance(place, StepContext):
        if place.tell is not None:
            place.tell(data)
        return _Said()
    return current("progress").call(Progress(data))


class _Said(Coroutine[Any, Any, None]):
    """The awaitable that `progress` gives in a body: it has happened, awaited or not."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return iter(())  # type: ignore[return-value]

    def send(self, value: Any, /) -> Any:
        raise StopIteration

    def throw(self, *error: Any) -> Any:
        raise error[0]

    def close(self) -> None:
        pass


class Plan:
    """A run's list of what it means to do. Each change is a line in its history; reading needs none.

    Example:
        ```python
        plan = await holdfast.plan(["read", "write"])
        await plan.done("read")
        prompt = plan.markdown()
        ```
    """

    def __init__(self, items: list[list[Any]]) -> None:
        self._items = items

    def done(self, name: str) -> Called[None]:
        """Mark an item as done.

        Raises:
            BadArguments: The plan has no such item.

        Example:
            ```python
            plan = await holdfast.plan(["read", "write"])
            await plan.done("read")
            ```
        """
        if name not in self._names():
            raise BadArguments(f"{name!r} is not in the plan; it has: {', '.join(self._names())}")
        return self._change([[item, finished or item == name] for item, finished in self._items])

    def add(self, *names: str) -> Called[None]:
        """Add items at the end; items that the plan has already stay as they are.

        Raises:
            BadArguments: A name is empty or comes twice, or there are too many.

        Example:
            ```python
            plan = await holdfast.plan(["read"])
            await plan.add("write", "send")
            ```
        """
        known = set(self._names())
        return self._change([*self._items, *([name, False] for name in _checked(names) if name not in known)])

    def set(self, names: Iterable[str]) -> Called[None]:
        """Replace the items of the plan; an item that is done and still in it stays done.

        Raises:
            BadArguments: A name is empty or comes twice, or there are too many.

        Example:
            ```python
            plan = await holdfast.plan(["read", "write"])
            await plan.set(["read", "send"])
            ```
        """
        return self._change(_merged(_checked(names), self._items))

    def _change(self, items: list[list[Any]]) -> Durable[None]:
        if len(items) > _MOST_ITEMS:
            raise BadArguments(f"a plan has at most {_MOST_ITEMS} items, not {len(items)}; it is for people to read")
        call = current("plan").call(runtime.Plan(items))
        self._items = items  # at the call, as its identity: two changes in a gather add up
        return call

    @property
    def remaining(self) -> list[str]:
        """List what is not done yet, in order."""
        return [name for name, finished in self._items if not finished]

    def markdown(self) -> str:
        """Write the plan as a list with boxes, for a prompt or a message.

        Example:
            ```python
            plan = await holdfast.plan(["read"])
            assert plan.markdown() == "- [ ] read"
            ```
        """
        return "\n".join(f"- [{'x' if finished else ' '}] {name}" for name, finished in self._items)

    def _names(self) -> list[str]:
        return [name for name, _ in self._items]

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        return iter([(name, finished) for name, finished in self._items])

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<plan: {len(self) - len(self.remaining)} of {len(self)} done>"


def plan(names: Iterable[str]) -> Called[Plan]:
    """Say what the run means to do; returns a `Plan`. After a checkpoint it finds what was done before.

    Raises:
        BadArguments: A name is empty or comes twice, or there are too many.

    Example:
        ```python
        plan = await holdfast.plan(["read", "write", "send"])
        ```
    """
    made = Plan([])
    return made._change(_merged(_checked(names), current("plan").kept.plan)).then(lambda _: made)


def _checked(names: Iterable[str]) -> list[str]:
    found = list(names) if not isinstance(names, str) else []
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in found):
        raise BadArguments(f"a plan is a list of names, for example ['read', 'write'], not {names!r}")
    if len(set(found)) < len(found):
        raise BadArguments("the names in a plan are different from each other: done('...') must say which")
    return found


def _merged(names: list[str], before: Sequence[list[Any]]) -> list[list[Any]]:
    finished = {name for name, done in before if done}
    return [[name, name in finished] for name in names]
