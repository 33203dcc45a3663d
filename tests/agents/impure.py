"""A module of the user's that a reducer in another one calls."""

import time


def stamp() -> str:
    return str(time.time())
