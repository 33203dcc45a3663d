"""The files of this folder, held against the package."""

from __future__ import annotations

from pathlib import Path

from tests.snapshots.surface import SNAPSHOTS

HERE = Path(__file__).parent


def lines(name: str) -> set[str]:
    """Those of a file; what is behind `  # ` says why, in removed.txt."""
    file = HERE / f"{name}.txt"
    found = file.read_text("utf-8").splitlines() if file.exists() else []
    return {line.partition("  # ")[0] if name == "removed" else line for line in found} - {""}


def now(name: str) -> set[str]:
    return set(SNAPSHOTS[name][0]())


def accept(name: str) -> None:
    """Write what is there now, with what was there and must be kept."""
    kept = lines(name) - lines("removed") if SNAPSHOTS[name][1] else set()
    text = "".join(f"{line}\n" for line in sorted(now(name) | kept))
    (HERE / f"{name}.txt").write_text(text, "utf-8")


def difference(name: str) -> str:
    """What is gone and what is new, and what to do about it; "" if nothing is."""
    before, after, kept = lines(name), now(name), SNAPSHOTS[name][1]
    if kept:
        before -= lines("removed")
    gone, new = sorted(before - after), sorted(after - before)
    told = (
        [f"{len(gone)} lines of tests/snapshots/{name}.txt are gone:", *(f"  - {line}" for line in gone)]
        if gone
        else []
    )
    if gone and kept:
        told.append(
            "These may only be added to. Bring them back; or write each into tests/snapshots/removed.txt, `LINE  # why`."
        )
    told += [f"{len(new)} lines are new:", *(f"  + {line}" for line in new)] if new else []
    if new or (gone and not kept):
        told.append("If that is what you want: python -m tests.snapshots, and look at the diff.")
    return "\n".join(told)
