"""Remains of an attempt that did not end well: the text it had written to a stream, and why there is no more of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Reason = Literal["crashed", "timeout", "failed", "cancelled"]
"""Why a text is not whole: its process died or was stopped, its step's attempt timed out or failed, or nobody wanted it."""
_MARK: Final = "__holdfast_partial__"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Part of a text: what an attempt had written to a stream before it broke off.

    Attributes:
        text: What it had written.
        reason: Why there is no more: a `Reason`.
        attempt: Which attempt it was.

    Example:
        ```python
        left = await holdfast.unfinished("answer")
        text = left.text if left else ""
        ```
    """

    text: str
    reason: Reason
    attempt: int


def attach(error: Exception, partial: Mapping[str, Salvaged]) -> None:
    """Let an exception carry what its step had written, by stream."""
    vars(error)[_MARK] = dict(partial)  # past a __setattr__ of its class


def partial(error: BaseException) -> dict[str, Salvaged]:
    """Find what a failed step had written before it failed, by stream; empty if there is nothing.

    Any exception that a step raised carries it. A `StepFailed` also has it as `.partial`.

    Example:
        ```python
        try:
            await flaky()
        except Exception as error:
            print({name: left.text for name, left in holdfast.partial(error).items()})
        ```
    """
    found: Any = getattr(error, _MARK, None)
    return dict(found) if isinstance(found, dict) else {}
