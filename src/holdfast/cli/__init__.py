"""The command line. Only click is imported here: `holdfast --help` must not wait for the rest."""

from __future__ import annotations

from holdfast.cli.commands import holdfast as main

__all__ = ["main"]
