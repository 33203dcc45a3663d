"""Test agents as they will live: time that jumps, crashes at every point, and counts of what really ran.

    async with holdfast.testing.open(agents=[research], replace={search: fake_search}) as hf:
        run = await hf.start(research, "otters", id="o")
        await run.wait("waiting")
        await hf.advance("3 days")
        await hf.crash()
        assert hf.bodies[publish] == 1

The store is a real SQLite file in a temporary folder; a crash drops everything that was not committed and opens the file
anew, as a killed process and its successor would. `holdfast.testing.provider` is a model provider that fails on order.
"""

from holdfast.testing.clock import JumpClock
from holdfast.testing.crashes import crash_everywhere
from holdfast.testing.kit import TestClient, open
from holdfast.testing.reducers import Folded, fold
from holdfast.testing.rehearsal import Rehearsed, rehearse, replay

__all__ = ["Folded", "JumpClock", "Rehearsed", "TestClient", "crash_everywhere", "fold", "open", "rehearse", "replay"]
