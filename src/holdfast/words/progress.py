"""Progress: how far a run has come, as it says by `progress` or by its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.values.text import MOST


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a run tells by `progress`, or how much of its plan is done.

    Attributes:
        done: How much is done.
        total: Out of how much; None if the run did not say.
        text: What the run is at.

    Example:
        ```python
        progress = (await run.info()).progress
        print(progress or "it said nothing")
        ```
    """

    done: float
    total: float | None
    text: str

    @classmethod
    def of(cls, data: dict[str, Any] | None) -> Progress | None:
        """Read the data of an event."""
        if data is None:
            return None
        if "items" not in data:
            return cls(data["done"], data["total"], data["text"])
        items = data["items"]
        return cls(sum(done for _, done in items), len(items), next((name for name, done in items if not done), ""))

    def __str__(self) -> str:
        done, total = (None if each is None else min(each, MOST) for each in (self.done, self.total))
        count = f"{done:g}" if total is None else f"{done:g} of {total:g}"
        return f"{count}, {self.text}" if self.text else count
