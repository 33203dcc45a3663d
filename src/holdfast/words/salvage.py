"""What is left of an attempt that did not end well: the text it had written to a stream, and why there is no more of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

# Why a text is not whole. 'crashed': its process died, or was stopped. 'timeout', 'failed': how its step's attempt ended.
# 'cancelled': nobody wanted it any more.
Reason = Literal["crashed", "timeout", "failed", "cancelled"]
_MARK: Final = "__holdfast_partial__"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Part of a text: what an attempt had written to a stream before it broke off."""

    text: str
    reason: Reason
    attempt: int


def attach(error: Exception, partial: Mapping[str, Salvaged]) -> None:
    """Let an exception carry what its step had written, by stream."""
    vars(error)[_MARK] = dict(partial)  # past a __setattr__ of its class


def partial(error: BaseException) -> dict[str, Salvaged]:
    """What the failed step had written before it failed, by stream; nothing if it had not, or if this is no step's error.

    Any exception that a step raised has it. A `StepFailed` also has it as its `partial`.
    """
    found: Any = getattr(error, _MARK, None)
    return dict(found) if isinstance(found, dict) else {}
