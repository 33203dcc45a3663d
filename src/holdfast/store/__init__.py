"""Databases that keep runs: a file for each feature, `store` that joins them, and a folder per database."""
