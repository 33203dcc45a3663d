"""The engine: replays an agent against its journal, then acts. Knows the store only as `EngineStore` of `store/contract.py`."""
