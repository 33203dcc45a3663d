"""Inputs of steps, kept whole: told by what is new in them (`values/parts.py`), in the first event of each call.

Look here when an input is missing from a history, or takes more room than it should.

Nothing is done for a step whose inputs are kept as a digest, which is the default of all but model requests. The first call of an
attempt whose input is kept makes the memory, from what the journal has since the last checkpoint; from then on every event that is
durable is taken in. What an event of this life had before that is only unknown: it is told once more.

The parts of an input go out with the event that has it, in one append. An event that did not happen leaves no trace here, because
memory is of durable events alone.
"""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import Any

from holdfast.engine.host import Host
from holdfast.engine.journal import Journal
from holdfast.runtime import StepSpec
from holdfast.values.codec import UNTYPED
from holdfast.values.parts import ARGUMENTS, Growing, Memory
from holdfast.values.signature import Bound
from holdfast.words.harmless import logger
from holdfast.words.model import Event, RunRow

_log = logger("holdfast")


class Inputs:
    """Tells the inputs of one attempt at a run."""

    __slots__ = ("_journal", "_limit_bytes", "_parts", "_run", "kept", "memory", "requests")

    def __init__(self, journal: Journal, run: RunRow, host: Host, kept: str | None) -> None:
        self._journal, self._run, self._limit_bytes = journal, run, host.value_limit_bytes
        self.kept = kept or host.inputs or "digest"  # of steps that do not say
        self.requests = kept or host.inputs or "full"  # of model requests
        self.memory: Memory | None = None
        self._parts: dict[str, str] = {}  # of what was told last, and is about to be recorded

    def are_kept(self, spec: StepSpec) -> bool:
        """Is the input of a step kept whole?"""
        return (self.requests if callable(spec.inputs) else spec.inputs or self.kept) == "full"

    def tell(self, spec: StepSpec, bound: Bound, data: dict[str, Any]) -> None:
        """Put the input of a call into the data of its event; one that is too large, or cannot be written, is left out."""
        given: str | Growing = bound.text
        if callable(spec.inputs):
            try:
                made = spec.inputs(*bound.args, **bound.kwargs)
                given = made if isinstance(made, Growing) else UNTYPED.text(made, "inputs")
            except Exception as error:
                _log.warning("run %r: the inputs of %r could not be kept: %r", self._run.id, spec.name, error)
                return
        if len(given) > self._limit_bytes:
            return
        if self.memory is None:
            self.memory = self._recalled()
        data["inputs"], self._parts = self.memory.tell(given)

    def taken(self) -> dict[str, str] | None:
        """Hand over the parts of what was told last."""
        parts, self._parts = self._parts, {}
        return parts or None

    def _recalled(self) -> Memory:
        """Make the memory of what was recorded before."""
        memory, journal = Memory(), self._journal
        memory.saw(ARGUMENTS, None, self._run.input)
        if journal.checkpoint is not None:
            memory.saw(journal.checkpoint.seq, None, journal.checkpoint.value)
        begun = chain.from_iterable(journal.begun.values())
        for event in sorted(chain(begun, journal.outcomes), key=lambda event: event.seq):
            with contextlib.suppress(
                Exception
            ):  # forged or damaged: then it is told once more, and no step fails for it
                memory.saw(event.seq, event.data.get("inputs"), event.value)
        return memory

    def saw(self, event: Event, texts: dict[str, str]) -> None:
        """Take in an event that is durable."""
        assert self.memory is not None
        value = event.value if event.blob is None else texts.get(event.blob)
        self.memory.saw(event.seq, event.data.get("inputs"), value)
