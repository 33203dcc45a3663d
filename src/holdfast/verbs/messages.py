"""`receive` and `receive_nowait`: messages to this run. None is lost if sent earlier; order is kept per topic."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from holdfast.errors import BadArguments
from holdfast.runtime import Called, Receive, current
from holdfast.values.codec import UNTYPED, shape_of
from holdfast.words.announcements import OWN_TOPICS
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.people import checked_text

T = TypeVar("T")


@overload
def receive(topic: str, type: type[T], /, *, timeout: Duration | None = None) -> Called[T]: ...
@overload
def receive(topic: str, type: Any = ..., /, *, timeout: Duration | None = None) -> Called[Any]: ...
def receive(topic: str, type: Any = Any, /, *, timeout: Duration | None = None) -> Any:
    """Wait for the next message of a topic. None is lost if it was sent earlier, and their order is kept.

    Args:
        topic: The topic, 1 to 200 characters.
        type: The type of the message; without one it is plain data.
        timeout: How long to wait; without one, for ever.

    Raises:
        TimeoutError: No message came in time.
        BadArguments: The topic cannot be used; or the message is not of the type. It counts as received then, so an agent that
            catches this goes on with the next one.

    Example:
        ```python
        answer = await holdfast.receive("answer", str, timeout="1h30m")
        ```
    """
    timeout_ms = None if timeout is None else milliseconds(timeout)
    return current("receive").call(Receive(checked_topic(topic), _shape(type), timeout_ms))


@overload
def receive_nowait(topic: str, type: type[T], /) -> list[T]: ...
@overload
def receive_nowait(topic: str, type: Any = ..., /) -> list[Any]: ...
def receive_nowait(topic: str, type: Any = Any, /) -> Any:
    """Take every message of a topic that has arrived and was not received yet; an empty list if there is none.

    Raises:
        BadArguments: The topic cannot be used; or a message is not of the type. That one is received, the others are not.

    Example:
        ```python
        orders = holdfast.receive_nowait("orders", str)
        ```
    """
    return current("receive_nowait").messages(checked_topic(topic), _shape(type))


def _shape(type: Any) -> Any:
    return UNTYPED if type is Any else shape_of(type)


def checked_topic(topic: str) -> str:
    """The topic itself; `BadArguments` if it is none."""
    if not isinstance(topic, str) or not 0 < len(topic) <= 200:
        raise BadArguments(f"{topic!r} is not a topic; use a string of 1 to 200 characters")
    if topic.startswith(OWN_TOPICS):
        raise BadArguments(
            f"{topic!r} is not a topic for messages: those that begin with {OWN_TOPICS!r} are Holdfast's own. Choose another; "
            "`next_event` waits for announcements"
        )
    return checked_text(topic, "topic")
