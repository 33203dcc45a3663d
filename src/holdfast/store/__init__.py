"""Databases that keep runs: the contract in `base`, and one module per database."""
