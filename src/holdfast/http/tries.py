"""Wrong tokens: how many one address may show in a minute. A token cannot be guessed; this keeps guesses from using up the server.

A caller that has shown a good one lately is not kept out by others from the same address, as behind a proxy.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from starlette.requests import Request

from holdfast.client.sessions import digest
from holdfast.http.connections import KEY
from holdfast.http.errors import Refused

WRONG_MOST: Final = 60  # of one address, in a minute
_MINUTE_S: Final = 60.0
_MOST: Final = 10_000  # addresses and good tokens that are remembered


class Tries:
    """Counts of wrong tokens, by address."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()  # by address: since when, and how many
        self._right: OrderedDict[str, None] = OrderedDict()  # digests of tokens that were good

    def allow(self, request: Request, secret: str) -> None:
        """Refuse a secret from an address that has shown too many wrong ones."""
        address: str = request.scope[KEY].address
        since, many = self._wrong.get(address, (0.0, 0))
        left_s = since + _MINUTE_S - time.monotonic()
        if many >= WRONG_MOST and left_s > 0 and digest(secret) not in self._right:
            told = f"{many} wrong tokens came from this address within a minute"
            raise Refused("too_many_tries", told, {"Retry-After": str(int(left_s) + 1), "Connection": "close"})

    def wrong(self, request: Request) -> None:
        """Count one."""
        address: str = request.scope[KEY].address
        now = time.monotonic()
        since, many = self._wrong.pop(address, (now, 0))
        self._wrong[address] = (since, many + 1) if now < since + _MINUTE_S else (now, 1)
        if len(self._wrong) > _MOST:
            self._wrong.popitem(last=False)

    def right(self, secret: str) -> None:
        """Remember one that was good."""
        self._right[digest(secret)] = None
        if len(self._right) > _MOST:
            self._right.popitem(last=False)
