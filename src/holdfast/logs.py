"""Logging from agent code: a filter that drops what a replay repeats, and says which run and step a record belongs to."""

from __future__ import annotations

import logging

from holdfast.runtime import StepContext, here


class LogFilter(logging.Filter):
    """A filter for log handlers: drops records that a replay repeats, and adds `run_id` and `step_key` to all others.

    Example:
        ```python
        import logging

        handler = logging.StreamHandler()
        handler.addFilter(holdfast.LogFilter())
        handler.setFormatter(logging.Formatter("%(run_id)s %(message)s"))
        ```
    """

    def filter(self, record: logging.LogRecord) -> bool:
        place = here()
        if isinstance(place, StepContext):
            record.run_id, record.step_key = (place.run.id if place.run else ""), place.key
            return True
        if place is None:
            record.run_id = record.step_key = ""
            return True
        facts = place.facts
        record.run_id, record.step_key = facts.id, ""
        return not facts.replaying
