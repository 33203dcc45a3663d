"""The side: a database of Holdfast's own beside a cluster, for what a history is no place for.

Look here for what `?side=postgresql://...` adds. Clients use it as it is: tokens, the audit, conversations, the feed (`feed.py`).
The engine of a run reaches it by an activity: to count rates of steps, to write into streams, to talk (`talks.py`), and to look at
budgets (`budgets.py`). Bodies write into streams from wherever they run.

A run on Temporal has a row in the side, because streams, journals and budgets belong to rows: one that is 'moved', so that nothing
carries it on there.

Everything is idempotent or fenced, except turns of rates: one that is taken twice, because the first answer was lost, makes the
others later and none earlier. A writer knows where it found the stream, and writes there or not at all: of two bodies of one
step, of which one is believed to be gone, one gets no further. Rows that are there already under a writer's own mark are its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.engine.elsewhere import Desk
from holdfast.errors import LeaseLost
from holdfast.store.changes import News
from holdfast.store.deletion import delete_runs
from holdfast.store.limits import Turn
from holdfast.store.store import Store
from holdfast.store.streams import Piece, chunk_row
from holdfast.store.work import Asking, Count, Transaction, to_json
from holdfast.words.model import ON_TEMPORAL, RunRow, is_shadow

Line = list[Any]  # a piece of a stream, as it travels


def told(piece: Piece) -> Line:
    """A piece as a list."""
    return [piece.stream, piece.position, piece.kind, piece.key, piece.attempt, piece.began, piece.reason, piece.text]


def piece_of(line: Sequence[Any]) -> Piece:
    """A piece from such a list."""
    stream, position, kind, key, attempt, began, reason, text = line
    return Piece(stream, position, kind, key, attempt, began, reason, [text] if text else [])


@dataclass(frozen=True, slots=True)
class Write:
    """Add these pieces to streams of a run, where its writer has left them; `mark` is its own."""

    of: RunRow
    mark: int
    pieces: Sequence[Piece]

    def __call__(self, tx: Transaction) -> Asking[None]:
        last, run = self.pieces[-1], self.of.id
        yield from shadow(tx, self.of)
        mine = yield from tx.row("chunk_written", run=run, stream=last.stream, position=last.position, epoch=self.mark)
        if mine is not None:
            return
        ends = {row[0]: row[1] for row in (yield from tx.rows("streams", run=run))}
        for piece in self.pieces:
            if piece.position - (len(piece.text) or 1) != ends.get(piece.stream, 0):
                at = ends.get(piece.stream, 0)
                raise LeaseLost(f"the stream {piece.stream!r} of run {run!r} has come to {at}: another body writes it")
            ends[piece.stream] = piece.position
        yield Count("insert_chunk", [(*chunk_row(run, self.mark, piece), tx.now) for piece in self.pieces])
        tx.changed(run, News.GREW)


def shadow(tx: Transaction, of: RunRow) -> Asking[None]:
    """Make sure that a run has a row in the side: its identity, its family, and that it is not carried on there."""
    if (yield from tx.row("fence", run=of.id)) is not None:
        return
    uid = hashlib.sha256(of.id.encode()).hexdigest()[:32]
    yield from tx.rows(
        "shadow", id=of.id, uid=uid, agent=of.agent, parent_id=of.parent_id, root_id=of.root_id or of.id, labels=of.labels,
        reason=ON_TEMPORAL,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete what is here of a run that the cluster has forgotten, and of the runs below it: its id is used again.

    `made_at` is when its row was made: one that was made meanwhile is that of the new run.
    """

    run: str
    made_at: int | None

    def __call__(self, tx: Transaction) -> Asking[None]:
        row = yield from tx.row("run", run=self.run)
        if row is None or not is_shadow(found := RunRow(*row)) or found.created_at != self.made_at:
            return
        family = yield from tx.rows("family", run=self.run)
        yield from delete_runs(tx, [member for member, status in family if status == "moved"])


def known(run: str, agent: str, labels: Mapping[str, str], parent: str | None, root: str) -> RunRow:
    """Make the row of a run from what a writer for it knows."""
    return RunRow(run, "", agent, "moved", "{}", parent_id=parent, root_id=root, labels=to_json(dict(labels)))


def desk(store: Store, of: RunRow, key: str, number: int, writer: str) -> Desk:
    """Make the place at which a body writes to streams; `writer` is this attempt at it, and no other."""
    mark = int(hashlib.sha256(writer.encode()).hexdigest()[:12], 16)

    async def put(pieces: Sequence[Piece]) -> None:
        await store._submit(Write(of, mark, pieces))

    return Desk(store, of.id, key, number, put)


async def count(store: Store, what: str, given: Sequence[Any]) -> list[Any]:
    """Take turns of rates, in this order, or tell a rate something."""
    if what == "take_turns":
        return [[*await store.take_turn(*each)] for each in given]
    key, *rest = given
    if what == "closed":
        return [*await store.closed(key, None if rest[0] is None else Turn(*rest[0]), rest[1])]
    if what == "use_late":
        await store.use_late(key, dict(rest[0]), rest[1])
    elif what == "charge":
        await store.charge(key, *rest)
    else:
        return [await store.pause_rate(key, *rest)]
    return []


async def pieces_of(store: Store, run: str, stream: str, after: int) -> list[Line]:
    """Read a page of a stream."""
    return [told(piece) for piece in await store.pieces(run, stream, after)]


async def lasts_of(store: Store, run: str) -> list[Line]:
    """Read where the streams of a run stand."""
    return [told(piece) for piece in await store.streams(run)]


async def write(store: Store, of: RunRow, mark: int, lines: Iterable[Line]) -> None:
    """Write what the engine of a run has said."""
    await store._submit(Write(of, mark, [piece_of(line) for line in lines]))
