"""The command line. `main` is the group of all commands; a command's module is imported when the command is used."""

from __future__ import annotations

from holdfast.cli.group import holdfast as main

__all__ = ["main"]
