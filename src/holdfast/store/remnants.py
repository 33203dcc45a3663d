"""Remnants: what the store still knows of messages that have left the inbox.

A message that was sent without a key leaves the inbox once a checkpoint is behind it: the journal has its text, and no
sender sends it again, except one that does not know whether its commit happened. That sender looks for the id that it
gave the message, finds what is left of it, and has its answer. A row for each would take more room than many a message,
so they are kept together: a row is a stretch of positions with one topic, with eight bytes for each id, and for each
time what has passed since the one before.

A statement that was sent on a connection which was cut then may still happen late. So what is sent a second time has its remnant
from the beginning, and by that it stays in the inbox: the late one finds its id there. Messages with a key stay as well, without
their texts, because anybody may send them again at any time.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.store.work import to_json

_PREFIX: Final = "id:"
_ID: Final = re.compile(f"{_PREFIX}[0-9a-f]{{16}}")  # of messages without a key; `release_messages` says the same
_BYTES: Final = 8
_MOST: Final = 1_000  # in a row


class Left(NamedTuple):
    """A message that has left the inbox, or was sent twice and may not leave it."""

    position: int
    signal_id: str
    topic: str
    sent_at: int


def has_no_key(signal_id: str) -> bool:
    """Is this the id of a message that was sent without a key?"""
    return _ID.fullmatch(signal_id) is not None


def packed(run: str, left: Iterable[Left]) -> list[tuple[Any, ...]]:
    """Make the rows of messages, in the order of `insert_remnant`."""
    stretches: list[list[Left]] = []
    for one in sorted(left):
        last = stretches[-1] if stretches else []
        if last and len(last) < _MOST and (last[-1].position, last[-1].topic) == (one.position - 1, one.topic):
            last.append(one)
        else:
            stretches.append([one])
    return [_row(run, some) for some in stretches]


def _row(run: str, some: list[Left]) -> tuple[Any, ...]:
    ids = b"".join(bytes.fromhex(one.signal_id.removeprefix(_PREFIX)) for one in some)
    times = [one.sent_at - before.sent_at for before, one in itertools.pairwise(some)]
    return run, some[0].position, some[0].topic, ids, some[0].sent_at, to_json(times)


def unpacked(rows: Iterable[tuple[int, str, bytes, int, str]]) -> Iterator[Left]:
    """Read such rows, without their run: position, topic, ids, sent_at and times."""
    for first, topic, ids, sent_at, times in rows:
        for number, at in enumerate(itertools.accumulate(json.loads(times), initial=sent_at)):
            yield Left(first + number, f"{_PREFIX}{ids[number * _BYTES : (number + 1) * _BYTES].hex()}", topic, at)
