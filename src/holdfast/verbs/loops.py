"""`watch_loops`: for integrations, which know that what an agent does next is up to a model."""

from __future__ import annotations

from holdfast.errors import BadArguments
from holdfast.runtime import current
from holdfast.words.loops import Loops, checked_loops


def watch_loops(loops: Loops) -> None:
    """Look for loops in the steps of this run from here on, unless its agent says itself what a loop is (`@agent(loops=)`)."""
    if checked_loops(loops) is None:
        raise BadArguments("watch_loops takes Loops(), or Loops(same=5, cycle=3)")
    current("watch_loops").watch(loops)
