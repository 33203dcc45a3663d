"""The worker: takes runs that are due and carries them on."""
