"""Rehearsals: the code of agents against what runs recorded, without effects: replays, checks of many runs, and differences."""

from typing import Final

LIMIT_S: Final = 30.0  # for one replay, in all
