"""The part of the contract with a database that has to do with rates: whose turn it is, for all workers together."""

from __future__ import annotations

from typing import NamedTuple, Protocol


def in_milliseconds(micros: int) -> int:
    """Rounded up: nothing begins early."""
    return -(-micros // 1000)


class Turn(NamedTuple):
    """When one may begin. It is late because of a pause, or because of those that come before.

    Its place is in microseconds, and never changes. Places are an interval apart.
    """

    place: int
    paused: bool = False

    @property
    def at(self) -> int:
        return in_milliseconds(self.place)


class Closed(NamedTuple):
    """Until when a rate is paused, and until when it has to pay for tokens that were used.

    `late` is when those began, in microseconds, that had their turn a window before ours and used it late: ours comes a
    window after that. 0: there is none.
    """

    paused: int
    owed: int
    late: int


class RateStore(Protocol):
    """Where turns are reserved. Keys are those of `flow.Lane`; times are the store's, in milliseconds."""

    async def take_turn(self, key: str, interval_us: int, tokens_us: int = 0) -> Turn:
        """Reserve the next turn of a rate, which may be now. The one after it comes `interval_us` later.

        With `tokens_us`, the time that a thousand tokens take, it comes later still if turns use many of them.
        """
        ...

    async def use_late(self, key: str, began: dict[int, int], every_ms: int) -> None:
        """Write down when late turns were used, by the beginning of their stretch (`flow.stretch_us`)."""
        ...

    async def pause_rate(self, key: str, wait_ms: int) -> int:
        """From now on and for so long nobody gets a turn that is earlier; returns until when. Pauses do not add up."""
        ...

    async def charge(self, key: str, tokens: int, tokens_us: int, since: int) -> None:
        """A body that had its turn at `since` has used tokens; turns that are taken from now on are later for it."""
        ...

    async def closed(self, key: str, turn: Turn | None = None, every_ms: int = 0) -> Closed:
        """Whether a turn that was reserved earlier can still be used."""
        ...

    async def paused_rates(self, limit: int = 100) -> list[tuple[str, int]]:
        """The rates that are paused now, and until when; the longest first."""
        ...
