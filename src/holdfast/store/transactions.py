"""What an append does in a transaction that is not only ours, on any database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.errors import LeaseLost
from holdfast.store.appends import QueuedAppend, Refused, apply_all, written_at
from holdfast.store.contract import Append, News
from holdfast.store.transaction import Asking, Conflict, Count, Transaction


def queued(appends: Iterable[Append]) -> list[QueuedAppend]:
    """Appends of one run that follow each other, ready to be written."""
    return [QueuedAppend(append, lambda _at, _error: None) for append in appends]


def join(tx: Transaction, batch: Sequence[QueuedAppend]) -> Asking[int]:
    """Write them all, or find that the run is somebody else's; the caller rolls back then."""
    run = batch[0].append.run
    try:
        yield from apply_all(tx, batch)
    except (Refused, Conflict) as error:
        raise LeaseLost(f"run {run!r} is not ours any more: what a step of it wrote is rolled back") from error
    return tx.now


def found(batch: Sequence[QueuedAppend]) -> Callable[[Transaction], Asking[int | None]]:
    """After a commit of which it is not known whether it happened: the time of it, or None.

    Begins with the statement every append begins with, and changes nothing by it: if another backend is still at that
    commit, this waits for its lock, and so cannot miss it.
    """

    def work(tx: Transaction) -> Asking[int | None]:
        first = batch[0].append
        fence = [first.expected_seq, tx.now, 0, 0, None, None, first.run, first.epoch, first.expected_seq]
        if (yield Count("reserve", [fence])) == 1:
            return None
        for one in batch:
            at = yield from written_at(tx, one)
            if at is None:
                raise LeaseLost(f"run {first.run!r} is not ours any more")
        return at

    return work


def tell(changes: dict[str, News]) -> Callable[[Transaction], Asking[None]]:
    """Changes nothing, and has everybody told what a transaction beside the writer's has changed."""

    def work(tx: Transaction) -> Asking[None]:
        for run, news in changes.items():
            tx.changed(run, news)
        yield from ()

    return work
