"""Is this server alive, can it answer, and what are its numbers? For probes and scrapers; no token is needed for it.

It is asked on the loop that serves: a loop that hangs does not answer, which is what a probe finds out. What is told are
names of queues and counts, as a worker tells them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.documents import json_bytes
from holdfast.client.edge import Edge
from holdfast.errors import HoldfastError
from holdfast.http.follow import Followers
from holdfast.words.harmless import logger
from holdfast.worker.health import LATE_MS, PATIENCE_S
from holdfast.worker.metrics import STORE_METRICS, Described, StoreSight, exposition

_COUNTED_S: Final = 5.0  # the counts of the store are not taken more often
_log = logger("holdfast.http")

Served = Counter[tuple[str, str, int]]  # method, path and status -> how often


@dataclass(frozen=True, slots=True)
class ServerSight(StoreSight):
    """A server and its store at one moment."""

    served: Served
    followers: int


METRICS: Final[tuple[Described[ServerSight], ...]] = (
    Described("holdfast_http_requests_total", "counter", "Requests that this server has answered.",
              ("method", "path", "status"),
              lambda sight: [((method, path, str(status)), count) for (method, path, status), count in sight.served.items()]),
    Described("holdfast_http_followers", "gauge", "Those who follow a history or a stream at this server now.", (),
              lambda sight: [((), sight.followers)]),
    *STORE_METRICS,
)  # fmt: skip


@dataclass
class Health:
    """The health of a server."""

    edge: Edge
    followers: Followers
    served: Served = field(default_factory=Counter)
    _sight: ServerSight | None = None
    _counted_at: float = 0.0
    _counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def alive(self, _: Request) -> Response:
        """Would a new process do better?"""
        ailment = self.edge.ailment()
        return _judged(ailment.reason if ailment is not None and ailment.lasting else "")

    async def ready(self, _: Request) -> Response:
        """Can it answer requests?"""
        if self.followers.closing.is_set():
            return _judged("the server ends: it takes no new requests")
        ailment = self.edge.ailment()
        if ailment is not None:
            return _judged(ailment.reason)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.edge.ping()
        except HoldfastError as problem:
            _log.warning("not ready: %s", problem)
            return _judged("the store cannot be reached")
        except TimeoutError:
            return _judged(f"the store did not answer within {PATIENCE_S:g} s")
        return _judged("")

    async def metrics(self, _: Request) -> Response:
        """The numbers."""
        async with self._counting:  # many requests at once are one question
            if self._sight is None or time.monotonic() > self._counted_at + _COUNTED_S:
                await self._count()
        assert self._sight is not None
        sight = replace(self._sight, served=self.served, followers=self.followers.count)
        try:
            kind, text = exposition(METRICS, sight)
        except ModuleNotFoundError:
            told = 'prometheus-client is not installed: pip install "holdfast[metrics]"'
            return Response(json_bytes({"error": {"code": "no_metrics", "message": told, "hint": ""}}), 501)
        return Response(text, headers={"Content-Type": kind, "Cache-Control": "no-store"})

    async def _count(self) -> None:
        census, questions, deliveries = None, None, list[Any]()
        try:
            async with asyncio.timeout(PATIENCE_S):
                census, questions, deliveries = await self.edge.census(LATE_MS)
        except (HoldfastError, TimeoutError):
            pass
        self._counted_at = time.monotonic()
        self._sight = ServerSight(
            census, self.edge.now(), self.served, self.followers.count, questions=questions, deliveries=deliveries
        )


def _judged(reason: str) -> Response:
    document = {"status": "unavailable", "reason": reason} if reason else {"status": "ok"}
    headers = {"Cache-Control": "no-store"}
    return Response(json_bytes(document), 503 if reason else 200, headers, "application/json")
