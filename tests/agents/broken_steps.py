"""Steps that are broken until they are mended, and ways to retry runs that failed because of them."""

from __future__ import annotations

import pytest
from tests.agents.runs import Gate

import holdfast
from holdfast import RunFailed

BROKEN: set[str] = set()
KEYS: list[tuple[str, str]] = []
ATTEMPTS: list[int] = []
GATES: dict[str, Gate] = {}


def forget() -> None:
    """Nothing is broken, nothing has happened."""
    for kept in (BROKEN, KEYS, ATTEMPTS, GATES):
        kept.clear()


async def acted(what: str) -> str:
    KEYS.append((what, holdfast.idempotency_key()))
    if what in GATES:
        await GATES[what]()
    if what in BROKEN:
        raise ValueError(f"{what} is broken")
    return f"{what} done"


@holdfast.step
async def act(what: str) -> str:
    return await acted(what)


def bodies(what: str) -> int:
    """How often the body ran; always with one key."""
    keys = [key for name, key in KEYS if name == what]
    assert len(set(keys)) <= 1
    return len(keys)


async def fails(run) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        await run.result()
    return caught.value


async def mended(run, *what: str):
    """Mend what is broken and retry."""
    BROKEN.difference_update(what)
    await run.retry(by="ana")
    return await run.result()
