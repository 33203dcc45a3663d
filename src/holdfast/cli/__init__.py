"""The command line. Only click is imported here: `holdfast --help` must not wait for the rest."""

from __future__ import annotations

from holdfast.cli import commands, decisions, deeds
from holdfast.cli.group import holdfast as main

__all__ = ["commands", "decisions", "deeds", "main"]
