"""The performer of bodies on this machine: in the loop or in a thread, within their time, whatever they raise.

A worker's `Host.perform`. It knows nothing of runs and journals: work in, how it ended out.
"""

from __future__ import annotations

import asyncio
import functools
import inspect

from holdfast.engine.bodies import NotBegun
from holdfast.engine.host import RUN_IT, Ended, Work
from holdfast.errors import InDoubt, LeaseLost, StepTimeout, Suspended
from holdfast.runtime import _here


async def perform(work: Work) -> Ended:
    """Run it; returns how it ended."""
    limit = None if work.limit_s is None else asyncio.timeout(work.limit_s)
    place = _here.set(work.context)
    try:
        if not work.threaded:
            coroutine = work.fn(*work.args, **work.kwargs)
        else:
            ended = await _in_thread(work)
            if not inspect.iscoroutine(ended.value):
                return ended
            coroutine = ended.value  # a decorator hid that the function is async
        if limit is None:
            return Ended(await coroutine)
        async with limit:
            return Ended(await coroutine)
    except InDoubt as error:
        return Ended(error=error, doubt=True)
    except Exception as error:
        if limit is not None and limit.expired():  # whatever the body made of being stopped
            return Ended(error=_timed_out(work, error), doubt=True)
        return Ended(error=error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling() == 0:  # the body's own, not ours
            return Ended(error=RuntimeError("the body of the step was cancelled from inside"))
        raise
    except (KeyboardInterrupt, Suspended, LeaseLost):
        raise
    except BaseException as error:  # sys.exit() in a body ends the body, not the worker
        problem = RuntimeError(f"the body of the step raised {type(error).__name__}: {error}")
        problem.__cause__ = error
        return Ended(error=problem)
    finally:
        _here.reset(place)


async def _in_thread(work: Work) -> Ended:
    """Run a plain function in a thread. Nothing can stop a thread, so what it did is known only when it returns."""
    body, may_repeat = functools.partial(work.fn, *work.args, **work.kwargs), work.spec.in_doubt == "retry"
    done = await work.threads.in_thread(body, work.wanted, work.limit_s, may_repeat=may_repeat)
    if done is None:
        return Ended(error=_timed_out(work), doubt=True)
    try:
        return Ended(done.result())
    except NotBegun:
        return RUN_IT


def _timed_out(work: Work, cause: Exception | None = None) -> StepTimeout:
    timed_out = StepTimeout(f"no end within {work.limit_s:g} s")
    timed_out.__cause__ = cause  # its traceback shows where the body was
    return timed_out
