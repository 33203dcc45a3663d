"""Cells: N PostgreSQL databases behind one URL, `cells:FILE`. A root run and its family live in one of them.

Look here for what stands below the engine when one database is not enough.

Theory of operation. There are 1,024 slots, and each is owned by one database. The slot of a run follows from its id alone
(`slots.py`), and all that one transaction must change has one slot: a run, the runs below it, its forks, and the keys
under which it is counted. So nothing that Holdfast does in one transaction ever spans two databases, and every promise
about a run is kept by the PostgreSQL store as it is. `store.py` sends what is asked to the cell that has it, and puts
together what spans cells. A worker (`worker.py`) is one worker for each cell, in one process.

The file says where the databases are and how slots were first divided. The owner of a slot is written in the databases themselves
(`ownership.py`), which refuse a run of a slot that they do not own: a process with an old file writes nothing in a wrong place. A
slot is moved by `moves.py`, with one owner at any time.

A cell that is down raises `StoreUnavailable` for its share, and lists leave it out. Nothing else waits for it.
"""
