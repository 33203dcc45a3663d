"""`patched`: new code in old runs. The answer is taken once, where the run first reaches the line, and stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution


class Patches:
    """The answers of one run. They are carried over checkpoints."""

    __slots__ = ("_execution", "_unwritten", "answers")

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        checkpoint = execution.journal.checkpoint
        self.answers: dict[str, bool] = {} if checkpoint is None else dict(checkpoint.data["patches"])
        self._unwritten: tuple[str, ...] = ()

    def answer(self, patch: str) -> bool:
        """True when the run has not been past the line that asks, False when it has."""
        known = self.answers.get(patch)
        if known is None:
            known = self._first(patch)
            self.answers[patch] = known
        return known

    def _first(self, patch: str) -> bool:
        execution, journal = self._execution, self._execution.journal
        if journal.claim_patch(patch):
            return True
        if execution.live:
            execution.record("patched", None, {"patch": patch})
            return True
        # Only a call from behind this line shows that the run had passed it. What is still to be delivered may have come
        # while the agent was before it: a message, or the outcome of a call that was made earlier.
        first = not journal.unasked and not journal.unclaimed and not execution.awaits_restore
        if first:  # others may still stir before the run is live: it is written ahead of anything else then
            self._unwritten = (*self._unwritten, patch)
        return first

    def write(self) -> None:
        """The run is live now."""
        for patch in self._unwritten:
            self._execution.record("patched", None, {"patch": patch})
        self._unwritten = ()
