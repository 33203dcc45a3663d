"""When code and journal do not fit: the run is paused with the reason, before any effect and without a write to its journal.

It is never raised into the agent, which could catch it and act upon it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine import unrecorded
from holdfast.engine.journal import Divergence
from holdfast.engine.receipts import Receipt
from holdfast.store.appends import Append, Transition
from holdfast.words.harmless import logger

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

_log = logger("holdfast")


def diverge(execution: Execution, divergence: Divergence, found: str) -> None:
    """The code does not fit its journal."""
    pause(execution, f"NondeterminismError: {divergence.told(execution.run.id, found)}")


def pause(execution: Execution, reason: str) -> None:
    """Stop here; only a person or other code makes it go on."""
    if execution.closing:
        return
    _log.error("%s", reason)
    append = Append(execution.run.id, execution.run.lease_epoch, execution.next_seq)
    append.transition = execution.left = Transition("paused", reason=reason)
    execution.write(append, Receipt(execution))
    execution.close("paused")


def unfit(execution: Execution, reason: str) -> None:
    """A record does not fit the types of this code: perhaps it fits that of another worker.

    So the run leaves without a write to its journal, and the host gives it back, or pauses it if nobody is left.
    """
    if not execution.closing:
        execution.unfit = reason
        execution.close("unfit")


def asks_instead(execution: Execution) -> str:
    """What the code does now where it does not do what is recorded: the calls of which the journal knows nothing."""
    journal = execution.journal
    new = [
        call for call in execution.calls.values() if call.key not in journal.closed and call.key not in journal.begun
    ]
    told = [f"{call.name}({call.preview}) under the key {call.key!r}" for call in new[:3] if not call.begun]
    more = f" and {len(new) - 3} more" if len(new) > 3 else ""
    return f"; it now calls {', '.join(told)}{more}, which the journal does not have" if told else ""


def restless(execution: Execution) -> None:
    """The run has not settled for a long time."""
    recorded = not execution.live and not execution.journal.exhausted
    begins = any(not call.begun and not call.withdrawn for call in execution.calls.values())
    if execution.is_told_anyway():
        execution.gate.kick()
        return
    if not (execution.ready or recorded or begins):
        if not execution.live and execution.journal.left_over() is None:
            execution.never_settles = True
            execution._reach_edge()  # nothing is recorded that it has not seen, and requests must be heard
        execution.gate.kick()  # busy with things of its own, and nobody waits for it
        return
    lines = [unrecorded.place(task) for task in list(execution.tasks)[:3]]
    pause(
        execution,
        f"run {execution.run.id!r} never settles: its tasks go on without waiting for anything, so no outcome can be "
        f"delivered in a fixed place. Look at {', '.join(lines)}; a loop around asyncio.sleep(0) is the usual cause",
    )


def hopped_far(execution: Execution) -> None:
    """A chain of callbacks goes on for longer than the version that began the run, if that was an older one, waited for it.

    It delivered the next outcome in the middle of the chain if it had one by then, and behind it if not: the journal does not
    say which.
    """
    event = None if execution.live else execution.journal.next()
    if event is not None and execution.run.identity is None:
        pause(
            execution,
            f"NondeterminismError: run {execution.run.id!r} was begun by an older version of Holdfast, which waited for a chain of "
            "callbacks (nested asyncio.shield, gather of futures, call_soon) for 32 turns of the loop only. The chain that goes on "
            f"before {event.kind} of {event.key or 'the inbox'!r} is longer, and which the agent saw first is not recorded. "
            "Nothing was done and nothing was written. Finish the run with that version, or start it anew",
        )
