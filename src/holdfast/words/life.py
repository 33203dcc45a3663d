"""The life of a run: in which states it was, and for how long, as one short text that the store adds to.

Look here for the letters that the store writes (`stood` in store/queries.sql) and for what is made of them. A piece is 12 digits of
milliseconds and a letter. The store merges the oldest pieces, so the text is bounded; lists show 24 at most.
"""

from __future__ import annotations

from typing import Final

from holdfast.words.model import FINISHED, RunRow

MOST: Final = 24
LETTERS: Final = {
    "w": "work", "i": "wait", "p": "person", "t": "retry", "x": "torn", "s": "paused", "r": "ready",
}  # fmt: skip
_WIDTH: Final = 13

Piece = tuple[str, int]  # the kind, and milliseconds


def stands(row: RunRow) -> str:
    """The kind of the piece that lasts, by the state of a run."""
    if row.status == "waiting":
        waits_for = row.waits_for or ""
        return {"person": "person", "retry": "retry", "worker": "ready"}.get(waits_for, "wait")
    return {"running": "work", "ready": "ready"}.get(row.status, "paused")


def life_of(row: RunRow, now: int, sign: int | None = None) -> tuple[Piece, ...]:
    """Read the life of a run, the oldest piece first; the last one of a run that has not ended lasts.

    A run whose lease is over was torn at the last sign of its owner, which is that of its row if no other is given. One that was
    begun before lives were kept has none.
    """
    if not is_known(row):
        return ()
    text = row.life or ""
    found = [
        (LETTERS.get(text[place + 12], "wait"), int(text[place : place + 12])) for place in range(0, len(text), _WIDTH)
    ]
    since = row.updated_at if row.life_at is None else row.life_at
    if row.status not in FINISHED:
        if _is_torn(row, now):
            sign = row.updated_at if sign is None else sign
            found += [("work", max(0, sign - since)), ("torn", max(0, now - sign))]
        else:
            found.append((stands(row), max(0, now - since)))
    return _merged(found, lasts=row.status not in FINISHED)


def worked(row: RunRow, now: int, sign: int | None = None) -> int | None:
    """Count the milliseconds for which its owners worked on it; None if that was not counted from its beginning."""
    if not is_known(row):
        return None
    if row.status != "running" or row.life_at is None:
        return row.worked_ms
    until = now if not _is_torn(row, now) else row.updated_at if sign is None else sign
    return row.worked_ms + max(0, until - row.life_at)


def torn_ms(row: RunRow) -> int:
    """Return for how long a run that was just taken over had been torn: its life ends with that."""
    return int((row.life or "0x")[-_WIDTH:-1])


def is_known(row: RunRow) -> bool:
    """Is the life of a run kept? Not of one that had been claimed before there were lives, or in another store."""
    return row.life is not None or row.started_at is None


def _is_torn(row: RunRow, now: int) -> bool:
    return row.status == "running" and row.due_at is not None and row.due_at <= now


def _merged(pieces: list[Piece], *, lasts: bool) -> tuple[Piece, ...]:
    """Join neighbours of one kind and the oldest of too many; moments that took no time are left out. Each tear is one."""
    over = len(pieces) - lasts
    joined: list[Piece] = []
    for place, (kind, ms) in enumerate(pieces):
        if joined and joined[-1][0] == kind != "torn":
            joined[-1] = kind, joined[-1][1] + ms
        elif ms or kind == "torn" or place == over:
            joined.append((kind, ms))
    while len(joined) > MOST:
        (one, first), (other, second), *rest = joined
        joined = [(one if first >= second else other, first + second), *rest]
    return tuple(joined)
