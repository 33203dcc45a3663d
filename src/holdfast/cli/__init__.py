"""The command line. Only click is imported here: `holdfast --help` must not wait for the rest."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The entry point of `holdfast` and of `python -m holdfast`."""
    from holdfast.cli.commands import holdfast

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a value that the terminal cannot show is no reason to stop
    holdfast()
