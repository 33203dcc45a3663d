"""`patched`: new code in old runs. The answer is taken once, where the run first reaches the line, and stays."""

from __future__ import annotations

from holdfast.engine.host import Host
from holdfast.engine.journal import Journal
from holdfast.engine.life import Life
from holdfast.engine.recorder import Recorder


class Patches:
    """The answers of one run. They are carried over checkpoints."""

    __slots__ = ("_host", "_journal", "_life", "_pen", "_unwritten", "answers")

    def __init__(self, life: Life, host: Host, journal: Journal, pen: Recorder) -> None:
        self._life, self._host, self._journal, self._pen = life, host, journal, pen
        checkpoint = journal.checkpoint
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
        journal = self._journal
        known = self._host.patched(patch)
        if known is not None:
            return known
        if journal.claim_patch(patch):
            return True
        if self._life.live:
            self._pen.record("patched", None, {"patch": patch})
            return True
        # Only a call from behind this line shows that the run had passed it. What is still to be delivered may have come
        # while the agent was before it: a message, or the outcome of a call that was made earlier.
        first = not journal.unasked and not journal.unclaimed and not journal.awaits_restore
        if first:  # others may still stir before the run is live: it is written ahead of anything else then
            self._unwritten = (*self._unwritten, patch)
        return first

    def write(self) -> None:
        """The run is live now: write what was found on the way."""
        for patch in self._unwritten:
            self._pen.record("patched", None, {"patch": patch})
        self._unwritten = ()
