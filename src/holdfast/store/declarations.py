"""Declarations: what the code of workers declares under a name, and which one holds while several versions run.

The newest code counts. A declaration that was never seen takes effect at once: that is a deploy. One that was seen before takes
effect when no worker is left that declares the present one: that is a rollback, and not an old worker that was restarted. So does
one of another kind.
"""

from __future__ import annotations

from holdfast.store.work import Asking, Transaction


def forget_gone(tx: Transaction) -> Asking[None]:
    """Forget what workers declared that are gone."""
    yield from tx.rows("undeclare_schedules")


def declare(tx: Transaction, name: str, digest: str) -> Asking[None]:
    """Note what this worker declares under a name."""
    yield from tx.rows("declare_schedule", name=name, digest=digest)


def takes_effect(tx: Transaction, name: str, digest: str, present: str | None, *, alike: bool = True) -> Asking[bool]:
    """Decide whether a declaration takes the place of the present one (None: there is none), and note that it was seen.

    One that is not `alike` is no newer code but something else of the same name: it waits, seen before or not.
    """
    seen = yield from tx.row("schedule_seen", name=name, digest=digest)
    if present is not None and (seen is not None or not alike):
        (others,) = yield from tx.row("schedule_declared", name=name, digest=present)
        if others:
            return False
    for each in ("", digest):
        yield from tx.rows("see_schedule", name=name, digest=each)
    return True
