"""Temporal as the ground of runs: the engine runs inside a workflow, and Temporal decides what happened and in which order.

Look here for what stands below the engine when the URL is `temporal://HOST:PORT/NAMESPACE`.

Theory of operation. A run is a workflow. On every replay of Temporal's the engine believes that it lives for the first time: its
journal is empty, or the one that the execution before left. Its store (`ground.py`) acknowledges at once, because what an append
says follows from what the history of the workflow already holds. Bodies are activities (`performer.py`, `activities.py`), timers
are timers, what comes from outside are signals and updates. What the engine records goes into the history too, with the next
command or in the memo (`Ground.flush`), so that clients read journals without the agent's code (`history.py`).

Nothing here may be answered by a query: a query can be answered from events that no workflow task has recorded, and moves the
workflow in memory past them. Whatever others act upon is in the memo and in search attributes, which are committed.

A history may not grow for ever. When it is long, nothing new begins, bodies that run end, and the run goes on in another execution
with the journal of the engine as its input. Agent code need not know.
"""
