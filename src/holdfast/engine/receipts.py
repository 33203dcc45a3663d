"""What follows when an append is in the store. One object for each: there is one for every step in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.words.model import Event

if TYPE_CHECKING:
    from holdfast.engine.recorder import Recorder


class Receipt:
    """Of an append that nothing follows."""

    __slots__ = ("recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __call__(self, at: int, error: BaseException | None) -> None:
        """The store tells what became of it."""
        self.recorder.told(self, at, error)

    def acknowledged(self, at: int) -> None:
        """It is in the store since then."""


class Written(Receipt):
    """Of an append that holds one event."""

    __slots__ = ("event", "then")

    def __init__(self, recorder: Recorder, event: Event, then: Callable[[Event], None] | None) -> None:
        self.recorder, self.event, self.then = recorder, event, then

    def acknowledged(self, at: int) -> None:
        self.event.at = at
        self.recorder.landed(self.event, self.then)
