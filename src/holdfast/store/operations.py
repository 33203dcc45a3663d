"""What waits to be written: appends, and any other piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from holdfast.store.appends import QueuedAppend
from holdfast.store.transaction import Asking, Transaction

T = TypeVar("T")


class Crash(BaseException):
    """Raised by a test's fault hook: the writer stops as if the process had been killed."""


class Work(Generic[T]):
    """Any write but an append: a function that is called in a transaction, and may be called again."""

    __slots__ = ("again", "do", "journal", "runs", "small", "told")

    def __init__(self, do: Callable[[Transaction], Asking[T]], told: Callable[[T, BaseException | None], None],
                 journal: bool, small: bool = False, runs: Sequence[str] | None = None) -> None:  # fmt: skip
        self.do, self.told, self.journal, self.small, self.again = do, told, journal, small, False
        self.runs = runs  # that it changes and that exist; None: it is not known before


class Aside(Work[T]):
    """A write of a caller that is not on the loop: it is told in the writer's thread, whatever the loop does."""

    __slots__ = ()


Operation = QueuedAppend | Work[Any]
Result = tuple[Operation, Any, BaseException | None]


def names(batch: Sequence[Operation]) -> list[str]:
    """What a commit writes to the journal, for tests that break things there: events, and whatever else by its function."""
    found: list[str] = []
    for one in batch:
        if isinstance(one, Work):
            name: str = getattr(one.do, "__qualname__", type(one.do).__name__)
            found += [name.partition(".")[0].lower()] if one.journal else []
        else:
            found += [f"{event.kind} {event.key or ''}".rstrip() for event in one.append.events]
            found += [f"stream {piece.stream} {piece.kind}" for piece in one.append.pieces]
            found += [one.append.transition.status if one.append.transition is not None else "append"]
    return found
