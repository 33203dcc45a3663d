"""Processes that serve, hold, watch and send: what the tests of ownership, waiting and shutdown are made of."""
