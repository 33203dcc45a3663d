"""A loop whose time passes only when nothing is left to do: what happens in it happens at the same times whoever runs it.

A second of it takes no second. It stands still while a thread works for the loop, so what a database does takes no time either.
Timers of one moment fire in the order in which they were set.
"""

import asyncio
import contextlib
import functools
import heapq
import itertools
import selectors

_THREAD_S = 20.0  # a bound, never a measure
_BEGAN = 1_700_000_000_000  # when every loop begins, in milliseconds since 1970


@functools.total_ordering
class _Timer(asyncio.TimerHandle):
    __slots__ = ("nth",)
    _count = itertools.count()

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.nth = next(self._count)

    def __lt__(self, other):
        return (self._when, self.nth) < (other._when, other.nth)

    def __eq__(self, other):
        return self is other

    __hash__ = asyncio.TimerHandle.__hash__


class _Selector(selectors.DefaultSelector):
    """Asks the loop before it waits."""

    loop = None

    def select(self, timeout=None):
        if timeout is not None and timeout <= 0:
            return []  # what comes from a thread is in line already; its call only wakes who waits here
        if timeout is not None and not self.loop.works_elsewhere():
            self.loop.skip()
            return []
        found = super().select(_THREAD_S)
        assert found, "nothing is left to do, or a thread that works for the loop does not end"
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Has a time of its own. `watched`: each tells whether something is under way in a thread."""

    def __init__(self):
        self.now_s, self._elsewhere, self.watched = 0.0, 0, []
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self

    def time(self):
        return self.now_s

    def skip(self):
        """Nothing is left to do at this time: go on to the next at which there is."""
        self.now_s = max(self.now_s, self._scheduled[0]._when)

    def works_elsewhere(self):
        return bool(self._elsewhere) or any(busy() for busy in self.watched)

    def call_at(self, when, callback, *args, context=None):
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def run_in_executor(self, executor, func, *args):
        future = super().run_in_executor(executor, func, *args)
        self._elsewhere += 1
        future.add_done_callback(self._came_back)
        return future

    @contextlib.contextmanager
    def standing_still(self):
        """Something is done in a thread of which the loop does not know."""
        self._elsewhere += 1
        try:
            yield
        finally:
            self._elsewhere -= 1

    def _came_back(self, future):
        self._elsewhere -= 1


class VirtualClock:
    """Durable time, by such a loop; any thread may ask for it."""

    def __init__(self, loop):
        self._loop = loop

    def now(self):
        return _BEGAN + int(self._loop.now_s * 1000 + 1e-6)

    def call_at(self, when, callback):
        return self._loop.call_at((when - _BEGAN) / 1000, callback)

    def call_later(self, delay_s, callback):
        return self._loop.call_later(delay_s, callback)

    after = call_later


def run(main):
    """Run it in a loop with a time of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
