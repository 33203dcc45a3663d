"""Databases that keep runs: the contract in `contract`, the work that both kinds share, and a folder per database."""
