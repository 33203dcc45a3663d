"""Operations: what waits to be written, which is appends and any other piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from holdfast.errors import StoreUnavailable, Unconfirmed
from holdfast.store.appends import QueuedAppend
from holdfast.store.work import Asking, Transaction

T = TypeVar("T")


class Crash(BaseException):
    """Raised by a test's fault hook: the writer stops as if the process had been killed."""


class Faults(Protocol):
    """Hooks for tests that break things: called around each commit that holds journal writes, with their names."""

    def before_commit(self, writes: list[str]) -> None: ...

    def after_commit(self, writes: list[str]) -> None: ...


class Work(Generic[T]):
    """Any write but an append: a function that is called in a transaction, and may be called again."""

    __slots__ = ("again", "do", "in_short", "journal", "late", "runs", "sent", "small", "told", "unknown", "withdrawn")

    def __init__(self, do: Callable[[Transaction], Asking[T]], told: Callable[[T, BaseException | None], None],
                 journal: bool, small: bool = False, runs: Sequence[str] | None = None) -> None:  # fmt: skip
        self.do, self.told, self.journal, self.small, self.again = do, told, journal, small, False
        self.runs = runs  # that it changes and that exist; None: it is not known before
        self.sent = False  # it is in a transaction that may commit, or did
        self.unknown = False  # whether a commit of it happened is not known
        self.late = self.in_short = ""  # how long it was waited for, and why so long; without what the database says
        self.withdrawn = False  # no caller waits for it any more: it is not to be done

    def take(self) -> bool:
        """Ask, as the writer before it does the work, whether it may: another thread may withdraw the work at this very moment.

        Each side writes its own mark before it reads the other's. So they cannot both win: work that `withdraw` says was
        never sent is not done.
        """
        self.sent = True
        if self.withdrawn:
            self.put_back()
        return not self.withdrawn

    def put_back(self) -> None:
        """Note that the transaction was undone."""
        self.sent = self.unknown

    def withdraw(self, late: str, in_short: str) -> bool:
        """Do not do it. True: it was surely not done and will not be. False: it may have been, or may be in this moment."""
        self.late, self.in_short = late, in_short
        self.withdrawn = True
        return not self.sent

    def refusal(self) -> StoreUnavailable:
        """Tell the caller that waited what became of work that was withdrawn."""
        if self.sent:
            unsure = "the store did not confirm a write {}: it may have happened, or happen yet"
            return Unconfirmed(unsure.format(self.late), told=unsure.format(self.in_short))
        undone = "the store was not written {}: nothing was done, and nothing will be"
        return StoreUnavailable(undone.format(self.late), told=undone.format(self.in_short))


def put_back(batch: Sequence[Operation]) -> None:
    """Note that the transaction of a batch was undone."""
    for one in batch:
        if isinstance(one, Work):
            one.put_back()


class Aside(Work[T]):
    """A write of a caller that is not on the loop: it is told in the writer's thread, whatever the loop does."""

    __slots__ = ()


def nobody_waits(batch: Sequence[Operation]) -> bool:
    """Was all of the batch withdrawn?"""
    return all(isinstance(one, Work) and one.withdrawn for one in batch)


def refusals(batch: Sequence[Operation]) -> list[Result]:
    """Make the results of work that was withdrawn."""
    return [(one, None, one.refusal()) for one in batch if isinstance(one, Work)]


Operation = QueuedAppend | Work[Any]
Result = tuple[Operation, Any, BaseException | None]


def names(batch: Sequence[Operation]) -> list[str]:
    """Name what a commit writes to the journal, for tests that break things there: events, and other work by its function."""
    found: list[str] = []
    for one in batch:
        if isinstance(one, Work):
            found += [_name(one.do)] if one.journal else []
        else:
            found += [f"{event.kind} {event.key or ''}".rstrip() for event in one.append.events]
            found += [f"stream {piece.stream} {piece.kind}" for piece in one.append.pieces]
            found += [one.append.transition.status if one.append.transition is not None else "append"]
    return found


def _name(do: object) -> str:
    """Name a piece of work by its class or function; one that is made inside a method has that method's name."""
    made = getattr(do, "func", do)
    name: str = getattr(made, "__qualname__", type(made).__name__)
    return name.partition(".<locals>")[0].rpartition(".")[2].lstrip("_").lower()
