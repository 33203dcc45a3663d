"""Open calls of one worker: once a second it tells the store which bodies have run for longer than a second.

A run of short steps writes nothing here, and a body that runs for an hour is written twice: when it is a second old, and when it
has ended. What the runs of a worker have to tell goes out in one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from holdfast.engine.carried import Carried
from holdfast.errors import StoreUnavailable
from holdfast.store.calls import Told
from holdfast.store.contract import WorkerStore
from holdfast.words.calls import OpenBody
from holdfast.words.harmless import logger

_log = logger("holdfast")
_EVERY_S: Final = 1.0
_OLD_MS: Final = 1_000
_MOST: Final = 50  # of a run that are told one by one


class OpenCalls:
    """The open calls of one worker. `attempts` is the worker's own and changes under way."""

    def __init__(self, store: WorkerStore, attempts: Mapping[str, Carried]) -> None:
        self._store, self._attempts = store, attempts
        self._told: dict[str, tuple[int, int, tuple[OpenBody, ...]]] = {}  # what the store was told last

    async def keep(self) -> None:
        """Tell for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.tell()
            except StoreUnavailable as problem:
                _log.debug("the open calls could not be told; trying again: %s", problem)
            except Exception:
                _log.exception("the open calls could not be told; trying again")

    async def tell(self) -> None:
        """Tell the store what is not as it was told last; nothing is written if all is."""
        found = self._found()
        new = {run: told for run, told in found.items() if self._told.get(run) != told}
        over = self._told.keys() - found.keys()
        if not new and not over:
            return
        await self._store.tell_calls({run: Told(*told) for run, told in new.items()}, over)
        self._told = found

    def _found(self) -> dict[str, tuple[int, int, tuple[OpenBody, ...]]]:
        old, found = self._store.clock.now() - _OLD_MS, {}
        for run, attempt in self._attempts.items():
            calls = sorted((call for call in attempt.open_calls() if call.began <= old), key=lambda call: call.began)
            if calls:
                found[run] = attempt.run.lease_epoch, len(calls), tuple(calls[:_MOST])
        return found
