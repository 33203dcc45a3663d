"""Rehearsals: the code of agents against what runs recorded, without effects: replays, checks of many runs, and differences."""
