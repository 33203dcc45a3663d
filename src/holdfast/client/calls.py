"""Open calls as clients see them: the steps of a run whose bodies run now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.words.calls import OpenBody
from holdfast.words.durations import moment


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A step whose body runs now. Its history may not know of it yet.

    Attributes:
        key: The call.
        name: The step.
        input: Its arguments, in a line.
        attempt: Which attempt it is.
        began: When the body began.

    Example:
        ```python
        names = [call.name for call in await run.open_calls()]
        ```
    """

    key: str
    name: str
    input: str
    attempt: int
    began: datetime

    @classmethod
    def of(cls, body: OpenBody) -> OpenCall:
        return cls(body.key, body.name, body.input, body.attempt, moment(body.began))
