"""Async generators of agent code that were left in the middle: closed in their own run, whoever happens to run then.

Python hands such a generator to the loop when it is collected, and the loop closes it in a task of whatever context is
current: that of another run, or of none, where a step in its `finally` would simply run. So each generator's scope is
remembered from its first iteration on, and the task that closes it is one of its own run: refused its verbs when the run
has left memory, recorded like any other while it is live.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.runtime import Placed, here

if TYPE_CHECKING:
    from holdfast.engine.identity import Scope


class Generators:
    """The generators of all runs on one loop, by their identity: a dying one cannot be looked up by a weak reference."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._call_soon = loop.call_soon  # as it was before it counted what runs ask for: this is no doing of theirs
        self._first, self._last = loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook
        self._homes: dict[int, tuple[Any, Scope]] = {}

    def first(self, generator: Any) -> None:
        """A generator is iterated for the first time. One of a run is ours alone, also when the loop is shut down."""
        place: Any = here()
        if not getattr(place, "is_scope", False):
            self._homes.pop(id(generator), None)  # of one that was at the same address
            self._first(generator)
            return
        number = id(generator)
        self._homes[number] = weakref.ref(generator, lambda _: self._dies(number)), place

    def _dies(self, number: int) -> None:
        """It is about to be collected; if it was left in the middle `last` is called right after this, and else never."""
        home = self._homes.get(number)
        if home is not None and not self._loop.is_closed():
            self._soon(self._forget, number, home)

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """On the loop. Some frameworks use up dozens of generators a turn: to wake the loop for each would take long."""
        here = threading.get_ident() == self._thread
        (self._call_soon if here else self._loop.call_soon_threadsafe)(call, *arguments)

    def _forget(self, number: int, home: tuple[Any, Scope]) -> None:
        if self._homes.get(number) is home:
            del self._homes[number]

    def last(self, generator: Any) -> None:
        """A generator that was left in the middle is collected: close it where it belongs."""
        home = self._homes.pop(id(generator), None)
        if home is None:
            with Placed(None):
                self._last(generator)
        elif not self._loop.is_closed():
            if threading.get_ident() == self._thread:
                _close(home[1], generator.aclose())
            else:
                self._loop.call_soon_threadsafe(_close, home[1], generator.aclose())


def _close(scope: Scope, closing: Any) -> None:
    with Placed(scope):
        scope.execution.adopt(scope, closing, None, name="close a generator").tidies = True


def install_generators(loop: asyncio.AbstractEventLoop) -> None:
    """Watch generators on this loop, now and whenever it is run again."""
    anyloop: Any = loop
    if not hasattr(loop, "_asyncgen_firstiter_hook"):
        return
    generators = Generators(loop)
    anyloop._asyncgen_firstiter_hook, anyloop._asyncgen_finalizer_hook = generators.first, generators.last
    sys.set_asyncgen_hooks(firstiter=generators.first, finalizer=generators.last)
