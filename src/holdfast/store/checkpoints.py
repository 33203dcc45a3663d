"""Checkpoints as they are read: a state that is told by what changed in it, put together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.errors import StoreUnavailable
from holdfast.store.blobs import unspilled
from holdfast.values.deltas import whole
from holdfast.words.model import Event


class HasEvents(Protocol):
    """A store, as `state_texts` needs it."""

    async def blob(self, digest: str) -> bytes: ...
    async def events_at(self, run: str, seqs: Iterable[int]) -> list[Event]: ...


async def state_text(store: HasEvents, run: str, event: Event) -> str:
    """Read the whole state that a checkpoint stored."""
    return whole(await state_texts(store, run, event))


async def state_texts(store: HasEvents, run: str, event: Event) -> list[str]:
    """Read what a state is made of: its text, then what changed. `StoreUnavailable` if a checkpoint of these is not there."""
    chain = [int(seq) for seq in event.data.get("chain", ())]
    found = {each.seq: each for each in await store.events_at(run, chain)} if chain else {}
    missing = [seq for seq in chain if seq not in found or found[seq].kind != "checkpoint"]
    if missing:
        told = (
            f"the state that run {run!r} stored with event {event.seq} needs the checkpoint at event {missing[0]}, and it is not "
            "in the store"
        )
        raise StoreUnavailable(told, told=told)
    return [await _text(store, each) for each in (*(found[seq] for seq in chain), event)]


async def _text(store: HasEvents, event: Event) -> str:
    if event.blob is not None:
        return (await store.blob(event.blob)).decode()
    return await unspilled(store, event.value) or "null"
