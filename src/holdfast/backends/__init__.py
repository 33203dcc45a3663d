"""Other grounds that runs can stand on than a database of ours, each with the engine of `engine/` on top."""
