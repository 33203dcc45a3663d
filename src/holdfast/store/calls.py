"""Open calls: whose bodies run now, as their owners tell. No journal has them, so they may be late or missing, and decide nothing.

A row counts while its run is running under the epoch of the owner that wrote it, with a lease that is not over: of a
run that has left memory, or whose owner is dead, readers are told nothing, whatever is left of its row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json
from holdfast.words.calls import OpenBody


class Told(NamedTuple):
    """Word of an owner about a run: under which epoch, how many bodies run, and the oldest of them."""

    epoch: int
    many: int
    calls: Sequence[OpenBody]


def news_of(run: str) -> str:
    """Name under which listeners hear that other calls of a run are open; no run has it."""
    return f" open {run}"


class Calls(Feature):
    """Open calls, told by workers and read by clients."""

    async def tell_calls(self, told: Mapping[str, Told], over: Iterable[str]) -> None:
        """Tell which calls of these runs are open, and that those have none any more, in one write."""
        await self._submit(lambda tx: _tell(tx, told, sorted(over)), journal=False, runs=())

    async def open_calls(self, runs: Iterable[str]) -> dict[str, Told]:
        """Read what is known of the open calls of these runs, by run."""
        found = await self._glance(rows, "open_calls", ids=to_json(list(runs)), now=self.clock.now())
        return {
            run: Told(epoch, many, [OpenBody(*call) for call in json.loads(calls)]) for run, epoch, many, calls in found
        }


def _tell(tx: Transaction, told: Mapping[str, Told], over: Sequence[str]) -> Asking[None]:
    """A crash between the statements leaves rows that no longer count, or that are told again a second later."""
    if over:
        yield from tx.rows("withdraw_calls", ids=to_json(over))
    lists = [
        [run, tx.worker, of.epoch, of.many, to_json([list(call) for call in of.calls]), tx.now]
        for run, of in sorted(told.items())
    ]
    if lists:
        yield Count("publish_calls", lists)
    for run in (*told, *over):
        tx.changed(news_of(run))
