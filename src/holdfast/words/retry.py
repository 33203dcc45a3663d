"""Retries: when to try a failed step again, by arithmetic and by what a failure says of itself. No I/O.

The errors of HTTP clients are known by what they carry (a status, headers), so that no client has to be imported:
`openai`, `anthropic`, `httpx`, `requests`, `aiohttp`, `urllib` and Pydantic AI among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from holdfast.errors import BadArguments, HoldfastError, LeafError, NotStorable, Permanent, RetryAfter
from holdfast.values.text import is_whole, short
from holdfast.words.durations import Duration, seconds

_BUSY = (429, 503, 529)  # not this request: the server has enough of them
_LATER = (408, 409, 425, 429)  # the refusals that are not about the request itself: it may be granted later
_CAUSES = 5
_MOST_FACTOR = 1000
_LONGEST_PAUSE_S = 3600.0
_NEVER_AGAIN = (Permanent, NotStorable, LeafError, BadArguments)  # what can never succeed is never retried


class Retry:
    """A policy: how often a step is tried, and how long it waits in between.

    `Retry.model` is patient and obeys Retry-After; `Retry.tool` is quick.

    Args:
        attempts: How many attempts there are in all.
        first: The wait after the first failure.
        factor: How much longer each further wait is.
        max: The longest wait.
        on: The exceptions that are worth another attempt, or a function that says so for one.

    Raises:
        BadArguments: A number or class cannot be used.

    Example:
        ```python
        @holdfast.step(retry=holdfast.Retry(5, first="2s", factor=2, max="1m", on=ConnectionError))
        async def fetch(url: str) -> str:
            return f"page {url}"
        ```
    """

    model: ClassVar[Retry]
    tool: ClassVar[Retry]

    def __init__(
        self,
        attempts: int = 3,
        *,
        first: Duration = "1s",
        factor: float = 2,
        max: Duration = "1m",
        on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] = (Exception,),
    ) -> None:
        if not is_whole(attempts, 1):
            raise BadArguments(
                f"retry attempts must be a whole number of at least 1 (all attempts), not {short(attempts)}"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= _MOST_FACTOR:
            raise BadArguments(f"retry factor must be a number from 1 to {_MOST_FACTOR}, not {short(factor)}")
        if isinstance(on, type):
            on = (on,)  # a class is callable too: as a predicate it would hold for everything
        kinds = on if isinstance(on, tuple) else ()
        fits = all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds)
        if not fits or not (kinds or callable(on)):
            raise BadArguments(f"retry on={on!r}: give exception classes, or a function that says whether for one")
        self.attempts, self.factor, self.on = attempts, factor, on
        self.first_s, self.max_s = seconds(first), seconds(max)
        if self.first_s > self.max_s:
            raise BadArguments(f"retry first={first!r} is longer than max={max!r}, the longest wait; give max= too")

    def wants(self, error: Exception) -> bool:
        """Is this kind of failure worth another attempt at all?"""
        if isinstance(error, _NEVER_AGAIN):
            return False
        if isinstance(error, RetryAfter):
            return True
        if isinstance(self.on, tuple):
            return isinstance(error, self.on)
        try:
            return bool(self.on(error))
        except Exception as problem:
            raise problem from error  # a reader of the broken predicate must see the failure it was asked about

    def delay_s(self, failures: int, error: Exception | None, seed: str = "") -> float | None:
        """Seconds to wait after the n-th failure, or None to stop.

        What the failure itself asks for (`RetryAfter`, a Retry-After header) is a minimum. The spread of up to a quarter
        comes from the seed, so that many runs do not come back at the same moment and each run computes the same wait.
        """
        if failures >= self.attempts or (error is not None and not self.wants(error)):
            return None
        wait = min(self.first_s * self.factor ** min(failures - 1, 64), self.max_s)
        wait *= 1 - 0.25 * random.Random(f"{seed}:{failures}").random()
        asked = asked_wait_s(error)
        return wait if asked is None else max(asked, wait if not isinstance(error, RetryAfter) else 0.0)

    def __repr__(self) -> str:
        return f"Retry({self.attempts}, first={self.first_s}, factor={self.factor}, max={self.max_s})"


def asked_wait_s(error: object) -> float | None:
    """Seconds that the failure itself asks to wait: `RetryAfter`, or the Retry-After header of an HTTP client's error."""
    if isinstance(error, RetryAfter):
        return seconds(error.after)
    after = _header(error, "retry-after")
    said: list[tuple[Any, float]] = [
        (_header(error, "retry-after-ms"), 0.001), (after, 1), (getattr(error, "retry_after", None), 1),
    ]  # fmt: skip
    for value, unit in said:
        try:
            return seconds(float(value) * unit)
        except (TypeError, ValueError, OverflowError, HoldfastError):
            continue  # not said, a date, or nonsense
    try:
        until, here = parsedate_to_datetime(after), _header(error, "date")
        now = parsedate_to_datetime(here) if here else datetime.now(UTC)  # the server's own clock if it tells it
        return seconds(max((until - now).total_seconds(), 0.0))
    except (TypeError, ValueError, OverflowError, HoldfastError):
        return None  # nonsense from a server: the usual wait applies


def pause_s(error: Exception) -> float | None:
    """Return for how long to send a busy server (429, 503) nothing, if its refusal said when to come again.

    At most an hour: a server that says tomorrow is asked again in between, once, because all sharers of a rate wait for
    its word.
    """
    wait_s = asked_wait_s(error) if _status(error) in _BUSY else None
    return None if wait_s is None else min(wait_s, _LONGEST_PAUSE_S)


def may_be_granted_later(error: Exception) -> bool:
    """Is it worth asking a provider again: is this anything but a refusal of the request as it is (400, 401, 404, ...)?"""
    told = _header(error, "x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    status = _status(error)
    return status is None or not 300 <= status < 500 or status in _LATER


def _header(error: object, name: str) -> str:
    for holder in _holders(error):
        headers: Any = getattr(holder, "headers", None)
        if hasattr(headers, "get"):  # of a plain dict the names are as the server wrote them
            return str(headers.get(name) or headers.get(name.title()) or "")
    return ""


def _status(error: object) -> int | None:
    for holder in _holders(error):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    return None


def _holders(error: object) -> Iterator[object]:
    """Yield the objects that may have what the server said: an error's response, the error itself, and its causes."""
    for _ in range(_CAUSES):
        if error is None:
            return
        yield from (getattr(error, "response", None), error)
        error = getattr(error, "__cause__", None)


def as_retry(retry: int | Retry) -> Retry:
    """`retry=5` means five attempts in all."""
    return retry if isinstance(retry, Retry) else Retry(retry)


Retry.model = Retry(8, first="2s", factor=2, max="2m", on=may_be_granted_later)
Retry.tool = Retry(3, first="0.2s", factor=3, max="5s")
