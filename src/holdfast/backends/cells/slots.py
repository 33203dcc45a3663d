"""Slots: which of 1,024 a run, a conversation, a rate, a schedule or a trigger belongs to. It follows from the name alone.

What stands before the first '.' or '@' decides. So a run and all below it (`report-1.search-8f3a`), its forks (`report-1.fork-2`)
and the runs of a schedule (`report@2026-11-15T07:00:00Z`) share a slot, and a client that chooses ids can keep runs
together: `acme.17` and `acme.18`. A generated id says its slot itself (`report-x1ff-8f3a09bc`), so that a run can be
put where its keys are counted. The databases compute the same (`ownership.py`); a test holds the two against each
other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from holdfast.errors import BadArguments, Unsupported
from holdfast.words.limits import Lane

SLOTS: Final = 1024
_HEAD: Final = re.compile(r"[^.@]*")
_SAYS: Final = re.compile(r"-x([0-3][0-9a-f]{2})-[0-9a-f]{8}$")
_MARK: Final = re.compile(r"-([0-9a-f]{8})$")
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def slot_of(name: str) -> int:
    """The slot of a run, or of anything else that has a name of its own."""
    found = _HEAD.match(name)
    head = (found[0] if found is not None else "") or name
    says = _SAYS.search(head)
    return int(says[1], 16) if says is not None else _hashed(head)


def _hashed(text: str) -> int:
    first, second = hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:2]
    return first * 4 + second // 64


def keys_of(lane: Lane) -> list[str]:
    """The keys under which a run is counted, the strictest first."""
    return list(dict.fromkeys(key for key in (lane.singleton_key, lane.limit_key, lane.rate_key) if key))


def key_slot(key: str) -> int:
    """The slot of a key of a limit, a rate or a singleton: of all of it, because its dots divide nothing."""
    return _hashed(key)


def placed(id: str, lane: Lane) -> str:
    """Let a generated id say its slot: that of the key under which its run is counted, if it has one. The same each time."""
    keys = keys_of(lane)
    found = _MARK.search(id)
    base, mark = (id[: found.start()], found[1]) if found else (id, hashlib.sha256(id.encode()).hexdigest()[:8])
    slot = key_slot(keys[0]) if keys else _hashed(id)
    return f"{base.replace('.', '_').replace('@', '_')}-x{slot:03x}-{mark}"


def check_place(id: str, root: str, agent: str, lane: Lane) -> None:
    """Refuse a run that would be counted in one slot and live in another: `Unsupported`."""
    slot = slot_of(root)
    for key in keys_of(lane):
        if key_slot(key) == slot:
            continue
        if id != root:
            raise Unsupported(
                f"run {id!r} of {agent!r} lives in slot {slot}, with its family, and its limit=, rate= or singleton= ({key!r}) is "
                f"counted in slot {key_slot(key)}: cells count the runs of an agent only where no other run starts it"
            )
        if len(keys_of(lane)) > 1:
            raise Unsupported(
                f"agent {agent!r} is counted under {len(keys_of(lane))} keys ({', '.join(map(repr, keys_of(lane)))}), which "
                "belong to slots that may be in two cells. Keep one of limit=, rate= and singleton=, or count on a step"
            )
        raise Unsupported(
            f"run {id!r} would live in slot {slot}, and is counted under {key!r} in slot {key_slot(key)}. Leave id= out: then "
            "the id is made so that both are one slot"
        )


def parsed(text: str) -> list[int]:
    """Read '0-511, 600': slots, in order and each once. `BadArguments` if it is anything else."""
    found: set[int] = set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        ends = _RANGE.fullmatch(part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends is not None else (1, 0)
        if not first <= last < SLOTS:
            raise BadArguments(
                f"{part!r} is no range of slots; write for example '0-511' or '7', from 0 to {SLOTS - 1}"
            )
        again = found & set(range(first, last + 1))
        if again:
            raise BadArguments(f"slot {min(again)} is named twice in {text!r}")
        found.update(range(first, last + 1))
    return sorted(found)


def spelled(slots: Iterable[int]) -> str:
    """Write slots as ranges."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
