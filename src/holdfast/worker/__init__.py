"""Takes runs that are due and carries them on."""
