"""Replays an agent against its journal, then acts. Knows the store only through `store/contract.py`."""
