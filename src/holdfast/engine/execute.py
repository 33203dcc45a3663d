"""THE LOOP: what happens to a run between being claimed and leaving this process.

    claim    a worker took the run under a new epoch; nobody else can write its journal
    load     its events since the last checkpoint, and the signals it has not seen
    replay   the agent's code from its first line, against what was recorded
    act      past the last record: bodies run, timers are set, children start
    commit   every outcome is durable before the agent sees it
    leave    ended, parked until something is due, released, paused, or lost to another worker

A crash at any of these points leaves a journal from which the next claim does the same again: before `act` nothing has
happened, during `act` what is recorded is never done again, and what is not recorded is in doubt.
"""

from __future__ import annotations

from holdfast.engine import effects
from holdfast.engine.budgets import meter_of
from holdfast.engine.conversations import recollect
from holdfast.engine.divergence import unfit
from holdfast.engine.execution import Execution
from holdfast.engine.host import Host
from holdfast.engine.journal import Journal
from holdfast.engine.loops import watch_of
from holdfast.engine.streaming import recall
from holdfast.errors import HoldfastError
from holdfast.runtime import AgentSpec
from holdfast.store.blobs import unspilled
from holdfast.words.harmless import logger
from holdfast.words.model import OUTCOMES, Claimed, RunRow

_log = logger("holdfast")


async def load(host: Host, run: RunRow, spec: AgentSpec) -> Execution:
    """Everything replay needs, read once: no work per step grows with the history."""
    store = host.store
    events = run.journal if isinstance(run, Claimed) else None
    if events is None:
        events = await store.journal(run.id, run.checkpoint_seq or 0) if run.next_seq else []
    signals = await store.inbox(run.id, run.inbox_seen) if run.inbox_count > run.inbox_seen else []
    for signal in signals:
        signal.value = await unspilled(store, signal.value)
    execution = Execution(host, run, spec, Journal.of(events), signals)
    execution.meter, execution.watch = meter_of(execution), watch_of(execution, spec.loops)
    for event in events:
        if event.epoch == run.lease_epoch:  # written by the claim itself
            execution.new_outcomes += event.kind in OUTCOMES
            if host.recorded is not None:
                host.recorded(event)
    closed = execution.journal.closed
    for event in events:
        if event.blob is not None and (event.kind in OUTCOMES or event.key not in closed):  # else its call is over
            execution.texts[event.blob] = (await store.blob(event.blob)).decode()
    execution.texts |= await recollect(store, events)
    await recall(execution)
    return execution


async def begin(host: Host, run: RunRow, spec: AgentSpec) -> Execution:
    """Load a claimed run and start its agent's code; what it does next is up to its journal."""
    execution = await load(host, run, spec)
    try:
        text = await unspilled(host.store, run.input)
        args, kwargs = spec.signature.load(text or "{}")
    except HoldfastError as error:
        unfit(
            execution,
            f"run {run.id!r}: its arguments do not fit agent {spec.name!r}: {error}. Bring the old parameters back (new ones "
            "need a default), then resume the run",
        )
        return execution
    effects.watch()
    execution.start(args, kwargs)
    return execution
